"""No bottleneck of the list explains this launch, or the report holds too little to tell.

What it is
This is the verdict when no rule finds a cause, or when rules lack their inputs. It shows what was
measured, and what to collect next.

Why it costs time
Not known. A guess would mislead.

How to confirm
Collect ncu-toolkit's own set for this launch and diagnose again.

What to change
Nothing yet. Read the largest stalls and the busiest units listed here.

When the advice is wrong
A kernel may be limited by something outside this list: clocks under a power limit, another process
on the GPU, or the profiler itself.

Source
Nsight Compute Kernel Profiling Guide, "Warp Stall Reasons" and "Quick Reference".
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._support import (
    COLLECT,
    fact,
    facts,
    largest_stalls,
    ruled_out,
    sections_to_collect,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "unknown"
TITLE: Final = "Unknown"
REQUIRES: Final = ()
OPTIONAL: Final = ("stalls", "opcodes", "issue_active")
#: Figures that mean for a range of launches what they mean for one.
TOGETHER: Final = (
    "duration", "dram_bytes", "dram_utilization", "l2_throughput", "sm_throughput", "memory_throughput", "achieved_occupancy", "instructions",
)  # fmt: skip


class Words:
    other = "A known bottleneck explains this launch."
    largest = "the largest stall is {stall} at {share}"
    no_stalls = "stall reasons were not collected"
    nothing = "No known bottleneck explains this launch: "
    too_little = "The report holds too little data to name a cause: "
    read = ("Read the hot spots: the lines with most samples, and their stall reasons.",)
    no_prediction = ("No estimate without a cause.",)
    next_profile = "Stall reasons, instruction counts and memory tables in the next profile."
    together = "{what} profiled as one, so the figures are of all of it, and no kernel of it can be diagnosed."
    no_launches = "The report does not show which launches are in this {workload}. It was"
    launches = "{launches} of {kernels} were"
    moved = " Together they moved {moved} through DRAM{share}."
    one_by_one = "To diagnose the kernels, profile them one by one: `ncu --replay-mode kernel`, and for a graph `--graph-profiling node`."
    next_kernels = "A report with one result for each launch."
    unended = "This launch cannot be diagnosed. It is {status}."
    run_first = "Run the program without ncu first, and check that it ends without an error. compute-sanitizer finds illegal accesses."
    ended = "A launch with a grid size and a duration."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    """Never a finding by itself: the engine asks for `verdict` when nothing else was found."""
    return ruled_out(ID, Words.other)


def verdict(profile: Profile, model: TimeModel) -> Finding:
    """What was seen, and what to collect."""
    absent = sections_to_collect(profile)
    name, busy = model.busiest()
    seen = [
        f"the busiest unit is {RESOURCES[name][2]} at {units.percent(busy)}"
        if name
        else "no unit's load was collected"
    ]
    stalls = largest_stalls(profile)
    seen.append(
        Words.largest.format(
            stall=stalls[0].label.removeprefix("Stall share: "),
            share=units.percent(stalls[0].value),
        )
        if stalls
        else Words.no_stalls
    )
    summary = Words.nothing if not absent else Words.too_little
    advice = (f"Collect ncu-toolkit's own set: {COLLECT}",) if absent else Words.read
    return Finding(
        ID,
        summary + ", ".join(seen) + ".",
        "low",
        facts(
            fact(profile, "duration"),
            fact(profile, "issue_active"),
            *stalls,
            *(
                fact(profile, m)
                for m in (RESOURCES[name][0] if name else ())
                if m != "issue_active"
            ),
            fact(profile, "sm_throughput"),
            fact(profile, "memory_throughput"),
            fact(profile, "achieved_occupancy"),
        ),
        None,
        Words.no_prediction,
        advice,
        Words.next_profile if absent else "",
    )


def incomplete(profile: Profile) -> Finding:
    """The verdict on a launch that did not end."""
    return Finding(
        ID,
        Words.unended.format(status=profile.launch.status),
        "high",
        (),
        None,
        ("No time was measured.",),
        (Words.run_first, f"Then profile it again: {COLLECT}"),
        Words.ended,
    )


def together(profile: Profile) -> Finding:
    """What is known of a range or graph that was profiled as one."""
    launch = profile.launch
    if launch.inside:
        what = Words.launches.format(
            launches=units.counted(len(launch.inside), "launch", "launches"),
            kernels=units.counted(len(set(launch.inside)), "kernel"),
        )
    else:
        what = Words.no_launches.format(workload=launch.workload)
    moved, share = figures.value(profile, "dram_bytes"), profile.value("dram_utilization")
    summary = Words.together.format(what=what)
    if moved is not None:
        of = f", at {units.percent(share)} of its peak" if share is not None else ""
        summary += Words.moved.format(moved=units.quantity(moved, "B"), share=of)
    return Finding(
        ID,
        summary,
        "high",
        facts(*(fact(profile, name) for name in TOGETHER)),
        None,
        Words.no_prediction,
        (Words.one_by_one,),
        Words.next_kernels,
    )
