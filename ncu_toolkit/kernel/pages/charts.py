"""Plotly figures as plain JSON. Colours of text, grid and paper are left out: the page's script
sets them for the light or dark theme.

Functions take values and return `data` and `layout`; what to draw is decided by the view builders.
The palette is that of Okabe and Ito, which people with the common colour-vision deficiencies can
tell apart. Neighbours in a stack also differ by pattern, so nothing rests on colour alone."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import plot_text
from ncu_toolkit.base.document.views import shown_size

BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
GREEN: Final = "#009E73"
YELLOW: Final = "#F0E442"
ORANGE: Final = "#E69F00"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#8A8F98"
LIGHT: Final = "#C9CDD3"

#: Kind of rung -> (pattern, words). The colour is the rung's own.
KINDS: Final[dict[str, tuple[str, str]]] = {
    "step": ("", "step"),
    "slower": ("\\", "step, slower than the one before"),
    "regression": ("/", "regression, kept to show it"),
    "planted": ("x", "planted defect"),
    "baseline": ("", "library baseline"),
    "roof": ("", "roof"),
    "probe": (".", "probe"),
}
#: Our own rungs are of one hue, from the pale first to the deep last one; lightness and chroma
#: (OKLCH) show on white and on black.
_HUE: Final = math.radians(245.0)
_FIRST, _LAST, _CHROMA = 0.76, 0.52, 0.13


def rung_colour(place: int, count: int, kind: str) -> str:
    """The colour of a rung in every chart, by its place among `count`; libraries and roofs are
    grey, regressions and planted defects vermilion.

    OKLCH to sRGB after B. Ottosson, "A perceptual color space for image processing" (2020)."""
    if kind in ("baseline", "roof"):
        return GREY
    if kind in ("regression", "planted"):
        return VERMILION
    lightness = _FIRST + (_LAST - _FIRST) * place / max(1, count - 1)
    a, b = _CHROMA * math.cos(_HUE), _CHROMA * math.sin(_HUE)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_eight_bits(value):02x}" for value in linear)


def _eight_bits(linear: float) -> int:
    """A linear channel as its sRGB value, 0-255 (IEC 61966-2-1)."""
    value = min(1.0, max(0.0, linear))
    coded = 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
    return round(255 * coded)


#: Stall reason -> (colour, pattern). A reason keeps its colour on every chart.
STALLS: Final[dict[str, tuple[str, str]]] = {
    "selected": (GREY, ""), "not_selected": (LIGHT, ""), "long_scoreboard": (BLUE, ""), "short_scoreboard": (SKY, ""),
    "mio_throttle": (VERMILION, ""), "lg_throttle": (ORANGE, ""), "barrier": (PURPLE, ""), "math_pipe_throttle": (GREEN, ""),
    "wait": (YELLOW, ""), "membar": (PURPLE, "/"), "tex_throttle": (ORANGE, "/"), "drain": (BLUE, "/"), "imc_miss": (SKY, "/"),
    "no_instruction": (GREEN, "/"), "branch_resolving": (YELLOW, "/"), "dispatch_stall": (VERMILION, "/"),
    "sleeping": (GREY, "/"), "misc": (LIGHT, "/"), "gmma": (GREEN, "x"),
}  # fmt: skip

#: Memory level -> (colour, marker symbol).
LEVELS: Final[dict[str, tuple[str, str]]] = {
    "dram": (BLUE, "circle"), "l2": (ORANGE, "square"), "l1": (GREEN, "diamond")
}  # fmt: skip
SYMBOLS: Final = (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star", "hexagon", "pentagon",
)  # fmt: skip

Figure = dict[str, Any]
#: Below the plot; the page's script makes room for as many lines as the width needs.
LEGEND: Final = {
    "orientation": "h", "x": 0, "xref": "container", "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom",
    "traceorder": "normal", "font": {"size": 11},
}  # fmt: skip


def figure(
    data: Sequence[Figure], height: float, x: Figure, y: Figure, *, margin: tuple[int, int, int, int] = (8, 16, 8, 44),
    legend: bool = True, **more: Any,
) -> Figure:  # fmt: skip
    """Traces with their layout: margins are left, right, top and bottom; `more` is of the layout."""
    below = {"legend": LEGEND} if legend else {}
    sides = dict(zip("lrtb", margin, strict=True))
    layout = {"height": height, "margin": sides, "xaxis": x, "yaxis": y, "showlegend": legend}
    return {"data": list(data), "layout": {**layout, **below, **more}}


def scatter(mode: str, name: str, x: Iterable[Any], y: Iterable[Any], **more: Any) -> Figure:
    return {"type": "scatter", "mode": mode, "name": name, "x": list(x), "y": list(y), **more}


def axis(title: str = "", **more: Any) -> Figure:
    return {**({"title": {"text": title}} if title else {}), **more}


def log_axis(title: str, ticks: Sequence[float], suffix: str = "", **more: Any) -> Figure:
    """A logarithmic axis with labels at `ticks`."""
    return axis(
        title, type="log", tickvals=ticks, ticktext=[f"{t:g}{suffix}" for t in ticks], **more
    )


def hover(text: str) -> Figure:
    return {"hovertemplate": f"{text}<extra></extra>"}


#: Distances between labels of sizes that fit side by side on a phone.
_LABELS: Final = 6.5


def apart(places: Sequence[float], labels: Sequence[str]) -> list[str]:
    """The labels of a logarithmic axis, from its least place up, without those that would lie on
    the one before, where a phone shows them."""
    span = math.log(places[-1] / places[0]) if places else 0.0
    kept, last = [], -math.inf
    for place, label in zip(places, labels, strict=True):
        free = math.log(place) - last >= span / _LABELS
        kept.append(label if free else "")
        last = math.log(place) if free else last
    return kept


@dataclass(frozen=True)
class SizeAxis:
    """Sizes on an axis: the place of each label, in order, the labels at which lines begin again, and
    the axis's layout."""

    places: Mapping[str, float]
    breaks: frozenset[str]
    layout: Figure

    def line(self, labels: Collection[str]) -> list[str | None]:
        """The labels in the axis's order, with None where a line is to have a gap."""
        found: list[str | None] = []
        gap = False
        for label in self.places:
            gap = gap or label in self.breaks
            if label in labels:
                found += [None, label] if gap and found else [label]
                gap = False
        return found


def size_axis(dims: Mapping[str, Mapping[str, int]]) -> SizeAxis:
    """An axis for sizes, given each label's extents by dimension.

    It is logarithmic in the product of the extents where sizes only grow: none is smaller in a
    dimension than the one before. Otherwise sizes lie side by side, those together that differ in
    the first dimension only, and lines join these."""
    volumes = {label: float(math.prod(extents.values())) for label, extents in dims.items()}
    order = sorted(dims, key=lambda label: volumes[label])
    grows = all(
        volumes[a] < volumes[b]
        and all(x <= y for x, y in zip(dims[a].values(), dims[b].values(), strict=True))
        for a, b in pairwise(order)
    )
    if grows:
        places = [volumes[label] for label in order]
        shown = apart(places, [plot_text(shown_size(label)) for label in order])
        layout = axis("size", type="log", tickvals=places, ticktext=shown, automargin=True)
        return SizeAxis(dict(zip(order, places, strict=True)), frozenset(), layout)
    extents = {label: tuple(dims[label].values())[::-1] for label in dims}
    order = sorted(dims, key=lambda label: extents[label])
    breaks = [b for a, b in pairwise(order) if extents[a][:-1] != extents[b][:-1]]
    layout = axis(
        "size",
        tickvals=list(range(1, len(order) + 1)),
        range=[0.5, len(order) + 1],  # slanted labels reach to the right
        ticktext=[plot_text(shown_size(label)) for label in order],
        automargin=True,
    )
    at = {label: float(place) for place, label in enumerate(order, 1)}
    return SizeAxis(at, frozenset(breaks if len(breaks) + 1 < len(order) else ()), layout)


#: Rungs drawn at first in the chart over sizes; the others wait in the legend.
_SIZES_SHOWN: Final = 6


def by_size(
    series: Sequence[tuple[str, str, str, Mapping[str, float]]], sizes: SizeAxis, unit: str
) -> Figure:
    """Rate over size, a line for each rung: (label, kind, colour, rate by size)."""
    factor, prefix = si_prefix(
        max((rate for *_, rates in series for rate in rates.values()), default=1.0)
    )
    last = {
        label: next(rates[size] for size in reversed(tuple(sizes.places)) if size in rates)
        for label, _, _, rates in series
    }
    steps = (last[label] for label, kind, *_ in series if kind == "step")
    fastest = sorted(steps, reverse=True)[:_SIZES_SHOWN]
    data = []
    for index, (label, kind, colour, rates) in enumerate(series):
        baseline, line = kind in ("baseline", "roof"), sizes.line(rates)
        drawn = baseline or index == 0 or (fastest and last[label] >= fastest[-1])
        dash = "dash" if kind in ("regression", "planted") else "solid"
        data.append(
            scatter(
                "lines+markers",
                plot_text(label),
                [size and sizes.places[size] for size in line],
                [size and rates[size] / factor for size in line],
                line={"color": colour, "width": 3 if baseline else 1.5, "dash": dash},
                marker={"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 7},
                text=[
                    size and f"{plot_text(size)}: {units.si(rates[size], unit)}" for size in line
                ],
                visible=True if drawn else "legendonly",
                **hover("%{fullData.name}<br>%{text}"),
            )
        )
    y = axis(f"{prefix}{unit}", rangemode="tozero", automargin=True)
    return figure(data, 460, sizes.layout, y)


def predictions(steps: Sequence[tuple[str, float, float, bool, str]]) -> Figure:
    """Achieved over predicted speedup, logarithmic; on the diagonal both are the same. Steps are
    (label, predicted, achieved, whether judged, text)."""
    values = [value for _, predicted, achieved, *_ in steps for value in (predicted, achieved)]
    low, high = min([0.95, *values]) / 1.05, max([1.1, *values]) * 1.1
    dotted = {"dash": "dot", "width": 1.5}
    ends = [low, high]
    data = [scatter("lines", "achieved as predicted", ends, ends, line=dotted, hoverinfo="skip")]
    for judged, name, colour, symbol in (
        (True, "judged", BLUE, "circle"),
        (False, "not scored", GREY, "circle-open"),
    ):
        chosen = [step for step in steps if step[3] is judged]
        if chosen:
            labels, predicted, achieved, _, texts = zip(*chosen, strict=True)
            data.append(
                scatter(
                    "markers",
                    name,
                    predicted,
                    achieved,
                    customdata=list(map(plot_text, labels)),
                    text=list(map(plot_text, texts)),
                    marker={"color": colour, "symbol": symbol, "size": 9, "line": {"width": 1}},
                    **hover("%{customdata}<br>%{text}"),
                )
            )
    span = [math.log10(low), math.log10(high)]
    ticks = [tick for tick in (0.5, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100) if low <= tick <= high]
    x, y = (
        log_axis(title, ticks, "×", range=span, automargin=True)
        for title in ("predicted, if only this is fixed", "achieved")
    )
    return figure(data, 420, x, y)


def si_prefix(largest: float) -> tuple[float, str]:
    """The SI factor that suits a chart's largest value."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= factor:
            return factor, prefix
    return 1.0, ""
