"""What the programs here share: run steps, and print the median time of one as a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable


def run(
    step: Callable[[int], object],
    wait: Callable[[], object],
    steps: int = 20,
    mark: object = None,
    result: Callable[[], object] | None = None,
) -> None:
    """Run `steps` steps (or as many as the first argument says), each timed until `wait` returns.
    `mark` makes a context for each, as an NVTX range; `result` gives a number to print."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else steps
    times = []
    for number in range(steps):
        began = time.perf_counter()
        if mark is not None:
            with mark("step"):  # type: ignore[operator]
                step(number)
        else:
            step(number)
        wait()
        times.append(time.perf_counter() - began)
    steady = sorted(times[len(times) // 3 :])
    name = sys.argv[0].rpartition("/")[2]
    message = {"program": name, "steps": steps, "us": round(steady[len(steady) // 2] * 1e6, 1)}
    if result is not None:
        message["result"] = float(result())  # type: ignore[arg-type]
    print(json.dumps(message), flush=True)
