"""Checking, timing and recording pairs; needs a GPU."""

from __future__ import annotations

import atexit
import csv
import fcntl
import hashlib
import io
import itertools
import json
import lzma
import os
import queue
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.field import (
    EXTERNAL,
    FOLDER,
    LAUNCHES,
    RECORDINGS,
    VARIANTS,
    WARM_UPS,
    ExternalPair,
    Launch,
    Pair,
    Work,
    disagreement,
    find,
    half,
    language,
    names,
    public,
)
from ncu_toolkit.base.core.cache import private
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    InputProblem,
    KernelProblem,
    refused,
)
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.kernel.gpu import collect, cuda
from ncu_toolkit.kernel.gpu.executor import HERE, Executor
from ncu_toolkit.kernel.report.redact import redact
from ncu_toolkit.kernel.runs.store import slug

ROOT: Final = FOLDER.parent.parent
#: Rounds of a pair: each round times both variants once, the first by lot.
LEAST_ROUNDS, MOST_ROUNDS = 7, 60
#: Seconds of GPU time that all rounds of a pair may take.
SECONDS: Final = 1.0
#: Cycles the GPU spins before a timed run: Numba and Triton take up to 200 µs to enqueue a launch.
SPIN_CYCLES: Final = 1_000_000
#: Runs of each external program: a run times one launch.
EXTERNAL_ROUNDS: Final = 3
#: Seconds that one program under ncu may take, with its wait for the GPU: a lock is not given in
#: turn, and with six jobs a GPU some waited more than 300 s.
TIMEOUT: Final = 900.0


@contextmanager
def _alone() -> Iterator[None]:
    """Have the GPU to oneself among the jobs of `record`: $FIELD_LOCK names the file they lock."""
    path = os.environ.get("FIELD_LOCK")
    if path is None:
        yield
        return
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run(pair: Pair | ExternalPair, variant: str) -> None:
    """Two warm-up calls and then the one to profile, inside a profiler range."""
    if isinstance(pair, ExternalPair):
        print(_output(pair, variant, built(pair)), end="")
        return
    with _alone():
        _run(pair, variant)


def _run(pair: Pair, variant: str) -> None:
    from ncu_toolkit import profile

    work = pair.make(variant, *pair.inputs())
    for _ in range(WARM_UPS):
        _wait(work.run())
    cuda.cupy()  # for its profiler calls, which know the context of every library here
    cuda.synchronize(f"{pair.name} ({variant})")
    with profile(f"{pair.name}/{variant}"):
        _wait(work.run())


def _wait(output: object) -> None:
    """Wait for what `run` enqueued. JAX enqueues from its own threads, so that synchronising the
    device may come too early: its outputs know. For others this does nothing."""
    ready = getattr(output, "block_until_ready", None)
    if ready is not None:
        ready()


@dataclass(frozen=True)
class Checked:
    """Both variants of a Pair on the same inputs, and how far their results differ."""

    works: dict[str, Work]
    worst: float


def check(pair: Pair) -> Checked:
    """Run both variants once and compare their results.

    Raises:
        KernelProblem: they disagree by more than the tolerance.
    """
    inputs = pair.inputs()
    works: dict[str, Work] = {v: pair.make(v, *inputs) for v in VARIANTS}
    results = []
    for variant, work in works.items():
        _wait(work.run())
        cuda.synchronize(f"{pair.name} ({variant})")
        results.append(work.result())
    worst = disagreement(*results)
    if not worst <= pair.tolerance:
        raise KernelProblem(
            f"the variants of {pair.name} differ by {worst:.3g}, more than {pair.tolerance:g}"
        )
    return Checked(works, worst)


def agreement(pair: Pair | ExternalPair) -> float:
    """How far both variants differ: see `disagreement`; 0 for programs whose output agrees.

    Raises:
        KernelProblem: they disagree, or one fails.
    """
    if isinstance(pair, Pair):
        return check(pair).worst
    folder = built(pair)
    message = pair.agree(*(_output(pair, variant, folder) for variant in VARIANTS))
    if message:
        raise KernelProblem(f"the variants of {pair.name} disagree: {message}")
    return 0.0


def measure(pair: Pair | ExternalPair) -> dict[str, Any]:
    """Check a pair, then time both variants in interleaved rounds.

    Returns:
        name, worst (disagreement), before_us and after_us (medians), spread (half the distance of
        the quartiles over the median, the larger of both), rounds, clock and cache.
    """
    if isinstance(pair, ExternalPair):
        worst = agreement(pair)
        times, clock, caches = _profiler_rounds(pair, built(pair)), "profiler", "flushed"
    else:
        checked = check(pair)
        worst = checked.worst
        if pair.language == "jax":
            times, clock, caches = _wall_rounds(checked.works), "wall", "warm"
        else:
            times, clock, caches = _event_rounds(checked.works), "events", "flushed"
    middle = {variant: statistics.median(times[variant]) for variant in VARIANTS}
    spread = max(_spread(times[variant]) for variant in VARIANTS)
    return {
        "name": pair.name,
        "worst": worst,
        "before_us": round(middle["before"], 3),
        "after_us": round(middle["after"], 3),
        "spread": round(spread, 4),
        "rounds": len(times["before"]),
        "clock": clock,
        "cache": caches,
    }


def _spread(times: Sequence[float]) -> float:
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / 2 / middle


def _order(shuffler: random.Random) -> list[str]:
    return shuffler.sample(VARIANTS, 2)


def _rounds(seconds: float) -> int:
    return max(LEAST_ROUNDS, min(MOST_ROUNDS, int(SECONDS / max(seconds, 1e-6))))


def _event_rounds(works: dict[str, Work]) -> dict[str, list[float]]:
    """Times by CUDA events on the default stream, in microseconds. PyTorch, Triton, CuPy and Numba
    launch there; Warp's stream waits for it and is waited for."""
    from ncu_toolkit.kernel.gpu.timing import Stopwatch

    watch, shuffler = Stopwatch("flushed", SPIN_CYCLES), random.Random(1)

    def once(variant: str) -> float:
        return watch.elapsed_us(watch.enqueue(works[variant].run))

    for _ in range(WARM_UPS):
        seconds = sum(once(variant) for variant in VARIANTS) * 1e-6
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(_rounds(seconds)):
        for variant in _order(shuffler):
            times[variant].append(once(variant))
    return times


def _wall_rounds(works: dict[str, Work]) -> dict[str, list[float]]:
    """Times by the wall clock, in microseconds: enough calls in a row that enqueuing and waiting
    weigh little. JAX launches on its own stream that no event outside sees."""
    device, shuffler = cuda.cupy().cuda.Device(), random.Random(1)

    def once(variant: str, calls: int) -> float:
        device.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            output = works[variant].run()
        _wait(output)
        device.synchronize()
        return (time.perf_counter() - start) / calls

    for _ in range(WARM_UPS):
        first = {variant: once(variant, 20) for variant in VARIANTS}
    calls: dict[str, int] = {variant: max(5, int(0.02 / first[variant])) for variant in VARIANTS}
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(15):
        for variant in _order(shuffler):
            times[variant].append(once(variant, calls[variant]) * 1e6)
    return times


def _arch() -> str:
    major, minor = cuda.device().cc
    return f"sm_{major}{minor}"


def _cutlass() -> str:
    package = find_spec("cutlass_library")
    if package is None or not package.submodule_search_locations:
        raise EnvironmentProblem(
            "the CUTLASS pairs need headers that are not installed", "pip install nvidia-cutlass"
        )
    return str(package.submodule_search_locations[0])


def _words(pair: ExternalPair, words: Sequence[str], out: Path) -> list[str]:
    folder = FOLDER / "pairs" / pair.language
    known: dict[str, Callable[[], str]] = {
        "{src}": lambda: str(folder),
        "{out}": lambda: str(out),
        "{nvcc}": lambda: shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc",
        "{arch}": _arch,
        "{cutlass}": _cutlass,
        "{public}": lambda: str(public.fetched(pair.repository)),
    }
    return [re.sub("|".join(known), lambda found: known[found.group()](), word) for word in words]


@cache
def _folder(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"field-{name}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_BUILT: set[str] = set()


def built(pair: ExternalPair) -> Path:
    """The folder of the programs of both variants, built once in this process and removed with it.

    Raises:
        KernelProblem: a build command fails.
    """
    folder = _folder(pair.name)
    if pair.name not in _BUILT:
        for variant in VARIANTS:
            for words in pair.build[variant]:
                _said(pair, _words(pair, words, folder), folder)
        _BUILT.add(pair.name)
    return folder


def _said(pair: ExternalPair, words: Sequence[str], folder: Path) -> str:
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env={**os.environ, **pair.environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"'{words[0]}' of {pair.name} does not run: {error}") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-12:]
        raise KernelProblem(
            f"'{' '.join(words)}' of {pair.name} ended with {done.returncode}: {' | '.join(lines)}"
        )
    return done.stdout


def _output(pair: ExternalPair, variant: str, folder: Path) -> str:
    return _said(pair, _words(pair, pair.run[variant], folder), folder)


def _profiler_rounds(pair: ExternalPair, folder: Path) -> dict[str, list[float]]:
    """Durations of the launch meant, in microseconds: ncu's gpu__time_duration, one run of the
    program each, the programs interleaved."""
    ncu, shuffler = collect.find_ncu(), random.Random(1)
    times: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(EXTERNAL_ROUNDS):
        for variant in _order(shuffler):
            launch = pair.launch(variant)
            words = [ncu.path, "--metrics", "gpu__time_duration.sum", "--clock-control", "none"]
            words += [*_named(launch), "--launch-count", "1"]
            words += ["--launch-skip", str(launch.index), "--target-processes", "all"]
            words += ["--csv", "--print-units", "base"]
            text = _said(pair, words + _words(pair, pair.run[variant], folder), folder)
            times[variant].append(_nanoseconds(text, pair, variant) * 1e-3)
    return times


def _named(launch: Launch) -> tuple[str, str]:
    return "--kernel-name", f"regex:{launch.kernel}"


def _nanoseconds(text: str, pair: ExternalPair, variant: str) -> float:
    start = text.find('"ID"')
    rows = list(csv.DictReader(io.StringIO(text[start:]))) if start >= 0 else []
    for row in rows:
        if row.get("Metric Name") == "gpu__time_duration.sum":
            return float(row["Metric Value"].replace(",", ""))
    raise KernelProblem(
        f"ncu timed no launch of {pair.name} ({variant}) that '{pair.launch(variant).kernel}' matches"
    )


def profile(pair: Pair | ExternalPair, variant: str, output: Path) -> dict[str, Any]:
    """Profile with `--set full`; writes `output`.ncu-rep. Of a Pair the first LAUNCHES of its call
    where the launch meant is among them, else that launch alone.

    Returns:
        Kernel and duration_us of the launch meant, the report, and its place (from 0) in it.

    Raises:
        ToolkitError: ncu or the program fails, or no launch matches.
    """
    launch = pair.launch(variant)
    if isinstance(pair, ExternalPair):
        folder = built(pair)
        command = tuple(_words(pair, pair.run[variant], folder))
    else:
        command = (sys.executable, "-m", "benchmarks.field", pair.name, "--variant", variant)
    from ncu_toolkit import load

    for whole in (True, False) if isinstance(pair, Pair) else (False,):
        request = collect.Request(
            output=output,
            command=command,
            section_folders=(),
            set_name="full",
            ranges_only=isinstance(pair, Pair),
            launch_skip=0 if whole else launch.index,
            launch_count=LAUNCHES if whole else 1,
            import_source=False,
            # by function names, as they are timed: `kernel_filter` searches demangled ones
            extra=("--force-overwrite", *(() if whole else _named(launch))),
        )
        environment = dict(pair.environment) if isinstance(pair, ExternalPair) else {}
        job = collect.NcuJob(collect.find_ncu(), request, TIMEOUT, environment)
        outcome = collect.run(job)
        if outcome.problem is not None:
            raise outcome.problem
        if outcome.report is None:
            raise KernelProblem(f"ncu wrote no report of {pair.name} ({variant})")
        found = load(outcome.report, instructions=False)
        meant = place([each.launch.function for each in found], launch) if whole else 0
        if meant is not None:
            break
    assert meant is not None
    return {
        "kernel": found[meant].launch.kernel,
        "duration_us": found[meant].duration_us,
        "report": outcome.report.name,
        "place": meant,
    }


def place(functions: Sequence[str], launch: Launch) -> int | None:
    """Where the launch meant is among launches with these function names; None where it is not."""
    matching = [at for at, name in enumerate(functions) if re.search(launch.kernel, name)]
    return matching[launch.index] if launch.index < len(matching) else None


def record_one(name: str, out: Path) -> None:
    """Check, time and profile one pair into `out`."""
    pair = find(name)
    if isinstance(pair, ExternalPair):
        built(pair)  # compiling needs no GPU
    with _alone():
        found = measure(pair)

    def side(variant: str) -> dict[str, Any]:
        """The lock is taken by the program under ncu, so that both load their libraries at once; an
        external program does not know it."""
        output = out / f"{name}-{variant}"
        with _alone() if isinstance(pair, ExternalPair) else nullcontext():
            return profile(pair, variant, output)

    with ThreadPoolExecutor(len(VARIANTS)) as pool:
        sides = dict(zip(VARIANTS, pool.map(side, VARIANTS), strict=True))
    for variant in VARIANTS:
        (out / f"{name}-{variant}.log").unlink(missing_ok=True)
    result = {
        **found,
        "language": pair.language,
        "work": pair.work,
        "half": half(name),
        "gain": round(found["before_us"] / found["after_us"], 4),
        "gpu": cuda.device().name,
        "source": digest(name),
        "launches": sides,
    }
    write_atomic(out / f"{name}.json", _document(result))


def pack(out: Path) -> None:
    """Copy what `record` wrote in `out` to the recordings of its GPU, redacted, compressed and
    without source text. What is there of the same pair is replaced.

    Raises:
        InputProblem: a report cannot be redacted, or holds fetched source text.
    """
    for path in sorted(out.glob("*.json")):
        if path.stem not in names():
            continue
        about = json.loads(path.read_text(encoding="utf-8"))
        folder = RECORDINGS / slug(about["gpu"])
        folder.mkdir(parents=True, exist_ok=True)
        for variant in VARIANTS:
            packed = folder / f"{path.stem}-{variant}.ncu-rep.xz"
            packed.unlink(missing_ok=True)
            redact(out / f"{path.stem}-{variant}.ncu-rep", packed, remove_source=True)
            _refuse_source(path.stem, packed)
        write_atomic(folder / path.name, _document(about))


def _refuse_source(name: str, packed: Path) -> None:
    """Delete a packed report that holds text of a public repository; others may hold our own."""
    pair = find(name) if language(name) in EXTERNAL else None
    if not isinstance(pair, ExternalPair) or not pair.repository:
        return
    repository = public.repositories()[pair.repository]
    if found := public.holds_source(lzma.decompress(packed.read_bytes()), repository):
        packed.unlink()
        raise InputProblem(
            f"the report of {name} holds '{found}', text of {repository.name}",
            "Profile without --import-source and build without -lineinfo",
        )


def _document(value: object) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def digest(name: str) -> str:
    """Hash of the pair's text: its file and what its folder shares, or the commands and files that
    an external pair is built from. A recording of another text is made again."""
    folder = FOLDER / "pairs" / language(name)
    files, commands = [folder / f"{name}.py", *sorted(folder.glob("_*.py"))], ""
    if language(name) in EXTERNAL:
        pair = find(name)
        assert isinstance(pair, ExternalPair)
        commands = repr((pair.build, pair.run, pair.profile, pair.environment))
        if pair.repository:
            commands += public.repositories()[pair.repository].commit
        own = {path for path in folder.rglob("*.cu") if f"/{path.name}" in commands}
        files = sorted(own.union(folder.rglob("*.cuh")))
    text = commands.encode() + b"".join(path.read_bytes() for path in files)
    return hashlib.sha256(text).hexdigest()[:16]


def recorded(name: str, out: Path) -> bool:
    """Whether `out` holds a recording of the pair as it is now."""
    try:
        found = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    complete = all((out / f"{name}-{variant}.ncu-rep").is_file() for variant in VARIANTS)
    return complete and found.get("source") == digest(name)


def record(
    chosen: Sequence[str],
    out: Path,
    jobs: int,
    seconds: float = float("inf"),
    executor: Executor = HERE,
) -> dict[str, str]:
    """Record pairs, one process each, `jobs` at once, spread over the GPUs; what `out` already
    holds is kept. Jobs on one GPU load and compile side by side and take turns on the GPU; on a
    cluster a board records one pair at a time. After `seconds` no further pair is begun.

    Returns:
        The last lines of each pair that failed, also written to `out`/failed.json.
    """
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    todo = [name for name in chosen if not recorded(name, out)]
    failed: dict[str, str] = {}

    def note(name: str, message: str) -> None:
        if message:
            failed[name] = message
        at = time.monotonic() - started
        print(f"{at:5.0f} s  {name}: {'failed' if message else 'recorded'}", flush=True)
        write_atomic(out / "failed.json", _document(failed))

    if executor.boards:
        in_time = itertools.takewhile(lambda _: time.monotonic() - started <= seconds, todo)
        for done in executor.run(record_there, ((name, digest(name)) for name in in_time)):
            name = todo[done.index]
            message, made = done.value if done.error is None else (str(done.error), {})
            for file, content in sorted(made.items(), key=lambda each: each[0] == f"{name}.json"):
                write_atomic(out / file, content)  # What says that a pair is recorded comes last.
            note(name, message)
        return failed
    with tempfile.TemporaryDirectory(prefix="field-") as scratch:
        free: queue.Queue[dict[str, str]] = queue.Queue()
        for _, card in zip(range(max(1, jobs)), itertools.cycle(cuda.cards()), strict=False):
            # ncu keeps its lock in TMPDIR: a folder a GPU lets those on other GPUs go on
            own = Path(scratch) / card
            own.mkdir(exist_ok=True)
            lock = str(own / "lock")
            free.put({"CUDA_VISIBLE_DEVICES": card, "TMPDIR": str(own), "FIELD_LOCK": lock})

        def one(name: str) -> None:
            if time.monotonic() - started > seconds:
                return
            environment = free.get()
            try:
                message = _record_in_child(name, out, environment)
            finally:
                free.put(environment)
            note(name, message)

        with ThreadPoolExecutor(max(1, jobs)) as pool:
            list(pool.map(one, todo))
    return failed


def record_there(name: str, source: str) -> tuple[str, dict[str, bytes]]:
    """Record one pair on a worker of a cluster.

    Returns:
        Its last lines if it fails, else nothing; the files that it made.

    Raises:
        EnvironmentProblem: the worker has another text of the pair than `source`.
    """
    if digest(name) != source:
        raise EnvironmentProblem(
            f"the worker's text of {name} differs from the client's", "Check out the same commit"
        )
    own = own_temporary_folder()
    environment = {"TMPDIR": str(own), "FIELD_LOCK": str(own / "lock")}
    with tempfile.TemporaryDirectory(prefix="field-") as scratch:
        message = _record_in_child(name, Path(scratch), environment)
        return message, {path.name: path.read_bytes() for path in Path(scratch).iterdir()}


@cache
def own_temporary_folder() -> Path:
    """A folder of this worker's board for temporary files. NVIDIA documents a lock of ncu's in TMPDIR,
    which would keep two boards of a host from being profiled at once; ncu 2025.3.1 did not wait
    for it."""
    folder = Path(tempfile.gettempdir()) / f"ncu-toolkit-{os.getuid()}-{cuda.uuid()}"
    with refused("temporary files cannot be kept apart", "Set TMPDIR on the worker"):
        return private(folder)


def _record_in_child(name: str, out: Path, environment: dict[str, str]) -> str:
    """Record one pair in its own process; its last lines if it fails, else nothing."""
    words = [sys.executable, "-m", "benchmarks.field", "record-one", name, "--out", str(out)]
    try:
        done = subprocess.run(
            words,
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not finish within {2 * TIMEOUT:.0f} s"
    if done.returncode == 0:
        return ""
    logs = [out / f"{name}-{variant}.log" for variant in VARIANTS]
    beside = "".join(p.read_text(errors="replace")[-1500:] for p in logs if p.is_file())
    return "\n".join((done.stdout + done.stderr + beside).strip().splitlines()[-25:])
