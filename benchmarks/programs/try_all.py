"""Try the switches that apply to small whole programs, for the table of docs/try.md.

python try_all.py OUT [--seconds S] [NAME ...]

Writes OUT/try.json, the trial of each program, and OUT/reports.tar.xz, their traces. Programs run one
after another, those that matter most first, until S seconds are over.
Compilers' caches are filled first, all at once, since the first run of a compiled program takes a
minute."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.gpu import recorder
from ncu_toolkit.gpu.trying import ProgramRunner, TryJob, TryRun, TryVariant, try_program, variants

HERE = Path(__file__).resolve().parent
#: Runs a side, and the switches that apply or might; those first that matter most.
PROGRAMS: dict[str, tuple[int, str]] = {
    "torch_charlm_train": (2, "tf32 bf16-autocast"),
    "cuda_barrier_options": (5, "fast-math max-registers:32"),
    "torch_ddim_convnext": (3, "channels-last cudnn-benchmark"),
    "gpt_train.py 10": (2, "tf32 fused-optimizer compile"),
    "torch_llm_decode": (2, "cuda-graphs"),
    "torch_vit_finetune": (3, "fused-optimizer"),
    "triton_batch_columns": (3, "triton-warps:4 triton-warps:16"),
    "numba_nbody_tiles": (3, "numba-block:128"),
    "torch_augment_loader": (2, "loader-workers"),
    "cupy_kmeans": (5, "tf32"),
    "torch_resnet_infer": (3, "channels-last cudnn-benchmark"),
    "jax_transformer_scan": (3, "tf32"),
    "torch_kalman_tracks": (2, "compile"),
    "torch_recsys_ctr": (2, "fused-optimizer pinned-copies"),
    "cuda_stencil_seven": (5, "max-registers:64 fast-math"),
    "torch_segment_empty_cache": (2, "async-allocator expandable-segments"),
    "torch_rl_cartpole": (2, "cuda-graphs"),
    "loader.py": (2, "pinned-copies batch-size"),
    "triton_mlp_surrogate": (3, "triton-warps:8 triton-stages:4"),
    "numba_energy_sum": (3, "numba-block:128"),
    "torch_bert_pretrain": (2, "sdpa-cudnn"),
    "decode.py 40": (2, "cuda-graphs"),
}
#: Switches whose first run compiles.
COMPILE = ("compile", "cuda-graphs")


def job_of(name: str, folder: Path) -> TryJob:
    words = name.split()
    source = HERE / words[0]
    if not source.suffix:
        source = next(iter((HERE / "pairs" / name).glob("before.*")))
    if source.suffix == ".py":
        return TryJob((sys.executable, str(source), *words[1:]), timeout=60)
    made = str(folder / f"{name}.app")
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    build = (nvcc, "-O3", "-std=c++17", "-arch=native", "-o", made, str(source))
    return TryJob((made,), build, timeout=60)


class Bounded(ProgramRunner):
    """Ends the rounds when the time is over, as Ctrl-C does."""

    until = float("inf")

    def __call__(self, variant: TryVariant, following: Sequence[TryVariant] = ()) -> TryRun:
        if time.monotonic() > self.until:
            raise KeyboardInterrupt
        return super().__call__(variant, following)


def warm(task: tuple[str, TryVariant, Path]) -> str:
    """Fill compilers' caches by one run with a switch that compiles; what it took."""
    name, variant, folder = task
    began = time.monotonic()
    with ProgramRunner(job_of(name, folder), Path(tempfile.mkdtemp(dir=folder)), ahead=0) as run:
        run.sampled = False
        try:
            found = run(variant)
            said = found.problem or f"step of {found.us} us"
        except (ToolkitError, OSError) as error:
            said = str(error)
    return f"warm {name} with {variant.label}: {time.monotonic() - began:.0f} s, {said}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_LEFT", 350)))
    parser.add_argument("--each", type=float, default=55.0, help="seconds of a program at most")
    asked = parser.parse_args()
    began, out = time.monotonic(), asked.out
    until = began + asked.seconds - 12  # to pack what was measured
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor-"))
    folder = Path(tempfile.mkdtemp(prefix="try-all-"))
    names = asked.names or [*PROGRAMS]
    print(f"recorder: {recorder.built()}", flush=True)

    tasks = [
        (name, variant, folder)
        for name in names
        for variant in variants([each for each in PROGRAMS[name][1].split() if each in COMPILE])
    ]
    with ThreadPoolExecutor(10) as pool:
        for line in pool.map(warm, tasks):
            print(line, flush=True)
    print(f"caches are filled after {time.monotonic() - began:.0f} s", flush=True)

    rows: list[dict[str, object]] = []
    left = [*names]
    prepared: dict[str, Bounded] = {}

    def prepare(name: str) -> Bounded:
        """A program's runner, whose first run imports what it needs and waits for its turn."""
        if name not in prepared:
            made = Bounded(job_of(name, folder), Path(tempfile.mkdtemp(dir=folder)), ahead=4)
            if not made.job.build:
                made.imports = True
                made.waiting.append(made._start(TryVariant(), recorder.RecordOptions(), wait=True))
            prepared[name] = made
        return prepared.pop(name)

    while left and time.monotonic() < until - 8:
        name = left.pop(0)
        start = time.monotonic()
        runs, switches = PROGRAMS[name]
        row: dict[str, object] = {"name": name, "switches": switches}

        def tell(line: str, name: str = name) -> None:
            print(f"[{time.monotonic() - began:5.0f} s] {name}: {line}", flush=True)

        try:
            run = prepare(name)
            run.until = min(until, start + asked.each)
            if left:
                prepared[left[0]] = prepare(left[0])
            trial, trace = try_program(
                run.job, switches.split(), out / "reports", runs=runs, runner=run, tell=tell
            )
            row |= {"trial": msgspec.to_builtins(trial), "folder": trace.parent.name}
        except (ToolkitError, OSError, KeyboardInterrupt) as error:
            row["error"] = f"{type(error).__name__}: {error}"
        row["seconds"] = round(time.monotonic() - start, 1)
        rows.append(row)
        text = json.dumps(rows, indent=1, ensure_ascii=False)
        (out / "try.json").write_text(text, encoding="utf-8")
        tell(f"done, {row['seconds']} s {row.get('error', '')}")
    for each in prepared.values():
        each.__exit__(None, None, None)
    if (out / "reports").is_dir():
        with tarfile.open(out / "reports.tar.xz", "w:xz", preset=1) as packed:
            packed.add(out / "reports", "reports")
        shutil.rmtree(out / "reports")
    print(f"not reached: {', '.join(left) or 'none'}; {time.monotonic() - began:.0f} s", flush=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
