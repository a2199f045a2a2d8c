"""What costs a program's step, as an answer: the first cause on a card with where the step goes, the
next ones, and the step's kernels by time. Times are in microseconds."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import shell_word, visible
from ncu_toolkit.base.core.shares import grouped, summed
from ncu_toolkit.base.core.units import shortlist
from ncu_toolkit.base.document.card import (
    COVERAGE,
    NAME,
    Card,
    CodeLine,
    State,
    UnitBar,
    cut_apart,
    gain_text,
    kernel_label,
    whole_percent,
)
from ncu_toolkit.base.document.tables import Cell, Spec, Table, table
from ncu_toolkit.base.document.views import CARDS, TOP, Answer
from ncu_toolkit.base.model import Diagnosis, Launch, Profile
from ncu_toolkit.base.model.profile import Advice, shown_step
from ncu_toolkit.kernel.diagnosis.achieved import tested
from ncu_toolkit.kernel.diagnosis.kernel import CALL, TOOLKIT, authored, line_information, made_by
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.diagnosis.rules.unknown import ID as UNKNOWN
from ncu_toolkit.kernel.explain.verdict import lines_of, title_of_finding
from ncu_toolkit.program.diagnosis import DOMINANT, MOST_OF, Judged
from ncu_toolkit.program.explain.strip import strip_of
from ncu_toolkit.program.model import Account, Lack, ProgramDiagnosis, Step, StepFinding, Trace
from ncu_toolkit.program.traces.builder import own_code
from ncu_toolkit.program.traces.choice import groups
from ncu_toolkit.program.traces.classes import kernel_class

#: A report's profile and verdict of a trace's kernels, by place in `Trace.shapes`.
Known = Mapping[int, tuple[Profile, Diagnosis]]
#: Bars of a step, the last for all that is left.
_BARS: Final = 6
#: Part of the step (0-1) below which time is in the last bar.
_SMALL: Final = 0.01
#: Lines of the user's code that a card names.
_LINES: Final = 2
#: Part of the step (0-1) from which idle time and copies of a step without a finding are mentioned.
_MUCH_IDLE: Final = 0.05
#: Part (0-1) of what a line is named for, below which it is no place to look, or its share no news.
_PLACE: Final = 0.1
#: Spread of the steps' times above which the shortest and the longest are stated.
_STEADY: Final = 0.2
#: Part of the run below which what the steps leave out comes first.
_COVERED: Final = 0.8
#: Steps of this many times the lower quartile are slow ones.
_SLOW: Final = 1.5
_IDLE: Final = "idle: "
#: Part of the step (0-1) from which a kernel's own speedup is worth a word.
_WORTH: Final = 0.05
#: Characters of a name from which those that tell it from others are taken.
_LONGEST: Final = 400
#: Causes whose fix must come before a CUDA graph, in words.
_GONE: Final = {"host-sync": "the waits", "allocation-in-step": "the allocations"}
#: A finding that saves less than this part of what most of the step goes into is no headline.
_MINOR: Final = 0.2
#: What tracing adds to steps with a GPU that is busy for less than half of the time: in the 20
#: recordings of such programs 18 % (median), -12 to 63 %; to the other 59 a median of 1 %.
_IDLING: Final = 0.5
_SLOWED: Final = "Recording slows programs with a mostly idle GPU, in our tests by 18 % (median of 20; largest 63 %). The times above include it."
#: What records what a report lacks.
_RECORD: Final = "ncu-toolkit profile -- PROGRAM"
#: What is not known without it; what is not here changes no answer.
_UNKNOWN: Final[Mapping[Lack, str]] = {
    "host calls": "why the GPU idles",
    "lines": "which line launches a kernel",
    "grids": "the grids of kernels in CUDA graphs",
    "memory kinds": "whether the host's memory is pinned",
}


@dataclass(frozen=True)
class StepKernel:
    """Launches of a step with one kernel, grid and block: their time that nothing else accounts for,
    its share (0-1) of the step, and the line that launches most of them."""

    launch: Launch
    kind: str
    launches: int
    us: float
    share: float
    line: str = ""
    verdict: Diagnosis | None = None
    """What a report says of the kernel."""


def step_kernels(
    step: Step, account: Account, known: Judged | None = None
) -> tuple[StepKernel, ...]:
    """The kernels of a step, those with most time first."""
    trace, ops = step.trace, step.ops
    found = []
    for group in groups(step, account):
        launch = trace.shapes[group.shape]
        ran = [ops[at] for at in group.ops]
        times = summed((line_of(trace, op.call), op.end - op.start) for op in ran)
        line = max(times, key=times.__getitem__, default="")
        text = (known or {}).get(group.shape, (None, None))[1]
        share, kind = group.us / (account.wall_us or 1.0), kernel_class(launch).label
        found.append(StepKernel(launch, kind, len(group.ops), group.us, share, line, text))
    return tuple(found)


def line_of(trace: Trace, call: int) -> str:
    """The user's line that made a call; empty if unknown."""
    line = trace.calls[call].line if call >= 0 else -1
    return trace.lines[line] if line >= 0 else ""


def line_times(found: ProgramDiagnosis, finding: StepFinding) -> dict[str, float]:
    """The time of a finding's launches by the user's line; "" for those of no known one. Empty where
    the finding is about idle time more than about them."""
    trace, ops, us = found.step.trace, found.step.ops, found.account.exclusive_us
    times = summed((line_of(trace, ops[at].call), us[at]) for at in finding.ops)
    idle = sum(found.account.gaps[at].us for at in finding.gaps)
    return times if idle <= sum(times.values()) else {}


def label_of(launch: Launch, longest: int = NAME) -> str:
    """A kernel of a step as tables name it."""
    return kernel_label(launch.function, launch.kernel, longest)


def program_answer(
    found: ProgramDiagnosis,
    known: Judged | None = None,
    *,
    top: int = TOP,
    cards: int = CARDS,
    next_command: str = "",
    flags: bool = True,
) -> Answer:
    """The answer to a program's step.

    Args:
        known: the verdicts that reports give of its kernels.
        top: kernels in the table; `cards`: findings with a card.
        flags: name options of the command line for what is left out.
    """
    step, account = found.step, found.account
    costly = found.costly
    rows = step_kernels(step, account, known)
    lead = _lead(found, rows)
    shown = costly[: max(0, min(cards, top) - (lead is not None))]
    # the step without its first cause, where one was found and that saves enough to be seen
    drawn = [] if lead or step.how == "whole" else shown[:1]
    drawn = [x for x in drawn if x.ceiling_us >= _WORTH * account.wall_us]
    first, *others = ([lead] if lead else []) + [_card(found, x, known=known) for x in shown]
    first = replace(
        first, summary=" ".join((*of_run(found), first.summary)),
        bars=_bars(account, rows), of=f"where {f'the {step.word}' if step.trace.timed else 'kernel time'} goes",
        basis=_idle(account, step.word), then=_then(found, costly, 0 if lead else 1), missing=lacking(step.trace),
        next=next_command, strip=strip_of(found, drawn, "this fix"),
    )  # fmt: skip
    slowed = [_SLOWED] * _idling(found)
    points = (*found.notes, step.description, *slowed, *_without_lines(found, known or {}))
    return Answer(
        headline(found), cards=(first, *others),
        points=tuple(visible(each) for each in points if each not in first.summary),
        tables=(_kernels(rows, top, flags, step),), notes=tuple(map(visible, step.trace.notes)),
    )  # fmt: skip


def of_run(found: ProgramDiagnosis) -> Iterator[str]:
    """What the reader must know of the other steps and of the rest of the run before all else."""
    step = found.step
    if step.covered < _COVERED:
        rest = f" Left out: {units.listed(step.rest)}." if step.rest else ""
        yield f"Note: from the first step to the end of the run, only {units.percent(step.covered, 2)} of the time is in steps.{rest}"
    if step.uneven:
        times = sorted(window.us for window in step.windows)
        usual = times[len(times) // 4]
        if slow := [us / usual for us in times if us > _SLOW * usual]:
            low, high = (units.significant(each, 2) for each in (slow[0], slow[-1]))
            many = f"{low} to {high}" if low != high else low
            yield f"{len(slow)} of {len(times)} steps take {many} times the lower quartile of {units.duration(usual)}."


def _without_lines(found: ProgramDiagnosis, known: Judged) -> Iterator[str]:
    """How to get source lines of the findings' kernels, where reports have none."""
    shapes = {at for each in found.costly for at in _shapes(found, each)}
    profiles = [known[at][0] for at in shapes.intersection(known)]
    bare = [x for x in profiles if x and {row.file for row in x.instructions} == {""}]
    yield from {f"For source lines: {how}." for x in bare if (how := line_information(x))}


def title_of(found: ProgramDiagnosis, finding: StepFinding) -> str:
    """A finding's title, with kernels named as the table names them."""
    launches = [found.step.trace.shapes[at] for at in _shapes(found, finding)]
    if launches and finding.good:
        short = label_of(launches[0], 32)
        return visible(finding.title).replace(visible(launches[0].function), short)
    if launches and finding.title.endswith(name := f" in {launches[0].function}"):
        labels = list(dict.fromkeys(map(label_of, launches)))
        return f"{visible(finding.title.removesuffix(name))} in {shortlist(labels, 1)}"
    return visible(finding.title)


def _shapes(found: ProgramDiagnosis, finding: StepFinding) -> list[int]:
    """The finding's kernels by their places in `Trace.shapes`, those launched most first."""
    ops = found.step.ops  # a copy
    ours = (ops[at] for at in finding.ops)
    return [at for at, _ in Counter(op.shape for op in ours if op.kind == "kernel").most_common()]


def of_step_finding(found: ProgramDiagnosis, finding: StepFinding) -> Answer:
    """One finding: its card with all its lines, how its ceiling is computed, and its evidence."""
    from ncu_toolkit.kernel.explain import code  # it is not needed for the answer

    card = _card(found, finding, len(finding.where))
    return Answer(
        "", cards=(card,), points=tuple(map(visible, finding.arithmetic)),
        tables=(code.evidence("Evidence", finding.evidence),) if finding.evidence else (),
    )  # fmt: skip


def headline(found: ProgramDiagnosis) -> str:
    """`train.py · step of 46.6 ms (mean of 9 steps, 80 % within ±0.4 %) · NVIDIA H200 · 820 launches, GPU busy 94 %`."""
    step, trace = found.step, found.step.trace
    wall = units.duration(step.wall_us) + " of kernels" * (not trace.timed)
    times = [window.us for window in step.windows]
    near = f"80 % within ±{units.percent(step.spread, 1)}"
    if step.spread > _STEADY:
        near = f"shortest {units.duration(min(times))}, longest {units.duration(max(times))}"
    seen = f"mean of {len(times)} steps, {near}" if len(times) > 1 else "1 seen"
    gpus = [each.name.removeprefix("an unknown GPU") for each in trace.devices]
    names = list(dict.fromkeys(filter(None, gpus)))
    gpu = " and ".join(names[:2]) if len(names) < 3 else f"{len(names)} kinds of GPUs"
    if len(gpus) > 1 and step.device is not None:
        gpu = f"{gpus[step.device] or 'a GPU'}, one of {len(gpus)}"
    elif len(gpus) > 1:
        gpu = f"{len(gpus)} × {gpu}" if gpu else f"{len(gpus)} GPUs"
    work = f"{units.count(step.launches)} launch{'es' * (step.launches != 1)}"
    copied = sum(part.us for part in found.account.parts if part.key in ("copy", "set"))
    work += f", GPU busy {units.percent(found.account.busy, 2)}" * trace.timed
    if trace.timed and copied >= _MUCH_IDLE * found.account.wall_us:
        kernels = found.account.busy - copied / found.account.wall_us
        work += f" (kernels {whole_percent(kernels)}, copies {whole_percent(found.account.busy - kernels)})"
    whole = f"whole run of {wall}" if trace.timed else wall
    parts = (trace.program, whole if step.how == "whole" else f"step of {wall} ({seen})", gpu, work)
    return " · ".join(visible(part) for part in parts if part)


def _idling(found: ProgramDiagnosis) -> bool:
    """Whether tracing slows the step, so that gains are given as shares of it."""
    return found.step.trace.timed and found.account.busy < _IDLING


def saving(finding: StepFinding, found: ProgramDiagnosis, *, whole: bool = True) -> str:
    """What a finding saves of a step, in words: `fix saves about 31 of 46.6 ms`, of an idling one `66 %
    of the step`; without the `whole`, `fix alone saves about 31 ms`. The first, by measured cases
    (kernel/diagnosis/achieved.py): `about 30 of 46.6 ms (80 % interval 21 to 35)`; `21 or more` where that is the whole."""
    if finding.good:
        return "nothing to gain"
    wall_us, shares, (unit, of) = found.account.wall_us, _idling(found), _whole(found)
    of, fix = (of, "fix") if whole else (unit, "fix alone")
    if finding.measured_us is not None:
        if not finding.measured_us:
            return "no gain when tried"
        if whole and not shares:
            return f"measured {_in_unit(wall_us, found)} → {_in_unit(wall_us - finding.measured_us, found, 3)}{unit}"
        return f"{fix} saves {_in_unit(finding.measured_us, found)}{of}, measured"
    if finding.expected_us is not None:
        low, likely, high = (_in_unit(each, found, rough=True) for each in finding.expected_us)
        most = finding.expected_us[2] >= MOST_OF * wall_us
        between = f"{low}{unit} or more" if most else f"{low} to {high}{unit}"
        return f"{fix} saves about {likely}{of}{f' ({COVERAGE} {between})' * whole}"
    us = finding.ceiling_us
    for other in (x for x in found.costly if x.rule in finding.after):
        shown = other.expected_us[1] if other.expected_us else other.ceiling_us
        us = max(0.0, finding.after[other.rule] - (other.measured_us or shown))
        fix = f"with {_GONE[other.rule]} gone, fix"
    return f"{fix} saves about {_in_unit(us, found)}{of}"


def _whole(found: ProgramDiagnosis) -> tuple[str, str]:
    """What follows a gain: its unit, and what it is of."""
    wall, shares = units.duration(found.account.wall_us), _idling(found)
    unit = " " + ("%" if shares else wall.rpartition(" ")[2])
    return unit, f"{unit} of the {found.step.word}" if shares else f" of {wall}"


def _in_unit(us: float, found: ProgramDiagnosis, digits: int = 2, rough: bool = False) -> str:
    """A time without its unit, in that of `_whole`: two `digits`, three where two would make it the
    whole, and all before the point unless it is `rough`."""
    wall = found.account.wall_us
    scale = next((scale for scale in (1e6, 1e3, 1.0) if wall >= scale * 0.9995), 1e-3)
    scale = wall / 100 if _idling(found) and wall else scale
    value = us / scale
    if float(f"{value:.{digits}g}") >= wall / scale:  # 12.8 of 12.9 s, not 13
        digits = 3
    return units.count(value) if value >= 100 and not rough else units.significant(value, digits)


def _card(
    found: ProgramDiagnosis, finding: StepFinding, lines: int = _LINES, known: Judged | None = None
) -> Card:
    made = {made_by(found.step.trace.shapes[at].kernel) for at in _shapes(found, finding)}
    return Card(
        state="roof" if finding.good else "slow", bottleneck=visible(finding.rule), title=title_of(found, finding),
        gain=saving(finding, found), confidence=finding.confidence, summary=visible(finding.summary),
        where=(*where(found, finding, lines), *_hottest(found, finding, known or {})),
        do=() if finding.good and made <= {*CALL} else steps_of(finding), tested=tested_text(found, finding),
    )  # fmt: skip


def tested_of(found: ProgramDiagnosis, finding: StepFinding) -> tuple[int, int] | None:
    """Of test programs in which the first cause's advice was followed those that became faster, and all;
    None of other findings, and where they are too few."""
    return tested(finding.rule) if finding in found.costly[:1] else None


def tested_text(found: ProgramDiagnosis, finding: StepFinding) -> str:
    """The same in words."""
    form = "Following the advice for this cause made {} of {} short test programs faster."
    return form.format(*known) if (known := tested_of(found, finding)) else ""


def steps_of(finding: StepFinding) -> tuple[str, ...]:
    """What to do about a finding, and the command that measures what that gains, where there is
    one."""
    steps = finding.advice
    if finding.switch and finding.measured_us is None:
        how = "To measure the gain without editing code"
        steps = (*steps, Advice(how, f"ncu-toolkit try {finding.switch} -- PROGRAM"))
    return tuple(shown_step(step, visible) for step in steps)


def _lead(found: ProgramDiagnosis, kernels: Sequence[StepKernel]) -> Card | None:
    """The first card where that is no finding's: nothing was found, or most of the step is in kernels
    that were not profiled or are at a roof, beside which findings save little. Else None."""
    good = next((each for each in found.findings if each.good), None)
    if good is not None and not found.costly:
        return _card(found, good)
    wall, idle = found.account.wall_us, sum(gap.us for gap in found.account.gaps)
    first = next((each.ceiling_us for each in found.costly), 0.0) / (wall or 1.0)
    word, most = found.step.word, max(DOMINANT.value, first / _MINOR)
    state: State = "together"
    head, gain, advice = "Nothing stands out", "no known cause", tuple[str, ...]()
    summary = "No known cause of lost time was found."
    # what counters say of a library's kernels is no advice, so they are not missed
    unseen = [k for k in kernels if not k.verdict and made_by(k.launch.kernel) != "library"]
    hidden = sum(each.share for each in unseen)
    longest = next(iter(kernels), None)
    primary = longest.verdict.primary if longest and longest.verdict else None
    judged = sum(each.share for each in kernels if each.verdict)
    name = longest.launch.kernel if longest and longest.share >= most else ""
    label = label_of(longest.launch) if longest else ""
    takes = f"{label} takes {units.percent(longest.share if longest else 0.0, 2)} of the {word}"
    other = longest and kernel_class(longest.launch).id == "other" and made_by(name) not in CALL
    own = name and (authored(name) or other)
    if hidden >= most and (judged or (own and not found.costly)):
        unknown = f"{units.percent(hidden, 2)} of the {word} is in kernels that were not profiled"
        head = takes if own else unknown
        gain = "cause and gain not known without counters"
        names = [f"{label_of(k.launch)} ({units.percent(k.share, 2)})" for k in unseen[:3]]
        summary = f"Longest: {units.listed(names)}."
        same = (each for each in found.notes if len(names) == 1 and each.startswith(head))
        summary = visible(next(same, summary))
        named = shell_word("|".join(dict.fromkeys(k.launch.function for k in unseen[:3])))
        command = f"ncu-toolkit profile --kernel {named} -- PROGRAM"
        advice = (Advice(f"Profile {'them' if len(names) > 1 else 'it'} with counters", command),)
    elif found.costly:
        roofs = _at_roofs(kernels)
        if sum(roofs.values()) < most:
            return None
        whole = units.percent(sum(roofs.values()), 2)
        head = f"{whole} of the {word} is at or near a roof of the GPU"
        state, gain = "roof", "little to gain"
        (kind, limit), part = max(roofs.items(), key=lambda each: each[1])
        summary = f"{kind} ({units.percent(part, 2)}) are limited by {limit}. What follows is about the rest."
    elif longest and primary and name:
        head, summary, advice = takes, visible(primary.summary), primary.advice
        gain = "only another call avoids it" if made_by(name) in CALL else gain
    elif wall and idle >= _MUCH_IDLE * wall:
        head = f"GPU idle for {units.percent(idle / wall, 2)} of the {word}"
        gain = f"up to {_in_unit(idle, found)}{_whole(found)[1]}"
        summary = " ".join((*map(visible, found.notes), _longest_gap(found), summary))
    elif named := next((each for each in found.notes if " shows no cause" in each), ""):
        head, summary = visible(named.partition(" (")[0].partition(". ")[0]), visible(named)
    elif 0 < judged < most:
        gain = f"only {units.percent(judged, 2)} was profiled"
    return Card(
        state=state, bottleneck="none", title=head, gain=gain, confidence="medium", summary=summary,
        do=tuple(shown_step(step, visible) for step in advice),
    )  # fmt: skip


def _at_roofs(kernels: Sequence[StepKernel]) -> dict[tuple[str, str], float]:
    """Shares of the step in kernels at or near a roof, by their kind and the roof."""
    judged = ((each, each.verdict.primary) for each in kernels if each.verdict)
    near = ((each, load_rules()[x.bottleneck].ROOF) for each, x in judged if x.good or not x.weight)
    return summed(((each.kind, roof.words), each.share) for each, roof in near if roof)


def _longest_gap(found: ProgramDiagnosis) -> str:
    """The longest idle time, and what ended it."""
    trace, ops = found.step.trace, found.step.ops
    gap = max(found.account.gaps, key=lambda gap: gap.us)
    text = f"The longest time without work is {units.duration(gap.us)}"
    if gap.before < 0:
        return f"{text}."
    op = ops[gap.before]
    line, other = line_of(trace, op.call), {"copy": "a copy", "set": "a memset"}.get(op.kind)
    what = other or label_of(trace.shapes[op.shape])
    return f"{text}, until {what} starts{f' ({visible(line)})' if line else ''}."


def where(found: ProgramDiagnosis, finding: StepFinding, most: int) -> tuple[CodeLine, ...]:
    """The finding's lines with the part of the step that their launches take."""
    wall, times = found.account.wall_us, line_times(found, finding)
    lines = []
    for place in finding.where[:most]:
        us = times.get(place, 0.0)
        share = us / wall if us >= _PLACE * sum(times.values()) and wall else 0.0
        of = f"the {found.step.word}" if share else ""
        path, _, line = visible(place).rpartition(":")
        own = path and line.isdecimal()
        known = (path, int(line), "", "") if own else ("", 0, "", visible(place))
        lines.append(CodeLine(*known, share, of))
    return tuple(lines)


def _hottest(found: ProgramDiagnosis, finding: StepFinding, known: Judged) -> Iterator[CodeLine]:
    """The line inside a kernel that costs most, where a report tells one that holds enough."""
    for profile, verdict in (known[at] for at in _shapes(found, finding) if at in known):
        if profile and verdict.primary.bottleneck == finding.rule:
            own = [x for x in lines_of(profile, verdict.primary) if own_code(x.path)]
            own = [x for x in own if x.share >= _PLACE and not TOOLKIT.search(x.path)]
            yield from (replace(x, sass="") for x in own[:1])
            return


def _then(
    found: ProgramDiagnosis, costly: Sequence[StepFinding], start: int
) -> tuple[tuple[str, ...], ...]:
    """The causes after the first card's, and what all of them save together."""
    wall, rows = found.account.wall_us, []
    for x in costly[start:CARDS]:
        title = title_of(found, x).partition(" (the GPU")[0]
        due = x.rule in costly[0].before and costly[0].rule not in x.after
        title += ", mostly due to the first cause" * (due and x.ceiling_us > costly[0].ceiling_us)
        rows.append((title, saving(x, found, whole=False), visible("".join(x.where[:1]))))
    if len(costly) > 1 and found.together_us > 0:
        left = _in_unit(max(0.0, wall - found.together_us), found)
        more = f"these and {len(costly) - CARDS} more"
        every = {2: "both", 3: "all three"}.get(len(costly), more)
        alone, why = sum(x.ceiling_us for x in costly), ""
        if found.together_us < 0.99 * alone:
            why = "the fixes overlap"
        elif found.together_us > 1.01 * alone:
            why = "each fix alone leaves another as the limit"
        rows.append((f"fixing {every}", f"leaves about {left}{_whole(found)[1]}", why))
    return tuple(rows)


def _bars(account: Account, kernels: Sequence[StepKernel]) -> tuple[UnitBar, ...]:
    """The parts of the step, at most _BARS. Idle time is one; kernels of no class have names."""
    wall = account.wall_us or 1.0
    parts = [(x.key, visible(x.label), x.us) for x in account.parts if x.key != "other"]
    own = [each for each in kernels if kernel_class(each.launch).id == "other"]
    parts += [(f"other: {x.launch.kernel}", f"{label_of(x.launch)} (kernel)", x.us) for x in own]
    parts = [(_IDLE, "GPU idle", x[2]) if x[0].startswith(_IDLE) else x for x in parts]
    labels, times = {key: label for key, label, _ in parts}, summed(x[::2] for x in parts)
    ordered = sorted(times, key=lambda key: -times[key])
    large = [key for key in ordered if times[key] >= _SMALL * wall]
    most = _BARS if len(ordered) <= _BARS and len(large) == len(ordered) else _BARS - 1
    shown = [(labels[key], times[key] / wall) for key in large[:most]]
    rest = [key for key in ordered if key not in large[:most] and times[key]]
    if (left := sum(map(times.__getitem__, rest))) >= _SMALL / 2 * wall:
        shown.append((labels[rest[0]] if len(rest) == 1 else "other", left / wall))
    return tuple(UnitBar(label, label, None, busy=share) for label, share in shown)


def _idle(account: Account, word: str) -> str:
    """What the GPU waits for, where that is worth a word."""
    wall = account.wall_us
    idle = [part for part in account.parts if part.key.startswith(_IDLE)]
    times = {visible(x.label).removeprefix("Idle: "): x.us for x in idle if x.us >= _SMALL * wall}
    times["other"] = sum(part.us for part in idle) - sum(times.values())
    parts = [f"{x} {units.percent(times[x] / wall, 2)}" for x in times if times[x] >= _SMALL * wall]
    return f"Why the GPU idles (% of the {word}): {', '.join(parts)}." if parts else ""


def lacking(trace: Trace) -> str:
    """What a trace does not tell, in a sentence; empty where it lacks nothing."""
    if not trace.timed:
        return f"No host times and no idle time: record them with {_RECORD}."
    ours = trace.source.startswith("ncu-toolkit")  # it has no lines of C++ to record
    unknown = [_UNKNOWN[x] for x in _UNKNOWN if x in trace.lacks and not (ours and x == "lines")]
    either = " or ".join(filter(None, (", ".join(unknown[:-1]), *unknown[-1:])))
    python = " for Python" * (_UNKNOWN["lines"] in unknown)
    remedy = "" if ours else f"; {_RECORD} records it{python}"
    return f"The trace does not show {either}{remedy}." if unknown else ""


def _kernels(kernels: Sequence[StepKernel], top: int, flags: bool, step: Step) -> Table:
    """A row for each name, whatever the grids and template arguments."""
    alike = grouped(kernels, lambda each: label_of(each.launch, _LONGEST))
    labels, lines = [*alike], {row[0].line for row in alike.values()}
    labels.sort(key=lambda label: -_time(alike[label]))
    left, labels = [alike[label] for label in labels[top:]], labels[:top]
    rows = [alike[label] for label in labels]
    names = dict(zip(map(id, rows), cut_apart(labels, NAME), strict=True))
    profiled = sum(each.us for each in kernels if each.verdict)
    grids = {id(row): {units.extents(each.launch.grid) for each in row} for row in rows}

    def verdict(row: Sequence[StepKernel]) -> str:
        """Of the grid with most time that a report tells of."""
        first = next((each.verdict.primary for each in row if each.verdict), None)
        if first is None:
            return "not profiled" if profiled else ""
        if first.bottleneck == UNKNOWN:
            return "no finding"
        own = made_by(row[0].launch.kernel) not in CALL or not step.trace.timed
        gains = not first.good and own and sum(x.share for x in row) >= _WORTH
        gain = f", {gain_text(first.speedup, first.interval)}" if gains and first.speedup else ""
        return f"{title_of_finding(first)}{gain}"

    columns: tuple[Spec[Sequence[StepKernel]], ...] = (
        Spec("kernel", cell=lambda row: names[id(row)], numeric=False, code=True, name=True, shortest=24),
        Spec("grid", cell=lambda row: f"{len(sizes)} sizes" if len(sizes := grids[id(row)]) > 1 else min(sizes), numeric=False, gives_way=2),
        Spec("class", cell=lambda row: visible(row[0].kind) * (kernel_class(row[0].launch).id != "other"), numeric=False, gives_way=1),
        Spec("launches", cell=lambda row: units.count(sum(x.launches for x in row))),
        Spec("time", cell=lambda row: units.duration(_time(row))),
        Spec("share", cell=lambda row: Cell(whole_percent(sum(x.share for x in row)), tone="strong")),
        Spec("line", cell=lambda row: visible(row[0].line) * (len(lines) > 1 or len(rows) == 1), numeric=False, code=True, gives_way=4, shortest=16),
        Spec("verdict", "verdict", "how much faster the kernel alone would become", cell=verdict, numeric=False, gives_way=5, shortest=12),
    )  # fmt: skip
    notes = []
    if left:
        more = "1 more kernel takes" if len(left) == 1 else f"{len(left)} more kernels take"
        shows = f"; --top {len(alike)} shows all" if flags else ""
        notes.append(f"{more} {units.duration(sum(map(_time, left)))}{shows}.")
    if len(lines) == 1 and len(rows) > 1 and all(lines):
        notes.append(f"All kernels of the {step.word} are launched at {visible(lines.pop())}.")
    total = sum(each.us for each in kernels)
    if 0 < profiled < (1 - _SMALL / 2) * total:
        part = units.percent(profiled / total, 2)
        notes.append(f"Kernels with {part} of the kernel time were profiled.")
    return table(f"Kernels of the {step.word}", columns, rows, " ".join(notes))


def _time(row: Sequence[StepKernel]) -> float:
    return sum(each.us for each in row)
