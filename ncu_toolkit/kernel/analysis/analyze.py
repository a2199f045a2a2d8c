"""Anybody's reports -> verdicts: every file read in its own worker, every launch diagnosed,
repeats of a kernel grouped with their spread.

Nothing is left out in silence: files that cannot be read, launches that are missing and launches
that are incomplete are part of the result."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import pickle
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ncu_toolkit.base.core import cache, patterns, shares, workers
from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INPUT,
    EXIT_OK,
    EnvironmentProblem,
    InputProblem,
    ToolkitError,
    UsageProblem,
)
from ncu_toolkit.base.core.files import REPORT_SUFFIXES
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import shortlist
from ncu_toolkit.base.document.card import kernel_name
from ncu_toolkit.base.model import NOT_MEASURED, Diagnosis, Frame, Profile
from ncu_toolkit.base.model.profile import Extents
from ncu_toolkit.kernel.report import integrity, messages, ncu_action, reader
from ncu_toolkit.kernel.report.ncu_source import Line
from ncu_toolkit.kernel.report.reader import partly

if TYPE_CHECKING:
    from ncu_toolkit.base.document.card import Card
    from ncu_toolkit.kernel.diagnosis.chain import Chain, ChainLink
    from ncu_toolkit.kernel.diagnosis.needs import Needs

#: Kernels that are named where a filter matches none.
_EXISTING: Final = 8
#: Seconds between reports of progress, and the ending of the first card's name.
_FOLLOWED_S, _CARD = 0.1, ".card"
#: Bytes of answers that are kept; one to 10,000 launches takes 40 MB.
_KEPT_BYTES: Final = 256 << 20
#: Bytes of machine code that are worth another process for their texts: 0.7 s, at 40 µs for an
#: instruction of 16 bytes. Its disassembler needs 0.6 s to begin.
_TEXTS_BYTES: Final = 1 << 18
#: Farther from the start of a code than any instruction.
_FAR: Final = 1 << 62
#: Launches that are inspected while the text of one's code is made.
_LAUNCHES_A_TEXT: Final = 20
#: Seconds for one file: a report of ten thousand launches takes minutes.
DEFAULT_TIMEOUT: Final = 900.0


#: Takes a file, how many of its launches are judged, how many it has, and the card of the kernel
#: that takes most time, once it is known.
Progress = Callable[[str, int, int, "Card | None"], None]
#: What `reader.ReportFile.examined` returns.
_Known = tuple[reader.LoadedReport, reader.ReportPart]


@dataclass(frozen=True)
class Options:
    """How reports are read. `kernel` is a regular expression searched for in demangled names;
    `keep` what is kept of a launch beside its verdict; `needs` what launches must move and
    compute."""

    kernel: str = ""
    allow_partial: bool = False
    figures: bool = False
    """Keep every registry metric's value."""
    profiles: bool = False
    """Keep whole profiles, for pages."""
    packed: bool = False
    """Of profiles keep the instructions and the source pickled (`LaunchResult.tables`): they are
    nine tenths of the memory, and a comparison shows those of two launches."""
    needs: tuple[Needs, ...] = ()


@dataclass(frozen=True)
class LaunchResult:
    """One launch with its verdict. `status` is "complete" or why its data are not; `file` is the
    path as it was given; `contradictions` are the profile's."""

    file: str
    key: str
    kernel: str
    function: str
    gpu: str
    arch: str
    grid: Extents | None
    block: Extents | None
    status: str
    duration_us: float | None
    diagnosis: Diagnosis
    card: Card
    figures: dict[str, float | None] = field(default_factory=dict)
    profile: Profile | None = None
    contradictions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    needed_bytes: float | None = None
    """Compulsory bytes and operations, as they were given (`--needs`)."""
    needed_flops: float | None = None
    sms: int = 0
    """SMs of its GPU; 0 where the report does not say."""
    link: ChainLink | None = None
    """Its figures as a step of a chain of launches (FileResult.chains)."""
    workload: str = ""
    """As in `Launch`: what was profiled as one, and the functions launched in it."""
    inside: tuple[str, ...] = ()
    stack: tuple[Frame, ...] = ()
    process: int = 0
    device: int = 0
    tables: bytes = b""
    """What the profile lacks with `Options.packed`; `with_tables` puts it back."""

    @property
    def complete(self) -> bool:
        return self.status == "complete"

    @property
    def bottleneck(self) -> str:
        """The first cause, which is known without unpacking the verdict."""
        return vars(self).get(_CAUSE) or self.diagnosis.primary.bottleneck

    @property
    def named(self) -> str:
        return f"launch {self.key} of {self.file} ({self.function})"

    @property
    def whole(self) -> Profile | None:
        """The profile with its tables, where profiles were kept."""
        if self.profile is None or not self.tables:
            return self.profile
        return with_tables(self.profile, self.tables)

    @property
    def place(self) -> tuple[int, ...]:
        """Its place in the file, by which launches are ordered."""
        return tuple(map(int, self.key.split(".")))

    def __getstate__(self) -> dict[str, Any]:
        """Verdict and card stay packed until used: they would take 20 times the memory."""
        state = dict(vars(self))
        if _PACKED not in state:
            state[_CAUSE] = sys.intern(self.bottleneck)
            whole = tuple(state.pop(name) for name in _LAZY)
            state[_PACKED] = zlib.compress(pickle.dumps(whole, pickle.HIGHEST_PROTOCOL), 1)
        return state

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name not in _LAZY or _PACKED not in vars(self):
                raise AttributeError(name)
            return _whole(vars(self)[_PACKED])[_LAZY.index(name)]


_LAZY: Final = ("diagnosis", "card")
_PACKED: Final = "_packed"
_CAUSE: Final = "_cause"


@lru_cache(maxsize=64)
def _whole(packed: bytes) -> tuple[Diagnosis, Card]:
    """Verdict and card of a launch as they were packed."""
    with cache.without_collector():
        found: tuple[Diagnosis, Card] = pickle.loads(zlib.decompress(packed))
    return found


@dataclass(frozen=True)
class FileResult:
    """One file. `error` says why it could not be read, `damage` where the bytes of one stop making
    sense that was read all the same, `missing` what one lacks that can be read."""

    path: str
    launches: tuple[LaunchResult, ...] = ()
    ncu_version: str = ""
    declared: int = 0
    read: int = 0
    damage: str = ""
    missing: str = ""
    checksum: str = ""
    error: ToolkitError | None = None
    left_out: str = ""
    """Launches that ncu was told not to profile."""
    kernels: tuple[str, ...] = ()
    """Names of all its kernels, where --kernel chose among them."""

    @property
    def status(self) -> str:
        return "unreadable" if self.error else "partial" if self.lacking else "complete"

    @property
    def lacking(self) -> str:
        """What is missing of a file that was read in part."""
        return "; ".join(filter(None, (self.damage, self.missing)))

    @property
    def incomplete(self) -> InputProblem:
        """What a command says that refuses a file that was read in part."""
        rest = f"; {partly(self.path)}" * any(launch.complete for launch in self.launches)
        remedy = f"Copy or record it again{rest}"
        return InputProblem(f"'{self.path}' is incomplete: {self.lacking}", remedy)

    @property
    def state(self) -> str:
        """The first that holds: "unreadable", "incomplete", "contradictory", else "complete"."""
        if self.error or self.damage:
            return "unreadable"
        if self.missing or not all(launch.complete for launch in self.launches):
            return "incomplete"
        return "contradictory" if any(one.contradictions for one in self.launches) else "complete"

    @property
    def chains(self) -> tuple[tuple[Chain, tuple[LaunchResult, ...]], ...]:
        """Chains that one launch could replace; none where launches may be missing."""
        from ncu_toolkit.kernel.diagnosis import chain

        if self.filtered_out or reader.by_kernel(self.left_out):
            return ()
        found = chain.chains([launch.link for launch in self.launches])
        return tuple((each, self.launches[each.first : each.last + 1]) for each in found)

    @property
    def filtered_out(self) -> int:
        """Launches that --kernel left out."""
        return self.read - len(self.launches)


@dataclass(frozen=True)
class Packed:
    """A file as a worker sends it: its launches are in pickled parts."""

    file: FileResult
    parts: list[bytes]


def typical(times_us: Sequence[float | None]) -> int:
    """Which of several launches stands for all: shorter ones take less than half of their time. So
    many short launches do not hide few long ones, where the time goes. The median one where no time
    is known."""
    times = [time if time is not None and math.isfinite(time) else 0.0 for time in times_us]
    ordered = sorted(range(len(times)), key=times.__getitem__)
    sums = itertools.accumulate(times[at] for at in ordered)
    half = sum(times) / 2
    found = (at for at, passed in zip(ordered, sums, strict=True) if passed >= half)
    return next(found) if half else ordered[(len(ordered) - 1) // 2]


@dataclass(frozen=True)
class Group:
    """Launches of one file with the same kernel, grid, block and GPU, in file order; incomplete
    ones make their own groups."""

    launches: tuple[LaunchResult, ...]

    @cached_property
    def times_us(self) -> tuple[float, ...]:
        """Durations that are known, shortest first."""
        return tuple(sorted(self.durations_us))

    @property
    def durations_us(self) -> tuple[float, ...]:
        """Durations that are known, as the launches ran."""
        times = (launch.duration_us for launch in self.launches)
        return tuple(time for time in times if time is not None and math.isfinite(time))

    @property
    def total_us(self) -> float | None:
        """None where no launch has a time."""
        return sum(self.times_us) if self.times_us else None

    @cached_property
    def typical(self) -> LaunchResult:
        """The launch whose verdict stands for the group."""
        return self.launches[typical([launch.duration_us for launch in self.launches])]

    @property
    def agreeing(self) -> int:
        """Launches whose verdict is the typical one's."""
        return sum(launch.bottleneck == self.typical.bottleneck for launch in self.launches)


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
        """Launches alike (see `Group`), the group with most time first, those without one last."""
        groups: dict[tuple[object, ...], list[LaunchResult]] = {}
        for each in self.launches:
            key = (each.file, each.kernel, each.grid, each.block, each.gpu, each.status)
            groups.setdefault(key, []).append(each)
        made = (Group(tuple(members)) for members in groups.values())
        return tuple(sorted(made, key=lambda group: -(group.total_us or 0.0)))

    @property
    def judged(self) -> tuple[Group, ...]:
        """Groups of complete launches, in the order of an answer's cards."""
        return tuple(group for group in self.groups if group.typical.complete)

    @property
    def total_us(self) -> float | None:
        times = [group.total_us for group in self.groups if group.total_us is not None]
        return sum(times) if times else None

    @property
    def incomplete(self) -> tuple[LaunchResult, ...]:
        return tuple(launch for launch in self.launches if not launch.complete)

    @property
    def partial(self) -> tuple[FileResult, ...]:
        """Files that were read, but of which something is missing."""
        return tuple(file for file in self.files if file.status == "partial")

    @property
    def unreadable(self) -> tuple[FileResult, ...]:
        return tuple(file for file in self.files if file.error is not None)

    @property
    def missed(self) -> tuple[str, ...]:
        """What is known to be missing from the capture, a sentence each: launches that ncu was
        told to leave out, and collectives that were not finished."""
        named = len(self.files) > 1
        found = [f"{x.path}: " * named + x.left_out for x in self.files if x.left_out]
        for launch in self.launches:
            if not launch.complete and reader.is_collective(launch.kernel):
                found.append(f"Not finished: {launch.named}: {reader.COLLECTIVE}.")
        return tuple(found)

    @property
    def unused_needs(self) -> tuple[Needs, ...]:
        """Those of `Options.needs` that no launch's name matches."""
        names = {launch.kernel for launch in self.launches}
        return tuple(each for each in self.options.needs if not any(map(each.covers, names)))

    @property
    def exit_code(self) -> int:
        """4 where something of the input is missing: a file, launches, a launch's data, or any launch
        that --kernel names; 3 where this machine lacked what reading takes (space, memory, a module).

        --allow-partial accepts that where any launch is left.
        """
        if any(isinstance(file.error, EnvironmentProblem) for file in self.unreadable):
            return EXIT_ENVIRONMENT
        if self.options.allow_partial and any(launch.complete for launch in self.launches):
            return EXIT_OK
        lacks = self.unreadable or self.partial or self.incomplete
        return EXIT_INPUT if lacks or not self.launches else EXIT_OK

    @property
    def faults(self) -> list[str]:
        """One line for each missing part of the input that --allow-partial does not accept."""
        lines = [f"unreadable: {file.error}" for file in self.unreadable]
        if not self.launches and not lines:
            kernel = self.options.kernel
            other = (
                f"no launch matches --kernel '{kernel}'" if kernel else "no launch could be read"
            )
            lines.append(self.unmatched() or other)
        if self.options.allow_partial:
            return lines
        whole = {launch.file for launch in self.launches if launch.complete}

        def rest_of(path: str) -> str:
            return f"; {partly(path)}" if path in whole else ""

        lines += [
            f"incomplete: '{file.path}': {file.missing}. Copy or record it again{rest_of(file.path)}"
            for file in self.partial
        ]
        if lost := self.incomplete:
            first, more = lost[0], f", and {len(lost) - 1} more" if len(lost) > 1 else ""
            from ncu_toolkit.kernel.diagnosis.rules.unknown import ALONE  # few need the rules here

            do = ALONE if first.status.startswith(NOT_MEASURED) else "Record it again"
            lines.append(
                f"launch {first.key} of '{first.file}' ({first.function}) is {first.status}{more}. {do}{rest_of(first.file)}"
            )
        return lines

    def unmatched(self, which: str = "") -> str:
        """A line with the kernels that there are, where --kernel matches none of them; else empty."""
        names = [kernel_name(name) for file in self.files for name in file.kernels]
        if self.launches or not names:
            return ""
        which = which or ("the report has" if len(self.files) == 1 else "the reports have")
        pattern, there = visible(self.options.kernel, 80), list(dict.fromkeys(names))
        return f"no kernel matches '{pattern}'; {which}: {shortlist(there, _EXISTING)}"


def find_reports(paths: Sequence[Path]) -> tuple[list[Path], list[FileResult]]:
    """Each report among `paths` and in folders once, and an error for a folder without any."""
    found: dict[Path, Path] = {}
    lost: list[FileResult] = []
    for path in paths:
        if not os.path.isdir(path):  # Path.is_dir raises where a folder above it is closed
            found.setdefault(path.absolute(), path)
            continue
        closed: list[OSError] = []
        inside = sorted(
            Path(folder) / name
            for folder, _, names in os.walk(path, onerror=closed.append)
            for name in names  # FIFOs and broken links too: they are named when they are read
            if name.lower().endswith(REPORT_SUFFIXES)
        )
        for file in inside:
            found.setdefault(file.absolute(), file)
        remedy = "Give yourself permission with chmod, or name the files that you can read"
        for refused in closed:
            what = f"'{refused.filename}' cannot be read: {refused.strerror}"
            lost.append(FileResult(str(refused.filename), error=InputProblem(what, remedy)))
        if not inside and not closed:
            what = f"'{path}' is a folder without reports (*.ncu-rep)"
            problem = InputProblem(what, "Name the report files, or their folder")
            lost.append(FileResult(str(path), error=problem))
    return list(found.values()), lost


def analyze(
    paths: Sequence[Path],
    options: Options | None = None,
    *,
    jobs: int | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Analysis:
    """Read and diagnose reports, in parallel over files.

    Args:
        paths: report files, and folders that are searched for them.
        jobs: worker processes; one for each processor where None.
        timeout: seconds for one file.
        progress: called now and then, in another thread too, and when a file is done.
        meanwhile: called once while others read.

    Raises:
        UsageProblem: the kernel filter is no regular expression, or takes too long.
    """
    options = options or Options()
    patterns.compiled(options.kernel, "--kernel")
    files, results = find_reports(paths)
    ordered: list[FileResult | None] = [None] * len(files)
    jobs = jobs or workers.default_jobs()
    share = max(1, jobs // max(1, len(files)))
    if forks := ncu_action.fits_here():  # what both sides need, once
        import ncu_toolkit.kernel.diagnosis.engine
        import ncu_toolkit.kernel.explain.verdict  # noqa: F401
    function = "ncu_toolkit.kernel.analysis.analyze:read_packed"
    with (
        tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch,
        workers.WorkerPool(function, timeout, lambda index: f"'{files[index]}'") as pool,
        contextlib.ExitStack() as following,
    ):
        if forks:
            pool.fork(min(jobs, len(files)))
        notes = [str(Path(scratch) / str(at)) if progress else "" for at in range(len(files))]
        if progress:
            following.enter_context(
                _followed(dict(zip(notes, map(str, files), strict=True)), progress)
            )
        tasks = [(str(p), options, share, timeout, n) for p, n in zip(files, notes, strict=True)]
        for done in pool.run(tasks, jobs, meanwhile):
            path = str(files[done.index])
            ordered[done.index] = (
                unpacked(done.value) if done.error is None else FileResult(path, error=done.error)
            )
            if isinstance(done.error, UsageProblem):
                raise done.error  # the request, not the file
            if progress is not None and (result := ordered[done.index]):
                progress(path, result.read, result.read, None)
    return Analysis((*(result for result in ordered if result is not None), *results), options)


@contextlib.contextmanager
def _followed(files: Mapping[str, str], progress: Progress) -> Iterator[None]:
    """Report how far files are, by the names of the notes that workers take: a line with the number
    of launches, a point for each that is judged; and beside it the first card."""
    ended = threading.Event()

    def follow() -> None:
        while not ended.wait(_FOLLOWED_S):
            for note, path in files.items():
                with contextlib.suppress(OSError):
                    total, _, points = Path(note).read_bytes().partition(b"\n")
                    first = Path(note + _CARD)
                    shown = pickle.loads(first.read_bytes()) if first.is_file() else None
                    progress(path, len(points), int(total or 0), shown)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def prepare() -> None:
    """Load what reading a report needs, in a worker that waits for one."""
    from ncu_toolkit.kernel.diagnosis import rules
    from ncu_toolkit.kernel.explain.verdict import card  # noqa: F401
    from ncu_toolkit.kernel.report import messages, reader  # noqa: F401

    rules.load_rules()


def unpacked(packed: Packed) -> FileResult:
    """The file with its launches, in file order; each part goes when it is unpacked."""
    launches: list[LaunchResult] = []
    with cache.without_collector():
        while packed.parts:
            launches += pickle.loads(packed.parts.pop())
    launches.sort(key=lambda launch: launch.place)
    if len({launch.device for launch in launches}) > 1:  # each is shown with its GPU's number
        for at, launch in enumerate(launches):
            number = f" (GPU {launch.device})"
            card = replace(launch.card, gpu=launch.card.gpu + number)
            launches[at] = replace(launch, gpu=launch.gpu + number, card=card)
    return replace(packed.file, launches=tuple(launches))


def read_packed(
    path: str,
    options: Options,
    jobs: int = 1,
    timeout: float = DEFAULT_TIMEOUT,
    note: str = "",
) -> Packed:
    """Read and diagnose one file; runs in a worker. Instruction tables are dropped launch by launch
    unless profiles are kept.

    A large report is read in parts, by up to `jobs` their own processes: the profiler's module
    never frees a launch that it has opened, and it disassembles one instruction after the other,
    which is most of the time. `note` names a file that says how far it is (`_followed`).

    Raises:
        InputProblem, EnvironmentProblem: as `reader.visit_report`.
    """
    before = _stamp(path)
    function = "ncu_toolkit.kernel.report.reader:texts_of"
    with workers.WorkerPool(function, timeout, lambda _: f"the code in '{path}'") as makers:
        large = before is not None and before[1] > shares.WHOLE_BYTES and jobs > 1
        if large and path.endswith(REPORT_SUFFIXES[0]) and ncu_action.fits_here():
            makers.fork(1, partial(reader.warm_up, Path(path)))
        kept = _kept(path, options)
        if kept is not None and (content := cache.unsealed(kept, own=True)):
            with cache.without_collector():
                answer: Packed = pickle.loads(content)
            return answer
        found: Packed | ToolkitError
        try:
            found = _read_packed(path, options, jobs, makers, note)
            if kept and len(found.parts) > 1 and found.file.read == found.file.declared:
                with contextlib.suppress(OSError):
                    cache.seal(kept, pickle.dumps(found, pickle.HIGHEST_PROTOCOL))
                    cache.trim(kept.parent, _KEPT_BYTES)
        except ToolkitError as refused:
            found = refused
    if before != _stamp(path):  # the file is read twice: here, and by the profiler's module
        raise InputProblem(
            f"'{path}' changed while it was read", "Run it again once the file is written"
        )
    if isinstance(found, ToolkitError):
        raise found
    return found


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What changes with a file; None where there is none."""
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_ino, now.st_size, now.st_mtime_ns


def _kept(path: str, options: Options) -> Path | None:
    """Where the answer to a report is kept: by its bytes and name, what was asked, and the modules
    that read and judge it. None for whole profiles, which are large, and without a cache."""
    if options.profiles:
        return None
    try:
        what = integrity.digest(Path(path)), integrity.verify(Path(path)), _judges()
        named = hashlib.sha256(repr((path, options, sys.version, *what)).encode()).hexdigest()
        return cache.cache_folder() / "answers" / named
    except (OSError, ToolkitError):
        return None  # the reader says why


@lru_cache(maxsize=1)
def _judges() -> str:
    """Which edition of the modules and data reads and judges in this process."""
    package = Path(__file__).parents[2]
    made = *package.rglob("*.py"), *package.glob("data/*.*")
    return cache.edition(ncu_action.made_by(), *sorted(made))


@cache.without_collector()
def _read_packed(
    path: str, options: Options, jobs: int, makers: workers.WorkerPool, note: str
) -> Packed:
    file = reader.ReportFile(Path(path))
    if note:
        Path(note).write_text(f"{file.frame.declared_launches}\n")
    lengths = [length for block in file.frame.blocks for _, length in block.results]
    names = messages.functions(file.frame) if options.kernel else ()
    spans = shares.even(lengths, [code.digest or None for code in file.codes], jobs)
    if len(spans) < 2:
        launches: list[LaunchResult] = []
        visit, wanted = _judge_into(launches, path, options, note), _wanted(options)
        report = reader.visit_report(
            file, visit, wanted=wanted, allow_partial=options.allow_partial
        )
        return Packed(_file(path, report, names), [_pickled(launches)])
    with (
        tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch,
        workers.WorkerPool(
            "ncu_toolkit.kernel.analysis.analyze:read_part",
            makers.timeout,
            lambda index: f"part {index + 1} of '{path}'",
            fresh=True,
        ) as pool,
    ):
        parts = [Path(scratch) / f"{index}.ncu-rep" for index in range(len(spans))]
        texts = _texts(file, jobs, Path(scratch))
        # forks cannot share the launches once there are threads that wait for texts
        many = len(file.codes) > _LAUNCHES_A_TEXT * sum(len(cuts) for *_, cuts in texts)
        if ncu_action.fits_here():
            first, longest = Path(scratch) / "first.ncu-rep", _longest(file)
            file.write_part(first, [longest])
            if note and not options.kernel:
                code = {longest: file.codes[longest]}
                card = partial(_first_card, path, first, options, code, note)
                if many:
                    pool.fork(1, card)
                else:  # one disassembler makes both
                    texts[0] += (card,)
            pool.fork(min(jobs, len(spans)), partial(_prepare, first))
            makers.fork(len(texts))
        examine = partial(file.examined, options.allow_partial, jobs=jobs if many else 1)
        report, part = _examined(examine, many, texts, makers)
        each = zip(parts, spans, strict=True)
        tasks = [(path, str(own), options, part.of(span), note) for own, span in each]
        file.forget()
        found: list[tuple[bytes, int]] = []
        for done in pool.run(tasks, jobs, before=lambda at: file.write_part(parts[at], spans[at])):
            parts[done.index].unlink(missing_ok=True)
            if done.error is not None:
                if not options.allow_partial or isinstance(done.error, EnvironmentProblem):
                    raise done.error
                lost = f"{shares.places(sorted(spans[done.index]))}: {done.error.message}"
                report = replace(report, missing="; ".join(filter(None, (report.missing, lost))))
            else:
                found.append(done.value)
    report = reader.counted(report, sum(seen for _, seen in found))
    return Packed(_file(path, report, names), [launches_there for launches_there, _ in found])


def _examined(
    examine: Callable[[], _Known], first: bool, texts: Sequence[Any], makers: workers.WorkerPool
) -> _Known:
    """What is found of a report, first or while others make the texts that the cache lacks."""
    known = [examine()] if first else []
    lines: dict[bytes, dict[int, Line]] = {}
    for done in makers.run(texts, len(texts), None if first else lambda: known.append(examine())):
        for code, those in (done.value or {}).items():
            lines.setdefault(code, {}).update(those)
    makers.close()
    ((report, part),) = known
    return report, replace(part, lines=lines)


def _texts(file: reader.ReportFile, jobs: int, scratch: Path) -> list[tuple[Any, ...]]:
    """Launches of which the cache lacks the code's text, for `reader.texts_of`, cut into pieces of one
    size. The disassembler takes memory that it never frees, and has a thread, so that a process
    with it cannot be forked: those that make texts end before others read. Texts that they cannot
    make are left to these."""
    part = reader.ReportPart(file.path.name, "", {}, codes=dict(enumerate(file.codes)))
    sizes = {place: len(file.codes[place].text) or 1 for place in reader.lacking_texts(part)}
    total = sum(sizes.values())
    found: list[tuple[Any, ...]] = []
    for share in range(count := min(jobs, -(-total // _TEXTS_BYTES))):
        low, high = total * share // count, total * (share + 1) // count
        cuts: dict[int, range] = {}
        for place, size in sizes.items():
            if low < size and high > 0:
                cuts[place] = range(low if low > 0 else -_FAR, high if high < size else _FAR)
            low, high = low - size, high - size
        path = scratch / f"texts-{share}.ncu-rep"
        file.write_part(path, cuts)
        found.append((path, part.of([*cuts]), cuts))
    return found


def _longest(file: reader.ReportFile) -> int:
    """The launch that stands for the kernel with most time (`typical`), by its place."""
    times = messages.durations(file.frame)
    kernels = shares.grouped(range(len(times)), lambda at: file.codes[at].digest)
    longest = max(kernels.values(), key=lambda places: sum(times[at] for at in places))
    return longest[typical([times[at] for at in longest])]


def _first_card(
    path: str, plain: Path, options: Options, code: dict[int, messages.Code], note: str
) -> None:
    """Judge one launch before all others, for who waits at a terminal. The counters were not compared
    with other launches' yet."""
    launches: list[LaunchResult] = []
    part = reader.ReportPart(Path(path).name, "", {}, codes=code, span=[*code])
    reader.visit_part(plain, plain.parent, part, _judge_into(launches, path, options, ""))
    whole = Path(f"{note}{_CARD}.part")
    whole.write_bytes(pickle.dumps(launches[0].card))
    whole.replace(note + _CARD)


def _prepare(launch: Path) -> None:
    """What every process that reads a part has to do first."""
    prepare()
    reader.prepare(launch)


def read_part(
    path: str, plain: str, options: Options, part: reader.ReportPart, note: str = ""
) -> tuple[bytes, int]:
    """Some launches of a report, for `read_packed`: pickled, and how many there are. `plain` is a
    report of those alone."""
    launches: list[LaunchResult] = []
    visit, wanted = _judge_into(launches, path, options, note), _wanted(options)
    seen = reader.visit_part(Path(plain), Path(plain).parent, part, visit, wanted=wanted)
    return _pickled(launches), seen


def _pickled(launches: Sequence[LaunchResult]) -> bytes:
    with cache.without_collector():
        return pickle.dumps(tuple(launches), pickle.HIGHEST_PROTOCOL)


def _judge_into(
    launches: list[LaunchResult], path: str, options: Options, note: str
) -> Callable[[Profile], None]:
    def visit(profile: Profile) -> None:
        launches.append(judge(profile, path, options))
        if note:
            with open(note, "ab") as points:
                points.write(b".")

    return visit


def _wanted(options: Options) -> Callable[[str], bool] | None:
    if not options.kernel:
        return None
    return lambda name: patterns.found(options.kernel, name, "--kernel")


def _file(path: str, report: reader.LoadedReport, names: tuple[bytes, ...]) -> FileResult:
    """The file without its launches."""
    return FileResult(
        path, (), report.ncu_version, report.declared_launches, report.read_launches, report.damage, report.missing,
        report.checksum, left_out=report.left_out, kernels=tuple(str(name, errors="replace") for name in names),
    )  # fmt: skip


def judge(profile: Profile, path: str, options: Options) -> LaunchResult:
    """A profile's verdict. Causes that were ruled out are kept only with the whole profile."""
    from ncu_toolkit.kernel.diagnosis import chain
    from ncu_toolkit.kernel.diagnosis.engine import diagnose
    from ncu_toolkit.kernel.explain.verdict import card

    for each in options.needs:
        profile = each.applied(profile)
    diagnosis = diagnose(profile)
    launch, origin, context = profile.launch, profile.origin, profile.context
    whole = replace(profile, origin=replace(origin, file=path)) if options.profiles else None
    tables = b""
    if whole is not None and options.packed:
        tables = pickle.dumps((profile.instructions, profile.sources), pickle.HIGHEST_PROTOCOL)
        whole = replace(whole, instructions=(), sources={})
    kept = profile.readings if options.figures else {}
    return LaunchResult(
        file=path, key=origin.key, kernel=launch.kernel, function=launch.function, gpu=profile.device.name, arch=profile.device.arch,
        grid=launch.grid, block=launch.block, status=launch.status, duration_us=profile.duration_us,
        diagnosis=diagnosis if options.profiles else replace(diagnosis, considered=()), card=card(profile, diagnosis, path),
        figures={name: reading.value for name, reading in kept.items()}, profile=whole, contradictions=profile.contradictions,
        needed_bytes=context.compulsory_bytes if context else None, needed_flops=context.flops if context else None,
        sms=profile.device.sm_count, link=chain.link(profile), workload=launch.workload, inside=launch.inside, stack=launch.stack,
        process=launch.process, device=profile.device.index, tables=tables,
    )  # fmt: skip


def with_tables(profile: Profile, tables: bytes) -> Profile:
    """The whole profile of a launch whose tables were kept pickled (`Options.packed`)."""
    with cache.without_collector():
        instructions, sources = pickle.loads(tables)
    return replace(profile, instructions=instructions, sources=sources)
