"""python -m benchmarks.probe: how often `probe` tells the regime that counters tell.

    python -m benchmarks.probe measure --out FILE.jsonl [--set pathology|field|ladders] [--seconds S]
    python -m benchmarks.probe launch [--seconds S]
    python -m benchmarks.probe fit FILE.jsonl... [--program FILE.json] [--data docs/data/probe.json]
    python -m benchmarks.probe table [--data docs/data/probe.json] [--page docs/probe.md]

`measure` needs a GPU: it puts every kernel that has a recorded verdict under pressure. `launch` is a
program that launches the pathology kernels over and over, for `ncu-toolkit probe --experiments
--top 80 --format json -o FILE.json -- python -m benchmarks.probe launch`. `fit` takes
the regime that the recorded counters tell as the truth, fits the thresholds on the kernels of one
half by a hash of their names, and writes responses and regimes of all of them. `table` writes the
tables of docs/probe.md from that.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import itertools
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from benchmarks import field
from ncu_toolkit.base.model import Device
from ncu_toolkit.base.model.profile import Launch, Profile
from ncu_toolkit.base.model.trace import KINDS, KernelTrace
from ncu_toolkit.kernel.diagnosis import regime

ROOT = Path(__file__).parents[1]
DATA, PAGE = ROOT / "docs" / "data" / "probe.json", ROOT / "docs" / "probe.md"
SETS = ("pathology", "field", "ladders")
#: Languages of field pairs that launch on the default stream, and pairs that one process measures.
LANGUAGES = ("cuda", "public", "cupy", "triton", "pytorch", "numba", "warp")
_SHARE = 2
#: The GPU of the recordings, and so of the measurements.
GPU = "NVIDIA H200"
#: GPU seconds that the experiments on one kernel may take.
SECONDS = 0.5
#: Those that launch on their own streams: measured in a program (`launch`).
APART = ("jax",)
#: Pairs that were measured after the rule had its form: they took no part in choosing or fitting it.
LATER = (
    "cupy_filter_taps", "jax_recurrence_scan", "numba_particles_by_kind", "torch_running_sum_tall",
    "triton_matmul_spilled_tile", "triton_softmax_tiny_rows", "warp_blur_columns",
    "warp_pair_triangle", "warp_random_walk", "public_",
)  # fmt: skip
#: Ladders that were measured before, likewise.
LADDERS = ("transpose", "reduction", "elementwise", "gemm_fp32")
HALVES = ("fitted", "held out", "new")
#: Part by which the time of a field's program may differ from its recorded launch; a program that
#: launches more than one kernel takes longer.
OTHER_TIME = 0.4
#: Put before a CUDA C++ program that becomes a library: where it would launch its kernel, it calls
#: back, and `enqueue` launches it. Nothing else is exported, so that the linker leaves out what
#: only other parts of a fetched file need.
_HOOK = """\
#pragma GCC visibility push(default)
extern "C" void enqueue();
extern "C" void to_call(void (*function)());
int main();
#pragma GCC visibility pop
#include <functional>
#include "field.cuh"
namespace field {
static std::function<void()> enqueue_once;
static void (*call_back)();
template <class R, class L>
void run_here(R reset, L launch) {
    enqueue_once = [&] { reset(); launch(); };
    call_back();
    CHECK(cudaDeviceSynchronize());
}
template <class L>
void run_here(L launch) { run_here([] {}, launch); }
}  // namespace field
void enqueue() { field::enqueue_once(); }
void to_call(void (*function)()) { field::call_back = function; }
#define run run_here
"""
#: Sizes of the ladders' kernels: those with a recorded profile.
SIZES = ("1024", "4096", "2048", "16384", "4194304", "268435456")
#: Longest kernel of a ladder that is measured, in microseconds.
LONGEST_US = 30_000.0
CHOICES: Mapping[str, tuple[float, ...]] = {
    "dram": (0.45, 0.5, 0.55, 0.6, 0.65),
    "l2": (0.2, 0.3, 0.4, 0.5, 0.6),
    "l2_used": (0.05, 0.1, 0.15, 0.2),
    "clogged": (0.45, 0.5, 0.55, 0.6, 1.1),
    "local": (0.05, 0.1, 0.2, 0.3),
    "on_chip": (0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65),
    "constant": (0.4, 0.5, 0.6, 0.7, 0.8),
    "issue": (0.3, 0.35, 0.4, 0.45, 0.5, 0.55),
    "arithmetic": (0.3, 0.35, 0.4, 0.45),
    "special": (0.3, 0.4, 0.5, 0.7),
    "integer": (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5),
    "idle": (0.15, 0.2, 0.25, 0.3, 0.35),
    "follows": (0.05, 0.1, 0.15, 0.2, 0.3),
    "half": (0.2, 0.3, 0.4, 0.5),
    "felt": (0.1, 0.15, 0.2, 0.3),
    "blind": (0.0, 0.03, 0.05, 0.1, 0.2),
}
#: Those that count where it is not known what the pressure lost.
BY_SLOPES: Mapping[str, tuple[float, ...]] = {
    "dram_slope": (0.2, 0.25, 0.3, 0.35, 0.4, 0.5),
    "memory": (0.7, 0.9, 1.0, 1.1, 1.3),
    "spare": (0.3, 0.4, 0.5, 0.6, 0.8),
    "shared": (0.1, 0.12, 0.15, 0.2, 0.25),
}


def half(name: str) -> str:
    """ "fitted" or "held out", by the kernel's name without its size. Another hash than that of the
    field's halves."""
    return "fitted" if hashlib.sha256(f"probe {name}".encode()).digest()[0] % 2 else "held out"


class _Program:
    """A field program's variant, as the experiments see a rung."""

    launch_count, launched = 1, ()

    def __init__(self, name: str, run: Any) -> None:
        self.rung, self.run = SimpleNamespace(name=name), run

    @contextlib.contextmanager
    def padded(self) -> Iterator[bool]:
        yield False


class _Log:
    """The notes of `probe.rungs`, on standard output."""

    def note(self, text: str) -> None:
        print(text, flush=True)

    def stage(self, title: str, total: int) -> None: ...

    doing = step = lambda self, label: None


def measure(out: Path, which: str, seconds: float) -> None:
    """Put the kernels of a set under pressure; a line of JSON each, none begun after `seconds`."""
    from ncu_toolkit.guests.probe import probe

    if which == "field":
        _measure_field(out, seconds)
        return
    deadline = time.monotonic() + seconds
    for case, kernel, _ in probe.rungs(_cases(which), _Log(), SECONDS):
        _write(out, f"{case.family}/{case.rung}/{case.size}", kernel)
        if time.monotonic() > deadline:
            print("out of time", flush=True)
            return


def _write(out: Path, name: str, kernel: KernelTrace) -> None:
    """Add what was measured of a kernel to a file."""
    row = {
        "name": name,
        "conditions": {kind: [round(t, 2) for t in us] for kind, us in kernel.conditions.items()},
        "kept": {kind: round(part, 4) for kind, part in regime.kept(kernel).items()},
        "missing": kernel.missing,
    }
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    runs = min(len(us) for us in kernel.conditions.values())
    print(f"{name} {kernel.total_us:.1f} us, {runs} runs, {kernel.missing}", flush=True)


def _measure_field(out: Path, seconds: float) -> None:
    """The field's pairs, in a process for every few of them: all load and compile side by side, then
    they take turns on the GPU ($FIELD_LOCK names the file that they lock)."""
    import multiprocessing

    names = sorted(_field_names(), key=field.language)
    shares = [
        own[at : at + _SHARE]
        for _, group in itertools.groupby(names, key=field.language)
        for own in [list(group)]
        for at in range(0, len(own), _SHARE)
    ]
    several, deadline = multiprocessing.get_context("spawn"), time.time() + seconds
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        os.environ.setdefault("FIELD_LOCK", str(Path(folder) / "lock"))
        ready = several.Barrier(len(shares))
        children = [
            several.Process(target=_share, args=(share, out, Path(folder), ready, deadline))
            for share in shares
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(max(1.0, deadline + 10 - time.time()))
            child.kill()


def _share(names: list[str], out: Path, folder: Path, ready: Any, deadline: float) -> None:
    """Make some pairs ready, wait until all processes have, and measure them."""
    from benchmarks.field import running
    from ncu_toolkit.guests.probe import probe

    works, bench = [], None
    for name in names:
        try:
            bench = bench or probe.Bench(running.SPIN_CYCLES)
            pair = field.find(name)
            if isinstance(pair, field.ExternalPair):
                made = {
                    variant: _library(pair, variant, folder / f"{name}-{variant}.so")
                    for variant in field.VARIANTS
                }
            else:
                made = {
                    variant: lambda use, run=work.run: use(run)
                    for variant, work in running.check(pair).works.items()
                }
            works += [(f"field/{name}/{variant}", work) for variant, work in made.items()]
        except Exception as error:
            print(f"FAILED field/{name}: {type(error).__name__}: {str(error)[:150]}", flush=True)
    print(f"ready: {', '.join(names)}", flush=True)
    with contextlib.suppress(threading.BrokenBarrierError):
        ready.wait(max(1.0, (deadline - time.time()) / 2))
    if bench is None:
        return
    with running._alone():  # The speeds that it took when it was made are of a busy GPU.
        bench.alone = bench.pressure.speeds(bench.kinds)
    for label, work in works:
        with running._alone():
            if time.time() > deadline:
                print(f"out of time at {label}", flush=True)
                return

            def measured(run: Any, label: str = label) -> None:
                program: Any = _Program(label, run)
                try:
                    _write(out, label, bench.measure(program, "flushed", SECONDS))
                except Exception as error:
                    print(f"FAILED {label}: {type(error).__name__}: {str(error)[:150]}", flush=True)

            work(measured)


def _library(pair: field.ExternalPair, variant: str, path: Path) -> Any:
    """A CUDA C++ program as a library of this process, whose `main` calls back where it launches
    its kernel: pressure has to run in the process of the kernel."""
    from benchmarks.field import running

    (words,) = pair.build[variant]
    built = running._words(pair, words, path.parent)
    built[built.index("-o") + 1] = str(path)
    hook = path.with_suffix(".cuh")
    hook.write_text(_HOOK, encoding="utf-8")
    built += [f"-I{field.FOLDER / 'pairs' / 'cuda'}", "-include", str(hook)]
    built += ["-shared", "-Xcompiler", "-fPIC", "-Xcompiler", "-fvisibility=hidden"]
    done = subprocess.run(built, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    library = ctypes.CDLL(str(path))

    def within(use: Any) -> None:
        called = ctypes.CFUNCTYPE(None)(lambda: use(library.enqueue))
        library.to_call(called)
        library.main()

    return within


def launch_all(which: str, seconds: float) -> None:
    """Launch each pathology kernel, or each of the field's that `measure` cannot, for so long, as a
    program would."""
    from ncu_toolkit.kernel.gpu import cuda

    device, cp = cuda.device(), cuda.cupy()
    for name, made in _apart() if which == "field" else _pathology(device):
        try:
            runnable = made()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for _ in range(10):
                    output = runnable.run()
                getattr(output, "block_until_ready", cp.cuda.Device().synchronize)()
            if which != "field":
                print(f"{name} right, worst {max(each.worst for each in runnable.verify()):.2g}")
        except Exception as error:
            print(f"FAILED {name}: {type(error).__name__}: {str(error)[:150]}")
        sys.stdout.flush()


def _apart() -> Iterator[tuple[str, Any]]:
    from benchmarks.field import running

    for name in _field_names(APART):
        pair = field.find(name)
        assert isinstance(pair, field.Pair)
        for variant, work in running.check(pair).works.items():
            yield f"field/{name}/{variant}", lambda work=work: work


def _cases(which: str) -> tuple[Any, ...]:
    from ncu_toolkit.kernel.runs import store

    found = []
    for folder in store.recordings():
        run = store.load_manifest(folder)
        times = {
            (t.rung, t.size): statistics.median(t.times_us) for t in store.load_timings(folder)
        }
        found += [
            case
            for case in run.cases
            if (case.family == "pathology") == (which == "pathology")
            and case.state == "profiled"
            and case.size in (*SIZES, "16777216")
            and times.get((case.rung, case.size), 0.0) < LONGEST_US
        ]
    order = (*LADDERS, "gemm_tensor")
    return tuple(
        sorted(
            found,
            key=lambda c: (order.index(c.family) if c.family in order else 9, -len(c.size), c.size),
        )
    )


def _pathology(device: Device) -> Iterator[tuple[str, Any]]:
    from ncu_toolkit.kernel.gpu import launch, selection

    for group in selection.groups_of(_cases("pathology")):
        first = group[0]
        space = launch.Workspace(selection.rung_of(first), selection.size_of(first), first.dtype)
        for case in group:
            rung = selection.rung_of(case)
            if rung.unsupported_on(device.cc):
                continue

            def made(case: Any = case, rung: Any = rung, space: Any = space) -> Any:
                runnable = launch.Runnable(rung, space, case.parameters)
                runnable.verify()
                return runnable

            yield f"{case.family}/{case.rung}/{case.size}", made


def _recorded(name: str, variant: str) -> Path:
    """The report of a variant; of several GPUs the first."""
    return min(field.RECORDINGS.glob(f"*/{name}-{variant}.ncu-rep*"))


def _field_names(languages: Sequence[str] = LANGUAGES) -> list[str]:
    recorded = {path.name.split("-before")[0] for path in field.RECORDINGS.glob("*/*-before*")}
    return [
        name
        for name in field.names()
        if field.half(name) == "development"
        and name in recorded
        and field.language(name) in languages
    ]


@dataclass(frozen=True)
class _Truth:
    """The longest recorded launch of a kernel, its regime by counters, its verdict, and the part of
    its time that its traffic would keep device memory busy."""

    profile: Profile
    regime: regime.Regime
    verdict: str
    dram: float


def truths(names: Iterable[str]) -> dict[str, _Truth]:
    """What the recordings tell of kernels, as far as there are any; by "family/rung/size" or
    "field/pair/variant"."""
    from ncu_toolkit.kernel.analysis.analyze import Options, analyze, judge
    from ncu_toolkit.kernel.runs import store

    wanted, best = dict.fromkeys(names), dict[str, tuple[float, Profile]]()
    for folder in store.recordings():
        for profile in store.load_run(folder, live=False).profiles:
            about = profile.context
            key = f"{about.family}/{about.rung}/{about.size}" if about is not None else ""
            weight = (profile.duration_us or 0.0) * (about.repeat if about is not None else 1)
            if key in wanted and weight >= best.get(key, (0.0,))[0]:
                best[key] = (weight, profile)
    judged = {
        key: (profile, judge(profile, key, Options()).diagnosis)
        for key, (_, profile) in best.items()
    }
    for name in wanted:
        if name.startswith("field/"):
            report = _recorded(*name.split("/")[1:])
            (file,) = analyze([report], Options(profiles=True), jobs=1).files
            first = file.launches[0]
            assert first.profile is not None
            judged[name] = (first.profile, first.diagnosis)
    return {
        key: _Truth(
            profile,
            regime.of_counters(profile, diagnosis),
            diagnosis.primary.bottleneck,
            diagnosis.bounds.get("dram", 0.0) / (profile.duration_us or 1.0),
        )
        for key, (profile, diagnosis) in judged.items()
    }


@dataclass(frozen=True)
class _Case:
    """A kernel that was put under pressure, and what counters say of it."""

    name: str
    kernel: KernelTrace
    truth: _Truth

    @property
    def half(self) -> str:
        parts = self.name.replace("program/", "pathology/").split("/")
        if _set(self.name) == "ladders":
            return "held out" if parts[0] in LADDERS else "new"
        if parts[0] == "field" and parts[1].startswith(LATER):
            return "new"
        return half(parts[1] if parts[0] == "field" else "/".join(parts[:2]))

    def row(self, device: Device, at: regime.Thresholds) -> dict[str, Any]:
        reported, seen = regime.regime_of(self.kernel, device, at), regime.look(self.kernel, device)
        answers = regime.responses(self.kernel.conditions)
        return {
            "name": self.name, "half": self.half, "verdict": self.truth.verdict,
            "counters": self.truth.regime, "first": reported and reported.first,
            "second": reported and reported.second, "time_us": round(self.kernel.median_us, 2),
            "unused": round(seen.unused, 3), "dram": round(self.truth.dram, 3),
            "follows": round(seen.follows, 2),
            "taken": {kind: round(seen.taken(kind), 3) for kind in seen.kept if KINDS[kind].resource},
            "kept": {kind: round(part, 5) for kind, part in seen.kept.items()},
            "responses": {kind: [round(a.slope, 5), round(a.spread, 5)] for kind, a in answers.items()},
        }  # fmt: skip


def fit(files: Sequence[Path], programs: Sequence[Path], data: Path) -> None:
    """Fit the thresholds on one half and write what was measured, predicted and recorded."""
    lines = itertools.chain.from_iterable(path.read_text().splitlines() for path in files)
    rows, cases = {row["name"]: row for row in map(json.loads, lines)}, []
    device = Device(GPU, (9, 0), sm_count=132)
    for name, truth in truths(rows).items():
        row = rows[name]
        kernel = regime.traced(truth.profile, row["conditions"], row["kept"])
        recorded = truth.profile.duration_us or 1.0
        if name.startswith("field") and abs(kernel.median_us / recorded - 1) > OTHER_TIME:
            print(f"left out: {name} takes {kernel.median_us:.1f} us, its launch {recorded:.1f} us")
            continue
        cases.append(_Case(name, kernel, truth))
    inside = [case for program in programs for case in _of_program(program)]
    every = [*cases, *inside]
    at = _fitted(every, device, CHOICES, regime.FITTED)
    bare = [replace(case, kernel=replace(case.kernel, rates={})) for case in every]
    at = _fitted(bare, device, BY_SLOPES, at)
    written = [case.row(device, at) for case in every]
    about = {"gpu": GPU, "thresholds": asdict(at), "kernels": written}
    text = json.dumps(about, separators=(",", ":")).replace('{"name"', '\n{"name"')
    data.write_text(text + "\n", encoding="utf-8")


def _of_program(path: Path) -> list[_Case]:
    """The kernels that `launch` launched, as `probe` saw them from inside that program."""
    document = json.loads(path.read_text(encoding="utf-8"))
    names = [f"{case.family}/{case.rung}/{case.size}" for case in _cases("pathology")]
    names += [f"field/{name}/{v}" for name in _field_names(APART) for v in field.VARIANTS]
    known = {}
    for key, truth in truths(names).items():
        launch = truth.profile.launch
        known[launch.function, launch.grid, launch.block] = key, truth
    found = []
    for row in document["kernels"]:
        shape = tuple(row["grid"]), tuple(row["block"])
        if (row["kernel"], *shape) not in known:
            continue
        key, truth = known.pop((row["kernel"], *shape))
        launch = Launch(
            row["kernel"], row["kernel"], *shape, row["registers"], row["shared_static"],
            row["shared_dynamic"],
        )  # fmt: skip
        conditions = {name: tuple(times) for name, times in row["conditions_us"].items()}
        kernel = KernelTrace(
            launch, row["launches"], row["total_us"], row["median_us"], row["low_us"],
            row["high_us"], conditions, row["kept"],
        )  # fmt: skip
        found.append(_Case(key.replace("pathology/", "program/"), kernel, truth))
    return found


def _fitted(
    cases: Sequence[_Case],
    device: Device,
    choices: Mapping[str, tuple[float, ...]],
    start: regime.Thresholds,
) -> regime.Thresholds:
    """`start`, with some thresholds fitted on one half of the cases."""
    own = [
        (case.truth.regime, regime.look(case.kernel, device), _set(case.name) == "pathology")
        for case in cases
        if case.half == "fitted" and regime.regime_of(case.kernel, device) is not None
    ]
    best = _search(own, choices, start)
    print("thresholds", asdict(best))
    return best


def _search(
    own: Sequence[tuple[str, regime.Seen, bool]],
    choices: Mapping[str, tuple[float, ...]],
    start: regime.Thresholds,
) -> regime.Thresholds:
    """`start` with the thresholds with most right on these kernels: coordinate descent from many
    starts; of equal ones those with most pathology kernels (their causes are known), then those
    that are furthest from saying something else."""

    def right(at: regime.Thresholds) -> tuple[int, int, float]:
        """How many are right, how many of the pathology, and summed, how far the right regime is
        above all others, no more than from where on a second one is not named."""
        total, sure, margin = 0, 0, 0.0
        for truth, seen, pathology in own:
            made = regime.scores(seen, at)
            ahead = made.pop(cast(regime.Regime, truth)) / max(1e-9, *made.values())
            total += ahead >= 1
            sure += pathology and ahead >= 1
            margin += min(max(ahead, at.near), 1 / at.near)
        return total, sure, round(margin, 6)

    shuffler, best = random.Random(1), (right(start), start)
    for number in range(40):
        at = replace(start, **{name: shuffler.choice(values) for name, values in choices.items()})
        if not number:
            at = start
        score, moved = right(at), True
        while moved:
            moved = False
            for name in shuffler.sample(list(choices), len(choices)):
                for value in choices[name]:
                    other = replace(at, **{name: value})
                    if (new := right(other)) > score:
                        at, score, moved = other, new, True
        best = max(best, (score, at), key=lambda each: each[0])
    print(f"right on the fitted half: {best[0][0]} of {len(own)}")
    return best[1]


def tables(data: Path) -> str:
    """The tables of docs/probe.md."""
    found = json.loads(data.read_text(encoding="utf-8"))
    kernels = found["kernels"]
    lines = [
        "| kernels | half | right | right or one of the two | of |",
        "|---|---|---:|---:|---:|",
    ]
    for which in ("pathology", "program", "field", "ladders"):
        for part in HALVES:
            own = [k for k in kernels if k["half"] == part and _set(k["name"]) == which]
            if own:
                right = sum(k["first"] == k["counters"] for k in own)
                either = sum(k["counters"] in (k["first"], k["second"]) for k in own)
                lines.append(
                    f"| {which} | {part} | {right} ({right / len(own):.0%}) | {either} ({either / len(own):.0%}) | {len(own)} |"
                )
    for part in HALVES:
        own = [k for k in kernels if k["half"] == part and _set(k["name"]) != "program"]
        if not own:
            continue
        counts = Counter((k["counters"], k["first"]) for k in own)
        lines += ["", f"Counters (rows) against pressure (columns), {part}:", ""]
        lines.append("| | " + " | ".join(regime.REGIMES) + " |")
        lines.append("|---|" + "---:|" * len(regime.REGIMES))
        for name in regime.REGIMES:
            cells = " | ".join(str(counts[name, column] or "") for column in regime.REGIMES)
            lines.append(f"| **{name}** | {cells} |")
    apart_by = sorted(abs(k["taken"]["dram"] - k["dram"]) for k in kernels if "dram" in k["taken"])
    lines += [
        "",
        f"Part of the DRAM's rate that a kernel takes, by pressure and by counters, {len(apart_by)} kernels: the two "
        f"differ by {apart_by[len(apart_by) // 2]:.2f} in the median, and by more than {apart_by[-len(apart_by) // 10]:.2f} for one in ten.",
    ]
    wrong = [
        k
        for k in kernels
        if k["first"] != k["counters"] and _set(k["name"]) in ("pathology", "field")
    ]
    lines += ["", "Where the two differ (pathology and field):", ""]
    lines += [
        "| kernel | verdict from counters | regime | pressure | takes of DRAM | of shared memory | of FP32 | L2 slope | follows | half |",
        "|---|---|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for k in wrong:
        either = " or ".join(filter(None, (k["first"], k["second"])))
        taken = " | ".join(
            f"{k['taken'][kind]:.2f}" if kind in k["taken"] else ""
            for kind in ("dram", "shared", "fp32")
        )
        short = k["name"].removeprefix("pathology/").removesuffix("/16777216")
        lines.append(
            f"| {short} | {k['verdict']} | {k['counters']} | {either} | {taken} "
            f"| {k['responses']['l2'][0]:+.2f} | {k['follows']:.2f} | {k['half']} |"
        )
    apart: dict[tuple[str, str], list[str]] = {}
    for k in kernels:
        if k["first"] != k["counters"] and _set(k["name"]) == "ladders":
            apart.setdefault((k["counters"], k["first"]), []).append(k["name"])
    if apart:
        lines += ["", "Where the two differ (other ladders):", ""]
        lines += ["| regime | pressure | kernels |", "|---|---|---|"]
        lines += [
            f"| {counters} | {first} | {', '.join(sorted(names))} |"
            for (counters, first), names in sorted(apart.items(), key=lambda item: -len(item[1]))
        ]
    return "\n".join(lines) + "\n"


def _set(name: str) -> str:
    family = name.split("/")[0]
    return family if family in ("pathology", "program", "field") else "ladders"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.probe", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("verb", choices=("measure", "launch", "fit", "table"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--program", type=Path, nargs="*", default=())
    parser.add_argument("--set", choices=SETS, default="pathology")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    if given.verb == "measure":
        measure(given.out, given.set, given.seconds)
    elif given.verb == "launch":
        launch_all(given.set, given.seconds)
    elif given.verb == "fit":
        fit(given.files, given.program, given.data)
    else:
        text = given.page.read_text(encoding="utf-8")
        text = re.sub(
            r"(<!-- regimes -->\n).*(<!-- end of regimes -->)",
            lambda found: f"{found[1]}\n{tables(given.data)}\n{found[2]}",
            text,
            flags=re.DOTALL,
        )
        given.page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
