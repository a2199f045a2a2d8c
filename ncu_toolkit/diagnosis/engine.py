"""One profile -> why it is slow. Runs every rule, ranks what they find by predicted time saved, and
always has a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, needs, time_model
from ncu_toolkit.diagnosis.rules import (
    _roof,
    barrier_imbalance,
    debug_build,
    grid_too_small,
    load_rules,
    low_occupancy,
    narrow_access,
    unknown,
)
from ncu_toolkit.diagnosis.time_model import RESOURCES, TimeModel
from ncu_toolkit.model import Diagnosis, Finding, Headroom, Profile, Ruled

IMPOSSIBLE: Final = "Cannot be told: the report's figures contradict each other"
#: A shortfall of the stall stack against the profiler's own total that is worth a note (36 of 297
#: public kernels differ by more).
RESIDUAL: Final = 0.02


def diagnose(profile: Profile) -> Diagnosis:
    """The verdict on one launch: findings ranked, everything considered kept, never empty.

    A roof reached with useful work comes first: nothing that remains can bring much there.
    Otherwise the largest predicted saving does."""
    if not profile.launch.complete:
        return Diagnosis(
            (_incomplete(profile),), (), {}, (profile.launch.status, *_contradictory(profile))
        )
    given, profile = profile, needs.believed(profile)
    model = time_model.build(profile)
    findings: list[Finding] = []
    considered: list[Ruled] = []
    for identifier, rule in load_rules().items():
        try:
            outcome = rule.find(profile, model)
        except (
            ArithmeticError
        ) as error:  # figures that cannot all be true, as a contradictory report has them
            outcome = Ruled(identifier, "abstained", f"{IMPOSSIBLE} ({error}).")
        if isinstance(outcome, Finding):
            findings.append(outcome)
        elif outcome.bottleneck != "unknown":
            considered.append(outcome)
    if any(
        finding.bottleneck == debug_build.ID
        or (not finding.good and _weight(finding) > _roof.TENTH and finding.confidence != "low")
        for finding in findings
    ):
        findings = [_roof.demoted(finding) if finding.good else finding for finding in findings]
    if not model.stalls:
        findings = [_less_sure(finding) for finding in findings]
    findings = _headed(ranked(findings), profile, model)
    return Diagnosis(
        tuple(
            _questioned(needs.assumed(profile, _stated(finding)), profile) for finding in findings
        ),
        tuple(ruled for ruled in considered if ruled.bottleneck != findings[0].bottleneck),
        model.bounds_us(),
        (*_contradictory(profile), *needs.notes(given, profile), *_notes(profile, model)),
        _headroom(findings[0], model),
    )


def _headed(findings: list[Finding], profile: Profile, model: TimeModel) -> list[Finding]:
    """Ranked findings with a verdict worth a headline: where none was found, or the first would
    save less than a tenth, the nearest roof and what warps wait for go first."""
    if findings and (findings[0].good or not 0 < _weight(findings[0]) < 1 - 1 / _roof.SUBSTANCE):
        return findings
    near = _roof.nearest(profile, model)
    if near is None:
        return findings or [unknown.verdict(profile, model)]
    if not model.stalls:
        near = _less_sure(near)
    # A roof that a rule found says more than the nearest one, unless that one is full.
    roofs = [f for f in findings if f.bottleneck == near.bottleneck]
    if near.confidence == "low":
        roofs += [f for f in findings if f.speedup == 1.0]
    there = roofs[0] if roofs else near
    return [there, *(f for f in findings if f is not there)]


def _headroom(finding: Finding, model: TimeModel) -> Headroom | None:
    """How far the launch is from the nearest roof that removing a cause leaves."""
    left = {name: load for name, load in model.loads.items() if name not in finding.relieves}
    name = max(left, key=left.__getitem__, default="")
    if not name or not left[name]:
        return None
    return Headroom(max(1.0, model.cycles / left[name]), name, RESOURCES[name][2])


def _weight(finding: Finding) -> float:
    """The part of the time (0-1) that a finding is ranked by."""
    return finding.weight if finding.speedup is None else finding.saved


def _stated(finding: Finding) -> Finding:
    """A finding whose evidence states no comparison that does not hold: of figures that each
    suffice, those that did not lead here only inform."""
    held = tuple(
        fact if fact.holds else replace(fact, threshold=None, comparison="", source="")
        for fact in finding.evidence
    )
    return replace(finding, evidence=held)


#: What the launch's shape and the SMs' times tell; all else is surer where it is known what warps
#: wait for.
SHAPE: Final = ("grid-too-small", "tail-effect", "load-imbalance", "launch-overhead")


def _less_sure(finding: Finding) -> Finding:
    """A finding from how busy units are alone: without stall reasons nothing confirms that warps
    wait for what it names."""
    if finding.bottleneck in SHAPE:
        return finding
    return _lowered(finding)


def _lowered(finding: Finding) -> Finding:
    return replace(finding, confidence="medium" if finding.confidence == "high" else "low")


def _questioned(finding: Finding, profile: Profile) -> Finding:
    """A finding one step less sure where figures that do not fit together are its evidence. All
    findings rest on the duration, and on the launch as a whole."""
    used = {name for fact in finding.evidence for name in figures.origins(fact.metric)}
    for sentence, names in profile.contradictions.items():
        if not names or "duration" in names or used & set(names):
            said = f"{finding.summary} Less sure, as this evidence contradicts itself: {sentence}."
            return replace(_lowered(finding), summary=said)
    return finding


def _contradictory(profile: Profile) -> list[str]:
    return [f"Contradictory: {sentence}." for sentence in profile.contradictions]


_CONFIDENCE: Final = {"high": 0, "medium": 1, "low": 2}
#: Causes that name what the warps feel; where another finding predicts as much, it says what to
#: change, and goes first.
GENERAL: Final = (
    "memory-latency",
    "l1-bandwidth",
    "l2-bandwidth",
    "dram-bandwidth",
    "tensor-pipe",
    "load-imbalance",
)


def ranked(findings: Iterable[Finding]) -> list[Finding]:
    """A debug build first, as all else holds for it alone; then good, then by time saved.

    Savings within noise of the largest of their group go by how specific and how sure they are."""
    waiting = sorted(findings, key=lambda f: (not f.good, -_weight(f), f.bottleneck))
    result = [f for f in waiting if f.bottleneck == debug_build.ID]
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
            key=lambda f: (_generality(f), _CONFIDENCE[f.confidence], -_weight(f), f.bottleneck),
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
        and _generality(before) > _generality(after)
        and _weight(before) - _weight(after) <= time_model.ACCURACY
    )


def _generality(finding: Finding) -> int:
    """0 for a cause that says what to change, 1 for more warps, which are one way among others to
    cover waiting but leave the code as it is, 2 for what the warps feel, 3 for what may only mirror
    that.

    A grid with fewer blocks than SMs, of which its rule is sure, is one; room in busy SMs is not:
    of the warps of further blocks as few would work, and whether there is work for them the profile
    does not say. Wider accesses of a grid that runs all at once may only take threads away. Waiting
    at barriers is one where it is known which part a few warps run alone. Where it is not, the
    barrier may only show how unevenly warps wait for something else (the time model lets it shrink
    with that), so it is the least specific of all."""
    shown = {evidence.metric for evidence in finding.evidence}
    if finding.bottleneck == barrier_imbalance.ID:
        return 0 if barrier_imbalance.FEW in shown else 3
    if finding.bottleneck == narrow_access.ID and narrow_access.ALL_AT_ONCE in shown:
        return 3
    if finding.bottleneck == grid_too_small.ID:
        return 0 if finding.confidence == "high" else 2
    if finding.bottleneck == low_occupancy.ID:
        return 1
    return (
        2
        if finding.bottleneck in GENERAL
        and not (finding.bottleneck == "tensor-pipe" and finding.good)
        else 0
    )


def _incomplete(profile: Profile) -> Finding:
    return Finding(
        "unknown",
        f"There is nothing to diagnose: this launch is {profile.launch.status}.",
        "high",
        (),
        None,
        ("No time was measured.",),
        (
            "Run the program by itself first and see that it ends without an error (compute-sanitizer finds illegal accesses).",
            f"Then record it again: {unknown.command(())}",
        ),
        "A launch with a grid size and a duration.",
    )


def _notes(profile: Profile, model: TimeModel) -> list[str]:
    notes = []
    absent = unknown.sections_to_collect(profile)
    if absent:
        notes.append(
            f"Not collected: {', '.join(absent)}. Rules that need them abstained. To learn more: {unknown.command(absent)}"
        )
    stack = profile.stalls
    if (
        stack is not None
        and stack.residual is not None
        and stack.latency
        and abs(stack.residual) / stack.latency > RESIDUAL
    ):
        sums = f"The stall reasons add up to {units.significant(stack.total)} cycles an instruction, where the total was measured as"
        how = (
            "some were lost"
            if stack.residual > 0
            else "some were counted twice, or the kernel ran differently,"
        )
        notes.append(f"{sums} {units.significant(stack.latency)}: {how} between replay passes.")
    if not model.stalls and profile.samples:
        notes.append(
            f"Only {sum(profile.samples.values())} samples: too few for shares of waiting."
        )
    return notes
