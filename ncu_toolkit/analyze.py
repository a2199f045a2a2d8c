"""Anybody's reports -> verdicts: every file read in a worker of its own, every launch diagnosed, repeats of a kernel grouped with their spread.

Nothing is left out in silence: files that cannot be read, launches that are missing and launches that are incomplete are part of the result.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ncu_toolkit import workers
from ncu_toolkit.errors import InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.model import Diagnosis, Origin, Profile

if TYPE_CHECKING:
    from ncu_toolkit import ncu_rep

SUFFIXES: Final = (".ncu-rep", ".ncu-rep.xz", ".ncu-repz")
#: Seconds for one file: a report of ten thousand launches takes minutes.
DEFAULT_TIMEOUT: Final = 900.0


@dataclass(frozen=True)
class Options:
    """How reports are read. `kernel` is a regular expression searched for in demangled names; `keep` what is kept of a launch beside its verdict."""

    kernel: str = ""
    allow_partial: bool = False
    figures: bool = False
    """Keep every registry metric's value."""
    profiles: bool = False
    """Keep whole profiles, for pages."""


@dataclass(frozen=True)
class LaunchResult:
    """One launch with its verdict. `status` is "complete" or why its data are not; `file` is the path as it was given."""

    file: str
    key: str
    kernel: str
    function: str
    gpu: str
    arch: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    status: str
    duration_us: float | None
    diagnosis: Diagnosis
    figures: dict[str, float | None] = field(default_factory=dict)
    profile: Profile | None = None

    @property
    def complete(self) -> bool:
        return self.status == "complete"


@dataclass(frozen=True)
class FileResult:
    """One file. `error` says why it could not be read, `damage` what is missing of one that was read in part."""

    path: str
    launches: tuple[LaunchResult, ...] = ()
    ncu_version: str = ""
    declared: int = 0
    read: int = 0
    damage: str = ""
    checksum: str = ""
    error: ToolkitError | None = None

    @property
    def status(self) -> str:
        return "unreadable" if self.error else "partial" if self.damage else "complete"

    @property
    def filtered_out(self) -> int:
        """Launches that --kernel left out."""
        return self.read - len(self.launches)


@dataclass(frozen=True)
class Group:
    """Launches of one file with the same kernel, grid and block, in file order; incomplete ones make groups of their own."""

    launches: tuple[LaunchResult, ...]

    @cached_property
    def times_us(self) -> tuple[float, ...]:
        """Durations, shortest first."""
        return tuple(sorted(launch.duration_us for launch in self.launches if launch.duration_us is not None and math.isfinite(launch.duration_us)))

    @property
    def total_us(self) -> float:
        return sum(self.times_us)

    @cached_property
    def median(self) -> LaunchResult:
        """The launch of median duration: the one whose verdict stands for the group."""
        return sorted(self.launches, key=lambda launch: launch.duration_us or 0.0)[(len(self.launches) - 1) // 2]

    @property
    def agreeing(self) -> int:
        """Launches whose verdict is the median one's."""
        bottleneck = self.median.diagnosis.primary.bottleneck
        return sum(launch.diagnosis.primary.bottleneck == bottleneck for launch in self.launches)

    @property
    def spread(self) -> float | None:
        """(longest - shortest) / median; None for a single launch."""
        times = self.times_us
        return (times[-1] - times[0]) / times[(len(times) - 1) // 2] if len(times) > 1 and times[0] > 0 else None


@dataclass(frozen=True)
class Analysis:
    """Everything that was asked for, in the order in which it was named."""

    files: tuple[FileResult, ...]
    options: Options = Options()

    @property
    def launches(self) -> tuple[LaunchResult, ...]:
        return tuple(launch for file in self.files for launch in file.launches)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Groups by total time, longest first; those without a time last."""
        return group_launches(self.launches)

    @property
    def total_us(self) -> float:
        return sum(group.total_us for group in self.groups)

    @property
    def incomplete(self) -> tuple[LaunchResult, ...]:
        return tuple(launch for launch in self.launches if not launch.complete)

    @property
    def damaged(self) -> tuple[FileResult, ...]:
        """Files that were read, but of which something is missing or contradicts itself."""
        return tuple(file for file in self.files if file.damage)

    @property
    def unreadable(self) -> tuple[FileResult, ...]:
        return tuple(file for file in self.files if file.error is not None)


def group_launches(launches: Iterable[LaunchResult]) -> tuple[Group, ...]:
    """Launches grouped by file, kernel, grid, block, GPU and status, the group with most time first."""
    groups: dict[tuple[object, ...], list[LaunchResult]] = {}
    for launch in launches:
        groups.setdefault((launch.file, launch.kernel, launch.grid, launch.block, launch.gpu, launch.status), []).append(launch)
    return tuple(sorted((Group(tuple(members)) for members in groups.values()), key=lambda group: -group.total_us))


def find_reports(paths: Sequence[Path]) -> tuple[list[Path], list[FileResult]]:
    """Report files among `paths` and in the folders among them, each once, and an error for each folder that holds none."""
    found: dict[Path, Path] = {}
    empty = []
    for path in paths:
        if not path.is_dir():
            found.setdefault(path.absolute(), path)
            continue
        inside = sorted(file for file in path.rglob("*") if file.name.endswith(SUFFIXES) and file.is_file())
        for file in inside:
            found.setdefault(file.absolute(), file)
        if not inside:
            empty.append(
                FileResult(
                    str(path), error=InputProblem(f"'{path}' is a folder without reports (*.ncu-rep)", "Name the report files, or their folder")
                )
            )
    return list(found.values()), empty


def analyze(
    paths: Sequence[Path],
    options: Options | None = None,
    *,
    jobs: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Read and diagnose reports, in parallel over files.

    Args:
        paths: report files, and folders that are searched for them.
        jobs: worker processes; one for each processor where None.
        timeout: seconds for one file.
        progress: told each file's name when it is done.

    Raises:
        UsageProblem: the kernel filter is no regular expression.
    """
    options = options or Options()
    pattern(options.kernel)
    files, results = find_reports(paths)
    ordered: list[FileResult | None] = [None] * len(files)
    jobs = jobs or workers.default_jobs()
    tasks = [(str(path), options, max(1, jobs // max(1, len(files))), timeout) for path in files]
    for done in workers.run("ncu_toolkit.analyze:read_file", tasks, jobs=jobs, timeout=timeout, label=lambda index: f"'{files[index]}'"):
        path = str(files[done.index])
        ordered[done.index] = done.value if done.error is None else FileResult(path, error=done.error)
        if progress is not None:
            progress(path)
    return Analysis((*(result for result in ordered if result is not None), *results), options)


def pattern(text: str) -> re.Pattern[str] | None:
    """The kernel filter, compiled; None where there is none. Raises UsageProblem for text that is no regular expression."""
    if not text:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageProblem(f"--kernel '{text}' is not a regular expression: {error}", "Quote special characters with a backslash") from None


def read_file(path: str, options: Options, jobs: int = 1, timeout: float = DEFAULT_TIMEOUT) -> FileResult:
    """Read and diagnose one file; runs in a worker. Instruction tables are dropped launch by launch unless profiles are kept.

    A large report is read in parts, by up to `jobs` processes of their own: the profiler's module never frees a launch that it has opened, and
    it disassembles one instruction after the other, which is most of the time.

    Raises:
        InputProblem, EnvironmentProblem: as `ncu_rep.visit_report`.
    """
    from ncu_toolkit import framing, messages, ncu_rep

    data = framing.read_bytes(Path(path))
    frame = framing.parse(data)
    lengths = [length for block in frame.blocks for _, length in block.results]
    spans: Sequence[Sequence[int]] = [range(start, stop) for start, stop in parts(lengths)]
    if len(spans) == 1 and jobs > 1 and sum(lengths) > 2 * SHARE_BYTES:
        codes = messages.codes(data, frame, spans[0])
        spans = shares(lengths, [code.digest if code else None for code in codes], jobs)
    if len(spans) <= 1:
        launches: list[LaunchResult] = []
        report = ncu_rep.visit_report(path, _judge_into(launches, path, options), wanted=_wanted(options), allow_partial=options.allow_partial)
        return _file(path, report, launches)
    report, doubts = ncu_rep.examine(Path(path), data, frame, allow_partial=options.allow_partial)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        plain = Path(path)
        if plain.suffix != ".ncu-rep":
            plain = Path(scratch) / "report.ncu-rep"
            plain.write_bytes(data)
        del data
        tasks = [(path, str(plain), options, ncu_rep.Part(frozenset(span), doubts)) for span in spans]
        found: list[tuple[LaunchResult, ...]] = [()] * len(tasks)
        seen = 0
        for done in workers.run(
            "ncu_toolkit.analyze:read_part", tasks, jobs=jobs, timeout=timeout, label=lambda index: f"part {index + 1} of '{path}'", fresh=True
        ):
            if done.error is not None:
                if not options.allow_partial:
                    raise done.error
                lost = f"{_places(spans[done.index])}: {done.error.message}"
                report = replace(report, damage="; ".join(filter(None, (report.damage, lost))))
            else:
                found[done.index], count = done.value
                seen = max(seen, count)
    if seen < report.declared_launches and not options.allow_partial:
        message = f"'{path}' declares {report.declared_launches} launches, {seen} could be read"
        raise InputProblem(message, "The file is damaged, or written by an ncu newer than the installed ncu-report module: upgrade it with pip")
    together = sorted((launch for part in found for launch in part), key=lambda launch: tuple(map(int, launch.key.split("."))))
    return _file(path, replace(report, read_launches=seen), together)


#: A part of a report that one process reads: launches, and bytes of their messages. The module keeps some 20 bytes for each of those.
PART_LAUNCHES: Final = 1000
PART_BYTES: Final = 64 << 20


def parts(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Launches in parts of at most PART_LAUNCHES and PART_BYTES (one launch at least), as (start, stop), from the lengths of their messages."""
    found = []
    start = size = 0
    for index, length in enumerate(lengths):
        if index > start and (index - start >= PART_LAUNCHES or size + length > PART_BYTES):
            found.append((start, index))
            start, size = index, 0
        size += length
    return [*found, (start, len(lengths))]


#: Bytes of messages for which another process is worth its start: half a second of starting and loading against as much of reading.
SHARE_BYTES: Final = 1 << 20


def shares(lengths: Sequence[int], codes: Sequence[bytes | None], jobs: int) -> list[list[int]]:
    """Launches dealt out to at most `jobs` processes, each as places in file order, so that all have about as many bytes to read.

    Launches that ran the same code stay together, as far as one share holds them: its text is then made once. `codes` has a digest for each
    launch, None where the code is not known.
    """
    total = sum(lengths)
    count = max(1, min(jobs, total // SHARE_BYTES))
    groups: dict[object, list[int]] = {}
    for index, code in enumerate(codes):
        groups.setdefault(index if code is None else code, []).append(index)
    pieces: list[list[int]] = []
    for group in groups.values():
        room = 0
        for index in group:
            if room < lengths[index]:
                pieces.append([])
                room = max(total // count, lengths[index])
            pieces[-1].append(index)
            room -= lengths[index]
    dealt: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=lambda piece: -sum(lengths[index] for index in piece)):
        least = sizes.index(min(sizes))
        dealt[least] += piece
        sizes[least] += sum(lengths[index] for index in piece)
    return [sorted(share) for share in dealt if share]


def _places(span: Sequence[int]) -> str:
    """The launches of a part in words: `launches 0 to 999`, or one by one where they do not follow each other."""
    if len(span) > 1 and span[-1] - span[0] == len(span) - 1:
        return f"launches {span[0]} to {span[-1]}"
    return f"launch{'es' if len(span) > 1 else ''} {', '.join(map(str, span))}"


def read_part(path: str, plain: str, options: Options, part: ncu_rep.Part) -> tuple[tuple[LaunchResult, ...], int]:
    """Some launches of a report, for `read_file`; and how many launches the whole of it holds. `plain` is the same report unpacked."""
    from ncu_toolkit import ncu_rep

    launches: list[LaunchResult] = []
    allow = options.allow_partial
    report = ncu_rep.visit_report(plain, _judge_into(launches, path, options), wanted=_wanted(options), allow_partial=allow, part=part)
    return tuple(launches), report.read_launches


def _judge_into(launches: list[LaunchResult], path: str, options: Options) -> Callable[[Profile], None]:
    return lambda profile: launches.append(judge(profile, path, options))


def _wanted(options: Options) -> Callable[[str], bool] | None:
    wanted = pattern(options.kernel)
    return (lambda name: wanted.search(name) is not None) if wanted else None


def _file(path: str, report: ncu_rep.LoadedReport, launches: list[LaunchResult]) -> FileResult:
    broken = sum("damaged:" in launch.status for launch in launches)
    said = f"{broken} launch{'es contradict themselves' if broken > 1 else ' contradicts itself'}" if broken else ""
    damage = "; ".join(filter(None, (report.damage, said)))
    return FileResult(path, tuple(launches), report.ncu_version, report.declared_launches, report.read_launches, damage, report.checksum)


def judge(profile: Profile, path: str, options: Options) -> LaunchResult:
    """A profile's verdict. What was considered and ruled out is kept only with the whole profile: it would be most of a large result."""
    from ncu_toolkit.diagnose import diagnose

    diagnosis = diagnose(profile)
    launch, origin = profile.launch, profile.origin
    whole = replace(profile, origin=Origin(path, origin.range_index, origin.action_index, origin.ncu_version)) if options.profiles else None
    return LaunchResult(
        file=path,
        key=origin.key,
        kernel=launch.kernel,
        function=launch.function,
        gpu=profile.device.name,
        arch=profile.device.arch,
        grid=launch.grid,
        block=launch.block,
        status=launch.status,
        duration_us=profile.duration_us,
        diagnosis=diagnosis if options.profiles else replace(diagnosis, considered=()),
        figures={name: reading.value for name, reading in profile.readings.items()} if options.figures else {},
        profile=whole,
    )
