"""What a launch's page shows of its code: SASS and source side by side with samples by stall reason, as
compact columns for the page's own script with the hottest lines as a table; stalls; instructions."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import CodeLine, whole_percent
from ncu_toolkit.base.document.tables import Cell, Spec, Table, missing, number, table, text
from ncu_toolkit.base.document.views import Fold, HotSpots
from ncu_toolkit.base.hardware.specs import MAX_REGISTERS_PER_THREAD
from ncu_toolkit.base.metrics.registry import STALL_REASONS
from ncu_toolkit.base.model import Finding, Instruction, Profile
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import reason_name
from ncu_toolkit.kernel.explain.sections import spec
from ncu_toolkit.kernel.explain.verdict import undecoded
from ncu_toolkit.kernel.ladder.catalogue import split
from ncu_toolkit.kernel.sass import attribution, branches
from ncu_toolkit.kernel.sass.attribution import SCOREBOARDS
from ncu_toolkit.kernel.sass.branches import Liveness

#: Opcodes and stall reasons that a fold's line names.
_NAMED: Final = 3
#: Opcodes listed by name; the rest are summed.
_OPCODES_SHOWN: Final = 24
#: Memory instructions whose widths are told apart, with what they do.
_MEMORY_OPCODES: Final = {
    "LDG": "global loads",
    "STG": "global stores",
    "LDGSTS": "asynchronous copies to shared memory",
    "LDS": "shared loads",
    "STS": "shared stores",
    "LDSM": "matrix loads from shared memory",
    "LDL": "local loads (spills)",
    "STL": "local stores (spills)",
    "LDC": "constant loads",
    "ATOMG": "global atomics",
    "RED": "global reductions",
    "ATOMS": "shared atomics",
}
#: Lines in the table of the hottest.
_HOTTEST: Final = 12
#: Longest source line carried into the page.
_LINE: Final = 400
#: Per-instruction counters shown beside the samples, with their headings; those with an ideal also
#: as what is beyond it.
_COUNTERS: Final = {
    "shared_wavefronts": "shared wavefronts",
    "l2_sectors": "L2 sectors",
    "local_sectors": "local sectors",
}
_IDEALS: Final = {"shared_wavefronts": "shared_wavefronts_ideal", "l2_sectors": "l2_sectors_ideal"}
_BEYOND: Final = {"shared_wavefronts": "Wavefronts beyond", "l2_sectors": "Sectors beyond"}
#: Bytes of an instruction from CC 7.0 on: addresses that follow from it are left out.
_BYTES: Final = 16
#: SASS of setmaxnreg: from CC 9.0 on a group of four warps can give up registers, or take more.
_SET: Final = "USETMAXREG"
#: Number of the first line, and the lines.
Source = tuple[int, tuple[str, ...]]
#: Stall reasons named for one line.
_REASONS: Final = 3


def code_fold(
    profile: Profile, findings: Sequence[Finding] = (), where: CodeLine | None = None
) -> Fold | None:
    """SASS and source. None where the report holds no instructions."""
    found = hot_spots(profile, findings, where)
    if found is None:
        return None
    line = f"{where.short}: {where.cost}" if where else "source and SASS"
    shown = line if found.data else "not in the report"
    return Fold("hot", "Code", shown, (("code", found),), open=True)


_NO_LINES: Final = (
    "The kernel was built without line information (-lineinfo), so only SASS is shown."
)
_NO_SOURCE: Final = "The report has no source text (collect it with --import-source yes), so only line numbers are known."


def hot_spots(
    profile: Profile, findings: Sequence[Finding] = (), where: CodeLine | None = None
) -> HotSpots | None:
    """None where the report holds no instructions, and no more than a note where it holds their
    counts without their text. The lines that `findings` name are marked, and `where`, the place
    that the card names first, is in view."""
    rows = profile.instructions
    if not rows:
        return None
    if not any(row.sass or row.file for row in rows):
        whose = "The library's" if profile.rung else "The kernel's"
        left = "recording" if profile.rung else "report"
        return HotSpots({}, None, f"{whose} code is not part of the {left}.")
    reasons = [reason for reason, _ in Counter(profile.samples).most_common()]
    files = sorted({row.file for row in rows if row.file})
    place = {name: i for i, name in enumerate(files)}
    counts = [row.sample_count for row in rows]
    total = sum(counts)
    live = branches.live_registers(rows)
    starts, sources = (
        zip(*(_source(profile.sources.get(name, "")) for name in files), strict=True)
        if files
        else ((), ())
    )
    named = _named(rows, findings)
    blank = "(not decoded)" if undecoded(profile) else ""
    regular = all(row.address == _BYTES * i for i, row in enumerate(rows))
    data: dict[str, Any] = {
        "reasons": [reason_name(reason) for reason in reasons],
        "files": [visible(name) for name in files],
        "sources": sources,
        "from": starts,
        "address": [] if regular else [f"{row.address:x}" for row in rows],
        "sass": [visible(row.sass, _LINE) or blank for row in rows],
        "file": [place[row.file] if row.file else -1 for row in rows],
        "line": [row.line for row in rows],
        "executed": [row.executed for row in rows],
        "samples": [
            [row.samples.get(reason, 0) for reason in reasons] if count else 0
            for row, count in zip(rows, counts, strict=True)
        ],
        "counters": _counters(rows),
        "live": live.counts if live else [],
        "named": named,
        "waits": _waits(profile),
        "open": _opens(rows, where),
        "total": total,
    }
    notes = []
    if not total:
        notes.append("The report has no PC samples, so lines are ranked by executed instructions.")
    if not files:
        notes.append(_NO_LINES)
    elif not any(data["sources"]):
        notes.append(_NO_SOURCE)
    hints = tuple(filter(None, (_peak(profile, live),))) if live else ()
    return HotSpots(data, _hottest(profile, live, total == 0, set(named)), " ".join(notes), hints)


def sources_of(profiles: Sequence[Profile]) -> tuple[Source, ...]:
    """The source text that the launches' code was made from, each file once."""
    texts = {
        text: None
        for profile in profiles
        for name in sorted({row.file for row in profile.instructions if row.file})
        for text in (profile.sources.get(name, ""),)
    }
    return tuple(dict.fromkeys(map(_source, texts)))


@lru_cache(maxsize=256)
def _source(whole: str) -> Source:
    """Lines of a file from the one of the given number on. Of a kernel of the toolkit, the blocks of TOML
    before and after the code are left out."""
    head, code, _ = split(whole)
    lines = [visible(line, _LINE, keep="\t") for line in code.rstrip().splitlines()]
    blank = next((i for i, line in enumerate(lines) if line.strip()), 0) if head else 0
    return head.count("\n") + blank + 1, tuple(lines[blank:])


def _named(rows: Sequence[Instruction], findings: Sequence[Finding]) -> list[int]:
    """Indices of the instructions that the verdict or a runner-up points at."""
    addresses = {place.address for finding in findings for place in finding.locations}
    return [row.index for row in rows if row.address in addresses]


#: Part of the samples that wait for a result at an instruction, from which on its producers are
#: listed, and at most how many instructions, and producers of each, are.
_WAITED: Final = 0.002
_WAITING: Final = 60
_PRODUCERS: Final = 6


def _waits(profile: Profile) -> list[tuple[int, list[int]]]:
    """Places of the instructions at which warps wait most for results, with those of the
    instructions that produce them: of the scoreboard that most of its samples wait for."""
    rows = profile.instructions
    total = sum(row.sample_count for row in rows)
    ranked: list[tuple[int, int, tuple[str, ...]]] = []
    for at, row in enumerate(rows):
        reason = max(SCOREBOARDS, key=lambda name: row.samples.get(name, 0))
        if (waited := row.samples.get(reason, 0)) and waited >= _WAITED * total:
            ranked.append((waited, at, SCOREBOARDS[reason]))
    if not ranked:
        return []
    flow = attribution.flow_of(rows)
    found = []
    for _, at, kinds in sorted(ranked, reverse=True)[:_WAITING]:
        if producers := [each for each in flow.producers(at, kinds) if each != at]:
            found.append((at, producers[:_PRODUCERS]))
    return sorted(found)


def _opens(rows: Sequence[Instruction], where: CodeLine | None) -> int:
    """The instruction that is in view at first: of those that `where` shows the heaviest; of all
    without it."""
    found = dict(enumerate(rows))
    if where is not None:
        line = (where.path, where.line) if where.path else None
        found = {at: r for at, r in found.items() if (visible(r.file), r.line) == line} or found
        found = {
            at: row
            for at, row in found.items()
            if where.sass == row.opcode or " ".join(row.sass.split()).startswith(where.sass)
        } or found
    return max(found, key=lambda at: (rows[at].sample_count, rows[at].executed or 0))


def _counters(rows: Sequence[Instruction]) -> list[dict[str, Any]]:
    found = []
    for name, words in _COUNTERS.items():
        values = [row.counters.get(name) for row in rows]
        if any(values):
            found.append({"name": words, "values": values})
        beyond = [_beyond(row, name) for row in rows] if any(values) and name in _IDEALS else []
        if any(beyond):
            found.append({"name": f"{words} beyond the ideal", "values": beyond})
    return found


def _beyond(row: Instruction, name: str) -> float | None:
    """What a counter has beyond its ideal at an instruction; None where one of the two was not
    collected."""
    actual, ideal = row.counters.get(name), row.counters.get(_IDEALS.get(name, ""))
    return max(0.0, actual - ideal) if actual is not None and ideal is not None else None


def _peak(profile: Profile, live: Liveness) -> str:
    """Where most registers are live, beside what the compiler took: a gap means that its allocation
    is rounded up or kept by loads in flight. Empty where groups of warps change their number at run
    time and it is not known which one has the peak."""
    row = profile.instructions[live.peak_index]
    taken, whose = profile.launch.registers, "the compiler allocated"
    # The numbers of registers that groups of warps ask for with setmaxnreg.
    rows = (each for each in profile.instructions if each.opcode.startswith(_SET))
    asked = {each.sass.rpartition(" ")[2] for each in rows}
    if groups := {int(number, 16) for number in asked if number.startswith("0x")}:
        enough = [number for number in groups if number >= live.peak]
        if len(enough) != 1:
            return ""
        taken, whose = enough[0], "its warps take at run time (setmaxnreg)"
    where = f"{row.file.rsplit('/', 1)[-1]}:{row.line}" if row.file else f"instruction {row.index}"
    held = f"{live.peak} of the {taken} that {whose}" if taken else f"{live.peak}"
    most = (
        f"; a thread can have {MAX_REGISTERS_PER_THREAD}"
        if taken and taken * 10 >= MAX_REGISTERS_PER_THREAD * 9
        else ""
    )
    return visible(f"Register use peaks at {where} ({row.opcode}): {held}{most}.")


@dataclass
class _Line:
    """What one source line (or, without lines, one instruction) adds up to."""

    file: str
    line: int
    index: int
    weight: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    heaviest: int = 0
    sass: str = ""
    live: int = 0
    beyond: dict[str, float] = field(default_factory=dict)
    named: bool = False


def _by_line(
    profile: Profile, live: Liveness | None, by_executions: bool, named: set[int]
) -> list[_Line]:
    """The instructions' figures summed by source line; an instruction without one is its own."""
    lines: dict[tuple[str, int, int], _Line] = {}
    for at, row in enumerate(profile.instructions):
        key = (row.file, row.line, -1) if row.file else ("", 0, row.index)
        line = lines.get(key)
        if line is None:
            line = lines[key] = _Line(*key)
        weight = (row.executed or 0) if by_executions else row.sample_count
        line.weight += weight
        for reason, n in row.samples.items():
            line.reasons[reason] += n
        line.named |= row.index in named
        if weight > line.heaviest:
            line.heaviest, line.sass = weight, row.sass
        if live:
            line.live = max(line.live, live.counts[at])
        for name in _BEYOND if row.counters else ():
            if (excess := _beyond(row, name)) is not None:
                line.beyond[name] = line.beyond.get(name, 0.0) + excess
    return [*lines.values()]


def _hottest(
    profile: Profile, live: Liveness | None, by_executions: bool, named: set[int]
) -> Table:
    """The source lines (or instructions, where no lines are known) with most samples."""
    lines = _by_line(profile, live, by_executions, named)
    total = sum(line.weight for line in lines) or 1
    ranked = sorted(filter(lambda line: line.weight, lines), key=lambda line: -line.weight)

    def where(line: _Line) -> Cell:
        at = (
            f"{line.file.rsplit('/', 1)[-1]}:{line.line}"
            if line.file
            else f"instruction {line.index}"
        )
        why = "the verdict or another finding points at this line"
        return replace(text(at, line.file), badges=(("diagnosis", why),) if line.named else ())

    def source(line: _Line) -> Cell:
        known = profile.sources.get(line.file, "").splitlines()
        words = known[line.line - 1].strip() if 0 < line.line <= len(known) else ""
        return text(words, code=True) if words else text("–")

    def reasons(line: _Line) -> Cell:
        top = ", ".join(
            f"{reason_name(reason)} {units.percent(n / line.weight, 2)}"
            for reason, n in line.reasons.most_common(_REASONS)
        )
        return text(top if top and not by_executions else "–")

    def beyond(name: str) -> Spec[_Line]:
        def cell(line: _Line) -> Cell:
            return number(line.beyond[name], "count") if name in line.beyond else text("–")

        return spec(_BEYOND[name], cell)

    what = "executions" if by_executions else "samples"
    most = "most live registers at an instruction of this line"
    specs = [
        spec("Share", lambda line: number(line.weight / total, "fraction", bar=line.weight / total), f"of all {what}"),
        spec("Where", where, words=True),
        spec("Source", source, words=True),
        spec("Heaviest instruction", lambda line: text(line.sass, code=True), words=True),
        spec("Stall reasons", reasons, words=True),
    ]  # fmt: skip
    if live:
        specs.append(spec("Live", lambda line: number(float(line.live), "count", title=most)))
    specs += [beyond(name) for name in _BEYOND if any(line.beyond.get(name) for line in lines)]
    return table(f"The lines with most {what}", specs, ranked[:_HOTTEST], key="hottest")


def stall_fold(profile: Profile) -> Fold | None:
    """The stall stack with what each reason means, and PC samples next to it. None where neither was
    collected."""
    ranked = figures.ranked_stalls(profile)[:_NAMED]
    line = ", ".join(f"{reason_name(name)} {whole_percent(share)}" for name, share in ranked)
    found = stall_table(profile)
    return Fold("stall-section", "Stalls", line, (("table", found),)) if found else None


def stall_table(profile: Profile) -> Table | None:
    stack, samples = dict(profile.stalls.reasons) if profile.stalls else {}, profile.samples
    if not stack and not samples:
        return None
    total, counted = sum(stack.values()), sum(samples.values())

    def weight(reason: str) -> tuple[float, int]:
        return stack.get(reason, 0.0), samples.get(reason, 0)

    def share(reason: str) -> Cell:
        part = stack[reason] / total if reason in stack and total else None
        return number(part, "fraction", "the stall stack was not collected", bar=part)

    def sampled(reason: str) -> Cell:
        hits = samples.get(reason, 0)
        title = f"{units.count(hits)} of {units.count(counted)} samples"
        none = "no PC samples in this report"
        return number(hits / counted if counted else None, "fraction", none, title=title)

    def cycles(reason: str) -> Cell:
        return number(stack.get(reason), "cycles/inst", "not in the stall stack of this GPU")

    def name(reason: str) -> Cell:
        return Cell(reason_name(reason), reason.replace("_", " "), STALL_REASONS.get(reason, ""))

    unknown = "This version does not know this stall reason."
    note = ""
    if profile.stalls and profile.stalls.residual is not None and profile.stalls.latency:
        apart = units.percent(abs(profile.stalls.residual) / profile.stalls.latency, 2)
        note = (
            f"The reasons sum to {units.quantity(total, 'cycles/inst')}, the profiler's own total is "
            f"{units.quantity(profile.stalls.latency, 'cycles/inst')}. They differ by "
            f"{apart.replace('<', 'less than')}, because the counters come from different replay passes."
        )
    specs = [
        spec("Reason", name, words=True),
        spec("Cycles", cycles, "cycles per issued instruction"),
        spec("Share", share),
        spec("Samples", sampled, "share of the PC samples"),
        spec("What the warp waits for", lambda r: text(STALL_REASONS.get(r, unknown)), words=True),
    ]
    # not a set: reasons that tie keep one order
    ranked = [reason for reason in dict.fromkeys((*stack, *samples)) if any(weight(reason))]
    ranked.sort(key=weight, reverse=True)
    caption = "Cycles between two instructions of a warp, by stall reason"
    return table(caption, specs, ranked, note, "stalls")


def instruction_fold(profile: Profile, code: Iterable[tuple[str, Any]]) -> Fold | None:
    """Executed instructions, and what the `code` alone tells. None where nothing is known."""
    mix = mix_tables(profile) if profile.launch.complete else None
    parts = [*([("pair", mix)] if mix else []), *code]
    line = "from the code alone"
    if profile.mix.collected:
        total = profile.mix.total
        ranked = sorted(profile.mix.opcodes.items(), key=lambda item: -item[1])[:_NAMED]
        named = ", ".join(f"{opcode} {whole_percent(n / (total or 1))}" for opcode, n in ranked)
        line = f"{units.compact(total)} by warps: {named}"
    return Fold("instructions", "Instructions", line, tuple(parts)) if parts else None


def mix_tables(profile: Profile) -> tuple[Table, Table] | None:
    """Executed instructions by kind and opcode, and the widths of memory instructions. None where
    not collected."""
    mix = profile.mix
    if not mix.collected:
        return None
    total = mix.total or 1
    ranked = sorted(mix.opcodes.items(), key=lambda item: -item[1])
    rest = sum(n for _, n in ranked[_OPCODES_SHOWN:])
    shown = ranked[:_OPCODES_SHOWN] + ([("", rest)] if rest else [])

    def name(opcode: str) -> Cell:
        others = f"{len(ranked) - _OPCODES_SHOWN} others"
        return text(opcode, code=True) if opcode else text(others)

    def lanes(opcode: str, warps: int) -> Cell:
        if not opcode:
            return missing("a sum of several opcodes")
        threads = mix.thread_opcodes.get(opcode)
        known = threads / warps if threads is not None and warps else None
        return number(known, "lanes", "thread-level counts were not collected")

    opcodes: list[Spec[tuple[str, int]]] = [
        spec("Opcode", lambda row: name(row[0]), words=True),
        spec("Kind", lambda row: text(attribution.kind(row[0]) if row[0] else ""), words=True),
        spec("Executed", lambda row: _count(row[1])),
        spec("Share", lambda row: _part(row[1] / total)),
        spec(
            "Active lanes", lambda row: lanes(*row), "threads active and not predicated off, of 32"
        ),
    ]
    found: list[tuple[str, int, int, int]] = []
    for opcode in _MEMORY_OPCODES:
        sizes: Counter[int] = Counter()
        for name_of, n in mix.opcodes.items():
            if n and attribution.base(name_of) == opcode:
                sizes[attribution.width(name_of)] += n
        found += [(opcode, size, n, sizes.total()) for size, n in sorted(sizes.items())]
    widths: list[Spec[tuple[str, int, int, int]]] = [
        spec("Opcode", lambda row: text(row[0], code=True), words=True),
        spec("What", lambda row: text(_MEMORY_OPCODES[row[0]]), words=True),
        spec("Bits", lambda row: number(row[1] * 8, "count"), "bits per lane and instruction"),
        spec("Executed", lambda row: _count(row[2])),
        spec(
            "Of these",
            lambda row: _part(row[2] / row[3]),
            "share among instructions of this opcode",
        ),
    ]
    caption = f"{units.count(mix.total)} warp-level instructions by opcode"
    return (
        table(caption, opcodes, shown, key="mix"),
        table("Widths of memory instructions", widths, found, key="widths"),
    )


def _count(n: int) -> Cell:
    return Cell(units.compact(n), n, units.count(n))


def _part(share: float) -> Cell:
    return number(share, "fraction", bar=share)
