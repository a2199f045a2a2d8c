"""The tables of a launch's page: stalls, memory traffic, instructions, occupancy, the profiler's
own rules, every metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from ncu_toolkit.core import units
from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.core.safe import visible
from ncu_toolkit.core.units import LEAST_GAIN
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.figures import reason_name
from ncu_toolkit.diagnosis.rules import bottleneck_ids, title
from ncu_toolkit.document.card import whole_percent
from ncu_toolkit.document.tables import Cell, Spec, Table, missing, number, plain_table, table, text
from ncu_toolkit.document.views import Fold, StepChart
from ncu_toolkit.explain.sections import Use, fact_cell, fact_label, spec
from ncu_toolkit.hardware.specs import (
    Occupancy,
    next_steps,
    what_if_block,
    what_if_registers,
    what_if_shared,
)
from ncu_toolkit.metrics.registry import REGISTRY, STALL_REASONS
from ncu_toolkit.model import Finding, Profile, RuleMessage
from ncu_toolkit.pages.book import Book
from ncu_toolkit.sass import attribution

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


def stall_fold(profile: Profile) -> Fold | None:
    """The stall stack with what each reason means, and PC samples beside it. None where neither was
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
    ranked = sorted(
        filter(lambda r: any(weight(r)), dict.fromkeys((*stack, *samples))),
        key=weight,
        reverse=True,
    )
    caption = "Cycles between two instructions of a warp, by stall reason"
    return table(caption, specs, ranked, note, "stalls")


_PASSES: Final = "this row counts passes of shared memory and global accesses, not bytes"
#: Levels and links: label, meaning, bytes, hit rate, and the unit with its counter. Without bytes or
#: hit rate there is the reason why.
_LEVELS: Final = (
    ("L1 (global)", "Bytes in the sectors that global loads and stores request from L1.",
     "l1_global_bytes", "l1_hit_rate", "l1_tag", "l1_tag_active"),
    ("L1 data", "shared memory and global accesses together", "", _PASSES, "l1_data", "l1_data_pipe_active"),
    ("L2 (from SMs)", "Bytes that SMs read from or wrote to L2.", "l2_bytes", "l2_hit_rate", "l2", "l2_utilization"),
    ("L2 to SM", "the link from L2 to the SMs", "", "the bytes of L2", "fill", "l1_fill_active"),
    ("DRAM", "Bytes read from and written to device memory.", "dram_bytes", "", "dram", "dram_utilization"),
)  # fmt: skip
#: What is told below the table, where it is known.
_ACCESSES: Final = (
    "ld_sectors_per_request", "st_sectors_per_request", "shared_wavefronts", "shared_conflict_excess", "local_sectors",
)  # fmt: skip


def traffic_table(profile: Profile, compulsory: float | None, shares: Mapping[str, Use]) -> Table:
    """Bytes by memory level, over the compulsory bytes, with hit rates, and how busy it was by
    `shares`, as in the picture and on the card."""
    known = {name: figures.value(profile, name) for _, _, name, *_ in _LEVELS if name}
    largest = max((value for value in known.values() if value), default=0.0)
    no_floor = "the compulsory traffic is known only for rungs of a ladder"
    rows: list[list[Cell]] = []
    for label, meaning, name, hits, unit, counter in _LEVELS:
        use = shares.get(unit)
        busy = fact_cell(profile, counter) if use is None else number(use.busy, "fraction")
        if not name:
            rows.append([text(label, meaning), *[missing(hits)] * 3, busy])
            continue
        moved, why = known[name], figures.fact(profile, name).why
        over = moved / compulsory if moved is not None and compulsory else None
        bar = moved / largest if moved and largest else None
        rows.append(
            [
                text(label, meaning),
                number(moved, "B", why, title=meaning, bar=bar),
                number(over, "ratio", why if compulsory else no_floor),
                fact_cell(profile, hits, meaning=False)
                if hits
                else missing("device memory has no hit rate"),
                busy,
            ]
        )
    if compulsory:
        least = number(compulsory, "B", bar=compulsory / largest if largest else None)
        bound = [missing("a bound, not a level")] * 2
        name_cell = text("compulsory", "each input read once, each output written once")
        rows.append([name_cell, least, number(1.0, "ratio"), *bound])
    told = (fact for name in _ACCESSES if (fact := figures.fact(profile, name)).value is not None)
    note = "; ".join(
        f"{figures.small(fact.label)} {units.quantity(fact.value, fact.unit)}" for fact in told
    )
    headings: list[str | tuple[str, str]] = [
        "Level",
        "Moved",
        ("× compulsory", "over the fewest bytes the problem needs"),
        ("Hit rate", "share of the accesses that hit at this level"),
        ("Busy", "as in the picture and on the card. Of L1 (global), its tag stage"),
    ]
    note = f"{note[0].upper()}{note[1:]}." if note else ""
    caption = "Memory traffic, level by level"
    return plain_table("traffic", caption, headings, rows, numeric=(1, 2, 3, 4), note=note)


def instruction_fold(profile: Profile, code: Iterable[tuple[str, Any]]) -> Fold | None:
    """Executed instructions, and what the `code` alone tells. None where nothing is known."""
    mix = mix_tables(profile) if profile.launch.complete else None
    parts = [*([("pair", mix)] if mix else []), *code]
    line = "from the code alone"
    if profile.mix.collected:
        total = profile.mix.total
        ranked = sorted(profile.mix.opcodes.items(), key=lambda item: -item[1])[:_NAMED]
        named = ", ".join(f"{opcode} {whole_percent(n / (total or 1))}" for opcode, n in ranked)
        line = f"{compact(total)} by warps: {named}"
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
    return Cell(compact(n), n, units.count(n))


def _part(share: float) -> Cell:
    return number(share, "fraction", bar=share)


def occupancy_fold(profile: Profile) -> Fold:
    """Block limits by what a block needs, the what-if charts, and the nearest changes that would fit
    one more block."""
    achieved, most = (
        figures.value(profile, name) for name in ("achieved_occupancy", "theoretical_occupancy")
    )
    line = "what limits the blocks on an SM"
    if achieved is not None and most is not None:
        line = f"{whole_percent(achieved)} achieved of {whole_percent(most)} possible"
        limits = limiter_words(profile)
        line += f", limited by {limits}" if limits and most < 1 else ""
    studies: tuple[StepChart, ...] = ()
    try:
        base = figures.occupancy_needed(profile)
        studies, steps = _studies(base), _next_steps(base) or (_all_fit(profile),)
    except ToolkitError as error:
        steps = (f"No what-if: {visible(error.message)}.",)
    parts = [("table", occupancy_table(profile)), *(("text", step) for step in steps)]
    parts += [("stairs", studies)] if studies else []
    return Fold("occupancy-section", "Occupancy what-if", line, tuple(parts))


def occupancy_table(profile: Profile) -> Table:
    fewest, blocks = figures.occupancy_limiters(profile), figures.block_limits(profile)
    rows: list[list[Cell]] = []
    for name, words in figures.BLOCK_LIMITS.items():
        cell = fact_cell(profile, name, meaning=False)
        if name in blocks and blocks[name] != cell.value:
            split = f"Nsight: {cell.text}, with the shared memory that the driver set apart for this launch"
            cell = number(blocks[name], "count", title=split)
        rows.append([text(words), cell, text("limits" if name in fewest else "")])
    for words in ("theoretical occupancy", "achieved occupancy", "waves"):
        cell = fact_cell(profile, words.replace(" ", "_"), bar=True)
        rows.append([text(words), cell, text("")])
    caption, labels = "Blocks an SM can hold, by resource", ["Resource", "Blocks", ""]
    return plain_table("occupancy", caption, labels, rows, numeric=(1,))


#: From this distance on, an achieved occupancy below the one that resources allow is explained.
_GAP: Final = 0.1


def _all_fit(profile: Profile) -> str:
    """Why no resource is in the way of more warps, and what keeps the achieved occupancy below."""
    allowed = f"The resources of an SM allow {units.percent(1)} occupancy"
    achieved = figures.value(profile, "achieved_occupancy")
    if achieved is None:
        return f"{allowed}, so changing them cannot raise it."
    reached = f"{units.percent(achieved)} was achieved"
    if achieved > 1 - _GAP:
        return f"{allowed}, and {reached}."
    waves = figures.value(profile, "waves")
    if waves is None:
        why = "Blocks end too early, or the grid is too small."
    elif waves < 1:
        why = f"The grid is too small: its blocks take {units.percent(waves)} of the places on all SMs."
    else:
        why = (
            f"The grid is large enough for {units.significant(waves)} waves, so blocks or their warps"
            " end too early to keep the SM full."
        )
    return f"{allowed}, but {reached}. {why}"


@lru_cache(maxsize=64)
def _studies(base: Occupancy) -> tuple[StepChart, ...]:
    """The what-if charts. Launches of one program often share them."""
    shared = what_if_shared(base)
    return (
        _what_if(
            "registers",
            "registers per thread",
            "registers",
            what_if_registers(base),
            base.registers,
            base,
        ),
        _what_if(
            "shared",
            "shared memory per block, KiB",
            "shared memory",
            shared,
            base.shared,
            base,
            1024,
        ),
        _what_if(
            "block",
            "threads per block",
            "block sizes",
            what_if_block(base),
            base.block_threads,
            base,
        ),
    )


def _what_if(
    key: str,
    label: str,
    plurals: str,
    found: dict[int, Occupancy],
    now: float,
    base: Occupancy,
    scale: int = 1,
) -> StepChart:
    """Resident warps by one resource, of which the launch has `now`; shown in units of `scale`."""
    before = [None, *(result.active_warps for result in found.values())]
    turns = [
        turn
        for turn, warps in zip(found.items(), before, strict=False)
        if turn[1].active_warps != warps
    ]
    unit = "count" if scale == 1 else ""
    specs: list[Spec[tuple[int, Occupancy]]] = [
        spec("From", lambda turn: number(turn[0] / scale, unit)),
        spec("Warps", lambda turn: number(turn[1].active_warps, "count")),
        spec("Occupancy", lambda turn: number(turn[1].fraction, "fraction")),
        spec(
            "Limited by",
            lambda turn: text(" and ".join(turn[1].limiters) or "nothing, all warps fit"),
            words=True,
        ),
    ]
    caption = f"Resident warps per SM from each value of {label} on"
    summary = f"Resident warps per SM (of {base.max_warps}) by {label}, all else unchanged. The diamond is this launch."
    data = table(caption, specs, turns, key=f"what-if-{key}-data")
    last = next(reversed(found))
    heights = [
        *((value / scale, result.active_warps) for value, result in turns),
        (last / scale, found[last].active_warps),
    ]
    title = f"How many warps would fit at other {plurals}?"
    return StepChart(
        f"what-if-{key}",
        title,
        f"What if: {label.split(',')[0]}",
        summary,
        tuple(heights),
        (now / scale, base.active_warps),
        base.max_warps,
        label,
        "warps an SM",
        f"now: {now / scale:g}, {base.active_warps} warps",
        data,
    )


def _next_steps(base: Occupancy) -> tuple[str, ...]:
    """Empty where all warps fit."""
    if not base.limiters:
        return ()
    shapes = {
        "registers": "{} registers per thread",
        "shared memory": "{} bytes of shared memory per block",
    }
    words = [
        f"One more block would fit at {shapes[resource].format(units.count(value))}."
        for resource, value in next_steps(base).items()
    ]
    return tuple(words) or (
        "No change of registers or shared memory alone makes room for another block.",
    )


def rules_table(profile: Profile) -> Table:
    """Nsight Compute's own rule messages as the report holds them."""

    def message(rule: RuleMessage) -> Cell:
        return text(
            " ".join(f"{rule.title}: {rule.text}".split() if rule.title else rule.text.split())
        )

    def gain(rule: RuleMessage) -> Cell:
        part = rule.speedup / 100 if rule.speedup is not None else None
        return number(part, "fraction", "the rule gives no estimate")

    specs: list[Spec[RuleMessage]] = [
        spec("Rule", lambda rule: text(rule.rule), words=True),
        spec("Message", message, words=True),
        spec("Kind", lambda rule: text(rule.kind), words=True),
        spec("Estimate", gain, "Nsight Compute's estimated gain"),
        spec("Scope", lambda rule: text(rule.scope or "–"), words=True),
    ]
    ranked = sorted(profile.rules, key=lambda rule: -(rule.speedup or 0.0))
    return table("Messages of Nsight Compute's own rules", specs, ranked, key="rules")


def metrics_table(profile: Profile) -> Table:
    """Every registry metric with its value or the reason why there is none."""
    specs: list[Spec[str]] = [
        spec("Figure", fact_label, words=True),
        spec("Value", lambda name: fact_cell(profile, name, meaning=False)),
        spec(
            "Nsight Compute's name", lambda name: text(REGISTRY[name].ncu[0], code=True), words=True
        ),
    ]
    return table("All figures read from the report", specs, list(REGISTRY), key="metrics")


def limiter_words(profile: Profile) -> str:
    """What limits the resident blocks, in words; empty where the report does not say."""
    return " and ".join(figures.BLOCK_LIMITS[name] for name in figures.occupancy_limiters(profile))


def compact(value: float) -> str:
    """A count with three digits and a prefix: 134 M; small ones in full."""
    return units.count(value) if abs(value) < 10_000 else units.si(value, "").rstrip()


def verdict_cell(book: Book, profile: Profile) -> Cell:
    """The verdict's title, with its sentence on hover; its value is the bottleneck's id."""
    shown = book.card(profile)
    return Cell(
        shown.title, shown.bottleneck, shown.summary, tone="good" if shown.state == "roof" else ""
    )


def cause_cell(bottleneck: str) -> Cell:
    """A bottleneck's title; its value is its id."""
    return Cell(cause(bottleneck), visible(bottleneck))


@lru_cache(maxsize=256)
def cause(bottleneck: str) -> str:
    """A bottleneck's title, or its id where this version has no such rule."""
    return title(bottleneck) if bottleneck in bottleneck_ids() else visible(bottleneck)


def gain_cell(finding: Finding) -> Cell:
    """The predicted speedup of a finding, or why there is none: 1.00 would say that nothing can be
    gained."""
    speedup = finding.speedup or 1.0
    if finding.good and speedup < LEAST_GAIN:
        return missing("at its roof, nothing to remove", "at its roof")
    if speedup < LEAST_GAIN:
        because = f" {visible(finding.arithmetic[-1])}" if finding.arithmetic else ""
        return missing(f"the report does not show the possible gain.{because}")
    of = "gap to its roof" if finding.good else "estimate, if only this is fixed"
    return Cell(units.ratio(speedup), speedup, of)
