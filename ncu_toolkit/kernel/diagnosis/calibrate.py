"""How good the diagnosis is: each pair of a slow kernel and the one that removes its cause,
predicted and achieved, and the same for Nsight Compute's rules, for the field's rule of two
thresholds and for the best constant.

The slow kernel's profile alone must name the cause that the fast one's header declares, and predict
the time that goes. Scored are steps that save time at their family's largest recorded size: headers
declare causes for sizes that fill the GPU; a smaller one may not, and parameters tuned for it then
cure the grid instead. Of several steps that leave one kernel only the rank of the one that gains
most is scored."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ncu_toolkit.base.model import Diagnosis, Profile, RuleMessage
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.diagnosis.compare import of_all
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.ladder.rung import Rung


@dataclass(frozen=True)
class StepPair:
    """A slow and a fast kernel at one size, with all their launches, and the cause that separates
    them. Times in microseconds."""

    family: str
    before: str
    after: str
    size: str
    dtype: str
    cause: str
    profiles: tuple[Profile, ...]
    """The slow kernel's launches."""
    before_us: float
    after_us: float
    clock: str
    """`profiler` or `events`: which clock both times come from."""

    @property
    def extent(self) -> int:
        """The product of the problem's dimensions, by which sizes of a family are ordered."""
        context = self.profiles[0].context
        return math.prod(context.dims.values()) if context else 0

    @property
    def achieved(self) -> float:
        """Fraction of time saved; negative where the step lost."""
        return 1 - self.after_us / self.before_us

    @property
    def main(self) -> Profile:
        """The slow kernel's launch that takes longest, its repeats included."""
        return max(self.profiles, key=_whole_us)

    @property
    def part(self) -> float:
        """The part (0-1) of the slow kernel's profiled time that this launch takes."""
        total = sum(map(_whole_us, self.profiles))
        return _whole_us(self.main) / total if total else 1.0


def _whole_us(profile: Profile) -> float:
    return (profile.duration_us or 0.0) * (profile.context.repeat if profile.context else 1)


@dataclass(frozen=True)
class Estimate:
    """What a diagnosis makes of the slow kernel: causes by rank, and its estimate for the
    declared one (None where it does not name it)."""

    named: tuple[str, ...]
    rank: int | None = None
    saved: float | None = None
    interval: tuple[float, float] | None = None
    """Between which parts of the time it expects `saved`, where the declared cause is its verdict."""
    diagnosis: Diagnosis | None = None
    """Ours, of the launch that was judged."""


@dataclass(frozen=True)
class Judged:
    """A pair and what the slow kernel's profile predicted."""

    pair: StepPair
    ours: Estimate
    largest: bool = True
    """Whether this is the largest size recorded for the family."""
    ranked: bool = True
    """Whether the rank is scored: see the module's docstring."""

    @property
    def counts(self) -> bool:
        """Whether the case is scored. A step that gains no more than noise proves nothing about its
        declared cause."""
        return self.largest and self.pair.achieved > NOISE

    def error(self, guess: Estimate) -> float:
        """|predicted - achieved| in points of time saved; a cause that was not named counts as a prediction of 0."""
        return abs((guess.saved or 0.0) - self.pair.achieved) * 100


@dataclass(frozen=True)
class Score:
    """Errors over the `cases` that count, ranks over those of them that are `ranked`."""

    cases: int
    ranked: int
    first: int
    first_two: int
    median_error: float | None
    worst_error: float | None


def pairs(runs: Iterable[Run], steps: Sequence[Rung]) -> list[StepPair]:
    """Every step that declares a cause and whose two kernels were profiled in the same run, at each
    size.

    Times are the profiler's; where either kernel has more than one launch, medians of unprofiled events,
    which hold the gaps between launches. Steps without both times on one clock are left out."""
    found = []
    for run in runs:
        launches: dict[tuple[str, str, str, str], list[Profile]] = {}
        for profile in run.profiles:
            if profile.launch.complete and (c := profile.rung):
                launches.setdefault((c.family, c.rung, c.size, c.dtype), []).append(profile)
        for step in steps:
            # a rung with a planted defect shows only a part of what its fix gains
            if not step.removes or not step.compared_with or step.kind == "planted":
                continue
            family, _, slow = step.compared_with.rpartition("/")
            for (own, rung, size, dtype), fast in launches.items():
                slow_ones = launches.get((family or step.family, slow, size, dtype))
                if (own, rung) != (step.family, step.name) or not slow_ones:
                    continue
                single = len(slow_ones) == len(fast) == 1
                before, after = (
                    each[0].duration_us if single else _event_time(run, each[0])
                    for each in (slow_ones, fast)
                )
                if before and after:
                    found.append(
                        StepPair(
                            step.family, slow, step.name, size, dtype, step.removes, tuple(slow_ones), before, after,
                            "profiler" if single else "events",
                        )
                    )  # fmt: skip
    return found


def _event_time(run: Run, profile: Profile) -> float | None:
    """Median of unprofiled repeats, with flushed caches where timed so: that is how the profiler
    runs kernels."""
    c = profile.context
    if c is None:
        return None
    found = [
        t
        for t in run.timings
        if (t.family, t.rung, t.size, t.dtype) == (c.family, c.rung, c.size, c.dtype) and t.times_us
    ]
    found.sort(key=lambda t: t.cache != "flushed")
    return found[0].median_us if found else None


def judged(
    cases: Iterable[StepPair], diagnosed: Callable[[Profile], Diagnosis] = diagnose
) -> tuple[Judged, ...]:
    """Every pair with what the slow kernel's profile predicted."""
    return _placed([Judged(pair, our_guess(pair, diagnosed)) for pair in cases])


def _placed(outcomes: Sequence[Judged]) -> tuple[Judged, ...]:
    """With `largest` and `ranked` filled in."""
    largest: dict[str, int] = {}
    most: dict[tuple[str, str, str, str], float] = {}
    for outcome in outcomes:
        pair = outcome.pair
        largest[pair.family] = max(pair.extent, largest.get(pair.family, 0))
        most[_left(pair)] = max(pair.achieved, most.get(_left(pair), 0.0))
    sized = [replace(o, largest=o.pair.extent == largest[o.pair.family]) for o in outcomes]
    return tuple(
        replace(o, ranked=o.counts and o.pair.achieved >= most[_left(o.pair)]) for o in sized
    )


def _left(pair: StepPair) -> tuple[str, str, str, str]:
    return pair.family, pair.before, pair.size, pair.dtype


def score(found: Iterable[tuple[Judged, Estimate]]) -> Score:
    """The score of estimates, one for each outcome."""
    scored = [(outcome, guess) for outcome, guess in found if outcome.counts]
    errors = [outcome.error(guess) for outcome, guess in scored]
    ranks = [guess.rank for outcome, guess in scored if outcome.ranked]
    return Score(
        len(scored),
        len(ranks),
        sum(rank == 1 for rank in ranks),
        sum(rank in (1, 2) for rank in ranks),
        statistics.median(errors) if errors else None,
        max(errors, default=None),
    )


def our_guess(pair: StepPair, diagnosed: Callable[[Profile], Diagnosis] = diagnose) -> Estimate:
    """Ours, from the slow kernel's longest launch, scaled by that launch's part of the whole."""
    diagnosis = diagnosed(pair.main)
    named = tuple(finding.bottleneck for finding in diagnosis.findings)
    if pair.cause not in named:
        return Estimate(named, diagnosis=diagnosis)
    rank = named.index(pair.cause)
    found = diagnosis.findings[rank]
    saved = None if found.speedup is None else of_all(pair.cause, found.saved, pair.part)
    interval = None
    if found.interval is not None and not rank:
        low, high = (of_all(pair.cause, 1 - 1 / end, pair.part) for end in found.interval)
        interval = low, high
    return Estimate(named, rank + 1, saved, interval, diagnosis)


def ncu_estimates(profile: Profile) -> list[RuleMessage]:
    """Messages of Nsight Compute's rules that estimate a saving of the whole launch, the largest
    first; `speedup` is a percentage of its time."""
    return sorted(
        (m for m in profile.rules if m.speedup is not None and m.scope.lower() == "global"),
        key=lambda m: -(m.speedup or 0.0),
    )
