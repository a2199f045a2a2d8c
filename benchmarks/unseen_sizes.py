"""The tops of the matrix products at sizes that nobody tuned for, beside cuBLAS and cuBLASLt.

    python benchmarks/unseen_sizes.py --seed 36                       # 48 sizes, both ladders
    python benchmarks/unseen_sizes.py --seed 36 --predict             # what the models expect, without a GPU
    python benchmarks/unseen_sizes.py --size 3000,512x512x16384 --field 12

Sizes are drawn after the kernels were last changed. Where no search was, `bench` times the settings that a
rung's model names and takes the fastest: so is it done here first. Then what was chosen, the model's
first and the libraries run in turns, each verified, in an order drawn by lot, and the GPU rests after
each run as long as it took: only these runs are reported. `--field` times that many settings of a
rung by its model instead: from that the model's constants come.
Writes a JSON file and a table in Markdown; docs/decisions/36-unseen-sizes.md has the outcome."""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.ladder.catalogue import find_rung
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.ladder.problems._cublaslt import Operand, fastest
from ncu_toolkit.kernel.ladder.rung import PROMISING, Rung

#: Family, rung, element type, and the arrays of A and B that the rung reads.
TOPS = {
    "bf16": ("gemm_tensor", "wgmma_fitted", "bfloat16", ("A_lines", "B_lines")),
    "fp32": ("gemm_fp32", "register_blocked_tma", "float32", ("A_pitched", "B_pitched")),
}
LIBRARIES = ("cublas", "cublaslt")
COPIES = "cublaslt, our copies"
LIMITS = {"bf16": (1.03, 0.97), "fp32": (1.10, 1.00)}
#: Seconds of runs a form, and the fewest and most rounds.
SECONDS, FEWEST, MOST = 0.1, 5, 40
LONGEST_REST = 0.05
#: The time that a model expects, None without one, and parameters.
Setting = tuple[float | None, dict[str, int]]


def draw(seed: int) -> list[str]:
    """24 squares of 1000 to 12000 and 24 shapes whose sides are 512 to 16384, drawn by their
    logarithm. Of each, half are multiples of 64, a quarter other multiples of 8, the rest any
    number: there rows of 16-bit elements are off the 16-byte grid, and libraries are slow."""
    lot = random.Random(seed)

    def side(low: int, high: int, index: int, *, by_logarithm: bool) -> int:
        while True:
            value = (
                round(low * (high / low) ** lot.random())
                if by_logarithm
                else lot.randint(low, high)
            )
            unit = 64 if index % 2 == 0 else 8 if index % 4 == 1 else 1
            value = round(value / unit) * unit
            if low <= value <= high and (unit == 64 or value % 64):
                return value

    squares = [str(side(1000, 12000, index, by_logarithm=False)) for index in range(24)]
    shapes = [
        "x".join(str(side(512, 16384, index, by_logarithm=True)) for _ in "MNK")
        for index in range(24)
    ]
    return squares + shapes


def settings(rung: Rung, names: dict[str, int], sm_count: int, field: int) -> list[Setting]:
    """The first settings by the model, each with the time that it expects."""
    found: list[Setting] = [*rung.promising(names, sm_count, field)]
    return found or [(None, dict(rung.parameters))]


def choose(top: str, size: str, found: Sequence[Setting]) -> list[Setting]:
    """The setting that `bench` takes, timed here as it does, and the model's first. Neither's times here are
    reported: both run again beside the libraries."""
    from ncu_toolkit.kernel.gpu import timing

    family, name, dtype, _ = TOPS[top]
    rung, shape = find_rung(f"{family}/{name}"), problem_for(family).parse_size(size)
    if rung.model is None:
        return list(found[:1])
    started = time.monotonic()
    ranked = timing.promising_timed(f"{family}/{name}", shape, dtype)
    times = "; ".join(f"{label(each, rung)} {us:.2f}" for us, each in ranked)
    print(f"{top} {size}: chosen in {time.monotonic() - started:.2f} s of {times}", flush=True)
    expected = {label(each, rung): us for us, each in found}
    best = ranked[0][1]
    chosen: Setting = expected.get(label(best, rung)), best
    return [chosen, *(each for each in found[:1] if each[1] != best)]


def label(parameters: dict[str, int], rung: Rung) -> str:
    changed = [
        f"{name}={value}" for name, value in parameters.items() if rung.parameters[name] != value
    ]
    return " ".join(changed) or "header"


def measure(
    top: str,
    sizes: Sequence[str],
    field: int,
    seconds: float,
    predicted: Mapping[str, Any] | None = None,
    copies: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row a size: median microseconds of each form, and why a form has none."""
    from ncu_toolkit.kernel.gpu import cuda, timing

    cuda.disable_tf32()
    family, name, dtype, _ = TOPS[top]
    rung, problem, device = find_rung(f"{family}/{name}"), problem_for(family), cuda.device()
    asked = {
        size: [(us, each) for us, each in predicted[size]]
        if predicted
        else settings(rung, problem.parse_size(size).as_dict(), device.sm_count, field or PROMISING)
        for size in sizes
    }
    unique = {label(each, rung): each for found in asked.values() for _, each in found}
    requests = [
        nvcc.BuildRequest(rung, device.arch, each, problem.macros(dtype))
        for each in unique.values()
    ]
    started = time.monotonic()
    for outcome in nvcc.build_many(requests):
        if outcome.error is not None:
            raise outcome.error
    print(
        f"{top}: {len(requests)} settings built in {time.monotonic() - started:.0f} s", flush=True
    )
    watch = timing.Stopwatch("warm")
    for size in sizes:
        timed = asked[size] if field else choose(top, size, asked[size])
        yield _time_size(watch, top, size, timed, seconds, copies)
        cuda.cupy().get_default_memory_pool().free_all_blocks()


def _time_size(
    watch: Any, top: str, size: str, chosen: Sequence[Setting], seconds: float, copies: bool
) -> dict[str, Any]:
    """The row of one size. A form that cannot run, or is wrong, is left out of the timing."""
    from ncu_toolkit.kernel.gpu import cuda, launch

    started = time.monotonic()
    family, name, dtype, arrays = TOPS[top]
    rung, problem = find_rung(f"{family}/{name}"), problem_for(family)
    baseline, shape = find_rung(f"{family}/{problem.baseline}"), problem.parse_size(size)
    space = launch.Workspace(rung, shape, dtype)
    runs: dict[str, Callable[[], None]] = {}
    wrong: dict[str, str] = {}

    def add(form: str, make: Callable[[], launch.Runnable]) -> None:
        try:
            bound = make()
            bound.verify()
            runs[form] = bound.run
        except Exception as error:  # one form that fails must not end a long run
            wrong[form] = str(error)

    def on_copies() -> launch.Runnable:
        element = 0 if dtype == "float32" else 14  # CUDA_R_32F, CUDA_R_16BF
        a, b = (Operand(space.arrays[each], element, each == "B_lines") for each in arrays)
        c = Operand(space.arrays["C"], element)
        bound = launch.Runnable(baseline, space)
        bound._library = fastest(cuda.cupy(), tuple(shape.as_dict().values()), a, b, c)
        return bound

    for _, parameters in chosen:
        add(label(parameters, rung), partial(launch.Runnable, rung, space, parameters))
    for library in LIBRARIES:
        add(library, partial(launch.Runnable, structs.replace(baseline, library=library), space))
    if copies:
        add(COPIES, on_copies)
    expected = {label(parameters, rung): time_us for time_us, parameters in chosen}
    row = {"top": top, "size": size, "dims": shape.as_dict(), "ours": list(expected)}
    row |= {"expected_us": expected, "wrong": wrong, **_rounds(watch, runs, seconds, size)}
    us = row["us"]
    best = min((us[each] for each in LIBRARIES if each in us), default=math.nan)
    order = sorted((each for each in expected if each in us), key=us.__getitem__)
    ratios = "; ".join(f"{each} {best / us[each]:.3f}" for each in order[:4])
    spent = time.monotonic() - started
    print(f"{top} {size}: {best:.1f} us ({spent:.1f} s) | {ratios} {wrong or ''}", flush=True)
    return row


def _rounds(
    watch: Any, runs: Mapping[str, Callable[[], None]], seconds: float, seed: str
) -> dict[str, Any]:
    times: dict[str, list[float]] = {form: [] for form in runs}
    lot = random.Random(seed)
    longest = max(watch.elapsed_us(watch.enqueue(run)) for _ in range(2) for run in runs.values())
    count = max(FEWEST, min(MOST, int(seconds / (longest * 1e-6))))
    for _ in range(count):
        for form in lot.sample(list(runs), len(runs)):
            times[form].append(watch.elapsed_us(watch.enqueue(runs[form])))
            time.sleep(min(times[form][-1] * 1e-6, LONGEST_REST))
    us = {form: statistics.median(found) for form, found in times.items()}
    return {"rounds": count, "us": us, "times_us": times}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Ratios by size, in Markdown, and whether the limits hold."""
    lines = []
    for top in dict.fromkeys(row["top"] for row in rows):
        heads = [top, "setting", "expected", "time", "cuBLAS", "cuBLASLt", "ratio"]
        lines += ["", f"| {' | '.join(heads)} |", "|---|---|---:|---:|---:|---:|---:|"]
        ratios = {}
        for row in (row for row in rows if row["top"] == top):
            us, own = row["us"], row["ours"][0]
            beside = [us[each] for each in LIBRARIES if each in us]
            ratios[row["size"]] = min(beside) / us[own] if own in us and beside else 0.0
            expected = row["expected_us"][own]
            cells = [row["size"], own, "" if expected is None else f"{expected:.1f}"]
            cells += [f"{us[each]:.1f}" if each in us else "wrong" for each in (own, *LIBRARIES)]
            lines.append(f"| {' | '.join(cells)} | {ratios[row['size']]:.3f} |")
        lines += ["", summary(top, ratios)]
    return "\n".join(lines)


def summary(top: str, ratios: Mapping[str, float]) -> str:
    """Median and least of the ratios beside their goals; of a size in which something was wrong the
    ratio is 0."""
    median, least = LIMITS[top]
    found = list(ratios.values())
    ahead = sum(ratio >= 1 for ratio in found)
    middle, worst = statistics.median(found), min(found)
    words = f"{top}: median {middle:.3f} (goal {median:.2f}), least {worst:.3f} (goal {least:.2f}), ahead at {ahead} of {len(found)}"
    on_grid = [ratios[size] for size in ratios if all(int(n) % 8 == 0 for n in size.split("x"))]
    if on_grid:
        words += f"; where all sides are multiples of 8: median {statistics.median(on_grid):.3f} of {len(on_grid)}"
    return words


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--size", help="these sizes instead of drawn ones")
    parser.add_argument("--top", choices=list(TOPS), action="append")
    parser.add_argument(
        "--field",
        type=int,
        default=0,
        help="time this many of the model's settings, the first one as ours",
    )
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument(
        "--copies", action="store_true", help="cuBLASLt on the rung's own copies of A and B too"
    )
    parser.add_argument(
        "--predict",
        action="store_true",
        help="choose settings and write predictions.json, without a GPU",
    )
    parser.add_argument("--predictions", type=Path, help="run what a predictions.json has chosen")
    parser.add_argument("--out", type=Path, default=Path())
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if (asked.seed is None) == (asked.size is None):
        parser.error("give --seed or --size")
    sizes = asked.size.split(",") if asked.size else draw(asked.seed)
    tops = asked.top or list(TOPS)
    if asked.predict:
        chosen: dict[str, Any] = {}
        for top in tops:
            family, name, _, _ = TOPS[top]
            rung, problem = find_rung(f"{family}/{name}"), problem_for(family)
            chosen[top] = {
                size: settings(rung, problem.parse_size(size).as_dict(), 132, PROMISING)
                for size in sizes
            }
            for size, found in chosen[top].items():
                words = [label(e, rung) + (f" {us:.1f}" if us else "") for us, e in found]
                print(f"{top} {size}: {'; '.join(words)}", flush=True)
        (asked.out / "predictions.json").write_text(json.dumps(chosen, indent=1) + "\n")
        return 0
    predicted = json.loads(asked.predictions.read_text()) if asked.predictions else {}
    rows: list[dict[str, Any]] = []
    for top in tops:
        for row in measure(
            top, sizes, asked.field, asked.seconds, predicted.get(top), asked.copies
        ):
            rows.append(row)
            (asked.out / "unseen.json").write_text(json.dumps(rows))
    (asked.out / "unseen.md").write_text(table(rows))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
