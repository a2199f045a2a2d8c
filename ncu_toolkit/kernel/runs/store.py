"""Runs on disk: one folder a run under reports/, written atomically and never overwritten;
recordings in the package have the same form.

run.json (manifest), timings.json, profile*.ncu-rep (raw, or .xz), profiles.json.gz (parsed), logs,
and pages. A recording's profiles.msgpack.xz loads in a twentieth of its reports' time."""

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.cache import without_collector
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    InputProblem,
    ToolkitError,
    UsageProblem,
)
from ncu_toolkit.base.core.files import write_atomic as write_atomic  # used as store.write_atomic
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import SCHEMA_VERSION, Context, Profile, RuleMessage, Timing
from ncu_toolkit.base.model.codec import document, from_plain, open_document, plain_json, to_plain
from ncu_toolkit.base.model.run import Run, RunCase, Skipped
from ncu_toolkit.kernel.diagnosis import needs
from ncu_toolkit.kernel.ladder.catalogue import find_rung, load_families
from ncu_toolkit.kernel.ladder.expressions import evaluate_int
from ncu_toolkit.kernel.ladder.rung import Rung
from ncu_toolkit.kernel.report import integrity, reader
from ncu_toolkit.kernel.report.ncu_action import measured
from ncu_toolkit.kernel.report.ncu_source import Value

T = TypeVar("T")
MANIFEST: Final = "run.json"
TIMINGS: Final = "timings.json"
#: Timings of a few rungs over many sizes, beside a recording: timings.json of a run of `bench`.
CURVE: Final = "curve.json"
PROFILES: Final = "profiles.json.gz"
#: A recording's launches with the profiler's own values, the key of `parse_key`, and what their code accesses.
PARSED: Final = "profiles.msgpack.xz"
RULES: Final = "rules.json"
#: Fields of a run that are not in run.json.
_ELSEWHERE: Final = ("live", "timings", "profiles", "curve")
#: A launch with at least this fraction of its case's time carries the problem's useful work.
_MAIN_LAUNCH_SHARE: Final = 0.9


def write_json(path: Path, kind: str, payload: Any) -> None:
    """Write a document with its schema, atomically."""
    text = json.dumps(document(kind, payload), indent=1, ensure_ascii=False, allow_nan=False)
    # A name that is no UTF-8 has surrogates, written as \udcff.
    write_atomic(path, f"{text}\n".encode("utf-8", "backslashreplace"))


def stored(path: Path) -> Path:
    """Where a document lies: at its path, or as xz beside it in a published recording."""
    packed = path.with_name(f"{path.name}.xz")
    return packed if packed.exists() and not path.exists() else path


def read_json(path: Path, kind: str, of: type[T]) -> T:
    """The payload of a document, built as `of`. Raises InputProblem where it is missing, no regular
    file, not JSON, of another schema, or of another shape."""
    return from_plain(of, _read_document(path, kind), str(path))


def _read_document(path: Path, kind: str) -> Any:
    try:
        data = files.read_json(path)
    except FileNotFoundError:
        raise InputProblem(
            f"no file '{path}'", "The run's folder is incomplete. Make the run again"
        ) from None
    except OSError as error:
        raise InputProblem(f"'{path}' cannot be read: {error.strerror}") from None
    return open_document(kind, data, str(path))


def slug(text: str) -> str:
    """Lower-case letters, digits and dashes: fit for a folder name whatever `text` is."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "run"


def new_run_folder(reports: Path, what: str, now: float | None = None) -> Path:
    """A fresh folder `YYYYmmdd-HHMMSS-what` under `reports`, numbered from the second one of a
    second on. Raises EnvironmentProblem where it cannot be made."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    for attempt in range(100):
        folder = reports / f"{stamp}-{slug(what)}{f'-{attempt + 1}' if attempt else ''}"
        files.make_folder(reports)
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise EnvironmentProblem(
                f"'{folder}' cannot be made: {error.strerror}", "Name another folder with --output"
            ) from None
    raise EnvironmentProblem(f"'{reports}' already holds 100 runs of this second", "Try again")


def discard(folder: Path) -> None:
    """Remove the folder of a run in which nothing was measured."""
    shutil.rmtree(folder, ignore_errors=True)


def save(folder: Path, run: Run) -> None:
    """Write a run's timings and its run.json into its folder."""
    write_json(folder / TIMINGS, "timings", run.timings)
    save_manifest(folder, run)


def save_manifest(folder: Path, run: Run) -> None:
    """Write run.json with the checksums of the reports as they lie there now."""
    there = (name for name in run.report_files if (folder / name).is_file())
    sums = {name: integrity.digest(folder / name) for name in there}
    plain = to_plain(replace(run, checksums=sums, profiles=(), timings=(), curve=()))
    for name in _ELSEWHERE:
        del plain[name]
    write_json(folder / MANIFEST, "run", plain)


def load_manifest(folder: Path) -> Run:
    """A run without its timings and profiles. Raises InputProblem where run.json is missing or
    broken, or names a report outside its folder."""
    path = folder / MANIFEST
    plain = _read_document(path, "run")
    if isinstance(plain, dict):  # None stood for a default in earlier versions
        plain = {k: v for k, v in plain.items() if v is not None and k not in _ELSEWHERE}
    run = from_plain(Run, plain, str(path))
    for name in run.report_files:
        if not _file_name(name):
            raise InputProblem(
                f"'{path}' names a report outside its folder: '{visible(name, 200)}'",
                "The manifest was edited. Make the run again",
            )
    return run


def _file_name(name: str) -> bool:
    """Whether it is the name of a file, without a folder."""
    try:
        length = len(os.fsencode(name))
    except UnicodeEncodeError:
        return False
    return Path(name).name == name and length <= 255 and "\0" not in name


def load_timings(folder: Path, name: str = TIMINGS) -> tuple[Timing, ...]:
    """A run's timings; none where it has no such file. `name` may be CURVE. Raises InputProblem
    where the file is broken, or holds a timing without times."""
    path = stored(folder / name)
    timings = read_json(path, "timings", tuple[Timing, ...]) if path.exists() else ()
    for i, timing in enumerate(timings):
        if not timing.times_us or not all(0 < time < math.inf for time in timing.times_us):
            raise InputProblem(
                f"'{path}' has missing or impossible times at [{i}]",
                "It was edited. Make the run again",
            )
    return timings


def load_run(folder: Path, *, live: bool, known: Sequence[Profile] = ()) -> Run:
    """A run with its profiles tied to their cases: the `known`, else from PARSED if that fits the
    reports, else from the reports.

    Raises InputProblem where a file is missing, unreadable, or has lost launches."""
    run = load_manifest(folder)
    profiles = tuple(known) or load_parsed(folder, run)
    if profiles is None:
        profiles = read_reports(folder, run)
    cases = {case.marker: case for case in run.cases}
    # Launches of cases that were interrupted and collected again, with the report that counts.
    again: dict[Skipped, None] = {}
    kept = []
    for profile in profiles:
        in_range = [cases[name] for name in profile.launch.nvtx if name in cases]
        old = [case for case in in_range if not _holds(case, profile)]
        if not old:
            kept.append(profile)
        for case in old:
            what = f"{case.family}/{case.rung} at {case.size} in {profile.origin.file}"
            again[Skipped(what, f"collected again in {case.report}")] = None
    tied = _with_rules(folder, tie(kept, run.cases))
    if run.needs:
        tied = _with_needs(folder, tied, run.needs)
    lost = [
        Skipped(f"{case.family}/{case.rung} at {case.size}", case.message or case.state)
        for case in run.cases
        if case.state not in ("profiled", "timed")
    ]
    environment = dict(run.environment)
    versions = {profile.origin.ncu_version for profile in tied} - {""}
    if versions:  # The reports know the version that wrote them.
        environment["Nsight Compute"] = ", ".join(sorted(versions))
        environment.pop("ncu", None)
    environment["ncu-toolkit"] = run.tool_version
    return replace(
        run,
        live=live,
        # ncu knows more of the chip than the runtime does
        device=tied[0].device if tied and tied[0].device.name else run.device,
        environment=environment,
        skipped=(*run.skipped, *lost, *again),
        profiles=tied,
        timings=load_timings(folder),
        curve=load_timings(folder, CURVE),
    )


def read_reports(folder: Path, run: Run) -> tuple[Profile, ...]:
    """The launches of a run's raw reports, in their order. Raises InputProblem as `load_run`."""
    return tuple(profile for report in reports_of(folder, run) for profile in report.profiles)


def reports_of(folder: Path, run: Run, *, values: bool = False) -> Iterator[reader.LoadedReport]:
    """A run's raw reports in their order, each whole."""
    for name in run.report_files:
        report = reader.load_report(folder / name, values=values)
        if report.read_launches != report.declared_launches:
            raise InputProblem(
                f"'{report.path}' is incomplete: {report.missing}", "Make the run again"
            )
        yield report


@dataclass(frozen=True)
class MetricColumn:
    """A metric by the profiler's own name: its value in each launch, None where it has none."""

    name: str
    unit: str
    values: tuple[float | None, ...]


def load_parsed(folder: Path, run: Run) -> tuple[Profile, ...] | None:
    """What PARSED holds; None where it is missing, damaged, or of other reports or another
    reader. What it keeps for `addresses` is handed on."""
    try:
        key, launches, columns, answers = msgspec.msgpack.decode(
            files.read_bytes(folder / PARSED),
            type=tuple[str, msgspec.Raw, msgspec.Raw, msgspec.Raw],
        )
        if key != parse_key(folder, run):
            return None
        from ncu_toolkit.kernel.sass import addresses  # imports NumPy

        addresses.keep(bytes(answers))
        with without_collector():
            every = msgspec.msgpack.decode(columns, type=tuple[MetricColumn, ...])
            named = grouped(every, lambda column: column.name)
            profiles = msgspec.msgpack.decode(launches, type=tuple[Profile, ...])
            return tuple(
                measured(profile, partial(_value, named, place))
                for place, profile in enumerate(profiles)
            )
    except (OSError, InputProblem, msgspec.DecodeError):
        return None


def _value(named: Mapping[str, Sequence[MetricColumn]], place: int, name: str) -> Value | None:
    """A metric of the launch at a place."""
    for column in named.get(name, ()):
        if (number := column.values[place]) is not None:
            return Value(number, column.unit)
    return None


def parse_key(folder: Path, run: Run) -> str:
    """A digest of what PARSED follows from: reports, names of all but readings, and a profile's
    shape. Raises OSError."""
    # A launch's state and its timeline follow from its duration, which its cycles confirm.
    checked = (registry.REGISTRY[name] for name in ("duration", "sm_cycles", "sm_clock"))
    read = (
        SCHEMA_VERSION, registry.SOURCE_METRICS, registry.OPCODE_METRIC, registry.OPCODE_THREADS_METRIC, registry.TIMELINE,
        registry.LAUNCH_FACTS, registry.DEVICE_FACTS, [(metric.ncu, metric.unit) for metric in checked],
    )  # fmt: skip
    state = hashlib.sha256(repr(read).encode())
    for name in run.report_files:
        state.update(f"{name} {integrity.digest(folder / name)}".encode())
    return state.hexdigest()


def tie(profiles: Sequence[Profile], cases: Sequence[RunCase]) -> tuple[Profile, ...]:
    """Give every profile the context of its case, found by NVTX range in the report of the case."""
    by_marker = {case.marker: case for case in cases}
    names = (next((x for x in each.launch.nvtx if x in by_marker), "") for each in profiles)
    named = {i: x for i, x in enumerate(names) if x and _holds(by_marker[x], profiles[i])}
    tied = list(profiles)
    rung_of = cache(find_rung)  # a rung has cases of several sizes
    for name, indices in grouped(named, named.__getitem__).items():
        case = by_marker[name]
        times = [profiles[i].duration_us or 0.0 for i in indices]
        total = sum(times)
        repeats = _repeats(case, rung_of)
        for position, i in enumerate(indices):
            context = Context(
                case.family, case.rung, case.size, case.dtype, dict(case.dims), dict(case.parameters),
                launch_index=position, launch_count=len(indices),
                repeat=repeats[position] if len(repeats) == len(indices) else 1,
            )  # fmt: skip
            if total > 0 and times[position] >= _MAIN_LAUNCH_SHARE * total:
                context = replace(
                    context, flops=case.flops, compulsory_bytes=case.compulsory_bytes,
                    pressure_us=case.pressure_us, pressure_kept=case.pressure_kept,
                )  # fmt: skip
            tied[i] = replace(profiles[i], context=context)
    return tuple(tied)


def _holds(case: RunCase, profile: Profile) -> bool:
    """Whether a launch is of the report that holds its case, which may be compressed since."""
    return case.report.removesuffix(".xz") in ("", profile.origin.file.removesuffix(".xz"))


def _repeats(case: RunCase, rung_of: Callable[[str], Rung]) -> tuple[int, ...]:
    """How often the rung launches each of its kernels; empty where the rung is gone or changed."""
    try:
        rung = rung_of(case.rung)
        names = rung.names(case.dims, case.parameters, 1)
        return tuple(
            evaluate_int(launch.repeat, names, where=f"{rung.label}: repeat")
            for launch in rung.launches
        )
    except ToolkitError:
        return ()


def save_profiles(folder: Path, profiles: Sequence[Profile]) -> None:
    """Write profiles as gzipped JSON beside the reports, for tools without NVIDIA's module."""
    text = plain_json("profiles", list(profiles)).encode("utf-8", "backslashreplace")
    write_atomic(folder / PROFILES, gzip.compress(text, 6, mtime=0))


def rule_key(of: Context) -> str:
    return f"{of.family}/{of.rung}:{of.size}:{of.dtype}:{of.launch_index}"


def _with_rules(folder: Path, profiles: Sequence[Profile]) -> tuple[Profile, ...]:
    """Profiles with the messages of ncu's own rules, where there are any."""
    path = stored(folder / RULES)
    if not path.exists():
        return tuple(profiles)
    rows = read_json(path, "rules", dict[str, tuple[RuleMessage, ...]])
    return tuple(
        replace(p, rules=rows.get(rule_key(p.context), p.rules)) if p.context else p
        for p in profiles
    )


def _with_needs(
    folder: Path, profiles: Sequence[Profile], texts: Iterable[str]
) -> tuple[Profile, ...]:
    try:
        for given in map(needs.parse, texts):
            profiles = tuple(map(given.applied, profiles))
        return tuple(profiles)
    except UsageProblem as error:
        raise InputProblem(
            f"'{folder / MANIFEST}': {error.message}", "The manifest was edited. Make the run again"
        ) from None


def recordings_root() -> Path:
    """The folder of recordings shipped in the package."""
    return PACKAGE / "data" / "recordings"


def recordings() -> tuple[Path, ...]:
    """Folders of the shipped recordings, by name."""
    return tuple(sorted(path.parent for path in recordings_root().glob(f"*/{MANIFEST}")))


def longest(family: str) -> tuple[dict[str, Timing], str]:
    """The shipped recording of a ladder: the longest timing of each rung, and the GPU; none where
    no recording has it."""
    name = family.replace("_", "-")
    folder = next((each for each in recordings() if each.name.endswith(f"-{name}")), None)
    if folder is None:
        return {}, ""
    timings = sorted(load_timings(folder), key=lambda timing: timing.compulsory_bytes)
    return {each.rung: each for each in timings}, load_manifest(folder).device.name


def pending_rungs() -> frozenset[tuple[str, str]]:
    """Rungs, by ladder and name, that are missing in the recordings of their ladder, being newer.

    Raises ToolkitError where a recording or a kernel file cannot be read."""
    runs = tuple(map(load_manifest, recordings()))
    tried = {rung for run in runs for rung in run.tried}
    return frozenset(
        (family.name, name)
        for family in load_families().values()
        if any(family.name == of for of, _ in tried)
        for name in family.rung_names
        if (family.name, name) not in tried
    )


def runs_under(reports: Path) -> tuple[tuple[Path, Run | ToolkitError], ...]:
    """Every run folder under `reports`, oldest first, with its run.json or the error of it."""
    found: list[tuple[Path, Run | ToolkitError]] = []
    for folder in sorted(reports.iterdir()) if reports.is_dir() else ():
        try:
            os.lstat(folder / MANIFEST)
            found.append((folder, load_manifest(folder)))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            found.append((folder, InputProblem(f"'{folder}' cannot be read: {error.strerror}")))
        except ToolkitError as error:
            found.append((folder, error))
    return tuple(found)
