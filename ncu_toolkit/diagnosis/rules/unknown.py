"""No bottleneck of the list explains this launch, or the report holds too little to tell.

What it is
The verdict where every other rule found nothing or lacked its inputs. It says what was seen, and
what to collect to learn more.

Why it costs time
Not known: that is the point. A guess would be worse.

How to confirm
Collect the full set of sections for this launch and diagnose again.

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
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    fact,
    facts,
    largest_stalls,
    missing,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, TimeModel
from ncu_toolkit.model import Finding, Profile, Ruled

ID: Final = "unknown"
TITLE: Final = "Unknown"
REQUIRES: Final = ()
OPTIONAL: Final = ("stalls", "opcodes", "issue_active")
#: Without these no cause of waiting can be named; the sections that hold them.
SECTIONS: Final = {
    "stalls": "WarpStateStats", "issue_active": "SchedulerStats", "opcodes": "SourceCounters",
    "global_load_sectors": "MemoryWorkloadAnalysis_Tables", "dram_bytes": "MemoryWorkloadAnalysis",
    "fma_pipe_active": "ComputeWorkloadAnalysis", "theoretical_occupancy": "Occupancy", "duration": "SpeedOfLight",
}  # fmt: skip


def sections_to_collect(profile: Profile) -> tuple[str, ...]:
    """Names of the profiler's stock sections that hold what this report lacks."""
    return tuple(SECTIONS[name] for name in missing(profile, SECTIONS))


def command(sections: tuple[str, ...]) -> str:
    """The ncu command line that collects `sections` (empty: everything) for a program."""
    chosen = " ".join(f"--section {name}" for name in sections)
    return f"ncu {chosen or '--set full'} --import-source yes -o report YOUR_PROGRAM"


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    """Never a finding by itself: `diagnose` asks for `verdict` when nothing else was found."""
    return ruled_out(ID, "Something on the list explains this launch.")


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
    if name and busy < BUSY.value and not stalls:
        seen.append("so warps wait, for memory, for each other, or because they are too few")
    seen.append(
        f"the largest stall is {stalls[0].label.removeprefix('Stall share: ')} at {units.percent(stalls[0].value)}"
        if stalls
        else "stall reasons were not collected"
    )
    summary = (
        "Nothing on the list explains this launch: "
        if not absent
        else "The report holds too little to name a cause: "
    )
    advice = (
        (f"Collect what is missing: {command(absent)}",)
        if absent
        else ("Read the hot spots: the lines with the most samples and what they wait for.",)
    )
    return Finding(
        ID,
        summary + ", ".join(seen) + ".",
        "low",
        facts(
            fact(profile, "duration"),
            fact(profile, "issue_active"),
            *stalls,
            fact(profile, "sm_throughput"),
            fact(profile, "memory_throughput"),
            fact(profile, "achieved_occupancy"),
        ),
        None,
        ("No prediction without a cause.",),
        advice,
        "Stall reasons, instruction counts and memory tables in the next profile."
        if absent
        else "",
    )
