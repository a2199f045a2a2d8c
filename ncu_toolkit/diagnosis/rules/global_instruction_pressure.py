"""So many global-memory instructions are issued that the queue to L1 is full.

What it is
Global loads and stores wait in the local/global (LG) queue of the load/store unit. When
instructions come faster than L1 takes them, the queue fills and warps cannot even issue their next
access.

Why it costs time
A warp that cannot issue its load cannot run ahead to overlap it with others; arithmetic behind it
waits too.

How to confirm
LG throttle is a large part of a warp's time, accesses are coalesced, and local memory (spills) is
not behind it.

What to change
Fewer and wider accesses: 16 bytes a lane; combine several elements a thread; keep values in
registers or shared memory instead of loading them again; replace loads by broadcasts or constants.

When the advice is wrong
Where lanes are scattered, each instruction costs many lookups: coalesce first. Where registers
spill, mend that first.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" (LG throttle).
"""

from __future__ import annotations

from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._access import (
    COALESCED,
    is_broadcast,
    is_coalesced,
    queued_behind_atomics,
    queued_excess,
)
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    WEAK_STALL,
    blame,
    fact,
    finding,
    keep,
    locate_stall,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "global-instruction-pressure"
TITLE: Final = "Global-memory instruction pressure"
LIMIT: Final = "memory"
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("opcodes", "global_sector_excess", "lsu_pipe_active")
NCU: Final = (("CPIStall", "lg throttle"),)
WAITS: Final = {"lg_throttle": ""}
WIDEST: Final = 16.0
STEP: Final = 0.5
"""Where accesses are wide already: one value kept in a register for every one loaded halves
them."""


class Words:
    few = "Warps spend only {waiting} of their time in the queue for global memory."
    scattered = "Scattered sectors fill the queue: see Uncoalesced global access."
    atomics = "Atomic updates fill the queue: see Atomic contention."
    found = (
        "Threads issue global-memory instructions faster than the load/store unit accepts them. Warps spend {waiting} of their "
        "time waiting to issue one."
    )
    wide = ("Load and store 16 bytes per lane (float4).",)
    wide_elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Give each thread 16 contiguous bytes: a larger block for the same num_warps, aligned addresses (tl.multiple_of).",
        ),
        "numba": (),
        "warp": (),
    }
    keep_loaded = "Keep values that are loaded repeatedly in registers or shared memory."
    more_work = "Let each thread do more work per computed address."
    look_for = "Fewer LDG and STG for the same bytes, and fewer LG throttle stalls."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    kinds = ("global", "copy")
    part = blame(profile, "lg_throttle", kinds)
    # Loads that hit L1 and still come late wait in the same queue, when the load/store pipe is the
    # busy unit and each brings one value for all lanes.
    queued = (
        is_broadcast(profile)
        and model.busiest("lsu", "l1_data", "l1_tag", "l1_writeback")[1] >= BUSY.value
    )
    late = blame(profile, "long_scoreboard", kinds) if queued else 0.0
    throttled = blame(profile, "mio_throttle", kinds)
    waiting = (
        model.waiting("lg_throttle") * part
        + model.waiting("long_scoreboard") * late
        + model.waiting("mio_throttle") * throttled
    )
    measured = stall_fact(profile, "lg_throttle", WEAK_STALL)
    if waiting < WEAK_STALL.value:
        return ruled_out(ID, Words.few.format(waiting=units.percent(waiting)), measured)
    if not is_coalesced(profile) or queued_excess(profile) > COALESCED:
        return ruled_out(ID, Words.scattered, measured)
    if queued_behind_atomics(profile, model) >= 0.5:
        return ruled_out(ID, Words.atomics, measured)
    width = (
        figures.value(profile, "load_bytes_per_lane")
        or figures.value(profile, "store_bytes_per_lane")
        or WIDEST
    )
    left = min(STEP, max(0.25, width / WIDEST))
    memory = figures.value(profile, "kind_share:global") or 0.0
    removal = Removal(
        f"with {units.percent(1 - left, 2)} fewer global-memory instructions",
        stalls={
            "lg_throttle": keep(part, left),
            "long_scoreboard": keep(late, left),
            "mio_throttle": keep(throttled, left),
        },
        loads=dict.fromkeys(("lsu", "l1_tag"), left)
        | (dict.fromkeys(("l1_data", "l1_writeback", "l1"), left) if queued else {}),
        instructions=keep(memory, left),
    )
    return finding(
        ID,
        Words.found.format(waiting=units.percent(waiting)),
        model.without(removal),
        (
            measured,
            stall_fact(profile, "mio_throttle"),
            stall_fact(profile, "long_scoreboard"),
            fact(profile, "kind_share:global"),
            fact(profile, "load_bytes_per_lane"),
            fact(profile, "lsu_pipe_active"),
            fact(profile, "global_sector_excess"),
        ),
        (
            *(language.advice(profile, Words.wide, Words.wide_elsewhere) if width < WIDEST else ()),
            Words.keep_loaded,
            Words.more_work,
        ),
        Words.look_for,
        confidence="medium",
        locations=locate_stall(profile, "lg_throttle", ("global", "copy")),
    )
