"""What limits a program's step: every rule of the step, and what reports say of its kernels, by the
time of the step that each can save.

What a finding saves is the step replayed with its fix (`program/traces/replay.py`); what all of them
save together is the step with all fixes at once.

Order: by what they save, weighted by how sure the cause is (SURE): one called possible goes before a
clear one only if it saves more than twice as much. Among like gains (ALIKE) a setting goes before a
rewrite, and before both a likely cause whose fix frees more of the GPU's time than it saves, since
something else limits the step then: where the next limit makes gains alike, they say nothing.

"Launch-bound" is what is left of the late launches. A finding of something more particular (an
optimizer by parameter, a loop over items, read-backs, tiny copies) goes before it where such fixes
save most of what it would, or where its fix must come first.

A finding whose fix would find little left to save after those before it (COVERED) is not shown."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import shell_word
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.document.card import gain_text, kernel_label
from ncu_toolkit.base.model import Diagnosis, Finding, Launch, NoFinding, Profile
from ncu_toolkit.base.model.profile import Advice
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.achieved import expected
from ncu_toolkit.kernel.diagnosis.engine import call_of
from ncu_toolkit.kernel.diagnosis.kernel import CALL, authored, made_by
from ncu_toolkit.kernel.diagnosis.rules import title
from ncu_toolkit.kernel.diagnosis.rules.unknown import ID as UNKNOWN
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import (
    Account,
    Edit,
    ProgramDiagnosis,
    ProgramTrial,
    Step,
    StepFinding,
)
from ncu_toolkit.program.rules import _double, _patterns, _words, step_rules
from ncu_toolkit.program.rules._facts import StepFacts
from ncu_toolkit.program.rules.idle_streams import GRID, SMALL
from ncu_toolkit.program.switches import switches_for
from ncu_toolkit.program.traces.account import LABELS
from ncu_toolkit.program.traces.classes import kernel_class

#: What a report's counters say of a kernel, with its profile, by its place in `Trace.shapes`.
Judged = Mapping[int, tuple[Profile | None, Diagnosis]]
#: What a ceiling counts in the order, by how sure its cause is.
SURE: Final = {"high": 1.0, "medium": 0.75, "low": 0.5}
COVERED: Final = Threshold(0.8, "with a fifth of its own time left, a finding would save little after those before it")  # fmt: skip
ALIKE: Final = Threshold(0.8, "ceilings differ by more than a fifth from what fixes save, so nearer ones are not apart")  # fmt: skip
LATE: Final = "launch-bound"
AWAY: Final = "host-work"
OPTIMIZER: Final = "optimizer-launches"
SYNC: Final = "host-sync"
ALLOCATES: Final = "allocation-in-step"
INDEXED: Final = "gather-scatter"
#: Waits that leave no piece of a step worth a CUDA graph. A loss that is read and a timer are two.
PIECES: Final = 4
#: Causes whose fix makes one launch of several.
MERGED: Final = (OPTIMIZER, "small-ops-loop", "unfused-chain", "spelled-out", "unfused-attention")
MOST_LATE: Final = Threshold(0.5, "with most of the late time explained by particular causes, theirs are the first fixes")  # fmt: skip
OFF: Final = Threshold(0.02, "steps of one program differ by 1 to 3%")
#: Part of the step (0-1) from which an interval's end is as good as all of it.
MOST_OF: Final = 0.9
MORE: Final = Threshold(1.01, "with two digits, less of a difference is rarely shown")
SMALL_GRIDS: Final = "idle-streams"
#: Idle time that no finding explains is reported from this part of the step on.
UNEXPLAINED: Final = Threshold(0.05, "twice what steps of one program differ by, below which the GPU counts as busy")  # fmt: skip
BETWEEN: Final = Threshold(6.0, "us: the 95th percentile of the gaps between queued operations in published traces")  # fmt: skip
#: What to say of such time beside the account's words for it.
_MORE: Final = {
    "idle: host work": " py-spy record --native shows which.",
    "idle: between": " They wait for another stream, an event, or another process.",
}
DOMINANT: Final = Threshold(0.5, "the largest part of the step, whatever the others are")
NAMED: Final = Threshold(0.3, "a third of the step is what a reader asks about first")
#: Findings of kernels that are shown: more is what the table of kernels is for.
_KERNELS: Final = 8


def diagnose_program(
    step: Step, account: Account, known: Mapping[int, tuple[Profile | None, Diagnosis]] = {}
) -> ProgramDiagnosis:
    """The causes that a step shows, the one that can save most first.

    No finding saves more than the step's wall time, nor do all together."""
    s = StepFacts(step, account, {shape: profile for shape, (profile, _) in known.items()})
    found: list[StepFinding] = []
    considered: list[NoFinding] = []
    for name, rule in step_rules().items():
        try:
            outcome = rule.find(s)
        except ArithmeticError as error:
            outcome = s.abstain(f"The trace's figures contradict each other ({error}).")
        if isinstance(outcome, StepFinding) and not s.worth(outcome.ceiling_us):
            text = f"It would save {s.of_step(outcome.ceiling_us)}."
            outcome = s.ruled_out(text, *outcome.evidence)
        if isinstance(outcome, NoFinding):
            considered.append(replace(outcome, bottleneck=name))
        else:
            if outcome.rule:  # a kernel's cause, known from the trace
                considered.append(NoFinding(name, "ruled out", f'Reported as "{outcome.title}".'))
            else:
                called = outcome.title or rule.TITLE
                outcome = msgspec.structs.replace(outcome, rule=name, title=called)
            found.append(outcome)
    found += filter(None, (_double.find(s),))
    found = _before_launching(found, s)
    kernels = [each for each in _kernels(s, known) if not _replaced(each, found, s)]
    found = [_with_switch(each, s) for each in _joined(found, kernels, s, known)]
    shown, covered = _uncovered(ordered(found), s)
    shown = [_words.of_library(s, _with_more(each, s)) for each in _with_expected(shown, s)]
    considered += covered
    notes = [*_dominant(s, shown, known), *_unexplained(s, shown)]
    if shown and s.replay.error > OFF.value:
        off = units.percent(s.replay.error, 2)
        notes.append(
            f"Predicted savings are less certain: the simulation of the unchanged {s.word} misses its time by {off}."
        )
    return ProgramDiagnosis(
        step=step,
        account=account,
        findings=tuple(shown),
        considered=tuple(considered),
        together_us=s.replay.saved_us(*(each.edit for each in shown)),
        notes=(*notes, *_words.long_waits(s, shown)),
        times=s.replay.times if s.trace.timed and s.replay.error <= OFF.value else None,
    )


def _before_launching(found: Sequence[StepFinding], s: StepFacts) -> list[StepFinding]:
    """With what goes before "launch-bound": causes whose fixes save most of what it would, and waits
    that keep the step from being a CUDA graph. An optimizer in 2000 launches is no step that is
    launch-bound."""
    late = next((each for each in found if each.rule == LATE), None)
    if late is None:
        return [*found]
    edits = [each.edit for each in found if each is not late]
    left = s.replay.saved_us(*edits, late.edit) - s.replay.saved_us(*edits)
    most = late.ceiling_us - left >= MOST_LATE.value * late.ceiling_us
    own = {gap for each in found if each.rule in MERGED for gap in each.gaps}
    most |= len(own.intersection(late.gaps)) >= MOST_LATE.value * len(late.gaps)
    blocks = _patterns.cut(s, PIECES)
    made, after = [], dict[str, float]()
    for each in found:
        both = s.replay.saved_us(each.edit, late.edit)
        shared = each.ceiling_us + late.ceiling_us - both
        merges = each.rule in MERGED or not {*each.gaps}.isdisjoint(late.gaps)
        # a CUDA graph waits for the host's other work too, such as a loader
        merges |= each.rule == AWAY and s.idle_us(each.gaps) >= s.idle_us(late.gaps)
        if (blocks and each.rule == SYNC) or (each.rule == ALLOCATES and s.worth(shared)):
            does = "in which the host waits" if each.rule == SYNC else "that allocates memory so"
            text = f" It comes first, since no CUDA graph captures code {does}. "
            text += f"Fixing the late launches too saves about {s.of_step(both)}."
            each = msgspec.structs.replace(each, summary=each.summary + text, before=(LATE,))
            after[each.rule] = both
        elif most and each is not late and merges and s.worth(shared):
            sure = "medium" if each.confidence == "low" else each.confidence
            each = msgspec.structs.replace(each, before=(LATE,), confidence=sure)
        made.append(each)
    return [msgspec.structs.replace(x, after=after) if x is late else x for x in made]


def _joined(
    found: Sequence[StepFinding], kernels: Sequence[StepFinding], s: StepFacts, known: Judged
) -> list[StepFinding]:
    """The step's findings and its kernels', small grids once: where other launches could run alongside
    them the step has them, and counters that confirm it make it likelier. Else the counters' word is
    better than the trace's, where they know the cause."""
    seen = {shape for shape, (_, verdict) in known.items() if verdict.primary.bottleneck != UNKNOWN}
    kept = [
        x for x in found if x.rule != GRID or not seen.issuperset(s.ops[at].shape for at in x.ops)
    ]
    at = next((i for i, each in enumerate(kept) if each.rule == SMALL_GRIDS), None)
    if at is None:
        return [*kept, *kernels]
    own = {*kept[at].ops}
    rest = [each for each in kernels if each.rule != GRID or not own.issuperset(each.ops)]
    if len(rest) < len(kernels):
        kept[at] = msgspec.structs.replace(kept[at], confidence="medium")
    return [*kept, *rest]


def _with_switch(finding: StepFinding, s: StepFacts) -> StepFinding:
    """With the switch that is made for it, where there is one. Code that a compiler made is not
    compiled again, and a GPU whose compute capability is not known (0.0) may have anything."""
    if finding.good:
        return finding
    cc = s.device.cc if s.device and s.device.cc > (0, 0) else (99, 0)
    done = "compile" if "fused" in s.classes else None
    update = _patterns.optimizer(s)
    work = {*s.classes, "optimizer" if update and not update.written else ""}
    made = switches_for(finding.rule, s.framework, cc)
    able = [each for each in made if each.group != done and each.id not in s.useless]
    able = [each for each in able if work.issuperset(each.classes)]
    return msgspec.structs.replace(finding, switch=able[0].id) if able else finding


def _with_expected(shown: Sequence[StepFinding], s: StepFacts) -> list[StepFinding]:
    """With what the first finding's fix is expected to save, where it is as the cases on record
    (kernel/diagnosis/achieved.py) are: a step of one GPU that was found and timed, and a cause that is clear or
    likely."""
    alike = s.steady and s.trace.timed and "collective" not in s.classes
    if not alike or not shown or shown[0].good or shown[0].confidence == "low":
        return [*shown]
    saves = expected(shown[0].ceiling_us, s.wall_us)
    return [msgspec.structs.replace(shown[0], expected_us=saves), *shown[1:]]


def _with_more(finding: StepFinding, s: StepFacts) -> StepFinding:
    """With why its fix saves more than its cause takes, where it does."""
    work_us, idle_us = s.us(finding.ops), s.idle_us(finding.gaps)
    most, likely = MORE.value * (work_us + idle_us), finding.expected_us or (0.0, 0.0, 0.0)
    text = "This fix saves more than its cause takes: "
    if finding.ceiling_us > most:
        text += "idle time elsewhere shrinks too."
    elif likely[1] > most:
        text += "fixes on record did."
    elif work_us >= idle_us and most < likely[2] < MOST_OF * s.wall_us:
        text = "The interval ends above the time of its cause, since many fixes remove other costs too."
    else:
        return finding
    return msgspec.structs.replace(finding, summary=f"{finding.summary} {text}")


def with_trial(found: ProgramDiagnosis, trial: ProgramTrial) -> ProgramDiagnosis:
    """With what switches saved instead of what they can save at most, in the order that follows, and
    the lines that keep it. Where one switch is for several findings, the first has what it saved. What
    broke the program, changed nothing or changed its results is not offered again."""
    alone = sorted((each for each in trial.tried if len(each.switches) == 1), key=lambda t: t.left)
    left = [each for each in alone if each.good]
    findings = []
    for finding in found.findings:
        own = [each for each in alone if each.switches[0].partition(":")[0] == finding.switch]
        best = next((each for each in left if each in own or finding.rule in each.causes), None)
        if best is not None:
            left.remove(best)
            lines = (line for line in best.keep if not any(line in each for each in finding.advice))
            finding = msgspec.structs.replace(
                finding,
                switch=best.switches[0],
                measured_us=found.step.wall_us * (1 - best.left),
                advice=(*(Advice("Keep it", line) for line in lines), *finding.advice),
            )
        elif any(each.outcome in ("slower", "same") for each in own):
            finding = msgspec.structs.replace(finding, measured_us=0.0)
        elif own:
            finding = msgspec.structs.replace(finding, switch="")
        findings.append(finding)
    return msgspec.structs.replace(found, findings=tuple(ordered(findings)))


def _dominant(s: StepFacts, shown: Sequence[StepFinding], known: Judged) -> Iterator[str]:
    """What takes NAMED of the step or more and is in no finding: a sentence for each kernel, with its
    operator, grid and line, and a report's verdict."""
    taken, costly = {at for finding in shown for at in finding.ops}, any(not x.good for x in shown)
    functions = {at: launch.function for at, launch in enumerate(s.launches) if launch}
    kernels = grouped(functions, lambda at: (s.operator(at), functions[at]))
    for (operator, function), places in sorted(kernels.items(), key=lambda each: -s.us(each[1])):
        us = s.us(places)
        if not s.worth(us, NAMED) or s.us(taken.intersection(places)) >= us / 2:
            continue
        launches = [each for at in places if (each := s.launches[at])]
        called, *others = {kernel_label(function, each.kernel) for each in launches}
        grids = {each.grid for each in launches if each.grid}
        grid = f"grid {units.extents(*grids)}" if len(grids) == 1 else f"{len(grids)} grid sizes"
        group = kernel_class(launches[0])
        kind = group.label.lower() * (group.id != "other")
        about = ", ".join(filter(None, (operator, kind, grid * bool(grids), *s.where(places)[:1])))
        shapes = (s.ops[at].shape for at in places)
        verdicts = [known[shape][1].primary.bottleneck for shape in shapes if shape in known]
        own = costly and authored(launches[0].kernel) and not verdicts
        command = f"ncu-toolkit profile --kernel {shell_word(function)} -- PROGRAM"
        how = f". Profile it with counters: {command}" * own
        cause = next((each for each in verdicts if each != UNKNOWN), "")
        says = f'; its report says "{title(cause)}"' if cause else ""
        yield (
            f"{function if others else called} takes {units.percent(s.share(us), 2)} of the {s.word} in "
            f"{units.counted(len(places), 'launch')}{f' ({about})' * bool(about)}. The trace shows no cause for that{says}{how}."
        )


def _unexplained(s: StepFacts, shown: Sequence[StepFinding]) -> Iterator[str]:
    """Idle time that no finding has, and none of their fixes closes, by what the account calls it."""
    explained = {at for finding in shown for at in finding.gaps}
    gone = {at for finding in shown if finding.edit for at in finding.edit.drops}
    left = (x for at, x in enumerate(s.gaps) if at not in explained and x.before not in gone)
    idle = grouped(left, lambda gap: gap.key)
    times = {key: sum(gap.us for gap in gaps) for key, gaps in idle.items()}
    for key, us in sorted(times.items(), key=lambda each: -each[1]):
        if s.worth(us, UNEXPLAINED):
            label, each = LABELS[key].removeprefix("Idle: "), us / len(idle[key])
            why = f"{label}.{_MORE.get(key, '')}"
            alone = len({(op.process, op.stream) for op in s.trace.ops}) == 1
            if key == "idle: between" and (alone or each <= BETWEEN.value):
                why = f"it takes {units.duration(each)} from one queued operation to the next. Fewer, larger kernels leave fewer such gaps."
            if key == "idle: host work" and not s.steady:
                why = f"{label}. How much of that is the program's start is not known, since no step was found."
            of = "Idle time in none of the causes above is" if explained else "The GPU is idle for"
            yield f"{of} {units.percent(s.share(us), 2)} of the {s.word}: {why}"


def ordered(findings: Iterable[StepFinding]) -> list[StepFinding]:
    """Findings by what was measured, else by ceiling and how sure they are; what has nothing to gain
    last. A setting (`switch`) goes before rewrites of like gain, and a finding before those that wait
    for it (`before`)."""

    def worth(x: StepFinding) -> float:
        return x.ceiling_us * SURE[x.confidence] if x.measured_us is None else x.measured_us

    def goes_after(other: StepFinding, setting: StepFinding) -> bool:
        rewrite = not other.switch and other.measured_us is None and not other.good
        return rewrite and worth(setting) >= ALIKE.value * worth(other)

    def more(each: StepFinding, other: StepFinding) -> bool:
        tried = each.measured_us is not None or other.measured_us is not None
        alike = each.ceiling_us >= ALIKE.value * other.ceiling_us and each.confidence != "low"
        frees = ALIKE.value * each.frees_us
        return alike and not tried and frees > max(each.ceiling_us, other.frees_us)

    order: list[StepFinding] = []
    for each in sorted(findings, key=lambda f: (f.good, -worth(f), f.rule, f.title)):
        at = len(order)
        if each.switch and each.measured_us is None:
            while at and goes_after(order[at - 1], each):
                at -= 1
        order.insert(at, each)
    for each in [*order]:
        goes = (
            i for i, other in enumerate(order) if other.rule in each.before or more(each, other)
        )
        first = next(goes, None)
        if first is not None and first < order.index(each):
            order.remove(each)
            order.insert(first, each)
    return order


def _uncovered(
    findings: Sequence[StepFinding], s: StepFacts
) -> tuple[list[StepFinding], list[NoFinding]]:
    """Findings with enough time of their own, and why the others are left out."""
    shown: list[StepFinding] = []
    left_out: list[NoFinding] = []
    saved = 0.0
    for finding in findings:
        if finding.good:  # a roof is none where another saves any of its time
            us = s.us(finding.ops)
            beside = {at for each in shown for at in each.ops}
            alone = s.us({*finding.ops} - beside) > (1 - COVERED.value) * us
        else:
            more = s.replay.saved_us(*(each.edit for each in shown), finding.edit)
            alone = more - saved > (1 - COVERED.value) * finding.ceiling_us
            alone = alone and s.worth(more - saved)
        if alone:
            shown.append(finding)
            saved = saved if finding.good else more
            continue
        names = units.shortlist([f'"{each.title}"' for each in shown], 2)
        text = f"{finding.title}: most of what it saves is covered by {names}."
        left_out.append(NoFinding(finding.rule, "ruled out", text, finding.evidence))
    return shown, left_out


def _kernels(s: StepFacts, known: Judged) -> list[StepFinding]:
    """What counters say of the step's kernels: each kernel's first cause, with the part of the
    kernel's time in the step that it can save. Shapes of one kernel with one cause are one finding."""
    judged = (at for at, op in enumerate(s.ops) if op.kind == "kernel" and op.shape in known)
    ops = grouped(judged, lambda at: s.ops[at].shape)
    groups: dict[tuple[str, str], list[tuple[Finding, list[int]]]] = defaultdict(list)
    roofs = []
    for shape, places in ops.items():
        finding, launch = known[shape][1].primary, s.trace.shapes[shape]
        function = launch.function or launch.kernel
        near = finding.speedup is None and finding.confidence == "medium" and not finding.weight
        if (finding.good or near) and s.worth(s.us(places), DOMINANT):
            roof = _of_kernel(s, known, finding.bottleneck, function, [(finding, places)])
            head = f"{function} is {'at' if finding.good else 'near'} its roof"
            text = roof.summary + _moved(known[shape][0])
            roofs.append(msgspec.structs.replace(roof, title=head, summary=text, good=True))
        # of a report alone the reader may be the library's author
        if finding.saved and not finding.good and (not s.trace.timed or _promises(launch, finding)):
            groups[finding.bottleneck, function].append((finding, places))
    found = [_of_kernel(s, known, *key, group) for key, group in groups.items()]
    worth = [each for each in found if s.worth(each.ceiling_us)]
    return [*sorted(worth, key=lambda each: -each.ceiling_us)[:_KERNELS], *roofs]


def _promises(launch: Launch, finding: Finding) -> bool:
    """Whether who calls a kernel can have what its finding saves, not only its author. Many small calls
    of a library that could be one are a cause of the step."""
    made, small = made_by(launch.kernel), finding.bottleneck in SMALL
    return made not in CALL or (made in call_of(finding) and not (made == "library" and small))


def for_caller(verdict: Diagnosis, launch: Launch) -> Diagnosis:
    """A kernel's verdict without gains that only the kernel's author could have."""

    def without(each: Finding) -> Finding:
        return replace(each, speedup=None, interval=None, weight=each.weight or each.saved)

    findings = (each if _promises(launch, each) else without(each) for each in verdict.findings)
    return replace(verdict, findings=tuple(findings))


def _moved(profile: Profile | None) -> str:
    """What a kernel moves to and from device memory a second, and what it could, as a sentence."""
    names = ("duration", "dram_bytes", "dram_utilization")
    us, moved, part = (figures.value(profile, name) if profile else None for name in names)
    if not us or not moved or not part:
        return ""
    rate = moved / us * 1e6
    return f" Device memory moves {units.si(rate, 'B/s')} of {units.si(rate / part, 'B/s')}."


def _replaced(kernel: StepFinding, found: Iterable[StepFinding], s: StepFacts) -> bool:
    """Whether a finding of the step does without a kernel's launches, and saves as large a part of
    them as making them faster. PyTorch chooses the grid of a scatter: it is not small by itself."""
    own, least = {*kernel.ops}, (1 - COVERED.value) * kernel.ceiling_us
    beside = (each for each in found if not own.isdisjoint(each.ops))
    beside = (each for each in beside if each.rule in (*MERGED, "layout-copies", INDEXED))
    alone = (s.replay.saved_us(each.edit, kernel.edit) - each.ceiling_us for each in beside)
    return not kernel.good and any(us <= least for us in alone)


def _of_kernel(
    s: StepFacts, known: Judged, name: str, function: str, group: Sequence[tuple[Finding, list[int]]]
) -> StepFinding:  # fmt: skip
    first, own = max(group, key=lambda each: each[0].saved * s.us(each[1]))
    # another cause of the kernel that surely gains more, where this one may gain more yet
    shape, low = s.ops[own[0]].shape, (first.interval or (math.inf,))[0]
    sure = (x for x in known[shape][1].findings if x.interval and x.interval[0] > low and x.speedup)
    more = (x for x in sure if _promises(s.trace.shapes[shape], x))
    says = [f'"{title(x.bottleneck)}", {gain_text(x.speedup or 1.0, x.interval)}' for x in more]
    second = f" Its report also says {says[0]}." if says else ""
    keeps = {at: 1 - each.saved * (not each.good) for each, ops in group for at in ops}
    places = sorted(keeps)
    kernels = {launch.kernel for at in places if (launch := s.launches[at])}
    every = sum(launch is not None and launch.kernel in kernels for launch in s.launches)
    some = f"{units.count(len(places))} of " * (len(places) < every)
    return s.finding(
        f"{some}{units.counted(every, 'launch')}, {s.of_step(s.us(places))}. {first.summary}{second}",
        first.confidence,
        Edit(keeps=keeps),
        ops=places,
        evidence=first.evidence,
        arithmetic=first.arithmetic,
        advice=first.advice,
        rule=name,
        title=f"{title(name)} in {function}",
    )
