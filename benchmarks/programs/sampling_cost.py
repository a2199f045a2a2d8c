"""What sampling Python's stacks costs, in pairs of turns with and without it:

    python benchmarks/programs/sampling_cost.py                       # Python alone, no GPU
    python benchmarks/programs/sampling_cost.py --runs 3 -- python train.py

Of a program it compares steps of one recorded run, in which sampling is switched on and off; without
one, loops of Python in one process: small functions, a deep stack, calls of C that hold Python's lock
and that do not, workers."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]
from ncu_toolkit.program.recording import recorder  # noqa: E402
from ncu_toolkit.program.traces.step import find_step  # noqa: E402

#: Run by a Python that samples itself: its words are the load and the recorder. It prints the seconds of
#: each pair of passes, without samples and with them; time in which it waited for a core is left out.
LOADS = """
import ctypes, multiprocessing, os, sys, time, zlib

def small(x):
    return x * 2 + 1

def functions():
    total = 0
    for at in range(100_000):
        total += small(at)

def deep(depth=60):
    return deep(depth - 1) if depth else functions()

numbers, data = [*range(20_000, 0, -1)], bytes(200_000)

def holds():
    for _ in range(20):
        sorted(numbers, key=float)

def releases():
    for _ in range(200):
        zlib.crc32(data)

def work(tasks, results):
    while (on := tasks.get()) >= 0:
        sampling.value = on
        functions()
        results.put(on)

def loader():
    for _ in range(6):
        tasks.put(sampling.value)
    for _ in range(6):
        results.get()

def now():
    delays.seek(0)
    return time.perf_counter() - 1e-9 * int(delays.read().split()[1])

name, library = sys.argv[1:]
recorder = ctypes.CDLL(library)
recorder.ncu_toolkit_sample(os.environ["NCU_TOOLKIT_RECORD"].encode(), 1000)
sampling = ctypes.c_int.in_dll(recorder, "ncu_toolkit_sampling")
delays = open("/proc/thread-self/schedstat", "rb", buffering=0)
if name == "loader":
    tasks, results = multiprocessing.Queue(), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=work, args=(tasks, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
load = globals()[name]
load()
for pair in range(int(os.environ["PAIRS"])):
    seconds = {}
    for sampling.value in (0, 1) if pair % 2 else (1, 0):
        time.sleep(0.006)
        begin = now()
        load()
        seconds[sampling.value] = now() - begin
    print(seconds[0], seconds[1])
if name == "loader":
    for worker in workers:
        tasks.put(-1)
"""
NAMES = ("functions", "deep", "holds", "releases", "loader")
#: Pairs of passes of a load.
PASSES = 300


def of_load(name: str, python: str) -> None:
    """Compare passes of a load in one process."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PAIRS": str(PASSES // 5 if name == "loader" else PASSES),
            "NCU_TOOLKIT_RECORD": folder,
            "NCU_TOOLKIT_RECORD_SAMPLES": "1000",
            "CUDA_INJECTION64_PATH": str(recorder.built()),
            "PYTHONPATH": str(Path(recorder.__file__).parent / "inside" / "start"),
        }
        words = [python, "-c", LOADS, name, str(recorder.built())]
        run = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        pairs = [tuple(map(float, line.split())) for line in run.stdout.splitlines()]
        show(name, [(without, sampled) for without, sampled in pairs])


#: Run by the program's own Python: sampling goes on and off in turns while the script runs.
TURNS = """
import ctypes, os, runpy, sys, threading, time

library, seconds, script = sys.argv[1], float(sys.argv[2]), sys.argv[3]
sampling = ctypes.c_int.in_dll(ctypes.CDLL(library), "ncu_toolkit_sampling")

def turn():
    while True:
        time.sleep(seconds)
        sampling.value = not sampling.value

threading.Thread(target=turn, daemon=True).start()
sys.argv = sys.argv[3:]
sys.path[0] = os.path.dirname(script)
runpy.run_path(script, run_name="__main__")
"""
#: Seconds that sampling stays on or off: many steps, and many turns in a run.
TURN = 0.1


def of_program(command: list[str]) -> list[tuple[float, float]]:
    """Seconds of a step without samples and with them, for each pair of neighbouring turns of one recorded
    run. Only the launching process takes turns: workers of a loader are sampled all the time."""
    with tempfile.TemporaryDirectory() as folder:
        words = [command[0], "-c", TURNS, str(recorder.built()), str(TURN), *command[1:]]
        if recorder.record(words, Path(folder), recorder.RecordOptions(lines=True, samples=True)):
            sys.exit("the program failed")
        trace = recorder.read_recording(Path(folder))
    starts = sorted(sample.start for sample in trace.samples if sample.process == 0)
    turns: list[tuple[bool, list[float]]] = []
    for window in find_step(trace).windows:
        sampled = bisect_left(starts, window.end) > bisect_left(starts, window.start)
        if not turns or turns[-1][0] != sampled:
            turns.append((sampled, []))
        turns[-1][1].append(window.us / 1e6)
    # the first and last step of a turn may hold the switch
    inner = [(sampled, steps[1:-1]) for sampled, steps in turns if len(steps) > 6]
    return [
        (statistics.median(one), statistics.median(other))[:: -1 if sampled else 1]  # type: ignore[misc]
        for (sampled, one), (_, other) in pairwise(inner)
    ]


def show(name: str, pairs: list[tuple[float, float]]) -> None:
    """Print by how much the second of each pair is slower."""
    changes = [100 * (sampled / without - 1) for without, sampled in pairs]
    low, middle, high = statistics.quantiles(changes, n=4)
    alone = 1e3 * statistics.median(without for without, _ in pairs)
    print(
        f"{name}: {middle:+.2f} % (quartiles {low:+.2f} to {high:+.2f}, {len(pairs)} pairs), {alone:.2f} ms without",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="recorded runs of the program")
    parser.add_argument("--python", default=sys.executable, help="of the loops")
    parser.add_argument("command", nargs="*", help="a program and its arguments")
    asked = parser.parse_args()
    if not asked.command:
        for name in NAMES:
            of_load(name, asked.python)
        return
    pairs = [pair for _ in range(asked.runs) for pair in of_program(asked.command)]
    show(" ".join(Path(word).name for word in asked.command), pairs)


if __name__ == "__main__":
    main()
