"""The L2 cache, or the link from it to the SMs, delivers as fast as it can.

What it is
All SMs share L2. Data that fit into it are served from there at a few times the bandwidth of device
memory, through a crossbar with its own limit.

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

from typing import Final

from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.kernel.diagnosis.kernel import Given, Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import Roof, Specificity, memory_levels
from ncu_toolkit.kernel.diagnosis.rules._launch import COALESCED, gathers, product_bytes, streams
from ncu_toolkit.kernel.diagnosis.thresholds import COMPULSORY, NEAR_BYTES
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

TITLE: Final = "L2 bandwidth"
LIMIT: Final = "memory"
OPTIONAL: Final = (
    "l2_utilization", "l2_throughput", "l1_fill_active", "l2_to_sm_active", "l2_bytes",
    "lane_bytes",
)  # fmt: skip
ROOF: Final = Roof("L2 bandwidth", "", "bytes")
UNITS: Final = ("l2", "fill")
open_in_code = memory_levels


def find(k: Kernel) -> Outcome:
    name, busy = k.model.busiest("l2", "fill")
    if not name:
        return k.abstain(*k.missing("l2_utilization", "l1_fill_active"))
    counted = percent(k.model.counted(name))
    evidence = (
        k.load(name, NEAR_BYTES),
        "l2_utilization l2_throughput l1_fill_active l2_to_sm_active l2_bytes l2_hit_rate",
    )
    if busy < NEAR_BYTES.value:
        return k.ruled_out(f"L2 and its link are at most {percent(busy)} busy.", evidence)
    if k.model.busy("dram") >= busy:
        return k.ruled_out("Device memory is busier.", evidence)
    if name == "l2" and streams(k):
        reason = "It is active because of the traffic of device memory, which is busier than L2's own work."
        return k.ruled_out(reason, evidence)
    unit, compulsory = RESOURCES[name][2], k.context.compulsory_bytes
    once, gathered = _once(k), gathers(k) and (k["global_sector_excess"] or 0.0) <= 0.1
    if (once or gathered) and not k.is_chain:
        work = "It gathers whole sectors at data-dependent addresses."
        if once:  # where the problem is not known, blocks may ask for the same bytes
            by_sm = "Each SM loads its bytes once, in whole sectors."
            work = "It moves each byte once." if compulsory else by_sm
        return k.roof(
            f"{unit} runs at {counted} of its peak rate. {work}",
            evidence,
            "Nothing to do, unless the algorithm may change: fuse the kernel with its neighbours, to move fewer bytes.",
            "The same bytes, and L2 is still the busiest.",
            good=True,
            confidence="high" if once and compulsory else "medium",
        )
    return _unexplained(k, f"{unit} is {counted} busy", evidence) or k.finding(
        f"L2 bandwidth is the limit: {unit} is {counted} busy, with {_what(k)}.",
        # Each operand is fetched half as often.
        Removal(
            "with tiles twice as large in each direction",
            loads={"l2": 0.5, "fill": 0.5},
            stalls={"long_scoreboard": 0.5, "lg_throttle": 0.5},
        ),
        evidence,
        (
            "Use larger tiles, or share fetched data among the blocks of a cluster (multicast).",
            "Order the tiles so that concurrent blocks use the same data.",
        ),
        "Fewer L2 bytes for the same result.",
        confidence="medium",
    )


def _once(k: Kernel) -> bool:
    """Whether L2 delivers each byte once, as far as that is known."""
    moved, compulsory = k["l2_bytes"], k.context.compulsory_bytes
    floor = compulsory or product_bytes(k) or figures.asked_bytes(k.profile)
    return (
        moved is not None
        and floor is not None
        and moved <= floor * COMPULSORY.value
        and (k["global_sector_excess"] or 0.0) <= 0.1
        and (compulsory is not None or (k["load_reuse"] or 1.0) < 2)
    )


def _unexplained(k: Kernel, busy: str, evidence: Given) -> Finding | None:
    """Busy, in a report that shows nothing of why."""
    if not k.knows_none("global_sector_excess", "load_reuse", "lane_bytes"):
        return None
    return k.roof(
        f"{busy}, by useful data, scattered accesses, register spills or repeated fetches: this report cannot tell them apart.",
        evidence,
        k.collect("which shows the cause"),
        "A verdict that names the cause, from sectors per request, local memory traffic, and bytes moved over bytes needed.",
        confidence="low",
    )


specificity = Specificity.SYMPTOM.always


def _what(k: Kernel) -> str:
    """What the bytes are, as far as the report tells."""
    local, others = k["local_sectors"] or 0.0, (k["l1_global_bytes"] or 0.0) / SECTOR_BYTES
    if local > others / 3:  # a quarter of all
        return "spilled or indexed local variables among them"
    # Copies of whole tiles go past the lanes: only what the other accesses move can be scattered.
    moved = (k["l2_bytes"] or 0.0) / SECTOR_BYTES
    by_lanes = min(1.0, others / moved) if moved else 1.0
    if (k["global_sector_excess"] or 0.0) * by_lanes > COALESCED:
        return "sectors that lanes only partly use"
    return "bytes that are fetched more than once"
