"""Sort detector events by time and count coincidences, batch after batch."""

import json
import statistics
import time

import cupy as cp
from cupy.cuda import nvtx

EVENTS = 30_000_000
WINDOW = 40
BATCHES = 3
WARMUP = 3
BLOCKS = 6
STEPS_PER_BLOCK = 6


def main():
    rng = cp.random.default_rng(34)
    batches = [rng.integers(0, 2**31, EVENTS).astype(cp.uint32) for _ in range(BATCHES)]
    total = cp.zeros((), dtype=cp.int64)
    count = 0

    def step():
        nonlocal count
        nvtx.RangePush(f"batch {count}")
        times = cp.sort(batches[count % BATCHES])
        total[...] += (times[1:] - times[:-1] < WINDOW).sum()
        nvtx.RangePop()
        count += 1

    for _ in range(WARMUP):
        step()
    cp.cuda.Device().synchronize()
    taken = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(STEPS_PER_BLOCK):
            step()
        cp.cuda.Device().synchronize()
        taken.append((time.perf_counter() - start) / STEPS_PER_BLOCK)
    print(f"{EVENTS / statistics.median(taken) / 1e9:.2f} G events/s, {int(total)} coincidences")
    out = {
        "program": "cupy_event_sort",
        "steps": count,
        "us": statistics.median(taken) * 1e6,
        "result": [int(total)],
    }
    print(json.dumps(out))


if __name__ == "__main__":
    main()
