"""What sampling Python's stacks costs, in pairs of runs with and without it, in turns:

    python benchmarks/programs/sampling_cost.py                       # Python alone, no GPU
    python benchmarks/programs/sampling_cost.py --pairs 9 -- python train.py

Of a program it compares the step that is found in its recording; without one, the time of loops of
Python: small functions, a deep stack, calls of C that hold Python's lock and that do not, and workers."""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]
from ncu_toolkit.program.recording import recorder  # noqa: E402
from ncu_toolkit.program.traces.step import find_step  # noqa: E402

#: Run by a Python with the recorder or without: its words are the load, the recorder, and a folder for
#: samples or nothing. It prints the seconds of each pass.
LOADS = """
import ctypes, multiprocessing, sys, time, zlib

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
    while (item := tasks.get()) is not None:
        functions()
        results.put(item)

def loader():
    for item in range(6):
        tasks.put(item)
    for _ in range(6):
        results.get()

name, library, folder = sys.argv[1:]
if folder:
    ctypes.CDLL(library).ncu_toolkit_sample(folder.encode(), 1000)
if name == "loader":
    tasks, results = multiprocessing.Queue(), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=work, args=(tasks, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
load = globals()[name]
for _ in range(3):
    load()
delays = open("/proc/thread-self/schedstat", "rb", buffering=0)

def now():
    delays.seek(0)
    return time.perf_counter() - 1e-9 * int(delays.read().split()[1])

for _ in range(60):
    begin = now()
    load()
    print(now() - begin)
if name == "loader":
    for worker in workers:
        tasks.put(None)
"""
NAMES = ("functions", "deep", "holds", "releases", "loader")


def of_load(name: str, python: str, sampled: bool) -> tuple[float, int]:
    """Median seconds of a pass, without those that it waits for a core, and samples that were written."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ}
        if sampled:  # workers begin by the hook that every recorded Python has
            environment |= {
                "NCU_TOOLKIT_RECORD": folder,
                "NCU_TOOLKIT_RECORD_SAMPLES": "1000",
                "CUDA_INJECTION64_PATH": str(recorder.built()),
                "PYTHONPATH": str(Path(recorder.__file__).parent / "inside" / "start"),
            }
        words = [python, "-c", LOADS, name, str(recorder.built()), folder if sampled else ""]
        run = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        texts = [path.read_text() for path in Path(folder).glob("*.samples")]
        count = sum(line.startswith("s ") for text in texts for line in text.splitlines())
        return statistics.median(map(float, run.stdout.split())), count


def of_program(command: list[str], sampled: bool) -> tuple[float, int]:
    """Median seconds of the program's step, and the samples of its recording."""
    with tempfile.TemporaryDirectory() as folder:
        asked = recorder.RecordOptions(lines=True, samples=sampled)
        if recorder.record(command, Path(folder), asked):
            sys.exit("the program failed")
        trace = recorder.read_recording(Path(folder))
        windows = find_step(trace).windows
        return statistics.median(window.us for window in windows) / 1e6, len(trace.samples)


def compare(name: str, pairs: int, measure: Callable[[bool], tuple[float, int]]) -> None:
    changes, counts, alone = [], [], []
    for pair in range(pairs):
        order = (False, True) if pair % 2 else (True, False)
        seconds = {sampled: measure(sampled) for sampled in order}
        changes.append(100 * (seconds[True][0] / seconds[False][0] - 1))
        counts.append(seconds[True][1])
        alone.append(seconds[False][0])
    low, middle, high = statistics.quantiles(changes, n=4)
    print(
        f"{name}: {middle:+.2f} % (quartiles {low:+.2f} to {high:+.2f}, {pairs} pairs),"
        f" {1e3 * statistics.median(alone):.2f} ms without, {statistics.median(counts):.0f} samples",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--python", default=sys.executable, help="of the loops")
    parser.add_argument("command", nargs="*", help="a program and its arguments")
    asked = parser.parse_args()
    if asked.command:
        name = " ".join(Path(word).name for word in asked.command)
        compare(name, asked.pairs, lambda sampled: of_program(asked.command, sampled))
        return
    for name in NAMES:
        compare(name, asked.pairs, lambda sampled, name=name: of_load(name, asked.python, sampled))


if __name__ == "__main__":
    main()
