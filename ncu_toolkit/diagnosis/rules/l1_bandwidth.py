"""The L1 cache or shared memory of each SM delivers as fast as it can.

What it is
L1 and shared memory are one unit with one data stage (128 bytes a cycle), one tag stage (a line a
cycle) and one load/store pipe (an instruction a cycle) for each SM.

Why it costs time
Time is then instructions, lines or wavefronts, over one a cycle.

How to confirm
The load/store pipe, the tag stage or the data stage is near its peak, and no bank conflicts,
scattered accesses or narrow loads inflate the work.

What to change
Keep more in registers (a larger tile of results per thread); use wider loads; broadcast by
shuffles; on tensor cores feed operands from shared memory directly (wgmma).

When the advice is wrong
Where wasteful accesses fill it, their own findings say more. A roof reached with useful wavefronts
only moves by needing fewer of them.

Source
Nsight Compute Kernel Profiling Guide, "L1/TEX Cache"; Jia et al., "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking".
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import Roof, Specificity
from ncu_toolkit.diagnosis.rules._access import COALESCED, gathers
from ncu_toolkit.diagnosis.rules._code import memory_levels
from ncu_toolkit.diagnosis.rules._roof import COMPULSORY, NEAR, WORKING, roof
from ncu_toolkit.diagnosis.rules._support import (
    COLLECT,
    Threshold,
    abstain,
    capital,
    fact,
    missing,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, TimeModel
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "l1-bandwidth"
TITLE: Final = "L1 and shared-memory bandwidth"
LIMIT: Final = "memory"
REQUIRES: Final = ()
OPTIONAL: Final = ("lsu_pipe_active", "l1_data_active", "l1_tag_active", "l1_throughput")
ROOF: Final = Roof("L1 and shared-memory bandwidth", "", "bytes")
UNITS: Final = ("lsu", "l1_data", "l1_tag", "l1_writeback", "l1")
COUNTERS: Final = {"l1_throughput": "L1", "tex_pipe_active": "the texture pipe"}
WAITS: Final = {"tex_throttle": ""}
open_in_code = memory_levels

#: Bytes of a lane's widest access.
WIDEST: Final = 16.0
PASSES: Final = Threshold(
    4.0, "the widest access of a warp, 16 bytes a lane, takes four passes of 128 bytes"
)
#: Below it most requests take one pass: half way to the two of an access of 8 bytes a lane.
SINGLE: Final = 1.5
#: Figures that tell useful work from waste.
USEFULNESS: Final = (
    "ld_sectors_per_request", "global_sector_excess", "shared_conflict_excess", "lane_bytes",
)  # fmt: skip


class Words:
    idle = "L1 and shared memory are at most {busy} busy."
    no_work = "L1 is busy while SMs have work, but they have none for {part} of the time."
    further = "L2 or device memory is busier."
    gathers = "It gathers whole sectors, 16 bytes per lane, at data-dependent addresses."
    good = "{unit} is {busy} busy with useful data while SMs have work. {what}"
    good_advice = ("Use wider accesses, or move fewer bytes.",)
    good_look_for = "The same unit is still the busiest."
    unsure = "{unit} is {busy} busy. The report does not show why. {candidates}"
    collect = f"Collect ncu-toolkit's own set, which shows the cause: {COLLECT}"
    collect_look_for = "Sectors per request, wavefronts beyond the ideal, and stall reasons."
    found = "{unit} is {busy} busy while SMs have work, so L1 and shared memory are at their limit."
    advice = (
        (
            "Load less: keep operands in registers for several results, load 16 bytes at a time, exchange values between lanes by "
            "shuffles."
        ),
    )
    look_for = "Fewer load and store instructions for the same arithmetic."
    alike = "Useful data, scattered accesses and bank conflicts look alike here."
    passes = (
        "Each request takes {passes} wavefronts, the widest coalesced access only {least:g}. Lanes are scattered in global memory, share "
        "banks of shared memory, or update one address."
    )
    several = "{passes} wavefronts, as wide accesses and mild conflicts do"
    requests = (
        "A request takes {few}, so there are too many requests. Operands may be reloaded instead of kept in registers, or live "
        "in local memory."
    )


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    name, busy = model.busiest("lsu", "l1_data", "l1_tag", "l1_writeback", "l1")
    if not name:
        return abstain(ID, missing(profile, ("lsu_pipe_active", "l1_data_active")))
    evidence = (
        fact(profile, "lsu_pipe_active", "", NEAR, ">="),
        fact(profile, "l1_data_active", "", NEAR, ">="),
        fact(profile, "l1_tag_active"),
        fact(profile, "l1_throughput"),
        fact(profile, "passes_per_request", "", PASSES, ">"),
        fact(profile, "shared_conflict_excess"),
        fact(profile, "global_sector_excess"),
    )
    if busy < NEAR.value:
        return ruled_out(ID, Words.idle.format(busy=units.percent(busy)), *evidence)
    if model.working < WORKING.value:
        return ruled_out(ID, Words.no_work.format(part=units.percent(1 - model.working)), *evidence)
    if max(model.busy("dram"), model.busy("l2"), model.busy("fill")) >= busy:
        return ruled_out(ID, Words.further, *evidence)
    compulsory = profile.context.compulsory_bytes if profile.context else None
    asked = figures.value(profile, "l1_global_bytes")
    excess, width = (
        figures.value(profile, "global_sector_excess"),
        figures.value(profile, "load_bytes_per_lane"),
    )
    useful = (
        compulsory is not None
        and asked is not None
        and asked <= compulsory * COMPULSORY.value
        and not (figures.value(profile, "shared_conflict_excess") or 0.0) > 0.1
    )
    gathered = (
        gathers(profile) and (excess is None or excess <= COALESCED) and (width or 0.0) >= WIDEST
    )
    if useful or gathered:
        what = "Each byte passes L1 once." if useful else Words.gathers
        return roof(
            ID,
            Words.good.format(what=what, unit=RESOURCES[name][2], busy=units.percent(busy)),
            model,
            evidence,
            Words.good_advice,
            Words.good_look_for,
            good=True,
            confidence="medium",
        )
    if len(missing(profile, USEFULNESS)) == len(USEFULNESS):
        return roof(
            ID,
            Words.unsure.format(
                unit=capital(RESOURCES[name][2]),
                busy=units.percent(busy),
                candidates=_candidates(profile),
            ),
            model,
            evidence,
            (Words.collect,),
            Words.collect_look_for,
            good=False,
            confidence="low",
        )
    return roof(
        ID,
        Words.found.format(unit=capital(RESOURCES[name][2]), busy=units.percent(busy)),
        model,
        evidence,
        Words.advice,
        Words.look_for,
        good=False,
        confidence="medium",
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.SYMPTOM


def _candidates(profile: Profile) -> str:
    """What may keep L1 busy, by the passes that each request takes."""
    passes = figures.value(profile, "passes_per_request")
    if passes is None:
        return Words.alike
    if passes > PASSES.value:
        return Words.passes.format(passes=units.significant(passes), least=PASSES.value)
    few = (
        "little more than one wavefront"
        if passes < SINGLE
        else Words.several.format(passes=units.significant(passes))
    )
    return Words.requests.format(few=few)
