"""The L2 cache, or the link from it to the SMs, delivers as fast as it can.

What it is
All SMs share L2. Data that fit into it are served from there at a few times the bandwidth of device
memory, through a crossbar with a limit of its own.

Why it costs time
Time is then bytes through L2 over its bandwidth.

How to confirm
L2 or its link near its peak while DRAM is not. Good only where those bytes are compulsory: data
resident in L2 that each SM must see once.

What to change
Larger tiles, so that each SM fetches each byte less often; blocks that share data scheduled
together (tile order, clusters with multicast); smaller types.

When the advice is wrong
On data resident in L2 from an earlier kernel this roof is better than DRAM's.

Source
Nsight Compute Kernel Profiling Guide, "Memory Chart" and "L2 Cache"; hierarchical roofline (Yang et
al.).
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import Roof, Specificity
from ncu_toolkit.diagnosis.rules._access import COALESCED, gathers
from ncu_toolkit.diagnosis.rules._code import memory_levels
from ncu_toolkit.diagnosis.rules._roof import COMPULSORY, NEAR_BYTES, roof, streams
from ncu_toolkit.diagnosis.rules._support import (
    COLLECT,
    abstain,
    fact,
    finding,
    is_chain,
    load_fact,
    missing,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "l2-bandwidth"
TITLE: Final = "L2 bandwidth"
LIMIT: Final = "memory"
REQUIRES: Final = ()
OPTIONAL: Final = (
    "l2_utilization", "l2_throughput", "l1_fill_active", "l2_to_sm_active", "l2_bytes",
    "lane_bytes",
)  # fmt: skip
ROOF: Final = Roof("L2 bandwidth", "", "bytes")
UNITS: Final = ("l2", "fill")
open_in_code = memory_levels
#: What stays when the tile grows by two in each direction: each operand is fetched half as often.
LARGER_TILE: Final = 0.5
#: Figures that tell what L2 is busy with.
USEFULNESS: Final = ("global_sector_excess", "load_reuse", "lane_bytes")

#: What can be said of the bytes where the problem is not known: blocks may ask for the same ones.
_MOVED: Final = "Each SM loads its bytes once, in whole sectors."


class Words:
    dram_busier = "Device memory is busier."
    streams = (
        "It is active because of the traffic of device memory, which is busier than L2's own work."
    )
    idle = "L2 and its link are at most {busy} busy."
    gathers = "It gathers whole sectors at data-dependent addresses."
    good = "{unit} runs at {counted} of its peak rate. {what}"
    good_advice = ("Fuse the kernel with its neighbours, to move fewer bytes.",)
    good_look_for = "The same bytes, and L2 is still the busiest."
    unsure = (
        "{unit} is {counted} busy. The report does not show why. Useful data, scattered accesses, register spills and repeated "
        "fetches look alike here."
    )
    collect = f"Collect ncu-toolkit's own set, which shows the cause: {COLLECT}"
    collect_look_for = "Sectors per request, local memory, and bytes moved over bytes needed."
    found = "L2 bandwidth is the limit: {unit} is {counted} busy, with {what}."
    advice = (
        "Use larger tiles, or share fetched data among the blocks of a cluster (multicast).",
        "Order the tiles so that concurrent blocks use the same data.",
    )
    look_for = "Fewer L2 bytes for the same result."
    local = "spilled or indexed local variables among them"
    scattered = "sectors that lanes only partly use"
    again = "bytes that are fetched more than once"


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    name, busy = model.busiest("l2", "fill")
    if not name:
        return abstain(ID, missing(profile, ("l2_utilization", "l1_fill_active")))
    counted = units.percent(model.counted(name))
    evidence = (
        load_fact(model, name, NEAR_BYTES),
        fact(profile, "l2_utilization"),
        fact(profile, "l2_throughput"),
        fact(profile, "l1_fill_active"),
        fact(profile, "l2_to_sm_active"),
        fact(profile, "l2_bytes"),
        fact(profile, "l2_hit_rate"),
    )
    if busy < NEAR_BYTES.value:
        return ruled_out(ID, Words.idle.format(busy=units.percent(busy)), *evidence)
    if model.busy("dram") >= busy:
        return ruled_out(ID, Words.dram_busier, *evidence)
    if name == "l2" and streams(model):
        return ruled_out(ID, Words.streams, *evidence)
    compulsory = profile.context.compulsory_bytes if profile.context else None
    moved = figures.value(profile, "l2_bytes")
    floor = compulsory or figures.asked_bytes(profile)
    excess = figures.value(profile, "global_sector_excess") or 0.0
    reuse = figures.value(profile, "load_reuse")
    once = (
        moved is not None
        and floor is not None
        and moved <= floor * COMPULSORY.value
        and excess <= 0.1
        and (compulsory is not None or (reuse or 1.0) < 2)
    )
    gathered = gathers(profile) and excess <= 0.1
    if (once or gathered) and not is_chain(profile):
        loaded = "It moves each byte once." if compulsory else _MOVED
        what = loaded if once else Words.gathers
        return roof(
            ID,
            Words.good.format(what=what, counted=counted, unit=RESOURCES[name][2]),
            model,
            evidence,
            Words.good_advice,
            Words.good_look_for,
            good=True,
            confidence="high" if once and compulsory else "medium",
        )
    if len(missing(profile, USEFULNESS)) == len(USEFULNESS):
        return roof(
            ID,
            Words.unsure.format(unit=RESOURCES[name][2], counted=counted),
            model,
            evidence,
            (Words.collect,),
            Words.collect_look_for,
            good=False,
            confidence="low",
        )
    removal = Removal(
        "with tiles twice as large in each direction",
        loads={"l2": LARGER_TILE, "fill": LARGER_TILE},
        stalls={"long_scoreboard": LARGER_TILE, "lg_throttle": LARGER_TILE},
    )
    return finding(
        ID,
        Words.found.format(unit=RESOURCES[name][2], counted=counted, what=_what(profile)),
        model.without(removal),
        evidence,
        Words.advice,
        Words.look_for,
        confidence="medium",
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.SYMPTOM


def _what(profile: Profile) -> str:
    """What the bytes are, as far as the report tells."""
    local, others = (
        figures.value(profile, "local_sectors") or 0.0,
        (figures.value(profile, "l1_global_bytes") or 0.0) / figures.SECTOR_BYTES,
    )
    if local > others / 3:  # a quarter of all
        return Words.local
    # Copies of whole tiles go past the lanes: only what the other accesses move can be scattered.
    moved = (figures.value(profile, "l2_bytes") or 0.0) / figures.SECTOR_BYTES
    by_lanes = min(1.0, others / moved) if moved else 1.0
    if (figures.value(profile, "global_sector_excess") or 0.0) * by_lanes > COALESCED:
        return Words.scattered
    return Words.again
