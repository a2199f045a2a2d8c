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

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules import Roof, Specificity
from ncu_toolkit.diagnosis.rules._access import COALESCED, gathers
from ncu_toolkit.diagnosis.rules._code import memory_levels
from ncu_toolkit.diagnosis.rules._roof import COMPULSORY, NEAR_BYTES, roof, streams
from ncu_toolkit.diagnosis.rules._support import (
    COLLECT,
    SATURATED,
    Threshold,
    abstain,
    fact,
    is_chain,
    load_fact,
    missing,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "dram-bandwidth"
TITLE: Final = "DRAM bandwidth"
LIMIT: Final = "memory"
REQUIRES: Final = ()
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


class Words:
    idle = "Device memory is {counted} busy."
    slower = "Loads wait for device memory, which is {counted} busy. Kernels that only copy data keep it busier."
    slower_advice = (
        "Move fewer bytes: use a smaller type, drop unused data, or fuse a neighbouring kernel.",
        "Read longer contiguous runs, and switch less often between reading and writing.",
    )
    fewer_bytes = "Fewer DRAM bytes for the same result."
    unsure = "Device memory is {counted} busy, near its limit. The report does not show whether all these bytes are needed."
    collect = f"Collect ncu-toolkit's own set, to see whether the traffic is needed: {COLLECT}"
    collect_look_for = "Bytes per memory level, and sectors per request."
    wasteful = "Device memory is {counted} busy, but {wasteful}."
    wasteful_advice = (
        (
            "Cut the traffic: coalesce, reuse tiles from shared memory, keep variables in registers. The other findings say which "
            "applies."
        ),
    )
    good = (
        "it runs at {counted} of peak DRAM bandwidth and moves only the bytes that it must{reach}"
    )
    good_advice = ("Move fewer bytes: fuse the kernel with its neighbours, or use a smaller type.",)
    good_by_lanes = (
        "it runs at {counted} of peak DRAM bandwidth and moves only what its threads request{reach}"
    )
    reach = ". Launches that leave so much of their output in L2 reach little more"
    compare = (
        "Compare the {moved} that memory moved with the size of the arrays. If it is more, several blocks read the same bytes. "
        "Let one block serve them all, or schedule the blocks that share data together, so that L2 still holds it."
    )
    otherwise = (
        "Otherwise move fewer bytes: fuse the kernel with its neighbours, or use a smaller type."
    )
    alone = "{verdict}."
    call: ClassVar[language.Elsewhere] = {
        "torch": (
            "Move fewer bytes: let torch.compile fuse it with its neighbours, work in place, or use a smaller dtype.",
        ),
        "xla": (
            "Move fewer bytes: put it into one jax.jit function with its neighbours, so that XLA can fuse them, or use a smaller dtype.",
        ),
        "cupy": (
            "Move fewer bytes: fuse it with its neighbours by cupy.fuse or an ElementwiseKernel, or use a smaller dtype.",
        ),
    }
    look_for = "DRAM throughput near 90 % of peak, bytes near {near_what}."
    chain = "{launches} launches pass data through memory that one launch could keep in registers"
    more = "the traffic is {ratio} the bytes that the problem needs"
    scattered = "{excess} of the sectors are wasted because lanes are not contiguous"
    local = "a large part of the traffic is spilled or indexed local variables"
    asked = "memory moves {ratio} the bytes that threads request"


CALL: Final = Words.call


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    if "dram" not in model.loads:
        return abstain(ID, missing(profile, ("dram_utilization",)))
    busy, counted = model.busy("dram"), units.percent(model.counted("dram"))
    name = (
        "dram_utilization" if profile.value("dram_utilization") is not None else "dram_bus_active"
    )
    # Memory that is only read reaches more, a launch that leaves its writes in L2 less.
    near = (
        Threshold(
            0.9 * model.peaks["dram"],
            "90% of what kernels with the same share of writes, and as many bytes left in L2, reach",
        )
        if "dram" in model.peaks
        else NEAR_BYTES
    )
    measured = fact(profile, name)
    excess = _excess(profile)
    saturated = busy >= SATURATED.value or streams(model)
    at_roof = busy >= near.value or (excess is not None and saturated)
    if saturated and not at_roof:
        return roof(
            ID,
            Words.slower.format(counted=counted),
            model,
            (
                load_fact(model, "dram", SATURATED),
                measured,
                fact(profile, "dram_bytes"),
                fact(profile, "global_sector_excess"),
            ),
            Words.slower_advice,
            Words.fewer_bytes,
            good=False,
            confidence="medium",
        )
    if not at_roof:
        return ruled_out(ID, Words.idle.format(counted=counted), measured)
    wasteful, sure = _waste(profile)
    known = missing(profile, USEFULNESS)
    evidence = (
        load_fact(model, "dram", near),
        measured,
        fact(profile, "dram_bytes"),
        fact(profile, "dram_owed_bytes"),
        fact(profile, "dram_per_compulsory", "", COMPULSORY, "<="),
        fact(profile, "global_sector_excess"),
        fact(profile, "lane_bytes"),
    )
    if not sure and len(known) == len(USEFULNESS):
        return roof(
            ID,
            Words.unsure.format(counted=counted),
            model,
            evidence,
            (Words.collect,),
            Words.collect_look_for,
            good=False,
            confidence="low",
        )
    if wasteful:
        found = roof(
            ID,
            Words.wasteful.format(counted=counted, wasteful=wasteful),
            model,
            evidence,
            Words.wasteful_advice,
            Words.fewer_bytes,
            good=False,
            confidence="medium",
        )
        if excess is None:
            return found
        removal = Removal(
            "with only the needed bytes",
            loads={"dram": 1 / excess},
            stalls=dict.fromkeys(("long_scoreboard", "lg_throttle"), 1 / excess),
            basis=f"Device memory moves {units.ratio(excess)} the bytes that are needed.",
        )
        prediction = model.without(removal)
        return replace(
            found,
            speedup=prediction.speedup,
            arithmetic=prediction.arithmetic,
            relieves=prediction.relieves,
        )
    moved = figures.value(profile, "dram_bytes")
    # Without the bytes left in L2 every launch reaches SATURATED.
    reach = Words.reach if model.peaks.get("dram", 1.0) < SATURATED.value else ""
    advice: tuple[str, ...]
    if sure or not moved:
        verdict = Words.good.format(counted=counted, reach=reach)
        advice = Words.good_advice
        near_what = "the compulsory ones"
    else:
        verdict = Words.good_by_lanes.format(counted=counted, reach=reach)
        advice = (Words.compare.format(moved=units.si(moved, "B")), Words.otherwise)
        near_what = "the size of the arrays"
    return roof(
        ID,
        Words.alone.format(verdict=verdict),
        model,
        evidence,
        advice,
        Words.look_for.format(near_what=near_what),
        good=True,
        confidence="high" if sure else "medium",
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.SYMPTOM


def _excess(profile: Profile) -> float | None:
    """How many times the needed bytes device memory moves; None where that is not known, where it
    is about what is needed, and for a gather, which needs whole sectors."""
    ratio = figures.value(profile, "dram_per_compulsory")
    return None if ratio is None or ratio <= COMPULSORY.value or gathers(profile) else ratio


def _waste(profile: Profile) -> tuple[str, bool]:
    """What makes the traffic more than needed ("" where nothing does), and whether that could be
    told from the problem itself."""
    if profile.context and is_chain(profile):
        return (Words.chain.format(launches=profile.context.launch_count), True)
    ratio = figures.value(profile, "dram_per_compulsory")
    if ratio is not None:
        return (
            Words.more.format(ratio=units.ratio(ratio)) if ratio > COMPULSORY.value else ""
        ), True
    excess, local = (
        figures.value(profile, "global_sector_excess"),
        figures.value(profile, "local_sectors"),
    )
    moved, asked = figures.value(profile, "dram_bytes"), figures.asked_bytes(profile)
    if excess is not None and excess > COALESCED:
        return (Words.scattered.format(excess=units.percent(excess)), False)
    if (
        local
        and local * figures.SECTOR_BYTES > (figures.value(profile, "l1_global_bytes") or 0.0) / 4
    ):
        return Words.local, False
    if moved and asked and moved > asked * COMPULSORY.value:
        return Words.asked.format(ratio=units.ratio(moved / asked)), False
    return "", False
