"""One ladder as a view: the sentence, and for each size the charts and the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import slug, visible
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.figures import reason_name
from ncu_toolkit.document.views import (
    Cell,
    Chart,
    FamilyView,
    Pair,
    Panel,
    Table,
    missing,
    number,
    plain_table,
    shown_size,
    text,
)
from ncu_toolkit.ladder.problems import Problem
from ncu_toolkit.pages import charts, tune_view
from ncu_toolkit.pages.book import Book, Entry, Variant, problem_of
from ncu_toolkit.pages.columns import (
    NOT_TIMED,
    cause,
    ladder_table,
    rate_kind,
    rate_of,
    rate_unit,
    shown_kind,
)
from ncu_toolkit.pages.curve_view import library_curve
from ncu_toolkit.pages.family_sentence import pairs, roof_name, sentence, tops
from ncu_toolkit.pages.roofline import Point, roofline
from ncu_toolkit.pages.roofs import Roof, roofs

#: Stall reasons drawn by name in a ladder's chart; the rest are summed as "other" there and stand
#: in the table.
_SHOWN_REASONS: Final = 9
#: A reason has a column of its own in the table of stalls from this share of any rung's stack on.
_LISTED: Final = 0.01
LEVELS: Final = {
    "dram": ("DRAM", "dram_bytes"),
    "l2": ("L2", "l2_bytes"),
    "l1": ("L1", "l1_global_bytes"),
}


def family_view(book: Book, family: str) -> FamilyView:
    """The ladder `family` of a run."""
    variants = book.families[family]
    problem = problem_of(family)
    kind = rate_kind(problem, [entry for entries in variants.values() for entry in entries])
    known = roofs(book.run.device, book.run.ceilings, book.run.profiles)
    many_types = len({variant.dtype for variant in variants}) > 1
    panels = tuple(
        _panel(book, family, variant, entries, kind, problem, known, many_types)
        for variant, entries in variants.items()
    )
    first = primary(book, family)
    sized = [
        chart
        for chart in (library_curve(book, family, kind), _sizes_chart(book, family, variants, kind))
        if chart
    ]
    texts = {name: info.text for (of, name), info in book.rungs.items() if of == family}
    sized += tune_view.charts(book.run.device.name, family, first.size, texts)
    tables = [table for table in (_library_table(family, variants),) if table]
    title = problem.title if problem else family.replace("_", " ")
    return FamilyView(
        family,
        visible(title),
        visible(problem.story) if problem else "",
        sentence(book, variants, first, kind, problem, known),
        panels,
        tuple(sized),
        tuple(tables),
    )


def primary(book: Book, family: str) -> Variant:
    """The size to show first: that with most rungs both profiled and timed, the largest of several;
    a baseline alone tells no story."""
    variants = book.families[family]
    covered = {
        v: sum(bool(e.profiles) and e.timing is not None for e in entries)
        for v, entries in variants.items()
    }
    most = max(covered.values(), default=0)
    return [v for v in variants if covered[v] == most][-1]


def variant_label(variant: Variant, many_types: bool) -> str:
    size = shown_size(variant.size)
    return visible(f"{size} · {variant.dtype}" if many_types else size)


def _panel(
    book: Book,
    family: str,
    variant: Variant,
    entries: list[Entry],
    kind: str,
    problem: Problem | None,
    known: tuple[Roof, ...],
    many_types: bool,
) -> Panel:
    key = slug(f"{family}-{variant.size}-{variant.dtype}")
    label = variant_label(variant, many_types)
    drawn: tuple[Chart | None, ...] = (
        _ladder_chart(book, key, label, entries, kind, problem, known),
        _stall_chart(key, label, entries, book),
        _roofline_chart(key, label, entries, known, roof_name(problem, kind), book),
        _traffic_chart(key, label, entries, book),
    )
    mended = gallery(book, entries)
    if mended:  # pairs do not climb: nothing joins one to the next
        drawn = ()
    notes = []
    caches = sorted({entry.timing.cache for entry in entries if entry.timing})
    if caches:
        notes.append(
            f"Times are medians of unprofiled runs with the L2 cache {' or '.join(caches)} before each; "
            "throughputs and stalls come from the profiled run, whose clocks and caches differ."
        )
    notes += _cached(entries, book.run.device.l2_bytes)
    former = [entry.label for entry in entries if entry.outdated]
    if former:
        notes.append(
            f"Changed after the recording: {', '.join(former)}. Their figures are of the older version."
        )
    pending = [] if book.run.live else book.pending(family)
    if pending:
        notes.append(f"Not recorded yet: {', '.join(map(visible, pending))}.")
    caption = f"{problem.title if problem else family}, size {label}"
    return Panel(
        key,
        label,
        ladder_table(book, f"{key}-table", visible(caption), entries, kind),
        tuple(chart for chart in drawn if chart),
        tuple(notes),
        mended,
    )


def _cached(entries: list[Entry], l2_bytes: int | None) -> list[str]:
    """Which kernels have data that fit in L2, so that DRAM need not limit them."""
    known = [(entry.label, needs) for entry in entries if (needs := entry.compulsory_bytes)]
    fitting = [(label, needs) for label, needs in known if l2_bytes and needs < l2_bytes]
    if not fitting:
        return []
    sizes = [units.si(size(needs for _, needs in fitting), "B") for size in (min, max)]
    shown = " to ".join(dict.fromkeys(sizes))
    all_fit = len(fitting) == len(known)
    names = "all kernels" if all_fit else ", ".join(label for label, _ in fitting[:_NAMED])
    left = 0 if all_fit else len(fitting[_NAMED:])
    more = f" and {units.counted(left, 'other kernel')}" if left else ""
    return [
        f"The data of {visible(names)}{more} ({shown}) fit in the L2 ({units.si(l2_bytes or 0, 'B')})."
    ]


#: Kernels that a note names.
_NAMED: Final = 4


def gallery(book: Book, entries: list[Entry]) -> tuple[Pair, ...]:
    """Defects with their repairs, the largest gain first; empty where the rungs climb."""
    found = []
    for gain, repair in sorted(pairs(book, entries), key=lambda pair: -pair[0]):
        defect = book.before(repair)
        if defect is None or defect.info is None or repair.info is None:
            continue
        verdict = book.card(defect.main).title if defect.main else ""
        found.append(
            Pair(
                text(cause(repair.info.removes), href=book.page(defect)),
                text(defect.info.title, href=book.page(defect)),
                text(repair.info.title, href=book.page(repair)),
                verdict,
                units.ratio(gain),
                1 / gain,
                units.percent(1 / gain, 2),
            )
        )
    return tuple(found)


def _ladder_chart(
    book: Book,
    key: str,
    label: str,
    entries: list[Entry],
    kind: str,
    problem: Problem | None,
    known: tuple[Roof, ...],
) -> Chart | None:
    unit = rate_unit(kind)
    bars, rows = [], []
    trunk, colours = book.trunk(entries), book.colours[entries[0].family]
    for entry in entries:
        rate, timing = rate_of(entry, kind), entry.timing
        if rate and timing:
            low, high = (
                rate * timing.median_us / timing.quantile_us(0.9),
                rate * timing.median_us / max(timing.quantile_us(0.1), 1e-9),
            )
            kind_shown = shown_kind(book, entry)
            bars.append(
                charts.Bar(
                    entry.label,
                    rate,
                    low,
                    high,
                    kind_shown,
                    f"{units.si(rate, unit)}, {units.duration(timing.median_us)}",
                    colours[entry.label],
                    entry.label in trunk or entry.kind in ("baseline", "roof"),
                )
            )
            words = "step, slower" if kind_shown == "slower" else entry.kind
            rows.append(
                [
                    text(entry.label),
                    text(words),
                    number(rate, unit),
                    number(low, unit),
                    number(high, unit),
                ]
            )
        else:
            rows.append([text(entry.label), text(entry.kind), *[missing(NOT_TIMED)] * 3])
    if not bars:
        return None
    lines = []
    bases = {base.label: base for entry in entries if (base := book.baseline(entry))}
    for base in bases.values():
        if base_rate := rate_of(base, kind):
            lines.append((f"{base.label} {units.si(base_rate, unit)}", base_rate, "dash"))
    lines.extend(
        (
            f"{roof.label} {units.si(roof.rate, unit)}",
            roof.rate,
            "solid" if roof.measured else "dot",
        )
        for roof in known
        if roof.name == roof_name(problem, kind) and roof.unit == unit
    )
    rows.extend(
        [
            text(name),
            text("line"),
            number(rate, unit),
            missing("a line has no spread"),
            missing("a line has no spread"),
        ]
        for name, rate, _ in lines
    )
    table = plain_table(
        f"{key}-ladder-data",
        f"Rates at {label}",
        ["Rung", "Kind", "Rate", "10th percentile", "90th percentile"],
        rows,
        numeric=(2, 3, 4),
    )
    rates = {bar.label: bar.rate for bar in bars}
    best = [top.label for top in tops(book, entries, kind)]
    if not best[1:]:
        best = [max(rates, key=lambda label: rates[label])]
    with_rates = [f"{visible(label)} with {units.si(rates[label], unit)}" for label in best]
    fastest = f"the fastest {'are' if best[1:] else 'is'} {' and '.join(with_rates)}"
    summary = f"Rate of each rung at size {label}: {fastest}. Choose a bar to open its rung."
    if not all(bar.trunk for bar in bars):
        summary += " Broad bars are the steps to the fastest rung, narrow bars are variants."
    figure = charts.ladder(bars, unit, lines)
    return Chart(
        f"{key}-ladder",
        "The ladder",
        summary,
        figure,
        table,
        links=book.pages(entries),
    )


def _cycles(value: float) -> Cell:
    """Cycles in a table whose caption says so: three digits, and nothing below a thousandth."""
    return Cell(units.significant(value) if value >= 0.001 or not value else "< 0.001", value)


def _stall_chart(key: str, label: str, entries: list[Entry], book: Book) -> Chart | None:
    stacks = [
        (entry.label, dict(entry.main.stalls.reasons))
        for entry in entries
        if entry.main and entry.main.stalls
    ]
    if not stacks:
        return None
    # A reason counts by its largest share of any rung's stack, so that those of the fast rungs are
    # not drowned by the slow ones' long waits.
    weight = {
        reason: max(stack.get(reason, 0.0) / (sum(stack.values()) or 1.0) for _, stack in stacks)
        for _, stack in stacks
        for reason in stack
    }
    ranked = sorted(weight, key=lambda reason: -weight[reason])[:_SHOWN_REASONS]
    order = [r for r in ("selected", "not_selected") if r in ranked] + [
        r for r in ranked if r not in ("selected", "not_selected")
    ]
    figure = charts.stalls(stacks, order)
    # the table has a row for each rung that was profiled, and a column for each reason that counts
    # anywhere: no screen of nothing
    listed = [
        reason
        for reason in sorted(weight, key=lambda reason: -weight[reason])
        if weight[reason] >= _LISTED
    ]
    rows = []
    for name, stack in stacks:
        rest = sum(cycles for reason, cycles in stack.items() if reason not in listed)
        rows.append(
            [text(name), *(_cycles(stack.get(reason, 0.0)) for reason in listed), _cycles(rest)]
        )
    left = len(entries) - len(stacks)
    table = plain_table(
        f"{key}-stalls-data",
        f"Cycles per issued instruction at {label}",
        [
            "Rung",
            *(reason_name(r) for r in listed),
            ("all other", f"sum of reasons below {units.percent(_LISTED)} of every rung's stack"),
        ],
        rows,
        numeric=range(1, len(listed) + 2),
        note=f"{left} of {len(entries)} rungs were not profiled at this size." if left else "",
    )
    summary = (
        f'Cycles per issued instruction by stall reason, for each rung at size {label}. "Issuing" is the cycle that issues. The '
        "rest is waiting."
    )
    return Chart(
        f"{key}-stalls",
        "Stall migration",
        summary,
        figure,
        table,
        links=book.pages(entries),
    )


def _levels(entry: Entry) -> dict[str, float]:
    """Bytes of the whole rung by memory level; a level that one launch lacks is left out."""
    found = {}
    for level, (_, name) in LEVELS.items():
        values = [
            figures.value(profile, name) for profile in entry.profiles if profile.launch.complete
        ]
        if values and None not in values:
            found[level] = sum(value for value in values if value is not None)
    return found


def _root(book: Book, entry: Entry) -> str:
    """The first rung that this one descends from: two functions of one family have no rung in
    common."""
    while (before := book.before(entry)) and before.family == entry.family:
        entry = before
    return entry.rung


def _roofline_chart(
    key: str,
    label: str,
    entries: list[Entry],
    known: tuple[Roof, ...],
    arithmetic: str,
    book: Book,
) -> Chart | None:
    points, rows = [], []
    colours, trunk = book.colours[entries[0].family], book.trunk(entries)
    for entry in entries:
        rate, levels = rate_of(entry, "flop"), _levels(entry)
        if not rate or not entry.flops or not levels:
            continue
        intensity = {level: entry.flops / moved for level, moved in levels.items() if moved > 0}
        points.append(
            Point(
                entry.label,
                rate,
                intensity,
                entry.kind,
                colours[entry.label],
                entry.label in trunk,
                _root(book, entry),
            )
        )
        rows.append(
            [
                text(entry.label),
                number(rate, "FLOP/s"),
                *(
                    number(intensity.get(level), "", "this level's traffic was not collected")
                    for level in LEVELS
                ),
            ]
        )
    if not points or not known:
        return None
    rows.extend(
        [
            text(roof.label, roof.how),
            number(roof.rate, roof.unit, title=roof.how),
            *[missing("a roof has no intensity")] * 3,
        ]
        for roof in known
    )
    table = plain_table(
        f"{key}-roofline-data",
        f"Roofline at {label}: useful FLOPs over bytes moved",
        ["Rung or roof", "Rate", "FLOP/B, DRAM", "FLOP/B, L2", "FLOP/B, L1"],
        rows,
        numeric=(1, 2, 3, 4),
    )
    figure = roofline(points, known, arithmetic)
    summary = (
        f"Roofline at size {label}: unprofiled FLOP/s over useful FLOPs per byte, counted at DRAM (L2 and L1 in the legend). "
        "Solid roofs were measured in this run. Dashed roofs are the device's peaks."
    )
    if arithmetic == "tensor" and any(roof.name == "tensor" and roof.measured for roof in known):
        summary += " The tensor roof is the library's largest product, which is no upper bound."
    return Chart(
        f"{key}-roofline",
        "Roofline",
        summary,
        figure,
        table,
        wide=True,
        links=book.pages(entries),
    )


#: Traffic of less than this part of the compulsory bytes is not drawn: it shows which way the bytes
#: took, and on the axis it would press all other points together.
_DRAWN: Final = 0.1
#: Why a level moves next to nothing.
_BESIDE: Final = {
    "l1": ("bypasses L1", "bypass L1"),
    "l2": ("stays in L1", "stay in L1"),
    "dram": ("stays in L2", "stay in L2"),
}


def _traffic_chart(key: str, label: str, entries: list[Entry], book: Book) -> Chart | None:
    data, rows = [], []
    beside: dict[str, list[str]] = {}
    for entry in entries:
        levels, compulsory = _levels(entry), entry.compulsory_bytes
        if levels and compulsory:
            over = {level: moved / compulsory for level, moved in levels.items()}
            drawn = {level: factor for level, factor in over.items() if factor >= _DRAWN}
            data.append((entry.label, drawn))
            for level in over.keys() - drawn.keys():
                beside.setdefault(level, []).append(entry.label)
            rows.append(
                [
                    text(entry.label),
                    number(compulsory, "B"),
                    *(number(levels.get(level), "B", "not collected") for level in LEVELS),
                ]
            )
    if not data:
        return None
    table = plain_table(
        f"{key}-traffic-data",
        f"Bytes moved at {label}",
        ["Rung", "Compulsory", *(name for name, _ in LEVELS.values())],
        rows,
        numeric=(1, 2, 3, 4),
    )
    figure = charts.traffic(data)
    summary = (
        f"Bytes moved by each memory level at size {label}, over the fewest that the problem needs. These are each input read "
        "once and each output written once."
    )
    if beside:
        left = ", ".join(_beside(beside[level], level) for level in LEVELS if level in beside)
        summary += f" Not drawn, below {units.ratio(_DRAWN, 1)}: {visible(left)}."
    return Chart(
        f"{key}-traffic",
        "Memory traffic over compulsory",
        summary,
        figure,
        table,
        wide=True,
        links=book.pages(entries),
    )


def _beside(labels: list[str], level: str) -> str:
    """Whose bytes do not reach a level: `reduce_bulk bypasses L1`."""
    one, several = _BESIDE[level]
    if len(labels) == 1:
        return f"{labels[0]} {one}"
    names = " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
    return f"{names if len(labels) <= _NAMED else f'{len(labels)} rungs'} {several}"


def _sizes_chart(
    book: Book, family: str, variants: dict[Variant, list[Entry]], kind: str
) -> Chart | None:
    lines: dict[tuple[str, str], dict[str, float]] = {}
    kinds: dict[str, str] = {}
    dims: dict[str, Mapping[str, int]] = {}
    types = {variant.dtype for variant in variants}
    for variant, entries in variants.items():
        for entry in entries:
            rate = rate_of(entry, kind)
            if rate and entry.timing:
                lines.setdefault((entry.label, variant.dtype), {})[variant.size] = rate
                kinds[entry.label] = entry.kind
                dims[variant.size] = entry.timing.dims
    if len(dims) < 2:
        return None
    unit = rate_unit(kind)
    axis = charts.size_axis(dims)
    series = [
        (
            f"{label} ({dtype})" if len(types) > 1 else label,
            kinds[label],
            book.colours[family][label],
            rates,
        )
        for (label, dtype), rates in lines.items()
    ]
    rows = [
        [text(label), *(number(rates.get(size), unit, NOT_TIMED) for size in axis.places)]
        for label, _, _, rates in series
    ]
    key = slug(f"{family}-sizes")
    table = plain_table(
        f"{key}-data",
        "Rate by size",
        ["Rung", *map(shown_size, axis.places)],
        rows,
        numeric=range(1, len(axis.places) + 1),
    )
    figure = charts.by_size(series, axis, unit)
    return Chart(
        key,
        "Rate by size",
        "Rate of each rung over the problem size, unprofiled. Choose rungs in the legend.",
        figure,
        table,
    )


def _library_table(family: str, variants: dict[Variant, list[Entry]]) -> Table | None:
    """Which kernels the library picked for each size."""
    rows: list[list[Cell]] = []
    for variant, entries in variants.items():
        for entry in entries:
            if entry.timing and entry.timing.kernels:
                rows.extend(
                    [
                        text(entry.label),
                        text(f"{shown_size(variant.size)} {variant.dtype}"),
                        number(i, "count"),
                        text(name, code=True),
                        number(entry.timing.median_us, "us"),
                    ]
                    for i, name in enumerate(entry.timing.kernels, 1)
                )
    if not rows:
        return None
    return plain_table(
        slug(f"{family}-library"),
        "Kernels that the library launched",
        ["Rung", "Size", "Launch", "Kernel", ("Time", "of all launches of the call")],
        rows,
        numeric=(2, 4),
    )
