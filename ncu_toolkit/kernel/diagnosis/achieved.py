"""What fixes achieved of what they could at most, and what that makes expected of another fix. And in
how many test programs a cause's advice helped, as `python -m benchmarks.programs.advice score` counted.

A case is a program whose fix removed the first cause that was found: the part of the step that the fix
could save, which is the finding's ceiling, and the part that it saved, more where it removed more than the cause.
`python -m benchmarks.programs.cases --write` rewrites data/achieved.json and says where cases come from."""

import json
import statistics
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Final

from ncu_toolkit.kernel.diagnosis.thresholds import Threshold

LEAST: Final = Threshold(0.01, "of a step: two runs differ by as much, and no fix leaves nothing")
TESTED: Final = Threshold(3, "of one or two programs a fraction says nothing of a further one")


def _data(name: str) -> Any:
    return json.loads(resources.files("ncu_toolkit").joinpath("data", name).read_bytes())


#: Cause, program, and the parts (0-1) of its step that the fix could save and saved.
Case = tuple[str, str, float, float]
CASES: Final[tuple[Case, ...]] = tuple(map(tuple, _data("achieved.json")))
#: Of a cause: programs in which its advice was followed, those that became faster, median speedup.
FOLLOWED: Final[Mapping[str, tuple[int, int, float]]] = _data("followed.json")


def tested(rule: str) -> tuple[int, int] | None:
    """Of a cause: programs that became faster, and all in which its advice was followed; None where these are
    fewer than TESTED."""
    programs, faster, _ = FOLLOWED.get(rule, (0, 0, 0.0))
    return (faster, programs) if programs >= TESTED.value else None


def expected(
    most_us: float, wall_us: float, but: str = "", known: Sequence[Case] = CASES
) -> tuple[float, float, float]:
    """The low, likely and high time of a step, in microseconds, that the fix of its first cause
    saves, of which it can save `most_us`: from cases of all causes, without those of the program `but`.

    A fix removes more or less than its cause, and what is left runs faster or slower than it was recorded: both
    multiply the saved time over the time left, so that cases are multiples of the ceiling's. Likely is the median, but no
    more than the ceiling: two of 37 healthy programs were promised a tenth without that.
    A further program lies before the k-th of n cases with probability k / (n + 1) (Wilks, 1941)."""
    times = [_to_left(saved) / _to_left(most) for _, name, most, saved in known if name != but]
    (low, high), own = ends(times), _to_left(most_us / wall_us)
    likely = min(1.0, statistics.median(times))
    return tuple(wall_us * (1 - 1 / (1 + own * x)) for x in (low, likely, high))  # type: ignore[return-value]


def _to_left(saved: float) -> float:
    """What is saved of a step, as a multiple of what is left."""
    saved = min(1 - LEAST.value, max(LEAST.value, saved))
    return saved / (1 - saved)


def ends(found: Sequence[float]) -> tuple[float, float]:
    """The ends of the middle 80 % of values, between which a further one lies as often."""
    tenths = statistics.quantiles(found, n=10, method="exclusive")
    return max(0.0, tenths[0]), tenths[-1]
