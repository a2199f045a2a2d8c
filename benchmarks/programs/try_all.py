"""Try the switches that apply to small whole programs, for the table of docs/try.md.

python try_all.py OUT [--seconds S] [--runs N] [NAME ...]

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
from ncu_toolkit.gpu.trying import ProgramRunner, TryJob, TryRun, Variant, try_program, variants

HERE = Path(__file__).resolve().parent
PROGRAMS: dict[str, str] = {
    "torch_charlm_train": "tf32 bf16-autocast sdpa-cudnn",
    "torch_vit_finetune": "fused-optimizer bf16-autocast",
    "torch_augment_loader": "loader-workers pinned-copies",
    "torch_ddim_convnext": "channels-last cudnn-benchmark bf16-autocast",
    "gpt_train.py 10": "tf32 fused-optimizer compile",
    "torch_resnet_infer": "channels-last cudnn-benchmark",
    "torch_segment_empty_cache": "async-allocator expandable-segments",
    "jax_transformer_scan": "tf32",
    "triton_residual_norm": "triton-warps:4 triton-warps:16",
    "numba_energy_sum": "numba-block:128",
    "cuda_barrier_options": "fast-math max-registers:32",
    "cupy_kmeans": "tf32",
    "torch_llm_decode": "cuda-graphs compile",
    "torch_lm_head_loss": "compile",
    "torch_rl_cartpole": "cuda-graphs",
    "triton_mlp_surrogate": "triton-warps:8 triton-stages:4",
    "loader.py": "pinned-copies batch-size",
    "torch_recsys_ctr": "fused-optimizer pinned-copies",
    "torch_bert_pretrain": "compile sdpa-cudnn",
    "torch_kalman_tracks": "compile",
    "decode.py 40": "cuda-graphs",
    "cuda_nearest_points": "max-registers:64 fast-math",
}
#: Switches whose first run compiles.
COMPILE = ("compile", "cuda-graphs")


def job_of(name: str, folder: Path) -> TryJob:
    words = name.split()
    source = HERE / words[0]
    if not source.suffix:
        source = next(iter((HERE / "pairs" / name).glob("before.*")))
    if source.suffix == ".py":
        return TryJob((sys.executable, str(source), *words[1:]), timeout=75)
    made = str(folder / f"{name}.app")
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    build = (nvcc, "-O3", "-std=c++17", "-arch=native", "-o", made, str(source))
    return TryJob((made,), build, timeout=75)


class Bounded(ProgramRunner):
    """Ends the rounds when the time is over, as Ctrl-C does."""

    until = float("inf")

    def __call__(self, variant: Variant, following: Sequence[Variant] = ()) -> TryRun:
        if time.monotonic() > self.until:
            raise KeyboardInterrupt
        return super().__call__(variant, following)


def warm(name: str, folder: Path) -> float:
    """Fill compilers' caches by one run of each switch that compiles."""
    began = time.monotonic()
    for variant in variants([each for each in PROGRAMS[name].split() if each in COMPILE]):
        place = Path(tempfile.mkdtemp(dir=folder))
        with ProgramRunner(job_of(name, folder), place, ahead=0) as run:
            run.sampled = False
            try:
                run(variant)
            except (ToolkitError, OSError) as error:
                print(f"warm {name}: {error}", flush=True)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_LEFT", 350)))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--each", type=float, default=40.0, help="seconds of a program at most")
    asked = parser.parse_args()
    began, out = time.monotonic(), asked.out
    until = began + asked.seconds - 12  # to pack what was measured
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor-"))
    folder = Path(tempfile.mkdtemp(prefix="try-all-"))
    names = asked.names or [*PROGRAMS]
    print(f"recorder: {recorder.built()}", flush=True)

    compiled = [name for name in names if set(PROGRAMS[name].split()) & set(COMPILE)]
    with ThreadPoolExecutor(10) as pool:
        for name, took in zip(
            compiled, pool.map(lambda each: warm(each, folder), compiled), strict=True
        ):
            print(f"warm {name}: {took:.0f} s", flush=True)
    print(f"caches are filled after {time.monotonic() - began:.0f} s", flush=True)

    rows: list[dict[str, object]] = []
    left = [*names]
    while left and time.monotonic() < until - 8:
        name = left.pop(0)
        start = time.monotonic()
        fair = max(15.0, 1.8 * (until - start) / (len(left) + 1))
        row: dict[str, object] = {"name": name, "switches": PROGRAMS[name]}

        def tell(line: str, name: str = name) -> None:
            print(f"[{time.monotonic() - began:5.0f} s] {name}: {line}", flush=True)

        try:
            run = Bounded(job_of(name, folder), Path(tempfile.mkdtemp(dir=folder)), ahead=4)
            run.until = min(until, start + min(asked.each, fair))
            trial, trace = try_program(
                run.job,
                PROGRAMS[name].split(),
                out / "reports",
                runs=asked.runs,
                runner=run,
                tell=tell,
            )
            row |= {"trial": msgspec.to_builtins(trial), "folder": trace.parent.name}
        except (ToolkitError, OSError, KeyboardInterrupt) as error:
            row["error"] = f"{type(error).__name__}: {error}"
        row["seconds"] = round(time.monotonic() - start, 1)
        rows.append(row)
        text = json.dumps(rows, indent=1, ensure_ascii=False)
        (out / "try.json").write_text(text, encoding="utf-8")
        tell(f"done, {row['seconds']} s {row.get('error', '')}")
    if (out / "reports").is_dir():
        with tarfile.open(out / "reports.tar.xz", "w:xz", preset=1) as packed:
            packed.add(out / "reports", "reports")
        shutil.rmtree(out / "reports")
    print(f"not reached: {', '.join(left) or 'none'}; {time.monotonic() - began:.0f} s", flush=True)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
