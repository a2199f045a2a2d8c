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
Fewer and wider accesses: 16 bytes per lane; combine several elements per thread; keep values in
registers or shared memory instead of loading them again; replace loads by broadcasts or constants.

When the advice is wrong
Where lanes are scattered, each instruction costs many lookups: coalesce first. Where registers
spill, fix that first.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" (LG throttle).
"""

from typing import Final

from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import _launch
from ncu_toolkit.kernel.diagnosis.rules._launch import WIDEST
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, WEAK_STALL
from ncu_toolkit.kernel.diagnosis.time_model import ON_CHIP

TITLE: Final = "Global-memory instruction pressure"
LIMIT: Final = "memory"
FILLS_L1: Final = (False, False)
REQUIRES: Final = ("stalls",)
OPTIONAL: Final = ("opcodes", "global_sector_excess", "lsu_pipe_active")
NCU: Final = (("CPIStall", "lg throttle"),)
WAITS: Final = {"lg_throttle": ""}
STEP: Final = 0.5
"""Where accesses are wide already: one value kept in a register for every one loaded halves
them."""
_ALIKE: Final = (
    "Most loads bring one value for all lanes: load it once before the loop (const __restrict__ lets the compiler do so), or "
    "pass it as a kernel parameter or in constant memory."
)


def find(k: Kernel) -> Outcome:
    kinds = ("global", "copy")
    part = k.blame("lg_throttle", *kinds)
    # Loads that hit L1 and still come late wait in the same queue, when the load/store pipe is the
    # busy unit and each brings one value for all lanes.
    alike = _launch.is_broadcast(k)
    queued = alike and k.model.busiest(*ON_CHIP)[1] >= BUSY.value
    late = k.blame("long_scoreboard", *kinds) if queued else 0.0
    throttled = k.blame("mio_throttle", *kinds)
    parts = {"lg_throttle": part, "long_scoreboard": late, "mio_throttle": throttled}
    waiting = sum(k.model.waiting(reason) * share for reason, share in parts.items())
    measured = k.stall("lg_throttle", WEAK_STALL)
    if waiting < WEAK_STALL.value:
        return k.ruled_out(
            f"Warps spend only {percent(waiting)} of their time in the queue for global memory.",
            measured,
        )
    scattered = not _launch.is_coalesced(k)
    if (scattered and not alike) or _launch.queued_excess(k) > _launch.COALESCED:
        reason = "Scattered sectors fill the queue: see Uncoalesced global access."
        return k.ruled_out(reason, measured)
    if _launch.queued_behind_atomics(k) >= 0.5:
        return k.ruled_out("Atomic updates fill the queue: see Atomic contention.", measured)
    width = k["load_bytes_per_lane"] or k["store_bytes_per_lane"] or WIDEST
    left = min(STEP, max(0.25, width / WIDEST))
    removal = Removal(
        f"with {percent(1 - left, 2)} fewer global-memory instructions",
        stalls={reason: keep(share, left) for reason, share in parts.items()},
        loads={
            "lsu": left,
            "l1_tag": keep(1 - (k["l1_tag_excess"] or 0.0), left) if scattered else left,
        }
        | (dict.fromkeys(("l1_data", "l1_writeback", "l1"), left) if queued else {}),
        instructions=keep(k["kind_share:global"] or 0.0, left),
    )
    wider = k.advice(
        "Load and store 16 bytes per lane (float4).",
        triton="Give each thread 16 contiguous bytes: a larger block for the same num_warps, aligned addresses (tl.multiple_of).",
        numba=(),
        warp=(),
    )
    return k.finding(
        "Threads issue global-memory instructions faster than the load/store unit accepts them. Warps spend "
        f"{percent(waiting)} of their time waiting to issue one.",
        removal,
        (
            measured,
            "stall_share:mio_throttle stall_share:long_scoreboard kind_share:global load_bytes_per_lane lsu_pipe_active global_sector_excess",
        ),
        (
            *(wider if width < WIDEST and not alike else ()),
            *(_ALIKE,) * alike,
            "Keep values that are loaded repeatedly in registers or shared memory.",
            "Let each thread do more work per computed address.",
        ),
        "Fewer LDG and STG for the same bytes, and fewer LG throttle stalls.",
        confidence="medium",
        locations=k.locate_stall("lg_throttle", kinds),
    )
