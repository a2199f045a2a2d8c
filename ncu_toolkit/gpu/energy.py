"""Energy of a launch: the GPU's own energy counter, read while launches follow each other without a
gap.

The counter moves in steps of some 20 to 100 ms, so what counts is the power between two steps: it
is exact however long a step is. That power times the time of one launch is the energy of a launch,
with all that the board draws meanwhile, its share at rest included."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from ncu_toolkit.gpu import cuda

#: Seconds between the first and the last step of the counter, and seconds until the measurement is
#: given up.
_WINDOW: Final = 0.1
_LIMIT: Final = 1.0
#: Seconds of work in one block; two blocks are enqueued at any time.
_BLOCK: Final = 0.005
#: Least share of the time that the host must wait for the GPU. Below it the GPU waited for
#: launches.
_WAITED: Final = 0.05


def measure(
    run: Callable[[], None],
    work_us: float,
    *,
    counter: Callable[[], float | None] = cuda.energy_mj,
    fence: Callable[[], Callable[[], bool]] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Energy in joules of one `run`, which takes about `work_us` microseconds on the GPU and only
    enqueues.

    Args:
        counter: the energy used so far in millijoules; None where the GPU does not say.
        fence: marks the end of what is enqueued, and returns a question whether that is done.

    Returns:
        None where the GPU does not count energy, where its counter did not move in time, and where
        the launches are so short that the host could not keep the GPU busy.
    """
    last = counter()
    if last is None:
        return None
    mark = fence or _fence
    block = max(1, round(_BLOCK * 1e6 / max(work_us, 1e-3)))
    steps: list[tuple[float, float]] = []
    pending: deque[Callable[[], bool]] = deque()
    launched, waited, start = 0, 0.0, clock()
    while True:
        for _ in range(block):
            run()
        launched += block
        pending.append(mark())
        while True:
            before, value = clock(), counter()
            if value is not None and value != last:
                last = value
                steps.append((clock(), value))
            if len(pending) < 2 or pending[0]():
                break
            waited += clock() - before
        if len(pending) > 1:
            pending.popleft()
        enough = len(steps) > 1 and steps[-1][0] - steps[0][0] >= _WINDOW
        if enough or clock() - start > _LIMIT:
            break
    cuda.synchronize("measuring energy")
    took = clock() - start
    if len(steps) < 2 or waited < _WAITED * took:
        return None
    watts = (steps[-1][1] - steps[0][1]) * 1e-3 / (steps[-1][0] - steps[0][0])
    return watts * took / launched


def _fence() -> Callable[[], bool]:
    event = cuda.cupy().cuda.Event(disable_timing=True)
    event.record()
    return lambda: bool(event.done)
