"""python -m benchmarks.programs.many_ranks FOLDER [RANKS] [EVENTS]: traces of ranks that never ran, to
see what an answer to a large job takes; prints seconds and the most memory.

Each rank has steps of kernels with the calls that launch them, four all-reduces a step, and a clock of
its own; rank 5 comes 3 ms late to each step."""

import random
import resource
import sys
import time
from pathlib import Path

import msgspec

LATE, LATE_US = 5, 3000


def write(folder: Path, ranks: int, events: int) -> None:
    """A trace as torch.profiler writes it for each rank, of so many events."""
    steps, kernels = 20, events // 40
    for rank in range(ranks):
        rng, drift = random.Random(rank), 1 + rank * 1e-6
        rows, at = [], 1e6
        for step in range(steps):
            begin, queued = at, at
            at += LATE_US * (rank == LATE)
            for i in range(kernels):
                collective = i % (kernels // 4) == kernels // 4 - 1
                name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)" if collective else f"kernel_{i % 40}"  # fmt: skip
                took = 20 + rng.random()
                if collective and i < kernels // 4:  # all ranks leave the first one together
                    took = begin + LATE_US + (kernels // 4) * 24 + 300 - at
                    queued = at
                elif collective:
                    took = begin + LATE_US + (i + 1) * 24 + 400 - at
                shift, key = rank * 1e5, step * kernels + i + 1
                here = {
                    "cat": "kernel", "ph": "X", "name": name, "pid": 0, "tid": 7, "ts": shift + drift * at, "dur": took,
                    "args": {"correlation": key, "device": 0, "stream": 7, "grid": [64, 1, 1], "block": [128, 1, 1]},
                }  # fmt: skip
                call = {
                    "cat": "cuda_runtime", "ph": "X", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                    "ts": shift + drift * (queued - 40), "dur": 4, "args": {"correlation": key},
                }  # fmt: skip
                rows += [here, call]
                at += took + 2
                queued = at
            at = begin + LATE_US + kernels * 24 + 2000
        document = {"traceEvents": rows, "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks}}  # fmt: skip
        (folder / f"rank{rank}.pt.trace.json").write_bytes(msgspec.json.encode(document))


def main(folder: Path, ranks: int = 64, events: int = 100_000) -> None:
    from ncu_toolkit.program.analysis.program import analyze_programs, answers_of

    folder.mkdir(parents=True, exist_ok=True)
    write(folder, ranks, events)
    begin, cpu = time.perf_counter(), time.process_time()
    (answer,) = answers_of(analyze_programs([folder]))
    took = time.perf_counter() - begin
    busy = time.process_time() - cpu + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    memory = [resource.getrusage(who).ru_maxrss >> 10 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]  # fmt: skip
    print(answer.headline)
    print(
        f"{took:.1f} s, {busy:.1f} s of processors; most memory {memory[0]} MiB, of a worker {memory[1]} MiB"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
