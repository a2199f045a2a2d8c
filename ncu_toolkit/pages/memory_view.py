"""The memory system of one launch as a picture, after Nsight Compute's memory chart: what each kind
of access moves, L1 and L2 with their hit rates, and the memories behind them, with the bytes of
every link and how busy its busiest unit is.

What the report does not hold is left out and named, never shown as zero."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.diagnosis.kernel import Kernel
from ncu_toolkit.diagnosis.rules._launch import shared_wavefront_part
from ncu_toolkit.diagnosis.time_model import ON_CHIP
from ncu_toolkit.document.card import Card, whole_percent
from ncu_toolkit.document.views import Fold, Lane, Level, Memory, Moved, Wire
from ncu_toolkit.explain.sections import Use, resource_name
from ncu_toolkit.model import Profile
from ncu_toolkit.pages.page_tables import compact, traffic_table
from ncu_toolkit.sass.opcodes import base, width

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
    said: list[str] = []
    if picture:
        links = (*(link for link, _ in picture.ends), picture.link)
        said += [f"{link.busy} busy" for link in links if link.mark]
        said += [unit for level in (picture.l2, picture.l1) for unit, _ in level.units[:1]]
    for label, name in (("L1", "l1_hit_rate"), ("L2", "l2_hit_rate")):
        if (rate := figures.value(profile, name)) is not None:
            said.append(f"{label} hits {units.percent(rate, 2)}")
    line = ", ".join(said) or "no memory counters in this report"
    compulsory = profile.context.compulsory_bytes if profile.context else None
    parts.append(("traffic", traffic_table(profile, compulsory, used)))
    return Fold("memory", "Memory", line, tuple(parts), open=True)


def memory_view(profile: Profile, shown: Card, used: Mapping[str, Use]) -> Memory | None:
    """None where the report has neither bytes nor use of anything. A link is as busy as the busiest
    of its units, by the figures `used` that the card's bars show."""
    limits = {bar.resource for bar in shown.bars if bar.limit}
    found = {kind.name: _lane(profile, kind) for kind in _KINDS}
    ends = {end[0]: _end(profile, *end[1:], used, limits) for end in _ENDS}
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
    said = (
        f"Not used: {', '.join(unused)}." if unused else "",
        f"Not in this report: {', '.join(absent)}." if absent else "",
        f"{DERIVED} worked out from executed instructions or from sums. The rest is counted by Nsight Compute."
        if any(flow.moved.endswith(DERIVED) for flow in flows)
        else "",
    )
    return Memory(lanes, l1, link, l2, there, tuple(filter(None, said)), shown.state)


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
    flow = Moved(compact(passes), "passes", "Nsight's counter: passes through the banks")
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
    profile: Profile, read: str, written: str, factor: int, resource: str, used: Mapping[str, Use], limits: set[str]
) -> Wire | None:  # fmt: skip
    """The link between L2 and a memory. None where the report lacks the traffic."""
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
