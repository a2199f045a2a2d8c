"""The L1 cache or shared memory of each SM delivers as fast as it can.

What it is
L1 and shared memory are one unit with one data stage (128 bytes per cycle), one tag stage (a line per cycle) and one
load/store pipe (an instruction per cycle) in each SM.

Why it costs time
Time is then instructions, lines or wavefronts, over one per cycle.

How to confirm
The load/store pipe, the tag stage or the data stage is near its peak, and no bank conflicts, scattered accesses or
narrow loads inflate the work.

What to change
Keep more in registers (a larger tile of results per thread); use wider loads; broadcast by shuffles; on tensor cores
feed operands from shared memory directly (wgmma).

When the advice is wrong
Where wasteful accesses fill it, their own findings say more. A roof reached with useful wavefronts only moves by
needing fewer of them.

Source
Nsight Compute Kernel Profiling Guide, "L1/TEX Cache"; Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, capital, percent
from ncu_toolkit.kernel.diagnosis.rules import Roof, Specificity, memory_levels
from ncu_toolkit.kernel.diagnosis.rules._launch import COALESCED, gathers
from ncu_toolkit.kernel.diagnosis.thresholds import COMPULSORY, NEAR, WORKING, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

TITLE: Final = "L1 and shared-memory bandwidth"
LIMIT: Final = "memory"
OPTIONAL: Final = ("lsu_pipe_active", "l1_data_active", "l1_tag_active", "l1_throughput")
ROOF: Final = Roof("L1 and shared-memory bandwidth", "", "bytes")
UNITS: Final = ("lsu", "l1_data", "l1_tag", "l1_writeback", "l1")
COUNTERS: Final = {"l1_throughput": "L1", "tex_pipe_active": "the texture pipe"}
WAITS: Final = {"tex_throttle": ""}
open_in_code = memory_levels

PASSES: Final = Threshold(4.0, "the widest access of a warp, 16 bytes per lane, takes four passes of 128 bytes")  # fmt: skip
#: Below it most requests take one pass: half way to the two of an access of 8 bytes per lane.
SINGLE: Final = 1.5
#: What passes the load/store pipe beside shuffles, and the part of shuffles from which on they fill it.
ACCESSES: Final = ("global", "local", "shared", "copy", "atomic", "texture")
MOSTLY: Final = 0.5
#: Figures that tell useful work from waste.
USEFULNESS: Final = (
    "ld_sectors_per_request", "global_sector_excess", "shared_conflict_excess", "lane_bytes",
)  # fmt: skip


def find(k: Kernel) -> Outcome:
    name, busy = k.model.busiest(*UNITS)
    if not name:
        return k.abstain(*k.missing("lsu_pipe_active", "l1_data_active"))
    evidence = (
        k.fact("lsu_pipe_active", ">=", NEAR),
        k.fact("l1_data_active", ">=", NEAR),
        "l1_tag_active l1_throughput",
        k.fact("passes_per_request", ">", PASSES),
        "shared_conflict_excess global_sector_excess",
    )
    if busy < NEAR.value:
        return k.ruled_out(f"L1 and shared memory are at most {percent(busy)} busy.", evidence)
    if k.model.working < WORKING.value:
        reason = f"L1 is busy while SMs have work, but they have none for {percent(1 - k.model.working)} of the time."
        return k.ruled_out(reason, evidence)
    if max(k.model.busy("dram"), k.model.busy("l2"), k.model.busy("fill")) >= busy:
        return k.ruled_out("L2 or device memory is busier.", evidence)
    compulsory = k.context.compulsory_bytes
    asked, excess = k["l1_global_bytes"], k["global_sector_excess"]
    useful = (
        compulsory is not None
        and asked is not None
        and asked <= compulsory * COMPULSORY.value
        and not (k["shared_conflict_excess"] or 0.0) > 0.1
    )
    wide = (k["load_bytes_per_lane"] or 0.0) >= 16  # the widest access of a lane
    gathered = gathers(k) and (excess is None or excess <= COALESCED) and wide
    unit = RESOURCES[name][2]
    if useful or gathered:
        what = "It gathers whole sectors, 16 bytes per lane, at data-dependent addresses."
        if useful:
            what = "Each byte passes L1 once."
        return k.roof(
            f"{unit} is {percent(busy)} busy with useful data while SMs have work. {what}",
            evidence,
            "Nothing to do, unless the algorithm may change: move fewer bytes, or in wider accesses.",
            "The same unit is still the busiest.",
            good=True,
        )
    if k.knows_none(*USEFULNESS):
        return k.roof(
            f"{capital(unit)} is {percent(busy)} busy. {_candidates(k)}",
            evidence,
            k.collect("which shows the cause"),
            "A verdict that names the cause, from sectors per request, wavefronts beyond the ideal, and stall reasons.",
            confidence="low",
        )
    shuffles = k.of_base("SHFL") / (k.executed("shuffle", *ACCESSES) or 1.0)
    why = "so L1 and shared memory are at their limit."
    fewer = "Load less: keep operands in registers for several results, load 16 bytes at a time, exchange values between lanes by shuffles."
    if name == "lsu" and shuffles > MOSTLY:
        why = f"and {percent(shuffles)} of its instructions are shuffles."
        fewer = "Shuffle less: let each lane add up its own values, and reduce across lanes once, after the loop."
    return k.roof(
        f"{capital(unit)} is {percent(busy)} busy while SMs have work, {why}",
        evidence,
        fewer,
        "Fewer load, store and shuffle instructions for the same arithmetic.",
    )


specificity = Specificity.SYMPTOM.always


def _candidates(k: Kernel) -> str:
    """What may keep L1 busy, by the passes that each request takes."""
    passes = k["passes_per_request"]
    if passes is None:
        return "The report cannot tell whether useful data, scattered accesses or bank conflicts do that."
    if passes > PASSES.value:
        takes = f"Each request takes {units.significant(passes)} wavefronts, where even the widest coalesced access takes only {PASSES.value:g}."
        return f"{takes} Possible reasons: scattered global addresses, bank conflicts, or atomics on one address."
    few = f"{units.significant(passes)} wavefronts, as wide accesses and mild conflicts do"
    if passes < SINGLE:
        few = "little more than one wavefront"
    many = f"A request takes {few}, so there are too many requests."
    return f"{many} Operands may be reloaded instead of kept in registers, or live in local memory."
