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
from ncu_toolkit.kernel.diagnosis.rules import Roof, Specificity, _launch, memory_levels
from ncu_toolkit.kernel.diagnosis.thresholds import COMPULSORY, NEAR, WORKING
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

TITLE: Final = "L1 and shared-memory bandwidth"
LIMIT: Final = "memory"
OPTIONAL: Final = ("lsu_pipe_active", "l1_data_active", "l1_tag_active", "l1_throughput")
ROOF: Final = Roof("L1 and shared-memory bandwidth", "", "bytes")
UNITS: Final = ("lsu", "l1_data", "l1_tag", "l1_writeback", "l1")
COUNTERS: Final = {"l1_throughput": "L1", "tex_pipe_active": "the texture pipe"}
WAITS: Final = {"tex_throttle": ""}
open_in_code = memory_levels

#: What passes the load/store pipe beside shuffles, and the part of shuffles from which on they fill it.
ACCESSES: Final = ("global", "local", "shared", "copy", "atomic", "texture")
MOSTLY: Final = 0.5


def find(k: Kernel) -> Outcome:
    name, busy = k.model.busiest(*UNITS)
    if not name:
        return k.abstain(*k.missing("lsu_pipe_active", "l1_data_active"))
    evidence = (
        k.fact("lsu_pipe_active", ">=", NEAR),
        k.fact("l1_data_active", ">=", NEAR),
        "l1_tag_active l1_throughput",
        k.fact("passes_per_request", ">", _launch.PASSES),
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
    wide, unit = (k["load_bytes_per_lane"] or 0.0) >= 16, RESOURCES[name][2]  # the widest of a lane
    gathered = _launch.gathers(k) and (excess is None or excess <= _launch.COALESCED) and wide
    if useful or gathered:
        gathers = "It gathers whole sectors, 16 bytes per lane, at data-dependent addresses."
        return k.roof(
            f"{unit} is {percent(busy)} busy with useful data while SMs have work. {'Each byte passes L1 once.' if useful else gathers}",
            evidence,
            "Nothing to do, unless the algorithm may change: move fewer bytes, or in wider accesses.",
            "The same unit is still the busiest.",
            good=True,
        )
    if k.knows_none(*_launch.USEFULNESS):
        passes = k["passes_per_request"] or 0.0
        takes = f" Each request takes {units.significant(passes)} wavefronts, the widest coalesced access {_launch.PASSES.value:g}."
        return k.roof(
            f"{capital(unit)} is {percent(busy)} busy.{takes * bool(passes)} It may be useful data, scattered global addresses, bank conflicts "
            "or operands that are loaded again.",
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
