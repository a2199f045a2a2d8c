"""Try the switches that apply to small whole programs, for the tables of docs/try.md.

python try_all.py OUT [--seconds S] [NAME ...]

Writes OUT/try.json, the trial of each program, after each program, and OUT/reports.tar.xz, their
traces. `python docs/switch_tables.py OUT/try.json` takes it into the documents.

Programs hold a GPU one at a time, those that matter most first, until S seconds are over; with several
GPUs, each has programs and its own cores. Before that all run at once, for what needs to be done
once: compiled code, builds, and the modules that a program will import. Later runs import these before
their turn, on cores that the timed one does not use, so that a GPU waits for no import."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import msgspec

from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.program.model import Trace
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.recording.trying import (
    ProgramRunner,
    TryJob,
    TryRun,
    TryVariant,
    _Started,
    try_program,
    variants,
)
from ncu_toolkit.program.switches import switches

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
import lanes  # noqa: E402

RUNS = 5
#: Runs that import ahead of the one that has the GPU, where there are cores for them.
AHEAD = 4
#: Seconds to pack what was measured.
PACK = 12
#: By name, those first whose switches were not timed yet: the program's words, and switches that apply, or might; none for what `--all` takes. A name
#: without a file is a pair's; NAME=VALUE changes a constant of it, and words with a dash go to nvcc.
PROGRAMS: dict[str, tuple[str, str]] = {
    "cupy_heat": ("cupy_heat.py 60", "tf32"),
    "numba_nbody_tiles": ("", "numba-block:256"),
    "triton_norm": ("triton_norm.py 40", "triton-warps:8 triton-warps:16"),
    "cuda_stencil_seven": ("", "fast-math max-registers:64"),
    "decode": ("decode.py 24", "cuda-graphs"),
    "loader": ("loader.py 16 0", "loader-workers pinned-copies batch-size"),
    "torch_segment_empty_cache": (
        "WARMUP=2 BLOCKS=2 STEPS_PER_BLOCK=4", "async-allocator expandable-segments",
    ),
    "torch_gpt_bf16": ("LAYERS=2 BLOCKS=2", "sdpa-cudnn"),
    "numba_energy_sum": ("", "numba-block:128 numba-block:512"),
    "jax_mlp": ("jax_mlp.py 30", "tf32"),
    "cuda_hadamard_pages": ("", "max-registers:32 fast-math"),
    "triton_image_histogram": ("BLOCKS=2", "triton-warps:8 triton-stages:4"),
    "cuda_ensemble_lorenz": ("", "fast-math"),
    "cupy_event_sort": ("", "tf32"),
    "numba_fold": ("numba_fold.py 20", "numba-block:512"),
    "torch_bert_pretrain": ("BLOCKS=2", "compile"),
    "convnet": ("convnet.py 12", "channels-last cudnn-benchmark bf16-autocast"),
    "gpt_train": ("gpt_train.py 10", ""),
    "torch_charlm_train": ("", "tf32 bf16-autocast fused-optimizer optimizer-foreach"),
    "torch_ddim_convnext": ("", "channels-last cudnn-benchmark tf32"),
    "cuda_barrier_options": ("", "fast-math max-registers:32"),
    "torch_resnet_infer": ("", "channels-last cudnn-benchmark"),
    "torch_kalman_tracks": ("BLOCKS=3", "compile"),
    "cuda_spin_chain": ("-G", ""),
}  # fmt: skip
#: What is compiled when all run at once: these switches, and those that are likely to stay together.
COMPILED = ("compile", "cuda-graphs")
TOGETHER = {"gpt_train": "tf32 fused-optimizer compile"}


def job_of(name: str, folder: Path) -> TryJob:
    words = PROGRAMS[name][0].split()
    source = HERE / words.pop(0) if words and Path(words[0]).suffix else None
    if source is None:
        source = next(iter((HERE / "pairs" / name).glob("before.*")))
    if source.suffix == ".py":
        changed = [str(HERE / "short.py")] if any("=" in word for word in words) else []
        return TryJob((sys.executable, *changed, str(source), *words), timeout=60)
    made = str(folder / f"{name}.app")
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    build = (nvcc, "-O3", "-std=c++17", "-arch=native", *words, "-o", made, str(source))
    return TryJob((made,), build, timeout=60)


class Bounded(ProgramRunner):
    """Runs on one GPU, and ends the rounds when the time is over, as Ctrl-C does. A run that waits is
    kept off the cores of the one that is timed, and so is this thread, which reads recordings; it gets
    those cores when its turn comes (see Lane.split)."""

    until = float("inf")
    gpu = ""
    timed: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()

    def take(self, lane: lanes.Lane) -> None:
        """Run in a lane from now on."""
        self.gpu = lane.card
        self.timed, self.beside = lane.split()
        self.ahead = self.ahead if self.beside else 0

    def recorded(
        self,
        variant: TryVariant,
        asked: recorder.RecordOptions,
        following: Sequence[TryVariant] = (),
    ) -> tuple[TryRun, Trace | None]:
        if time.monotonic() > self.until or lanes.STOPPED.is_set():
            raise KeyboardInterrupt
        found = super().recorded(variant, asked, following)
        if found[0].problem and lanes.STOPPED.is_set():
            raise KeyboardInterrupt  # it was ended, and did not fail
        return found

    def _start(self, variant: TryVariant, asked: recorder.RecordOptions, *, wait: bool) -> _Started:
        here = {"CUDA_VISIBLE_DEVICES": self.gpu}
        lanes.pin(self.beside if wait else self.timed)
        try:
            return super()._start(variant, replace(asked, environment=here), wait=wait)
        finally:
            lanes.pin(self.beside)

    def _let(self, started: _Started) -> None:
        lanes.move(started.process.pid, self.timed)
        super()._let(started)


class Programs:
    """The programs that are left for `count` GPUs, and what is known of each; `rows` is what is
    written."""

    def __init__(
        self, names: list[str], out: Path, folder: Path, seconds: float, count: int
    ) -> None:
        self.began = time.monotonic()
        self.until = self.began + seconds - PACK
        self.left, self.out, self.folder = names, out, folder
        self.runners: dict[str, Bounded] = {}
        self.rows: list[dict[str, object]] = []
        self.lock, self.all_have = threading.Lock(), threading.Barrier(count)

    def tell(self, line: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {line}", flush=True)

    def runner(self, name: str, ahead: int = 0) -> Bounded:
        return Bounded(job_of(name, self.folder), Path(tempfile.mkdtemp(dir=self.folder)), ahead)

    def warm(self, task: tuple[str, TryVariant, str]) -> None:
        """One run of a program beside others, by which its real runs are quicker."""
        if lanes.STOPPED.is_set():
            return
        name, variant, gpu = task
        began, kept = time.monotonic(), self.runners[name]
        run = self.runner(name)
        run.sampled, run.gpu = False, gpu
        try:
            if run.job.build:
                run._command(variant)
                message = "built"
            else:
                found = run(variant)
                message = found.problem or f"step of {found.us} us"
        except (ToolkitError, OSError, KeyboardInterrupt) as error:
            message = str(error)
        with self.lock:
            kept.built.update(run.built)
            kept.parts = max(kept.parts, run.parts, key=len)
        self.tell(
            f"{name} with {variant.label or 'nothing'}: {time.monotonic() - began:.0f} s, {message}"
        )

    def warm_all(self, among: Sequence[lanes.Lane]) -> None:
        tasks, cycle = [], itertools.cycle(lane.card for lane in among)
        for name in self.left:
            self.runners[name] = self.runner(name, AHEAD)
            built = bool(self.runners[name].job.build)
            words = PROGRAMS[name][1].split()
            if not words:
                words = (
                    [each.id for each in switches().values() if each.build]
                    if built
                    else ["compile"]
                )
            chosen = [
                each
                for each in variants(words, built=built)
                if built or any(switch.id in COMPILED for switch, _ in each.on)
            ]
            if name in TOGETHER:
                both = variants(TOGETHER[name].split())
                chosen.append(TryVariant(tuple(pair for each in both for pair in each.on)))
            tasks += [(name, each, next(cycle)) for each in [*chosen, TryVariant()]]
        tasks.sort(key=lambda task: not task[1].on)  # what compiles takes longest
        with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)) - 2)) as pool:
            list(pool.map(self.warm, tasks))
        self.tell("all ran once")

    def take(self, lane: lanes.Lane) -> tuple[str, Bounded] | None:
        """The next program for a GPU, whose first runs import what they need and wait for their turn."""
        with self.lock:
            if not self.left or self.over(8):
                return None
            name = self.left.pop(0)
        run = self.runners.pop(name)
        run.take(lane)
        run.sampled = run.sampled and lane.number == 0  # which is sampled
        if run.ahead and not run.job.build:
            run.imports = True
            first = variants(PROGRAMS[name][1].split())[:1]
            soon = [(TryVariant(), recorder.RecordOptions())]
            soon += [(each, recorder.RecordOptions(calls=())) for each in (TryVariant(), *first)]
            run.waiting += [run._start(each, how, wait=True) for each, how in soon]
        return name, run

    def over(self, seconds: float) -> bool:
        """Whether fewer seconds are left."""
        return lanes.STOPPED.is_set() or time.monotonic() > self.until - seconds

    def lane(self, lane: lanes.Lane, each: float) -> None:
        """Programs one after another on one GPU."""
        lanes.pin(lane.cores)
        taken = self.take(lane)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.all_have.wait(10)  # so that each GPU has a program before one takes its second
        while taken is not None:
            following = self.take(lane)
            self.one(*taken, each)
            taken = following

    def one(self, name: str, run: Bounded, each: float) -> None:
        start = time.monotonic()
        if self.over(4):
            run.__exit__()
            with self.lock:
                self.left.append(name)
            return
        row: dict[str, object] = {"name": name, "switches": PROGRAMS[name][1] or "--all"}
        run.until = min(self.until, start + each)
        asked, at = PROGRAMS[name][1].split(), self.out / "reports" / name
        try:
            trial, _ = try_program(
                run.job, asked, at, runs=RUNS, runner=run,
                tell=lambda line: self.tell(f"{name}: {line}"),
            )  # fmt: skip
            row["trial"] = msgspec.to_builtins(msgspec.structs.replace(trial, program=name))
        except (ToolkitError, OSError, KeyboardInterrupt) as error:
            row["error"] = f"{type(error).__name__}: {error}"
        row["seconds"] = round(time.monotonic() - start, 1)
        with self.lock:
            self.rows.append(row)
            text = json.dumps(self.rows, indent=1, ensure_ascii=False)
            (self.out / "try.json").write_text(text, encoding="utf-8")
        self.tell(f"{name}: done, {row['seconds']} s {row.get('error', '')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=float(os.environ.get("SECONDS_LEFT", 470)))
    parser.add_argument("--each", type=float, default=120.0, help="seconds of a program at most")
    asked = parser.parse_intermixed_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="inductor-"))
    folder = Path(tempfile.mkdtemp(prefix="try-all-"))
    among = lanes.lanes()
    names = asked.names or [*PROGRAMS]
    programs = Programs(names, asked.out, folder, asked.seconds, len(among))
    print(f"recorder: {recorder.built()}", flush=True)
    with lanes.limited(asked.seconds - PACK):
        try:
            programs.warm_all(among)
            with ThreadPoolExecutor(len(among)) as pool:
                list(pool.map(lambda lane: programs.lane(lane, asked.each), among))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if (asked.out / "reports").is_dir():
            with tarfile.open(asked.out / "reports.tar.xz", "w:xz", preset=1) as packed:
                packed.add(asked.out / "reports", "reports")
            shutil.rmtree(asked.out / "reports")
        programs.tell(f"not reached: {', '.join(programs.left) or 'none'}")


if __name__ == "__main__":
    main()
