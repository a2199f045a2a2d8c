"""What code alone tells: of compiled code an answer with a card for each kernel, its loops and its
code; of a profiled launch parts of its page."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import slug, visible
from ncu_toolkit.base.core.units import counted, shortlist
from ncu_toolkit.base.document.card import (
    CAUSE,
    NAME,
    BarKind,
    BarRow,
    Card,
    CodeLine,
    Segment,
    kernel_name,
)
from ncu_toolkit.base.document.tables import Cell, Spec, Table, Tone, missing, number, table, text
from ncu_toolkit.base.document.views import Answer, BarChart, Fact, Listing, StepChart
from ncu_toolkit.base.model import Diagnosis, Evidence, Location, Profile
from ncu_toolkit.kernel.diagnosis import static
from ncu_toolkit.kernel.diagnosis.figures import small
from ncu_toolkit.kernel.diagnosis.rules import Certainty, StaticFinding, title
from ncu_toolkit.kernel.explain.sections import spec
from ncu_toolkit.kernel.explain.verdict import CODE
from ncu_toolkit.kernel.ladder.catalogue import split
from ncu_toolkit.kernel.sass.cost import LISTED, Region
from ncu_toolkit.kernel.sass.opcodes import WARP_SIZE

#: Unit of a region's cycles -> its name.
UNITS: Final[Mapping[str, str]] = {
    "issue": "issue slots", "fma": "FMA pipe", "half": "FP16 pipe", "alu": "integer pipe",
    "fp64": "FP64 pipe", "special": "special functions", "tensor": "tensor pipe",
    "shared": "shared memory",
}  # fmt: skip
_CONFIDENCE: Final[Mapping[Certainty, str]] = {
    "certain": "high", "likely": "medium", "possible": "low"
}  # fmt: skip
_RESOURCES: Final = {
    "registers": "registers per thread",
    "shared memory": "bytes of shared memory per block",
    "block": "threads per block",
}
_KINDS: Final = 6
#: Kernels that a card names.
_SEVERAL: Final = 5
#: Longest listing.
_LINES: Final = 400


def of_code(found: static.StaticAnalysis, sources: Mapping[str, str] | None = None) -> Answer:
    """A static analysis: of several kernels a table, a card for each first cause with the kernels that
    have it, and loops and code of one kernel for each set of causes. `sources` are texts of source
    files by their last name, as far as they are known."""
    texts = {name: text.splitlines() for name, text in (sources or {}).items()}
    tables: list[Table] = []
    code: list[Listing] = []
    charts: list[BarChart | StepChart] = []
    several = len(found.kernels) > 1
    alike, shown = _alike(found.kernels, 1), _alike(found.kernels)
    for kernel, *_ in shown:
        of = f"{kernel_name(kernel.name)}: " if several else ""
        tables += [each for each in _tables(kernel, of) if each.rows]
        code += _listings(kernel, of, texts)
        charts += filter(None, [_costs(kernel, of), _registers(kernel, of)])
    head = f"{found.subject} for {found.target}" if found.target else found.subject
    parts = [head, f"size {found.size}" if found.size else "", found.dtype]
    parts += [f"{name}={value}" for name, value in found.parameters.items()]
    if found.nothing:
        parts.append(f"{found.nothing}.")
    # What the code leaves open, in one line.
    asked = [each for kernel in found.kernels for each in kernel.unknown]
    about = dict.fromkeys(small(title(name)) for each in asked for name in each.bottlenecks)
    other = f", and whether one of these is its limit: {', '.join(about)}" if about else ""
    left = len(found.kernels) - len(shown)
    note = f"Loops and code of {counted(left, 'kernel')} with the same causes are in --format json."
    return Answer(
        headline=visible(", ".join(filter(None, parts))),
        kernels=_kernels(found.kernels) if several else None,
        cards=tuple(_card(found, kernels, texts) for kernels in alike),
        notes=(note,) if left else (),
        tables=tuple(tables),
        code=tuple(code),
        points=(f"Only a profile shows how long the kernel takes{other}.",),
        charts=tuple(charts),
    )


def _alike(
    kernels: Sequence[static.KernelAnalysis], most: int | None = None
) -> list[list[static.KernelAnalysis]]:
    """Kernels of which the first `most` findings say the same, in the order of the first of each."""
    found: dict[tuple[object, ...], list[static.KernelAnalysis]] = {}
    for kernel in kernels:
        kinds = ((x.bottleneck, x.certainty, x.summary, x.advice) for x in kernel.findings[:most])
        found.setdefault(tuple(kinds), []).append(kernel)
    return [*found.values()]


def _kernels(kernels: Sequence[static.KernelAnalysis]) -> Table:
    def cause(kernel: static.KernelAnalysis) -> str:
        return title(kernel.findings[0].bottleneck) if kernel.findings else "–"

    columns: tuple[Spec[static.KernelAnalysis], ...] = (
        spec("kernel", lambda each: text(kernel_name(each.name), code=True), words=True),
        Spec("registers", cell=lambda each: units.count(each.registers)),
        Spec("spilled", cell=_spilled, gives_way=2),
        Spec(
            "shared", cell=lambda k: units.si(k.shared_static + k.shared_dynamic, "B"), gives_way=3
        ),
        Spec("instructions", cell=lambda each: units.count(each.instructions), gives_way=1),
        Spec("first cause", cell=cause, numeric=False, shortest=16),
    )
    return table("", columns, kernels)


def _spilled(kernel: static.KernelAnalysis) -> str:
    if kernel.spill_stores is None:
        return units.NOT_AVAILABLE
    return units.si(kernel.spill_stores + (kernel.spill_loads or 0), "B")


def _card(
    found: static.StaticAnalysis,
    kernels: Sequence[static.KernelAnalysis],
    texts: Mapping[str, Sequence[str]],
) -> Card:
    """The first cause of kernels that have the same, with its place in the first of them."""
    kernel = kernels[0]
    names = [kernel_name(each.name, NAME // min(len(kernels), 2)) for each in kernels]
    shapes = {", ".join(_shape(each)) for each in kernels}
    first = next(iter(kernel.findings), None)
    return Card(
        kernel=shortlist(names, _SEVERAL),
        gpu=visible(found.target),
        shape=shapes.pop() if len(shapes) == 1 else "",
        state="slow" if first else "unknown",
        bottleneck=first.bottleneck if first else "",
        title=title(first.bottleneck) if first else "Nothing found in the code",
        gain="no estimate without a profile",
        confidence=_CONFIDENCE[first.certainty] if first else "",
        summary=visible(first.summary) if first else "Nothing in the code points to a bottleneck.",
        where=tuple(places(kernel, first, texts)) if first else (),
        do=(visible(first.advice),) if first else (),
        expect=visible(f"If this is the limit, a profile shows {small(first.look_for)}")
        if first
        else "",
        next="" if found.nothing else _next(found),
    )


def _next(found: static.StaticAnalysis) -> str:
    family, slash, name = found.subject.partition("/")
    rung = slash and family and not name.endswith((".cu", ".cubin"))
    return f"ncu-toolkit profile {f'--kernel {name}' if rung else '-- ./your_program'}"


def _shape(kernel: static.KernelAnalysis) -> Iterator[str]:
    if kernel.block_threads:
        yield f"block {kernel.block_threads}"
    yield f"{kernel.registers} registers"
    if kernel.occupancy is not None:
        yield f"theoretical occupancy {units.percent(kernel.occupancy.fraction, 2)}"


def places(
    kernel: static.KernelAnalysis, finding: StaticFinding | None, texts: Mapping[str, Sequence[str]]
) -> Iterator[CodeLine]:
    """The first place that the finding names, else the line that holds most of the first loop."""
    if finding is not None and finding.locations:
        yield _line(finding.locations[0], texts)
        return
    region = next(iter(kernel.regions), None)
    if region is None or not region.lines or not region.instructions:
        return
    file, line, n = region.lines[0]
    first = next((row for row in region.code if row.line == line), None)
    share = n / region.instructions
    of = "the instructions of the first loop" if region.depth else "the instructions"
    yield _line(Location(file, line, 0, first.sass if first else "", share, of), texts)


def _line(place: Location, texts: Mapping[str, Sequence[str]]) -> CodeLine:
    lines = texts.get(place.file, ())
    text = lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""
    sass = visible(place.sass.partition(",")[0], NAME)
    shown = visible(text, CODE, keep="\t").replace("\t", " ")
    of = place.what if place.what.startswith("the ") else f"the {place.what}"
    return CodeLine(visible(place.file), place.line, shown, sass, place.share, visible(of))


def _tables(kernel: static.KernelAnalysis, of: str) -> Iterator[Table]:
    yield _resources(kernel, of)
    if kernel.regions:
        yield _cycles(kernel.regions[0], of)
    for rank, finding in enumerate(kernel.findings):
        yield _evidence(finding, of, on_card=rank == 0)
    if kernel.regions:
        yield _loops(kernel, of)


def _named(title_of: str, rows: Sequence[tuple[str, str]], *labels: str) -> Table:
    columns: tuple[Spec[tuple[str, str]], ...] = (
        Spec(labels[0], cell=lambda row: row[0], numeric=False),
        Spec(labels[1], cell=lambda row: row[1], numeric=False, shortest=24),
    )
    return table(title_of, columns, [row for row in rows if row[1]])


def _resources(kernel: static.KernelAnalysis, of: str) -> Table:
    at, spilled = kernel.live_at, kernel.spill_stores
    place = f"{at.file}:{at.line}" if at.line else f"{at.address:#x}"
    peak = f"{kernel.live_registers} live of {kernel.registers} at {place}"
    spills = "not recorded in a cubin"
    if spilled is not None:
        spills = f"{units.count(spilled + (kernel.spill_loads or 0))} bytes"
    shared = f"{units.count(kernel.shared_static)} static + {units.count(kernel.shared_dynamic)} dynamic bytes per block"
    flight = kernel.bytes_in_flight
    rows = [
        ("registers", peak),
        ("spilled", spills),
        ("shared memory", shared),
        ("stack", f"{units.count(kernel.stack)} bytes" if kernel.stack else ""),
        ("code", f"{units.count(kernel.instructions)} instructions, {units.counted(kernel.loops, 'loop')}"),
        ("theoretical occupancy", _occupancy(kernel)),
        ("waves", units.significant(kernel.waves) if kernel.waves is not None else ""),
        ("loads in flight", f"{units.count(flight)} bytes per SM{', in the first loop' if kernel.loops else ''}" if flight else ""),
    ]  # fmt: skip
    rows += [
        (
            "what if",
            f"{units.count(step.now)} → {units.count(step.then)} {_RESOURCES[step.resource]}: "
            f"{step.active_warps} warps, {units.percent(step.fraction)}",
        )
        for step in kernel.what_if
    ]
    return _named(f"{of}Resources", rows, "resource", "use")


def _occupancy(kernel: static.KernelAnalysis) -> str:
    fill = kernel.occupancy
    if fill is None:
        parts = [f"{each.block_threads}: {units.percent(each.fraction)}" for each in kernel.blocks]
        return f"by threads per block: {', '.join(parts)}; set them with --block" if parts else ""
    limit = f", limited by {' and '.join(fill.limiters)}" if fill.limiters else ""
    return f"{units.percent(fill.fraction)}: {fill.active_warps} of {fill.max_warps} warps{limit}"


def _loops(kernel: static.KernelAnalysis, of: str) -> Table:
    name = "Busiest loops" if kernel.loops else "The code (no loop)"
    columns: tuple[Spec[Region], ...] = (
        Spec("lines", cell=_span, numeric=False),
        Spec("depth", cell=lambda region: str(region.depth), gives_way=1),
        Spec("instr.", cell=lambda region: str(region.instructions)),
        Spec("FLOP", cell=lambda region: units.significant(region.flops)),
        Spec("global", cell=_global_bytes, gives_way=6),
        Spec("shared", cell=lambda r: units.si(r.shared_load_bytes + r.shared_store_bytes, "B"), gives_way=5),
        Spec("FLOP/global B", cell=lambda region: _known(region.flops_per_global_byte), gives_way=4),
        Spec("FLOP/shared B", cell=lambda region: _known(region.flops_per_shared_byte), gives_way=3),
        Spec("loads in flight", cell=_in_flight, gives_way=2),
        Spec("busiest", cell=_busiest, numeric=False),
    )  # fmt: skip
    pass_ = " and iteration of the compiled loop, without inner loops" if kernel.loops else ""
    note = f"Per thread{pass_}. Busiest: of the units in the SM."
    return table(f"{of}{name}", columns, kernel.regions, note)


def _costs(kernel: static.KernelAnalysis, of: str) -> BarChart | None:
    """What a pass of each loop costs by unit; None for code that costs nothing."""
    most = max((n for region in kernel.regions for _, n in _by_unit(region)), default=0.0)
    if not most:
        return None
    bars: list[BarRow] = []
    for region in kernel.regions:
        ranked = _by_unit(region)
        depth = f", depth {region.depth}" if region.depth > 1 else ""
        bars.append(
            BarRow(f"{'loop' if region.depth else 'code'} at {_at_lines(region)}{depth}", ("",))
        )
        for unit, cycles in ranked:
            kind = "own" if unit == _OWN else "limit" if cycles == ranked[0][1] else "other"
            part = Segment(kind, (100 * cycles / most,))
            bars.append(BarRow(unit, (units.significant(cycles),), (part,), minor=True))
    kinds = {
        "limit": BarKind("the busiest unit", "var(--worse)"),
        "other": BarKind("other units", "var(--ours)"),
        "own": BarKind("waiting for its own results", "var(--library)"),
    }
    drawn = {part.kind for row in bars for part in row.segments}
    specs = (
        Spec[BarRow]("unit", "Loop and unit", numeric=False, cell=lambda row: row.name),
        Spec[BarRow]("cycles", "SM cycles", cell=lambda row: row.figures[0]),
    )
    return BarChart(
        slug(f"{of}costs"),
        f"{of}What does one iteration of each loop cost?",
        "",
        "Minimum SM cycles of a warp, inner loops left out. Units work side by side: the busiest one is the loop's bound. "
        "While a warp waits for its own results, other warps can work.",
        {key: kind for key, kind in kinds.items() if key in drawn},
        ("Loop and unit", "", "", "SM cycles"),
        tuple(bars),
        table("", specs, bars, key=slug(f"{of}costs-data")),
    )


#: Lines in the table of those with most registers.
_FULLEST: Final = 12


def _registers(kernel: static.KernelAnalysis, of: str) -> StepChart | None:
    """The live registers over the code, in order of addresses; None where they are not known."""
    live, code = kernel.live, kernel.code
    if not live or not max(live):
        return None
    turns = [(at, n) for at, n in enumerate(live) if not at or n != live[at - 1]]
    peak = live.index(max(live))
    fullest = sorted(_by_line(kernel).items(), key=lambda item: -item[1])[:_FULLEST]
    places = Spec[tuple[tuple[str, int], int]](
        "line", "Line", numeric=False, cell=lambda item: f"{visible(item[0][0])}:{item[0][1]}"
    )
    counts = Spec[tuple[tuple[str, int], int]](
        "live", "Most live registers", cell=lambda item: str(item[1])
    )
    at = code[peak]
    where = f"line {at.line}" if at.line else f"{at.address:#x}"
    return StepChart(
        slug(f"{of}registers"),
        f"{of}Where are registers in use?",
        "Live registers",
        f"Registers that hold a value still needed. Most: {live[peak]} of {kernel.registers} at {where}, the diamond.",
        ((*turns, (len(live) - 1, live[-1]))),
        (peak, live[peak]),
        float(max(kernel.registers, live[peak])),
        "instruction",
        "registers per thread",
        f"{where}: {live[peak]} registers, {visible(at.sass)}",
        table("", (places, counts), fullest, key=slug(f"{of}registers-data")),
    )


def _by_line(kernel: static.KernelAnalysis) -> dict[tuple[str, int], int]:
    """Most live registers at an instruction of each source line, by last name of the file."""
    found: dict[tuple[str, int], int] = {}
    for row, live in zip(kernel.code, kernel.live, strict=True):
        if row.line:
            key = (_last(row.file), row.line)
            found[key] = max(live, found.get(key, 0))
    return found


def _last(path: str) -> str:
    return path.replace("\\", "/").rsplit("/", 1)[-1]


#: Units of a loop that are drawn, those with most cycles first, and what its own dependencies are
#: called among them.
_UNITS_DRAWN: Final = 4
_OWN: Final = "dependency chain"


def _by_unit(region: Region) -> list[tuple[str, float]]:
    """The busiest units of a loop, most cycles first, then its dependencies."""
    busy = sorted(((n, unit) for unit, n in region.cycles.items() if n), reverse=True)
    found = [(UNITS.get(unit, unit), n) for n, unit in busy[:_UNITS_DRAWN]]
    return found + ([(_OWN, region.dependency_cycles)] if region.dependency_cycles else [])


def _at_lines(region: Region) -> str:
    span = _span(region)
    return span if span.startswith("0x") else f"{'lines' if ',' in span else 'line'} {span}"


def _span(region: Region) -> str:
    numbers = sorted(
        {line for _, line, n in region.lines if n * 10 >= region.instructions and line}
    )
    return ", ".join(map(str, numbers[:3])) or f"{region.start:#x}"


def _global_bytes(region: Region) -> str:
    moved = units.si(region.global_load_bytes + region.global_store_bytes, "B")
    return f"{moved} + {region.bulk_copies} bulk" if region.bulk_copies else moved


def _known(value: float | None) -> str:
    return "–" if value is None else units.significant(value)


def _in_flight(region: Region) -> str:
    n = region.loads_in_flight
    return f"{n} × {region.bytes_in_flight // n} B" if n else "–"


def _busiest(region: Region) -> str:
    limit = region.limit
    return UNITS.get(limit, limit)


def _cycles(region: Region, of: str) -> Table:
    """Least cycles by unit, its instructions by kind, and its loads and stores by width."""
    ranked = sorted(region.cycles.items(), key=lambda item: -item[1])
    busy = [(UNITS.get(unit, unit), n) for unit, n in ranked if n]
    rows = [(unit, f"{units.significant(n)} cycle{'s' * (n != 1)}") for unit, n in busy]
    memory = units.significant(region.memory_cycles) if region.memory_cycles else ""
    rows.append(("device memory", memory and f"{memory} cycles without cache hits"))
    rows.append((_OWN, f"{region.dependency_cycles} cycles in each warp"))
    rows += [("instruction mix", kinds(region, _KINDS)), ("access widths", widths(region))]
    what = "iteration of the first loop" if region.depth else "run through the code"
    name = f"{of}One {what}: minimum SM cycles per warp by unit, and instructions"
    return _named(name, rows, "unit", "minimum")


def kinds(region: Region, most: int) -> str:
    """The commonest kinds of its instructions, with their shares."""
    return ", ".join(
        f"{kind} {units.percent(n / region.instructions, 2)}"
        for kind, n in list(region.kinds.items())[:most]
    )


def widths(region: Region) -> str:
    """Its loads and stores by width."""
    return "; ".join(
        f"{base} {', '.join(f'{n} × {size} B' for size, n in sizes.items())}"
        for base, sizes in region.widths.items()
    )


def _evidence(finding: StaticFinding, of: str, on_card: bool) -> Table:
    """The figures behind a finding, with its words unless they are `on_card`."""
    name = f"{of}{title(finding.bottleneck)} ({CAUSE[_CONFIDENCE[finding.certainty]]})"
    note = "" if on_card else f"{finding.summary} {finding.advice}"
    return evidence(name, finding.evidence, note)


def evidence(name: str, facts: Sequence[Evidence], note: str = "") -> Table:
    """Measured facts, their thresholds and meanings as a table."""
    columns: tuple[Spec[Evidence], ...] = (
        Spec("evidence", cell=lambda fact: fact.label, numeric=False, shortest=20),
        Spec("value", cell=lambda fact: units.quantity(fact.value, fact.unit)),
        Spec("threshold", cell=_threshold),
        Spec("meaning", cell=lambda fact: fact.meaning, numeric=False, gives_way=1),
    )
    return table(name, columns, facts, note)


def _threshold(fact: Evidence) -> str:
    if fact.threshold is None:
        return ""
    comparison = {"<=": "≤", ">=": "≥"}.get(fact.comparison, fact.comparison)
    return f"{comparison} {units.quantity(fact.threshold, fact.unit)}"


def _listings(
    kernel: static.KernelAnalysis, of: str, texts: Mapping[str, Sequence[str]]
) -> Iterator[Listing]:
    """The source with the lines of the first loop marked, then that loop's instructions."""
    region = next(iter(kernel.regions), None)
    if region is None:
        return
    by_file: dict[str, dict[int, int]] = {}
    for file, line, n in region.lines:
        by_file.setdefault(file, {})[line] = n
    for file, lines in by_file.items():
        if file in texts:
            live = {line: n for (name, line), n in _by_line(kernel).items() if name == file}
            shown = _source(f"{of}{visible(file)}", texts[file], lines, bool(region.depth))
            of_lines = tuple(live.get(int(number), 0) for _, number, _ in shown.lines)
            yield replace(shown, live=of_lines if live else (), registers=kernel.registers)
    code = region.code[:_LINES]
    rows = [("", f"{row.line or ''}", visible(row.sass, CODE)) for row in code]
    if rows:
        what = "the first loop" if region.depth else "the kernel"
        title = f"{of}Instructions of {what}, with their source lines"
        at = {row.address: n for row, n in zip(kernel.code, kernel.live, strict=True)}
        counts = tuple(at.get(row.address, 0) for row in code) if at else ()
        yield Listing(title, tuple(rows), counts, kernel.registers)


def _source(name: str, text: Sequence[str], marked: Mapping[int, int], looped: bool) -> Listing:
    """A source file without the blocks of TOML around a kernel of the toolkit."""
    head, code, _ = split("\n".join(text))
    first = head.count("\n") + 1
    lines = code.rstrip().splitlines()
    start = min(max(0, min(marked) - first - 20), len(lines)) if len(lines) > _LINES else 0
    rows = tuple(
        (
            "*" if number in marked else "",
            str(number),
            visible(line, CODE * 2, keep="\t").expandtabs(4),
        )
        for number, line in enumerate(lines[start : start + _LINES], first + start)
    )
    what = "lines of the first loop are marked" if looped else "lines with code are marked"
    return Listing(f"{name}: {what}", rows)


#: Of one loop on a launch's page: lines that it names, and kinds of instructions.
_NAMED: Final = 3
_PAGE_KINDS: Final = 4
_UNKNOWN: Final = "Read from the SASS in the report. Trip counts, cache hits and waiting are not in the code, so nothing here is a time."
_OUTCOMES: Final[dict[static.Outcome, tuple[str, Tone]]] = {
    "confirmed": ("confirmed", "good"), "runner-up": ("confirmed as a runner-up", "good"), "refuted": ("refuted", "bad"),
    "not judged": ("not checked", "muted"), "not seen": ("not found", "muted"),
}  # fmt: skip


def static_parts(profile: Profile, diagnosis: Diagnosis) -> Iterator[tuple[str, Any]]:
    """What the code alone says of a launch, beside what its profile says: parts of its page. Nothing
    where the report holds no code, or code whose branches cannot be followed."""
    code = static.code_of(profile)
    if code is None:
        return
    yield "heading", "What the code says without a run"
    yield "facts", _facts(profile, code)
    yield "table", _regions(code)
    found = static.checked(code, diagnosis)
    specs: list[Spec[static.Checked]] = [
        spec("Bottleneck", lambda row: Cell(title(row.finding.bottleneck), row.finding.bottleneck), words=True),
        spec("Certainty", lambda row: text(row.finding.certainty), words=True),
        spec("In the code", lambda row: text(row.finding.summary), words=True),
        spec("Profile says", lambda row: text(_OUTCOMES[row.outcome][0], tone=_OUTCOMES[row.outcome][1]), words=True),
        spec("Why", lambda row: text(row.why), words=True),
    ]  # fmt: skip
    if found:
        yield "table", table("What the code points to", specs, found, key="static-findings")
    yield "note", _UNKNOWN


def registers(profile: Profile) -> Fact:
    return Fact("Registers", number(profile.launch.registers, "count", "not in the report"))


def _facts(profile: Profile, code: static.ProfiledCode) -> list[Fact]:
    facts, fill, launch, peak = code.facts, code.facts.occupancy, profile.launch, code.live.peak
    loops = sum(region.depth > 0 for region in facts.regions)
    row = profile.instructions[code.live.peak_index]
    where = f"{row.file.rsplit('/', 1)[-1]}:{row.line}" if row.file else f"instruction {row.index}"
    highest = "highest number at one instruction, by liveness analysis"
    local = "LDL and STL in the code: spilled registers, or arrays with run-time indices"
    limit = " and ".join(fill.limiters) if fill else ""
    limit = f"limited by {limit}" if limit else "all warps fit"
    warps = facts.warps
    flight = facts.main.bytes_in_flight * warps * WARP_SIZE if warps is not None else None
    in_flight = "bytes of global loads that an SM can have in flight"
    in_flight += " in the first loop" if loops else ""
    size = f"{units.count(len(facts.function.instructions))} instructions, {units.counted(loops, 'loop')}"
    filled = missing("the limits of this architecture are not known")
    if fill:
        filled = Cell(f"{units.percent(fill.fraction)}, {limit}", fill.fraction)
    return [
        registers(profile),
        Fact("Live registers", Cell(f"{peak} at {visible(where)}", peak, highest)),
        Fact("Spilled", number(code.local_instructions, "count", title=local)),
        Fact("Shared memory", number(launch.shared, "B", "not in the report")),
        Fact("Theoretical occupancy", filled),
        Fact("Code", text(size)),
        Fact("In flight", number(flight, "B", "the occupancy is not known", title=in_flight)),
    ]


def _regions(code: static.ProfiledCode) -> Table:
    """The loops with most work: each figure is for one thread and one pass, without the loops
    inside."""
    looped = code.facts.looped
    none = "it moves no global memory, or only by bulk copies"

    def where(region: Region) -> Cell:
        lines = [row[:2] for row in region.lines if row[2] * 10 >= region.instructions][:_NAMED]
        lines = lines or [row[:2] for row in region.lines[:1]]
        return text(", ".join(f"{file}:{line}" for file, line in lines) or f"{region.start:#x}")

    def moved(region: Region) -> Cell:
        moved = region.global_load_bytes + region.global_store_bytes
        bulk = f" and {region.bulk_copies} bulk copies" if region.bulk_copies else ""
        return Cell(f"{units.si(moved, 'B')}{bulk}", moved)

    def flight(region: Region) -> Cell:
        loads = region.loads_in_flight
        return text(f"{loads}, {units.si(region.bytes_in_flight, 'B')}" if loads else "none")

    def busiest(region: Region) -> Cell:
        if not region.limit:
            return text("–")
        cycles = region.cycles[region.limit]
        return Cell(f"{_busiest(region)} {units.significant(cycles)}", cycles)

    specs: list[Spec[Region]] = [
        spec("Loop" if looped else "Code", where, words=True),
        spec("Depth", lambda region: number(region.depth, "count"), "nesting depth"),
        spec("Instructions", lambda region: number(region.instructions, "count"), "of one iteration"),
        spec("Mix", lambda region: text(kinds(region, _PAGE_KINDS)), "by kind", words=True),
        spec("FLOP", lambda region: number(region.flops, "count"), "of one thread"),
        spec("Global", moved, "bytes that a thread loads and stores"),
        spec("Shared", lambda r: number(r.shared_load_bytes + r.shared_store_bytes, "B"), "bytes that a thread loads and stores"),
        spec("FLOP per byte", lambda region: number(region.flops_per_global_byte, "", none), "over the requested global bytes, before any cache"),
        spec("Widths", lambda region: text(widths(region) or "–"), "loads and stores, bytes per thread", words=True),
        spec("Loads in flight", flight, "the most that one thread can have in flight"),
        spec("Busiest", busiest, "fewest SM cycles of one iteration of a warp, for the busiest unit"),
    ]  # fmt: skip
    caption = "The whole code, which has no loop, for one thread"
    if looped:
        caption = "Loops with most work, for one thread and one iteration"
    return table(caption, specs, code.facts.regions[:LISTED], key="static-regions")
