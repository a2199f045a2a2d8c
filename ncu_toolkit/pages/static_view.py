"""What the code alone says of a launch, beside what its profile says: facts, loops, and static
findings with their outcome."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis.static import Outcome, ProfiledCode, checked, code_of
from ncu_toolkit.document.views import (
    Cell,
    Fact,
    Table,
    Tone,
    missing,
    number,
    plain_table,
    text,
)
from ncu_toolkit.explain.code import UNITS, kinds, widths
from ncu_toolkit.model import Diagnosis, Profile
from ncu_toolkit.pages.columns import cause_cell
from ncu_toolkit.sass.cost import LISTED, Region
from ncu_toolkit.sass.opcodes import WARP_SIZE

#: Lines and kinds of instructions named for one loop.
_NAMED: Final = 3
_KINDS: Final = 4
_UNKNOWN: Final = "Read from the SASS in the report. Trip counts, cache hits and waiting are not in the code, so nothing here is a time."
_WORDS: Final[dict[Outcome, tuple[str, Tone]]] = {
    "confirmed": ("confirmed", "good"), "runner-up": ("confirmed as a runner-up", "good"), "refuted": ("refuted", "bad"),
    "not judged": ("not checked", "muted"), "not seen": ("not found", "muted"),
}  # fmt: skip


def static_parts(profile: Profile, diagnosis: Diagnosis) -> Iterator[tuple[str, Any]]:
    """Nothing where the report holds no code, or code whose branches cannot be followed."""
    code = code_of(profile)
    if code is None:
        return
    yield "heading", "What the code says without a run"
    yield "facts", _facts(profile, code)
    yield "table", _regions(code)
    if (found := _findings(code, diagnosis)) is not None:
        yield "table", found
    yield "note", _UNKNOWN


def registers(profile: Profile) -> Fact:
    known = float(profile.launch.registers) or None
    return Fact("Registers", number(known, "count", "not in the report"))


def _facts(profile: Profile, code: ProfiledCode) -> list[Fact]:
    facts, fill, launch = code.facts, code.facts.occupancy, profile.launch
    loops = sum(region.depth > 0 for region in facts.regions)
    row = profile.instructions[code.live.peak_index]
    where = f"{row.file.rsplit('/', 1)[-1]}:{row.line}" if row.file else f"instruction {row.index}"
    local = number(
        code.local_instructions,
        "count",
        title="LDL and STL in the code: spilled registers, or arrays with run-time indices",
    )
    limit = (
        f"limited by {' and '.join(fill.limiters)}" if fill and fill.limiters else "all warps fit"
    )
    flight = (
        facts.main.bytes_in_flight * facts.warps * WARP_SIZE if facts.warps is not None else None
    )
    no_limits = "the limits of this architecture are not known"
    in_flight = "bytes of global loads that an SM can have in flight"
    if loops:
        in_flight += " in the first loop"
    size = f"{units.count(len(facts.function.instructions))} instructions, {loops} loop{'' if loops == 1 else 's'}"
    return [
        registers(profile),
        Fact(
            "Live registers",
            Cell(
                f"{code.live.peak} at {visible(where)}",
                code.live.peak,
                "highest number at one instruction, by liveness analysis",
            ),
        ),
        Fact("Spilled", local),
        Fact("Shared memory", number(float(launch.shared_static + launch.shared_dynamic), "B")),
        Fact(
            "Theoretical occupancy",
            Cell(f"{units.percent(fill.fraction)}, {limit}", fill.fraction)
            if fill
            else missing(no_limits),
        ),
        Fact("Code", text(size)),
        Fact("In flight", number(flight, "B", "the occupancy is not known", title=in_flight)),
    ]


def _regions(code: ProfiledCode) -> Table:
    """The loops with most work: each figure is for one thread and one pass, without the loops
    inside."""
    looped = code.facts.looped
    rows = [_region(region) for region in code.facts.regions[:LISTED]]
    headings: list[str | tuple[str, str]] = [
        "Loop" if looped else "Code", ("Depth", "nesting depth"), ("Instructions", "of one pass"), ("Mix", "by kind"),
        ("FLOP", "of one thread"), ("Global", "bytes a thread loads and stores"), ("Shared", "bytes a thread loads and stores"),
        ("FLOP per byte", "over the requested global bytes, before any cache"), ("Widths", "loads and stores, bytes a thread"),
        ("Loads in flight", "the most that one thread can have in flight"), ("Busiest", "fewest SM cycles of a warp's pass, for the busiest unit"),
    ]  # fmt: skip
    caption = (
        "Loops with most work, one thread and one pass"
        if looped
        else "The whole code, which has no loop, for one thread"
    )
    return plain_table("static-regions", caption, headings, rows, numeric=(1, 2, 4, 5, 6, 7, 9, 10))


def _region(region: Region) -> list[Cell]:
    lines = [(file, line) for file, line, n in region.lines if n * 10 >= region.instructions][
        :_NAMED
    ] or [row[:2] for row in region.lines[:1]]
    where = ", ".join(f"{file}:{line}" for file, line in lines) or f"{region.start:#x}"
    moved = region.global_load_bytes + region.global_store_bytes
    bulk = f" and {region.bulk_copies} bulk copies" if region.bulk_copies else ""
    flight = (
        f"{region.loads_in_flight}, {units.si(region.bytes_in_flight, 'B')}"
        if region.loads_in_flight
        else "none"
    )
    limit = region.limit
    return [
        text(where),
        number(region.depth, "count"),
        number(region.instructions, "count"),
        text(kinds(region, _KINDS)),
        number(region.flops, "count"),
        Cell(f"{units.si(moved, 'B')}{bulk}", moved),
        number(region.shared_load_bytes + region.shared_store_bytes, "B"),
        number(
            region.flops_per_global_byte,
            "",
            "it moves no global memory, or only by bulk copies",
        ),
        text(widths(region) or "–"),
        text(flight),
        Cell(
            f"{UNITS.get(limit, limit)} {units.significant(region.cycles[limit])}",
            region.cycles[limit],
        )
        if limit
        else text("–"),
    ]


def _findings(code: ProfiledCode, diagnosis: Diagnosis) -> Table | None:
    rows = []
    for item in checked(code, diagnosis):
        words, tone = _WORDS[item.outcome]
        found = item.finding
        rows.append(
            [
                cause_cell(found.bottleneck),
                text(found.certainty),
                text(found.summary),
                text(words, tone=tone),
                text(item.why),
            ]
        )
    if not rows:
        return None
    return plain_table(
        "static-findings",
        "What the code points to",
        ["Bottleneck", "Certainty", "In the code", "Profile says", "Why"],
        rows,
    )
