"""No known bottleneck explains this launch, or the report holds too little data.

What it is
This is the verdict when no rule finds a cause, or when rules lack their inputs. It shows what was
measured, and what to collect next.

Why it costs time
Not known. A guess would mislead.

How to confirm
Collect ncu-toolkit's own section set for this launch and diagnose again.

What to change
Nothing yet. Read the largest stalls and the busiest units listed here.

When the advice is wrong
A kernel may be limited by something outside this list: clocks under a power limit, another process
on the GPU, or the profiler itself.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" and "Quick Reference".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import NOT_MEASURED, Finding, Profile
from ncu_toolkit.base.model.profile import Advice
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.kernel import (
    COLLECT,
    Kernel,
    Outcome,
    percent,
    sections_to_collect,
)
from ncu_toolkit.kernel.diagnosis.time_model import RESOURCES

ID: Final = "unknown"
#: What gives a launch its own counters. Why ncu copies them is not known: nothing public says it.
ALONE: Final = (
    "Profile this kernel alone (ncu --kernel-name NAME --launch-count 1), with the newest ncu and without MPS or another "
    "profiler on the GPU"
)
TITLE: Final = "Unknown"
ALSO_CALLED: Final = ("No cause found",)
OPTIONAL: Final = ("stalls", "opcodes", "issue_active")
#: Figures that mean for a range of launches what they mean for one.
TOGETHER: Final = (
    "duration", "dram_bytes", "dram_utilization", "l2_throughput", "sm_throughput", "memory_throughput", "achieved_occupancy", "instructions",
)  # fmt: skip


def find(k: Kernel) -> Outcome:
    """Never a finding by itself: the engine asks for `verdict` when nothing else was found."""
    return k.ruled_out("A known bottleneck explains this launch.")


def verdict(k: Kernel) -> Finding:
    """What was seen, and what to collect."""
    absent = sections_to_collect(k.profile)
    name, busy = k.model.busiest()
    seen = [
        f"the busiest unit is {RESOURCES[name][2]} at {percent(busy)}"
        if name
        else "no unit's load was collected"
    ]
    ranked = figures.ranked_stalls(k.profile, "selected")[:3]
    stalls = k.facts(*(k.stall(reason) for reason, share in ranked if share >= 0.05))
    seen.append(
        f"the largest stall is {stalls[0].label.removeprefix('Stall share: ')} at {percent(stalls[0].value)}"
        if stalls
        else "stall reasons were not collected"
    )
    summary = (
        "No known bottleneck explains this launch: "
        if not absent
        else "The report holds too little data to name a cause: "
    )
    advice = (
        (k.collect(),)
        if absent
        else ("Read the hot spots: the lines with most samples, and their stall reasons.",)
    )
    return Finding(
        ID,
        summary + ", and ".join(seen) + ".",
        "low",
        k.facts(
            "duration issue_active",
            *stalls,
            *(m for m in (RESOURCES[name][0] if name else ()) if m != "issue_active"),
            "sm_throughput memory_throughput achieved_occupancy",
        ),
        None,
        ("No estimate without a cause.",),
        advice,
        "Stall reasons, instruction counts and memory tables in the next profile."
        if absent
        else "",
    )


def incomplete(profile: Profile) -> Finding:
    """The verdict on a launch that did not end, or whose counters are not its own."""
    first = "Run the program without ncu first, and check that it ends without an error. compute-sanitizer finds illegal accesses."
    then, expected = "Then profile it again", "A launch with a grid size and a duration."
    if profile.launch.status.startswith(NOT_MEASURED):
        first, then, expected = (
            f"{ALONE}.",
            "Or collect ncu-toolkit's own set",
            "Counters that differ from launch to launch.",
        )
    return Finding(
        ID,
        f"This launch cannot be diagnosed. It is {profile.launch.status}.",
        "high",
        (),
        None,
        ("No time was measured.",),
        (first, Advice(then, COLLECT)),
        expected,
    )


def together(k: Kernel) -> Finding:
    """What is known of a range or graph that was profiled as one."""
    launch = k.launch
    if launch.inside:
        what = f"{units.counted(len(launch.inside), 'launch')} of {units.counted(len(set(launch.inside)), 'kernel')} were"
    else:
        what = f"The report does not show which launches are in this {launch.workload}. It was"
    moved, share = k["dram_bytes"], k["dram_utilization"]
    summary = f"{what} profiled as one, so the figures are of all of it, and no kernel of it can be diagnosed."
    if moved is not None:
        of = f", at {percent(share)} of its peak" if share is not None else ""
        summary += f" Together they moved {units.quantity(moved, 'B')} through DRAM{of}."
    return Finding(
        ID,
        summary,
        "high",
        k.facts(*TOGETHER),
        None,
        ("No estimate without a cause.",),
        (
            "To diagnose the kernels, profile them one by one: `ncu --replay-mode kernel`, and for a graph `--graph-profiling node`.",
        ),
        "A report with one result for each launch.",
    )
