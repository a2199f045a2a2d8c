"""The page of one launch: a rung at one size, or any launch of anybody's report."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.document.card import Card
from ncu_toolkit.document.views import (
    Cell,
    Chart,
    Fact,
    FindingView,
    Guess,
    PageView,
    Table,
    missing,
    number,
    plain_table,
    shown_size,
    text,
    without_empty,
)
from ncu_toolkit.explain.busy import resource_name, uses
from ncu_toolkit.explain.sections import fact_cell
from ncu_toolkit.model import Diagnosis, Evidence, Finding, Frame, Launch, Profile, Series
from ncu_toolkit.pages.book import Book, Entry, problem_of
from ncu_toolkit.pages.columns import (
    NOT_TIMED,
    cause,
    cause_cell,
    energy_cell,
    gain_cell,
    rate_cell,
)
from ncu_toolkit.pages.folds import folds
from ncu_toolkit.pages.hotspots import hot_spots
from ncu_toolkit.pages.memory_view import memory_view
from ncu_toolkit.pages.page_tables import (
    metrics_table,
    mix_tables,
    occupancy_section,
    rules_table,
    stall_table,
    traffic_table,
)
from ncu_toolkit.pages.reproduce import beside, commands, opening
from ncu_toolkit.pages.static_view import static_view
from ncu_toolkit.pages.step_view import checks_table, step_view
from ncu_toolkit.pages.tune_view import differs

#: Columns of a load over time.
_COLUMNS: Final = 40
Neighbours = tuple[Cell | None, Cell | None]


def page_view(book: Book, profile: Profile, neighbours: Neighbours = (None, None)) -> PageView:
    """Everything the report says of one launch. `neighbours` are the pages before and after where
    the launch is no rung."""
    entry = book.entry_of(profile)
    diagnosis = book.diagnosis(profile)
    compulsory = profile.context.compulsory_bytes if profile.context else None
    used = uses(profile, diagnosis.bounds)
    tables: dict[str, Table] = {}
    charts: dict[str, Chart] = {}
    notes = [note for note in diagnosis.notes if note != profile.launch.status]
    if profile.launch.complete:
        tables["traffic"] = traffic_table(profile, compulsory, used)
        if profile.launch.single:
            tables["occupancy"], studies, steps = occupancy_section(profile)
            tables["next-steps"] = plain_table(
                "next-steps", "", [""], [[text(step)] for step in steps]
            )
            charts |= {chart.key: chart for chart in studies}
        found = mix_tables(profile)
        if found:
            tables["mix"], tables["widths"] = found
        stalls = stall_table(profile)
        if stalls:
            tables["stalls"] = stalls
    rules = rules_table(profile)
    if rules:
        tables["rules"] = rules
    tables["metrics"] = metrics_table(profile)
    previous, following = _neighbours(book, profile) if entry else neighbours
    shown = book.card(profile)
    main = entry if entry and profile is entry.main else None
    step = step_view(main) if main else None
    checks = checks_table(main) if main else None
    measured, facts = _facts(book, profile, entry)
    once = entry is not None and entry.timing is not None and not _which(entry, profile)
    page = PageView(
        slug=book.slugs[id(profile)],
        title=visible(_title(profile, entry)),
        kicker=_kicker(book, profile, entry),
        idea=visible(entry.info.idea) if entry and entry.info else "",
        kind=entry.kind if entry else "",
        facts=tuple(facts),
        measured=tuple(measured),
        card=replace(shown, time_us=None) if once else shown,
        guess=_guess(shown, diagnosis) if entry else None,
        former=f"{entry.info.label} changed after this recording. All figures and the code below are of the older version."
        if entry and entry.info and entry.outdated
        else "",
        findings=tuple(_finding(f) for f in diagnosis.findings),
        considered=_considered(diagnosis),
        notes=tuple(visible(note) for note in notes),
        bounds=_bounds(diagnosis, profile),
        step=step,
        claim=_claim(entry),
        checks=checks,
        signature=_signature(profile, entry),
        tables=tables,
        charts=charts,
        static=static_view(profile, diagnosis) if profile.launch.single else None,
        hotspots=hot_spots(profile, diagnosis.findings, next(iter(shown.where), None)),
        commands=commands(
            book.run, entry.rung if entry else "", entry.variant.size if entry else ""
        )
        + opening(book.run, profile.origin.file),
        files=_files(book, profile),
        siblings=tuple(_siblings(book, profile, entry)),
        previous=previous,
        following=following,
        memory=memory_view(profile, shown, used) if profile.launch.complete else None,
    )
    return replace(page, folds=folds(page, profile))


#: Gains to choose from: up to which factor, in words.
_GAINS = (
    (1.1, "less than 1.1×"),
    (1.5, "1.1× to 1.5×"),
    (3.0, "1.5× to 3×"),
    (float("inf"), "more than 3×"),
)
#: Bottlenecks to choose from, the verdict among them.
_CHOICES = 4


def _guess(shown: Card, diagnosis: Diagnosis) -> Guess | None:
    """What a reader may guess: the verdict among causes that were found too or ruled out, and the
    range that its gain lies in. None where there is no verdict."""
    if shown.state not in ("slow", "roof"):
        return None
    others = [cause(found.bottleneck) for found in diagnosis.findings if not found.good]
    others += [cause(ruled.bottleneck) for ruled in diagnosis.considered]
    names = list(dict.fromkeys(name for name in (shown.title, *others) if name))[:_CHOICES]
    right = next(words for most, words in _GAINS if (shown.factor or 1.0) < most)
    return Guess(
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
    if entry is not None:
        return visible(launch.kernel) if entry.kind == "baseline" else ""
    return "" if launch.kernel == launch.function else visible(launch.kernel)


def _which(entry: Entry, profile: Profile) -> str:
    """Which of the rung's launches this is; empty where it takes one."""
    count = entry.launches.count
    if count == 1:
        return ""
    at, repeats = 1, profile.context.repeat if profile.context else 1
    for other in entry.profiles:
        if other is profile:
            break
        at += other.context.repeat if other.context else 1
    return (
        f"launch {at} of {count}"
        if repeats == 1
        else f"launches {at} to {at + repeats - 1} of {count}, all alike"
    )


def _kicker(book: Book, profile: Profile, entry: Entry | None) -> str:
    if entry is None:
        file = profile.origin.file
        place, count = book.places[id(profile)]
        which = f"Launch {place} of {count}" if count > 1 else "The launch"
        return f"{which} in {visible(file.rsplit('/', 1)[-1])}"
    problem, size = problem_of(entry.family), shown_size(entry.variant.size)
    if problem and entry.info:
        with contextlib.suppress(ToolkitError):  # a size that no rung of this version has
            parsed = problem.parse_size(entry.variant.size)
            worked_on = problem.worked_on(parsed, entry.info.problem)
            size += f" ({worked_on})" if worked_on else ""
    return visible(
        f"{problem.title if problem else entry.family} · size {size} · {entry.variant.dtype}"
    )


def _facts(book: Book, profile: Profile, entry: Entry | None) -> tuple[list[Fact], list[Fact]]:
    """What was timed without the profiler, and all else."""
    launch = profile.launch
    measured: list[Fact] = []
    facts = []
    if entry:
        baseline = entry.baseline_us
        timing = entry.timing
        spread = (
            f"median of {len(timing.times_us)} unprofiled runs, L2 {timing.cache}, spread {units.percent(timing.spread, 2)}"
            if timing
            else ""
        )
        which = _which(entry, profile)
        if which:
            facts.append(Fact("This page", text(f"{which}: {launch.function}")))
            if entry.main and profile is not entry.main:
                spoken = "the launch shown in the ladder's table and steps"
                facts.append(
                    Fact(
                        "Longest launch",
                        text(
                            _which(entry, entry.main),
                            spoken,
                            href=entry.page,
                        ),
                    )
                )
        whole = f"Time of all {entry.launches.count} launches" if which else "Time"
        whole += " without ncu"
        measured += [
            Fact(
                whole, number(timing.median_us if timing else None, "us", NOT_TIMED, title=spread)
            ),
            Fact(
                "Rate of all launches" if which else "Rate",
                rate_cell(entry),
            ),
        ]
        library = entry.baseline
        if baseline and timing and library and library is not entry:
            measured.append(
                Fact(
                    f"Against {visible(library.label)}",
                    number(baseline / timing.median_us, "fraction"),
                )
            )
        if timing and timing.energy_mj is not None:
            facts.append(Fact("Energy", energy_cell(entry)))
        if timing and timing.throttle:
            facts.append(
                Fact(
                    "Throttled while timed",
                    text(
                        timing.throttle, "why the GPU ran below its clock while this rung was timed"
                    ),
                )
            )
        if entry.warm:
            facts.append(Fact("Time, warm L2", number(entry.warm.median_us, "us")))
    under = "profiled time: use it for shares and ratios, not for rates" if entry else "as profiled"
    facts += [
        Fact(
            "Duration under ncu, this launch"
            if entry and _which(entry, profile)
            else "Duration under ncu",
            number(profile.duration_us, "us", figures.fact(profile, "duration").why, title=under),
        ),
        *(_asked_for(launch) if not launch.workload else _inside(launch)),
        Fact("SM clock", fact_cell(profile, "sm_clock", meaning=False)),
    ]
    if launch.cluster > 1:
        facts.append(Fact("Cluster", number(launch.cluster, "count")))
    if entry and entry.parameters:
        facts.append(
            Fact(
                "Parameters", text(", ".join(f"{name} {value}" for name, value in entry.parameters))
            )
        )
        changed = differs(entry.info.parameters if entry.info else {}, dict(entry.parameters))
        if changed:
            how = "chosen by --param, by the kernel's model, or tuned for this GPU and size; the ladder's page then shows the landscape"
            facts.append(Fact("Differs from the header", text(changed, how)))
    if entry and entry.timing:
        facts.append(
            Fact(
                "Verified",
                Cell(
                    f"error {units.percent(entry.timing.verified_worst, 2)} of its bound",
                    entry.timing.verified_worst,
                    "largest |result - reference| over its allowed bound, checked before timing",
                ),
            )
        )
    if entry is None:
        facts += [
            Fact("GPU", text(profile.device.name)),
            Fact(
                "Nsight Compute",
                text(profile.origin.ncu_version)
                if profile.origin.ncu_version
                else missing("not in the report"),
            ),
        ]
        facts += [_over_time(series) for series in profile.timeline]
        if launch.stack:
            facts.append(Fact("Call stack", text(" ← ".join(map(_call, launch.stack)))))
        if launch.process:
            facts.append(Fact("Process", text(str(launch.process))))
        if launch.nvtx:
            facts.append(Fact("NVTX ranges", text(" › ".join(launch.nvtx))))
    if launch.kernel != launch.function:
        facts.append(Fact("Kernel", text(launch.kernel, code=True)))
    return measured, facts


def _asked_for(launch: Launch) -> Iterator[Fact]:
    yield Fact("Grid", _dims(launch.grid))
    yield Fact("Block", _dims(launch.block))
    yield Fact(
        "Registers",
        number(float(launch.registers), "count")
        if launch.registers
        else missing("not in the report"),
    )
    yield Fact(
        "Shared memory",
        number(
            float(launch.shared_static + launch.shared_dynamic),
            "B",
            title=f"static {launch.shared_static}, dynamic {launch.shared_dynamic} bytes per block",
        ),
    )


def _over_time(series: Series) -> Fact:
    """The course of a load, each column the mean of its part of the time."""
    values = series.values
    columns = min(_COLUMNS, len(values))
    bounds = [len(values) * at // columns for at in range(columns + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(bounds)]
    peak = max(means)
    lasts = units.duration(len(values) * series.step_us)
    return Fact(
        f"{series.label[:1].upper()}{series.label[1:]} over time",
        text(
            f"{units.sparkline([0.0, *means])[1:]} up to {units.percent(peak, 2)}",
            f"{lasts} of PM sampling, a sample each {units.duration(series.step_us)}",
        ),
    )


def _call(frame: Frame) -> str:
    name = frame.function or "?"
    return f"{name} ({frame.file}:{frame.line})" if frame.file else name


def _inside(launch: Launch) -> Iterator[Fact]:
    """The launches of a range or graph."""
    found = (f"{name} ×{count}" for name, count in Counter(launch.inside).items())
    yield Fact(
        f"Launches in the {launch.workload}",
        text(", ".join(found)) if launch.inside else missing("not in the report"),
    )


def _dims(extents: tuple[int, int, int]) -> Cell:
    return (
        text(" × ".join(units.count(extent) for extent in extents))
        if all(extents)
        else missing("the launch has none: it is incomplete")
    )


def _claim(entry: Entry | None) -> tuple[Fact, ...]:
    if entry is None or entry.info is None or not entry.info.source.document:
        return ()
    source = entry.info.source
    claim = Fact(
        "Claim",
        text(source.claim) if source.claim else missing("the document has no figure for this rung"),
    )
    return (
        Fact("Source", text(source.document)),
        claim,
        *((Fact("Measured there on", text(source.device)),) if source.device else ()),
    )


def _finding(finding: Finding) -> FindingView:
    gain = gain_cell(finding)
    if not gain.missing and (finding.speedup or 1.0) >= 1.2:
        gain = replace(gain, tone="bad")
    where = None
    if finding.locations:
        rows = [
            [
                number(place.share, "fraction", bar=place.share),
                text(
                    f"{place.file.rsplit('/', 1)[-1]}:{place.line}"
                    if place.file
                    else f"{place.address:#x}",
                    place.file,
                ),
                text(place.sass, code=True),
                text(place.what),
            ]
            for place in finding.locations
        ]
        where = plain_table(
            "where", "Where", ["Share", "Line", "Instruction", "Of what"], rows, numeric=(0,)
        )
    return FindingView(
        cause(finding.bottleneck),
        visible(finding.summary),
        finding.confidence,
        finding.good,
        gain,
        tuple(visible(line) for line in finding.arithmetic),
        tuple(visible(line) for line in finding.advice),
        visible(finding.look_for),
        evidence_table(finding.evidence, "Evidence"),
        where,
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
    rows = [
        [
            text(fact.label, fact.metric),
            number(fact.value, fact.unit),
            _threshold(fact),
            text(fact.meaning),
        ]
        for fact in evidence
    ]
    return without_empty(
        plain_table(
            "evidence",
            caption,
            ["Figure", "Measured", "Threshold", "Meaning"],
            rows,
            numeric=(1, 2),
        )
    )


def _considered(diagnosis: Diagnosis) -> Table | None:
    if not diagnosis.considered:
        return None
    rows = []
    for ruled in diagnosis.considered:
        because = "; ".join(
            [f"{fact.label} {units.quantity(fact.value, fact.unit)}" for fact in ruled.evidence]
            + ([f"needs {', '.join(ruled.missing)}"] if ruled.missing else [])
        )
        rows.append(
            [
                cause_cell(ruled.bottleneck),
                text(ruled.outcome, tone="muted" if ruled.outcome == "abstained" else ""),
                text(ruled.reason),
                text(because or "–"),
            ]
        )
    return plain_table(
        "considered",
        "Considered and not found",
        ["Bottleneck", "Outcome", "Reason", "Because"],
        rows,
    )


def _bounds(diagnosis: Diagnosis, profile: Profile) -> Table | None:
    if not diagnosis.bounds:
        return None
    now = profile.duration_us
    ranked = sorted(diagnosis.bounds.items(), key=lambda item: -item[1])
    rows = [
        [
            Cell(resource_name(name), name.replace("_", " ")),
            number(value, "us"),
            number(
                value / now if now else None,
                "fraction",
                "the launch has no duration",
                bar=value / now if now else None,
            ),
        ]
        for name, value in ranked
    ]
    note = (
        "The least time that each resource needs for this launch's work. The launch takes at least the longest of these."
        + (f" It took {units.duration(now)} under ncu." if now else "")
    )
    return plain_table(
        "bounds",
        "Lower bounds of the time model",
        ["Resource", "At least", "Share of the time"],
        rows,
        numeric=(1, 2),
        note=note,
    )


def _files(book: Book, profile: Profile) -> tuple[Fact, ...]:
    """The raw report, linked only where it lies beside the page."""
    name = profile.origin.file
    key = Cell(
        f"range {profile.origin.range_index}, launch {profile.origin.action_index}",
        profile.origin.key,
    )
    return (
        Fact("Report file", text(name, href=name if beside(book.run, name) else "")),
        Fact("Place in it", key),
    )


def _siblings(book: Book, profile: Profile, entry: Entry | None) -> list[Fact]:
    if entry is None:
        return []
    links = []
    for other in book.entries:
        if (
            other.family == entry.family
            and other.rung == entry.rung
            and other.main
            and other is not entry
        ):
            links.append(
                Fact(
                    "Other size",
                    text(
                        f"{shown_size(other.variant.size)} {other.variant.dtype}",
                        href=other.page,
                    ),
                )
            )
    for index, launch in enumerate(entry.profiles):
        if launch is not profile:
            links.append(
                Fact(
                    "Other launch",
                    text(
                        f"{index + 1}: {launch.launch.function}",
                        href=book.page(launch),
                    ),
                )
            )
    return links


def _neighbours(book: Book, profile: Profile) -> Neighbours:
    """Links along the ladder at the same size."""
    entry = book.entry_of(profile)
    if entry is None:
        return None, None
    pages = [other for other in book.families[entry.family][entry.variant] if other.main]
    at = next((i for i, other in enumerate(pages) if other is entry), None)
    if at is None:
        return None, None
    before, after = pages[at - 1] if at else None, pages[at + 1] if at + 1 < len(pages) else None
    return page_link(book, before.label, before.main) if before else None, page_link(
        book, after.label, after.main
    ) if after else None


def page_link(book: Book, label: str, profile: Profile | None) -> Cell | None:
    """A link to a launch's page."""
    return Cell(visible(label, 60), None, "", book.page(profile)) if profile else None
