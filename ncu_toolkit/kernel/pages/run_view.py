"""A run as a view: its header, its ladders, launches that are no rung, predictions and
achievements, and a page for each launch."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import kernel_label
from ncu_toolkit.base.document.tables import Cell, Column, Table, missing, number, plain_table, text
from ncu_toolkit.base.document.views import (
    CARDS,
    MANY,
    Answer,
    Fact,
    Kind,
    RunView,
    answer,
    distinct_names,
)
from ncu_toolkit.base.metrics.registry import READ_ONLY, REGISTRY
from ncu_toolkit.base.model import Presence, Profile
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.base.render.text import RunText
from ncu_toolkit.kernel.diagnosis import chain
from ncu_toolkit.kernel.diagnosis.chain import chained
from ncu_toolkit.kernel.explain.sections import (
    fact_cell,
    gain_cell,
    saved_us,
    savings,
    verdict_cell,
)
from ncu_toolkit.kernel.pages.book import Book, book_for
from ncu_toolkit.kernel.pages.calibration import calibration, predictions
from ncu_toolkit.kernel.pages.family_view import family_view
from ncu_toolkit.kernel.pages.page_view import (
    Neighbours,
    beside,
    commands,
    opening,
    page_link,
    page_view,
)

#: Groups of launches listed in the table of launches that are no rung, longest first; the rest are
#: counted in its note.
GROUPS_SHOWN: Final = 2_000
#: The page of a program's step, beside those of its launches.
STEP_PAGE: Final = "step.html"
#: Launches that get a page: beyond this, the longest of each group first.
PAGES: Final = 400


def run_view(book: Book) -> RunView:
    """The whole run with its pages."""
    return replace(
        run_summary(book),
        pages=tuple(page_view(book, profile, around) for profile, around in with_neighbours(book)),
    )


def with_neighbours(book: Book) -> list[tuple[Profile, Neighbours]]:
    """Launches that get a page; those of no rung link to the pages before and after."""
    shown = paged(book)
    strangers = [profile for profile in shown if book.entry_of(profile) is None]
    links = [None, *(page_link(book, each.launch.function, each) for each in strangers), None]
    around = {
        id(profile): (links[at], links[at + 2]) for at, profile in enumerate(strangers)
    }  # fmt: skip
    return [(profile, around.get(id(profile), (None, None))) for profile in shown]


def run_summary(book: Book) -> RunView:
    """The whole run without the pages of its launches."""
    run = book.run
    families = tuple(family_view(book, name) for name in book.families)
    linked = page_names(book)
    judged, alike = calibration(book) if book.entries else None, kinds(book)
    program, answered = (
        book.across(book) if len(book.strangers) >= MANY else None,
        others(book, alike),
    )
    complete = [members[0] for members in book.groups if members[0].launch.complete]
    card_pages = tuple(linked.get(id(profile), "") for profile in complete)
    return RunView(
        visible(run.id),
        # by the ladder that the run climbs, where it is one
        f"{families[0].title} on {visible(run.device.name)}"
        if len(families) == 1 and not book.strangers
        else visible(run.title),
        visible(run.created),
        run.live,
        tuple(header(book)),
        program,
        answered,
        savings(alike, card_pages),
        card_pages[: len(answered.cards) if answered else 0],
        families,
        _launches(book, linked),
        _in_order(book, linked),
        skipped(book),
        (judged,) if judged else (),
        predictions(judged) if judged else None,
        _costs(book),
        (
            *commands(run),
            *(command for name in run.report_files[:1] for command in opening(run, name)),
        ),
        tuple(
            Fact("Raw report", text(name, href=name if beside(run, name) else ""))
            for name in run.report_files
        ),
        (),
        STEP_PAGE if run.step else "",
    )


def page_names(book: Book) -> dict[int, str]:
    """The page of each launch that gets one, by the identity of its profile."""
    return {id(profile): book.page(profile) for profile in paged(book)}


def paged(book: Book) -> list[Profile]:
    """The launches that get a page: every rung's, and of other launches one of each group before
    the repeats, longest first, up to PAGES."""
    rungs = [profile for entry in book.entries for profile in entry.profiles]
    firsts = [members[0] for members in book.groups]
    repeats = [profile for members in book.groups for profile in members[1:]]
    chosen = {id(profile) for profile in (firsts + repeats)[:PAGES]}
    return rungs + [profile for profile in book.strangers if id(profile) in chosen]


def others(book: Book, alike: Sequence[Kind]) -> Answer | None:
    """The answer to the launches that are no rung (`kinds`); None where there are none."""
    if not book.groups:
        return None
    notes = []
    for members in book.groups:
        launch = members[0].launch
        if not launch.complete:
            many = f" ({units.counted(len(members), 'launch')})" if members[1:] else ""
            notes.append(visible(f"{launch.status}: {launch.function}{many}"))
    return replace(answer(alike, notes), points=tuple(_chains(book))[:CARDS])


def kinds(book: Book) -> list[Kind]:
    """The complete launches that are no rung, in the order of the book's groups."""
    found = []
    names = distinct_names(list(dict.fromkeys(first.origin.file for first, *_ in book.groups)))
    for members in book.groups:
        first = members[0]
        if not first.launch.complete:
            continue
        times = [time for member in members if (time := member.duration_us) is not None]
        same = book.diagnosis(first).primary.bottleneck
        agreeing = sum(book.diagnosis(each).primary.bottleneck == same for each in members)
        shown = replace(book.card(first), file=names[first.origin.file])
        whole = sum(times) if times else None
        found.append(Kind(shown, len(members), whole, len(members) - len(times), agreeing))
    return found


def _chains(book: Book) -> Iterable[str]:
    """A sentence for each chain of launches that one launch could replace. None where others may have
    run between them."""
    if book.filtered:
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
    names = ", ".join(f"{name} (CC {cc[0]}.{cc[1]})" for name, cc in devices[:6])
    yield Fact("GPU", text(names + (f" and {len(devices) - 6} more" if devices[6:] else "")))
    if len(devices) == 1 and device.sm_count:
        size = f"{device.sm_count} SMs"
        size += f", {units.si(device.memory_bytes, 'B')} memory" if device.memory_bytes else ""
        size += f", {units.si(device.l2_bytes, 'B')} L2" if device.l2_bytes else ""
        yield Fact("Size", text(size))
    for label, value in run.environment.items():
        if label != "GPU" or value not in {name for name, _ in devices}:
            yield Fact(visible(label), text(value) if value else missing("not known"))
    clocks = [c for profile in run.profiles if (c := profile.value("sm_clock"))]
    if clocks:
        spread = f"median over the launches; {units.si(min(clocks), 'Hz')} to {units.si(max(clocks), 'Hz')}"
        middle = number(statistics.median(clocks), "Hz", title=spread)
        yield Fact("SM clock while profiled", middle)
    timed = [t.sm_clock_mhz for t in run.timings if t.sm_clock_mhz]
    if timed:
        spread = f"median over the timings; {min(timed):g} to {max(timed):g} MHz"
        middle = number(statistics.median(timed) * 1e6, "Hz", title=spread)
        yield Fact("SM clock while timed", middle)
    yield Fact("Date", text(run.created.replace("T", " ").replace("Z", " UTC")))
    yield Fact("Origin", text("live: measured on this machine" if run.live else "recorded earlier"))
    passes = [p for profile in run.profiles if (p := profile.value("passes"))]
    if passes:
        most = number(max(passes), "count", title="most replays of one launch")
        yield Fact("Replay passes", most)
    for label, rate, unit in (
        ("Measured copy", run.ceilings.copy, "B/s"),
        ("Measured FP32", run.ceilings.fp32, "FLOP/s"),
        ("Measured tensor", run.ceilings.tensor, "FLOP/s"),
    ):
        if rate:
            yield Fact(label, number(rate, unit))


def skipped(book: Book) -> Table | None:
    """What was not done, which launches are incomplete or contradictory, and which figures no
    launch has, with the reasons."""
    profiles = book.run.profiles
    rows = [[text(item.what), text(item.reason)] for item in book.run.skipped]
    partial = [(p, p.launch.status) for p in profiles if not p.launch.complete]
    partial += [
        (p, f"contradictory: {sentence}. Its verdict is less certain")
        for p in profiles
        for sentence in p.contradictions
    ]
    rows += [
        [text(f"{p.launch.function} (launch {p.origin.key})", p.launch.kernel), text(why)]
        for p, why in partial
    ]
    complete = [profile for profile in profiles if profile.launch.complete]
    reasons: dict[Presence, list[str]] = {}
    for name, entry in REGISTRY.items():
        states = {profile.reading(name).presence for profile in complete}
        if states and Presence.PRESENT not in states and name not in READ_ONLY:
            reasons.setdefault(complete[0].reading(name).presence, []).append(entry.label)
    rows += [[text("; ".join(labels)), text(_ABSENT[why])] for why, labels in reasons.items()]
    title = "What was not collected, and why"
    return plain_table("skipped", title, ["What", "Why"], rows) if rows else None


_ABSENT: Final = {
    Presence.NOT_COLLECTED: "not collected by the sections used, in any launch",
    Presence.NOT_AVAILABLE: "not available on this architecture",
    Presence.UNDEFINED: "collected, but a ratio with a zero denominator in every launch",
}
_LAUNCHES: Final = (
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
_WORDS: Final = (
    "kernel", "status", "where", "range", "stream", "file", "grid", "block", "bottleneck",
)  # fmt: skip


def _launches(book: Book, linked: Mapping[int, str]) -> Table | None:
    groups = book.groups
    if not groups:
        return None
    total = sum(profile.duration_us or 0.0 for profile in book.strangers)
    notes = []
    if len(groups) > GROUPS_SHOWN:
        notes.append(f"{len(groups) - GROUPS_SHOWN} more kinds of launches are not listed.")
    left = sum(id(profile) not in linked for profile in book.strangers)
    if left:
        notes.append(
            f"{left} launches have no page. The {PAGES} pages show one launch of each kind first."
        )
    names = distinct_names(list(dict.fromkeys(first.origin.file for first, *_ in groups)))
    streams = len({profile.launch.stream for profile in book.strangers}) > 1
    rows = tuple(
        tuple(_kind(book, members, total, linked, names, streams))
        for members in groups[:GROUPS_SHOWN]
    )
    whole = Table(
        "launches",
        "Launches by time",
        tuple(Column(*each, numeric=each[0] not in _WORDS) for each in _LAUNCHES),
        rows,
        sortable=True,
        note=" ".join(notes),
    )
    return whole.only(lambda at, column: column.numeric or any(row[at].text for row in rows))


def _kind(
    book: Book,
    members: Sequence[Profile],
    total: float,
    linked: Mapping[int, str],
    names: Mapping[str, str],
    streams: bool,
) -> Iterable[Cell]:
    """The row of launches alike, under _LAUNCHES."""
    profile, launch = members[0], members[0].launch
    times = sorted(time for member in members if (time := member.duration_us) is not None)
    whole = sum(times)
    share = whole / total if total else None
    spread = (
        f"{units.duration(times[0])} to {units.duration(times[-1])}" if times[1:] else "one launch"
    )
    why = "the report has no duration" if launch.complete else visible(launch.status)
    name = kernel_label(launch.function, launch.kernel, 120)
    page = linked.get(id(profile), "")
    yield Cell(name, visible(launch.function), visible(launch.kernel, 1000), page, code=True)
    yield number(whole if times else None, "us", why, title=f"each {spread}")
    yield verdict_cell(book.card(profile))
    yield (
        gain_cell(book.diagnosis(profile).primary)
        if launch.complete
        else missing("the launch is incomplete")
    )
    yield number(share if times else None, "fraction", why, bar=share)
    shown = book.card(profile)
    saved = saved_us(shown, whole if times else None)
    yield number(saved, "us", "at its roof, or no gain known" if launch.complete else why)
    yield number(len(members), "count")
    yield number(times[len(times) // 2] if times else None, "us", why, title=spread)
    yield text("") if launch.complete else text("incomplete", launch.status, tone="bad")
    yield text(next((line.short for line in shown.where), ""), code=True)
    yield text(_common([" › ".join(each.launch.nvtx) for each in members], "ranges"))
    yield text(_common([str(each.launch.stream) for each in members], "streams") if streams else "")
    yield text(names[profile.origin.file])
    yield from (
        text(" × ".join(map(str, extents or ()))) for extents in (launch.grid, launch.block)
    )
    yield from (fact_cell(profile, each) for each in ("registers_per_thread", "achieved_occupancy"))
    yield from (fact_cell(profile, each, bar=True) for each in ("dram_utilization", "issue_active"))


def _in_order(book: Book, linked: Mapping[int, str]) -> dict[str, Any] | None:
    """Each launch that is no rung in the report's order, for the page's script: its row in the table
    of kinds, place, time, page, stream and NVTX range, the latter as a place in
    `ranges`. None for a single launch."""
    rows = {id(each): row for row, alike in enumerate(book.groups[:GROUPS_SHOWN]) for each in alike}
    shown = [profile for profile in book.strangers if id(profile) in rows]
    if len(shown) < 2:
        return None
    ranges = [visible(" › ".join(profile.launch.nvtx)) for profile in shown]
    streams = [profile.launch.stream for profile in shown]
    names = {name: at for at, name in enumerate(dict.fromkeys(ranges))}
    return {
        "row": [rows[id(profile)] for profile in shown],
        "place": [book.places[id(profile)][0] for profile in shown],
        # with the digits that are shown, and some
        "us": [None if (us := each.duration_us) is None else float(f"{us:.6g}") for each in shown],
        "page": [linked.get(id(profile), "").removesuffix(".html") for profile in shown],
        "range": [names[name] for name in ranges],
        "ranges": list(names) if any(names) else [],
        "stream": streams if len(set(streams)) > 1 else [],
    }


def _common(values: Sequence[str], what: str) -> str:
    """What all have in common, else how many there are: `3 ranges`."""
    return values[0] if len(set(values)) == 1 else f"{len(set(values))} {what}"


def _costs(book: Book) -> Table | None:
    if not book.run.costs:
        return None
    rows = [[text(what), number(seconds * 1e6, "us")] for what, seconds in book.run.costs.items()]
    return plain_table(
        "costs", "Time spent outside the kernels", ["What", "Time"], rows, numeric=(1,)
    )


def run_text(run: Run, names: Sequence[str] = ()) -> RunText:
    """A run for a terminal, with the cards of the named rungs at their ladder's main size, at most
    CARDS."""
    book = book_for(run)
    named = [
        book.card(entry.main)
        for entry in book.entries
        if entry.rung in names
        and entry.main
        and entry.variant == book.primary(entry.family).variant
    ]
    return RunText(run_summary(book), named[:CARDS])
