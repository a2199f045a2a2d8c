"""How good the diagnosis is, on recorded ladders: predicted gains beside achieved ones, and beside
Nsight Compute's rules, the rule of two thresholds (60 % of peak) and the best constant.

    python -m benchmarks.calibrate [RUN…] [--format text|markdown|json] [--output FILE] [--gate]

For each step of a ladder that removes a bottleneck, the slow kernel's profile alone must name it and
predict the time saved. RUN is a run folder; without any, the package's recordings are used. `--gate`
exits with 1 where the diagnosis is less accurate than GOALS."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.metrics.registry import GROUPS
from ncu_toolkit.base.model import Diagnosis, Profile, RuleMessage
from ncu_toolkit.kernel.diagnosis import calibrate as judging
from ncu_toolkit.kernel.diagnosis.calibrate import Estimate, Judged, Score, StepPair, ncu_estimates
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY
from ncu_toolkit.kernel.ladder.catalogue import load_families
from ncu_toolkit.kernel.runs import store


@dataclass(frozen=True)
class Accuracy(Score):
    """A score with what a table of several diagnosticians compares."""

    skill: float | None = None
    spearman: float | None = None
    coverage: float | None = None
    """The part (0-1) of the cases with an interval whose achieved gain lies in it."""
    width: float | None = None
    """Geometric mean of an interval's upper over its lower end, as factors."""


@dataclass(frozen=True)
class Calibration:
    outcomes: tuple[Judged, ...]
    ours: Accuracy
    ncu: Accuracy
    thresholds: Accuracy
    constant: Accuracy

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
                for ncu in [ncu_guess(o.pair) or none]
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


def calibrate(
    cases: Iterable[StepPair], diagnosed: Callable[[Profile], Diagnosis] = diagnose
) -> Calibration:
    """Score every pair, ours and its rivals'."""
    outcomes = judging.judged(cases, diagnosed)
    return Calibration(
        outcomes,
        score(outcomes),
        score(outcomes, theirs=True),
        accuracy([(o, threshold_guess(o.pair)) for o in outcomes]),
        accuracy(list(zip(outcomes, _constant(outcomes), strict=True))),
    )


def score(outcomes: Iterable[Judged], *, theirs: bool = False) -> Accuracy:
    """Ours, or Nsight Compute's over those cases whose recording holds its rules' results."""
    return accuracy([(o, ncu_guess(o.pair) if theirs else o.ours) for o in outcomes])


def accuracy(found: Iterable[tuple[Judged, Estimate | None]]) -> Accuracy:
    """The accuracy of estimates, one for each outcome; None where there is none to judge."""
    given = [(o, guess) for o, guess in found if guess is not None]
    scored = [(o, guess) for o, guess in given if o.counts]
    gains = [(guess.saved or 0.0, o.pair.achieved) for o, guess in scored]
    bounds = [(guess.interval, o.pair.achieved) for o, guess in scored if guess.interval]
    return Accuracy(
        **vars(judging.score(given)),
        skill=skill(gains),
        spearman=spearman(gains),
        coverage=covered(bounds),
        width=width(bounds),
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


def ncu_means(message: RuleMessage) -> tuple[str, ...]:
    """The bottleneck ids that a message of Nsight Compute can stand for; empty where it names none
    of the toolkit."""
    heading = (message.title or message.text).lower().replace("_", " ")
    meant: dict[str, list[str]] = {}
    for name, rule in load_rules().items():
        for theirs, word in rule.NCU:
            if message.rule.startswith(theirs) and word in heading:
                meant.setdefault(word, []).append(name)
    # "Local memory" says more than that some access pattern is meant.
    return tuple(meant[max(meant, key=len)]) if meant else ()


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


HEADINGS: Final = (
    "family", "slow", "fast", "size", "cause that the step removes", "rank", "predicted %", "achieved %", "off by", "ncu rank", "ncu %", "ncu off by",
)  # fmt: skip
_LEFT: Final = 5


def rows(outcomes: Iterable[Judged]) -> list[tuple[str, ...]]:
    """One row of HEADINGS a pair. Percentages are of time saved; what is in parentheses is not
    judged."""
    return [
        (
            o.pair.family, o.pair.before, o.pair.after, o.pair.size, o.pair.cause, _rank(o, o.ours), _saved(o.ours), f"{o.pair.achieved * 100:.1f}",
            _error(o, o.ours), _rank(o, ncu), _saved(ncu), _error(o, ncu),
        )
        for o in outcomes
        for ncu in [ncu_guess(o.pair)]
    ]  # fmt: skip


def _rank(outcome: Judged, guess: Estimate | None) -> str:
    if guess is None:
        return ""
    text = str(guess.rank) if guess.rank else "none"
    return text if outcome.ranked else f"({text})"


def _saved(guess: Estimate | None) -> str:
    return "" if guess is None else "none" if guess.saved is None else f"{guess.saved * 100:.1f}"


def _error(outcome: Judged, guess: Estimate | None) -> str:
    if guess is None:
        return ""
    text = f"{outcome.error(guess):.1f}"
    return text if outcome.counts else f"({text})"


SUMMARY: Final = (
    "", "cases", "ranked", "cause first", "among first two", "median error, points",
    "worst error, points", "skill", "Spearman", "in the 80% interval", "interval's width",
)  # fmt: skip


def summary(scores: Iterable[tuple[str, Accuracy]]) -> list[tuple[str, ...]]:
    """One row of SUMMARY a score."""
    return [
        (
            name, str(s.cases), str(s.ranked), _part(s.first, s.ranked), _part(s.first_two, s.ranked),
            "" if s.median_error is None else f"{s.median_error:.1f}", "" if s.worst_error is None else f"{s.worst_error:.1f}",
            _number(s.skill), _number(s.spearman), "" if s.coverage is None else f"{s.coverage:.0%}", "" if s.width is None else f"{s.width:.2f}×",
        )
        for name, s in scores
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _part(number: int, of: int) -> str:
    return f"{number} ({number / of:.0%})" if of else ""


def scores(found: Calibration) -> list[tuple[str, Accuracy]]:
    return [
        ("ncu-toolkit", found.ours),
        ("Nsight Compute", found.ncu),
        ("two thresholds", found.thresholds),
        ("best constant", found.constant),
    ]


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    rule = "|" + "---|" * left + "---:|" * (len(headings) - left)
    return "\n".join(
        [f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(line)} |" for line in lines), ""]
    )


def as_text(found: Calibration) -> str:
    """Both tables in columns of spaces."""
    return f"{_aligned(HEADINGS, rows(found.outcomes), _LEFT)}\n{_aligned(SUMMARY, summary(scores(found)), 1)}"


def as_markdown(found: Calibration) -> str:
    """Both tables as Markdown."""
    return f"{markdown(SUMMARY, summary(scores(found)))}\n{markdown(HEADINGS, rows(found.outcomes), _LEFT)}"


def _aligned(headings: Sequence[str], lines: Sequence[Sequence[str]], left: int) -> str:
    widths = [max(len(line[i]) for line in (headings, *lines)) for i in range(len(headings))]
    shown = (
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (headings, *lines)
    )
    return "\n".join(shown) + "\n"


FORMATS: Final[dict[str, Callable[[Calibration], str]]] = {
    "text": as_text,
    "markdown": as_markdown,
    "json": lambda found: json.dumps(found.as_json(), indent=1, allow_nan=False) + "\n",
}


def main(words: Sequence[str] | None = None) -> int:
    """The command of the module's docstring; its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--gate", action="store_true")
    given = parser.parse_args(words)
    steps = [rung for family in load_families().values() for rung in family.rungs]
    try:
        runs = [store.load_run(folder, live=False) for folder in given.runs or store.recordings()]
    except ToolkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    found = calibrate(judging.pairs(runs, steps))
    shown = FORMATS[given.format](found)
    if given.output:
        given.output.write_text(shown, encoding="utf-8")
    else:
        sys.stdout.write(shown)
    missed = CalibrationGoals().shortfalls(found.ours) if given.gate else []
    if missed:
        print(f"the diagnosis is less accurate than required: {'; '.join(missed)}", file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    raise SystemExit(main())
