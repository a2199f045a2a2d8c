"""Device memory delivers as fast as it can.

What it is
The kernel moves bytes to and from device memory (HBM or GDDR) at close to the rate that memory can
sustain, about nine tenths of its peak.

Why it costs time
Time is then bytes over bandwidth. Arithmetic, latency and occupancy no longer matter.

How to confirm
DRAM throughput above 80% of peak. Whether that is good depends on the bytes: compare them with the
fewest that the problem needs.

What to change
If the traffic is compulsory, fuse the kernel with its neighbours, use a smaller type, or leave it.
If the traffic is more than compulsory, reuse through tiles, coalesce, stop spilling, keep reused
data in L2.

When the advice is wrong
Traffic of write-backs or of a cold cache under the profiler can exceed what an unprofiled launch
moves.

Source
Williams et al., "Roofline: An Insightful Visual Performance Model"; Nsight Compute Kernel Profiling
Guide, "Roofline Charts".
"""

from dataclasses import replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.kernel.diagnosis.kernel import Given, Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import Roof, Specificity, _launch, memory_levels
from ncu_toolkit.kernel.diagnosis.thresholds import (
    COMPULSORY,
    NEAR_BYTES,
    REREAD,
    SATURATED,
    Threshold,
)

TITLE: Final = "DRAM bandwidth"
LIMIT: Final = "memory"
OPTIONAL: Final = (
    "dram_utilization", "dram_bus_active", "dram_bytes", "lane_bytes", "global_sector_excess",
)  # fmt: skip
ROOF: Final = Roof("DRAM bandwidth", "dram_utilization", "bytes")
UNITS: Final = ("dram",)
open_in_code = memory_levels

#: Figures that tell useful traffic from waste; with none of them nothing is claimed.
USEFULNESS: Final = (
    "dram_per_compulsory", "global_sector_excess", "lane_bytes", "ld_sectors_per_request",
)  # fmt: skip


CALL: Final = {
    "torch": ("Move fewer bytes: let torch.compile fuse it with its neighbours, work in place, or use a smaller dtype.",),
    "xla": ("Move fewer bytes: put it into one jax.jit function with its neighbours, so that XLA can fuse them, or use a smaller dtype.",),
    "cupy": ("Move fewer bytes: fuse it with its neighbours by cupy.fuse or an ElementwiseKernel, or use a smaller dtype.",),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    if "dram" not in k.model.loads:
        return k.abstain(*k.missing("dram_utilization"))
    busy, counted = k.model.busy("dram"), percent(k.model.counted("dram"))
    name = "dram_utilization" if k["dram_utilization"] is not None else "dram_bus_active"
    # Memory that is only read reaches more, a launch that leaves writes in L2 less.
    peak = k.model.peaks.get("dram")
    like = "kernels with the same share of writes, and as many bytes left in L2, reach"
    near = NEAR_BYTES if peak is None else Threshold(0.9 * peak, f"90% of what {like}")
    measured = k.fact(name)
    excess = _excess(k)
    saturated = busy >= SATURATED.value or _launch.streams(k)
    at_roof = busy >= near.value or (excess is not None and saturated)
    if saturated and not at_roof:
        return k.roof(
            f"Loads wait for device memory, which is {counted} busy. Kernels that only copy data keep it busier.",
            (k.load("dram", SATURATED), measured, "dram_bytes global_sector_excess"),
            (
                "Move fewer bytes: use a smaller type, drop unused data, or fuse a neighbouring kernel.",
                "Read longer contiguous runs, and switch less often between reading and writing.",
            ),
            "Fewer DRAM bytes for the same result.",
        )
    if not at_roof:
        return k.ruled_out(f"Device memory is {counted} busy.", measured)
    wasteful, sure = _waste(k)
    evidence = (
        k.load("dram", near),
        measured,
        "dram_bytes dram_owed_bytes",
        k.fact("dram_per_compulsory", "<=", COMPULSORY),
        "global_sector_excess lane_bytes",
    )
    if not sure and k.knows_none(*USEFULNESS):
        return k.roof(
            f"Device memory is {counted} busy, near its limit. The report does not show whether all these bytes are needed.",
            evidence,
            k.collect("to see whether the traffic is needed"),
            "Bytes per memory level, and sectors per request.",
            confidence="low",
        )
    return _wasteful(k, wasteful, evidence) if wasteful else _at_roof(k, sure, evidence)


def _wasteful(k: Kernel, wasteful: str, evidence: Given) -> Finding:
    """At the limit with bytes that nobody needs, and what is gained without them where it is known."""
    excess = _excess(k)
    finding = k.roof(
        f"Device memory is {percent(k.model.counted('dram'))} busy, but {wasteful}.",
        evidence,
        "Cut the traffic: coalesce, reuse tiles from shared memory, keep variables in registers. The other findings say which applies.",
        "Fewer DRAM bytes for the same result.",
    )
    if excess is None:
        return finding
    without = k.model.without(
        Removal(
            "with only the needed bytes",
            loads={"dram": 1 / excess},
            stalls=dict.fromkeys(("long_scoreboard", "lg_throttle"), 1 / excess),
            basis=f"Device memory moves {units.ratio(excess)} the bytes that are needed.",
        )
    )
    speedup, arithmetic, relieves = without.speedup, without.arithmetic, without.relieves
    return replace(finding, speedup=speedup, arithmetic=arithmetic, relieves=relieves)


def _at_roof(k: Kernel, sure: bool, evidence: Given) -> Finding:
    """At the limit with the bytes that it must move; unless `sure`, with those that threads request."""
    moved, reach = k["dram_bytes"], "."
    # without the bytes left in L2 every launch reaches that
    if (k.model.peaks.get("dram") or 1.0) < SATURATED.value:
        reach = ". Launches that leave so much of their output in L2 reach little more."
    bytes_moved, near = "the bytes that it must", "the compulsory ones"
    first = "Nothing to do in this kernel."
    if moved and not sure:
        bytes_moved, near = "what its threads request", "the size of the arrays"
        first = (
            f"Nothing to do, if the arrays that it reads and writes total {units.si(moved, 'B')}. If they are smaller, several blocks read the same "
            "bytes: let one block serve them all, or schedule those that share data together, so that L2 still holds it."
        )
    other = "Only if the algorithm may change: fuse the kernel with its neighbours, or use a smaller type."
    busy = percent(k.model.counted("dram"))
    return k.roof(
        f"it runs at {busy} of peak DRAM bandwidth and moves only {bytes_moved}{reach}",
        evidence,
        (first, other),
        f"DRAM throughput near 90 % of peak, bytes near {near}.",
        good=True,
        confidence="high" if sure else "medium",
    )


specificity = Specificity.SYMPTOM.always


def _excess(k: Kernel) -> float | None:
    """How many times the needed bytes device memory moves; None where that is not known, where it
    is about what is needed, and for a gather, which needs whole sectors."""
    ratio = k["dram_per_compulsory"]
    return None if ratio is None or ratio <= COMPULSORY.value or _launch.gathers(k) else ratio


def _waste(k: Kernel) -> tuple[str, bool]:
    """What makes the traffic more than needed ("" where nothing does), and whether that follows
    from the problem itself."""
    if k.is_chain:
        launches = k.context.launch_count
        text = (
            f"{launches} launches pass data through memory that one launch could keep in registers"
        )
        return text, True
    if (ratio := k["dram_per_compulsory"]) is not None:
        text = f"the traffic is {units.ratio(ratio)} the bytes that the problem needs"
        return text if ratio > COMPULSORY.value else "", True
    text, excess, local = "", k["global_sector_excess"], k["local_sectors"]
    moved, asked = k["dram_bytes"], figures.asked_bytes(k.profile)
    needed = _launch.product_bytes(k)
    if local and local * SECTOR_BYTES > (k["l1_global_bytes"] or 0.0) / 4:
        text = "a large part of the traffic is spilled or indexed local variables"
    elif moved and needed and moved > needed * REREAD.value:
        return f"it moves {units.ratio(moved / needed)} the bytes of the product's matrices", True
    elif excess is not None and excess > _launch.COALESCED and not _launch.within_l1(k):
        text = f"{percent(excess)} of the sectors are wasted because lanes are not contiguous"
    elif moved and asked and moved > asked * COMPULSORY.value:
        text = f"memory moves {units.ratio(moved / asked)} the bytes that threads request"
    return text, False
