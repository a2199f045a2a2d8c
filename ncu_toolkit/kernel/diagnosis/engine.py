"""The engine: one profile, or one kernel's code -> why it is slow.

Runs every rule. What a profile shows is ranked by predicted time saved and always has a verdict;
what code alone shows is ranked by how certain it is."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.units import LEAST_GAIN, percent
from ncu_toolkit.base.model import (
    Diagnosis,
    Evidence,
    Finding,
    Headroom,
    NoFinding,
    Presence,
    Profile,
)
from ncu_toolkit.base.model.profile import Advice
from ncu_toolkit.kernel.diagnosis import figures, kernel, time_model
from ncu_toolkit.kernel.diagnosis.kernel import COLLECT, TENTH, Kernel, sections_to_collect
from ncu_toolkit.kernel.diagnosis.rules import (
    CERTAINTIES,
    KernelFacts,
    OpenQuestion,
    Rule,
    Specificity,
    StaticFinding,
    _launch,
    load_rules,
    unknown,
)
from ncu_toolkit.kernel.diagnosis.thresholds import (
    BUSY,
    FILLED,
    NEAR,
    REREAD,
    SATURATED,
    STALL,
    WEAK_STALL,
    Threshold,
)
from ncu_toolkit.kernel.diagnosis.time_model import BEYOND_FIX, BEYOND_ROOF, LAUNCH, LAUNCH_LABEL
from ncu_toolkit.kernel.sass import attribution

IMPOSSIBLE: Final = "Skipped, because the report's figures contradict each other"
#: A shortfall of the stall stack against the profiler's own total that is worth a note (36 of 297
#: public kernels differ by more).
RESIDUAL: Final = 0.02
#: Every byte that a kernel needs passes between L2 and an SM once at least; what is counted there
#: was never less than the compulsory bytes in 255 recorded launches. Twentieth for rounding.
NEEDED: Final = 0.95
#: What a cause that was not judged can take, over what the first one saves, from which on it may be the
#: larger one: gains are known to a quarter.
AS_MUCH: Final = 0.75
#: Parts of the most that can be which are tried where the report's own value cannot be.
TRIED: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Where device memory moved more than this many times the bytes that --needs says, a unit was
#: forgotten: of 201 recorded launches none moved more than 84 times its compulsory bytes.
UNIT_FORGOTTEN: Final = 1000.0
_UNITS: Final = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


def diagnose(profile: Profile) -> Diagnosis:
    """The verdict on one launch: findings ranked, everything considered kept, never empty.

    A roof reached with useful work comes first: nothing that remains can bring much there.
    Otherwise the largest predicted saving does."""
    if not profile.launch.complete:
        return Diagnosis(
            (unknown.incomplete(profile),),
            (),
            {},
            (profile.launch.status, *_contradictory(profile)),
        )
    if profile.launch.workload:
        return Diagnosis(
            (unknown.together(Kernel.of(profile)),), (), {}, tuple(_contradictory(profile))
        )
    given, profile = profile, believed(profile)
    k = Kernel.of(profile)
    findings: list[Finding] = []
    considered: list[NoFinding] = []
    for rule in load_rules().values():
        outcome = outcome_of(rule, profile, k.model)
        if isinstance(outcome, Finding):
            findings.append(outcome)
        elif outcome.bottleneck != unknown.ID:
            considered.append(outcome)
    if any(
        _specificity(finding) is Specificity.BUILD
        or (not finding.good and _weight(finding) > TENTH and finding.confidence != "low")
        for finding in findings
    ):
        findings = [_outranked(finding) if finding.good else finding for finding in findings]
    skipped = [each.bottleneck for each in considered if each.outcome == "abstained"]
    findings = [_as_sure_as(finding, k, skipped) for finding in findings]
    untested = sum(each.outcome == "abstained" for each in considered)
    findings = [_for_caller(f, profile) for f in _headed(ranked(findings), k, untested)]
    findings[0] = _beside(findings[0], rivals(findings[0], k, skipped), profile)
    doubted = _rests_on_impossible(profile, findings[0])
    return Diagnosis(
        tuple(
            _questioned(assumed(profile, _bounded(_stated(finding), k.model)), profile, doubted)
            for finding in findings
        ),
        tuple(each for each in considered if each.bottleneck != findings[0].bottleneck),
        k.model.bounds_us(),
        (*_contradictory(profile), *notes_on_needs(given, profile), *_notes(k)),
        _headroom(findings[0], k.model),
    )


def outcome_of(rule: Rule, profile: Profile, model: time_model.TimeModel) -> Finding | NoFinding:
    """What one rule makes of a profile; it abstains where the profile lacks what it requires, or
    holds figures that cannot all be true."""
    try:
        k = Kernel(profile, model, rule.ID)
        absent = k.missing(*rule.REQUIRES)
        shown = _launch.fills_l1(k, *rule.FILLS_L1) if absent and rule.FILLS_L1 else None
        return shown or (k.abstain(*absent) if absent else rule.find(k))
    except ArithmeticError as error:
        return NoFinding(rule.ID, "abstained", f"{IMPOSSIBLE} ({error}).")


def diagnose_code(facts: KernelFacts) -> tuple[StaticFinding, ...]:
    """What every rule can tell from code alone, the most certain first."""
    found = [
        (rule, finding)
        for rule in load_rules().values()
        if (finding := rule.in_code(replace(facts, rule=rule.ID)))
    ]
    found.sort(key=lambda pair: (CERTAINTIES.index(pair[1].certainty), pair[0].CODE_RANK))
    return tuple(finding for _, finding in found)


def unknowns(facts: KernelFacts) -> tuple[OpenQuestion, ...]:
    """What only a profile can tell of this kernel, by what its code does."""
    found: dict[str, list[str]] = {"The run time, the loop counts and the branches taken.": []}
    for name, rule in load_rules().items():
        if sentence := rule.open_in_code(facts):
            found.setdefault(sentence, []).append(name)
    return tuple(OpenQuestion(tuple(names), sentence) for sentence, names in found.items())


def _headed(findings: list[Finding], k: Kernel, untested: int) -> list[Finding]:
    """Ranked findings with a verdict worth a headline: where none was found, or the first would
    save less than a tenth, the nearest roof and what warps wait for go first."""
    # SMs that cannot be faster while they have blocks gain little by how these are spread.
    full = k.model.busiest(*time_model.PIPES)[1] >= SATURATED.value
    spread = full and bool(findings) and load_rules()[findings[0].bottleneck].FROM_SHAPE
    if findings and (
        findings[0].good
        or _specificity(findings[0]) is Specificity.BUILD
        or not 0 < _weight(findings[0]) < 1 - 1 / (ABOUT if spread else SUBSTANCE)
    ):
        return _roof_first(findings, k)
    near = nearest(k, untested, "an eighth" if spread else "a tenth")
    if near is None:
        # None is worth much: the one that gains most, however specific the others are.
        findings = sorted(findings, key=lambda finding: -_weight(finding))
        return findings or [unknown.verdict(Kernel(k.profile, k.model, unknown.ID))]
    near = _as_sure_as(near, k, ())
    # A roof that a rule found says more than the nearest one, unless that one is full.
    roofs = [f for f in findings if f.bottleneck == near.bottleneck]
    if near.confidence == "low":
        roofs += [f for f in findings if f.speedup == 1.0]
    there = roofs[0] if roofs else near
    return [there, *(f for f in findings if f is not there)]


def _headroom(finding: Finding, model: time_model.TimeModel) -> Headroom | None:
    """The most that fixing a cause can gain, and the unit that limits the launch then: the busiest
    by the work that stays (BEYOND_ROOF and BEYOND_FIX where a gain is predicted; of device memory
    BEYOND_BYTES, and no less than `needed`), or a launch without any work. None where the report lacks device
    memory or issue slots, which may be nearer, and where the gain takes other units (`Finding.provided`)."""
    if finding.provided or not {"issue", "dram"} <= model.loads.keys():
        return None
    fixed = finding.speedup is not None and finding.speedup > 1
    whole = load_rules()[finding.bottleneck].WHOLE_CAUSE

    def stays(name: str) -> float:
        part = finding.relieves.get(name, 1.0)
        if not fixed:
            return part
        beyond = time_model.BEYOND_BYTES if name == "dram" else 1.0 if whole else BEYOND_FIX
        least = part / (BEYOND_ROOF if part == 1 else beyond)
        return max(least, min(part, model.needed[part == 1])) if name == "dram" else least

    left = {name: model.least(name) * stays(name) for name in model.loads}
    if any(model.floor):
        fewer = stays("blocks") if "blocks" in finding.relieves else 1.0
        left[LAUNCH] = model.idle(fewer) * finding.relieves.get(LAUNCH, 1.0)
    name = max(left, key=left.__getitem__, default="")
    if not name or not left[name]:
        return None
    label = LAUNCH_LABEL if name == LAUNCH else time_model.RESOURCES[name].label
    beside = 0.0 if name in finding.relieves or name == LAUNCH else 1 - stays(name)
    return Headroom(max(1.0, model.cycles / left[name]), name, label, beside)


def _bounded(finding: Finding, model: time_model.TimeModel) -> Finding:
    """A finding with the interval of its gain, which ends at its headroom; that of a roof with
    what the best kernels reach there. A gain that rounds to nothing is one that is not known, but at
    a roof with useful work. A cause is clear only where its interval starts at a FIFTH of the time saved."""
    if not finding.good and finding.speedup is not None and finding.speedup < LEAST_GAIN:
        finding = replace(finding, speedup=None)
    room = _headroom(finding, model)
    found = time_model.around(finding, room.factor if room else None)
    if found and finding.speedup and finding.left is not None:
        found = (found[0], finding.speedup)
    if found and 1 - 1 / found[0] < FIFTH.value and finding.confidence == "high":
        finding = _lowered(finding)
    return replace(finding, interval=found)


def _for_caller(finding: Finding, profile: Profile) -> Finding:
    """A finding with advice on the call of a kernel that is not the reader's own code; commands that
    collect what the report lacks stay."""
    instead = kernel.call(profile, call_of(finding))
    if not instead or finding.bottleneck == unknown.ID:
        return finding
    if finding.good and kernel.language(profile) not in call_of(finding):
        instead = (
            "Nothing to do in this kernel. Only a call with less work, or of another data type, is faster.",
        )
    commands = tuple(step for step in finding.advice if isinstance(step, Advice))
    return replace(finding, advice=(*instead, *commands))


def call_of(finding: Finding) -> kernel.Elsewhere:
    """What to change about the call, by who made the kernel; how large blocks are he alone decides."""
    blocks = any(fact.metric == "block_rate" for fact in finding.evidence)
    return {} if blocks else load_rules()[finding.bottleneck].CALL


def _weight(finding: Finding) -> float:
    """The part of the time (0-1) that a finding is ranked by."""
    return finding.weight if finding.speedup is None else finding.saved


def _stated(finding: Finding) -> Finding:
    """A finding whose evidence states no comparison that does not hold: of figures that each
    suffice, those that did not lead here only inform."""
    evidence = tuple(
        fact if fact.holds else replace(fact, threshold=None, comparison="", source="")
        for fact in finding.evidence
    )
    return replace(finding, evidence=evidence)


def rivals(finding: Finding, k: Kernel, skipped: Iterable[str]) -> tuple[str, ...]:
    """Rules that were `skipped` for want of sections and could take as much as a finding, if all waiting that
    shows as theirs were (`Rule.COSTS`). None beside a cause that the launch's shape or its code shows.

    docs/lab/calibration.md has how many verdicts of thinned reports are right. Whole reports keep their
    words."""
    rule = load_rules()[finding.bottleneck]
    if rule.FROM_SHAPE or _specificity(finding) is Specificity.BUILD:
        return ()
    if not k.model.stalls or not sections_to_collect(k.profile):
        return ()
    least = max(AS_MUCH * _weight(finding), WEAK_STALL.value)

    def could_take(name: str) -> float:
        kinds, reasons = load_rules()[name].COSTS
        if kinds and not reasons:
            return 0.0 if k.executed(*kinds) == 0 else 1.0
        return k.waiting_for(kinds, *reasons) if kinds else k.model.waiting(*reasons)

    return tuple(name for name in skipped if could_take(name) >= least)


def _beside(finding: Finding, others: Sequence[str], profile: Profile) -> Finding:
    """A finding with the causes that could not be judged and may be larger."""
    if not others:
        return finding
    named = ", ".join(figures.small(load_rules()[name].TITLE) for name in others[:2])
    more = f" and {len(others) - 2} more" if len(others) > 2 else ""
    lacks = ", ".join(sections_to_collect(profile))
    text = f"{finding.summary} The report cannot show whether other causes cost more ({named}{more}). To find out, collect {lacks}."
    return replace(finding, summary=text)


def _as_sure_as(finding: Finding, k: Kernel, skipped: Sequence[str]) -> Finding:
    """A finding as sure as the report allows, the one place where a rule's own word is lowered for
    that: a step for each thing that would confirm it and is not there (`Rule.CONFIRMED_BY`), and
    never "high" where it has `rivals`.

    docs/lab/calibration.md has how often each word was right."""
    absent = [
        name
        for name in load_rules()[finding.bottleneck].CONFIRMED_BY
        if (not k.model.stalls if name == "stalls" else k.missing(name))
    ]
    for _ in absent:
        finding = _lowered(finding)
    if finding.confidence == "high" and rivals(finding, k, skipped):
        return _lowered(finding)
    return finding


def _roof_first(findings: list[Finding], k: Kernel) -> list[Finding]:
    """Findings with the roof of memory behind the SMs first, where that is NEAR, keeps its work once
    the first cause is gone, and the cause gains little beside it: no more than reads "about 1.1x",
    or less than a FIFTH where it is a symptom, or the report does not show what warps wait for."""
    first, rules = findings[0], load_rules()
    symptom = not k.model.stalls or _specificity(first) >= Specificity.SYMPTOM
    little = FIFTH.value if symptom else 1 - 1 / ABOUT
    if first.good or _specificity(first) is Specificity.BUILD or _weight(first) >= little:
        return findings
    full = {
        name
        for name in time_model.OFF_CHIP
        if first.relieves.get(name, 1.0) >= 1 and k.model.busy(name) >= NEAR.value
    }
    roofs = [each for each in findings if full.intersection(rules[each.bottleneck].UNITS)]
    if not roofs and symptom and "dram" in full and _weight(first):
        near = nearest(k, 0, "a fifth")
        roofs = [near] if near and "dram" in rules[near.bottleneck].UNITS else []
    return [*roofs[:1], *(each for each in findings if each not in roofs[:1])]


def _outranked(finding: Finding) -> Finding:
    """A roof that is near, where another finding says what to do first."""
    return replace(
        finding,
        good=False,
        confidence="low",
        speedup=1.0,
        arithmetic=("The other finding says what to do first.",),
        summary=f"Near a roof: {finding.statement or finding.summary} The other finding says what to do first.",
        left=None,
    )


def _lowered(finding: Finding) -> Finding:
    return replace(finding, confidence="medium" if finding.confidence == "high" else "low")


def _questioned(finding: Finding, profile: Profile, doubted: bool) -> Finding:
    """A finding one step less sure where figures that cannot be true are its evidence, or where it
    is `doubted`. All findings rest on the duration, and on the launch as a whole."""
    if finding.bottleneck == unknown.ID:
        return finding
    used = {name for fact in finding.evidence for name in figures.origins(fact.metric)}
    for sentence, names in profile.contradictions.items():
        absent = doubted and any(map(_impossible(profile).__contains__, names))
        if not names or absent or "duration" in names or used & set(names):
            text = f"{finding.summary} This is less certain, because figures cannot be true: {sentence}."
            return replace(_lowered(finding), summary=text)
    return finding


def _impossible(profile: Profile) -> tuple[str, ...]:
    """Metrics whose values cannot be, so that the profile has none."""
    readings = profile.readings.items()
    return tuple(n for n, each in readings if each.presence is Presence.UNDEFINED)


def _rests_on_impossible(profile: Profile, first: Finding) -> bool:
    """Whether the verdict could be another if the metrics whose values cannot be had others: values
    from 0 to the most that can be are tried. Where that is not known it could."""
    unknown = [profile.reading(name) for name in _impossible(profile)]
    most = {"fraction": 1.0, "lanes": 32.0, "sectors": profile.value("l2_sectors")}
    if not all(map(most.get, (each.unit for each in unknown))):
        return True
    for part in TRIED if unknown else ():
        assumed_ = {
            each.name: replace(
                each, value=part * (most[each.unit] or 0.0), presence=Presence.PRESENT
            )
            for each in unknown
        }
        other = diagnose(replace(profile, readings={**profile.readings, **assumed_})).primary
        if (other.bottleneck, other.good) != (first.bottleneck, first.good) or (
            abs(other.saved - first.saved) > time_model.ACCURACY
        ):
            return True
    return False


def _contradictory(profile: Profile) -> list[str]:
    return [f"Contradictory: {sentence}." for sentence in profile.contradictions]


_CONFIDENCE: Final = {"high": 0, "medium": 1, "low": 2}


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """A debug build first, as all else holds for it alone; then good, then by time saved.

    Savings within noise of the largest of their group go by how specific and how sure they are."""
    waiting = sorted(findings, key=lambda f: (not f.good, -_weight(f), f.bottleneck))
    result = [f for f in waiting if _specificity(f) is Specificity.BUILD]
    waiting = [f for f in waiting if f not in result]
    while waiting:
        first = waiting[0]
        group = [
            f
            for f in waiting
            if f.good == first.good and _weight(first) - _weight(f) <= time_model.NOISE
        ]
        result += sorted(
            group,
            key=lambda f: (_specificity(f), _CONFIDENCE[f.confidence], -_weight(f), f.bottleneck),
        )
        waiting = [f for f in waiting if f not in group]
    for at, finding in enumerate(result):
        while at and _yields(result[at - 1], finding):
            result[at - 1 : at + 1] = finding, result[at - 1]
            at -= 1
    return result


def _yields(before: Finding, after: Finding) -> bool:
    return (
        before.good == after.good
        and _specificity(before) > _specificity(after)
        and _weight(before) - _weight(after) <= time_model.ACCURACY
        and not _weight(after) < 1 - 1 / SUBSTANCE <= _weight(before)
    )


def _specificity(finding: Finding) -> Specificity:
    return load_rules()[finding.bottleneck].specificity(finding)


def _notes(k: Kernel) -> list[str]:
    notes = []
    absent = sections_to_collect(k.profile)
    if absent:
        notes.append(
            f"Not collected: {', '.join(absent)}. Checks that need these were skipped. To collect them: {COLLECT}"
        )
    stack = k.profile.stalls
    residual = (stack.residual or 0.0) if stack else 0.0
    if stack and stack.latency and abs(residual) > RESIDUAL * stack.latency:
        sums = f"The stall reasons add up to {units.significant(stack.total)} cycles per instruction, the measured total is"
        how = "some were counted twice, or the kernel ran differently,"
        if residual > 0:
            how = "some were lost"
        notes.append(f"{sums} {units.significant(stack.latency)}: {how} between replay passes.")
    if not k.model.stalls and k.profile.samples:
        notes.append(
            f"Only {units.counted(sum(k.profile.samples.values()), 'sample')}, too few for stall shares."
        )
    return notes


#: Stall reasons that are waiting in line at a memory unit.
_AT_MEMORY: Final = (
    "long_scoreboard", "lg_throttle", "mio_throttle", "short_scoreboard", "tex_throttle",
)  # fmt: skip
HALF: Final = Threshold(0.5, "a stall reason that takes half of a warp's time takes as much as all the others together")  # fmt: skip
#: The factor below which a cause is no headline: a tenth is what a roof that is near leaves.
SUBSTANCE: Final = 1.1
#: The gain from which a card says more than "about 1.1x": an eighth of the time.
ABOUT: Final = 1.15
FIFTH: Final = Threshold(
    0.2,
    "of 79 public launches called clear 54 of 56 are right whose interval starts there or above, 17 of 23 others",
)


@dataclass(frozen=True)
class _Unit:
    """The busiest unit of a launch: what its roof goes by, its words, and the part (0-1) of the
    launch's time that it was busy."""

    bottleneck: str
    words: str
    busy: float
    evidence: Evidence | None
    resource: str = ""
    counted: float = 0.0
    """As its counter has it, which the card shows: of units in SMs, the part of the time in which
    SMs had work."""


def nearest(k: Kernel, untested: int = 0, part: str = "a tenth") -> Finding | None:
    """The nearest roof together with what warps wait for most, for a launch that no rule explains
    or in which no cause would save a tenth.

    It goes by the roof where a unit is near its peak (SATURATED), or busy (BUSY) and what the warps wait for; by the
    wait where that takes HALF of their time. None where neither is so. `untested`: how many rules lacked what they
    need; `part`: what none would save."""
    unit, (share, reason) = _busiest(k), _longest(k.model)
    at_unit = unit is not None and (unit.resource in time_model.MEMORY) == (reason in _AT_MEMORY)
    waits = share >= HALF.value and any(reason in rule.WAITS for rule in load_rules().values())
    if unit is not None and (
        unit.busy >= SATURATED.value or (unit.busy >= BUSY.value and (at_unit or not waits))
    ):
        bottleneck = unit.bottleneck
        summary = f"The busiest resource is {unit.words} ({percent(unit.counted)})"
        if share >= STALL.value and reason != "math_pipe_throttle":
            summary += f". Warps also wait {percent(share)} of their time ({figures.reason_name(reason)}), so both limit the kernel"
        advice, expected, relieved = _less_for(unit, k)
        sure = unit.busy >= SATURATED.value
        leaner = _leaner(k.model) if sure and unit.resource in time_model.PIPES else None
    elif waits:
        bottleneck, sure, leaner = _by_wait(k, reason, unit), False, None
        summary = f"Warps wait {percent(share)} of their time ({figures.reason_name(reason)})"
        if unit is not None:
            summary += f". The busiest resource is {unit.words} ({percent(unit.counted)})"
        advice = "Read the hot spots: the lines with most samples, and their stall reasons."
        expected, relieved = "Fewer such stalls.", {}
    else:
        return None
    absent = sections_to_collect(k.profile)
    text = (
        _none_would(untested, part)
        if leaner is None
        else "With fewer instructions for the same bytes, memory would be the limit"
    )
    return Finding(
        bottleneck,
        f"{summary}. {text}.",
        "medium" if sure else "low",
        k.facts(
            unit.evidence if unit else None,
            k.stall(reason) if reason else None,
            "issue_active sm_throughput memory_throughput",
        ),
        leaner.speedup if leaner else None,
        leaner.arithmetic if leaner else ("No estimate, because no cause was found.",),
        (advice, *((k.collect(),) if absent else ())),
        expected,
        relieves=leaner.relieves if leaner else relieved,
        weight=leaner.saved if leaner else 0.0,
    )


def _none_would(untested: int, part: str) -> str:
    """Says that none of the causes that were tested would save a part of the time."""
    if not untested:
        return f"No known cause would save {part} of the time"
    rules = len(load_rules()) - 1
    return (
        f"Of {rules} known causes {units.counted(untested, 'needs', 'need')} more than this report holds. "
        f"None of the others would save {part} of the time"
    )


#: Kinds of instructions in the words of a reader, and how many are named from which share on.
_KINDS: Final[Mapping[str, str]] = {
    "global": "loads and stores", "copy": "asynchronous copies", "local": "local-memory accesses",
    "shared": "shared-memory accesses", "atomic": "atomics", "constant": "constant loads",
    "texture": "texture accesses", "special": "special functions and conversions",
    "shuffle": "shuffles and votes", "fp64": "FP64", "fp32": "FP32", "fp16": "FP16",
    "tensor": "matrix products", "integer": "integer", "uniform": "uniform integer",
    "barrier": "barriers", "control": "branches and calls", "other": "moves and others",
}  # fmt: skip
_TOLD: Final = 3
_TOLD_FROM: Final = 0.05


def _less_for(unit: _Unit, k: Kernel) -> tuple[str, str, dict[str, float]]:
    """What to change about the busiest unit, what to expect, and the work of units that stays, if known."""
    shares = {kind: k[f"kind_share:{kind}"] or 0.0 for kind in _KINDS}
    most = sorted(shares.items(), key=lambda item: -item[1])[:_TOLD]
    kinds = [f"{percent(n, 2)} {_KINDS[kind]}" for kind, n in most if n >= _TOLD_FROM]
    needed, moved = _launch.product_bytes(k), k["dram_bytes"] or 0.0
    if unit.resource in time_model.OFF_CHIP and needed and moved > needed * REREAD.value:
        again = f"Device memory moves {units.si(moved, 'B')} for a product whose matrices have {units.si(needed, 'B')}"
        text = f"{again}. Make the tile of a block larger, and order the blocks so that those that run together form a square of tiles."
        # Tiles twice as large in each direction fetch each operand half as often.
        stays = {"dram": needed / moved, "l2": 0.5, "fill": 0.5}
        return text, "Fewer bytes from L2 and device memory for the same operations.", stays
    if unit.resource not in time_model.PIPES or not kinds:
        text = f"Reduce the load on {unit.words}. The hot spots show which instructions cause it."
        return text, "Less work for this unit, or fewer such stalls.", {}
    fewer = f"Execute fewer instructions. By kind: {', '.join(kinds)}."
    return fewer, "Fewer instructions for the same result.", {}


#: Device memory, L2 or its link are this busy beside full issue slots or pipes: a third of their
#: instructions would keep memory busy too. Lean kernels that compute for their time (dozens of
#: operations per byte) leave memory below a quarter: all nine held-out ones at such a roof do.
STREAMS: Final = Threshold(0.3, "kernels that compute most of their time keep memory at most a quarter busy")  # fmt: skip


def _leaner(model: time_model.TimeModel) -> time_model.Prediction | None:
    """The time of a launch at the roof of issue slots or a pipe if its code were so lean that memory is the
    limit, and this roof no longer is (BUSY). None where memory is too idle to tell whether so few instructions
    would do (STREAMS), where matrix or FP64 units are BUSY, and where it would not be SUBSTANCE faster.

    Williams et al., "Roofline": a kernel's operations per byte decide which roof it meets, and fewer
    instructions for the same bytes move it to that of memory."""
    full = max(model.worked(name) for name in time_model.PIPES)
    memory = max(model.worked(name) for name in time_model.OFF_CHIP)
    if memory < STREAMS.value or max(map(model.busy, ("fp64", "tensor"))) >= BUSY.value:
        return None
    left = min(1.0, BUSY.value / full * memory / time_model.ACHIEVABLE)
    found = model.without(
        time_model.Removal(
            f"with {percent(1 - left)} fewer instructions",
            loads=dict.fromkeys(time_model.PIPES, left),
            instructions=left,
            basis=f"Memory is {percent(memory)} busy. If it were the limit, {percent(left)} of the instructions "
            f"would keep this unit at most {percent(BUSY.value)} busy.",
        )
    )
    return found if found.quantified and found.speedup >= SUBSTANCE else None


def _busiest(k: Kernel) -> _Unit | None:
    """The unit that is busy for most of the launch's time; None where no load was collected."""
    found = []
    by_unit = {unit: name for name, rule in load_rules().items() for unit in rule.UNITS}
    for name, (_, per_sm, words) in time_model.RESOURCES.items():
        load = k.load(name, BUSY) if name in k.model.loads else None
        # Blocks that start fast are short, which costs time only where SMs wait for new ones.
        if load is None or (name == "blocks" and (k["occupancy_fill"] or 1.0) > FILLED.value):
            continue
        used = k.model.utilization(name) if per_sm else k.model.counted(name)
        busy = min(1.0, used or 0.0)
        part = k.model.busy(name) if per_sm else busy
        found.append(_Unit(by_unit[name], words, busy, replace(load, value=part), name, part))
    best = max(found, key=lambda unit: unit.busy, default=None)
    # Roofs first: the counters of other rules are roll-ups, which say that some unit is busy.
    for bottleneck, rule in sorted(load_rules().items(), key=lambda item: item[1].ROOF is None):
        for name, words in rule.COUNTERS.items():
            value = k[name]
            if value is not None and value > (best.busy + time_model.NOISE if best else 0.0):
                best = _Unit(bottleneck, words, value, k.fact(name), counted=value)
    return best


def _longest(model: time_model.TimeModel) -> tuple[float, str]:
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


def _by_wait(k: Kernel, reason: str, unit: _Unit | None) -> str:
    """The bottleneck that a stall reason shows as in this kernel: of the rules that it can mean,
    the one whose kind of instruction causes most of it, else the one that asks for no kind."""
    if reason == "math_pipe_throttle" and unit is not None:
        return unit.bottleneck
    meant = {
        name: kind
        for name, rule in load_rules().items()
        if (kind := rule.WAITS.get(reason)) is not None
    }
    # What waits at a barrier only samples tell.
    known = reason != "barrier" or bool(attribution.waits(k.profile, reason))
    caused = (
        name for name, kind in meant.items() if kind and known and k.blame(reason, kind) > 0.5
    )
    return next(caused, "") or next(name for name, kind in meant.items() if not kind)


def believed(profile: Profile) -> Profile:
    """The profile without compulsory bytes that cannot be meant: more than its SMs exchanged with L2,
    or less than a thousandth of what device memory moved. A ladder's are known."""
    context, moved = profile.context, figures.value(profile, "l2_bytes")
    needed = context.compulsory_bytes if context and not profile.rung else None
    if context is None or needed is None:
        return profile
    if (moved is None or moved >= NEEDED * needed) and not _unit_forgotten(profile, needed):
        return profile
    return replace(profile, context=replace(context, compulsory_bytes=None))


def _unit_forgotten(profile: Profile, needed: float) -> str:
    """The unit that was meant where device memory moved more than a thousand times the bytes that are
    needed: the one with which the number comes nearest."""
    moved = figures.value(profile, "dram_bytes") or 0.0
    if moved <= UNIT_FORGOTTEN * needed:
        return ""
    off = {unit: abs(math.log(moved / (needed * size))) for unit, size in _UNITS.items()}
    return min(off, key=off.__getitem__)


def notes_on_needs(given: Profile, used: Profile) -> list[str]:
    """What the bytes that were given mean for a launch that is no ladder's. `used` is what
    `believed` made of it."""
    needed = given.context.compulsory_bytes if given.context else None
    if needed is None or given.rung:
        return []
    moved, from_l2 = (figures.value(given, name) for name in ("dram_bytes", "l2_bytes"))
    text = f"This launch needs {units.si(needed, 'B')} (--needs)."
    ignored = f"--needs is ignored: it says {units.si(needed, 'B')},"
    if unit := _unit_forgotten(given, needed):
        text = f"{ignored} and device memory moved {units.si(moved or 0.0, 'B')}. Was bytes={needed:g}{unit} meant?"
    elif used is not given:
        text = f"{ignored} but this launch moved only {units.si(from_l2 or 0.0, 'B')} between L2 and the SMs. Correct --needs."
    elif moved is None:
        return []
    else:
        text += (
            f" Device memory moved {units.si(moved, 'B')}, {units.ratio(moved / needed)} as much."
        )
    return [text]


def assumed(profile: Profile, finding: Finding) -> Finding:
    """A good verdict at a roof, with what it assumes: where the kernel's needs are not
    given, that the work which fills the roof is needed."""
    roof, context = load_rules()[finding.bottleneck].ROOF, profile.context
    if not finding.good or roof is None or profile.rung:
        return finding
    rests_on = roof.rests_on
    if context and (context.compulsory_bytes if rests_on == "bytes" else context.flops):
        return finding
    what = "bytes" if rests_on == "bytes" else "operations"
    return replace(
        finding,
        summary=f"{finding.summary} This assumes that all these {what} are needed; --needs {rests_on}=… sets the true number.",
    )
