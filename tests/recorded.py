"""The shipped recordings as runs, for tests. Parsing them takes many seconds, so the result is kept
between tests, workers and runs of pytest.

The copy is used only while the recording and every module that takes part in reading it are byte
for byte what they were."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import lzma
import os
import pickle
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from ncu_toolkit.analysis.analyze import LaunchResult, Options, analyze
from ncu_toolkit.core import cache
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.model import Diagnosis, Profile
from ncu_toolkit.model.run import Run
from ncu_toolkit.report import framing
from ncu_toolkit.runs import store

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "recorded"
READERS = ("report.reader", "model.run", "model.codec", "runs.store")
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


@lru_cache
def _digest(folder: Path) -> str:
    return digest([*folder.iterdir(), *modules(*READERS)])


@lru_cache
def run_of(folder: Path) -> Run:
    """A recording's run."""
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = CACHE / f"{folder.name}-{_digest(folder)}.pickle"
    with (CACHE / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one worker parses, the others wait for its copy
        if not kept.is_file():
            for old in CACHE.glob(f"{folder.name}-*.pickle"):
                old.unlink()
            temporary = kept.with_suffix(".making")
            temporary.write_bytes(pickle.dumps(store.load_run(folder, live=False)))
            os.replace(temporary, kept)
    run = pickle.loads(kept.read_bytes())
    assert isinstance(run, Run)
    _OWNER.update(dict.fromkeys(map(id, run.profiles), folder))
    return run


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
    shared = os.environ.get(cache.CACHE_VARIABLE)
    if not shared:
        return {id(profile): diagnose(profile) for profile in profiles}
    kept = Path(shared) / "verdicts" / folder.parent.name / f"{folder.name}.pickle"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.is_file():
            cache.replace_file(kept, pickle.dumps([diagnose(profile) for profile in profiles]))
    found: list[Diagnosis] = pickle.loads(kept.read_bytes())
    return {id(profile): each for profile, each in zip(profiles, found, strict=True)}


@lru_cache
def launches(report: Path) -> tuple[LaunchResult, ...]:
    """A report's launches with their verdicts; of each profile what Nsight Compute's own rules say.

    Several tests ask about the same reports: workers of one run of pytest share the answer.

    Raises:
        ToolkitError: the report cannot be read, or differs from its checksum.
    """
    run = os.environ.get(cache.CACHE_VARIABLE)
    kept = Path(run or "") / "launches" / report.parent.name / f"{report.name}.pickle"
    if run and kept.is_file():
        found: tuple[LaunchResult, ...] = pickle.loads(kept.read_bytes())
        return found
    analysis = analyze([report], Options(allow_partial=True, profiles=True), jobs=1)
    for file in analysis.files:
        if file.error is not None:
            raise file.error
    found = tuple(
        replace(each, profile=each.profile and replace(each.profile, instructions=(), sources={}))
        for each in analysis.launches
    )
    if run:
        cache.replace_file(kept, pickle.dumps(found))
    return found


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
