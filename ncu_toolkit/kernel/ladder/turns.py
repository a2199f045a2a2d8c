"""Times of several ways to compute the same, taken in turns. CuPy comes from the caller."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

#: Turns, one where a run takes longer than _LONG_US; microseconds of runs in a row in each, and the most runs.
_TURNS, _LONG_US, _ROW_US, _LONGEST_ROW = 3, 3000.0, 200.0, 16
#: Bytes to fill first: about 100 microseconds on an H200.
_BUSY: Final = 2**28


def in_turns(xp: Any, runs: Sequence[Callable[[], None]]) -> list[float]:
    """The median microseconds of each run, the GPU resting between them."""
    busy = xp.empty(_BUSY, dtype=xp.uint8)

    def time_us(run: Callable[[], None], count: int) -> float:
        start, end = xp.cuda.Event(), xp.cuda.Event()
        busy.fill(0)  # meanwhile the CPU enqueues what is timed
        start.record()
        for _ in range(count):
            run()
        end.record()
        end.synchronize()
        spent = float(xp.cuda.get_elapsed_time(start, end)) * 1e3
        time.sleep(min(spent * 1e-6, 0.05))
        return spent / count

    for run in runs:
        run()
    shortest = min(time_us(run, 1) for run in runs)
    row = max(1, min(_LONGEST_ROW, int(_ROW_US / shortest)))
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(_TURNS if shortest < _LONG_US else 1):
        for index in range(len(runs))[:: -1 if turn % 2 else 1]:
            times[index].append(time_us(runs[index], row))
    return list(map(statistics.median, times))
