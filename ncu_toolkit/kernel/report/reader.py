"""Report file -> Profiles, through NVIDIA's `ncu_report` module.

The module raises only for a missing path, so the framing is checked first (framing.py), and the
launches are counted afterwards. Launches are keyed by their place in the file, never by name.

A report does not say how many launches were not profiled (launch numbers count all CUDA calls) or
how long they took. Only its command line helps (`left_out`)."""

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final, Self

from ncu_toolkit.base.core import cache, units, workers
from ncu_toolkit.base.core.cache import without_collector
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem
from ncu_toolkit.base.core.safe import shell_word
from ncu_toolkit.base.model import Frame, Launch, MachineCode, Origin, Profile
from ncu_toolkit.kernel.report import cubin, framing, integrity, messages, ncu_action, ncu_source
from ncu_toolkit.kernel.report.framing import Framing, Malformed
from ncu_toolkit.kernel.report.messages import UNKNOWN
from ncu_toolkit.kernel.report.ncu_source import CodeTexts
from ncu_toolkit.kernel.sass.words import read as read_words

#: ncu's options that take no value; every other one takes the next word, unless that is an option.
_FLAGS: Final = frozenset(
    {
        "-f", "--force-overwrite", "--nvtx", "--call-stack", "--csv", "--quiet", "--verbose", "--null-stdin",
        "--print-fp", "--print-nvtx-rename", "--disable-extra-suffixes", "--details-all", "--fp", "--summary-only",
    }
)  # fmt: skip
_LONG: Final = {
    "-k": "--kernel-name", "--kernel-regex": "--kernel-name", "-s": "--launch-skip", "-c": "--launch-count"
}  # fmt: skip
#: Options that filter launches.
_CHOOSE: Final = ("--kernel-name", "--kernel-id", "--nvtx-include", "--nvtx-exclude", "--range-filter")  # fmt: skip
#: Longest pattern that is shown in full.
_SHOWN: Final = 60
#: Kernels that wait for other GPUs: kernel replay runs one launch at a time, so that they wait
#: forever (Nsight Compute Kernel Profiling Guide, "Kernel Replay").
_COLLECTIVE: Final = re.compile(r"nccl(Dev)?Kernel|nvshmem|cross_device_reduce")


def left_out(frame: Framing) -> str:
    """One line on the launches that ncu's filters left out; empty without filters or command."""
    try:
        processes = {messages.process(block) for block in frame.blocks if block.results}
        command = messages.command_line(frame)
    except Malformed:
        return ""
    return by_command(command.split(), frame.declared_launches, len(processes) == 1)


def by_command(words: Sequence[str], launches: int, one_process: bool) -> str:
    """The same from ncu's command line and the number of launches that were profiled.

    Skipped launches are counted over all processes or in each, and with a --filter-mode for each GPU
    or configuration, so that their number is known only for a single process without one."""
    given = _options(words)
    skipped = _count(given, "--launch-skip") + _count(given, "--launch-skip-before-match")
    most = _count(given, "--launch-count")
    chosen = (option for option in _CHOOSE if option in given)
    parts = [f"{option} {_short(each)}" for option in chosen for each in given[option]]
    if given.get("--profile-from-start", ["on"])[-1].lower() in ("off", "no", "0", "false"):
        parts.append("--profile-from-start off")
    mode = given.get("--filter-mode", ["global"])[-1].removeprefix("global")
    parts += [f"--filter-mode {mode}"] * bool(mode and (skipped or most))
    parts += [f"--launch-skip {skipped}"] * bool(skipped)
    parts += [f"--launch-count {most}"] * bool(most and launches >= most)
    if not parts or not launches:
        return ""
    total = f" of at least {skipped + launches}" if skipped and one_process and not mode else ""
    noun = "launch" if launches == 1 and not total else "launches"
    these = "these launches take" if launches > 1 else "this launch takes"
    return f"Profiled {launches}{total} {noun} (ncu {' '.join(parts)}). The report does not show what share of the program's GPU time {these}."


def by_kernel(line: str) -> bool:
    """Whether by the line of `left_out` other kernels may have run between the launches."""
    return "--kernel-" in line


def is_collective(kernel: str) -> bool:
    """Whether a kernel's name is that of a collective, which waits for other GPUs."""
    return bool(_COLLECTIVE.search(kernel))


#: Remedy for a collective that was not finished.
COLLECTIVE: Final = (
    "a collective waits for other GPUs, but kernel replay runs it alone. Leave it out (`profile --exclude-kernel nccl`), or profile a range "
    "(ncu --replay-mode app-range)"
)


def _options(words: Sequence[str]) -> dict[str, list[str]]:
    """ncu's own options with their values: what comes before the program's name."""
    found: dict[str, list[str]] = {}
    at = 1
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        at += 1
        if not equals and name not in _FLAGS and at < len(words) and not words[at].startswith("-"):
            value = words[at]
            at += 1
        found.setdefault(_LONG.get(name, name), []).append(value)
    return found


def _count(given: dict[str, list[str]], option: str) -> int:
    value = given.get(option, ["0"])[-1]
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


#: Time limit for a report that a worker reads: ten thousand launches take minutes.
TIMEOUT: Final = 3600.0
_AGAIN: Final = "Copy or record it again"
_CHUNK: Final = 1 << 20
_LONGEST_VERSION: Final = 64
_VERSION = re.compile(rb"(20\d\d\.\d+\.\d+)\.\d+ \(build \d+\)")


@dataclass(frozen=True)
class LoadedReport:
    """A report's profiles with what is known of the whole file."""

    path: str
    profiles: tuple[Profile, ...]
    ncu_version: str
    declared_launches: int
    damage: str = ""
    """Where the damage starts (only with allow_partial); empty without any."""
    missing: str = ""
    """Missing launches or the missing end of a readable file."""
    read_launches: int = 0
    checksum: str = ""
    """The file with the matching SHA-256; empty where there is none."""
    left_out: str = ""
    """A sentence on launches that ncu's filters left out."""
    values: tuple[Mapping[str, ncu_source.Value], ...] = ()
    """The numbers of each profile's launch by the profiler's own names, if requested."""


def load_report(
    path: Path | str,
    *,
    instructions: bool = True,
    allow_partial: bool = False,
    values: bool = False,
) -> LoadedReport:
    """Read a `.ncu-rep`, also packed (`.ncu-repz`, `.ncu-rep.xz`); in another process where this
    one may not load the profiler's module (ncu_action.py).

    Args:
        instructions: also read per-instruction counters and source (most of the time of a load).
        allow_partial: analyse the intact part of a damaged file instead of refusing it.
        values: also keep the numbers of each launch as the profiler has them.

    Raises:
        InputProblem: not a report, damaged, or without a launch.
        EnvironmentProblem: the `ncu_report` module cannot be imported.
    """
    if ncu_action.fits_here():
        return _read_here(path, instructions, allow_partial, values)
    task = (path, instructions, allow_partial, values)
    (done,) = workers.run(
        "ncu_toolkit.kernel.report.reader:_read_here",
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
    numbers: list[Mapping[str, ncu_source.Value]] = []
    report = visit_report(
        path,
        profiles.append,
        instructions=instructions,
        allow_partial=allow_partial,
        values=numbers.append if values else None,
    )
    return replace(report, profiles=tuple(profiles), values=tuple(numbers))


@dataclass(frozen=True)
class ReportPart:
    """Launches of a report and all that a process needs to read them, by their places in the file."""

    file: str
    """The report's name."""
    ncu_version: str
    contradictions: Mapping[int, Mapping[str, tuple[str, ...]]]
    copies: Mapping[int, str] = field(default_factory=dict)
    codes: Mapping[int, messages.Code] | None = None
    """The code that each launch ran; None where instructions are not wanted."""
    stacks: Mapping[int, tuple[Frame, ...]] = field(default_factory=dict)
    """The calls on the host that led to each launch, which the report module does not tell."""
    processes: Mapping[int, int] = field(default_factory=dict)
    """The process of each launch, in a report of several."""
    idle: Mapping[int, float] = field(default_factory=dict)
    """As `Launch.idle_us`."""
    lines: Mapping[bytes, dict[int, ncu_source.Line]] = field(default_factory=dict)
    """What `texts_of` made."""
    span: Sequence[int] | None = None
    """The launches that the file holds (`ReportFile.write_part`), in the order in which they are to
    be read; all of them where None."""

    def of(self, span: Sequence[int]) -> Self:
        """Some of its launches."""

        def some(found: Mapping[int, Any]) -> dict[int, Any]:
            return {place: found[place] for place in span if place in found}

        codes = None if self.codes is None else some(self.codes)
        digests = {code.digest for code in (codes or {}).values()}
        lines = {digest: of for digest, of in self.lines.items() if digest in digests}
        return replace(
            self, span=span, codes=codes, lines=lines, contradictions=some(self.contradictions),
            stacks=some(self.stacks), processes=some(self.processes),
        )  # fmt: skip

    def placed(self, place: int, launch: Launch) -> Launch:
        """The launch with what the report module does not tell."""
        stack, process = self.stacks.get(place, ()), self.processes.get(place, 0)
        return replace(launch, stack=stack, process=process, idle_us=self.idle.get(place, 0.0))


class ReportFile:
    """A report's bytes, and what is known before the profiler's module reads it.

    Raises InputProblem as `framing.content`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frame = framing.parse(framing.content(path))

    @cached_property
    def sources(self) -> tuple[messages.SourceMessage, ...]:
        return messages.sources(self.frame)

    @cached_property
    def codes(self) -> tuple[messages.Code, ...]:
        """The code of each launch in file order."""
        return tuple(messages.codes(self.frame, messages.Modules(self.sources)))

    @cached_property
    def _broken_tables(self) -> tuple[cubin.BrokenTable, ...]:
        return cubin.broken(self.frame, self.sources)

    def forget(self) -> None:
        """Free what the bytes were read for."""
        vars(self).pop("sources", None)

    def plain(self, scratch: Path) -> Path:
        """The report as the profiler's module can read it: unpacked, without a damaged end, with broken
        line tables emptied, under a UTF-8 name; the file itself where that changes nothing."""
        path, frame = self.path, self.frame
        size = frame.intact_bytes if frame.problem else len(frame.data)
        if (
            path.suffix == ".ncu-rep"
            and not self._broken_tables
            and os.fsencode(path).decode("utf-8", "replace") == str(path)
            and path.stat().st_size == size  # else it is compressed, whatever its name
        ):
            return path
        readable = scratch / "report.ncu-rep"
        with readable.open("wb") as sink:
            for at in range(0, size, _CHUNK):
                sink.write(frame.data[at : min(at + _CHUNK, size)])
            for table in self._broken_tables:
                sink.seek(table.size_at)
                sink.write(bytes(messages.SIZE_BYTES))
        return readable

    def write_part(self, path: Path, places: Collection[int]) -> None:
        """Write a report of some launches alone, with the code that they ran. The module never
        frees the memory of a launch that it has opened."""
        wanted: dict[int, list[tuple[int, bytes]]] = {}
        ids: set[int] | None = set()
        for launch in sorted(places):
            at, kind, place = self._results[launch]
            message, module = self._message(place), self.codes[launch].module
            wanted.setdefault(at, []).append((kind, message))
            kernel = module if kind == messages.KERNEL else None
            of = (kernel[1],) if kernel else messages.modules_of(kind, message)
            ids = None if of is None or ids is None else ids.union(of)
        with path.open("wb") as sink:
            sink.write(self.frame.data[: self.frame.blocks[0].offset])
            for at in sorted(self._shared | wanted.keys()):
                block = self.frame.blocks[at]
                sources = [
                    message
                    for message in map(self._message, block.sources)
                    if ids is None or messages.read_source(message).identifier in ids
                ]
                graphs = [*map(self._message, block.graphs)]
                sink.write(framing.block(block.header, sources, graphs, wanted.get(at, ())))

    def _message(self, place: framing.Place) -> bytes:
        """A message, without the broken line tables in it."""
        start, end = place[0], sum(place)
        data = self.frame.data[start:end]
        for table in self._broken_tables:
            if start <= table.size_at < end:
                at = table.size_at - start
                data = data[:at] + bytes(messages.SIZE_BYTES) + data[at + messages.SIZE_BYTES :]
        return data

    @cached_property
    def _results(self) -> tuple[tuple[int, int, framing.Place], ...]:
        """The block, the kind and the place of each launch."""
        return tuple(
            (at, kind, place)
            for at, block in enumerate(self.frame.blocks)
            for kind, place in zip(messages.kinds(block.header), block.results, strict=True)
        )

    @cached_property
    def _shared(self) -> set[int]:
        """The blocks that hold more than launches."""
        found = enumerate(self.frame.blocks)
        return {at for at, b in found if b.sources or b.graphs or messages.of_report(b.header)}

    def examined(
        self, allow_partial: bool = False, *, instructions: bool = True, jobs: int = 1
    ) -> tuple[LoadedReport, ReportPart]:
        """What is known of the report, without its profiles, and its launches, to be read; by so
        many processes.

        Raises:
            InputProblem: the checksum differs, it is damaged, or has no launches; not with
                allow_partial.
        """
        path, frame, launches = self.path, self.frame, self.frame.declared_launches

        def refuse(wrong: object, what: str, remedy: str) -> None:
            if wrong and not allow_partial:
                raise InputProblem(f"'{path}' {what}", remedy)

        rest = f"{_AGAIN}; {partly(path)}"
        again = rest if launches else _AGAIN
        found = integrity.verify(path)
        refuse(found.problem, found.problem, rest)
        intact = f"{units.counted(launches, 'launch') if launches else 'no launch'} before that {'is' if launches < 2 else 'are'} intact"
        refuse(frame.problem, f"is damaged {frame.problem}; {intact}", again)
        nothing = "Nothing was profiled, or it was lost: see the output of ncu, and check that its filters match a kernel"
        refuse(not launches and not frame.problem, "has no launches", nothing)
        version = ncu_version_in(frame.data)
        with contextlib.suppress(Malformed):
            version = version or messages.unnamed_version(frame)
        inside = integrity.inspect(frame, self.sources, version, jobs)
        tables = (
            f"at offset {each.offset}, in a line table: {each.why}" for each in self._broken_tables
        )
        broken = inside.damage or next(tables, "")
        refuse(broken, f"is damaged {broken}", again)
        damage = "; ".join(filter(None, (found.problem, frame.problem, broken)))
        report = LoadedReport(
            str(path), (), version, launches, damage, inside.missing, 0, found.source, left_out(frame)
        )  # fmt: skip
        part = ReportPart(
            path.name, version, inside.contradictions, inside.copies, idle=inside.idle
        )
        if instructions:
            part = replace(part, codes=dict(enumerate(self.codes)))
        with contextlib.suppress(framing.Malformed):
            processes = [messages.process(block) for block in frame.blocks for _ in block.results]
            several = dict(enumerate(processes)) if len(set(processes)) > 1 else {}
            part = replace(part, stacks=messages.stacks(frame), processes=several)
        return report, part


def visit_report(
    path: Path | str | ReportFile,
    visit: Callable[[Profile], object],
    *,
    wanted: Callable[[str], bool] | None = None,
    instructions: bool = True,
    allow_partial: bool = False,
    values: Callable[[Mapping[str, ncu_source.Value]], object] | None = None,
) -> LoadedReport:
    """Give each profile of a report to `visit` as it is read, in file order. `profiles` stays
    empty.

    Args:
        path: a `ReportFile` forgets its bytes.
        wanted: says from a launch's name whether to read it; every launch where None.
        instructions, allow_partial: as for `load_report`.
        values: takes the numbers of each visited launch, by the profiler's own names.

    Raises:
        InputProblem, EnvironmentProblem: as `load_report`, after visits of earlier launches.
    """
    file = path if isinstance(path, ReportFile) else ReportFile(Path(path))
    report, part = file.examined(allow_partial=allow_partial, instructions=instructions)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
        readable = file.plain(Path(scratch))
        file.forget()
        return counted(
            report, visit_part(readable, Path(scratch), part, visit, wanted=wanted, values=values)
        )


def prepare(path: Path) -> None:
    """Warm up a process that will read launches: a tenth of a second for the first one. The report
    holds that alone."""
    _launches(path)[0].range_by_idx(0).action_by_idx(0)


def warm_up(path: Path) -> None:
    """Start the disassembler, which takes most of a second, where the cache lacks the text of a report's
    first launch. The module reads no more than that."""
    file = ReportFile(path)
    code = next(messages.codes(file.frame, messages.Modules(file.sources)))
    if file.frame.declared_launches > 1 and lacking_texts(ReportPart("", "", {}, codes={0: code})):
        _launches(path)[0].range_by_idx(0).action_by_idx(0).sass_by_pc(code.base)


def lacking_texts(part: ReportPart) -> list[int]:
    """A launch of each code whose text is not in the cache."""
    texts = CodeTexts(part.codes or {}, _texts_folder())
    return texts.lacking()


@without_collector()
def texts_of(
    path: Path,
    part: ReportPart,
    cuts: Mapping[int, range],
    before: Callable[[], object] = lambda: None,
) -> dict[bytes, dict[int, ncu_source.Line]]:
    """SASS text and source lines of the code of each launch of a part, by the code's digest, within
    the distances from its start that `cuts` names. Calls `before` first, whatever comes of it."""
    with contextlib.suppress(Exception):
        before()
    context, there, tables = _opened(path, path.with_name(f"light-{path.name}"), False)
    texts, found = CodeTexts(part.codes or {}), dict[bytes, dict[int, ncu_source.Line]]()
    for place, (at, action), taken in zip(sorted(cuts), there, tables, strict=True):
        metrics = ncu_source.Metrics(context.range_by_idx(at).action_by_idx(action), taken)
        found[texts.of(place).digest] = texts.made(metrics, place, cuts[place])
    return found


def visit_part(
    path: Path,
    scratch: Path,
    part: ReportPart,
    visit: Callable[[Profile], object],
    *,
    wanted: Callable[[str], bool] | None = None,
    values: Callable[[Mapping[str, ncu_source.Value]], object] | None = None,
) -> int:
    """As `visit_report`, for a report that is read as it is, or a part of one, through a lighter
    one in the folder `scratch`. Returns how many launches it has."""
    light = scratch / f"light-{path.name}"
    context, there, tables = _opened(path, light, values is not None)
    several = any(at for at, _ in there)
    places = range(len(there)) if part.span is None else part.span
    if several:
        # Launches are then grouped by range, not in the order in which they were written.
        found = {s: of for each in part.contradictions.values() for s, of in each.items()}
        found |= {f"its counters are not its own, as {why}": () for why in part.copies.values()}
        shared = {f"in a launch of this file {sentence}": of for sentence, of in found.items()}
        codes = None if part.codes is None else dict[int, messages.Code]()
        wrong = dict.fromkeys(places, shared) if shared else {}
        part = ReportPart(part.file, part.ncu_version, wrong, codes=codes, span=part.span)
    inside = {place: at for at, place in enumerate(sorted(places))}
    texts = None if part.codes is None else CodeTexts(part.codes, _texts_folder())
    if texts is not None:
        texts.give(part.lines)
    with without_collector():
        for place in places:
            if inside[place] >= len(there):
                continue
            range_index, action_index = there[inside[place]]
            action = context.range_by_idx(range_index).action_by_idx(action_index)
            if wanted is None or wanted(ncu_action.kernel_name(action)):
                if part.span is not None:
                    range_index, action_index = 0, place
                origin = Origin(part.file, range_index, action_index, part.ncu_version)
                taken, tables[inside[place]] = tables[inside[place]], {}
                known = part.contradictions.get(place, {})
                read = ncu_action.profile_of(action, origin, texts, known, taken)
                if read.launch.complete and place in part.copies:
                    read = ncu_action.not_measured(read, part.copies[place])
                code = read.code
                if part.codes and not (read.instructions or read.mix.collected):
                    code = _machine_code(part.codes.get(place, UNKNOWN).text)
                visit(replace(read, launch=part.placed(place, read.launch), code=code))
                if values is not None:
                    values(ncu_action.numbers(action))
    if texts is not None and texts.folder is not None and texts.written:
        cache.trim(texts.folder.parent, ncu_source.KEPT_BYTES)
    light.unlink(missing_ok=True)
    return len(there)


def _opened(
    path: Path, light: Path, whole: bool
) -> tuple[Any, list[tuple[int, int]], list[dict[str, bytes]]]:
    """A report in the module, its launches by range, and the tables that the module did not get, nor
    most metrics that nobody reads, unless it is to have the `whole`. It reads the file `light` as
    long as it is used."""
    tables = _lighter(path, light, whole)
    context, there = _launches(light if tables else path)
    if len(there) != len(tables) or any(at for at, _ in there):  # whose tables is not known
        context, there = _launches(path)
        tables = [{} for _ in there]
    return context, there, tables


def _launches(path: Path) -> tuple[Any, list[tuple[int, int]]]:
    """A report as the module reads it, and the launches of its ranges."""
    context = ncu_action.module().load_report(str(path))
    counts = [context.range_by_idx(at).num_actions() for at in range(context.num_ranges())]
    return context, [(at, action) for at, count in enumerate(counts) for action in range(count)]


def _lighter(path: Path, to: Path, whole: bool) -> list[dict[str, bytes]]:
    """Write a report without the tables of its launches, which are returned in file order; nothing
    where it cannot be followed."""
    frame = framing.parse(framing.content(path))
    if frame.problem:
        return []
    names = [name.decode(errors="replace") for name in messages.metric_names(frame)]
    wanted = {
        framing.encoded(at) for at, name in enumerate(names) if whole or name in ncu_source.NUMBERS
    }
    found: list[dict[str, bytes]] = []
    data, ends = frame.data, [*(block.offset for block in frame.blocks[1:]), frame.intact_bytes]
    with to.open("wb") as sink:
        sink.write(data[: frame.blocks[0].offset])
        for block, end in zip(frame.blocks, ends, strict=True):
            results: list[tuple[int, bytes]] = []
            for kind, (at, length) in zip(messages.kinds(block.header), block.results, strict=True):
                message, tables = data[at : at + length], dict[str, bytes]()
                if kind == messages.KERNEL:
                    with contextlib.suppress(Malformed):
                        message, tables = messages.lighter(
                            message, names, ncu_source.TABLES, ncu_source.KEPT, wanted
                        )
                results.append((kind, message))
                found.append(tables)
            if results:
                sources, graphs = (
                    [data[at : at + size] for at, size in which]
                    for which in (block.sources, block.graphs)
                )
                sink.write(framing.block(block.header, sources, graphs, results))
            else:
                sink.write(data[block.offset : end])
    return found


@lru_cache(maxsize=256)
def _machine_code(text: bytes) -> MachineCode:
    return read_words(text) if text else MachineCode()


def counted(report: LoadedReport, found: int) -> LoadedReport:
    """The report with the number of launches that were found, and whether some are missing."""
    if found == report.declared_launches:
        return replace(report, read_launches=found)
    lost = (
        f"it declares {report.declared_launches} launches, and {found} could be read; an ncu-report "
        "module as new as the ncu that wrote it may read all (upgrade it with pip)"
    )
    return replace(
        report, read_launches=found, missing="; ".join(filter(None, (report.missing, lost)))
    )


def ncu_version_in(data: framing.Content) -> str:
    """The version of the ncu that wrote the report; empty where the report does not say."""
    for at in range(0, len(data), _CHUNK):
        if found := _VERSION.search(data[at : at + _CHUNK + _LONGEST_VERSION]):
            return found.group(1).decode()
    return ""


def _texts_folder() -> Path | None:
    """Folder of cached SASS texts of NVIDIA's module; None without a cache."""
    try:
        return cache.cache_folder() / "sass" / cache.edition(ncu_action.made_by())
    except (OSError, EnvironmentProblem):  # There may be no home folder.
        return None


def partly(path: Path | str) -> str:
    """The command that reads what is left of a report, for a remedy that any command may give."""
    return f"`ncu-toolkit analyze {shell_word(str(path))} --allow-partial` shows what is left of it"
