"""The SMs issue instructions, or one pipe executes them, as fast as they can.

What it is
Each scheduler issues one warp instruction a cycle, and each pipe takes its kind of instruction at a
fixed rate. Either is full here: the issue slots, or a pipe that no other rule speaks for (integer
and logic, half precision, uniform, texture).

Why it costs time
Time is then instructions over that rate. Memory, latency and occupancy no longer matter.

How to confirm
Issue slots or the pipe above 80% of their peak; not selected and math pipe throttle are the largest
stall reasons, where they were collected.

What to change
Execute fewer instructions for the same result: wider loads, addresses stepped by constants, less
work repeated by every thread, intrinsics instead of long sequences. Where one pipe is full, move
work to a pipe with room.

When the advice is wrong
Where each instruction is needed, the kernel is at its roof, and only another algorithm is faster. A
report does not show which instructions are needed.

Source
CUDA C++ Programming Guide, "Maximize Instruction Throughput"; Nsight Compute Kernel Profiling
Guide, "Pipelines"; Nsight Compute's SpeedOfLight and IssueSlotUtilization rules.
"""

from typing import Final

from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, percent
from ncu_toolkit.kernel.diagnosis.thresholds import SATURATED
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

TITLE: Final = "Instruction throughput"
LIMIT: Final = "compute"
OPTIONAL: Final = ("issue_active", "alu_pipe_active", "sm_throughput")
COUNTERS: Final = {
    "adu_pipe_active": "the address divergence unit (ADU), which serves constant loads, barriers and indirect branches",
    "mio_active": "the issue to memory and special units (MIO)",
    "sm_throughput": "an SM unit that the report does not name",
}
WAITS: Final = {"math_pipe_throttle": "", "dispatch_stall": ""}
PIPES: Final = ("issue", "alu", "fmaheavy", "fp16", "uniform")
#: Units of the SMs that no other rule names. A busy constant cache is one: where lanes read one
#: address each, it is the number of loads that keeps it busy.
UNITS: Final = (*PIPES, "constant")


def find(k: Kernel) -> Outcome:
    """Never a finding by itself: a cause that says more may keep these units busy. The engine
    names them where no such cause is found (`engine.nearest`)."""
    unit, busy = k.model.busiest(*PIPES)
    if not unit:
        return k.abstain("issue_active")
    words = RESOURCES[unit][2]
    return k.ruled_out(
        f"The busiest of the issue slots and pipes is {percent(busy)} busy ({words})."
        if busy < SATURATED.value
        else f"Another cause keeps a unit busy ({words}, {percent(busy)}).",
        k.load(unit, SATURATED),
        "sm_throughput",
    )
