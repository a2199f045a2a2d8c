"""Report file -> Profiles, through NVIDIA's `ncu_report` module.

The module raises only for a path that does not exist, so the framing is checked first (`framing.py`) and the launches that came back are
counted against those declared. Launches are keyed by their place in the file, never by name.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ncu_toolkit import checksums, framing, integrity, messages, metrics, ncu_module, ncu_rules, ncu_source, toolchain, workers
from ncu_toolkit.errors import InputProblem
from ncu_toolkit.model import Device, Launch, Origin, Presence, Profile, Reading, StallStack
from ncu_toolkit.ncu_source import CodeTexts
from ncu_toolkit.workers import without_collector

#: Seconds for a report that another process reads: ten thousand launches take minutes.
TIMEOUT: Final = 3600.0
_VERSION = re.compile(rb"(20\d\d\.\d+\.\d+)\.\d+ \(build \d+\)")


@dataclass(frozen=True)
class LoadedReport:
    """A report's profiles with what is known to be missing."""

    path: str
    profiles: tuple[Profile, ...]
    ncu_version: str
    declared_launches: int
    damage: str = ""
    """Empty when the framing is whole; else where the file stops making sense (only with allow_partial)."""
    read_launches: int = 0
    checksum: str = ""
    """Where a matching SHA-256 of the file was found; empty where there is none to hold it against."""


def load_profiles(path: Path | str, *, instructions: bool = True, allow_partial: bool = False) -> tuple[Profile, ...]:
    """The profiles of one report, in file order. See `load_report`."""
    return load_report(path, instructions=instructions, allow_partial=allow_partial).profiles


def load_report(path: Path | str, *, instructions: bool = True, allow_partial: bool = False) -> LoadedReport:
    """Read a `.ncu-rep` (or `.ncu-rep.xz`), in a process of its own where the profiler's module may not share this one (ncu_module.py).

    Args:
        instructions: also read per-instruction counters and source (most of the time of a load).
        allow_partial: analyse what is intact of a damaged file instead of refusing it.

    Raises:
        InputProblem: unreadable, not a report, damaged, or launches missing against what the file declares.
        EnvironmentProblem: the `ncu_report` module cannot be imported.
    """
    if ncu_module.fits_here():
        return read_here(path, instructions, allow_partial)
    task = (path, instructions, allow_partial)
    (done,) = workers.run("ncu_toolkit.ncu_rep:read_here", [task], jobs=1, timeout=TIMEOUT, label=lambda _: f"'{path}'")
    if done.error is not None:
        raise done.error
    report: LoadedReport = done.value
    return report


def read_here(path: Path | str, instructions: bool, allow_partial: bool) -> LoadedReport:
    """`load_report` in this very process: for processes that have loaded nothing else."""
    profiles: list[Profile] = []
    report = visit_report(path, profiles.append, instructions=instructions, allow_partial=allow_partial)
    return replace(report, profiles=tuple(profiles))


@dataclass(frozen=True)
class Part:
    """Some of a report's launches, with all that a process must know to read them without a look at the whole file."""

    codes: Mapping[int, messages.Code | None]
    """The launches by their places in the file, and what code each ran."""
    doubts: Mapping[int, str]
    """What integrity.py found of each launch, by its place in the file."""
    ncu_version: str


def visit_report(
    path: Path | str,
    visit: Callable[[Profile], object],
    *,
    wanted: Callable[[str], bool] | None = None,
    instructions: bool = True,
    sources: bool = True,
    allow_partial: bool = False,
) -> LoadedReport:
    """Give each profile of a report to `visit` as it is read, in file order, so that a caller need not hold them all. `profiles` stays empty.

    Args:
        wanted: says from a launch's name whether to read it; every launch where None.
        instructions, allow_partial: as for `load_report`.
        sources: also give the embedded source text, which costs as much as everything else of a launch whose SASS text was kept.

    Raises:
        InputProblem, EnvironmentProblem: as `load_report`; launches that came before have been visited by then.
    """
    path = Path(path)
    data = framing.read_bytes(path)
    frame = framing.parse(data)
    report, doubts = examine(path, data, frame, allow_partial=allow_partial)
    part = Part(dict(enumerate(messages.codes(data, frame))) if instructions else {}, doubts, report.ncu_version)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        readable = plain(path, data, frame, Path(scratch))
        del data
        found = _visit(readable, path.name, part, visit, wanted, instructions=instructions, sources=sources)
    return counted(report, found, allow_partial=allow_partial)


def prepare(path: Path, codes: Sequence[messages.Code | None]) -> None:
    """Do in a process that is to read launches of a plain report what takes long and is the same for all of them.

    That is a tenth of a second for the first launch that is opened, and four more for the first instruction that is disassembled, which no
    launch may need.
    """
    ncu = ncu_module.module()
    context = ncu.load_report(str(path))
    index, code = next(((index, code) for index, code in enumerate(codes) if code is not None and code.base is not None), (0, None))
    action = context.range_by_idx(0).action_by_idx(index)
    if code is not None and not CodeTexts(dict(enumerate(codes)), texts_folder(ncu)).complete():
        action.sass_by_pc(code.base)


def visit_part(
    path: Path, part: Part, visit: Callable[[Profile], object], *, wanted: Callable[[str], bool] | None = None, sources: bool = True
) -> int:
    """As `visit_report`, for some launches of a plain report that `examine` has looked at; how many the whole of it holds."""
    return _visit(path, path.name, part, visit, wanted, sources=sources, span=part.codes)


def plain(path: Path, data: bytes, frame: framing.Framing, scratch: Path) -> Path:
    """The report as the profiler's module can read it: unpacked, without the end that makes no sense, and under a name that it takes, which
    has to be UTF-8; `path` itself where that is the same."""
    if path.suffix == ".ncu-rep" and not frame.problem and os.fsencode(path).decode("utf-8", "replace") == str(path):
        return path
    readable = scratch / "report.ncu-rep"
    readable.write_bytes(data[: frame.intact_bytes] if frame.problem else data)
    return readable


def counted(report: LoadedReport, found: int, *, allow_partial: bool) -> LoadedReport:
    """The report with the number of launches that the module found. Raises InputProblem where they are not all; not with allow_partial."""
    if found == report.declared_launches:
        return replace(report, read_launches=found)
    message = f"'{report.path}' declares {report.declared_launches} launches, {found} could be read"
    if not allow_partial:
        raise InputProblem(message, "The file is damaged, or written by an ncu newer than the installed ncu-report module: upgrade it with pip")
    return replace(report, read_launches=found, damage="; ".join(filter(None, (report.damage, message))))


def examine(path: Path, data: bytes, frame: framing.Framing, *, allow_partial: bool = False) -> tuple[LoadedReport, Mapping[int, str]]:
    """What is known of a report before the profiler's module reads it, and what does not fit in each launch.

    Raises:
        InputProblem: the checksum beside it differs, it is damaged, holds no launches, or contradicts itself as a whole; not with allow_partial.
    """
    found = checksums.verify(path)
    if found.problem and not allow_partial:
        raise InputProblem(f"'{path}' {found.problem}", "Copy or record it again, or analyse it as it is with --allow-partial")
    if frame.problem and not allow_partial:
        raise InputProblem(
            f"'{path}' is damaged {frame.problem}; {frame.declared_launches} launches before that are intact",
            "Copy or record it again, or analyse the intact part with --allow-partial",
        )
    if not frame.declared_launches and not frame.problem and not allow_partial:
        raise InputProblem(
            f"'{path}' holds no launches", "Nothing was profiled, or it was lost: see what ncu said, and that its filters match a kernel"
        )
    version = ncu_version_in(data)
    inside = integrity.inspect(data, frame, version)
    if inside.problems and not allow_partial:
        raise InputProblem(
            f"'{path}' contradicts itself: {inside.problems[0]}",
            "It was changed after it was written; copy or record it again, or use --allow-partial",
        )
    damage = "; ".join(filter(None, (found.problem, frame.problem, *inside.problems)))
    return LoadedReport(str(path), (), version, frame.declared_launches, damage, 0, found.source), inside.launches


def ncu_version_in(data: bytes) -> str:
    """The version of the ncu that wrote the report, from its session data; empty where it is not there."""
    found = _VERSION.search(data)
    return found.group(1).decode() if found else ""


def texts_folder(ncu: Any) -> Path | None:
    """Where SASS texts are kept that this very module made; None where there is no place for it."""
    try:
        made = Path(getattr(ncu, "_ncu_report", ncu).__file__).stat()
        return toolchain.cache_folder() / "sass" / f"{made.st_size:x}-{made.st_mtime_ns:x}"
    except (OSError, RuntimeError):  # there may be no home
        return None


def _visit(
    path: Path,
    name: str,
    part: Part,
    visit: Callable[[Profile], object],
    wanted: Callable[[str], bool] | None,
    *,
    instructions: bool = True,
    sources: bool = True,
    span: Collection[int] | None = None,
) -> int:
    """Visit the launches (those in `span`); returns how many the module found, wanted or not. `name` is the file's as it was given.

    A launch outside `span` is not even opened: the module never frees what it took for one.
    """
    ncu = ncu_module.module()
    context = ncu.load_report(str(path))
    ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    codes, doubts = part.codes, part.doubts
    if len(ranges) > 1:  # launches are then grouped by range, not in the order in which they were written
        codes = {}
        one = next(iter(doubts.values()), "")
        doubts = dict.fromkeys(range(sum(each.num_actions() for each in ranges)), f"a launch of this file contradicts itself: {one}") if one else {}
    texts = CodeTexts(codes, texts_folder(ncu)) if instructions else None
    found = 0
    with without_collector():
        for range_index, report_range in enumerate(ranges):
            for action_index in range(report_range.num_actions()):
                found += 1
                if span is not None and found - 1 not in span:
                    continue
                action = report_range.action_by_idx(action_index)
                if wanted is None or wanted(_kernel_name(action)):
                    origin = Origin(name, range_index, action_index, part.ncu_version)
                    visit(_profile(action, origin, texts, doubts.get(found - 1, ""), sources=sources))
    if texts is not None and texts.folder is not None and texts.written:
        ncu_source.trim(texts.folder.parent)
    return found


def _kernel_name(action: Any) -> str:
    """Empty where its text is damaged."""
    return str(action.name(action.NameBase_DEMANGLED) or action.name(action.NameBase_FUNCTION) or "")


def _profile(action: Any, origin: Origin, code: CodeTexts | None, doubt: str, *, sources: bool = True) -> Profile:
    names = frozenset(action.metric_names())
    device = _device(action, names)
    readings = {entry.name: _reading(action, names, entry, device.cc) for entry in metrics.REGISTRY.values()}
    launch = _launch(action, names, readings)
    table, found = ncu_source.instructions(action, names, code, origin.action_index) if code is not None else ((), [])
    if launch.function and launch.function not in launch.kernel:
        found.append("its name and its demangled name differ")
    doubts = "; ".join(filter(None, (doubt, *found[:2])))
    if doubts:
        before = "" if launch.complete else f"{launch.status}; "
        launch = replace(launch, status=f"{before}damaged: {doubts}")
    return Profile(
        origin=origin,
        device=device,
        launch=launch,
        readings=readings,
        stalls=_stalls(readings),
        mix=ncu_source.mix(action, names, table),
        instructions=table,
        sources=ncu_source.sources(action) if code is not None and sources else {},
        rules=tuple(ncu_rules.messages_of(action)),
    )


def _number(action: Any, names: frozenset[str], name: str) -> float | None:
    if name not in names:
        return None
    value = action.metric_by_name(name).value()
    return float(value) if isinstance(value, int | float) else None


def _integer(action: Any, names: frozenset[str], name: str) -> int:
    value = _number(action, names, name)
    return int(value) if value is not None and math.isfinite(value) else 0


def _text(action: Any, names: frozenset[str], name: str) -> str:
    return str(action.metric_by_name(name).value()) if name in names else ""


def _device(action: Any, names: frozenset[str]) -> Device:
    def number(fact: str) -> int:
        return _integer(action, names, metrics.DEVICE_FACTS[fact])

    return Device(
        name=_text(action, names, metrics.DEVICE_FACTS["name"]),
        cc=(number("cc_major"), number("cc_minor")),
        chip=_text(action, names, metrics.DEVICE_FACTS["chip"]),
        sm_count=number("sm_count") or _integer(action, names, metrics.LAUNCH_FACTS["sm_count"]),
        l2_bytes=number("l2_bytes"),
        memory_bytes=number("memory_bytes"),
        max_sm_hz=number("sm_khz") * 1e3,
        max_memory_hz=number("memory_khz") * 1e3,
        memory_bus_bits=number("bus_bits") or number("fb_bus_bits"),
        max_warps_per_sm=number("max_warps"),
        schedulers_per_sm=number("schedulers") or 4,
        max_registers_per_sm=number("max_registers"),
        max_shared_per_sm=number("max_shared"),
    )


def _reading(action: Any, names: frozenset[str], entry: metrics.Metric, cc: tuple[int, int]) -> Reading:
    for name in entry.ncu:
        if name not in names:
            continue
        found = action.metric_by_name(name)
        raw = found.value()
        if not isinstance(raw, int | float):
            continue
        if not math.isfinite(raw):
            return Reading(entry.name, None, entry.unit, Presence.UNDEFINED)
        value = float(raw) * _factor(entry, name, found.unit())
        if metrics.over_elapsed(entry, name):
            part = _active_part(action, names)
            if not part:
                continue
            value /= part
        return Reading(entry.name, value, entry.unit, Presence.PRESENT)
    presence = Presence.NOT_COLLECTED if cc == (0, 0) or entry.available_on(cc) else Presence.NOT_AVAILABLE
    return Reading(entry.name, None, entry.unit, presence)


def _active_part(action: Any, names: frozenset[str]) -> float | None:
    """Mean part of the time in which an SM had work; None where the report does not say."""
    active, elapsed = (
        next((value for name in metrics.REGISTRY[short].ncu if (value := _number(action, names, name))), None)
        for short in ("sm_active_cycles", "sm_cycles")
    )
    return min(1.0, active / elapsed) if active and elapsed else None


def _factor(entry: metrics.Metric, name: str, unit: str) -> float:
    if entry.unit == "fraction":
        return 0.01 if unit == "%" or "pct" in name else 1.0
    converted = metrics.CONVERSIONS.get(unit)
    return converted[1] if converted is not None and converted[0] == entry.unit else 1.0


def _launch(action: Any, names: frozenset[str], readings: Mapping[str, Reading]) -> Launch:
    def number(fact: str) -> int:
        return _integer(action, names, metrics.LAUNCH_FACTS[fact])

    grid = (number("grid_x"), number("grid_y"), number("grid_z"))
    block = (number("block_x"), number("block_y"), number("block_z"))
    if not any(grid):
        grid = (number("grid_size"), 1, 1)
    if not any(block):
        block = (number("block_size"), 1, 1)
    function = str(action.name(action.NameBase_FUNCTION) or "")
    return Launch(
        kernel=_kernel_name(action),
        function=function,
        grid=grid,
        block=block,
        registers=number("registers"),
        shared_static=number("shared_static"),
        shared_dynamic=number("shared_dynamic"),
        shared_driver=number("shared_driver"),
        shared_config=number("shared_config"),
        cluster=number("cluster"),
        stream=number("stream"),
        nvtx=_nvtx(action),
        status=_status(function, names, readings, grid),
    )


def _status(function: str, names: frozenset[str], readings: Mapping[str, Reading], grid: tuple[int, int, int]) -> str:
    if not names:
        return "incomplete: the report holds no metrics for this launch; the file is damaged or profiling was stopped"
    if metrics.LAUNCH_FACTS["grid_size"] not in names or not all(grid):
        return "incomplete: the launch was not finished when profiling ended (no grid size, no duration): a crash, a time-out or an interrupt"
    if readings["duration"].presence is Presence.UNDEFINED:
        return "incomplete: its duration is not a number, as after a launch that failed under the profiler"
    if readings["duration"].value == 0:
        return "incomplete: its duration is 0"
    if not function:
        return "incomplete: the launch has no name; the file is damaged"
    return "complete"


def _nvtx(action: Any) -> tuple[str, ...]:
    state = action.nvtx_state()
    if state is None:
        return ()
    ranges: list[str] = []
    for identifier in state.domains():
        domain = state.domain_by_id(identifier)
        ranges.extend(str(name) for name in domain.push_pop_ranges())
    return tuple(ranges)


def _stalls(readings: Mapping[str, Reading]) -> StallStack | None:
    reasons = [(reason, readings[f"stall_{reason}"].value) for reason in metrics.STALL_REASONS]
    present = [(reason, value) for reason, value in reasons if value is not None]
    if not present:
        return None
    present.sort(key=lambda item: -item[1])
    return StallStack(tuple(present), readings["warp_latency"].value)


def profile_from_action(action: Any) -> Profile:
    """One launch as the profiler holds it while it applies its rules: the same object as in a file, but for what rules have said."""
    return _profile(action, Origin("", 0, 0), CodeTexts(), "")
