"""Profile and diagnosis -> card: everything that an output says of a launch is computed here.

Imported by the rule inside Nsight Compute, so it may import nothing that needs a compiled module
(tests/report/test_ncu_rule.py)."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import shell_word, visible
from ncu_toolkit.base.core.units import LEAST_GAIN
from ncu_toolkit.base.document.card import (
    COVERAGE,
    NAME,
    Card,
    CodeLine,
    State,
    UnitBar,
    Wait,
    about,
    between,
    factor_text,
    gain_text,
    kernel_label,
    whole_percent,
)
from ncu_toolkit.base.model import (
    NOT_MEASURED,
    Diagnosis,
    Finding,
    Headroom,
    Instruction,
    Launch,
    Location,
    Profile,
    finite,
)
from ncu_toolkit.base.model.profile import Advice, shown_step
from ncu_toolkit.kernel.diagnosis import engine, figures, kernel, regime, time_model
from ncu_toolkit.kernel.diagnosis.engine import RESIDUAL, SUBSTANCE
from ncu_toolkit.kernel.diagnosis.kernel import COLLECT, by_cause, closing, missing
from ncu_toolkit.kernel.diagnosis.rules import load_rules, title, unknown
from ncu_toolkit.kernel.diagnosis.time_model import BUSY, MEMORY, PIPES, SUSTAINED
from ncu_toolkit.kernel.explain import sections
from ncu_toolkit.kernel.explain.sections import Use, resource_name
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.branches import JUMPS
from ncu_toolkit.kernel.sass.opcodes import READS_ONLY

#: Bars and pieces of advice that fit one screen.
BARS: Final = 5
ADVICE: Final = 2
#: Longest code shown.
CODE: Final = 160

#: What a rule says limits a kernel -> the resources that this can be.
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {"compute": PIPES, "memory": MEMORY}
#: Callers above the user's line that a card names.
_CALLERS: Final = 3
#: What its figures come from, in words, by the keys of SECTIONS in kernel/diagnosis/kernel.py.
_INPUTS: Final[Mapping[str, str]] = {
    "stalls": "stall reasons", "issue_active": "issue slots", "opcodes": "opcode counts",
    "global_load_sectors": "memory tables", "dram_bytes": "DRAM traffic",
    "fma_pipe_active": "pipe use", "theoretical_occupancy": "occupancy", "duration": "time",
}  # fmt: skip
#: Part of a line's samples that wait for another line, from which on that is the line to read: as
#: good as half, since some samples of each instruction issue.
LATE: Final = 0.4
#: Samples, and the instructions any of which they are of, or wait for.
Part = tuple[int, set[int]]


def card(profile: Profile, diagnosis: Diagnosis, file: str = "") -> Card:
    """The card of one launch. `file` is the report's path as it was given, for the next command;
    the name in the profile where it is empty."""
    finding, launch = diagnosis.primary, profile.launch
    state = _state(profile, finding)
    unit = launch.workload if state == "together" else ""
    used = sections.uses(profile, diagnosis.bounds)
    bars = _bars(used, finding, state) if launch.complete else ()
    room = diagnosis.headroom if state in ("slow", "unknown") else None
    if room is not None and any(bar.limit and bar.resource == room.resource for bar in bars):
        room = None
    absent = missing(profile, _INPUTS) if launch.single else ()
    probed = profile.context is not None and bool(profile.context.pressure_us)
    then = _next(state, bool(absent), file or profile.origin.file)
    slow = state == "slow"
    return Card(
        kernel=kernel_label(launch.function, launch.kernel),
        time_us=profile.duration_us,
        untimed=profile.launch.complete and profile.duration_us is None,
        gpu=visible(profile.device.name, NAME),
        shape=_shape(profile),
        **_named(state, finding, unit),
        bars=bars,
        basis=sections.basis(profile, {bar.resource: used[bar.resource] for bar in bars}),
        waits=_waits(profile),
        roof=resource_name(room.resource) if room else "",
        assumed=_assumed(room) if room else "",
        headroom=room.factor if room else None,
        where=tuple(lines_of(profile, finding)) if launch.single else (),
        do=_steps(finding.advice[:ADVICE], then) if state != "roof" else (),
        expect=visible(finding.look_for) if slow else "",
        also=_also(diagnosis) if slow else "",
        next=then,
        missing=_missing(profile, absent),
        pressure=regime.confirmation(profile, diagnosis) if probed else "",
        called=_called(launch),
    )


def _assumed(room: Headroom) -> str:
    """` (32 % of the time, if the fix saves 20 % of that too)`: what the unit needs then."""
    left = f"{units.percent(1 / room.factor, 2)} of the time"
    if room.resource == time_model.LAUNCH:
        return ""
    if room.beside < time_model.NOISE:
        return f" (still {left})"
    return f" ({left}, if the fix saves {whole_percent(room.beside)} of that too)"


def of_finding(shown: Card, finding: Finding) -> Card:
    """A launch's card for one of its findings: with all its advice, and every place that it names
    after those of the card where the finding is the verdict."""
    verdict = finding.bottleneck == shown.bottleneck
    state = shown.state if verdict else _state_of(finding)
    first = shown.where if verdict else ()
    places = [_located({}, place) for place in finding.locations]
    known = {(line.path, line.line, line.sass) for line in first}
    others = (each for each in places if (each.path, each.line, each.sass) not in known)
    return replace(
        shown,
        **_named(state, finding),
        roof=shown.roof if verdict else "",
        headroom=shown.headroom if verdict else None,
        where=(*first, *others),
        do=_steps(finding.advice, shown.next),
        expect=visible(finding.look_for),
        also="",
    )


def _named(state: State, finding: Finding, workload: str = "") -> dict[str, Any]:
    """What a card takes from its finding alone: the bottleneck in words, and the gain."""
    speedup = finite(finding.speedup)
    factor = speedup if speedup is not None and speedup >= LEAST_GAIN else None
    interval = finding.interval if state == "slow" and factor else None
    return {
        "state": state,
        "bottleneck": visible(finding.bottleneck),
        "title": _title(state, finding, workload),
        "gain": _gain(state, factor, interval, finding.provided),
        "factor": factor,
        "provided": finding.provided if factor else "",
        "interval": interval,
        "confidence": finding.confidence,
        "summary": visible(finding.summary),
    }


def _steps(advice: Iterable[str], then: str) -> tuple[str, ...]:
    """Advice, safe to show, without the command that the card's `next` gives anyway."""
    return tuple(
        visible(f"{step.text}.")
        if isinstance(step, Advice) and step.command == then
        else shown_step(step, visible)
        for step in advice
    )


def _also(diagnosis: Diagnosis) -> str:
    """The next cause that would gain SUBSTANCE or more, or without a figure may. A roof is none: it
    says which unit is busy, not with what."""
    rules = load_rules()
    for other in diagnosis.findings[1:]:
        factor, rule = finite(other.speedup), rules.get(other.bottleneck)
        if (rule and rule.ROOF) or max(other.saved, other.weight) < 1 - 1 / SUBSTANCE:
            continue
        gain = f"{gain_text(factor, other.interval)} faster" if factor else "gain not known"
        return f"{_title('slow', other)}, {gain}"
    return ""


def _state(profile: Profile, finding: Finding) -> State:
    if not profile.launch.complete:
        return "incomplete"
    if profile.launch.workload:
        return "together"
    if finding.bottleneck == unknown.ID:
        return "unknown"
    return _state_of(finding)


def _state_of(finding: Finding) -> State:
    """A roof that a condition lifts does not count as one: the card says what to do instead."""
    return "roof" if finding.good and not finding.provided else "slow"


def title_of_finding(finding: Finding) -> str:
    """`Tail effect`, `At the DRAM roof`: a finding in the words of its card."""
    return _title(_state_of(finding), finding)


def _title(state: State, finding: Finding, workload: str = "") -> str:
    if state == "incomplete":
        return "Not measured" if NOT_MEASURED in finding.summary else "Incomplete launch"
    if state == "together":
        return f"A {workload} profiled as one"
    if state == "unknown":
        return "No cause found"
    name = visible(title(finding.bottleneck), NAME)
    unit = figures.small(name.removesuffix(" bandwidth").removesuffix(" pipe"))
    return f"At the {unit} roof" if state == "roof" else name


def _gain(
    state: State, factor: float | None, interval: tuple[float, float] | None, provided: str
) -> str:
    if state == "roof":
        return f"up to {factor_text(factor)} faster" if factor else "little left to gain"
    if state in ("unknown", "incomplete", "together"):
        return "no estimate"
    if not factor:
        return "gain not known"
    if provided:
        return f"{factor_text(factor)} faster if {provided}"
    figure = gain_text(factor, interval)
    ends = f" ({COVERAGE})" if figure != about(factor) else between(interval) if interval else ""
    return f"{figure} faster{ends} if only this is fixed"


def _shape(profile: Profile) -> str:
    launch = profile.launch
    sizes = ("grid", launch.grid), ("block", launch.block)
    parts = [f"{name} {units.extents(size)}" for name, size in sizes if size]
    parts += [f"{launch.registers} registers"] * bool(launch.registers)
    occupancy = profile.value("achieved_occupancy")
    if occupancy is not None:
        parts.append(f"achieved occupancy {whole_percent(occupancy)}")
    return ", ".join(parts)


def _bars(used: Mapping[str, Use], finding: Finding, state: State) -> tuple[UnitBar, ...]:
    """The busiest units, busiest first; among them DRAM, and the unit of the verdict."""
    ranked = sorted(used, key=lambda name: -used[name].busy)
    limit = _limit(used, finding, state)
    # the last places are kept for these two
    kept = [name for name in dict.fromkeys((limit, "dram")) if name in ranked[BARS:]]
    chosen = [*ranked[: BARS - len(kept)], *kept]
    found = [(name, used[name]) for name in sorted(chosen, key=lambda name: -used[name].busy)]
    return tuple(
        UnitBar(name, resource_name(name), x.least and min(x.busy, x.least / (x.of_all or 1.0)), name == limit, x.busy)
        for name, x in found
    )  # fmt: skip


#: Functions of CUDA that launch a kernel, with nvcc's stubs around them.
_LAUNCHES: Final = re.compile(r"(cudaError\w* )?_*(cu(da)?[A-Z]|device_stub)")


def _called(launch: Launch) -> str:
    """`train.py:10 in train_step, called by main, <module>`; the innermost function of the stack that
    is none of CUDA's where no line of the user's is known."""
    frames = [frame for frame in launch.stack if frame.own]
    frames = [frame for frame in frames if frame.python] or frames
    if not frames:
        names = (frame.function for frame in launch.stack if frame.function)
        named = next((name for name in names if not _LAUNCHES.match(name)), "")
        return f"from {visible(named, NAME)}" if named else ""
    first, *above = frames
    name = visible(re.split(r"[/\\]", first.file)[-1], NAME)
    callers = ", ".join(visible(frame.function, NAME) for frame in above[:_CALLERS])
    more = f" and {len(above) - _CALLERS} more" if len(above) > _CALLERS else ""
    by = f", called by {callers}{more}" if above else ""
    return f"{name}:{first.line} in {visible(first.function, NAME)}{by}"


def _limit(used: Mapping[str, Use], finding: Finding, state: State) -> str:
    """The unit that is marked as the limit, in every output; empty where none does.

    It is the one that the verdict is about, where that is BUSY. Where the verdict is about none, it
    is the busiest unit of all, from SUSTAINED of the launch's whole time on: below, units do not
    limit, nor does one that is full in the few cycles of an empty kernel."""
    if state in ("incomplete", "together"):
        return ""
    rule = load_rules().get(finding.bottleneck)
    own = rule.UNITS if rule else ()
    kinds = _KINDS.get(rule.LIMIT, ()) if rule and state == "slow" else ()
    for group in (own, finding.relieves, kinds):
        best = max((n for n in group if n in used), key=lambda n: used[n].busy, default="")
        if best and used[best].busy >= BUSY:
            return best
    best = max(used, key=lambda n: used[n].busy, default="")
    return best if best and used[best].busy * used[best].of_all >= SUSTAINED else ""


def _waits(profile: Profile) -> tuple[Wait, ...]:
    """The largest stall reasons, issuing, and the rest: together the whole of a warp's time."""
    shares = figures.stall_shares(profile)
    if not shares:
        return ()
    ranked = figures.ranked_stalls(profile, "selected")
    most = figures.REASONS
    waits = [Wait(figures.reason_name(reason), share) for reason, share in ranked[:most]]
    waits.append(Wait(figures.reason_name("selected"), shares.get("selected", 0.0)))
    rest = sum(share for _, share in ranked[most:])
    return (*waits, Wait("other", rest)) if rest > 0 else tuple(waits)


def lines_of(profile: Profile, finding: Finding) -> Iterator[CodeLine]:
    """The line that costs most, and the verdict's own where neither that is it nor the line where
    warps wait for it."""
    hottest, waiting = _hottest(profile, finding)
    if hottest is not None:
        yield hottest
    place = next(iter(finding.locations), None)
    if place is not None:
        pointed = _located(profile.sources, place)
        shown = hottest is not None and (
            waiting == pointed.short
            if (pointed.path, pointed.line) != (hottest.path, hottest.line)
            else bool(pointed.path) or pointed.sass == hottest.sass
        )
        if not shown:
            yield pointed


def _hottest(profile: Profile, finding: Finding) -> tuple[CodeLine | None, str]:
    """The source line with most samples, or executed instructions where the report holds too few
    samples; the instruction where it has no lines. None where it has neither.

    Where warps wait there for a result, the line is that of the instruction that produces it, and
    the place where they wait, if another, is the second value; else that is empty."""
    rows = profile.instructions
    weights = [row.sample_count for row in rows]
    sampled = sum(weights) >= figures.MINIMUM_SAMPLES
    if not sampled:  # what runs most is no place to look for a cause of the launch's shape
        shape = load_rules()[finding.bottleneck].FROM_SHAPE
        weights = [0 if shape else row.executed or 0 for row in rows]
    total, counted = sum(weights), weights
    weights = by_cause(rows, weights)
    if not any(weights):
        return None, ""
    lines: dict[tuple[str, int], dict[int, int]] = {}
    for at, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        if weight:
            lines.setdefault(_place(row), {})[at] = weight
    ranked = sorted(lines.values(), key=lambda found: -sum(found.values()))
    code = (x for x in ranked if not closing(profile.sources, *_place(rows[min(x)])))
    own = next(code, ranked[0])
    shown = heaviest = max(own, key=lambda at: own[at])
    parts: list[Part] = [(weight, {at}) for at, weight in own.items()]
    enough = sum(own.values())
    of, waiting, here = "the samples" if sampled else "the executed instructions", "", ""
    if sampled and (late := _late(profile, own, finding)):
        shown, parts = late
        awaited = "this load" if rows[shown].opcode.startswith("LD") else "it"
        if _place(rows[shown]) == _place(rows[heaviest]):
            here, enough = f", mostly waiting for {awaited}", enough // 2
        else:
            row, enough = rows[heaviest], sum(n for n, _ in parts)
            waiting = _line({}, row.file, row.line, _text(row), 0.0, "").short
            of = f"{of}, at {waiting}, which waits for {awaited}"
    row = rows[shown]
    sass = _alone(rows, shown, parts, enough - total // 200)
    if row.file and not row.sass:  # an address tells nothing beside a line
        sass = ""
    if not waiting and (mine := _of_verdict(rows, shown, finding)):
        sass, here = mine, ""
    of += here if sass else ""
    # the same share as in the listing: what was sampled at the line, whatever it is charged to
    there = _place(rows[heaviest])
    near = (x for x in zip(counted, rows, strict=True) if there[1] in (x[1].line, x[1].index))
    share = sum(n for n, each in near if _place(each) == there)
    return _line(profile.sources, row.file, row.line, sass, share / total, of), waiting


def _of_verdict(rows: Sequence[Instruction], shown: int, finding: Finding) -> str:
    """The instruction of the line at `shown` that the verdict names, or the opcode of several.
    Empty where it names none there, several kinds, or the one shown."""
    named = {place.address for place in finding.locations}
    line = [row for row in rows if row.address in named and _place(row) == _place(rows[shown])]
    opcodes = {row.opcode for row in line}
    if len(opcodes) != 1 or rows[shown].opcode in opcodes:
        return ""
    return _text(line[0]) if len(line) == 1 else line[0].opcode


def _place(row: Instruction) -> tuple[str, int]:
    """An instruction's line; the instruction itself where that is not known."""
    return (row.file, row.line) if row.file else ("", row.index)


def _alone(rows: Sequence[Instruction], first: int, parts: Sequence[Part], enough: int) -> str:
    """The instruction that at least `enough` of a line's `parts` are of: `first`, else its opcode,
    where several share them. Empty where they are of several kinds."""
    opcode = rows[first].opcode
    alike = {at for _, several in parts for at in several if rows[at].opcode == opcode}
    for chosen, text in (({first}, _text(rows[first])), (alike, opcode)):
        if sum(n for n, several in parts if several & chosen) >= enough:
            return text
    return ""


def _text(row: Instruction) -> str:
    """An instruction's text; its address where the report leaves the code out."""
    return row.sass or f"+{row.address:#x}"


def _late(
    profile: Profile, own: Mapping[int, int], finding: Finding
) -> tuple[int, list[Part]] | None:
    """The instruction whose late result warps wait for at `own`, the instructions of a line with
    their samples, and those samples that wait for the line of it.

    Of several instructions it is the one that the verdict names, else the one that most samples of
    the kernel wait for. None where less than half of the heaviest instruction's samples, or than
    LATE of the line's, wait for it, and where the verdict names instructions of this kind and none
    with a result."""
    rows = profile.instructions
    index = max(own, key=lambda at: own[at])
    row = rows[index]
    reason = max(attribution.SCOREBOARDS, key=lambda name: row.samples.get(name, 0))
    if 2 * row.samples.get(reason, 0) < row.sample_count:
        return None
    flow = attribution.flow_of(rows)

    def producers(at: int) -> list[int]:
        found = flow.producers(at, attribution.SCOREBOARDS[reason])
        return [each for each in found if _has_result(rows[each].opcode)]

    weights = attribution.weights_by_culprit(profile, reason)
    named = {place.address for place in finding.locations}
    culprits = {each.opcode for each in rows if each.address in named}
    if row.opcode in culprits and not any(map(_has_result, culprits)):
        return None
    best = max(
        producers(index),
        key=lambda at: (rows[at].address in named, weights.get(at, 0.0)),
        default=None,
    )
    if best is None:
        return None
    parts = [
        (n, there)
        for at in own
        if (n := rows[at].samples.get(reason, 0))
        and (there := {each for each in producers(at) if _place(rows[each]) == _place(rows[best])})
    ]
    if sum(n for n, _ in parts) < LATE * sum(own.values()):
        return None
    if not kernel.TOOLKIT.search(rows[best].file):
        return best, parts
    # A wrapper in a header of the CUDA toolkit is no line to change; the wait for it may be.
    wait = index - 1 if index else index
    if attribution.base(rows[wait].opcode) != "DEPBAR":
        return None
    return wait, [(n, {wait}) for n, _ in parts]


def _has_result(opcode: str) -> bool:
    """Whether an instruction brings a result that warps can wait for: a store brings none."""
    kind = attribution.kind(opcode)
    awaited = any(kind in kinds for kinds in attribution.SCOREBOARDS.values())
    return awaited and (kind == "copy" or attribution.base(opcode) not in READS_ONLY)


def _located(sources: Mapping[str, str], place: Location) -> CodeLine:
    return _line(sources, place.file, place.line, place.sass, place.share, place.what)


def _line(
    sources: Mapping[str, str], path: str, line: int, sass: str, share: float, of: str
) -> CodeLine:
    source = sources.get(path, "").splitlines() if path else []
    text = source[line - 1].strip() if 0 < line <= len(source) else ""
    return CodeLine(
        visible(path),
        line if path else 0,
        visible(text, CODE, keep="\t").replace("\t", " "),
        visible(_shown(sass), NAME),
        share,
        visible(of, CODE),
    )


def _shown(sass: str) -> str:
    """An instruction up to its first operand; a branch without its target, an address."""
    words = sass.partition(",")[0].split()
    at = next((at for at, word in enumerate(words) if attribution.base(word) in JUMPS), None)
    return " ".join(words if at is None else words[: at + 1])


def _next(state: State, absent: bool, file: str) -> str:
    """The command to run next; empty where nothing is left to do."""
    if state in ("incomplete", "together"):
        return ""
    if absent:
        return COLLECT
    if state == "slow":
        return f"ncu-toolkit compare {shell_word(file)} after.ncu-rep" if file else ""
    return f"ncu-toolkit analyze {shell_word(file)} --format html" if state == "unknown" else ""


def undecoded(profile: Profile) -> str:
    """That instructions have no text since NVIDIA's module decodes no machine code of this GPU, a
    sentence; empty where they have one."""
    known = (0, 0) < profile.device.cc < attribution.DECODED_SINCE
    if not known or any(row.sass for row in profile.instructions):
        return ""
    return (
        f"The machine code of {profile.device.arch} is not decoded: no instruction is shown."
        * bool(profile.instructions)
    )


def _missing(profile: Profile, absent: tuple[str, ...]) -> str:
    """What the report lacks, or where it contradicts itself or --needs, in one sentence."""
    if not profile.launch.complete:
        return visible(profile.launch.status, CODE)
    if profile.contradictions:
        first, *others = profile.contradictions
        more = f" (and {len(others)} more)" if others else ""
        return f"Figures of this launch cannot be true: {visible(first, CODE)}{more}."
    used = engine.believed(profile)
    if used is not profile:
        return "".join(engine.notes_on_needs(profile, used))
    if profile.launch.workload:
        return ""
    rows = profile.instructions
    lacks = [_INPUTS[name] for name in absent]
    if not rows:
        lacks.append("instructions and source")
    elif not any(row.file for row in rows):
        if how := kernel.line_information(profile):
            lacks.append(f"source lines ({how})")
    elif not profile.sources:
        lacks.append("source text (ncu --import-source yes)")
    if lacks:
        more = f" and {len(lacks) - 4} more" if len(lacks) > 5 else ""
        return f"Not in this report: {', '.join(lacks[: 4 if more else 5])}{more}. {undecoded(profile)}".rstrip()
    if text := undecoded(profile):
        return text
    stack = profile.stalls
    if stack is not None and stack.residual is not None and stack.latency:
        off = stack.residual / stack.latency
        if abs(off) > RESIDUAL:
            return f"The stall reasons add up to {units.percent(1 - off)} of the measured latency."
    return ""
