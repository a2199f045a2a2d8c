"""Residuals of predicted gains, the quantiles fitted to them, and how well intervals cover the
cases that were left out (ncu_toolkit/kernel/diagnosis/time_model.py uses what is fitted)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.kernel.diagnosis.time_model import Band, Intervals

#: The part of the cases that an interval is to cover, evenly cut at both ends.
LEVEL: Final = 0.8
#: A rule's own cases weigh n / (n + SHRINK) against all cases. Of sets left out, intervals hold 79%
#: with 4, 81% with 8 and 82% with 16; of the held-out ones alone 77% with 16.
SHRINK: Final = 16.0
#: What a case of a ladder weighs. Rules were developed on the ladders, so they fit them better than
#: they fit programs that nobody has seen: with their full weight, intervals of the held-out sets
#: covered 72%.
LADDER: Final = 0.25


@dataclass(frozen=True)
class Residual:
    """One case whose outcome is known: the verdict named its cause and gave a figure.

    `source` is the set that it belongs to (`ladders/transpose`, `heldout/two`), `report` the
    recording, `case` the pair of kernels. `evidence` is `shape`, `stalls` or `counters`. Gains are
    factors; `roof` is the headroom, where it was known."""

    source: str
    report: str
    case: str
    rule: str
    confidence: str
    evidence: str
    predicted: float
    achieved: float
    roof: float | None

    @property
    def value(self) -> float:
        """The residual on the scale of ncu_toolkit/kernel/diagnosis/time_model.py."""
        predicted = math.log(self.predicted)
        return (math.log(self.achieved) - predicted) / (1 + predicted)


def fit(
    residuals: Sequence[Residual], group: Callable[[Residual], str] = lambda each: each.rule
) -> Intervals:
    """Bands of `residuals`, with those of each group instead of a rule's."""
    weights = list(zip(residuals, weighed(residuals), strict=True))
    whole = sum(weight for _, weight in weights)
    groups: dict[str, list[tuple[Residual, float]]] = {}
    for each, weight in weights:
        groups.setdefault(group(each), []).append((each, weight))
    bands = {}
    for name, own in sorted(groups.items()):
        size = sum(weight for _, weight in own)
        mixed = [
            (each.value, weight / whole * SHRINK / (size + SHRINK)) for each, weight in weights
        ]
        mixed += [(each.value, weight / (size + SHRINK)) for each, weight in own]
        bands[name] = _band(mixed, size)
    return Intervals(_band([(each.value, weight) for each, weight in weights], whole), bands)


def weighed(residuals: Iterable[Residual], ladder: float = LADDER) -> list[float]:
    """The weight of each: one for a pair of kernels however often it was recorded, and `ladder` for
    one of a ladder."""
    given = list(residuals)
    times = Counter((each.source, each.case) for each in given)
    return [
        (ladder if each.source.startswith("ladders/") else 1.0) / times[each.source, each.case]
        for each in given
    ]


def _band(values: list[tuple[float, float]], cases: float) -> Band:
    tail = (1 - LEVEL) / 2
    low, high = (_quantile(values, at) for at in (tail, 1 - tail))
    return Band(round(low, 3), round(high, 3), round(cases, 2))


def _quantile(values: Iterable[tuple[float, float]], at: float) -> float:
    """A quantile of weighted values: each counts at the middle of its weight, linear between."""
    ordered = sorted(values)
    whole = sum(weight for _, weight in ordered)
    passed, before = 0.0, (0.0, ordered[0][0])
    for value, weight in ordered:
        here = ((passed + weight / 2) / whole, value)
        if at <= here[0]:
            part = (at - before[0]) / (here[0] - before[0])
            return before[1] + part * (here[1] - before[1])
        passed, before = passed + weight, here
    return before[1]


@dataclass(frozen=True)
class Coverage:
    """How well intervals did: `cases`, the part of them that lies inside, below and above, the
    geometric mean of upper over lower end, and the mean interval score of Gneiting and Raftery
    (2007) in logarithms: its width and, for a miss, 10 times the distance to it; less is better.
    Each pair of kernels counts once."""

    cases: float
    inside: float
    below: float
    above: float
    width: float
    score: float


def coverage(found: Sequence[tuple[Residual, tuple[float, float]]]) -> Coverage:
    """Of cases with their intervals."""
    weights = weighed((each for each, _ in found), ladder=1.0)
    whole = sum(weights)
    below = above = width = missed = 0.0
    for (each, (low, high)), weight in zip(found, weights, strict=True):
        below += weight * (each.achieved < low)
        above += weight * (each.achieved > high)
        width += weight * math.log(high / low)
        missed += weight * math.log(max(low / each.achieved, 1.0, each.achieved / high))
    return Coverage(
        whole,
        1 - (below + above) / whole,
        below / whole,
        above / whole,
        math.exp(width / whole),
        (width + 2 / (1 - LEVEL) * missed) / whole,
    )


def left_out(
    residuals: Sequence[Residual],
    group: Callable[[Residual], str] = lambda each: each.rule,
    part: Callable[[Residual], str] = lambda each: each.source,
) -> list[tuple[Residual, tuple[float, float]]]:
    """Each case with the interval that is fitted without any case of its `part`: its set, or its
    pair of kernels (`pair`)."""
    found = []
    for name in sorted({part(each) for each in residuals}):
        fitted = fit([each for each in residuals if part(each) != name], group)
        found += [
            (each, fitted.around(group(each), each.predicted, each.roof))
            for each in residuals
            if part(each) == name
        ]
    return found


def pair(each: Residual) -> str:
    """The pair of kernels that a case is of, whichever GPU recorded it."""
    return f"{each.source}/{each.case}"
