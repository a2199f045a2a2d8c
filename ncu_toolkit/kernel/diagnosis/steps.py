"""What a step from one kernel to the next changed, which waiting fell, and the gain that was
predicted compared with the gain achieved.

A step has one speedup: of the unprofiled times where both kernels were timed, else of their
launches' sum under the profiler. Figures and waiting are the profiler's, summed over the launches
where a kernel takes several."""

from collections.abc import Callable, Iterator
from typing import Final, Literal

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Diagnosis, Finding, Profile
from ncu_toolkit.kernel.diagnosis import compare, figures
from ncu_toolkit.kernel.diagnosis.compare import OPCODES, Change, Launches, attribute, of_all
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.time_model import ACCURACY, NOISE

#: A figure that moved by less than this is not worth a sentence.
MOVED: Final = 0.1
#: Waiting is worth a sentence from this part of the kernel's time on.
FLOOR: Final = 0.01
#: A part of a slowdown is named from this fraction of it on.
SHARE: Final = 0.05
#: A prediction and what was achieved count as equal only within this factor: 95% and 99% of a
#: time saved are a few points, but 20x and 100x.
ALIKE: Final = 1.25
#: What a step that removes nothing is called, by its rung's kind.
_KINDS: Final = {"regression": "shows a regression. It", "planted": "has a planted defect. It"}


class StepExplanation:
    """What a step from one kernel to the next changed, and what that did.

    `removes` is the bottleneck that the step is meant to remove, "" for none; `kind` is the later
    rung's (`regression` and `planted` remove nothing)."""

    speedup: float | None = None
    """Time before over time after; None where a time is missing."""
    clock: Literal["timed", "profiled", ""] = ""
    """Which times `speedup` is of: unprofiled ones, or the sum of the launches under the
    profiler."""
    rank: int | None
    """Place of the cause that the step removes in the diagnosis of the earlier kernel's longest
    launch: 1 is the verdict. None where none is declared or found."""
    expected: float | None = None
    """The speedup predicted for the whole rung if that cause alone went: of several launches only
    the longest has it."""
    text: tuple[str, ...]
    """Sentences in plain English, in reading order."""

    def __init__(
        self,
        before: Launches,
        after: Launches,
        removes: str = "",
        diagnosed: Callable[[Profile], Diagnosis] = diagnose,
        kind: str = "step",
    ) -> None:
        self._before, self._after, self._removes, self._kind = before, after, removes, kind
        self._first, self._second = diagnosed(before.main), diagnosed(after.main)
        rule = load_rules().get(removes)
        self._roof = rule.ROOF if rule else None
        self._titles = {name: figures.small(rule.TITLE) for name, rule in load_rules().items()}
        self._times = (0.0, 0.0)
        for clock, old, new in (
            ("profiled", before.profiled_us, after.profiled_us),
            ("timed", before.timed_us, after.timed_us),
        ):
            if old and new:
                self.clock, self._times, self.speedup = clock, (old, new), old / new  # type: ignore[assignment]
        named = [finding.bottleneck for finding in self._first.findings]
        self.rank = named.index(removes) + 1 if removes in named else None
        self._predicted = self._first.findings[self.rank - 1] if self.rank else None
        if self._predicted and self._predicted.speedup is not None:
            self.expected = 1 / (1 - of_all(removes, self._predicted.saved, before.part))
        self._figures = compare.changes(before, after)
        self._stalls = sorted(compare.waiting(before, after), key=lambda each: -abs(each.moved))
        parts = (
            self._time(), self._launches(), self._changed(), self._fell(), self._slower(), self._bottleneck(), self._aim(),
            self._prediction(),
        )  # fmt: skip
        self.text = tuple(line for part in parts for line in part)

    def _time(self) -> Iterator[str]:
        if self.speedup is None:
            yield "Times are missing, so the step's gain is not known."
            return
        how = "timed without the profiler" if self.clock == "timed" else "under the profiler"
        if max(self._before.count, self._after.count) > 1:
            how += ", all launches together"
        times = f"{' → '.join(map(units.duration, self._times))}, {how}"
        if abs(self.speedup - 1) < NOISE:
            yield f"The step did not change the time: {times}."
        else:
            yield f"The step is {units.faster(self.speedup)}: {times}."

    def _launches(self) -> Iterator[str]:
        old, new = self._before.count, self._after.count
        if max(old, new) == 1:
            return
        launches = [units.counted(count, "launch") for count in (old, new)]
        many = f"Both take {launches[0]}"
        if old != new:
            names = self._before.name or "the kernel before", self._after.name or "this one"
            many = f"{names[0]} takes {launches[0]}, {names[1]} takes {launches[1]}"
        if self._before.whole and self._after.whole:
            yield f"{many}. Counts, bytes and waiting below are sums; other figures are of the longest launch."
        else:
            yield f"{many}. Some were not profiled, so the figures below are of the longest launch of each."

    def _changed(self) -> Iterator[str]:
        changes = [*map(_described, [*self._moved()[:6], *self._counts()[:4]])]
        if changes:
            yield f"What changed: {'; '.join(changes)}."

    def _fell(self) -> Iterator[str]:
        fell = [*map(_waited, self._waits(-1))]
        if fell:
            yield f"Waiting that fell most (profiled): {' and '.join(fell)}."

    def _waits(self, sign: int) -> list[Change]:
        """The two reasons whose waiting grew (sign 1) or fell (-1) most, by no less than FLOOR of
        the slower kernel's time."""
        sides = (self._before, self._after)
        times = [side.profiled_us or side.main.duration_us or 0.0 for side in sides]
        return [
            each
            for each in self._stalls
            if each.moved * sign >= FLOOR * max(times)
            and each.moved
            and not each.name.endswith("selected")
        ][:2]

    def _slower(self) -> Iterator[str]:
        """Why, as far as the profiles tell."""
        old, new = self._before.profiled_us, self._after.profiled_us
        if self.speedup is None or self.speedup >= 1 - NOISE or not old or not new:
            return
        if new < old * (1 + NOISE):
            yield "It is not slower under the profiler, so the profiles do not show the reason."
            return
        if self._before.count == self._after.count == 1:
            reasons = [
                f"{_described(cause)} (costs {units.duration(cause.microseconds)})"
                for cause in attribute(self._before.main, self._after.main)
                if cause.microseconds > SHARE * (new - old) and cause.unit
            ][:3]
        else:
            reasons = [f"waiting: {_waited(each)}" for each in self._waits(1)]
        yield (
            f"Reasons for the slowdown, from the two profiles: {'; '.join(reasons)}."
            if reasons
            else "The profiles do not show why it is slower."
        )

    def _verdict(self, diagnosis: Diagnosis) -> str:
        return self._titles[diagnosis.primary.bottleneck]

    def _bottleneck(self) -> Iterator[str]:
        was, became = self._verdict(self._first), self._verdict(self._second)
        if self._first.primary.bottleneck == self._second.primary.bottleneck:
            yield f"The bottleneck is still {became}."
        else:
            yield f"The bottleneck moved from {was} to {became}."

    def _aim(self) -> Iterator[str]:
        """What the step goes for, where that is not simply the verdict."""
        if not self._removes:
            what = _KINDS.get(self._kind)
            removed = f"{what} removes no cause" if what else "removes no known cause"
            yield f"This variant {removed}, so there is no prediction."
            return
        title = self._titles.get(self._removes, self._removes)
        verdict = f"{title}. The verdict there was {self._verdict(self._first)}."
        if self.rank is None:
            yield f"The step targets a cause that the earlier kernel's diagnosis did not name: {verdict}"
        elif self.rank > 1:
            yield f"The step targets cause {self.rank} of the earlier kernel's diagnosis: {verdict}"
        if self._roof:
            busy = [
                f" {_described(each)}."
                for each in self._figures
                if each.name == self._roof.figure and None not in (each.before, each.after)
            ]
            yield (
                f"The limit is still {self._roof.words}. The step cuts overhead around that work, or does the work differently.{''.join(busy)}"
            )

    def _prediction(self) -> Iterator[str]:
        if self._predicted is None or self.expected is None:
            return
        title, gone = self._titles[self._predicted.bottleneck], 1 - 1 / self.expected
        what = f"Removing this cause ({title})"
        if self._roof:
            title, what = self._roof.words, f"Better use of {self._roof.words}"
        if gone < NOISE:
            text = f"No gain was predicted for {title}"
        else:
            text = f"{what} was predicted to give {units.ratio(self.expected)} (save {units.percent(gone)} of the time)"
        if self.speedup is None:
            yield f"{text}."
            return
        saved = 1 - 1 / self.speedup
        brought = f"{units.percent(saved)} of the time"
        factor = max(self.speedup / self.expected, self.expected / self.speedup)
        if saved < -NOISE:
            yield f"{text}. The step is slower instead."
        elif abs(saved) <= NOISE:
            gained = ". The step gained nothing" if gone > NOISE else ", and none was achieved"
            yield f"{text}{gained}."
        elif abs(saved - gone) <= ACCURACY and factor <= ALIKE:
            yield f"{text}. The step saved {brought}; the prediction is off by {_points(saved - gone)}."
        elif saved > gone:
            yield f"{text}. The step saved {'more: ' if gone > NOISE else ''}{brought}."
            yield from self._beyond(self._predicted, saved - gone)
        else:
            yield f"{text}. The step saved less: {brought}."
            yield from self._short(self._predicted)

    def _beyond(self, predicted: Finding, more: float) -> Iterator[str]:
        """What else went or changed: the prediction is for one cause alone."""
        left = {finding.bottleneck for finding in self._second.findings}
        also = [
            f"{self._titles[f.bottleneck]} ({units.ratio(1 / (1 - f.saved))})"
            for f in self._first.findings
            if f is not predicted and not f.good and f.saved > NOISE and f.bottleneck not in left
        ]
        own = {evidence.metric for evidence in predicted.evidence}
        moved = [
            each.label
            for each in self._moved()
            if each.name not in own and not each.name.endswith(("occupancy", "utilization"))
        ][:3]
        moved += [each.label for each in self._counts() if _factor(each) == float("inf")][:2]
        if also:
            yield f"The step also removed {' and '.join(also[:2])}, named in the earlier kernel's diagnosis."
        if moved:
            listed = units.listed([*map(figures.small, moved)])
            yield f"The step also changed {listed}, which the prediction leaves out."
        if not also and not moved:
            yield f"The prediction is {_points(more)} too low."

    def _short(self, predicted: Finding) -> Iterator[str]:
        """What is left of the cause, or what took its place."""
        title = self._titles[predicted.bottleneck]
        left = [f for f in self._second.findings if f.bottleneck == predicted.bottleneck][:1]
        for finding in left:
            if not finding.good:
                more = "" if finding.speedup is None else f", {units.ratio(finding.speedup)}"
                yield f"Part of it remains: the diagnosis of this kernel still names {title}{more}."
        if not left:
            verdict = self._verdict(self._second)
            yield f"The diagnosis of this kernel no longer names {title}. Its verdict is {verdict}."

    def _moved(self) -> list[Change]:
        """Figures that moved or appeared, utilisations aside: they are a consequence."""
        return [
            each
            for each in self._figures
            if each.name not in OPCODES and not each.name.endswith("active") and _has_moved(each)
        ]

    def _counts(self) -> list[Change]:
        """Counts by opcode that moved, those with the largest factor first."""
        found = [each for each in self._figures if each.name in OPCODES and _has_moved(each)]
        return sorted(found, key=lambda each: -_factor(each))


def _has_moved(change: Change) -> bool:
    ratio = change.ratio
    return bool(not change.before and change.after) or (
        ratio is not None and abs(ratio - 1) > MOVED
    )


def _factor(change: Change) -> float:
    """How many times a count grew or shrank; infinite where it appeared or vanished."""
    if not change.before or not change.after:
        return float("inf")
    return max(change.after / change.before, change.before / change.after)


def _described(change: Change | compare.TimeCause) -> str:
    old, new = (units.quantity(value, change.unit) for value in (change.before, change.after))
    return f"{change.label} {old} → {new}"


def _waited(change: Change) -> str:
    old, new = (units.duration(value or 0.0) for value in (change.before, change.after))
    return f"{change.label} ({old} → {new} of a warp's time)"


def _points(difference: float) -> str:
    amount = units.significant(abs(difference) * 100, 2)
    return f"{amount} {'point' if amount == '1' else 'points'}"
