"""The shipped recordings as runs, with their verdicts, and reports with theirs, for tests. Reading
them takes minutes, so workers and runs of pytest share the results.

A result is used only while the files that it was read from, and the modules that read them, are
byte for byte what they were."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import lzma
import os
import pickle
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from benchmarks import parsed
from ncu_toolkit.base.core import cache
from ncu_toolkit.base.model import Diagnosis, Profile
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.analysis.analyze import LaunchResult, Options, analyze, judge
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.report import framing
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.kernel.sass import addresses

R = TypeVar("R")
ROOT = Path(__file__).resolve().parent.parent
#: Outside the checkout, so that a fresh clone finds what another one made. `make clean` deletes it.
CACHE = cache.cache_folder().with_name("ncu-toolkit-tests")
#: Copies of one result that are kept, for as many checkouts that differ.
COPIES = 6
READERS = ("kernel.report.reader", "base.model.run", "base.model.codec", "kernel.runs.store")
FOLDERS = store.recordings()
#: The recording of the FP32 ladder that the tests of single modules read.
FP32 = next((folder for folder in FOLDERS if "gemm-fp32" in folder.name), None)


@lru_cache
def modules(*names: str) -> tuple[Path, ...]:
    """Modules of the package, and every one that they import, and those import, and so on."""
    waiting, found = list(names), set()
    while waiting:
        stem = ROOT.joinpath("ncu_toolkit", *waiting.pop().split("."))
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        if path not in found and path.is_file():
            found.add(path)
            waiting += _imports(path)
    return tuple(sorted(found))


@lru_cache
def _imports(path: Path) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ncu_toolkit."):
            package = str(node.module).removeprefix("ncu_toolkit.")
            found += [package, *(f"{package}.{name.name}" for name in node.names)]
    return tuple(found)


def digest(paths: Iterable[Path]) -> str:
    """A digest of the files' names and bytes."""
    state = hashlib.sha256()
    for path in sorted(paths):
        state.update(path.name.encode() + path.read_bytes())
    return state.hexdigest()[:32]


def is_current(folder: Path) -> bool:
    """Whether what is kept of a recording's reports is what they hold, with an answer to all that their
    code is asked, by the code that answers now."""
    run = store.load_manifest(folder)
    reports = [folder / name for name in run.report_files]
    read = shared(
        f"reports-{folder.name}", reports, _readers(), lambda: store.read_reports(folder, run)
    )
    if store.load_parsed(folder, run) != read:
        return False
    source, kept = parsed.kept_answers(folder)
    return source == addresses.source() and kept.keys() == shared(
        f"asked-{folder.name}", reports, _judges(), lambda: {*parsed.answers(read)}
    )


@lru_cache
def _judges() -> str:
    """A digest of all code and data that a verdict may depend on. Rules are discovered, not
    imported, so imports do not tell."""
    package = ROOT / "ncu_toolkit"
    above = {"pages", "render", "gpu", "recording", "cli", "api", "guests", "recordings"}
    return digest(
        path
        for kind in ("py", "json", "toml")
        for path in package.rglob(f"*.{kind}")
        if above.isdisjoint(path.relative_to(package).parts)
    )


@lru_cache
def _readers() -> str:
    return digest(modules(*READERS))


def shared(name: str, read_from: Iterable[Path], code: str, make: Callable[[], R]) -> R:
    """What `make` returns, pickled in the cache under a name. One worker makes it, the others wait
    for its copy; of those made from other files or by other code the last used are kept."""
    key = digest(read_from) + code
    kept = CACHE / "recorded" / f"{name}-{key}.pickle"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with (kept.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept.is_file():
            os.utime(kept)
        else:
            cache.replace_file(kept, pickle.dumps(make()))
            copies = kept.parent.glob(f"{name}-{'?' * len(key)}.pickle")
            for old in sorted(copies, key=lambda path: path.stat().st_mtime)[:-COPIES]:
                old.unlink()
        content = kept.read_bytes()
    found: R = pickle.loads(content)
    return found


@lru_cache
def run_of(folder: Path) -> Run:
    """A recording's run."""
    run = _load_run(folder, live=False)
    _OWNER.update(dict.fromkeys(map(id, run.profiles), folder))
    return run


#: Taken here, since tests replace the store's by `run_of`.
_load_run = store.load_run
#: The recording of each profile that was read, by the profile's identity.
_OWNER: dict[int, Path] = {}


def diagnosed(profile: Profile) -> Diagnosis:
    """The verdict on a profile of `run_of`, made once for all tests and workers of a run of
    pytest; on any other profile, made now."""
    folder = _OWNER.get(id(profile))
    return diagnose(profile) if folder is None else _verdicts(folder)[id(profile)]


@lru_cache
def _verdicts(folder: Path) -> dict[int, Diagnosis]:
    profiles = run_of(folder).profiles
    found = shared(
        f"verdicts-{folder.name}",
        folder.iterdir(),
        _judges(),
        lambda: list(map(diagnose, profiles)),
    )
    return {id(profile): each for profile, each in zip(profiles, found, strict=True)}


@lru_cache
def launches(report: Path) -> tuple[LaunchResult, ...]:
    """A report's launches with their verdicts; of each profile what Nsight Compute's own rules say.

    Raises:
        ToolkitError: the report cannot be read, or differs from its checksum.
    """

    def judged() -> tuple[LaunchResult, ...]:
        found = (
            judge(each, str(report), Options(profiles=True)) for each in _profiles(report, beside)
        )
        return tuple(
            replace(each, profile=replace(each.profile, instructions=(), sources={}))
            for each in found
            if each.profile is not None
        )

    beside = [path for path in report.parent.glob(f"{report.name}*") if path.is_file()]
    return shared(f"launches-{report.parent.name}-{report.name}", beside, _judges(), judged)


def _profiles(report: Path, beside: Iterable[Path]) -> tuple[Profile, ...]:
    """A report's launches as they are read. Kept apart from the verdicts on them: reading takes ten
    times as long, and a change of a rule changes none of it."""

    def read() -> tuple[Profile, ...]:
        analysis = analyze([report], Options(allow_partial=True, profiles=True), jobs=1)
        for file in analysis.files:
            if file.error is not None:
                raise file.error
        return tuple(each.profile for each in analysis.launches if each.profile is not None)

    return shared(f"profiles-{report.parent.name}-{report.name}", beside, _readers(), read)


@lru_cache
def report_bytes() -> bytes:
    """The FP32 recording's report, unpacked."""
    assert FP32 is not None
    return lzma.decompress((FP32 / "profile.ncu-rep.xz").read_bytes())


def profile(run: Run, rung: str, size: str) -> Profile:
    """The longest launch of a rung at a size."""
    found = [
        p
        for p in run.profiles
        if p.context is not None and (p.context.rung, p.context.size) == (rung, size)
    ]
    assert found, f"{run.id} holds no profile of {rung} at {size}"
    return max(found, key=lambda p: p.duration_us or 0.0)


def first_launches(count: int) -> bytes:
    """The FP32 recording up to its launch number `count`, with the session data that ncu writes
    after the first launch: a whole report."""
    whole = report_bytes()
    found = 0
    for block in framing.parse(whole).blocks:
        if found == count and (block.sources or block.results):
            return whole[: block.offset]
        found += len(block.results)
    raise AssertionError("the recording has fewer launches")


def small_recording(folder: Path) -> Path:
    """The FP32 recording cut down to its first launch."""
    assert FP32 is not None
    folder.mkdir(parents=True)
    (folder / "profile.ncu-rep").write_bytes(first_launches(1))
    manifest = store.load_manifest(FP32)
    timings = tuple(
        timing for timing in store.load_timings(FP32) if timing.rung in ("naive", "cublas")
    )
    store.save(
        folder,
        replace(
            manifest,
            id=folder.name,
            cases=manifest.cases[:1],
            report_files=("profile.ncu-rep",),
            skipped=(),
            timings=timings,
        ),
    )
    return folder
