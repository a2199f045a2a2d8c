"""What rules share: evidence objects, verdicts, culprit locations, and how much of a stall a kind
of instruction causes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.time_model import MEMORY, RESOURCES, Prediction, TimeModel
from ncu_toolkit.model import (
    Comparison,
    Evidence,
    Finding,
    Instruction,
    Location,
    NoFinding,
    Profile,
)
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.cost import NEVER

Weight = TypeVar("Weight", int, float)

#: A cause that would save less than this is not worth a finding: within the profiler's own
#: repeatability.
WORTH: Final = 0.03


@dataclass(frozen=True)
class Threshold:
    """A limit with where it comes from."""

    value: float
    source: str


STALL: Final = Threshold(
    0.3, "Nsight Compute's CPIStall rules name a stall from 30% of a warp's latency on"
)
WEAK_STALL: Final = Threshold(
    0.1,
    "10% of a warp's time: below it, full removal saves less than Nsight Compute's 10-point margin of balance",
)
BUSY: Final = Threshold(
    0.6, "Nsight Compute's SpeedOfLight rule: below 60% a unit is not the limit"
)
SATURATED: Final = Threshold(
    0.8, "Nsight Compute's SpeedOfLight rule: from 80% a unit is near its roof"
)


def fact(
    profile: Profile,
    name: str,
    meaning: str = "",
    threshold: Threshold | None = None,
    comparison: Comparison = "",
) -> Evidence | None:
    """Evidence from a registry or derived name; None where its value is not there."""
    value = figures.value(profile, name)
    if value is None:
        return None
    unit, label, explained = figures.describe(name)
    return Evidence(
        name,
        label,
        value,
        unit,
        meaning or explained,
        threshold.value if threshold else None,
        comparison if threshold else "",
        threshold.source if threshold else "",
    )


def load_fact(model: TimeModel, resource: str, threshold: Threshold) -> Evidence | None:
    """How busy the time model takes a unit to be, compared with a threshold: by its work as well as
    by its counter. None where it is not known."""
    if resource not in model.loads and resource not in model.activity:
        return None
    words = RESOURCES[resource][2]
    meaning = f"Part of the time that {words} could be busy in which its work at the peak rate, or its counter, keeps it busy."
    label = f"Load of {words}"
    return Evidence(
        f"load:{resource}",
        label,
        model.busy(resource),
        "fraction",
        meaning,
        threshold.value,
        ">=",
        threshold.source,
    )


def facts(*found: Evidence | None) -> tuple[Evidence, ...]:
    return tuple(evidence for evidence in found if evidence is not None)


def stall_fact(
    profile: Profile, reason: str, threshold: Threshold | None = None
) -> Evidence | None:
    return fact(profile, f"stall_share:{reason}", "", threshold, ">=")


def largest_stalls(profile: Profile) -> tuple[Evidence, ...]:
    """The three stall reasons that take most of a warp's time, apart from issuing."""
    ranked = figures.ranked_stalls(profile, "selected")
    return facts(*(stall_fact(profile, reason) for reason, share in ranked[:3] if share >= 0.05))


def missing(profile: Profile, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that the profile does not hold. `opcodes` and `stalls` stand for the mix and
    the stall stack."""
    absent = []
    for name in names:
        if name == "opcodes":
            there = profile.mix.collected
        elif name == "stalls":
            there = bool(figures.stall_shares(profile))
        else:
            there = figures.value(profile, name) is not None
        if not there:
            absent.append(name)
    return tuple(absent)


def abstain(bottleneck: str, absent: Sequence[str]) -> NoFinding:
    labels = ", ".join(_words(name) for name in absent)
    return NoFinding(
        bottleneck, "abstained", f"Skipped, because the report lacks: {labels}.", (), tuple(absent)
    )


def _words(name: str) -> str:
    if name == "opcodes":
        return "instruction counts"
    if name == "stalls":
        return "stall reasons"
    return figures.small(figures.describe(name)[1])


def ruled_out(bottleneck: str, reason: str, *evidence: Evidence | None) -> NoFinding:
    return NoFinding(bottleneck, "ruled out", reason, facts(*evidence))


def finding(
    bottleneck: str,
    summary: str,
    prediction: Prediction,
    evidence: Sequence[Evidence | None],
    advice: Sequence[str],
    look_for: str,
    *,
    confidence: Literal["high", "medium", "low"] = "high",
    locations: tuple[Location, ...] = (),
) -> Finding | NoFinding:
    """A finding, or ruled out where its removal would not move the time by WORTH."""
    if prediction.saved < WORTH:
        why = prediction.arithmetic[-1] if prediction.arithmetic else ""
        return ruled_out(
            bottleneck,
            f"It is present, but removing it would save only {units.percent(prediction.saved)}. {why}",
            *evidence,
        )
    return Finding(
        bottleneck,
        summary
        if prediction.quantified
        else f"{summary} The report does not show how much faster it would be.",
        confidence,
        facts(*evidence),
        prediction.speedup if prediction.quantified else None,
        prediction.arithmetic,
        tuple(advice),
        look_for,
        locations,
        relieves=prediction.relieves,
        weight=prediction.saved,
    )


def blame(profile: Profile, reason: str, kinds: Sequence[str]) -> float:
    """The part (0-1) of a stall reason's time that instructions of `kinds` cause.

    From PC samples traced to their producers; without samples, from executed counts of the kinds
    that can cause the reason; 0 where none of `kinds` executed; 1 where the report holds neither (the caller's
    confidence should then say that the reason may have other causes)."""
    shares = attribution.waits(profile, reason)
    if shares:
        return sum(shares.get(kind, 0.0) for kind in kinds)
    if not profile.mix.collected:
        return 1.0
    candidates = _CANDIDATES.get(reason)
    if candidates is None:
        return 1.0 if figures.executed(profile, kinds) else 0.0
    total = figures.executed(profile, candidates) or 0.0
    mine = figures.executed(profile, [kind for kind in kinds if kind in candidates]) or 0.0
    return mine / total if total else 0.0


_CANDIDATES: Final[Mapping[str, tuple[str, ...]]] = {
    "long_scoreboard": attribution.LONG_PRODUCERS,
    "short_scoreboard": attribution.SHORT_PRODUCERS,
    "mio_throttle": ("shared", "special", "shuffle", "constant", "global", "copy", "local"),
    "lg_throttle": ("global", "copy", "local", "atomic"),
    # A fixed latency follows every instruction.
    "wait": (*attribution.KINDS, "other"),
}


def keep(share: float, left: float) -> float:
    """What stays of a whole when its part `share` shrinks to `left` of itself."""
    return 1 - share * (1 - left)


def memory_load(model: TimeModel) -> float:
    """Utilisation of the busiest resource on the way of a global access."""
    return model.busiest(*MEMORY)[1]


def queueing(model: TimeModel) -> float:
    """The part of a memory access's time that is spent in queues, and so shrinks with the traffic
    (TimeModel.queue)."""
    return model.queue(memory_load(model))


def locate(
    profile: Profile, weight: Callable[[Instruction], float], what: str, count: int = 3
) -> tuple[Location, ...]:
    """The instructions that hold most of `what`, with their shares, heaviest first."""
    return _locations(
        profile, {i: weight(row) for i, row in enumerate(profile.instructions)}, what, count
    )


def locate_executed(
    profile: Profile, wanted: str | Callable[[str], bool], what: str, count: int = 3
) -> tuple[Location, ...]:
    """The instructions of a kind, or whose opcodes pass a test, by executions."""
    passes = (
        (lambda opcode: attribution.kind(opcode) == wanted) if isinstance(wanted, str) else wanted
    )
    return locate(
        profile, lambda row: float(row.executed or 0) if passes(row.opcode) else 0.0, what, count
    )


def pipe_part(profile: Profile, kind: str, unknown: float) -> float:
    """Part (0-1) of the load/store pipe's instructions that are of a kind; `unknown` where they
    were not counted."""
    of_pipe = ("global", "copy", "local", "shared", "shuffle", "atomic")
    mine, total = figures.executed(profile, (kind,)), figures.executed(profile, of_pipe)
    return mine / total if mine is not None and total else unknown


def at(locations: Sequence[Location]) -> str:
    """Where the first two different places are, to end a sentence: ` at gather.cu:12 and gather.cu:19`,
    or the instruction where the report holds no source lines. Empty without locations."""
    names = dict.fromkeys(
        f"{place.file.replace(chr(92), '/').rpartition('/')[2]}:{place.line}"
        if place.file
        else f"+0x{place.address:x} ({_short(place.sass)})"
        for place in locations
    )
    return f" at {' and '.join([*names][:2])}" if names else ""


def _short(sass: str) -> str:
    """An instruction up to its first operand, without its guard."""
    return " ".join(word for word in sass.partition(",")[0].split() if not word.startswith("@"))


def lines_have(profile: Profile, places: Sequence[Location], pattern: re.Pattern[str]) -> bool:
    """Whether each source line at `places` has what a pattern finds: advice to write that has been
    followed. False where the report holds no text of them."""
    texts = []
    for place in places:
        lines = profile.sources.get(place.file, "").splitlines()
        if 0 < place.line <= len(lines):
            texts.append(lines[place.line - 1])
    return bool(texts) and all(pattern.search(text) for text in texts)


def locate_stall(
    profile: Profile,
    reason: str,
    kinds: Sequence[str] = (),
    wanted: Callable[[Instruction], bool] = lambda _: True,
) -> tuple[Location, ...]:
    """The instructions that cause a stall reason, restricted to `kinds` where given and to those
    that pass the test `wanted`."""
    rows = profile.instructions
    weights = {
        i: w
        for i, w in attribution.weights_by_culprit(profile, reason).items()
        if (not kinds or attribution.kind(rows[i].opcode) in kinds) and wanted(rows[i])
    }
    return _locations(profile, weights, _what(reason))


def _what(reason: str) -> str:
    """Whose samples a location's share is of: scoreboards are charged to what is waited for, every
    other reason to where the warp stands."""
    if reason == "wait":
        return "the samples that wait for the instruction before"
    late = " wait for it" if reason in ("long_scoreboard", "short_scoreboard") else ""
    return f"the {figures.reason_name(reason)} samples{late}"


def _locations(
    profile: Profile, weights: Mapping[int, float], what: str, count: int = 3
) -> tuple[Location, ...]:
    total = sum(weights.values())
    if total <= 0:
        return ()
    rows = profile.instructions
    told = by_cause(rows, [weights.get(i, 0.0) for i in range(len(rows))])
    heaviest = sorted(enumerate(told), key=lambda item: (-item[1], item[0]))[:count]
    return tuple(
        Location(rows[i].file, rows[i].line, rows[i].address, rows[i].sass, w / total, what)
        for i, w in heaviest
        if w > 0
    )


#: The load of the stack pointer, with which a kernel begins.
_STACK_POINTER: Final = re.compile(r"(LDC|MOV|IMAD\.MOV\.U32) R1,.* c\[0x0\]\[0x[0-9a-f]+\]$")


def by_cause(rows: Sequence[Instruction], weights: Sequence[Weight]) -> list[Weight]:
    """The weights of instructions, without those that can be the cause of nothing: the load of the
    stack pointer, and instructions that never execute. Warps that leave a barrier late stand at
    the instruction behind it; where that never executes, its weight is the barrier's."""
    told = list(weights)
    for i, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        never = row.sass.startswith(NEVER)
        if not weight or not (never or _STACK_POINTER.match(row.sass)):
            continue
        told[i] -= weight
        if never and i and attribution.base(rows[i - 1].opcode) == "BAR":
            told[i - 1] += weight
    return told


#: Without these no cause of waiting can be named; the sections that hold them.
SECTIONS: Final = {
    "stalls": "WarpStateStats", "issue_active": "SchedulerStats", "opcodes": "SourceCounters",
    "global_load_sectors": "MemoryWorkloadAnalysis_Tables", "dram_bytes": "MemoryWorkloadAnalysis",
    "fma_pipe_active": "ComputeWorkloadAnalysis", "theoretical_occupancy": "Occupancy", "duration": "SpeedOfLight",
}  # fmt: skip


def sections_to_collect(profile: Profile) -> tuple[str, ...]:
    """Names of the profiler's stock sections that hold what this report lacks."""
    return tuple(SECTIONS[name] for name in missing(profile, SECTIONS))


#: The command that collects what the rules read: 16 passes a kernel, where ncu's full set takes 38
#: (docs/results.md). Single sections would make a report that lacks the others.
COLLECT: Final = "ncu-toolkit profile -- YOUR_PROGRAM"


def by_grid(profile: Profile) -> float:
    """How much longer the busiest SM works than the mean (>= 1) because of the number of blocks
    alone, all being equal: some SMs have no block, or one block less. 1 where it is not known.

    An upper bound: where blocks on one SM do not slow each other down, it makes no difference."""
    blocks, sms = profile.launch.blocks, profile.device.sm_count
    return math.ceil(blocks / sms) / (blocks / sms) if blocks and sms else 1.0


FILLED: Final = Threshold(
    0.9, "Nsight Compute's AchievedOccupancy rule: 10 points short of the theoretical occupancy"
)


CHAIN: Final = Threshold(
    3.0,
    "three or more launches for one result: two are often needed, for example for a reduction's partial sums",
)


def is_chain(profile: Profile) -> bool:
    """Whether this launch is one of several that share a job: three or more, none of which does
    nearly all (as a first pass does)."""
    context = profile.context
    if context is None or context.compulsory_bytes is not None or context.flops is not None:
        return False
    return context.launch_count - 1 + context.repeat >= CHAIN.value


ONE_WAVE: Final = Threshold(
    1.0, "below one wave the blocks that fit on the GPU at once outnumber the grid's"
)


LOW_OCCUPANCY: Final = Threshold(
    0.5,
    "half of what the SM holds: Nsight Compute warns below 80%, but 50% hides arithmetic latency on every GPU since Volta",
)


#: Waiting that more warps would overlap; barriers and full queues are not among it.
HIDDEN_BY_WARPS: Final = (
    "long_scoreboard", "short_scoreboard", "wait", "branch_resolving", "no_instruction",
    "imc_miss", "selected", "dispatch_stall",
)  # fmt: skip


#: Registers of a thread at most: CUDA C++ Programming Guide, "Compute Capabilities".
MOST_REGISTERS: Final = 255


LANES: Final = Threshold(24.0, "Nsight Compute's ThreadDivergence rule: below 24 of 32 lanes")


def capital(words: str) -> str:
    """Words as the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def sentence(words: str) -> str:
    """Words as a sentence of their own; empty where there are none."""
    return f"{capital(words).rstrip('.')}." if words else ""
