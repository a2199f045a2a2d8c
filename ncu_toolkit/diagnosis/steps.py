"""What a step from one kernel to the next changed, which waiting fell, and the gain that was
predicted compared with the gain achieved.

A step has one speedup: of the unprofiled times where both kernels were timed, else of their
launches' sum under the profiler. Figures and waiting are the profiler's, summed over the launches
where a kernel takes several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.compare import OPCODES, Change, Launches, attribute, changes, of_all
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.diagnosis.rules import load_rules
from ncu_toolkit.diagnosis.time_model import ACCURACY, NOISE
from ncu_toolkit.model import Diagnosis, Finding, Profile


@dataclass(frozen=True)
class StepExplanation:
    """What a step from one kernel to the next changed, and what that did."""

    speedup: float | None
    """Time before over time after; None where a time is missing."""
    clock: Literal["timed", "profiled", ""]
    """Which times `speedup` is of: unprofiled ones, or the sum of the launches under the
    profiler."""
    rank: int | None
    """Place of the cause that the step removes in the diagnosis of the earlier kernel's longest
    launch: 1 is the verdict. None where none is declared or found."""
    expected: float | None
    """The speedup predicted for the whole rung if that cause alone went: of several launches only
    the longest has it."""
    text: tuple[str, ...]
    """Sentences in plain English, in reading order."""


#: A figure that moved by less than this is not worth a sentence.
MOVED: Final = 0.1
#: Waiting is worth a sentence from this part of the kernel's time on.
FLOOR: Final = 0.01
#: A part of a slowdown is named from this fraction of it on.
SHARE: Final = 0.05
#: A prediction and what was achieved are told as alike only within this factor: 95% and 99% of a
#: time saved are a few points, but 20x and 100x.
ALIKE: Final = 1.25


def explain_step(
    before: Profile | Launches,
    after: Profile | Launches,
    removes: str = "",
    diagnosed: Callable[[Profile], Diagnosis] = diagnose,
    kind: str = "step",
) -> StepExplanation:
    """What changed between two rungs, which stall or traffic fell, what the bottleneck became, and
    predicted against achieved.

    `removes` is the bottleneck that the step is meant to remove, "" for none; `kind` is the later
    rung's (`regression` and `planted` remove nothing)."""
    sides = tuple(
        side if isinstance(side, Launches) else Launches((side,)) for side in (before, after)
    )
    first, second = diagnosed(sides[0].main), diagnosed(sides[1].main)
    rank = (
        next((i for i, f in enumerate(first.findings, 1) if f.bottleneck == removes), None)
        if removes
        else None
    )
    predicted = first.findings[rank - 1] if rank else None
    made = _Sentences(sides[0], sides[1], first, second, removes, kind, predicted, rank)
    return StepExplanation(made.speedup, made.clock, rank, made.expected, tuple(made.text()))


class _Sentences:
    """The sentences of one step, with what they share."""

    def __init__(
        self,
        before: Launches,
        after: Launches,
        first: Diagnosis,
        second: Diagnosis,
        removes: str,
        kind: str,
        predicted: Finding | None,
        rank: int | None,
    ) -> None:
        self.before, self.after, self.first, self.second = before, after, first, second
        self.removes, self.kind, self.predicted, self.rank = removes, kind, predicted, rank
        rule = load_rules().get(removes)
        self.roof = rule.ROOF if rule else None
        self.titles = {name: figures.small(rule.TITLE) for name, rule in load_rules().items()}
        self.clock: Literal["timed", "profiled", ""] = ""
        self.times: tuple[float, float] | None = None
        if before.timed_us and after.timed_us:
            self.clock, self.times = "timed", (before.timed_us, after.timed_us)
        elif (t0 := before.profiled_us) and (t1 := after.profiled_us):
            self.clock, self.times = "profiled", (t0, t1)
        self.speedup = self.times[0] / self.times[1] if self.times else None
        self.expected = (
            1 / (1 - of_all(removes, predicted.saved, before.part))
            if predicted and predicted.speedup is not None
            else None
        )
        self.figures = changes(before, after)
        self.stalls = _waiting(before, after)

    def text(self) -> list[str]:
        groups = (
            self._time(),
            self._launches(),
            self._changed(),
            self._fell(),
            self._slower(),
            self._bottleneck(),
            self._aim(),
            self._prediction(),
        )
        return [line for group in groups for line in group]

    def _time(self) -> list[str]:
        if self.speedup is None or self.times is None:
            return ["Times are missing, so the step's gain is not known."]
        how = "timed without the profiler" if self.clock == "timed" else "under the profiler"
        if max(self.before.count, self.after.count) > 1:
            how += ", all launches together"
        told = f"{units.duration(self.times[0])} → {units.duration(self.times[1])}, {how}"
        if abs(self.speedup - 1) < NOISE:
            return [f"The step did not change the time: {told}."]
        return [f"The step is {units.faster(self.speedup)}: {told}."]

    def _launches(self) -> list[str]:
        counts = self.before.count, self.after.count
        if max(counts) == 1:
            return []
        names = self.before.name or "the kernel before", self.after.name or "this one"
        many = (
            f"Both take {counts[0]} launches"
            if counts[0] == counts[1]
            else f"{_launched(names[0], counts[0])}, {_launched(names[1], counts[1])}"
        )
        if not (self.before.whole and self.after.whole):
            return [
                f"{many}. Some were not profiled, so the figures below are of the longest launch of each."
            ]
        return [
            f"{many}. Counts, bytes and waiting below are sums; other figures are of the longest launch."
        ]

    def _changed(self) -> list[str]:
        told = [
            _described(change)
            for change in [
                *_moved(self.figures, opcodes=False)[:6],
                *_moved(self.figures, opcodes=True)[:4],
            ]
        ]
        return ["What changed: " + "; ".join(told) + "."] if told else []

    def _fell(self) -> list[str]:
        falling = self._waits(-1)
        fell = [
            f"{change.label} ({units.duration(change.before or 0)} → {units.duration(change.after or 0)} of a warp's time)"
            for change in falling
        ]
        return ["Waiting that fell most (profiled): " + " and ".join(fell) + "."] if fell else []

    def _waits(self, sign: int) -> list[Change]:
        """The two reasons whose waiting grew (sign 1) or fell (-1) most, by no less than FLOOR of
        the slower kernel's time."""
        times = [
            time
            for side in (self.before, self.after)
            if (time := side.profiled_us or side.main.duration_us)
        ]
        least = FLOOR * max(times, default=0.0)
        found = [
            c
            for c in self.stalls
            if ((c.after or 0) - (c.before or 0)) * sign >= least
            and not c.name.endswith("selected")
        ]
        return [change for change in found if change.before != change.after][:2]

    def _slower(self) -> list[str]:
        """Why, as far as the profiles tell."""
        if self.speedup is None or self.speedup >= 1 - NOISE:
            return []
        t0, t1 = self.before.profiled_us, self.after.profiled_us
        if not t0 or not t1:
            return []
        if t1 < t0 * (1 + NOISE):
            return ["It is not slower under the profiler, so the profiles do not show the reason."]
        if self.before.count == self.after.count == 1:
            parts = [
                part
                for part in attribute(self.before.main, self.after.main)
                if part.microseconds > SHARE * (t1 - t0) and part.unit
            ][:3]
            told = [
                f"{p.label} {_arrow(p.before, p.after, p.unit)} (costs {units.duration(p.microseconds)})"
                for p in parts
            ]
        else:
            told = [
                f"waiting: {c.label} ({units.duration(c.before or 0)} → {units.duration(c.after or 0)} of a warp's time)"
                for c in self._waits(1)
            ]
        return (
            ["Reasons for the slowdown, from the two profiles: " + "; ".join(told) + "."]
            if told
            else ["The profiles do not show why it is slower."]
        )

    def _bottleneck(self) -> list[str]:
        was, became = self.first.primary, self.second.primary
        if was.bottleneck == became.bottleneck:
            return [f"The bottleneck is still {self.titles[became.bottleneck]}."]
        return [
            f"The bottleneck moved from {self.titles[was.bottleneck]} to {self.titles[became.bottleneck]}."
        ]

    def _aim(self) -> list[str]:
        """What the step goes for, where that is not simply the verdict."""
        if not self.removes:
            said = {
                "regression": "This variant shows a regression. It removes no cause, so there is no prediction.",
                "planted": "This variant has a planted defect. It removes no cause, so there is no prediction.",
            }
            return [
                said.get(
                    self.kind,
                    "This variant removes no known cause, so there is no prediction.",
                )
            ]
        title, verdict = (
            self.titles.get(self.removes, self.removes),
            self.titles[self.first.primary.bottleneck],
        )
        lines = []
        if self.rank is None:
            lines.append(
                f"The step targets a cause that the earlier kernel's diagnosis did not name: {title}. The verdict there was {verdict}."
            )
        elif self.rank > 1:
            lines.append(
                f"The step targets cause {self.rank} of the earlier kernel's diagnosis: {title}. The verdict there was {verdict}."
            )
        if self.roof:
            busy = next(
                (
                    c
                    for c in self.figures
                    if c.name == self.roof.figure and c.before is not None and c.after is not None
                ),
                None,
            )
            moved = f" {_described(busy)}." if busy else ""
            lines.append(
                f"The limit is still {self.roof.words}. The step cuts overhead around that work, or does the work differently.{moved}"
            )
        return lines

    def _prediction(self) -> list[str]:
        if self.predicted is None or self.expected is None:
            return []
        title = self.titles[self.predicted.bottleneck]
        gone = 1 - 1 / self.expected
        what = f"Better use of {self.roof.words}" if self.roof else f"Removing this cause ({title})"
        if gone < NOISE:
            said = f"No gain was predicted for {self.roof.words if self.roof else title}"
        else:
            said = f"{what} was predicted to give {units.ratio(self.expected)} (save {units.percent(gone)} of the time)"
        if self.speedup is None:
            return [f"{said}."]
        saved = 1 - 1 / self.speedup
        brought = f"{units.percent(saved)} of the time"
        if saved < -NOISE:
            return [f"{said}. The step is slower instead."]
        if abs(saved) <= NOISE:
            return [
                f"{said}. The step gained nothing."
                if gone > NOISE
                else f"{said}, and none was achieved."
            ]
        if (
            abs(saved - gone) <= ACCURACY
            and max(self.speedup / self.expected, self.expected / self.speedup) <= ALIKE
        ):
            return [
                f"{said}. The step saved {brought}; the prediction is off by {_points(saved - gone)}."
            ]
        if saved > gone:
            return [
                f"{said}. The step saved {'more: ' if gone > NOISE else ''}{brought}.",
                *self._beyond(saved - gone),
            ]
        return [f"{said}. The step saved less: {brought}.", *self._short()]

    def _beyond(self, more: float) -> list[str]:
        """What else went or changed: the prediction is for one cause alone."""
        assert self.predicted is not None
        left = {finding.bottleneck for finding in self.second.findings}
        others = [
            f
            for f in self.first.findings
            if f is not self.predicted
            and not f.good
            and f.saved > NOISE
            and f.bottleneck not in left
        ]
        own = {evidence.metric for evidence in self.predicted.evidence}
        moved = [
            c.label
            for c in _moved(self.figures, opcodes=False)
            if c.name not in own and not c.name.endswith(("occupancy", "utilization"))
        ][:3]
        moved += [
            c.label for c in _moved(self.figures, opcodes=True) if _factor(c) == float("inf")
        ][:2]
        lines = []
        if others:
            also = [
                f"{self.titles[f.bottleneck]} ({units.ratio(1 / (1 - f.saved))})"
                for f in others[:2]
            ]
            lines.append(
                f"The step also removed {' and '.join(also)}, named in the earlier kernel's diagnosis."
            )
        if moved:
            lines.append(
                f"The step also changed {_listed([figures.small(label) for label in moved])}, which the prediction leaves out."
            )
        return lines or [f"The prediction is {_points(more)} too low."]

    def _short(self) -> list[str]:
        """What is left of the cause, or what took its place."""
        assert self.predicted is not None
        left = next(
            (f for f in self.second.findings if f.bottleneck == self.predicted.bottleneck), None
        )
        title = self.titles[self.predicted.bottleneck]
        if left is not None and left.good:
            return []
        if left is not None:
            more = "" if left.speedup is None else f", {units.ratio(left.speedup)}"
            return [f"Part of it remains: the diagnosis of this kernel still names {title}{more}."]
        return [
            f"The diagnosis of this kernel no longer names {title}. Its verdict is {self.titles[self.second.primary.bottleneck]}."
        ]


def _launched(name: str, count: int) -> str:
    return f"{name} takes {count} {'launch' if count == 1 else 'launches'}"


def _points(difference: float) -> str:
    amount = units.significant(abs(difference) * 100, 2)
    return f"{amount} {'point' if amount == '1' else 'points'}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _moved(figures: tuple[Change, ...], *, opcodes: bool) -> list[Change]:
    """Figures that moved or appeared, utilisations aside: they are a consequence. Counts by opcode
    come with the largest factor first."""
    found = [c for c in figures if (c.name in OPCODES) == opcodes and not c.name.endswith("active")]
    found = [
        c
        for c in found
        if (not c.before and c.after) or ((ratio := c.ratio) is not None and abs(ratio - 1) > MOVED)
    ]
    return sorted(found, key=lambda c: -_factor(c)) if opcodes else found


def _factor(change: Change) -> float:
    """How many times a count grew or shrank; infinite where it appeared or vanished."""
    if not change.before or not change.after:
        return float("inf")
    return max(change.after / change.before, change.before / change.after)


def _described(change: Change) -> str:
    return f"{change.label} {_arrow(change.before, change.after, change.unit)}"


def _arrow(before: float | None, after: float | None, unit: str) -> str:
    return f"{units.quantity(before, unit)} → {units.quantity(after, unit)}"


def _waiting(before: Launches, after: Launches) -> tuple[Change, ...]:
    """Microseconds of waiting by reason, over all launches where both sides have all of theirs,
    else in the longest of each."""
    sides = (
        (before, after)
        if before.whole and after.whole
        else (replace(before, profiles=(before.main,)), replace(after, profiles=(after.main,)))
    )
    reasons = dict.fromkeys(
        reason
        for side in sides
        for profile in side.profiles
        for reason in figures.stall_shares(profile)
    )
    rows = []
    for reason in reasons:
        pair = _waited(sides[0], reason), _waited(sides[1], reason)
        if None not in pair and any(pair):
            rows.append(Change(f"stall_{reason}", figures.reason_name(reason), "us", *pair))
    return tuple(
        sorted(rows, key=lambda change: -abs((change.after or 0.0) - (change.before or 0.0)))
    )


def _waited(side: Launches, reason: str) -> float | None:
    """Microseconds in which an average warp was in `reason`; None where a launch's stalls are not
    known."""

    def of(profile: Profile) -> float | None:
        shares = figures.stall_shares(profile)
        return (
            shares.get(reason, 0.0) * profile.duration_us
            if shares and profile.duration_us
            else None
        )

    return side.total(of) if side.whole else of(side.main)
