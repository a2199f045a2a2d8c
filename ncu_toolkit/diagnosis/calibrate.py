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

from ncu_toolkit.diagnosis.compare import of_all
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.diagnosis.rules import load_rules
from ncu_toolkit.diagnosis.thresholds import BUSY
from ncu_toolkit.diagnosis.time_model import NOISE
from ncu_toolkit.ladder.rung import Rung
from ncu_toolkit.metrics.registry import GROUPS
from ncu_toolkit.model import Diagnosis, Profile, RuleMessage
from ncu_toolkit.model.run import Run


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
    """What one diagnostician says of the slow kernel: causes by rank, and its estimate for the
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
    """A pair with what each diagnostician says of it."""

    pair: StepPair
    ours: Estimate
    ncu: Estimate | None
    """None where the recording holds no results of Nsight Compute's rules for this kernel."""
    thresholds: Estimate | None = None
    """Of the rule of two thresholds; None where the recording lacks one of the two figures."""
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
    skill: float | None = None
    spearman: float | None = None
    coverage: float | None = None
    """The part (0-1) of the cases with an interval whose achieved gain lies in it."""
    width: float | None = None
    """Geometric mean of an interval's upper over its lower end, as factors."""


@dataclass(frozen=True)
class Calibration:
    outcomes: tuple[Judged, ...]
    ours: Score
    ncu: Score
    thresholds: Score
    constant: Score

    def as_json(self) -> dict[str, object]:
        """Plain data for CI."""
        none = Estimate(())
        return {
            **{name: vars(getattr(self, name)) for name in ("ours", "ncu", "thresholds", "constant")},
            "cases": [
                {
                    "family": o.pair.family, "before": o.pair.before, "after": o.pair.after, "size": o.pair.size, "dtype": o.pair.dtype,
                    "cause": o.pair.cause, "achieved": o.pair.achieved, "clock": o.pair.clock, "counts": o.counts, "ranked": o.ranked,
                    "rank": o.ours.rank, "named": list(o.ours.named), "predicted": o.ours.saved,
                    "interval": list(o.ours.interval) if o.ours.interval else None,
                    "ncu_rank": ncu.rank, "ncu_named": list(ncu.named), "ncu_predicted": ncu.saved,
                }
                for o in self.outcomes
                for ncu in [o.ncu or none]
            ],
        }  # fmt: skip


@dataclass(frozen=True)
class CalibrationGoals:
    """The least accuracy that the gate accepts: parts of the ranked cases, points of time saved, and
    the part of the intervals that hold what was achieved, which may not be had by wide ones."""

    first: float = 0.95
    first_two: float = 1.0
    median_error: float = 10.0
    worst_error: float = 35.0
    skill: float = 0.5
    coverage: float = 0.75
    width: float = 3.5

    def shortfalls(self, found: Score) -> list[str]:
        """What `found` misses, in words; a score without cases misses everything."""
        median, worst, held, wide = (
            found.median_error, found.worst_error, found.coverage, found.width,
        )  # fmt: skip
        if not found.ranked or median is None or worst is None or held is None or wide is None:
            return ["no case could be scored"]
        ranks = (found.first / found.ranked, found.first_two / found.ranked)
        missed = (
            (ranks[0] < self.first, f"the declared cause ranks first in {found.first} of {found.ranked} cases; {self.first:.0%} are required"),
            (ranks[1] < self.first_two, f"it ranks first or second in {found.first_two} of {found.ranked}; {self.first_two:.0%} are required"),
            (median > self.median_error, f"the median error is {median:.1f} points; {self.median_error:.0f} are allowed"),
            (worst > self.worst_error, f"the worst error is {worst:.1f} points; {self.worst_error:.0f} are allowed"),
            (found.skill is not None and found.skill < self.skill, f"the skill is {found.skill or 0.0:.2f}, {self.skill:.2f} is required"),
            (held < self.coverage, f"the intervals hold {held:.0%} of the gains, {self.coverage:.0%} are required"),
            (wide > self.width, f"their ends are a factor of {wide:.2f} apart in the mean, {self.width:.2f} is allowed"),
        )  # fmt: skip
        return [words for short, words in missed if short]


def pairs(runs: Iterable[Run], steps: Sequence[Rung]) -> list[StepPair]:
    """Every step that declares a cause and whose two kernels were profiled in the same run, at each
    size.

    Times are the profiler's; where either kernel has more than one launch, medians of unprofiled
    events, which hold the gaps between launches. Steps without both times on one clock are left
    out."""
    found = []
    for run in runs:
        launches: dict[tuple[str, str, str, str], list[Profile]] = {}
        for profile in run.profiles:
            if profile.launch.complete and (c := profile.rung):
                launches.setdefault((c.family, c.rung, c.size, c.dtype), []).append(profile)
        for step in steps:
            if not step.removes or not step.compared_with:
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


def calibrate(
    cases: Iterable[StepPair], diagnosed: Callable[[Profile], Diagnosis] = diagnose
) -> Calibration:
    """Score every pair, ours and its rivals'."""
    outcomes = _placed(
        [
            Judged(pair, our_guess(pair, diagnosed), ncu_guess(pair), threshold_guess(pair))
            for pair in cases
        ]
    )
    return Calibration(
        outcomes,
        score(outcomes),
        score(outcomes, theirs=True),
        _score([(o, o.thresholds) for o in outcomes]),
        _score(list(zip(outcomes, _constant(outcomes), strict=True))),
    )


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


def score(outcomes: Iterable[Judged], *, theirs: bool = False) -> Score:
    """Ours, or Nsight Compute's over those cases whose recording holds its rules' results."""
    return _score([(o, o.ncu if theirs else o.ours) for o in outcomes])


def _score(found: Iterable[tuple[Judged, Estimate | None]]) -> Score:
    scored = [(o, guess) for o, guess in found if guess is not None and o.counts]
    errors = [outcome.error(guess) for outcome, guess in scored]
    ranks = [guess.rank for outcome, guess in scored if outcome.ranked]
    gains = [(guess.saved or 0.0, outcome.pair.achieved) for outcome, guess in scored]
    bounds = [(guess.interval, o.pair.achieved) for o, guess in scored if guess.interval]
    return Score(
        len(scored),
        len(ranks),
        sum(rank == 1 for rank in ranks),
        sum(rank in (1, 2) for rank in ranks),
        statistics.median(errors) if errors else None,
        max(errors, default=None),
        skill(gains),
        spearman(gains),
        covered(bounds),
        width(bounds),
    )


def skill(gains: Sequence[tuple[float, float]]) -> float | None:
    """1 - mean absolute error of (predicted, achieved) over that of the best constant, the median of
    what was achieved; None where all of it agrees."""
    if not gains:
        return None
    middle = statistics.median(achieved for _, achieved in gains)
    least = sum(abs(achieved - middle) for _, achieved in gains)
    missed = sum(abs(predicted - achieved) for predicted, achieved in gains)
    return 1 - missed / least if least else None


def spearman(gains: Sequence[tuple[float, float]]) -> float | None:
    """Rank correlation of (predicted, achieved), ties at their mean rank; None for fewer than three
    or where either does not vary."""
    if len(gains) < 3:
        return None
    predicted, achieved = zip(*gains, strict=True)
    try:
        return statistics.correlation(_ranks(predicted), _ranks(achieved))
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(values)
    return [
        (order.index(value) + len(order) - 1 - order[::-1].index(value)) / 2 for value in values
    ]


def covered(bounds: Sequence[tuple[tuple[float, float], float]]) -> float | None:
    """The part of (interval, achieved) whose achieved part of the time lies in the interval; None
    without any."""
    if not bounds:
        return None
    return sum(low <= achieved <= high for (low, high), achieved in bounds) / len(bounds)


def width(bounds: Sequence[tuple[tuple[float, float], float]]) -> float | None:
    """Geometric mean of the upper over the lower end of intervals, as factors; None without any."""
    if not bounds:
        return None
    return statistics.geometric_mean((1 - low) / (1 - high) for (low, high), _ in bounds)


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


def ncu_means(message: RuleMessage) -> tuple[str, ...]:
    """The bottleneck ids that a message of Nsight Compute can stand for; empty where it names none
    of ours."""
    heading = (message.title or message.text).lower().replace("_", " ")
    meant: dict[str, list[str]] = {}
    for name, rule in load_rules().items():
        for theirs, word in rule.NCU:
            if message.rule.startswith(theirs) and word in heading:
                meant.setdefault(word, []).append(name)
    # "Local memory" says more than that some access pattern is meant.
    return tuple(meant[max(meant, key=len)]) if meant else ()


def ncu_estimates(profile: Profile) -> list[RuleMessage]:
    """Messages of Nsight Compute's rules that estimate a saving of the whole launch, the largest
    first; `speedup` is a percentage of its time."""
    return sorted(
        (m for m in profile.rules if m.speedup is not None and m.scope.lower() == "global"),
        key=lambda m: -(m.speedup or 0.0),
    )


def ncu_guess(pair: StepPair) -> Estimate | None:
    """Nsight Compute's, from its estimates for the slow kernel's longest launch."""
    if not pair.main.rules:
        return None
    ranked = ncu_estimates(pair.main)
    words = tuple(f"{each.rule}: {each.title}" if each.title else each.rule for each in ranked)
    for rank, message in enumerate(ranked, 1):
        if pair.cause in ncu_means(message):
            return Estimate(words, rank, (message.speedup or 0.0) / 100)
    return Estimate(words)


def two_thresholds(profile: Profile) -> str | None:
    """The class (`Rule.LIMIT`) by memory and compute throughput, the speed-of-light figures: the
    higher one from 60% on, else latency. None where either was not collected.

    Our own sections leave out the SM's roll-up: there it is the busiest of the issue slots and the
    pipes, which it is made of, over active cycles."""
    memory, compute = profile.value("memory_throughput"), profile.value("sm_throughput")
    if compute is None:
        pipes = [each.name for each in GROUPS["pipes"] if each.name.endswith("_pipe_active")]
        loads = [
            profile.value(name)
            for name in ("issue_active", *pipes)
            if not name.startswith("l1_")  # of the memory system
        ]
        compute = max((load for load in loads if load is not None), default=None)
    if memory is None or compute is None:
        return None
    if max(memory, compute) < BUSY.value:
        return "latency"
    return "memory" if memory >= compute else "compute"


def threshold_guess(pair: StepPair) -> Estimate | None:
    """The class that two thresholds name: any cause of it counts as named. They estimate no gain."""
    found = two_thresholds(pair.main)
    if found is None:
        return None
    return Estimate((found,), 1 if found == load_rules()[pair.cause].LIMIT else None)


def _constant(outcomes: Sequence[Judged]) -> list[Estimate]:
    """The same answer for every case, with the outcomes in view: the cause that is right most often
    and the median gain."""
    counted = [outcome.pair for outcome in outcomes if outcome.counts]
    if not counted:
        return [Estimate(()) for _ in outcomes]
    best = statistics.mode(pair.cause for pair in counted)
    middle = statistics.median(pair.achieved for pair in counted)
    return [Estimate((best,), 1 if o.pair.cause == best else None, middle) for o in outcomes]
