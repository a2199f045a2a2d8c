"""What fixes achieved of what they could at most, and what that makes expected of another fix. And in
how many test programs a cause's advice helped, as `python -m benchmarks.programs.advice score` counted.

A case is a program whose fix removed the first cause that was found. Its share is the time of the step
that the fix saved, over the finding's ceiling, and above 1 where the fix removed more than the cause.
`python -m benchmarks.programs.cases --write` rewrites data/achieved.json and says where cases come from."""

import json
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from ncu_toolkit.kernel.diagnosis.thresholds import Threshold

ENOUGH: Final = Threshold(8, "of 8 cases the lowest and the highest hold a ninth one 7 times of 9; of fewer they hold less than 75 %")  # fmt: skip
TESTED: Final = Threshold(3, "of one or two programs a fraction says nothing of a further one")


def _data(name: str) -> Any:
    return json.loads(resources.files("ncu_toolkit").joinpath("data", name).read_bytes())


#: Cause, program, share of what could be saved.
CASES: Final[tuple[tuple[str, str, float], ...]] = tuple(map(tuple, _data("achieved.json")))
#: Of a cause: programs in which its advice was followed, those that became faster, median speedup.
FOLLOWED: Final[Mapping[str, tuple[int, int, float]]] = _data("followed.json")


def tested(rule: str) -> tuple[int, int] | None:
    """Of a cause: programs that became faster, and all in which its advice was followed; None where these are
    fewer than TESTED."""
    programs, faster, _ = FOLLOWED.get(rule, (0, 0, 0.0))
    return (faster, programs) if programs >= TESTED.value else None


def alike(rule: str, but: str = "") -> list[tuple[str, float]]:
    """Programs and shares from which a cause's saving is expected: its own cases where they are ENOUGH,
    else those of all causes, and none where these are too few. Without those of the program `but`."""
    known = [case for case in CASES if case[1] != but]
    own = [case for case in known if case[0] == rule]
    found = own if len(own) >= ENOUGH.value else known
    return [case[1:] for case in found] if len(found) >= ENOUGH.value else []


def expected(
    rule: str, most_us: float, wall_us: float, but: str = ""
) -> tuple[float, float, float] | None:
    """The low, likely and high time of a step, in microseconds, that the fix of its first cause
    saves, of which it can save `most_us`; None where the cases are too few.

    Likely is the median share; of all causes' cases no more than 1, since this cause's fix need not do what
    others did beyond theirs. A further program lies before the k-th of n cases with probability
    k / (n + 1), whatever the distribution of shares (Wilks, 1941)."""
    found = [share for _, share in alike(rule, but)]
    if not found:
        return None
    (low, high), likely = ends(found), statistics.median(found)
    if len(found) > sum(case[0] == rule for case in CASES):
        likely = min(1.0, likely)
    return tuple(min(wall_us, most_us * x) for x in (low, likely, high))  # type: ignore[return-value]


def ends(found: Sequence[float]) -> tuple[float, float]:
    """The ends of the middle 80 % of values, between which a further one lies as often."""
    tenths = statistics.quantiles(found, n=10, method="exclusive")
    return max(0.0, tenths[0]), tenths[-1]
