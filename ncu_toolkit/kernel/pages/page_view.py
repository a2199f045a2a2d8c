"""The page of one launch: a rung at one size, or any launch of anybody's report."""

import contextlib
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.document.tables import (
    Cell,
    Spec,
    Table,
    Tone,
    missing,
    number,
    table,
    text,
    without_empty,
)
from ncu_toolkit.base.document.views import (
    Command,
    Fact,
    FindingView,
    Fold,
    PageView,
    Question,
    shown_size,
)
from ncu_toolkit.base.metrics.registry import REGISTRY
from ncu_toolkit.base.model import (
    Diagnosis,
    Evidence,
    Finding,
    Frame,
    Location,
    NoFinding,
    Profile,
    RuleMessage,
)
from ncu_toolkit.base.model.profile import Extents, shown_step
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.diagnosis import expectations, figures
from ncu_toolkit.kernel.explain.code import registers, static_parts
from ncu_toolkit.kernel.explain.sections import (
    cause,
    cause_cell,
    fact_cell,
    fact_label,
    gain_cell,
    over_time,
    resource_name,
    roof_plot,
    spec,
    uses,
)
from ncu_toolkit.kernel.pages.book import Book, Entry, problem_of
from ncu_toolkit.kernel.pages.code_folds import code_fold, instruction_fold, stall_fold
from ncu_toolkit.kernel.pages.columns import NOT_TIMED, energy_cell, rate_cell
from ncu_toolkit.kernel.pages.step_view import step_fold
from ncu_toolkit.kernel.pages.unit_folds import memory_fold, occupancy_fold

Neighbours = tuple[Cell | None, Cell | None]
NOT_FOUND: Final = "Considered and not found"


def page_view(book: Book, profile: Profile, neighbours: Neighbours = (None, None)) -> PageView:
    """Everything the report says of one launch. `neighbours` are the pages before and after where
    the launch is no rung."""
    entry = book.entry_of(profile)
    info, which = (entry.info, _which(entry, profile)) if entry else (None, "")
    shown, diagnosis = book.card(profile), book.diagnosis(profile)
    measured, facts = _facts(book, profile, entry)
    previous, following = _neighbours(book, entry) if entry else neighbours
    once = entry is not None and entry.timing is not None and not which
    step = step_fold(entry) if entry and profile is entry.main else None
    folds = _folds(book, profile, entry, step, facts)
    return PageView(
        slug=book.slugs[id(profile)],
        title=visible(_title(profile, entry)),
        kicker=_kicker(book, profile, entry),
        card=replace(shown, time_us=None) if once else shown,
        folds=tuple(fold for fold in folds if fold is not None),
        idea=visible(info.idea) if info and not step else "",
        kind=entry.kind if entry else "",
        signature=_signature(profile, entry),
        former=f"{info.label} changed since this recording. All figures and the code below are from the older version."
        if info and entry and entry.outdated
        else "",
        guess=_guess(shown, diagnosis) if entry else None,
        measured=tuple(measured),
        siblings=tuple(_siblings(book, profile, entry)) if entry else (),
        roofs=roof_plot((profile, shown, diagnosis.bounds)) if profile.launch.single else None,
        previous=previous,
        following=following,
    )


def _folds(
    book: Book, profile: Profile, entry: Entry | None, step: Fold | None, facts: list[Fact]
) -> Iterator[Fold | None]:
    diagnosis, shown, launch = book.diagnosis(profile), book.card(profile), profile.launch
    if launch.complete and (loads := over_time(profile)):
        line = units.listed([row[0].text for row in loads.rows])
        yield Fold("over-time-section", "Over time", line, (("bare", loads),), open=True)
    yield code_fold(profile, diagnosis.findings, next(iter(shown.where), None))
    yield step
    checks = checks_table(entry) if entry and profile is entry.main else None
    if checks:
        line = f"{units.counted(len(checks.rows), 'prediction')} from the kernel's header"
        yield Fold("expected", "Expected", line, (("bare", checks),), spoils=True)
    if launch.complete:
        yield memory_fold(profile, shown, uses(profile, diagnosis.bounds))
        yield stall_fold(profile)
    yield instruction_fold(profile, static_parts(profile, diagnosis) if launch.single else ())
    if launch.complete and launch.single:
        yield occupancy_fold(profile)
    yield _evidence(diagnosis, profile, shown)
    yield _considered(diagnosis)
    if profile.rules:
        line = units.counted(len(profile.rules), "message")
        rules = rules_table(profile)
        yield Fold("rule-section", "Nsight's rules", line, (("bare", rules),), spoils=True)
    metrics, claim = metrics_table(profile), _claim(entry)
    parts = [("facts", facts), *([("claim", claim)] if claim else []), ("bare", metrics)]
    yield Fold("figures", "All figures", units.counted(len(metrics.rows), "figure"), tuple(parts))
    size = entry.variant.size if entry else ""
    typed = commands(book.run, entry.rung if entry else "", size)
    typed += opening(book.run, profile.origin.file)
    how = (*(("command", command) for command in typed), ("files", _files(book, profile)))
    yield Fold("reproduce", "Reproduce", units.counted(len(typed), "command"), how)


#: Gains to choose from: up to which factor, in words.
_GAINS: Final = (
    (1.1, "less than 1.1×"),
    (1.5, "1.1× to 1.5×"),
    (3.0, "1.5× to 3×"),
    (float("inf"), "more than 3×"),
)
#: Bottlenecks to choose from, the verdict among them.
_CHOICES: Final = 4


def _guess(shown: Card, diagnosis: Diagnosis) -> Question | None:
    """What a reader may guess: the verdict among causes that were found too or ruled out, and the
    range that its gain lies in. None where there is no verdict."""
    if shown.state not in ("slow", "roof"):
        return None
    others = [cause(found.bottleneck) for found in diagnosis.findings if not found.good]
    others += [cause(ruled.bottleneck) for ruled in diagnosis.considered]
    names = list(dict.fromkeys(name for name in (shown.title, *others) if name))[:_CHOICES]
    right = next(words for most, words in _GAINS if (shown.factor or 1.0) < most)
    return Question(
        tuple((name, name == shown.title) for name in sorted(names)),
        tuple((words, words == right) for _, words in _GAINS),
    )


def _title(profile: Profile, entry: Entry | None) -> str:
    if entry is None:
        return profile.launch.function
    which, title = _which(entry, profile), entry.info.title if entry.info else ""
    if not title.lower().startswith(entry.label.lower()):  # "Naive: ..." names the rung itself
        title = f"{entry.label}: {title}" if title else entry.label
    return f"{title} ({which})" if which else title


def _signature(profile: Profile, entry: Entry | None) -> str:
    """The kernel's full name where the title is a shorter one, or a library's in our words."""
    launch = profile.launch
    named = entry.kind != "baseline" if entry else launch.kernel == launch.function
    return "" if named else visible(launch.kernel)


def _which(entry: Entry, profile: Profile) -> str:
    """Which of the rung's launches this is; empty where it takes one."""
    count = entry.launches.count
    if count == 1:
        return ""
    repeats = [each.context.repeat if each.context else 1 for each in entry.profiles]
    place = next((n for n, each in enumerate(entry.profiles) if each is profile), len(repeats))
    at, repeat = 1 + sum(repeats[:place]), profile.context.repeat if profile.context else 1
    if repeat == 1:
        return f"launch {at} of {count}"
    return f"launches {at} to {at + repeat - 1} of {count}, all alike"


def _kicker(book: Book, profile: Profile, entry: Entry | None) -> str:
    if entry is None:
        file = profile.origin.file
        place, count = book.places[id(profile)]
        which = f"Launch {place} of {count}" if count > 1 else "The launch"
        return f"{which} in {visible(file.rsplit('/', 1)[-1])}"
    problem, size = problem_of(entry.family), shown_size(entry.variant.size)
    if problem and entry.info:
        with contextlib.suppress(ToolkitError):  # a size that no rung of this version has
            case = problem.case(entry.variant.size, None, entry.info.problem)
            worked_on = problem.worked_on(case)
            size += f" ({worked_on})" if worked_on else ""
    return visible(
        f"{problem.title if problem else entry.family} · size {size} · {entry.variant.dtype}"
    )


def _facts(book: Book, profile: Profile, entry: Entry | None) -> tuple[list[Fact], list[Fact]]:
    """What was timed without the profiler, and all else."""
    launch = profile.launch
    measured, facts = _timed(profile, entry) if entry else ([], [])
    which = _which(entry, profile) if entry else ""
    under = "profiled time: use it for shares and ratios, not for rates" if entry else "as profiled"
    why = figures.fact(profile, "duration").why
    facts += [
        Fact(
            "Duration under ncu, this launch" if which else "Duration under ncu",
            number(profile.duration_us, "us", why, title=under),
        ),
        *(_inside(profile) if launch.workload else _requested(profile)),
        Fact("SM clock", fact_cell(profile, "sm_clock", meaning=False)),
    ]
    if launch.cluster > 1:
        facts.append(Fact("Cluster", number(launch.cluster, "count")))
    facts += _of_rung(entry) if entry else _of_report(profile)
    if launch.kernel != launch.function:
        facts.append(Fact("Kernel", text(launch.kernel, code=True)))
    return measured, facts


def _timed(profile: Profile, entry: Entry) -> tuple[list[Fact], list[Fact]]:
    """What was timed of a rung, and what that time is of."""
    timing = entry.timing
    which, facts, spread = _which(entry, profile), [], ""
    if which:
        facts.append(Fact("This page", text(f"{which}: {profile.launch.function}")))
        if entry.main and profile is not entry.main:
            spoken = "the launch shown in the ladder's table and steps"
            longest = text(_which(entry, entry.main), spoken, href=entry.page)
            facts.append(Fact("Longest launch", longest))
    if timing:
        spread = f"median of {len(timing.times_us)} unprofiled runs, L2 {timing.cache}, spread {units.percent(timing.spread, 2)}"
    whole = f"Time of all {entry.launches.count} launches" if which else "Time"
    time = number(timing.median_us if timing else None, "us", NOT_TIMED, title=spread)
    measured = [
        Fact(f"{whole} without ncu", time),
        Fact("Rate of all launches" if which else "Rate", rate_cell(entry)),
    ]
    baseline, library = entry.baseline_us, entry.baseline
    if baseline and timing and library and library is not entry:
        share = number(baseline / timing.median_us, "fraction")
        measured.append(Fact(f"Against {visible(library.label)}", share))
    if timing and timing.energy_mj is not None:
        facts.append(Fact("Energy", energy_cell(entry)))
    if timing and timing.throttle:
        why = "why the GPU ran below its clock while this rung was timed"
        facts.append(Fact("Throttled while timed", text(timing.throttle, why)))
    if entry.warm:
        facts.append(Fact("Time, warm L2", number(entry.warm.median_us, "us")))
    return measured, facts


def _requested(profile: Profile) -> Iterator[Fact]:
    launch = profile.launch
    yield Fact("Grid", _dims(launch.grid))
    yield Fact("Block", _dims(launch.block))
    yield registers(profile)
    title = f"static {launch.shared_static}, dynamic {launch.shared_dynamic} bytes per block"
    yield Fact("Shared memory", number(launch.shared, "B", "not in the report", title=title))


def _inside(profile: Profile) -> Iterator[Fact]:
    """The launches of a range or graph."""
    launch = profile.launch
    found = ", ".join(f"{name} ×{count}" for name, count in Counter(launch.inside).items())
    cell = text(found) if launch.inside else missing("not in the report")
    yield Fact(f"Launches in the {launch.workload}", cell)


def _of_rung(entry: Entry) -> Iterator[Fact]:
    if entry.parameters:
        given = ", ".join(f"{name} {value}" for name, value in entry.parameters)
        yield Fact("Parameters", text(given))
        changed = _differs(entry.info.parameters if entry.info else {}, dict(entry.parameters))
        if changed:
            how = "chosen by --param, by the kernel's model, or tuned for this GPU and size; the ladder's page then shows the landscape"
            yield Fact("Differs from the header", text(changed, how))
    if entry.timing:
        worst = entry.timing.verified_worst
        how = "largest |result - reference| over its allowed bound, checked before timing"
        yield Fact("Verified", Cell(f"error {units.percent(worst, 2)} of its bound", worst, how))


def _of_report(profile: Profile) -> Iterator[Fact]:
    launch, version = profile.launch, profile.origin.ncu_version
    yield Fact("GPU", text(profile.device.name))
    yield Fact("Nsight Compute", text(version) if version else missing("not in the report"))
    if launch.stack:
        yield Fact("Call stack", text(" ← ".join(map(_call, launch.stack))))
    if launch.process:
        yield Fact("Process", text(str(launch.process)))
    if launch.nvtx:
        yield Fact("NVTX ranges", text(" › ".join(launch.nvtx)))


def _call(frame: Frame) -> str:
    name = frame.function or "?"
    return f"{name} ({frame.file}:{frame.line})" if frame.file else name


def _dims(extents: Extents | None) -> Cell:
    if extents is None:
        return missing("the launch has none: it is incomplete")
    return text(" × ".join(map(units.count, extents)))


def _claim(entry: Entry | None) -> tuple[Fact, ...]:
    if entry is None or entry.info is None or not entry.info.source.document:
        return ()
    source = entry.info.source
    none = missing("the document has no figure for this rung")
    where = (Fact("Measured there on", text(source.device)),) if source.device else ()
    claim = Fact("Claim", text(source.claim) if source.claim else none)
    return (Fact("Source", text(source.document)), claim, *where)


def _evidence(diagnosis: Diagnosis, profile: Profile, shown: Card) -> Fold | None:
    """Why the verdict is what it is, and the other causes found."""
    if not diagnosis.findings:
        return None
    advise = shown.state != "roof"
    first, *others = (_finding(found, advise) for found in diagnosis.findings)
    line = units.counted(len(first.evidence.rows), "figure")
    line += f", {units.counted(len(others), 'other cause')}" if others else ""
    notes = [note for note in diagnosis.notes if note != profile.launch.status]
    parts: list[tuple[str, Any]] = [("finding", first), *(("note", visible(n)) for n in notes)]
    parts += [("heading", "Other causes found"), ("causes", others)] if others else []
    bounds = _bounds(diagnosis, profile)
    parts += [("table", bounds)] if bounds else []
    return Fold("verdict", "Evidence", line, tuple(parts), spoils=True)


def _finding(finding: Finding, advise: bool) -> FindingView:
    gain = gain_cell(finding)
    if not gain.missing and (finding.speedup or 1.0) >= 1.2:
        gain = replace(gain, tone="bad")

    def where(place: Location) -> Cell:
        line = (
            f"{place.file.rsplit('/', 1)[-1]}:{place.line}" if place.file else f"{place.address:#x}"
        )
        return text(line, place.file)

    specs: list[Spec[Location]] = [
        spec("Share", lambda place: number(place.share, "fraction", bar=place.share)),
        spec("Line", where, words=True),
        spec("Instruction", lambda place: text(place.sass, code=True), words=True),
        spec("Of what", lambda place: text(place.what), words=True),
    ]
    return FindingView(
        cause(finding.bottleneck),
        visible(finding.summary),
        finding.confidence,
        finding.good,
        gain,
        tuple(map(visible, finding.arithmetic)),
        tuple(shown_step(step, visible) for step in finding.advice) if advise else (),
        visible(finding.look_for) if advise else "",
        evidence_table(finding.evidence, "Evidence"),
        table("Where", specs, finding.locations, key="where") if finding.locations else None,
    )


def _threshold(fact: Evidence) -> Cell:
    """The threshold of a fact, and whether what was measured meets it."""
    if fact.threshold is None or not fact.comparison:
        return Cell("–", None, "no threshold, for information", tone="muted")
    met = fact.holds
    words = f"{fact.comparison.replace('>=', '≥').replace('<=', '≤')} {units.quantity(fact.threshold, fact.unit)}: {'met' if met else 'not met'}"
    return Cell(words, fact.threshold, visible(fact.source), tone="" if met else "muted")


def evidence_table(evidence: tuple[Evidence, ...], caption: str) -> Table:
    """Measured facts with what they mean, the threshold of each, and whether it is met: not every
    fact of a finding need be."""
    specs: list[Spec[Evidence]] = [
        spec("Figure", lambda fact: text(fact.label, fact.metric), words=True),
        spec("Measured", lambda fact: number(fact.value, fact.unit)),
        spec("Threshold", _threshold),
        spec("Meaning", lambda fact: text(fact.meaning), words=True),
    ]
    return without_empty(table(caption, specs, evidence, key="evidence"))


def _considered(diagnosis: Diagnosis) -> Fold | None:
    ruled_out = diagnosis.considered
    if not ruled_out:
        return None
    skipped = sum(ruled.outcome == "abstained" for ruled in ruled_out)
    line = f"{units.counted(len(ruled_out) - skipped, 'cause')} checked"
    line += f", {skipped} skipped for lack of data" if skipped else ""
    parts = (("table", considered_table("Bottleneck", cause_cell, ruled_out)),)
    return Fold("ruled-out", NOT_FOUND, line, parts, spoils=True)


def considered_table(
    what: str, named: Callable[[str], Cell], ruled_out: Sequence[NoFinding]
) -> Table:
    """Causes that were not found and why; `named` names one in the column `what`."""

    def because(ruled: NoFinding) -> Cell:
        facts = [f"{fact.label} {units.quantity(fact.value, fact.unit)}" for fact in ruled.evidence]
        needs = [f"needs {', '.join(ruled.missing)}"] if ruled.missing else []
        return text("; ".join(facts + needs) or "–")

    def outcome(ruled: NoFinding) -> Cell:
        return text(ruled.outcome, tone="muted" if ruled.outcome == "abstained" else "")

    specs: list[Spec[NoFinding]] = [
        spec(what, lambda ruled: named(ruled.bottleneck), words=True),
        spec("Outcome", outcome, words=True),
        spec("Reason", lambda ruled: text(ruled.reason), words=True),
        spec("Because", because, words=True),
    ]
    return table(NOT_FOUND, specs, ruled_out, key="considered")


def _bounds(diagnosis: Diagnosis, profile: Profile) -> Table | None:
    if not diagnosis.bounds:
        return None
    now = profile.duration_us

    def share(bound: tuple[str, float]) -> Cell:
        part = bound[1] / now if now else None
        return number(part, "fraction", "the launch has no duration", bar=part)

    specs: list[Spec[tuple[str, float]]] = [
        spec("Resource", lambda b: Cell(resource_name(b[0]), b[0].replace("_", " ")), words=True),
        spec("At least", lambda bound: number(bound[1], "us")),
        spec("Share of the time", share),
    ]
    note = "The minimum time that each resource needs for this launch's work. The launch takes at least the longest of these."
    note += f" It took {units.duration(now)} under ncu." if now else ""
    ranked = sorted(diagnosis.bounds.items(), key=lambda item: -item[1])
    return table("Lower bounds of the time model", specs, ranked, note, "bounds")


_OUTCOMES: Final[dict[bool | None, tuple[str, Tone]]] = {
    True: ("holds", "good"), False: ("does not hold", "bad"), None: ("not known", "muted"),
}  # fmt: skip


def checks_table(entry: Entry) -> Table | None:
    """Expected and measured for one rung, and what its header says where the two disagree. None
    where the header expects nothing."""
    if entry.info is None:
        return None
    found = outcomes(entry)
    if not found and not entry.info.measured:
        return None

    def word(check: expectations.Outcome) -> Cell:
        sentence, tone = _OUTCOMES[check.passed]
        return text(sentence, check.reason, tone=tone)

    specs: list[Spec[expectations.Outcome]] = [
        spec("Expected", lambda check: text(check.says), words=True),
        spec("Outcome", word, words=True),
        spec("Check", lambda check: text(check.check, code=True), words=True),
        spec("Measured", lambda check: text(check.reason or check.measured or "–"), words=True),
    ]
    note = " ".join(
        f"Measured on {visible(each.gpu)}: {visible(each.says)}" for each in entry.info.measured
    )
    return table("Expected and measured", specs, found, note, "checks")


def outcomes(entry: Entry) -> tuple[expectations.Outcome, ...]:
    """The checks of an entry's header; none where its rung is in no ladder."""
    if entry.info is None:
        return ()
    before = entry.before.launches if entry.before else None
    return expectations.checks_of(entry.info, entry.variant.size, entry.launches, before)


def _files(book: Book, profile: Profile) -> tuple[Fact, ...]:
    """The raw report, linked only where it is next to the page."""
    origin = profile.origin
    place = f"range {origin.range_index}, launch {origin.action_index}"
    href = origin.file if beside(book.run, origin.file) else ""
    return (
        Fact("Report file", text(origin.file, href=href)),
        Fact("Place in it", Cell(place, origin.key)),
    )


def _siblings(book: Book, profile: Profile, entry: Entry) -> Iterator[Fact]:
    for other in book.entries:
        same = (other.family, other.rung) == (entry.family, entry.rung)
        if same and other.main and other is not entry:
            size = f"{shown_size(other.variant.size)} {other.variant.dtype}"
            yield Fact("Other size", text(size, href=other.page))
    for index, launch in enumerate(entry.profiles, 1):
        if launch is not profile:
            name = f"{index}: {launch.launch.function}"
            yield Fact("Other launch", text(name, href=book.page(launch)))


def _neighbours(book: Book, entry: Entry) -> Neighbours:
    """Links along the ladder at the same size."""
    pages = [other for other in book.families[entry.family][entry.variant] if other.main]
    at = next((i for i, other in enumerate(pages) if other is entry), None)
    if at is None:
        return None, None
    before, after = pages[at - 1] if at else None, pages[at + 1] if at + 1 < len(pages) else None
    return (
        page_link(book, before.label, before.main) if before else None,
        page_link(book, after.label, after.main) if after else None,
    )


def page_link(book: Book, label: str, profile: Profile | None) -> Cell | None:
    """A link to a launch's page."""
    return Cell(visible(label, 60), None, "", book.page(profile)) if profile else None


#: A section folder of which scrubbing left the last component. Ours is always given first, Nsight
#: Compute's own behind it.
_SECTIONS: Final = re.compile(r"(?<=--section-folder )sections(?=\s|$)")
#: The list of cases that a ladder's run writes next to its report. A recording comes without it.
_PLAN: Final = re.compile(r"(?<=\.target )[\w.-]+\.json(?=\s|$)")
_MEANT: Final = {
    "$NCU_TOOLKIT": "$NCU_TOOLKIT is the folder of ncu-toolkit's checkout",
    "$NSIGHT_COMPUTE": "$NSIGHT_COMPUTE the folder of Nsight Compute, such as /opt/nvidia/nsight-compute/2025.3.1",
    "$PLAN": "$PLAN the list of kernels and sizes, which `ncu-toolkit profile` writes next to its report",
}


def commands(run: Run, rung: str = "", size: str = "") -> tuple[Command, ...]:
    """How to profile a rung again (where one is named), and what was run."""
    again = "Profile it again, on a machine with a GPU:"
    typed = f"ncu-toolkit profile --kernel {rung} --size {size}"
    found = [Command(again, typed)] if rung else []
    for command in run.commands:
        typed = command if run.live else _typed(command)
        names = (name for name in _MEANT if name in typed and name not in command)
        meant = "; ".join(map(_MEANT.__getitem__, names))
        ncu = command.split(" ", 1)[0].rsplit("/", 1)[-1] == "ncu"
        what = "Nsight Compute was run like this" if ncu else "This was run"
        words = f"{what}. {meant[:1].upper()}{meant[1:]}." if meant else f"{what}:"
        repeated = any(before.what == words for before in found)
        found.append(Command("Then:" if repeated else words, visible(typed, keep="\n")))
    return tuple(found)


def _typed(command: str) -> str:
    """A recorded command with what scrubbing took from its paths put back by name."""
    others = ["$NSIGHT_COMPUTE/sections"] * command.count("--section-folder ")
    folders = iter(("$NCU_TOOLKIT/sections", *others))
    return _PLAN.sub("$PLAN", _SECTIONS.sub(lambda _: next(folders), command))


def beside(run: Run, name: str) -> bool:
    """Whether a raw report is next to the pages; a name from a report never becomes a path."""
    return name in run.report_files and not name.startswith(".") and not {"/", "\\"} & {*name}


def opening(run: Run, name: str) -> tuple[Command, ...]:
    """How to open a report in the Nsight Compute GUI, which reads no packed files. Nothing where it
    is not next to the pages."""
    if not beside(run, name):
        return ()
    opened = f"ncu-ui {shlex.quote(visible(name.removesuffix('.xz')))}"
    what = "open it in the Nsight Compute GUI:"
    if not name.endswith(".xz"):
        return (Command(what.replace("open it", "Open the report"), opened),)
    unpack = f"xz --decompress --keep {shlex.quote(visible(name))}"
    what = f"Unpack the report (this keeps the packed one), and {what}"
    return (Command(what, f"{unpack}\n{opened}"),)


def rules_table(profile: Profile) -> Table:
    """Nsight Compute's own rule messages as the report holds them."""

    def message(rule: RuleMessage) -> Cell:
        return text(
            " ".join(f"{rule.title}: {rule.text}".split() if rule.title else rule.text.split())
        )

    def gain(rule: RuleMessage) -> Cell:
        part = rule.speedup / 100 if rule.speedup is not None else None
        return number(part, "fraction", "the rule gives no estimate")

    specs: list[Spec[RuleMessage]] = [
        spec("Rule", lambda rule: text(rule.rule), words=True),
        spec("Message", message, words=True),
        spec("Kind", lambda rule: text(rule.kind), words=True),
        spec("Estimate", gain, "Nsight Compute's estimated gain"),
        spec("Scope", lambda rule: text(rule.scope or "–"), words=True),
    ]
    ranked = sorted(profile.rules, key=lambda rule: -(rule.speedup or 0.0))
    return table("Messages of Nsight Compute's own rules", specs, ranked, key="rules")


def metrics_table(profile: Profile) -> Table:
    """Every registry metric with its value or the reason why there is none."""
    specs: list[Spec[str]] = [
        spec("Figure", fact_label, words=True),
        spec("Value", lambda name: fact_cell(profile, name, meaning=False)),
        spec(
            "Nsight Compute's name", lambda name: text(REGISTRY[name].ncu[0], code=True), words=True
        ),
    ]
    return table("All figures read from the report", specs, list(REGISTRY), key="metrics")


def _differs(own: Mapping[str, int], parameters: Mapping[str, int]) -> str:
    """What a setting has otherwise than its header, in words; "" for nothing."""
    return ", ".join(
        f"{name} {value} (header {own[name]})"
        for name, value in parameters.items()
        if name in own and own[name] != value
    )
