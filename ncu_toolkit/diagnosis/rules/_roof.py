"""What the roofs share: how near is near, the verdict that a kernel is good there, and the nearest
roof of a launch that no rule explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    SATURATED,
    STALL,
    Threshold,
    blame,
    fact,
    facts,
    load_fact,
    stall_fact,
)
from ncu_toolkit.diagnosis.rules.launch_overhead import FILLED
from ncu_toolkit.diagnosis.rules.unknown import command, sections_to_collect
from ncu_toolkit.diagnosis.time_model import (
    BLOCK_STARTS,
    MEMORY,
    NOISE,
    RESOURCES,
    SUSTAINED,
    Removal,
    TimeModel,
)
from ncu_toolkit.model import Evidence, Finding, Profile
from ncu_toolkit.sass import attribution

#: Within a tenth of what well-written kernels keep up (time_model.SUSTAINED).
NEAR: Final = Threshold(
    0.9 * SUSTAINED, "nine tenths of the 80% of peak that well-written kernels keep up"
)
#: Large copies reach 0.88 of an H200's datasheet bandwidth, and keep its DRAM and L2 0.88 to 0.93
#: busy.
COPIES: Final = 0.9
NEAR_BYTES: Final = Threshold(
    0.9 * COPIES, "nine tenths of the 90% of peak that copies reach in device memory and L2 alike"
)
WORKING: Final = Threshold(
    0.9, "a unit in an SM is the limit only where SMs have work for all but a tenth of the time"
)
#: Traffic over the compulsory that still counts as compulsory: a quarter covers halo rows, partial
#: sectors and write-backs.
COMPULSORY: Final = Threshold(
    1.25, "a quarter more than compulsory: halos, partial sectors and write-backs"
)


#: How the summary of a good kernel begins.
GOOD: Final = "This kernel is good: "
#: How the sentence begins that says how much is left.
LEFT: Final = " The best of its kind"
#: Where another cause would save more than this, a roof is not all there is: nearness to a roof
#: leaves no more than a tenth.
TENTH: Final = 0.1


def demoted(finding: Finding) -> Finding:
    """A roof that is near, but not what to stop at."""
    summary = finding.summary.removeprefix(GOOD).partition(LEFT)[0]
    return replace(
        finding,
        good=False,
        confidence="low",
        speedup=1.0,
        arithmetic=("What is left here waits for the other finding.",),
        summary=f"Near a roof: {summary} Another finding says what to do first.",
    )


def roof(
    bottleneck: str,
    summary: str,
    model: TimeModel,
    evidence: Sequence[Evidence | None],
    advice: Sequence[str],
    look_for: str,
    *,
    good: bool,
    confidence: Literal["high", "medium", "low"],
    resource: str = "",
    best: Threshold | None = None,
) -> Finding:
    """The verdict at a roof.

    The speedup is 1, or what lies between the load of `resource` and the `best` that kernels of
    this kind reach, where that is known: what a kernel near its roof can still gain is then said,
    not rounded to nothing. Where that is more than a TENTH, it is not good."""
    busy = model.busy(resource) if resource else 0.0
    if best is not None and busy and 1 - busy / best.value >= NOISE:
        left = best.value / busy
        said = f"{LEFT} keep it {units.percent(best.value, 2)} busy, so up to {units.ratio(left)} is left."
        if good and 1 - 1 / left > TENTH:
            good, confidence, summary = (
                False,
                "medium",
                f"Near a roof: {summary.removeprefix(GOOD)}",
            )
        shown = (
            f"{RESOURCES[resource][2][:1].upper()}{RESOURCES[resource][2][1:]} is {units.percent(busy)} busy while SMs have work; "
            f"{units.percent(best.value, 2)} is the best known ({best.source}).",
            f"{units.percent(best.value)} / {units.percent(busy)} = {units.ratio(left)} at most, {units.percent(1 - 1 / left)} of the time saved.",
        )
        return Finding(
            bottleneck,
            summary + said,
            confidence,
            facts(*evidence),
            left,
            shown,
            tuple(advice),
            look_for,
            (),
            good,
        )
    prediction = model.without(Removal("at this roof"))
    arithmetic = (
        prediction.arithmetic
        if prediction.speedup > 1
        else ("The limit is this unit itself: less work for it is what shortens the time.",)
    )
    return Finding(
        bottleneck,
        summary,
        confidence,
        facts(*evidence),
        1.0,
        arithmetic,
        tuple(advice),
        look_for,
        (),
        good,
    )


#: Resource -> the bottleneck that its roof goes by.
BY_UNIT: Final[Mapping[str, str]] = {
    "issue": "instruction-throughput", "alu": "instruction-throughput", "fmaheavy": "instruction-throughput",
    "fp16": "instruction-throughput", "uniform": "instruction-throughput", "fma": "fp32-pipe", "fp64": "double-precision",
    "xu": "special-function-pressure", "tensor": "tensor-pipe", "lsu": "l1-bandwidth", "l1_tag": "l1-bandwidth",
    "l1_data": "l1-bandwidth", "l1_writeback": "l1-bandwidth", "l1": "l1-bandwidth", "fill": "l2-bandwidth",
    "l2": "l2-bandwidth", "atomic": "atomic-contention", "dram": "dram-bandwidth", "blocks": "launch-overhead",
    "constant": "constant-cache-divergence",
}  # fmt: skip
#: Figures of units that are no resource of the time model, read only by what stock sections hold:
#: the bottleneck they go by, and their words. The roll-ups come last: they say that some unit is
#: busy, and name none.
BY_COUNTER: Final[Mapping[str, tuple[str, str]]] = {
    "l1_throughput": ("l1-bandwidth", "L1"),
    "tex_pipe_active": ("l1-bandwidth", "the texture pipe"),
    "adu_pipe_active": ("instruction-throughput", "the unit for divergent addresses (ADU)"),
    "mio_active": ("instruction-throughput", "the issue to memory and special units (MIO)"),
    "sm_throughput": ("instruction-throughput", "a unit of the SMs that this report does not name"),
}
#: Stall reason -> the bottleneck that it shows as. What has no name of its own (misc) is not here.
BY_WAIT: Final[Mapping[str, str]] = {
    "long_scoreboard": "memory-latency", "membar": "memory-latency", "drain": "memory-latency",
    "lg_throttle": "global-instruction-pressure", "tex_throttle": "l1-bandwidth",
    "short_scoreboard": "shared-instruction-pressure", "mio_throttle": "shared-instruction-pressure",
    "wait": "instruction-dependency", "branch_resolving": "instruction-dependency", "imc_miss": "instruction-dependency",
    "barrier": "barrier-imbalance", "sleeping": "barrier-imbalance", "no_instruction": "instruction-cache",
    "gmma": "tensor-pipe", "math_pipe_throttle": "instruction-throughput",
    "dispatch_stall": "instruction-throughput",
}  # fmt: skip
#: Stall reasons that are waiting in line at a memory unit.
_AT_MEMORY: Final = (
    "long_scoreboard",
    "lg_throttle",
    "mio_throttle",
    "short_scoreboard",
    "tex_throttle",
)
HALF: Final = Threshold(
    0.5, "a wait that takes half of a warp's time takes as much as all the rest together"
)
#: The factor below which a cause is no headline: a tenth is what a roof that is near leaves.
SUBSTANCE: Final = 1.1


@dataclass(frozen=True)
class _Unit:
    """The busiest unit of a launch: what its roof goes by, its words, and the part (0-1) of the
    launch's time that it was busy."""

    bottleneck: str
    words: str
    busy: float
    evidence: Evidence | None
    resource: str = ""


def nearest(profile: Profile, model: TimeModel) -> Finding | None:
    """The nearest roof together with what warps wait for most, for a launch that no rule explains
    or in which no cause would save a tenth.

    It goes by the roof where a unit is near its peak (SATURATED), or busy (BUSY) and what the warps
    wait for; by the wait where that takes HALF of their time. None where neither is so."""
    unit, (share, reason) = _busiest(profile, model), _longest(model)
    at_unit = unit is not None and (unit.resource in MEMORY) == (reason in _AT_MEMORY)
    waits = share >= HALF.value and reason in BY_WAIT
    if unit is not None and (
        unit.busy >= SATURATED.value or (unit.busy >= BUSY.value and (at_unit or not waits))
    ):
        bottleneck = unit.bottleneck
        summary = f"The nearest roof is that of {unit.words}, {units.percent(unit.busy)} busy"
        if share >= STALL.value and reason != "math_pipe_throttle":
            summary += f", and warps wait for {units.percent(share)} of their time ({_words(reason)}): the two share the time"
        advice = (
            f"Give {unit.words} less to do: the hot spots show which instructions keep it busy."
        )
        sure = unit.busy >= SATURATED.value
    elif waits:
        bottleneck, sure = _by_wait(profile, reason, unit), False
        summary = f"Warps wait for {units.percent(share)} of their time ({_words(reason)})"
        if unit is not None:
            summary += (
                f"; the nearest roof is that of {unit.words}, {units.percent(unit.busy)} busy"
            )
        advice = "Read the hot spots: the lines with the most samples and what they wait for."
    else:
        return None
    absent = sections_to_collect(profile)
    return Finding(
        bottleneck,
        f"{summary}. No cause that this report can show saves a tenth of the time.",
        "medium" if sure else "low",
        facts(
            unit.evidence if unit else None,
            stall_fact(profile, reason) if reason else None,
            fact(profile, "issue_active"),
            fact(profile, "sm_throughput"),
            fact(profile, "memory_throughput"),
        ),
        None,
        ("No figure: no cause was found whose removal would show one.",),
        (advice, *((f"Collect what is missing: {command(absent)}",) if absent else ())),
        "Less work for this unit, or a smaller part of that wait.",
    )


def _busiest(profile: Profile, model: TimeModel) -> _Unit | None:
    """The unit that is busy for most of the launch's time; None where no load was collected."""
    found = []
    for name, (_, per_sm, words) in RESOURCES.items():
        load = load_fact(model, name, BUSY) if name in model.loads else None
        # Blocks that start fast are short, which costs time only where SMs wait for new ones.
        if load is None or (name == "blocks" and _stay_full(profile)):
            continue
        used = model.utilization(name) if per_sm else model.counted(name)
        busy = min(1.0, (used or 0.0) / (BLOCK_STARTS if name == "blocks" else 1.0))
        found.append(_Unit(BY_UNIT[name], words, busy, replace(load, value=busy), name))
    best = max(found, key=lambda unit: unit.busy, default=None)
    for name, (bottleneck, words) in BY_COUNTER.items():
        value = profile.value(name)
        if value is not None and value > (best.busy + NOISE if best else 0.0):
            best = _Unit(bottleneck, words, value, fact(profile, name))
    return best


def _stay_full(profile: Profile) -> bool:
    return (figures.value(profile, "occupancy_fill") or 1.0) > FILLED.value


def _longest(model: TimeModel) -> tuple[float, str]:
    """The largest stall reason with its share; (0, "") where none is known.

    Issuing is no waiting, nor is readiness to issue (not selected)."""
    return max(
        (
            (share, reason)
            for reason, share in model.stalls.items()
            if reason not in ("selected", "not_selected")
        ),
        default=(0.0, ""),
    )


def _words(reason: str) -> str:
    return reason.replace("_", " ")


def _by_wait(profile: Profile, reason: str, unit: _Unit | None) -> str:
    """The bottleneck that a stall reason shows as in this kernel."""
    if reason == "math_pipe_throttle" and unit is not None:
        return unit.bottleneck
    if (
        reason in ("short_scoreboard", "mio_throttle")
        and blame(profile, reason, ("special",)) > 0.5
    ):
        return "special-function-pressure"
    if reason == "barrier" and attribution.waits(profile, reason).get("tensor", 0.0) > 0.5:
        return "tensor-pipe"
    return BY_WAIT[reason]
