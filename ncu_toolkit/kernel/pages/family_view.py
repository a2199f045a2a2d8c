"""One ladder as a view: the sentence, and for each size the charts and the table."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.guests import guest
from ncu_toolkit.base.core.safe import slug, visible
from ncu_toolkit.base.document.card import BarKind, BarMark, BarRow, Segment
from ncu_toolkit.base.document.tables import Cell, Table, missing, number, plain_table, text
from ncu_toolkit.base.document.views import (
    BarChart,
    Chart,
    DefectPair,
    FamilyView,
    Panel,
    shown_size,
)
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import reason_name
from ncu_toolkit.kernel.explain.sections import cause
from ncu_toolkit.kernel.pages import charts
from ncu_toolkit.kernel.pages.book import Book, Entry, Ladder, problem_of
from ncu_toolkit.kernel.pages.columns import NOT_TIMED, ladder_table
from ncu_toolkit.kernel.pages.curve_view import library_curve
from ncu_toolkit.kernel.pages.family_sentence import rate_text, roof_name, sentence
from ncu_toolkit.kernel.pages.roofline import Spot, roofline

#: Stall reasons drawn by name in a ladder's chart; the rest are summed as "other" there and are
#: in the table.
_SHOWN_REASONS: Final = 9
#: A reason has its own column in the table of stalls from this share of any rung's stack on.
_LISTED: Final = 0.01
LEVELS: Final = {
    "dram": ("DRAM", "dram_bytes"),
    "l2": ("L2", "l2_bytes"),
    "l1": ("L1", "l1_global_bytes"),
}


def family_view(book: Book, family: str) -> FamilyView:
    """The ladder `family` of a run."""
    problem, first = problem_of(family), book.primary(family)
    texts = {name: info.text for (of, name), info in book.rungs.items() if of == family}
    over_sizes = (library_curve(book, family), _sizes_chart(book, family))
    library = _library_table(book, family)
    return FamilyView(
        family,
        first.title,
        visible(problem.story) if problem else "",
        sentence(first),
        tuple(map(_panel, book.families[family].values())),
        (
            *filter(None, over_sizes),
            *(
                tuning.charts(book.run.device.name, family, first.variant.size, texts)
                if (tuning := guest("tune.view"))
                else ()
            ),
        ),
        (library,) if library else (),
        first.key,
    )


def _panel(ladder: Ladder) -> Panel:
    fixed = gallery(ladder)
    drawn = (
        ()  # pairs do not climb: nothing joins one to the next
        if fixed
        else (_ladder_chart(ladder), _stall_chart(ladder), _traffic_chart(ladder), _roofline_chart(ladder))
    )  # fmt: skip
    return Panel(
        ladder.key,
        ladder.label,
        ladder_table(ladder),
        tuple(chart for chart in drawn if chart),
        tuple(_notes(ladder)),
        fixed,
    )


def _notes(ladder: Ladder) -> Iterable[str]:
    run = ladder.book.run
    caches = sorted({entry.timing.cache for entry in ladder if entry.timing})
    if caches:
        yield (
            f"Times are medians of unprofiled runs with the L2 cache {' or '.join(caches)} before each; "
            "throughputs and stalls come from the profiled run, whose clocks and caches differ."
        )
    yield from _cached(ladder.entries, run.device.l2_bytes)
    former = [entry.label for entry in ladder if entry.outdated]
    if former:
        yield f"Changed since the recording: {', '.join(former)}. Their figures are from the older version."
    pending = [] if run.live else ladder.book.pending(ladder.family)
    if pending:
        yield f"Not recorded yet: {', '.join(map(visible, pending))}."


def _cached(entries: Sequence[Entry], l2_bytes: int | None) -> list[str]:
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


def gallery(ladder: Ladder) -> tuple[DefectPair, ...]:
    """Defects with their repairs, the largest gain first; empty where the rungs climb."""
    book = ladder.book
    return tuple(
        DefectPair(
            text(cause(repair.info.removes), href=defect.page),
            text(defect.info.title, href=defect.page),
            text(repair.info.title, href=repair.page),
            book.card(defect.main).title if defect.main else "",
            units.ratio(gain),
            1 / gain,
            units.percent(1 / gain, 2),
        )
        for gain, defect, repair in sorted(ladder.pairs, key=lambda pair: -pair[0])
        if defect.info and repair.info
    )


#: How rungs are coloured in bars: by kind alone.
_KINDS: Final = {
    "ours": BarKind("our kernels", "var(--ours)"),
    "library": BarKind("libraries", "var(--library)"),
    "worse": BarKind("slower, kept to show it", "var(--worse)"),
}
_KIND_OF: Final = {
    "baseline": "library", "roof": "library", "slower": "worse", "regression": "worse", "planted": "worse",
}  # fmt: skip


def _lines(ladder: Ladder, bases: Mapping[str, Entry], unit: str) -> list[tuple[str, float, bool]]:
    """The baselines and roofs by rate: name, rate, whether dashed."""
    lines = [(label, rate, True) for label, base in bases.items() if (rate := base.rate)]
    lines += [
        (roof.label, roof.rate, not roof.measured)
        for roof in ladder.book.roofs
        if roof.name == roof_name(ladder) and roof.unit == unit
    ]
    return sorted(lines, key=lambda line: line[1])


def _ladder_chart(ladder: Ladder) -> BarChart | None:
    book, unit = ladder.book, ladder.entries[0].unit
    bases = {base.label: base for entry in ladder if (base := entry.baseline)}
    lines = _lines(ladder, bases, unit)
    timed = [entry for entry in ladder if entry.timing and entry.rate]
    if not timed:
        return None
    longest = max([entry.rate or 0.0 for entry in timed] + [rate for _, rate, _ in lines])
    bars, rows = [], []
    for entry in ladder:
        rate, timing, kind = entry.rate, entry.timing, entry.shown_kind
        if not rate or not timing:
            rows.append([text(entry.label), text(entry.kind), *[missing(NOT_TIMED)] * 3])
            continue
        low, high = (
            rate * timing.median_us / max(timing.quantile_us(part), 1e-9) for part in (0.9, 0.1)
        )
        words = "step, slower" if kind == "slower" else entry.kind
        values = (number(value, unit) for value in (rate, low, high))
        rows.append([text(entry.label), text(words), *values])
        base_us, shown = entry.baseline_us, book.card(entry.main).title if entry.main else ""
        info = entry.info
        line = f"{units.si(rate, unit)}, 10th to 90th percentile {units.si(low, unit)} to {units.si(high, unit)}"
        bars.append(
            BarRow(
                visible(entry.label),
                (
                    units.si(rate, unit),
                    units.duration(timing.median_us),
                    units.percent(base_us / timing.median_us) if base_us else "",
                    shown,
                ),
                (Segment(_KIND_OF.get(kind, "ours"), (100 * rate / longest,), visible(line)),),
                note=visible(info.title) if info else "",
                words=visible(info.idea) if info else "",
                href=entry.page,
                minor=entry.label not in ladder.trunk and entry.kind not in ("baseline", "roof"),
            )
        )
    none = missing("a line has no spread")
    rows += [
        [text(f"{label} {units.si(rate, unit)}"), text("line"), number(rate, unit), none, none]
        for label, rate, _ in lines
    ]
    summary = f"Rate at size {ladder.label}: {_fastest(ladder)}."
    if any(bar.minor for bar in bars) and not all(bar.minor for bar in bars):
        summary += (
            " Broad bars are the steps to the fastest rung, narrow bars are variants of them."
        )
    used = {segment.kind for bar in bars for segment in bar.segments}
    of = f"Of {visible(next(iter(bases)))}" if len(bases) == 1 else "Of library" if bases else ""
    headings = ["Rung", "Kind", "Rate", "10th percentile", "90th percentile"]
    return BarChart(
        f"{ladder.key}-ladder", "How fast is each rung, and what does it do?", "The ladder", summary,
        {key: kind for key, kind in _KINDS.items() if key in used},
        ("Rung", "What it does", "", "Rate", "Time", of, "Bottleneck"),
        tuple(bars), plain_table(f"{ladder.key}-ladder-data", f"Rates at {ladder.label}", headings, rows, numeric=(2, 3, 4)),
        tuple(BarMark(100 * rate / longest, f"{visible(label)} {units.si(rate, unit)}", dashed) for label, rate, dashed in lines),
        wide=True,
    )  # fmt: skip


def _fastest(ladder: Ladder) -> str:
    best = ladder.tops if len(ladder.tops) > 1 else [ladder.top(ladder.entries)]
    with_rates = [f"{visible(top.label)} with {rate_text(ladder, top)}" for top in best]
    return f"the fastest {'are' if best[1:] else 'is'} {' and '.join(with_rates)}"


def _cycles(value: float) -> Cell:
    """Cycles in a table whose caption says so: three digits, and nothing below a thousandth."""
    return Cell(units.significant(value) if value >= 0.001 or not value else "< 0.001", value)


def _stall_chart(ladder: Ladder) -> BarChart | None:
    stacks = [
        (entry.label, dict(entry.main.stalls.reasons))
        for entry in ladder
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
    ranked = sorted(weight, key=lambda reason: -weight[reason])
    drawn = sorted(
        ranked[:_SHOWN_REASONS],
        key=lambda reason: ("selected", "not_selected", reason).index(reason),
    )
    totals = [sum(stack.values()) for _, stack in stacks]
    limit = _cut(totals)
    bars, pages = [], ladder.links
    for (name, stack), total in zip(stacks, totals, strict=True):
        parts = {reason: stack.get(reason, 0.0) for reason in drawn}
        parts["other"] = max(0.0, total - sum(parts.values()))
        segments = (
            Segment(
                reason,
                (100 * value / limit, 100 * value / total),
                f"{_reason(reason)}: {units.significant(value)} cycles, {units.percent(value / total, 2)}",
            )
            for reason, value in parts.items()
            if total and value / total >= _VISIBLE
        )
        cycles = f"{units.significant(total)}{' →' if total > limit else ''}"
        bars.append(
            BarRow(visible(name), (cycles,), tuple(segments), href=pages.get(visible(name), ""))
        )
    used = {segment.kind for bar in bars for segment in bar.segments}
    kinds = {
        reason: BarKind(_reason(reason), *charts.STALLS.get(reason, (charts.LIGHT, ".")))
        for reason in (*drawn, "other")
        if reason in used
    }
    listed = [reason for reason in ranked if weight[reason] >= _LISTED]
    summary = (
        f'Cycles per issued instruction by stall reason, for each rung at size {ladder.label}. "Issuing" is the cycle that issues. The '
        "rest is waiting."
    )
    return BarChart(
        f"{ladder.key}-stalls", "What do warps wait for, rung by rung?", "Stall migration", summary, kinds,
        ("Rung", "", "", "Cycles"), tuple(bars), _stall_table(ladder, stacks, listed),
        views=("cycles", "share"),
    )  # fmt: skip


def _stall_table(
    ladder: Ladder, stacks: Sequence[tuple[str, Mapping[str, float]]], listed: Sequence[str]
) -> Table:
    """A row for each rung that was profiled, and a column for each reason that counts anywhere."""
    rows = []
    for name, stack in stacks:
        rest = sum(cycles for reason, cycles in stack.items() if reason not in listed)
        rows.append([text(name), *map(_cycles, [*(stack.get(reason, 0.0) for reason in listed), rest])])  # fmt: skip
    count = len(ladder.entries)
    left = count - len(stacks)
    note = f"{left} of {count} rungs were not profiled at this size." if left else ""
    others = f"sum of reasons below {units.percent(_LISTED)} of every rung's stack"
    headings: list[str | tuple[str, str]] = ["Rung", *map(reason_name, listed)]
    headings.append(("all other", others))
    numeric, caption = range(1, len(listed) + 2), f"Cycles per issued instruction at {ladder.label}"
    return plain_table(f"{ladder.key}-stalls-data", caption, headings, rows, numeric=tuple(numeric), note=note)  # fmt: skip


def _reason(reason: str) -> str:
    return reason if reason == "other" else reason_name(reason)


#: Parts of a stack that are smaller are not drawn: less than half a pixel.
_VISIBLE: Final = 0.002
#: Stacks higher than this many times the median are cut off, with their height written on them: one
#: slow rung must not flatten all others.
_CUT_AT: Final = 6.0


def _cut(totals: Sequence[float]) -> float:
    """Where the axis of the stall stacks ends."""
    bound = _CUT_AT * statistics.median(totals)
    return 1.05 * max((total for total in totals if total <= bound), default=1.0)


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


def _roofline_chart(ladder: Ladder) -> Chart | None:
    book, points, rows = ladder.book, [], []
    for entry in ladder:
        rate, levels = entry.timing.flop_rate if entry.timing else None, _levels(entry)
        if not rate or not entry.flops or not levels:
            continue
        intensity = {level: entry.flops / moved for level, moved in levels.items() if moved > 0}
        points.append(
            Spot(
                entry.label, rate, intensity, entry.kind, entry.colour, entry.label in ladder.trunk,
                entry.way[0].rung,
            )
        )  # fmt: skip
        why = "this level's traffic was not collected"
        cells = (number(intensity.get(level), "", why) for level in LEVELS)
        rows.append([text(entry.label), number(rate, "FLOP/s"), *cells])
    if not points or not book.roofs:
        return None
    none = missing("a roof has no intensity")
    rows += [
        [text(roof.label, roof.how), number(roof.rate, roof.unit, title=roof.how), *[none] * 3]
        for roof in book.roofs
    ]
    summary = (
        f"Roofline at size {ladder.label}: unprofiled FLOP/s over useful FLOPs per byte, counted at DRAM (L2 and L1 in the legend). "
        "Solid roofs were measured in this run. Dashed roofs are the device's peaks."
    )
    arithmetic = roof_name(ladder)
    if arithmetic == "tensor" and any(r.name == "tensor" and r.measured for r in book.roofs):
        summary += " The tensor roof is the library's largest product, which is not an upper bound."
    headings = ["Rung or roof", "Rate", "FLOP/B, DRAM", "FLOP/B, L2", "FLOP/B, L1"]
    caption = f"Roofline at {ladder.label}: useful FLOPs over bytes moved"
    table = plain_table(
        f"{ladder.key}-roofline-data", caption, headings, rows, numeric=(1, 2, 3, 4)
    )
    figure = roofline(points, book.roofs, arithmetic)
    title = "How close does each rung come to the roofs?"
    return Chart(
        f"{ladder.key}-roofline", title, summary, figure, table, True, "Roofline", ladder.links
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


def _traffic_chart(ladder: Ladder) -> BarChart | None:
    data: list[tuple[str, dict[str, float]]] = []
    rows = []
    beside: dict[str, list[str]] = {}
    for entry in ladder:
        levels, compulsory = _levels(entry), entry.compulsory_bytes
        if not levels or not compulsory:
            continue
        over = {level: moved / compulsory for level, moved in levels.items()}
        drawn = {level: factor for level, factor in over.items() if factor >= _DRAWN}
        data.append((entry.label, drawn))
        for level in over.keys() - drawn.keys():
            beside.setdefault(level, []).append(entry.label)
        moved = (number(levels.get(level), "B", "not collected") for level in LEVELS)
        rows.append([text(entry.label), number(compulsory, "B"), *moved])
    if not data:
        return None
    factors = [factor for _, drawn in data for factor in drawn.values()]
    low, high = min([0.7, *factors]) / 1.2, max([2.2, *factors]) * 1.2

    def at(factor: float) -> float:
        return 100 * math.log(factor / low) / math.log(high / low)

    pages = ladder.links
    bars = [
        BarRow(
            visible(name),
            (units.ratio(drawn["dram"], 2) if "dram" in drawn else "",),
            points=tuple(
                Segment(level, (at(factor),), f"{_ASKED[level]}: {units.ratio(factor)}")
                for level, factor in drawn.items()
            ),
            href=pages.get(visible(name), ""),
        )
        for name, drawn in data
    ]
    summary = (
        f"Bytes moved by each memory level at size {ladder.label}, over the fewest that the problem needs. These are each input read "
        "once and each output written once."
    )
    if beside:
        left = ", ".join(_beside(beside[level], level) for level in LEVELS if level in beside)
        summary += f" Not drawn, below {units.ratio(_DRAWN, 1)}: {visible(left)}."
    headings = ["Rung", "Compulsory", *(name for name, _ in LEVELS.values())]
    return BarChart(
        f"{ladder.key}-traffic", "How often does each rung move its bytes?", "Memory traffic over compulsory", summary,
        {level: BarKind(_ASKED[level], charts.LEVELS[level][0]) for level in ("l1", "l2", "dram") if any(level in drawn for _, drawn in data)},
        ("Rung", "", "", "DRAM"), tuple(bars),
        plain_table(f"{ladder.key}-traffic-data", f"Bytes moved at {ladder.label}", headings, rows, numeric=(1, 2, 3, 4)),
        tuple(BarMark(at(tick), f"{tick:g}×", tick != 1) for tick in _ticks(low, high)),
    )  # fmt: skip


_ASKED: Final = {"l1": "asked of L1", "l2": "asked of L2", "dram": "DRAM"}
#: Labels of factors that fit side by side on a phone.
_TICKS: Final = 5


def _ticks(low: float, high: float) -> list[float]:
    """Powers of two between two factors; of four, eight or more where these are more than a phone
    has room for. 1 is among them."""
    least, most = math.ceil(math.log2(low)), math.floor(math.log2(high))
    step = math.ceil((most - least + 1) / _TICKS)
    return [2.0**n for n in range(least, most + 1) if n % step == 0]


def _beside(labels: list[str], level: str) -> str:
    """Whose bytes do not reach a level: `reduce_bulk bypasses L1`."""
    one, several = _BESIDE[level]
    if len(labels) == 1:
        return f"{labels[0]} {one}"
    names = units.listed(labels) if len(labels) <= _NAMED else f"{len(labels)} rungs"
    return f"{names} {several}"


def _sizes_chart(book: Book, family: str) -> Chart | None:
    lines: dict[tuple[str, str], dict[str, float]] = {}
    kinds: dict[str, str] = {}
    dims: dict[str, Mapping[str, int]] = {}
    ladders = book.families[family]
    types = {variant.dtype for variant in ladders}
    for variant, ladder in ladders.items():
        for entry in ladder:
            rate = ladder.rates.get(entry.label)
            if rate and entry.timing:
                lines.setdefault((entry.label, variant.dtype), {})[variant.size] = rate
                kinds[entry.label] = entry.kind
                dims[variant.size] = entry.timing.dims
    if len(dims) < 2:
        return None
    unit = book.primary(family).entries[0].unit
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
    return Chart(
        key,
        "Rate by size",
        "Rate of each rung over the problem size, unprofiled. Choose rungs in the legend.",
        charts.by_size(series, axis, unit),
        plain_table(
            f"{key}-data",
            "Rate by size",
            ["Rung", *map(shown_size, axis.places)],
            rows,
            numeric=range(1, len(axis.places) + 1),
        ),
    )


def _library_table(book: Book, family: str) -> Table | None:
    """Which kernels the library picked for each size."""
    rows = [
        [
            text(entry.label),
            text(f"{ladder.size} {variant.dtype}"),
            number(i, "count"),
            text(name, code=True),
            number(entry.timing.median_us, "us"),
        ]
        for variant, ladder in book.families[family].items()
        for entry in ladder
        if entry.timing
        for i, name in enumerate(entry.timing.kernels, 1)
    ]
    if not rows:
        return None
    return plain_table(
        slug(f"{family}-library"),
        "Kernels that the library launched",
        ["Rung", "Size", "Launch", "Kernel", ("Time", "of all launches of the call")],
        rows,
        numeric=(2, 4),
    )
