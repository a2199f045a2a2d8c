"""The tables of a launch's page: stalls, memory traffic, instructions, occupancy, the profiler's
own rules, every metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.figures import reason_name
from ncu_toolkit.document.views import (
    Cell,
    Chart,
    Table,
    missing,
    number,
    plain_table,
    text,
)
from ncu_toolkit.explain.busy import Use
from ncu_toolkit.explain.sections import fact_cell
from ncu_toolkit.hardware.occupancy import (
    Occupancy,
    limits_of,
    next_steps,
    occupancy,
    what_if_block,
    what_if_registers,
    what_if_shared,
)
from ncu_toolkit.metrics.registry import REGISTRY, STALL_REASONS
from ncu_toolkit.model import Profile
from ncu_toolkit.pages import charts
from ncu_toolkit.pages.columns import compact
from ncu_toolkit.sass import attribution

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


def stall_table(profile: Profile) -> Table | None:
    """The stall stack with what each reason means, and PC samples beside it. None where neither was
    collected."""
    stack = dict(profile.stalls.reasons) if profile.stalls else {}
    samples = profile.samples
    reasons = sorted(
        dict.fromkeys((*stack, *samples)),  # not a set: reasons that tie keep one order
        key=lambda reason: (-stack.get(reason, 0.0), -samples.get(reason, 0)),
    )
    if not reasons:
        return None
    total, counted = sum(stack.values()), sum(samples.values())
    rows = []
    for reason in reasons:
        cycles, hits = stack.get(reason), samples.get(reason, 0)
        if not cycles and not hits:
            continue
        share = cycles / total if cycles is not None and total else None
        rows.append(
            [
                Cell(reason_name(reason), reason.replace("_", " "), STALL_REASONS.get(reason, "")),
                number(cycles, "cycles/inst", "not in the stall stack of this GPU"),
                number(share, "fraction", "the stall stack was not collected", bar=share),
                number(
                    hits / counted if counted else None,
                    "fraction",
                    "no PC samples in this report",
                    title=f"{units.count(hits)} of {units.count(counted)} samples",
                ),
                text(STALL_REASONS.get(reason, "This version does not know this stall reason.")),
            ]
        )
    note = ""
    if profile.stalls and profile.stalls.residual is not None and profile.stalls.latency:
        apart = units.percent(abs(profile.stalls.residual) / profile.stalls.latency, 2)
        note = (
            f"The reasons sum to {units.quantity(total, 'cycles/inst')}, the profiler's own total is "
            f"{units.quantity(profile.stalls.latency, 'cycles/inst')}. They differ by "
            f"{apart.replace('<', 'less than')}, because the counters come from different replay passes."
        )
    headings: list[str | tuple[str, str]] = [
        "Reason",
        ("Cycles", "cycles per issued instruction"),
        "Share",
        ("Samples", "share of the PC samples"),
        "What the warp waits for",
    ]
    return plain_table(
        "stalls",
        "Cycles between two instructions of a warp, by stall reason",
        headings,
        rows,
        numeric=(1, 2, 3),
        note=note,
    )


def traffic_table(profile: Profile, compulsory: float | None, shares: Mapping[str, Use]) -> Table:
    """Bytes by memory level, over the compulsory bytes, with hit rates, and how busy it was by
    `shares`, as in the picture and on the card."""

    def busy(resource: str, counter: str) -> Cell:
        use = shares.get(resource)
        return fact_cell(profile, counter) if use is None else number(use.busy, "fraction")

    no_floor = "the compulsory traffic is known only for rungs of a ladder"
    levels: tuple[tuple[str, str, str, tuple[str, str], str], ...] = (
        (
            "L1 (global)",
            "l1_global_bytes",
            "l1_hit_rate",
            ("l1_tag", "l1_tag_active"),
            "Bytes in the sectors that global loads and stores request from L1.",
        ),
        (
            "L2 (from SMs)",
            "l2_bytes",
            "l2_hit_rate",
            ("l2", "l2_utilization"),
            "Bytes that SMs read from or wrote to L2.",
        ),
        (
            "DRAM",
            "dram_bytes",
            "",
            ("dram", "dram_utilization"),
            "Bytes read from and written to device memory.",
        ),
    )
    values = {name: figures.value(profile, name) for _, name, _, _, _ in levels}
    largest = max((value for value in values.values() if value), default=0.0)
    rows = []
    for label, name, hits, used, meaning in levels:
        moved = values[name]
        cell = fact_cell(profile, name)
        over = number(
            moved / compulsory if moved is not None and compulsory else None,
            "ratio",
            no_floor if not compulsory else cell.title,
        )
        shown = number(
            moved,
            "B",
            cell.title,
            title=meaning,
            bar=moved / largest if moved and largest else None,
        )
        rows.append(
            [
                text(label, meaning),
                shown,
                over,
                fact_cell(profile, hits, meaning=False)
                if hits
                else missing("device memory has no hit rate"),
                busy(*used),
            ]
        )
    together = "this row counts passes of shared memory and global accesses, not bytes"
    for at, label, meaning, why, used in (
        (2, "L2 to SM", "the link from L2 to the SMs", "the bytes of L2", ("fill", "l1_fill_active")),
        (1, "L1 data", "shared memory and global accesses together", together, ("l1_data", "l1_data_pipe_active")),
    ):  # fmt: skip
        rows.insert(at, [text(label, meaning), *[missing(why)] * 3, busy(*used)])
    if compulsory:
        rows.append(
            [
                text("compulsory", "each input read once, each output written once"),
                number(compulsory, "B", bar=compulsory / largest if largest else None),
                number(1.0, "ratio"),
                missing("a bound, not a level"),
                missing("a bound, not a level"),
            ]
        )
    extra = (
        "ld_sectors_per_request",
        "st_sectors_per_request",
        "shared_wavefronts",
        "shared_conflict_excess",
        "local_sectors",
    )
    facts = "; ".join(
        f"{figures.small(figures.describe(name)[1])} {units.quantity(value, figures.describe(name)[0])}"
        for name in extra
        if (value := figures.value(profile, name)) is not None
    )
    headings: list[str | tuple[str, str]] = [
        "Level",
        "Moved",
        ("× compulsory", "over the fewest bytes the problem needs"),
        ("Hit rate", "share of the accesses that hit at this level"),
        ("Busy", "as in the picture and on the card. Of L1 (global), its tag stage"),
    ]
    return plain_table(
        "traffic",
        "Memory traffic, level by level",
        headings,
        rows,
        numeric=(1, 2, 3, 4),
        note=f"{facts[0].upper()}{facts[1:]}." if facts else "",
    )


def mix_tables(profile: Profile) -> tuple[Table, Table] | None:
    """Executed instructions by kind and opcode, and the widths of memory instructions. None where
    not collected."""
    if not profile.mix.collected:
        return None
    total = profile.mix.total or 1
    ranked = sorted(profile.mix.opcodes.items(), key=lambda item: -item[1])
    rows = [
        [
            text(opcode, code=True),
            text(attribution.kind(opcode)),
            Cell(compact(n), n, units.count(n)),
            number(n / total, "fraction", bar=n / total),
            _lanes(profile, opcode, n),
        ]
        for opcode, n in ranked[:_OPCODES_SHOWN]
    ]
    rest = sum(n for _, n in ranked[_OPCODES_SHOWN:])
    if rest:
        rows.append(
            [
                text(f"{len(ranked) - _OPCODES_SHOWN} others"),
                text(""),
                Cell(compact(rest), rest, units.count(rest)),
                number(rest / total, "fraction", bar=rest / total),
                missing("a sum of several opcodes"),
            ]
        )
    mix = plain_table(
        "mix",
        f"{units.count(profile.mix.total)} warp-level instructions by opcode",
        [
            "Opcode",
            "Kind",
            "Executed",
            "Share",
            ("Active lanes", "threads active and not predicated off, of 32"),
        ],
        rows,
        numeric=(2, 3, 4),
    )
    widths: list[list[Cell]] = []
    for name, words in _MEMORY_OPCODES.items():
        found: dict[int, int] = {}
        for opcode, n in profile.mix.opcodes.items():
            if n and attribution.base(opcode) == name:
                found[attribution.width(opcode)] = found.get(attribution.width(opcode), 0) + n
        whole = sum(found.values())
        widths.extend(
            [
                text(name, code=True),
                text(words),
                number(width * 8, "count"),
                Cell(compact(n), n, units.count(n)),
                number(n / whole, "fraction", bar=n / whole),
            ]
            for width, n in sorted(found.items())
            if whole
        )
    headings: list[str | tuple[str, str]] = [
        "Opcode",
        "What",
        ("Bits", "bits per lane and instruction"),
        "Executed",
        ("Of these", "share among instructions of this opcode"),
    ]
    return mix, plain_table(
        "widths", "Widths of memory instructions", headings, widths, numeric=(2, 3, 4)
    )


def _lanes(profile: Profile, opcode: str, warps: int) -> Cell:
    threads = profile.mix.thread_opcodes.get(opcode)
    return number(
        threads / warps if threads is not None and warps else None,
        "lanes",
        "thread-level counts were not collected",
    )


def occupancy_section(profile: Profile) -> tuple[Table, tuple[Chart, ...], tuple[str, ...]]:
    """Block limits by what a block needs, the what-if charts, and the nearest changes that would fit
    one more block."""
    limits: list[list[Cell]] = []
    fewest, blocks = figures.occupancy_limiters(profile), figures.block_limits(profile)
    for name, words in figures.BLOCK_LIMITS.items():
        cell = fact_cell(profile, name, meaning=False)
        if name in blocks and blocks[name] != cell.value:
            split = f"Nsight: {cell.text}, with the shared memory that the driver set apart for this launch"
            cell = number(blocks[name], "count", title=split)
        limits.append([text(words), cell, text("limits" if name in fewest else "")])
    limits.append(
        [
            text("theoretical occupancy"),
            fact_cell(profile, "theoretical_occupancy", bar=True),
            text(""),
        ]
    )
    limits.append(
        [text("achieved occupancy"), fact_cell(profile, "achieved_occupancy", bar=True), text("")]
    )
    limits.append([text("waves"), fact_cell(profile, "waves"), text("")])
    table = plain_table(
        "occupancy",
        "Blocks an SM can hold, by resource",
        ["Resource", "Blocks", ""],
        limits,
        numeric=(1,),
    )
    launch = profile.launch
    try:
        charts_and_steps = _studies(
            profile.device.cc,
            launch.threads_per_block,
            launch.registers,
            launch.shared_static,
            launch.shared_dynamic,
        )
    except ToolkitError as error:
        return table, (), (f"No what-if: {visible(error.message)}.",)
    studies, steps = charts_and_steps
    return table, studies, steps or (_all_fit(profile),)


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
def _studies(
    cc: tuple[int, int],
    block_threads: int,
    registers: int,
    shared_static: int,
    shared_dynamic: int,
) -> tuple[tuple[Chart, ...], tuple[str, ...]]:
    """The what-if charts and the nearest changes, for the arguments of `occupancy`: launches of one
    program often share them. Raises UsageProblem."""
    base = occupancy(cc, block_threads, registers, shared_static, shared_dynamic)
    capacity = limits_of(cc).warps
    studies: tuple[
        tuple[str, str, Callable[[Occupancy], dict[int, Occupancy]], float, float], ...
    ] = (
        ("registers", "registers per thread", what_if_registers, base.registers, 1),
        ("shared", "shared memory per block, KiB", what_if_shared, base.shared, 1024),
        ("block", "threads per block", what_if_block, base.block_threads, 1),
    )
    return (
        tuple(
            _what_if(
                key, label, study(base), (now / scale, float(base.active_warps)), scale, capacity
            )
            for key, label, study, now, scale in studies
        ),
        _next_steps(base),
    )


def _what_if(
    key: str,
    label: str,
    found: dict[int, Occupancy],
    now: tuple[float, float],
    scale: float,
    capacity: int,
) -> Chart:
    rows: list[list[Cell]] = []
    previous = -1
    for value, result in found.items():
        if result.active_warps != previous:
            rows.append(
                [
                    number(value / scale, "count" if scale == 1 else ""),
                    number(result.active_warps, "count"),
                    number(result.fraction, "fraction"),
                    text(" and ".join(result.limiters) or "nothing, all warps fit"),
                ]
            )
        previous = result.active_warps
    table = plain_table(
        f"what-if-{key}-data",
        f"Resident warps per SM from each value of {label} on",
        ["From", "Warps", "Occupancy", "Limited by"],
        rows,
        numeric=(0, 1, 2),
    )
    summary = f"Resident warps per SM (of {capacity}) by {label}, all else unchanged. The diamond is this launch."
    figure = charts.what_if(
        label,
        [value / scale for value in found],
        [float(result.active_warps) for result in found.values()],
        now,
        capacity,
    )
    return Chart(
        f"what-if-{key}",
        f"What if: {label.split(',')[0]}",
        summary,
        figure,
        table,
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


def rules_table(profile: Profile) -> Table | None:
    """Nsight Compute's own rule messages as the report holds them."""
    if not profile.rules:
        return None
    rows = [
        [
            text(rule.rule),
            text(
                " ".join(f"{rule.title}: {rule.text}".split())
                if rule.title
                else " ".join(rule.text.split())
            ),
            text(rule.kind),
            number(
                rule.speedup / 100 if rule.speedup is not None else None,
                "fraction",
                "the rule gives no estimate",
            ),
            text(rule.scope or "–"),
        ]
        for rule in sorted(profile.rules, key=lambda r: -(r.speedup or 0.0))
    ]
    headings: list[str | tuple[str, str]] = [
        "Rule",
        "Message",
        "Kind",
        ("Estimate", "Nsight Compute's estimated gain"),
        "Scope",
    ]
    return plain_table(
        "rules", "Messages of Nsight Compute's own rules", headings, rows, numeric=(3,)
    )


def metrics_table(profile: Profile) -> Table:
    """Every registry metric with its value or the reason why there is none."""
    rows = []
    for name, entry in REGISTRY.items():
        rows.append(
            [
                text(entry.label, entry.meaning),
                fact_cell(profile, name, meaning=False),
                text(entry.ncu[0], code=True),
            ]
        )
    return plain_table(
        "metrics",
        "All figures read from the report",
        ["Figure", "Value", "Nsight Compute's name"],
        rows,
        numeric=(1,),
    )
