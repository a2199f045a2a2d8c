"""The curve over sizes: the fastest rungs of a ladder against the library, from 256 to 16384 say,
both axes logarithmic."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import plot_text, slug, visible
from ncu_toolkit.base.document.tables import Cell, missing, number, plain_table, text
from ncu_toolkit.base.document.views import Chart, shown_size
from ncu_toolkit.base.model import Timing
from ncu_toolkit.kernel.pages import charts
from ncu_toolkit.kernel.pages.book import Book, problem_of
from ncu_toolkit.kernel.pages.columns import NOT_TIMED, interleaved

#: Rungs drawn beside the baseline.
RUNGS: Final = 3
#: Sizes that make a curve.
LEAST_SIZES: Final = 3
_HEIGHT: Final = 440

#: Timings of one rung by size label.
Line = Mapping[str, Timing]


def library_curve(book: Book, family: str) -> Chart | None:
    """The baseline and the rungs that are fastest at the largest size, over every size that both
    were timed at; None for too few sizes."""
    problem = problem_of(family)
    if problem is None or not problem.baseline:
        return None
    own = [timing for timing in book.run.curve if timing.family == family]
    lines = _lines(own or [timing for timing in book.run.timings if timing.family == family])
    base = lines.pop(problem.baseline, {})
    shared = {rung: len(line.keys() & base.keys()) for rung, line in lines.items()}
    rivals = [
        rung
        for rung, count in shared.items()
        if count >= LEAST_SIZES
        and (info := book.rungs.get((family, rung))) is not None
        and info.kind == "step"
        and info.baseline in ("", problem.baseline)
    ]
    if not rivals:
        return None
    # a curve of few rungs over many sizes goes before all rungs over few sizes
    most = max(shared[rung] for rung in rivals)
    full = {rung: lines[rung] for rung in rivals if shared[rung] == most}
    axis = charts.size_axis(
        {size: base[size].dims for line in full.values() for size in line if size in base}
    )
    largest = [*axis.places][-1]
    top = sorted(full, key=lambda rung: full[rung][largest].median_us)[:RUNGS]
    known = {*problem.curve_sizes, *problem.bench_sizes, *problem.record_sizes}
    curve = _Curve(
        problem.baseline, base, {rung: full[rung] for rung in top}, axis, axis.places.keys() - known,
        book.by_flops[family],
    )  # fmt: skip
    key = slug(f"{family}-curve")
    over = [
        (visible(rung), ("of the library", f"{visible(rung)}: the library's time over its own"))
        for rung in top
    ]
    return Chart(
        key,
        "Against the library, by size",
        f"{curve.summary()} Unprofiled medians ({visible(base[largest].dtype)}). Bars run from the 10th to the 90th percentile of the repeats.",
        curve.figure(book.colours.get(family, {})),
        plain_table(
            f"{key}-data",
            "Rate by size, and over the library's",
            ["Size", visible(problem.baseline), *(label for pair in over for label in pair)],
            [[*curve.row(size)] for size in axis.places],
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
        fresh = timing.size not in line or timing.cache == "flushed"
        if timing.dtype == dtype and timing.times_us and fresh:
            line[timing.size] = timing
    return found


@dataclass(frozen=True)
class _Curve:
    """The baseline's line and those of the fastest rungs; `unseen` sizes are none that a kernel was
    developed at."""

    baseline: str
    base: Line
    top: Mapping[str, Line]
    axis: charts.SizeAxis
    unseen: set[str]
    by_flops: bool

    @property
    def unit(self) -> str:
        return "FLOP/s" if self.by_flops else "B/s"

    def rate(self, timing: Timing, part: float = 0.5) -> float:
        """At a quantile of the times; at their median by default."""
        time = timing.median_us if part == 0.5 else timing.quantile_us(part)
        return (timing.flops if self.by_flops else timing.compulsory_bytes) / (time * 1e-6)

    def of_library(self, rung: str, size: str) -> float:
        """The library's time over the rung's: as interleaved with its repeats where it was."""
        timing = self.top[rung][size]
        return (timing.baseline_us or self.base[size].median_us) / timing.median_us

    def summary(self) -> str:
        parts, count = [], len(self.axis.places)
        for rung in self.top:
            shares = [self.of_library(rung, size) for size in self.axis.places]
            ahead = f"ahead at {sum(share > 1.0 for share in shares)} of {count} sizes"
            mean = units.ratio(statistics.geometric_mean(shares))
            ends = f"{units.ratio(min(shares))} to {units.ratio(max(shares))}"
            parts.append(
                f"{visible(rung)}: {ahead}, geometric mean {mean} {visible(self.baseline)} ({ends})."
            )
        if self.unseen:
            means = [
                f"{visible(rung)} {units.ratio(statistics.geometric_mean(self.of_library(rung, size) for size in self.unseen))}"
                for rung in self.top
            ]
            parts.append(
                f"Open marks are sizes that no kernel was developed at, {len(self.unseen)} of {count}; geometric mean there: {', '.join(means)}."
            )
        return " ".join(parts)

    def row(self, size: str) -> Iterator[Cell]:
        yield text(f"{shown_size(size)}, unseen" if size in self.unseen else shown_size(size))
        yield self._rate_cell(self.base[size])
        for rung, line in self.top.items():
            timing = line.get(size)
            if timing is None:
                yield from [missing(NOT_TIMED)] * 2
                continue
            yield self._rate_cell(timing)
            how = f"the library {interleaved(timing)}"
            yield number(self.of_library(rung, size), "ratio", title=how)

    def _rate_cell(self, timing: Timing) -> Cell:
        fast, slow = (units.duration(timing.quantile_us(part)) for part in (0.1, 0.9))
        how = f"10th to 90th percentile {fast} to {slow}, {len(timing.times_us)} runs, L2 {timing.cache}"
        how += f", SM clock {timing.sm_clock_mhz:.0f} MHz" if timing.sm_clock_mhz else ""
        how += f", slowed down: {timing.throttle}" if timing.throttle else ""
        how += ", with rests between runs" if timing.rested else ""
        return number(self.rate(timing), self.unit, title=how)

    def figure(self, colours: Mapping[str, str]) -> charts.Figure:
        places, drawn = self.axis.places, self.axis.line(self.axis.places)
        lines = {self.baseline: self.base, **self.top}
        factor, prefix = charts.si_prefix(
            max(self.rate(line[size]) for line in lines.values() for size in places)
        )
        data = []
        for index, (rung, line) in enumerate(lines.items()):
            rate, low, high = (
                {size: self.rate(line[size], part) for size in places} for part in (0.5, 0.9, 0.1)
            )
            symbol = charts.SYMBOLS[index % len(charts.SYMBOLS)]
            marks = [f"{symbol}-open" if size in self.unseen else symbol for size in drawn]
            spread = {
                "type": "data",
                "symmetric": False,
                "array": [size and (high[size] - rate[size]) / factor for size in drawn],
                "arrayminus": [size and (rate[size] - low[size]) / factor for size in drawn],
                "thickness": 1.2,
                "width": 3,
            }
            width = 3 if rung == self.baseline else 2
            data.append(
                charts.scatter(
                    "lines+markers",
                    plot_text(rung),
                    [size and places[size] for size in drawn],
                    [size and rate[size] / factor for size in drawn],
                    error_y=spread,
                    line={"color": colours.get(rung, charts.GREY), "width": width},
                    marker={"symbol": marks if self.unseen else symbol, "size": 8},
                    text=[
                        size and f"{plot_text(size)}: {units.si(rate[size], self.unit)}"
                        for size in drawn
                    ],
                    **charts.hover("%{fullData.name}<br>%{text}"),
                )
            )
        y = charts.log_axis(f"{prefix}{self.unit}", _decades(data), automargin=True)
        return charts.figure(data, _HEIGHT, self.axis.layout, y)


def _decades(data: Sequence[Mapping[str, Any]]) -> list[float]:
    """1, 2 and 5 of each power of ten that the lines lie in; every digit where they span less than
    a factor of ten."""
    values = [y for trace in data for y in trace["y"] if y]
    low, high = (math.floor(math.log10(edge(values))) for edge in (min, max))
    digits = (1, 2, 5) if max(values) >= 10 * min(values) else range(1, 10)
    return [digit * 10.0**power for power in range(low, high + 1) for digit in digits]
