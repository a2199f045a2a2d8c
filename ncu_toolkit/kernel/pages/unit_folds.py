"""What a launch's page shows of the chip. The memory system as a picture, after Nsight Compute's memory
chart: what each kind of access moves, L1 and L2 with their hit rates, and the memories behind them,
with the bytes of every link and how busy its busiest unit is; the same as a table; and occupancy: what
limits the blocks of an SM, and what would make room for more.

What the report does not hold is left out and named, never shown as zero."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import Card, whole_percent
from ncu_toolkit.base.document.tables import (
    Cell,
    Spec,
    Table,
    missing,
    number,
    plain_table,
    table,
    text,
)
from ncu_toolkit.base.document.views import Fold, Lane, Level, Memory, Moved, StepChart, Wire
from ncu_toolkit.base.hardware.specs import (
    Occupancy,
    next_steps,
    what_if_block,
    what_if_registers,
    what_if_shared,
)
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.kernel.diagnosis.kernel import Kernel
from ncu_toolkit.kernel.diagnosis.rules._launch import shared_wavefront_part
from ncu_toolkit.kernel.diagnosis.time_model import ON_CHIP
from ncu_toolkit.kernel.explain.sections import Use, fact_cell, resource_name, spec
from ncu_toolkit.kernel.sass.opcodes import base, width

#: What follows a figure that no counter of the report has: lanes x bytes of executed instructions.
DERIVED: Final = "†"
_COUNTED: Final = "Nsight's counter: sectors × 32 bytes"


class _Kind(NamedTuple):
    """A kind of access: figures of the sectors that it loads and stores, of its hit rate, and its
    instructions, for what the report does not count."""

    name: str
    loads: str
    stores: str
    hits: str
    load_codes: tuple[str, ...]
    store_codes: tuple[str, ...] = ()
    words: tuple[str, str] = ("loaded", "stored")


_KINDS: Final = (
    _Kind("global", "global_load_sectors", "global_store_sectors", "global_load_hits", ("LDG", "LD"), ("STG", "ST")),
    _Kind("local", "local_load_sectors", "local_store_sectors", "local_load_hits", ("LDL",), ("STL",)),
    _Kind("shared", "", "", "", ("LDS", "LDSM"), ("STS", "STSM")),
    _Kind("async copies", "", "", "", ("LDGSTS",)),
    _Kind("bulk copies", "bulk_load_sectors", "bulk_store_sectors", "", ("UTMALDG", "UBLKCP"), ("UTMASTG", "UTMAREDG", "UBLKRED")),
    _Kind("texture", "texture_sectors", "", "texture_hits", ("TEX", "TLD", "TLD4", "TMML")),
    _Kind("surface", "surface_load_sectors", "surface_store_sectors", "", ("SULD",), ("SUST",)),
    _Kind("atomics", "global_atomic_sectors", "global_reduction_sectors", "", ("ATOM", "ATOMG"), ("RED", "REDG"), ("returned", "not returned")),
    _Kind("shared atomics", "", "", "", ("ATOMS",), (), ("updated", "")),
    _Kind("constant", "", "", "constant_hits", ("LDC",)),
)  # fmt: skip
#: Memories behind L2: name, figures of what is read and written, factor to bytes, and resource.
_ENDS: Final = (
    ("DRAM", "dram_read_bytes", "dram_write_bytes", 1, "dram"),
    ("Host memory", "host_read_sectors", "host_write_sectors", SECTOR_BYTES, ""),
    ("Peer memory", "peer_read_sectors", "peer_write_sectors", SECTOR_BYTES, ""),
)
#: Units of L1 that are shown.
_L1: Final = (*ON_CHIP, "l1", "texture")
_UNITS: Final = 2
#: Pixels of a link that is idle, and of one that is always busy.
_THIN, _THICK = 2.0, 14.0
#: The atomic units are shown from this part of the time on.
_SHOWN: Final = 0.01


def memory_fold(profile: Profile, shown: Card, used: Mapping[str, Use]) -> Fold:
    """The picture, and the traffic as a table."""
    picture = memory_view(profile, shown, used)
    parts: list[tuple[str, Any]] = [("memory", picture)] if picture else []
    texts: list[str] = []
    if picture:
        links = (*(link for link, _ in picture.ends), picture.link)
        texts += [f"{link.busy} busy" for link in links if link.mark]
        texts += [unit for level in (picture.l2, picture.l1) for unit, _ in level.units[:1]]
    for label, name in (("L1", "l1_hit_rate"), ("L2", "l2_hit_rate")):
        if (rate := figures.value(profile, name)) is not None:
            texts.append(f"{label} hits {units.percent(rate, 2)}")
    line = ", ".join(texts) or "no memory counters in this report"
    compulsory = profile.context.compulsory_bytes if profile.context else None
    parts.append(("traffic", traffic_table(profile, compulsory, used)))
    return Fold("memory", "Memory", line, tuple(parts), open=True)


def memory_view(profile: Profile, shown: Card, used: Mapping[str, Use]) -> Memory | None:
    """None where the report has neither bytes nor use of anything. A link is as busy as the busiest
    of its units, by the figures `used` that the card's bars show."""
    limits = {bar.resource for bar in shown.bars if bar.limit}
    found = {kind.name: _lane(profile, kind) for kind in _KINDS}
    ends = {end[0]: _end(profile, end, used, limits) for end in _ENDS}
    link = _wire(_of_l2(profile), ("l2", "fill"), used, limits)
    l1 = Level("L1 / shared", _hits(profile, "l1_hit_rate"), _busiest(_L1, used, limits))
    l2 = Level("L2", _hits(profile, "l2_hit_rate"), _atomics(profile, used, limits))
    moving = [lane for lane in found.values() if lane is not None and lane.flows]
    there = tuple((end, Level(name)) for name, end in ends.items() if end and end.known)
    if not (moving or link.known or l1.units or there):
        return None
    most = max((lane.part for lane in moving), default=0.0)
    parts = _parts(profile, moving, used)
    heavy = max(parts, key=parts.__getitem__, default="")
    lanes = tuple(
        replace(
            lane,
            note=" · ".join(filter(None, (lane.note, _busy_with(lane.name, parts, used)))),
            part=lane.part / most if most else 0.0,
            limit=lane.name in limits or ("l1_data" in limits and lane.name == heavy),
        )
        for lane in moving
    )
    behind = {name.lower(): end for name, end in ends.items() if name != "DRAM"}
    every: dict[str, Lane | Wire | None] = {**found, **behind}
    unused = [name for name, each in every.items() if each is not None and not each.flows]
    absent = [name for name, each in every.items() if each is None]
    flows = [*itertools.chain.from_iterable(lane.flows for lane in lanes), *link.flows]
    texts = (
        f"Not used: {', '.join(unused)}." if unused else "",
        f"Not in this report: {', '.join(absent)}." if absent else "",
        f"{DERIVED} worked out from executed instructions or from sums. The rest is counted by Nsight Compute."
        if any(flow.moved.endswith(DERIVED) for flow in flows)
        else "",
    )
    return Memory(lanes, l1, link, l2, there, tuple(filter(None, texts)), shown.state)


def _lane(profile: Profile, kind: _Kind) -> Lane | None:
    """What a kind of access moves, its bytes as its part: nothing where it is not used, None where
    the report does not say."""
    flows, total, known = [], 0.0, False
    for word, name, codes in zip(
        kind.words, (kind.loads, kind.stores), (kind.load_codes, kind.store_codes), strict=True
    ):
        moved, derived = _moved(profile, name, codes) if name or codes else (0.0, False)
        known, total = known or moved is not None, total + (moved or 0.0)
        how = "lanes × bytes, from executed instructions" if derived else _COUNTED
        flows += [Moved(_bytes(moved, derived), word, how)] if moved else []
    if not known:
        return _passes(profile) if kind.name == "shared" else None
    hits = _hits(profile, kind.hits) if flows and kind.hits else ""
    return Lane(kind.name, tuple(flows), hits, total)


def _moved(profile: Profile, name: str, codes: Iterable[str]) -> tuple[float | None, bool]:
    """Bytes, and whether instructions tell them; None where nothing does."""
    sectors = figures.value(profile, name) if name else None
    if sectors is not None:
        return sectors * SECTOR_BYTES, False
    if not profile.mix.collected:
        return None, False
    rows = [row for row in figures.rows(profile) if base(row.opcode) in codes]
    if any(not width(row.opcode) for row in rows):
        copied = figures.copied_sectors(profile)
        return (copied * SECTOR_BYTES, True) if copied else (None, False)
    return sum(row.threads * width(row.opcode) for row in rows), True


def _passes(profile: Profile) -> Lane | None:
    """Shared memory of a report that counts only passes through its banks."""
    passes = figures.value(profile, "shared_wavefronts")
    if passes is None:
        return None
    flow = Moved(units.compact(passes), "wavefronts", "Nsight's counter of wavefronts")
    return Lane("shared", (flow,) if passes else ())


def _parts(profile: Profile, moving: Iterable[Lane], used: Mapping[str, Use]) -> dict[str, float]:
    """How busy shared memory and the rest keep the data stage of L1, which both pass: the rest by
    its name where it is one kind alone. Empty where wavefronts were not counted."""
    data = used.get("l1_data")
    if data is None or not profile.value("shared_wavefronts"):
        return {}
    shared = data.busy * shared_wavefront_part(Kernel.of(profile))
    others = [lane.name for lane in moving if lane.name in ("global", "local", "atomics")]
    rest = {others[0]: data.busy - shared} if len(others) == 1 else {}
    return {"shared": shared, **rest}


def _busy_with(name: str, parts: Mapping[str, float], used: Mapping[str, Use]) -> str:
    """How busy a kind of access keeps the data stage of L1, and the constant cache."""
    if name in parts:
        return f"{resource_name('l1_data')} {whole_percent(parts[name])}"
    if name == "constant" and name in used:
        return f"{whole_percent(used[name].busy)} busy"
    return ""


def _of_l2(profile: Profile) -> list[Moved]:
    """What SMs read from L2 and write to it."""
    read = profile.value("l2_read_sectors")
    read = profile.value("l1_fill_sectors") if read is None else read
    written, total = profile.value("l2_write_sectors"), profile.value("l2_sectors_from_sm")
    rest = None if read is None or total is None or written is not None else total - read
    flows = [Moved(_bytes(read * SECTOR_BYTES), "read", _COUNTED)] if read else []
    if written:
        flows.append(Moved(_bytes(written * SECTOR_BYTES), "written", _COUNTED))
    elif rest is not None and rest > 0:
        how = "what SMs move in all, less what they read"
        flows.append(Moved(_bytes(rest * SECTOR_BYTES, True), "written", how))
    elif read is None and total:
        flows.append(Moved(_bytes(total * SECTOR_BYTES), "moved", _COUNTED))
    return flows


def _end(
    profile: Profile, end: tuple[str, str, str, int, str], used: Mapping[str, Use], limits: set[str]
) -> Wire | None:
    """The link between L2 and a memory. None where the report lacks the traffic."""
    _, read, written, factor, resource = end
    sides = {"read": profile.value(read), "written": profile.value(written)}
    flows = [
        Moved(_bytes(moved * factor), word, "Nsight's counter")
        for word, moved in sides.items()
        if moved
    ]
    total = profile.value("dram_total_bytes") if resource and not flows else None
    if total:
        flows.append(Moved(_bytes(total), "moved", "Nsight's counter"))
    if all(moved is None for moved in sides.values()) and total is None and resource not in used:
        return None
    link, moved = _wire(flows, (resource,), used, limits), sum(v or 0.0 for v in sides.values())
    if not resource and moved and profile.duration_us:
        rate = units.quantity(moved * factor / profile.duration_us * 1e6, "B/s")
        return Wire(link.flows, rate, "", link.width, False)
    return link


def _wire(
    flows: Iterable[Moved], resources: Iterable[str], used: Mapping[str, Use], limits: set[str]
) -> Wire:
    known = {name: used[name].busy for name in resources if name in used}
    marked = {name: share for name, share in known.items() if name in limits}
    busiest = max(sorted(marked or known), key=known.__getitem__, default="")
    if not busiest:
        return Wire(tuple(flows), "", "", _THIN, False)
    share, mark = known[busiest], ", limit" if marked else " busy"
    busy = f"{resource_name(busiest)} {whole_percent(share)}"
    return Wire(tuple(flows), busy, mark, _THIN + (_THICK - _THIN) * share, bool(marked))


def _busiest(
    names: Iterable[str], used: Mapping[str, Use], limits: set[str]
) -> tuple[tuple[str, bool], ...]:
    """The busiest of a level's units, and whether they limit."""
    known = [name for name in names if name in used]
    known.sort(key=lambda name: (name not in limits, -used[name].busy))
    return tuple(
        (f"{resource_name(name)} {whole_percent(used[name].busy)}", name in limits)
        for name in known[:_UNITS]
        if used[name].busy >= _SHOWN
    )


def _atomics(
    profile: Profile, used: Mapping[str, Use], limits: set[str]
) -> tuple[tuple[str, bool], ...]:
    """How busy L2's atomic units are, and whether they limit. They sit in the slices of L2 and use
    no link: one can be busy all the time while next to nothing moves."""
    share = used["atomic"].busy if "atomic" in used else 0.0
    if share < _SHOWN:
        return ()
    # of the busiest unit where that is nearly all of the time, else of their mean
    busiest = share >= 0.99 * (profile.value("l2_atomic_unit_busiest") or 1.0)
    name = "busiest atomic unit" if busiest else "atomic units"
    return ((f"{name} {whole_percent(share)}", "atomic" in limits),)


def _bytes(moved: float, derived: bool = False) -> str:
    return units.quantity(moved, "B") + (DERIVED if derived else "")


def _hits(profile: Profile, name: str) -> str:
    rate = figures.value(profile, name)
    return "" if rate is None else f"{units.percent(rate, 2)} hits"


_PASSES: Final = "this row counts wavefronts of shared memory and global accesses, not bytes"
#: Levels and links: label, meaning, bytes, hit rate, and the unit with its counter. Without bytes or
#: hit rate there is the reason why.
_LEVELS: Final = (
    ("L1 (global)", "Bytes in the sectors that global loads and stores request from L1.",
     "l1_global_bytes", "l1_hit_rate", "l1_tag", "l1_tag_active"),
    ("L1 data stage", "shared memory and global accesses together", "", _PASSES, "l1_data", "l1_data_pipe_active"),
    ("L2 (from SMs)", "Bytes that SMs read from or wrote to L2.", "l2_bytes", "l2_hit_rate", "l2", "l2_utilization"),
    ("L2-to-SM link", "the link from L2 to the SMs", "", "the bytes of L2", "fill", "l1_fill_active"),
    ("DRAM", "Bytes read from and written to device memory.", "dram_bytes", "", "dram", "dram_utilization"),
)  # fmt: skip
#: What is stated below the table, where it is known.
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
    facts = (fact for name in _ACCESSES if (fact := figures.fact(profile, name)).value is not None)
    note = "; ".join(
        f"{figures.small(fact.label)} {units.quantity(fact.value, fact.unit)}" for fact in facts
    )
    headings: list[str | tuple[str, str]] = [
        "Level",
        "Moved",
        ("× compulsory", "over the fewest bytes the problem needs"),
        ("Hit rate", "share of the facts that hit at this level"),
        ("Busy", "as in the picture and on the card. Of L1 (global), its tag stage"),
    ]
    note = f"{note[0].upper()}{note[1:]}." if note else ""
    caption = "Memory traffic, level by level"
    return plain_table("traffic", caption, headings, rows, numeric=(1, 2, 3, 4), note=note)


def limiter_words(profile: Profile) -> str:
    """What limits the resident blocks, in words; empty where the report does not say."""
    return " and ".join(figures.BLOCK_LIMITS[name] for name in figures.occupancy_limiters(profile))


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
        why = f"The grid is large enough for {units.significant(waves)} waves, so blocks or their warps end too early to keep the SM full."
    return f"{allowed}, but {reached}. {why}"


@lru_cache(maxsize=64)
def _studies(base: Occupancy) -> tuple[StepChart, ...]:
    """The what-if charts. Launches of one program often share them."""
    return (
        _what_if(base, ("registers", "registers per thread", "registers"), what_if_registers(base), base.registers),
        _what_if(base, ("shared", "shared memory per block, KiB", "shared memory"), what_if_shared(base), base.shared, 1024),
        _what_if(base, ("block", "threads per block", "block sizes"), what_if_block(base), base.block_threads),
    )  # fmt: skip


def _what_if(
    base: Occupancy, names: tuple[str, str, str], found: dict[int, Occupancy], now: float, scale: int = 1
) -> StepChart:  # fmt: skip
    """Resident warps by one resource (its key, label and plural), of which the launch has `now`; shown
    in units of `scale`."""
    key, label, plurals = names
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
        f"what-if-{key}", title, f"What if: {label.split(',')[0]}", summary, tuple(heights),
        (now / scale, base.active_warps), base.max_warps, label, "warps per SM",
        f"now: {now / scale:g}, {base.active_warps} warps", data,
    )  # fmt: skip


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
