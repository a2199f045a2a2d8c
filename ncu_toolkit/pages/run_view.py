"""A run as a view: its header, its ladders, launches that are no rung, predictions and
achievements, and a page for each launch."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from ncu_toolkit.analysis.analyze import typical
from ncu_toolkit.analysis.answers import chained, told_apart
from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import chain
from ncu_toolkit.document.answer import CARDS, Kind, answer
from ncu_toolkit.document.card import kernel_name
from ncu_toolkit.document.views import (
    Answer,
    Cell,
    Column,
    Fact,
    FamilyView,
    LaunchRecord,
    RunView,
    Table,
    missing,
    number,
    plain_table,
    text,
)
from ncu_toolkit.explain.sections import fact_cell
from ncu_toolkit.metrics.registry import READ_ONLY, REGISTRY
from ncu_toolkit.model import Presence, Profile
from ncu_toolkit.pages.book import Book
from ncu_toolkit.pages.calibration_view import calibration, predictions
from ncu_toolkit.pages.columns import gain_cell, verdict_cell
from ncu_toolkit.pages.family_view import family_view
from ncu_toolkit.pages.folds import plural
from ncu_toolkit.pages.page_view import Neighbours, page_link, page_view
from ncu_toolkit.pages.pictures import saved_us, savings
from ncu_toolkit.pages.reproduce import beside, commands, opening
from ncu_toolkit.report import missed

#: The fact of a run that only launches of some kernels were chosen.
FILTER: Final = "Filter"

#: Groups of launches listed in the table of launches that are no rung, longest first; the rest are
#: counted in its note.
GROUPS_SHOWN: Final = 2_000
#: Launches that get a page: beyond this, the longest of each group first.
PAGES: Final = 400


def run_view(book: Book) -> RunView:
    """The whole run with its pages."""
    return replace(
        run_summary(book),
        pages=tuple(page_view(book, profile, around) for profile, around in with_neighbours(book)),
    )


def with_neighbours(book: Book) -> list[tuple[Profile, Neighbours]]:
    """The launches that get a page, those that are no rung with links to the pages before and
    after."""
    shown = paged(book)
    strangers = [profile for profile in shown if book.entry_of(profile) is None]
    links = {
        id(profile): page_link(book, profile.launch.function, profile) for profile in strangers
    }
    around: dict[int, Neighbours] = {}
    for index, profile in enumerate(strangers):
        before, after = strangers[max(0, index - 1)], strangers[min(index + 1, len(strangers) - 1)]
        around[id(profile)] = (
            None if before is profile else links[id(before)],
            None if after is profile else links[id(after)],
        )
    return [(profile, around.get(id(profile), (None, None))) for profile in shown]


def run_summary(book: Book) -> RunView:
    """The whole run without the pages of its launches."""
    run = book.run
    families = tuple(family_view(book, name) for name in book.families)
    with_page = {book.slugs[id(profile)] for profile in paged(book)}
    judged = calibration(book)
    answered, card_pages = others(book), tuple(_card_pages(book, with_page))
    return RunView(
        visible(run.id),
        _title(book, families),
        visible(run.created),
        run.live,
        tuple(header(book)),
        answered,
        savings(_kinds(book), card_pages),
        card_pages[: len(answered.cards) if answered else 0],
        families,
        _launches(book),
        _order(book, with_page),
        skipped(book),
        (judged,) if judged else (),
        predictions(judged) if judged else None,
        _costs(book),
        (
            *commands(run),
            *(command for name in run.report_files[:1] for command in opening(run, name)),
        ),
        tuple(_files(book)),
        (),
        tuple(_record(book, profile, with_page) for profile in run.profiles),
    )


def _title(book: Book, families: Sequence[FamilyView]) -> str:
    """What a run is called: by the ladder that it climbs, where it is one."""
    if len(families) == 1 and not book.strangers:
        return f"{families[0].title} on {visible(book.run.device.name)}"
    return visible(book.run.title)


def paged(book: Book) -> list[Profile]:
    """The launches that get a page: every rung's, and of other launches one of each group before
    the repeats, longest first, up to PAGES."""
    rungs = [profile for entry in book.entries for profile in entry.profiles]
    first: list[Profile] = []
    repeats: list[Profile] = []
    for group in _groups(book):
        first.append(group[0])
        repeats.extend(group[1:])
    chosen = {id(profile) for profile in (first + repeats)[:PAGES]}
    return rungs + [profile for profile in book.strangers if id(profile) in chosen]


def _groups(book: Book) -> list[list[Profile]]:
    """Launches that are no rung by kernel, grid and block: the group with most time first, its
    typical launch in front."""
    groups: dict[tuple[Any, ...], list[Profile]] = {}
    for profile in book.strangers:
        launch = profile.launch
        groups.setdefault(
            (profile.origin.file, launch.kernel, launch.grid, launch.block, launch.status), []
        ).append(profile)
    ordered = []
    for members in groups.values():
        middle = members[typical([profile.duration_us for profile in members])]
        ordered.append([middle, *(profile for profile in members if profile is not middle)])
    return sorted(
        ordered, key=lambda members: -sum(profile.duration_us or 0.0 for profile in members)
    )


def others(book: Book) -> Answer | None:
    """The answer to the launches that are no rung; None where there are none."""
    groups = _groups(book)
    if not groups:
        return None
    notes = []
    for members in groups:
        launch = members[0].launch
        if not launch.complete:
            counted = f" ({plural(len(members), 'launch', 'launches')})" if members[1:] else ""
            notes.append(visible(f"{launch.status}: {launch.function}{counted}"))
    return replace(answer(_kinds(book), notes), points=tuple(_chains(book))[:CARDS])


def _kinds(book: Book) -> list[Kind]:
    """The complete launches that are no rung, in the order of `_groups`."""
    groups = _groups(book)
    names = told_apart(list(dict.fromkeys(members[0].origin.file for members in groups)))
    kinds = []
    for members in groups:
        first = members[0]
        if not first.launch.complete:
            continue
        times = [time for member in members if (time := member.duration_us) is not None]
        verdict = book.diagnosis(first)
        same = verdict.primary.bottleneck
        agreeing = sum(book.diagnosis(each).primary.bottleneck == same for each in members)
        shown = replace(book.card(first), file=names[first.origin.file])
        kinds.append(Kind(shown, len(members), sum(times) if times else None, agreeing))
    return kinds


def _card_pages(book: Book, with_page: set[str]) -> Iterator[str]:
    """The page of each card of `others`; empty where its launch has none."""
    for members in _groups(book):
        if members[0].launch.complete:
            name = book.slugs[id(members[0])]
            yield f"{name}.html" if name in with_page else ""


def _chains(book: Book) -> Iterable[str]:
    """A sentence for each chain of launches in whose place one would do. None where others may have
    run between them."""
    chosen = any(missed.by_kernel(each.reason) for each in book.run.skipped)
    if chosen or FILTER in book.run.environment:
        return ()
    files: dict[str, list[Profile]] = {}
    for profile in book.strangers:
        files.setdefault(profile.origin.file, []).append(profile)
    return chained(
        (found, (launches[found.first].launch.function, launches[found.last].launch.function))
        for launches in files.values()
        for found in chain.chains(list(map(chain.link, launches)))
    )


def header(book: Book) -> Iterable[Fact]:
    """The run's header: device, versions, clocks, date, origin, measured ceilings."""
    run, device = book.run, book.run.device
    devices = list(dict.fromkeys((p.device.name, p.device.cc) for p in run.profiles)) or [
        (device.name, device.cc)
    ]
    names = ", ".join(f"{name} (CC {cc[0]}.{cc[1]})" for name, cc in devices[:6]) + (
        f" and {len(devices) - 6} more" if len(devices) > 6 else ""
    )
    yield Fact("GPU", text(names))
    if len(devices) == 1 and device.sm_count:
        memory = f", {units.si(device.memory_bytes, 'B')} memory" if device.memory_bytes else ""
        yield Fact(
            "Size",
            text(
                f"{device.sm_count} SMs{memory}, {units.si(device.l2_bytes, 'B')} L2"
                if device.l2_bytes
                else f"{device.sm_count} SMs{memory}"
            ),
        )
    for label, value in run.environment.items():
        if label == "GPU" and value in {name for name, _ in devices}:
            continue
        yield Fact(visible(label), text(value) if value else missing("not known"))
    clocks = [c for profile in run.profiles if (c := profile.value("sm_clock"))]
    if clocks:
        yield Fact(
            "SM clock while profiled",
            number(
                statistics.median(clocks),
                "Hz",
                title=f"median over the launches; {units.si(min(clocks), 'Hz')} to {units.si(max(clocks), 'Hz')}",
            ),
        )
    timed = [t.sm_clock_mhz for t in run.timings if t.sm_clock_mhz]
    if timed:
        yield Fact(
            "SM clock while timed",
            number(
                statistics.median(timed) * 1e6,
                "Hz",
                title=f"median over the timings; {min(timed):g} to {max(timed):g} MHz",
            ),
        )
    yield Fact("Date", text(run.created.replace("T", " ").replace("Z", " UTC")))
    yield Fact(
        "Origin",
        text("live: measured on this machine" if run.live else "recorded earlier"),
    )
    passes = [p for profile in run.profiles if (p := profile.value("passes"))]
    if passes:
        yield Fact(
            "Replay passes", number(max(passes), "count", title="most replays of one launch")
        )
    ceilings = run.ceilings
    for label, rate, unit in (
        ("Measured copy", ceilings.copy, "B/s"),
        ("Measured FP32", ceilings.fp32, "FLOP/s"),
        ("Measured tensor", ceilings.tensor, "FLOP/s"),
    ):
        if rate:
            yield Fact(label, number(rate, unit))


def skipped(book: Book) -> Table | None:
    """What was not done, which launches are incomplete or contradictory, and which figures no
    launch has, with the reasons."""
    rows = [[text(item.what), text(item.reason)] for item in book.run.skipped]
    rows.extend(
        [
            text(f"{profile.launch.function} (launch {profile.origin.key})", profile.launch.kernel),
            text(profile.launch.status),
        ]
        for profile in book.run.profiles
        if not profile.launch.complete
    )
    rows.extend(
        [
            text(f"{profile.launch.function} (launch {profile.origin.key})", profile.launch.kernel),
            text(f"contradictory: {sentence}. Its verdict is less certain"),
        ]
        for profile in book.run.profiles
        for sentence in profile.contradictions
    )
    complete = [profile for profile in book.run.profiles if profile.launch.complete]
    reasons: dict[Presence, list[str]] = {}
    for name, entry in REGISTRY.items():
        states = {profile.reading(name).presence for profile in complete}
        if states and Presence.PRESENT not in states and name not in READ_ONLY:
            reasons.setdefault(complete[0].reading(name).presence, []).append(entry.label)
    words = {
        Presence.NOT_COLLECTED: "not collected by the sections used, in any launch",
        Presence.NOT_AVAILABLE: "not available on this architecture",
        Presence.UNDEFINED: "collected, but a ratio with a zero denominator in every launch",
        Presence.PRESENT: "",
    }
    rows.extend(
        [text("; ".join(labels)), text(words[presence])] for presence, labels in reasons.items()
    )
    return (
        plain_table("skipped", "What was not collected, and why", ["What", "Why"], rows)
        if rows
        else None
    )


def _launches(book: Book) -> Table | None:
    groups = _groups(book)
    if not groups:
        return None
    total = sum(profile.duration_us or 0.0 for profile in book.strangers)
    with_page = {book.slugs[id(profile)] for profile in paged(book)}
    names = told_apart(list(dict.fromkeys(members[0].origin.file for members in groups)))
    streams = len({profile.launch.stream for profile in book.strangers}) > 1
    rows = []
    for members in groups[:GROUPS_SHOWN]:
        profile = members[0]
        launch, slug = profile.launch, book.slugs[id(profile)]
        times = sorted(t for member in members if (t := member.duration_us) is not None)
        whole = sum(times)
        spread = (
            f"{units.duration(times[0])} to {units.duration(times[-1])}"
            if len(times) > 1
            else "one launch"
        )
        why = "" if launch.complete else visible(launch.status)
        status = text("") if launch.complete else text("incomplete", launch.status, tone="bad")
        saved = saved_us(book.card(profile), whole if times else None)
        rows.append(
            [
                Cell(
                    kernel_name(launch.function, 120),
                    visible(launch.function),
                    visible(launch.kernel, 1000),
                    f"{slug}.html" if slug in with_page else "",
                    code=True,
                ),
                number(
                    whole if times else None,
                    "us",
                    why or "the report has no duration",
                    title=f"each {spread}",
                ),
                verdict_cell(book, profile),
                _gain(book, profile),
                number(
                    whole / total if total and times else None,
                    "fraction",
                    why or "the report has no duration",
                    bar=whole / total if total else None,
                ),
                number(saved, "us", why or "at its roof, or no gain known"),
                number(len(members), "count"),
                number(
                    times[len(times) // 2] if times else None,
                    "us",
                    why or "the report has no duration",
                    title=spread,
                ),
                status,
                text(_hottest(book, profile), code=True),
                text(_common([" › ".join(member.launch.nvtx) for member in members], "ranges")),
                text(
                    _common([str(member.launch.stream) for member in members], "streams")
                    if streams
                    else ""
                ),
                text(names[profile.origin.file]),
                text(" × ".join(map(str, launch.grid))),
                text(" × ".join(map(str, launch.block))),
                fact_cell(profile, "registers_per_thread"),
                fact_cell(profile, "achieved_occupancy"),
                fact_cell(profile, "dram_utilization", bar=True),
                fact_cell(profile, "issue_active", bar=True),
            ]
        )
    labels = (
        ("kernel", "Kernel", ""),
        ("time", "Time", "total of all launches of this kind, under ncu"),
        ("bottleneck", "Bottleneck", "of a typical launch"),
        ("predicted", "Predicted", "estimated speedup if the bottleneck were removed"),
        ("share", "Share", "of the time of all launches"),
        ("saves", "To save", "of that time, if only the bottleneck of a typical launch is fixed"),
        ("launches", "Launches", "same kernel, grid and block"),
        ("median", "Median", "of one launch, under ncu"),
        ("status", "Status", ""),
        ("where", "Hottest line", "of a typical launch"),
        ("range", "NVTX range", "in which it was launched"),
        ("stream", "Stream", "on which it was launched"),
        ("file", "Report", ""),
        ("grid", "Grid", ""),
        ("block", "Block", ""),
        ("registers", "Registers", "per thread"),
        ("occupancy", "Achieved occupancy", "of a typical launch"),
        ("dram", "DRAM", "share of its peak"),
        ("issue", "Issue", "issue slots busy"),
    )
    words = {"kernel", "status", "where", "range", "stream", "file", "grid", "block", "bottleneck"}
    columns = tuple(Column(key, label, title, "", key not in words) for key, label, title in labels)
    note = (
        f"{len(groups) - GROUPS_SHOWN} more kinds of launches are not listed."
        if len(groups) > GROUPS_SHOWN
        else ""
    )
    left = len(book.strangers) - sum(
        1 for profile in book.strangers if book.slugs[id(profile)] in with_page
    )
    note += (
        f" {left} launches have no page. The {PAGES} pages show one launch of each kind first."
        if left
        else ""
    )
    whole_table = Table(
        "launches",
        "Launches by time",
        columns,
        tuple(tuple(row) for row in rows),
        sortable=True,
        note=note.strip(),
    )
    return whole_table.only(
        lambda at, column: (
            column.key not in ("status", "where", "range", "file", "stream")
            or any(row[at].text for row in rows)
        )
    )


def _common(values: Sequence[str], what: str) -> str:
    """What all have in common, else how many there are: `3 ranges`."""
    different = set(values)
    return values[0] if len(different) == 1 else f"{len(different)} {what}"


def _hottest(book: Book, profile: Profile) -> str:
    return next((line.short for line in book.card(profile).where), "")


def _order(book: Book, pages: set[str]) -> dict[str, Any] | None:
    """Each launch that is no rung in the report's order: its row in the table of launches, place,
    time, page, stream and NVTX range, the last two as places in lists. None for a single one."""
    rows = {
        id(profile): row
        for row, members in enumerate(_groups(book)[:GROUPS_SHOWN])
        for profile in members
    }
    shown = [profile for profile in book.strangers if id(profile) in rows]
    if len(shown) < 2:
        return None
    slugs = [book.slugs[id(profile)] for profile in shown]
    ranges = [visible(" › ".join(profile.launch.nvtx)) for profile in shown]
    streams = [profile.launch.stream for profile in shown]
    names = list(dict.fromkeys(ranges))
    places = {name: at for at, name in enumerate(names)}
    return {
        "row": [rows[id(profile)] for profile in shown],
        "place": [book.places[id(profile)][0] for profile in shown],
        "us": [_rounded(profile.duration_us) for profile in shown],
        "page": [slug if slug in pages else "" for slug in slugs],
        "range": [places[name] for name in ranges],
        "ranges": names if any(names) else [],
        "stream": streams if len(set(streams)) > 1 else [],
    }


def _rounded(us: float | None) -> float | None:
    """A time with the digits that are shown, and some: data of 10,000 launches weigh less."""
    return None if us is None else float(f"{us:.6g}")


def _gain(book: Book, profile: Profile) -> Cell:
    if not profile.launch.complete:
        return missing("the launch is incomplete")
    return gain_cell(book.diagnosis(profile).primary)


def _costs(book: Book) -> Table | None:
    if not book.run.costs:
        return None
    rows = [[text(what), number(seconds * 1e6, "us")] for what, seconds in book.run.costs.items()]
    return plain_table(
        "costs", "Time spent outside the kernels", ["What", "Time"], rows, numeric=(1,)
    )


def _files(book: Book) -> Iterable[Fact]:
    for name in book.run.report_files:
        yield Fact("Raw report", text(name, href=name if beside(book.run, name) else ""))


def _record(book: Book, profile: Profile, pages: set[str]) -> LaunchRecord:
    slug, context = book.slugs[id(profile)], profile.rung
    return LaunchRecord(
        visible(profile.origin.file),
        profile.origin.key,
        visible(profile.launch.kernel),
        visible(profile.launch.status),
        profile.duration_us,
        f"{slug}.html" if slug in pages else "",
        book.diagnosis(profile).findings,
        {
            "family": context.family,
            "rung": context.rung,
            "size": context.size,
            "dtype": context.dtype,
        }
        if context
        else None,
    )
