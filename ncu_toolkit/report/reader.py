"""Report file -> Profiles, through NVIDIA's `ncu_report` module.

The module raises only for a path that does not exist, so the framing is checked first
(`framing.py`) and the launches that came back are counted against those declared. Launches are
keyed by their place in the file, never by name."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.core import cache, units, workers
from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, partly
from ncu_toolkit.core.workers import without_collector
from ncu_toolkit.model import Frame, Launch, MachineCode, Origin, Profile
from ncu_toolkit.report import (
    checksums,
    framing,
    integrity,
    line_tables,
    messages,
    missed,
    ncu_action,
    ncu_module,
    ncu_source,
)
from ncu_toolkit.report.ncu_source import CodeTexts

#: Time limit for a report that a worker reads: ten thousand launches take minutes.
TIMEOUT: Final = 3600.0
_AGAIN: Final = "Copy or record it again"
_VERSION = re.compile(rb"(20\d\d\.\d+\.\d+)\.\d+ \(build \d+\)")


@dataclass(frozen=True)
class LoadedReport:
    """A report's profiles with what is known of the whole file."""

    path: str
    profiles: tuple[Profile, ...]
    ncu_version: str
    declared_launches: int
    damage: str = ""
    """Empty where every byte can be read; else where the damage starts (only with
    allow_partial)."""
    missing: str = ""
    """Missing launches or the missing end of a readable file."""
    read_launches: int = 0
    checksum: str = ""
    """The file with the matching SHA-256; empty where there is none."""
    left_out: str = ""
    """A sentence on launches that ncu's filters left out (missed.py)."""
    values: tuple[Mapping[str, ncu_action.Value], ...] = ()
    """The numbers of each profile's launch by the profiler's own names, where they were asked
    for."""


def load_profiles(
    path: Path | str, *, instructions: bool = True, allow_partial: bool = False
) -> tuple[Profile, ...]:
    """The profiles of one report, in file order. See `load_report`."""
    return load_report(path, instructions=instructions, allow_partial=allow_partial).profiles


def load_report(
    path: Path | str,
    *,
    instructions: bool = True,
    allow_partial: bool = False,
    values: bool = False,
) -> LoadedReport:
    """Read a `.ncu-rep`, also packed (`.ncu-repz`, `.ncu-rep.xz`), in a process of its own where the
    profiler's module may not share this one (ncu_module.py).

    Args:
        instructions: also read per-instruction counters and source (most of the time of a load).
        allow_partial: analyse what is intact of a damaged file instead of refusing it.
        values: also keep the numbers of each launch as the profiler has them.

    Raises:
        InputProblem: unreadable: not a report, damaged, or without a launch.
        EnvironmentProblem: the `ncu_report` module cannot be imported.
    """
    if ncu_module.fits_here():
        return _read_here(path, instructions, allow_partial, values)
    task = (path, instructions, allow_partial, values)
    (done,) = workers.run(
        "ncu_toolkit.report.reader:_read_here",
        [task],
        jobs=1,
        timeout=TIMEOUT,
        label=lambda _: f"'{path}'",
    )
    if done.error is not None:
        raise done.error
    report: LoadedReport = done.value
    return report


def _read_here(
    path: Path | str, instructions: bool, allow_partial: bool, values: bool
) -> LoadedReport:
    """`load_report` in this process, which must not have loaded other C++ code."""
    profiles: list[Profile] = []
    numbers: list[Mapping[str, ncu_action.Value]] = []
    report = visit_report(
        path,
        profiles.append,
        instructions=instructions,
        allow_partial=allow_partial,
        values=numbers.append if values else None,
    )
    return replace(report, profiles=tuple(profiles), values=tuple(numbers))


@dataclass(frozen=True)
class Part:
    """A part of a report's launches, with all that a process needs to read them."""

    codes: Mapping[int, messages.Code | None]
    """The launches by their places in the file, and what code each ran."""
    contradictions: Mapping[int, Mapping[str, tuple[str, ...]]]
    """Contradictions of each launch by its place in the file."""
    ncu_version: str
    callers: Callers = field(default_factory=lambda: Callers({}, ()))
    machine: Mapping[int, MachineCode | None] = field(default_factory=dict)
    """What the launches' machine code holds, by their places in the file."""


@dataclass(frozen=True)
class Callers:
    """What the report module does not tell of who launched what, by a launch's place in the file."""

    stacks: Mapping[int, tuple[Frame, ...]]
    processes: Sequence[int]

    def of(self, place: int, launch: Launch) -> Launch:
        """The launch with its stack and process."""
        process = self.processes[place] if place < len(self.processes) else 0
        return replace(launch, stack=self.stacks.get(place, ()), process=process)


def callers(data: bytes, frame: framing.Framing) -> Callers:
    """Who launched what; nothing where a header cannot be read."""
    try:
        processes = [messages.process(block) for block in frame.blocks for _ in block.results]
        several = len(set(processes)) > 1
        return Callers(messages.stacks(data, frame), processes if several else ())
    except framing.Malformed:
        return Callers({}, ())


def visit_report(
    path: Path | str,
    visit: Callable[[Profile], object],
    *,
    wanted: Callable[[str], bool] | None = None,
    instructions: bool = True,
    allow_partial: bool = False,
    values: Callable[[Mapping[str, ncu_action.Value]], object] | None = None,
) -> LoadedReport:
    """Give each profile of a report to `visit` as it is read, in file order, so that a caller need
    not hold them all. `profiles` stays empty.

    Args:
        wanted: says from a launch's name whether to read it; every launch where None.
        instructions, allow_partial: as for `load_report`.
        values: takes the numbers of each launch that is visited, by the profiler's own names.

    Raises:
        InputProblem, EnvironmentProblem: as `load_report`; launches that came before have been
            visited by then.
    """
    path = Path(path)
    data = framing.read_bytes(path)
    frame = framing.parse(data)
    report, contradictions = examine(path, data, frame, allow_partial=allow_partial)
    part = Part(
        dict(enumerate(messages.codes(data, frame))) if instructions else {},
        contradictions,
        report.ncu_version,
        callers(data, frame),
        dict(enumerate(messages.machine(data, frame))) if instructions else {},
    )
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        readable = plain(path, data, frame, Path(scratch))
        del data
        found = _visit(
            readable, path.name, part, visit, wanted, instructions=instructions, values=values
        )
    return counted(report, found)


def prepare(path: Path, codes: Sequence[messages.Code | None]) -> None:
    """Warm up a process that will read launches of a plain report.

    That is a tenth of a second for the first launch that is opened, and four more for the first
    instruction that is disassembled, which no launch may need."""
    ncu = ncu_module.module()
    context = ncu.load_report(str(path))
    index, code = next(
        (
            (index, code)
            for index, code in enumerate(codes)
            if code is not None and code.base is not None
        ),
        (0, None),
    )
    action = context.range_by_idx(0).action_by_idx(index)
    if code is not None and not CodeTexts(dict(enumerate(codes)), _texts_folder(ncu)).complete():
        action.sass_by_pc(code.base)


def visit_part(
    path: Path,
    part: Part,
    visit: Callable[[Profile], object],
    *,
    wanted: Callable[[str], bool] | None = None,
) -> int:
    """As `visit_report`, for some launches of a plain report that `examine` has looked at; how many
    the whole of it holds."""
    return _visit(path, path.name, part, visit, wanted, span=part.codes)


def plain(path: Path, data: bytes, frame: framing.Framing, scratch: Path) -> Path:
    """The report as the profiler's module can read it: unpacked, without the end and the line tables
    that make no sense, and under a name that it takes, which has to be UTF-8; `path` itself where
    that is the same."""
    whole = data
    if frame.problem:
        data = data[: frame.intact_bytes]
    if line_tables.problem(data, frame):
        data = line_tables.emptied(data, frame)
    if (
        path.suffix == ".ncu-rep"
        and data is whole
        and os.fsencode(path).decode("utf-8", "replace") == str(path)
        and path.stat().st_size == len(data)  # else it is compressed, whatever its name
    ):
        return path
    readable = scratch / "report.ncu-rep"
    readable.write_bytes(data)
    return readable


def counted(report: LoadedReport, found: int) -> LoadedReport:
    """The report with the number of launches that the module found; where they are not all, some
    are missing."""
    if found == report.declared_launches:
        return replace(report, read_launches=found)
    lost = (
        f"it declares {report.declared_launches} launches, and {found} could be read; an ncu-report "
        "module as new as the ncu that wrote it may read all (upgrade it with pip)"
    )
    return replace(
        report, read_launches=found, missing="; ".join(filter(None, (report.missing, lost)))
    )


def examine(
    path: Path, data: bytes, frame: framing.Framing, *, allow_partial: bool = False
) -> tuple[LoadedReport, Mapping[int, Mapping[str, tuple[str, ...]]]]:
    """What is known of a report before the profiler's module reads it, and what does not fit in
    each launch.

    Raises:
        InputProblem: the checksum beside it differs, it is damaged, or has no launches; not with
            allow_partial.
    """
    found = checksums.verify(path)
    if found.problem and not allow_partial:
        raise InputProblem(
            f"'{path}' {found.problem}",
            f"{_AGAIN}; {partly(path)}",
        )
    if frame.problem and not allow_partial:
        intact = frame.declared_launches
        raise InputProblem(
            f"'{path}' is damaged {frame.problem}; {units.counted(intact, 'launch', 'launches') if intact else 'no launch'} before that "
            f"{'is' if intact < 2 else 'are'} intact",
            f"{_AGAIN}; {partly(path)}" if intact else _AGAIN,
        )
    if not frame.declared_launches and not frame.problem and not allow_partial:
        raise InputProblem(
            f"'{path}' has no launches",
            "Nothing was profiled, or it was lost: see what ncu said, and that its filters match a kernel",
        )
    version = ncu_version_in(data)
    inside = integrity.inspect(data, frame, version)
    broken = inside.damage or line_tables.problem(data, frame)
    if broken and not allow_partial:
        raise InputProblem(
            f"'{path}' is damaged {broken}",
            f"{_AGAIN}; {partly(path)}" if frame.declared_launches else _AGAIN,
        )
    damage = "; ".join(filter(None, (found.problem, frame.problem, broken)))
    return LoadedReport(
        str(path),
        (),
        version,
        frame.declared_launches,
        damage,
        inside.missing,
        0,
        found.source,
        missed.left_out(frame),
    ), inside.contradictions


def ncu_version_in(data: bytes) -> str:
    """The version of the ncu that wrote the report; empty where the report does not say."""
    found = _VERSION.search(data)
    return found.group(1).decode() if found else ""


def _texts_folder(ncu: Any) -> Path | None:
    """Folder of cached SASS texts of this module; None without a cache."""
    try:
        made = Path(getattr(ncu, "_ncu_report", ncu).__file__).stat()
        return cache.cache_folder() / "sass" / f"{made.st_size:x}-{made.st_mtime_ns:x}"
    except (OSError, EnvironmentProblem):  # There may be no home folder.
        return None


def _visit(
    path: Path,
    name: str,
    part: Part,
    visit: Callable[[Profile], object],
    wanted: Callable[[str], bool] | None,
    *,
    instructions: bool = True,
    span: Collection[int] | None = None,
    values: Callable[[Mapping[str, ncu_action.Value]], object] | None = None,
) -> int:
    """Visit the launches (those in `span`); returns how many the module found, wanted or not.
    `name` is the file's as it was given.

    A launch outside `span` is not even opened: the module never frees what it took for one.
    """
    ncu = ncu_module.module()
    context = ncu.load_report(str(path))
    ranges = [context.range_by_idx(i) for i in range(context.num_ranges())]
    codes, contradictions, who = part.codes, part.contradictions, part.callers
    machine = part.machine
    if (
        len(ranges) > 1
    ):  # launches are then grouped by range, not in the order in which they were written
        codes, machine = {}, {}
        who = Callers({}, ())
        contradictions = _of_every_launch(
            contradictions, sum(each.num_actions() for each in ranges)
        )
    texts = CodeTexts(codes, _texts_folder(ncu)) if instructions else None
    found = 0
    with without_collector():
        for range_index, report_range in enumerate(ranges):
            for action_index in range(report_range.num_actions()):
                found += 1
                if span is not None and found - 1 not in span:
                    continue
                action = report_range.action_by_idx(action_index)
                if wanted is None or wanted(ncu_action.kernel_name(action)):
                    origin = Origin(name, range_index, action_index, part.ncu_version)
                    found_there = contradictions.get(found - 1, {})
                    read = ncu_action.profile_of(action, origin, texts, found_there)
                    read = replace(read, launch=who.of(found - 1, read.launch))
                    code = machine.get(found - 1)
                    # What was counted says more than what is there.
                    counted = read.instructions or read.mix.collected
                    visit(read if code is None or counted else replace(read, code=code))
                    if values is not None:
                        values(ncu_action.numbers(action))
    if texts is not None and texts.folder is not None and texts.written:
        ncu_source.trim(texts.folder.parent)
    return found


def _of_every_launch(
    contradictions: Mapping[int, Mapping[str, tuple[str, ...]]], launches: int
) -> Mapping[int, Mapping[str, tuple[str, ...]]]:
    """Contradictions of one launch, given to all launches where it is not known which one it is."""
    shared = {
        f"in a launch of this file {sentence}": names
        for one in contradictions.values()
        for sentence, names in one.items()
    }
    return dict.fromkeys(range(launches), shared) if shared else {}
