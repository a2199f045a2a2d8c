"""What `compare` calls a regression, and how long a round of `watch` takes, on a real GPU.

    python benchmarks/loop.py --output docs/data/loop.json [--trials 200] [--budget 420]

Trials: three kernels are timed with the toolkit's own stopwatch, 20 repeats per side, and compared
with the gates of docs/ci.md. The new side does 5 % more work (planted), or the same (A/A). Its
repeats alternate with the old side's, as `bench` times rungs, or follow them, as in two runs.

Rounds: `watch` runs on a small program whose kernel is edited. A round's seconds count from the
save to the last line shown; what is beyond ncu's own run in that round is what `watch` adds.

Writes JSON and prints Markdown. What the budget leaves no time for is counted as not done.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy  # noqa: E402  (after the path)

from ncu_toolkit.base.core.errors import InputProblem  # noqa: E402
from ncu_toolkit.base.core.files import write_atomic  # noqa: E402
from ncu_toolkit.kernel.analysis import gate  # noqa: E402
from ncu_toolkit.kernel.gpu import cuda, launch, timing  # noqa: E402
from ncu_toolkit.kernel.ladder.catalogue import find_rung  # noqa: E402
from ncu_toolkit.kernel.ladder.problems import problem_for  # noqa: E402
from ncu_toolkit.kernel.runs import store  # noqa: E402

PLANTED: Final = 1.05
REPEATS: Final = 20
GATES: Final = ("time>0%", "time>2%")
#: A product's rows and columns; its depth, and 5 % more, both multiples of the tile.
SIDE: Final = 1024
DEPTHS: Final = (1280, 1344)
RUNG: Final = "smem_tiled"
ROUNDS: Final = 4
#: Seconds for one round of `watch`, and between a round's end and the next save: the round is added
#: to the history meanwhile.
PATIENCE: Final = 120.0
PAUSE: Final = 2.0
APP: Final = """\
import cupy

FACTOR = "{factor}"
scale = cupy.RawKernel(
    'extern "C" __global__ void scale(float* x, int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x;'
    "if (i < n) x[i] *= " + FACTOR + "; }}",
    "scale",
)
n = 1 << 24
x = cupy.ones(n, dtype="float32")
scale((n // 256,), (256,), (x, cupy.int32(n)))
cupy.cuda.Device().synchronize()
"""

#: Work of the old side, and of the new one with the slowdown planted.
Work = tuple[Callable[[], None], Callable[[], None]]


def works() -> Iterator[tuple[str, timing.Cache, Work]]:
    """Kernels that wait for DRAM, compute without memory, and do both.

    Raises:
        ToolkitError: as `cuda.cupy`, `Runnable` and `Runnable.verify`.
    """
    cp, tools = cuda.cupy(), timing._tools()
    blocks = (cuda.device().sm_count * 8, 1, 1)
    quads = [int(2**25 * factor) for factor in (1, PLANTED)]
    data, never = cp.zeros(4 * quads[1], dtype="uint32"), cp.zeros(4, dtype="uint32")
    read, peak = tools.get_function("read_all"), tools.get_function("ffma_peak")

    def reading(count: int) -> Callable[[], None]:
        return lambda: read(blocks, (256, 1, 1), (data, numpy.int64(count), never))

    def computing(steps: int) -> Callable[[], None]:
        values = (never, numpy.float32(0.999), numpy.float32(1e-3), numpy.int32(steps))
        return lambda: peak(blocks, (256, 1, 1), values)

    yield "a read of 512 MiB", "flushed", (reading(quads[0]), reading(quads[1]))
    yield "FFMA chains", "warm", (computing(1000), computing(round(1000 * PLANTED)))
    problem = problem_for("gemm_fp32")
    rung = find_rung(RUNG)
    products = [
        launch.bind_verified(
            rung,
            launch.Workspace(rung, problem.parse_size(f"{SIDE}x{SIDE}x{depth}"), "float32"),
        )
        for depth in DEPTHS
    ]
    yield f"the rung {RUNG}", "warm", (products[0].run, products[1].run)


def timed(
    watch: timing.Stopwatch, runs: Sequence[tuple[str, Callable[[], None]]], seed: int
) -> dict[str, tuple[float, ...]]:
    """REPEATS times of each in microseconds, in shuffled rounds, with rests where the GPU slows
    itself down: the rounds of `timing.measure_ladder`."""
    named: Any = [SimpleNamespace(rung=SimpleNamespace(name=name), run=run) for name, run in runs]
    repeated = [(each, REPEATS) for each in named]
    for rest in (False, True):
        found = timing._rounds(watch, repeated, None, random.Random(seed), lambda _: None, rest)
        if found is not None:
            break
        time.sleep(timing.BREATHER)
    assert found is not None
    return {name: tuple(times) for name, times in found.times.items()}


def trial(
    watch: timing.Stopwatch, work: Work, planted: bool, together: bool, seed: int
) -> tuple[float, list[bool]]:
    """The ratio of the medians, new over old, and whether each of GATES fails."""
    old, new = work[0], work[1] if planted else work[0]
    both = [("old", old), ("new", new)]
    blocks = [both] if together else [both[:1], both[1:]]
    times = {name: each for block in blocks for name, each in timed(watch, block, seed).items()}
    key = ("kernel",)
    sides = [{key: gate.Side("kernel", "GPU", times[name])} for name in ("old", "new")]
    found = gate.compare(sides[0], sides[1], gates=[gate.parse_gate(text) for text in GATES])
    failed = {failure.gate for failure in found.failures}
    ratio = statistics.median(times["new"]) / statistics.median(times["old"])
    return ratio, [text in failed for text in GATES]


def trials(count: int, seconds: float) -> list[dict[str, Any]]:
    """Alarms of `count` trials for each kernel, planted and A/A, interleaved and in turn. Trials of
    the four kinds alternate, so that drift falls on all; a kernel has a third of the time."""
    found = []
    for name, cache, work in works():
        stop = time.monotonic() + seconds / 3
        watch = timing.Stopwatch(cache)
        kinds = [(planted, together) for planted in (True, False) for together in (True, False)]
        ratios: dict[tuple[bool, bool], list[float]] = {kind: [] for kind in kinds}
        alarms = {kind: [0] * len(GATES) for kind in kinds}
        for run in work:
            for _ in range(REPEATS):
                watch.elapsed_us(watch.enqueue(run))  # the clocks rise
        for seed in range(count):
            if time.monotonic() > stop:
                break
            for kind in kinds:
                ratio, failed = trial(watch, work, *kind, seed)
                ratios[kind].append(ratio)
                alarms[kind] = [a + b for a, b in zip(alarms[kind], failed, strict=True)]
        found += [
            {
                "kernel": name, "planted": planted, "interleaved": together, "repeats": REPEATS, "trials": len(each), "asked": count,
                "median_ratio": round(statistics.median(each), 4) if each else None,
                "alarms": dict(zip(GATES, alarms[planted, together], strict=True)),
            }
            for (planted, together), each in ratios.items()
        ]  # fmt: skip
    return found


def rounds(source: str = APP, kernel: str = "scale") -> dict[str, Any]:
    """Seconds of rounds of `watch` after the first, with what ncu took of each.

    Raises:
        InputProblem: `watch` ended, or a round took more than PATIENCE.
    """
    with tempfile.TemporaryDirectory(prefix="ncu-loop-") as name:
        folder = Path(name)
        app = folder / "app.py"
        app.write_text(source.format(factor="2.0f"))
        began = time.monotonic()
        subprocess.run([sys.executable, app], cwd=folder, check=True, capture_output=True)
        program = time.monotonic() - began
        words = ["watch", "-k", kernel, "--", sys.executable, "app.py"]
        with (folder / "message").open("wb") as message:
            process = subprocess.Popen(
                [sys.executable, "-m", "ncu_toolkit", *words],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
                stdin=subprocess.DEVNULL,
                stdout=message,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait(process, folder, 0)
            found = []
            for number in range(1, ROUNDS + 1):
                time.sleep(PAUSE)
                app.write_text(source.format(factor=f"{number + 2}.0f"))
                began = time.monotonic()
                _wait(process, folder, number)
                found.append(time.monotonic() - began)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=PATIENCE)
        runs = sorted((folder / "reports").iterdir())[1:]
        ncu = [store.load_manifest(run).costs["profiling"] for run in runs]
    added = [whole - own for whole, own in zip(found, ncu, strict=True)]
    return {
        "program_seconds": round(program, 3),
        "round_seconds": [round(each, 3) for each in found],
        "ncu_seconds": [round(each, 3) for each in ncu],
        "added_seconds": [round(each, 3) for each in added],
    }


def _wait(process: subprocess.Popen[bytes], folder: Path, number: int) -> None:
    """Wait until `watch` has shown the card, and so many comparisons after it."""
    stop = time.monotonic() + PATIENCE
    while True:
        text = (folder / "message").read_text(encoding="utf-8", errors="replace")
        if re.search(r"^ *expect ", text, re.MULTILINE) and text.count("Bottleneck") >= number:
            return
        if process.poll() is not None or time.monotonic() > stop:
            raise InputProblem(f"watch showed no round {number}: {' '.join(text.split())[-400:]}")
        time.sleep(0.01)


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    sides = {
        (each["kernel"], each["interleaved"], each["planted"]): each for each in result["trials"]
    }
    gates = ", ".join(f"`{gate}`" for gate in GATES)
    found = []
    if sides:
        found = [
            f"| kernel | repeats of the two sides | 5% slower: caught by {gates} | the same: alarms of {gates} |",
            "|---|---|---|---|",
        ]
    for (kernel, interleaved, planted), slower in sides.items():
        if not planted:
            continue
        counts = []
        for each in (slower, sides[kernel, interleaved, False]):
            alarms = ", ".join(str(each["alarms"][gate]) for gate in GATES)
            counts.append(f"{alarms} of {each['trials']}")
        how = "alternate" if interleaved else "one side after the other"
        found.append(f"| {kernel} | {how} | {counts[0]} | {counts[1]} |")
    rounds = result["watch"]
    whole, own, added = (
        statistics.median(rounds[key]) for key in ("round_seconds", "ncu_seconds", "added_seconds")
    )
    found += [
        "",
        f"A further round of `watch` on a small CuPy program took {whole:.1f} s from the save to the last line. ncu with the program "
        f"took {own:.1f} s of it, `watch` {added:.1f} s (at most {max(rounds['added_seconds']):.1f} s in "
        f"{len(rounds['added_seconds'])} rounds). The program alone takes {rounds['program_seconds']:.1f} s.",
    ]
    return "\n".join(found) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument(
        "--budget", type=float, default=420.0, metavar="SECONDS", help="for the trials and rounds"
    )
    options = parser.parse_args(arguments)
    began = time.monotonic()
    found = rounds()
    left = max(0.0, options.budget - (time.monotonic() - began))
    result = {
        "gpu": cuda.device().name,
        "environment": cuda.environment(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "watch": found,
        "trials": trials(options.trials, left),
        "seconds": round(time.monotonic() - began, 1),
    }
    write_atomic(options.output, (json.dumps(result, indent=1, ensure_ascii=False) + "\n").encode())
    print(table(result))


if __name__ == "__main__":
    main()
