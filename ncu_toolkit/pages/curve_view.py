"""The curve over sizes: the fastest rungs of a ladder against the library, from 256 to 16384 say,
both axes logarithmic."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import plot_text, slug, visible
from ncu_toolkit.document.views import Cell, Chart, missing, number, plain_table, shown_size, text
from ncu_toolkit.model import Timing
from ncu_toolkit.pages import charts, palette
from ncu_toolkit.pages.book import Book, problem_of
from ncu_toolkit.pages.columns import NOT_TIMED, rate_unit

#: Rungs drawn beside the baseline.
RUNGS: Final = 3
#: Sizes that make a curve.
LEAST_SIZES: Final = 3
_HEIGHT: Final = 440

#: Timings of one rung by size label.
Line = Mapping[str, Timing]


def library_curve(book: Book, family: str, kind: str) -> Chart | None:
    """The baseline and the rungs that are fastest at the largest size, over every size that both
    were timed at; None for too few sizes."""
    problem = problem_of(family)
    if problem is None or not problem.baseline:
        return None
    own = [timing for timing in book.run.curve if timing.family == family]
    lines = _lines(own or [timing for timing in book.run.timings if timing.family == family])
    base = lines.pop(problem.baseline, {})
    rivals = {
        rung: line
        for rung, line in lines.items()
        if _comparable(book, family, rung) and len(line.keys() & base.keys()) >= LEAST_SIZES
    }
    if not rivals:
        return None
    most = max(len(line.keys() & base.keys()) for line in rivals.values())
    # a curve of few rungs over many sizes goes before all rungs over few sizes
    full = {rung: line for rung, line in rivals.items() if len(line.keys() & base.keys()) == most}
    axis = charts.size_axis(
        {size: base[size].dims for line in full.values() for size in line if size in base}
    )
    sizes = list(axis.places)
    largest = sizes[-1]
    top = sorted(full, key=lambda rung: full[rung][largest].median_us)[:RUNGS]
    shown = {problem.baseline: base, **{rung: full[rung] for rung in top}}
    unit = rate_unit(kind)
    key = slug(f"{family}-curve")
    summary = " ".join(_sentence(rung, problem.baseline, full[rung], base, sizes) for rung in top)
    dtype = base[largest].dtype
    unseen = frozenset(sizes) - {*problem.curve_sizes, *problem.bench_sizes, *problem.record_sizes}
    if unseen:
        means = [
            f"{visible(rung)} {units.ratio(statistics.geometric_mean(_of_library(full[rung][size], base[size]) for size in unseen))}"
            for rung in top
        ]
        summary += f" Open marks are sizes that no kernel was developed at, {len(unseen)} of {len(sizes)}; geometric mean there: {', '.join(means)}."
    return Chart(
        key,
        "Against the library, by size",
        f"{summary} Unprofiled medians ({visible(dtype)}). Bars run from the 10th to the 90th percentile of the repeats.",
        _figure(shown, problem.baseline, axis, kind, unit, book.colours.get(family, {}), unseen),
        plain_table(
            f"{key}-data",
            "Rate by size, and over the library's",
            [
                "Size",
                visible(problem.baseline),
                *(
                    label
                    for rung in top
                    for label in (
                        visible(rung),
                        ("of the library", f"{visible(rung)}: the library's time over its own"),
                    )
                ),
            ],
            [
                _row(size, base, [full[rung] for rung in top], kind, unit, size in unseen)
                for size in sizes
            ],
            numeric=range(1, 2 + 2 * len(top)),
        ),
        wide=True,
    )


def _lines(own: Sequence[Timing]) -> dict[str, dict[str, Timing]]:
    """Timings of the most timed element type by rung and size; of two states of the cache the
    flushed one."""
    if not own:
        return {}
    dtype = statistics.mode(timing.dtype for timing in own)
    found: dict[str, dict[str, Timing]] = {}
    for timing in own:
        line = found.setdefault(timing.rung, {})
        known = line.get(timing.size)
        if (
            timing.dtype == dtype
            and timing.times_us
            and (known is None or timing.cache == "flushed")
        ):
            line[timing.size] = timing
    return found


def _comparable(book: Book, family: str, rung: str) -> bool:
    """Whether a rung does what the family's baseline does, and is meant to be fast."""
    info, problem = book.rungs.get((family, rung)), problem_of(family)
    return (
        info is not None
        and problem is not None
        and info.kind == "step"
        and info.baseline in ("", problem.baseline)
    )


def _rate(timing: Timing, kind: str, microseconds: float) -> float:
    return (timing.flops if kind == "flop" else timing.compulsory_bytes) / (microseconds * 1e-6)


def _of_library(timing: Timing, base: Timing) -> float:
    """The library's time over the rung's: as interleaved with its repeats where it was."""
    return (timing.baseline_us or base.median_us) / timing.median_us


def _sentence(rung: str, baseline: str, line: Line, base: Line, sizes: Sequence[str]) -> str:
    shares = [_of_library(line[size], base[size]) for size in sizes]
    mean = statistics.geometric_mean(shares)
    ends = f"{units.ratio(min(shares))} to {units.ratio(max(shares))}"
    ahead = f"ahead at {sum(share > 1.0 for share in shares)} of {len(sizes)} sizes"
    return f"{visible(rung)}: {ahead}, geometric mean {units.ratio(mean)} {visible(baseline)} ({ends})."


def _row(
    size: str, base: Line, lines: Sequence[Line], kind: str, unit: str, unseen: bool
) -> list[Cell]:
    label = f"{shown_size(size)}, unseen" if unseen else shown_size(size)
    cells = [text(label), _rate_cell(base[size], kind, unit)]
    for line in lines:
        timing = line.get(size)
        if timing is None:
            cells += [missing(NOT_TIMED), missing(NOT_TIMED)]
        else:
            how = "interleaved with these repeats" if timing.baseline_us else "timed separately"
            cells += [
                _rate_cell(timing, kind, unit),
                number(_of_library(timing, base[size]), "ratio", title=f"the library {how}"),
            ]
    return cells


def _rate_cell(timing: Timing, kind: str, unit: str) -> Cell:
    slow, fast = timing.quantile_us(0.9), timing.quantile_us(0.1)
    clock = f", SM clock {timing.sm_clock_mhz:.0f} MHz" if timing.sm_clock_mhz else ""
    slowed = f", slowed down: {timing.throttle}" if timing.throttle else ""
    slowed += ", with rests between runs" if timing.rested else ""
    spread = f"10th to 90th percentile {units.duration(fast)} to {units.duration(slow)}, {len(timing.times_us)} runs, L2 {timing.cache}"
    return number(_rate(timing, kind, timing.median_us), unit, title=f"{spread}{clock}{slowed}")


def _figure(
    shown: Mapping[str, Line],
    baseline: str,
    axis: charts.SizeAxis,
    kind: str,
    unit: str,
    colours: Mapping[str, str],
    unseen: Collection[str],
) -> dict[str, Any]:
    rates = {
        rung: {size: _rate(line[size], kind, line[size].median_us) for size in axis.places}
        for rung, line in shown.items()
    }
    factor, prefix = charts.si_prefix(max(max(found.values()) for found in rates.values()))
    drawn = axis.line(axis.places)
    data = []
    for index, (rung, line) in enumerate(shown.items()):
        rate = rates[rung]
        symbol = palette.SYMBOLS[index % len(palette.SYMBOLS)]
        low = {size: _rate(line[size], kind, line[size].quantile_us(0.9)) for size in rate}
        high = {size: _rate(line[size], kind, line[size].quantile_us(0.1)) for size in rate}
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plot_text(rung),
                "x": [size and axis.places[size] for size in drawn],
                "y": [size and rate[size] / factor for size in drawn],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [size and (high[size] - rate[size]) / factor for size in drawn],
                    "arrayminus": [size and (rate[size] - low[size]) / factor for size in drawn],
                    "thickness": 1.2,
                    "width": 3,
                },
                "line": {
                    "color": colours.get(rung, palette.GREY),
                    "width": 3 if rung == baseline else 2,
                },
                "marker": {
                    "symbol": [f"{symbol}-open" if size in unseen else symbol for size in drawn]
                    if unseen
                    else symbol,
                    "size": 8,
                },
                "text": [
                    size and f"{plot_text(size)}: {units.si(rate[size], unit)}" for size in drawn
                ],
                "hovertemplate": "%{fullData.name}<br>%{text}<extra></extra>",
            }
        )
    layout = {
        "height": _HEIGHT,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "legend": charts.LEGEND,
        "showlegend": True,
        "xaxis": axis.layout,
        "yaxis": {
            "type": "log",
            "title": {"text": f"{prefix}{unit}"},
            "automargin": True,
            "tickvals": (ticks := _decades(data)),
            "ticktext": [f"{t:g}" for t in ticks],
        },
    }
    return {"data": data, "layout": layout}


def _decades(data: Sequence[Mapping[str, Any]]) -> list[float]:
    """1, 2 and 5 of each power of ten that the lines lie in; every digit where they span less than
    a factor of ten."""
    values = [y for trace in data for y in trace["y"] if y]
    low, high = (math.floor(math.log10(edge(values))) for edge in (min, max))
    digits = (1, 2, 5) if max(values) >= 10 * min(values) else range(1, 10)
    return [digit * 10.0**power for power in range(low, high + 1) for digit in digits]
