"""Plotly figures as plain JSON. Colours of text, grid and paper are left out: the page's script
sets them for the light or dark theme.

Functions take values and return `data` and `layout`; what to draw is decided by the view builders.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import plot_text
from ncu_toolkit.document.views import shown_size
from ncu_toolkit.pages import palette

Figure = dict[str, Any]


#: Below the plot; the page's script makes room for as many lines as the width needs.
LEGEND: Final = {
    "orientation": "h",
    "x": 0,
    "xref": "container",
    "xanchor": "left",
    "y": 0,
    "yref": "container",
    "yanchor": "bottom",
    "traceorder": "normal",
    "font": {"size": 11},
}


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
    """Sizes on an axis: the place of each label, in order, the labels at which lines begin anew, and
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
    title = {"text": "size"}
    if grows:
        places = [volumes[label] for label in order]
        shown = apart(places, [plot_text(shown_size(label)) for label in order])
        layout = {"type": "log", "title": title, "tickvals": places, "ticktext": shown}
        return SizeAxis(
            dict(zip(order, places, strict=True)), frozenset(), {**layout, "automargin": True}
        )
    extents = {label: tuple(dims[label].values())[::-1] for label in dims}
    order = sorted(dims, key=lambda label: extents[label])
    breaks = [b for a, b in pairwise(order) if extents[a][:-1] != extents[b][:-1]]
    layout = {
        "title": title,
        "tickvals": list(range(1, len(order) + 1)),
        "range": [0.5, len(order) + 1],  # slanted labels reach to the right
        "ticktext": [plot_text(shown_size(label)) for label in order],
    }
    return SizeAxis(
        {label: float(place) for place, label in enumerate(order, 1)},
        frozenset(breaks if len(breaks) + 1 < len(order) else ()),
        {**layout, "automargin": True},
    )


#: Rungs drawn at first in the chart over sizes; the others wait in the legend.
_SIZES_SHOWN: Final = 6


def by_size(
    series: Sequence[tuple[str, str, str, Mapping[str, float]]], axis: SizeAxis, unit: str
) -> Figure:
    """Rate over size, a line for each rung: (label, kind, colour, rate by size)."""
    factor, prefix = si_prefix(
        max((rate for *_, rates in series for rate in rates.values()), default=1.0)
    )
    last = {
        label: next(rates[size] for size in reversed(tuple(axis.places)) if size in rates)
        for label, _, _, rates in series
    }
    fastest = sorted((last[label] for label, kind, *_ in series if kind == "step"), reverse=True)[
        :_SIZES_SHOWN
    ]
    data = []
    for index, (label, kind, colour, rates) in enumerate(series):
        baseline = kind in ("baseline", "roof")
        line = axis.line(rates)
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": plot_text(label),
                "x": [size and axis.places[size] for size in line],
                "y": [size and rates[size] / factor for size in line],
                "line": {
                    "color": colour,
                    "width": 3 if baseline else 1.5,
                    "dash": "dash" if kind in ("regression", "planted") else "solid",
                },
                "marker": {"symbol": palette.SYMBOLS[index % len(palette.SYMBOLS)], "size": 7},
                "text": [
                    size and f"{plot_text(size)}: {units.si(rates[size], unit)}" for size in line
                ],
                "hovertemplate": "%{fullData.name}<br>%{text}<extra></extra>",
                "visible": True
                if baseline or index == 0 or (fastest and last[label] >= fastest[-1])
                else "legendonly",
            }
        )
    layout = {
        "height": 460,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "legend": LEGEND,
        "showlegend": True,
        "xaxis": axis.layout,
        "yaxis": {"title": {"text": f"{prefix}{unit}"}, "rangemode": "tozero", "automargin": True},
    }
    return {"data": data, "layout": layout}


@dataclass(frozen=True)
class Guess:
    """One step: the speedup that was predicted, and what the next rung achieved."""

    label: str
    predicted: float
    achieved: float
    judged: bool
    text: str


def predictions(guesses: Sequence[Guess]) -> Figure:
    """Achieved over predicted speedup, logarithmic; on the diagonal both are the same."""
    values = [value for guess in guesses for value in (guess.predicted, guess.achieved)]
    low, high = min([0.95, *values]) / 1.05, max([1.1, *values]) * 1.1
    data: list[Figure] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "achieved as predicted",
            "x": [low, high],
            "y": [low, high],
            "line": {"dash": "dot", "width": 1.5},
            "hoverinfo": "skip",
        }
    ]
    for judged, name in ((True, "judged"), (False, "not scored")):
        chosen = [guess for guess in guesses if guess.judged is judged]
        if chosen:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [guess.predicted for guess in chosen],
                    "y": [guess.achieved for guess in chosen],
                    "customdata": [plot_text(guess.label) for guess in chosen],
                    "text": [plot_text(guess.text) for guess in chosen],
                    "marker": {
                        "color": palette.BLUE if judged else palette.GREY,
                        "symbol": "circle" if judged else "circle-open",
                        "size": 9,
                        "line": {"width": 1},
                    },
                    "hovertemplate": "%{customdata}<br>%{text}<extra></extra>",
                }
            )
    span = [math.log10(low), math.log10(high)]
    ticks = [
        value for value in (0.5, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100) if low <= value <= high
    ]
    axis = {
        "type": "log",
        "range": span,
        "automargin": True,
        "tickvals": ticks,
        "ticktext": [f"{t:g}×" for t in ticks],
    }
    layout = {
        "height": 420,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "legend": LEGEND,
        "showlegend": True,
        "xaxis": {**axis, "title": {"text": "predicted, if only this is fixed"}},
        "yaxis": {**axis, "title": {"text": "achieved"}},
    }
    return {"data": data, "layout": layout}


def what_if(
    label: str,
    values: Sequence[float],
    warps: Sequence[float],
    now: tuple[float, float],
    capacity: float,
) -> Figure:
    """Resident warps an SM over one resource, with a diamond where the launch is now: (resource,
    warps)."""
    turns = [
        (value, warps[at])
        for at, value in enumerate(values)
        if at in (0, len(values) - 1) or warps[at] != warps[at - 1]
    ]
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "warps",
            "x": [value for value, _ in turns],
            "y": [height for _, height in turns],
            "line": {"color": palette.BLUE, "shape": "hv", "width": 2},
            "hovertemplate": "%{x}: %{y} warps<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "markers",
            "name": "now",
            "x": [now[0]],
            "y": [now[1]],
            "marker": {"color": palette.VERMILION, "size": 11, "symbol": "diamond"},
            "hovertemplate": "now: %{x}, %{y} warps<extra></extra>",
        },
    ]
    layout = {
        "height": 230,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 40},
        "showlegend": False,
        "xaxis": {"title": {"text": plot_text(label)}, "automargin": True},
        "yaxis": {
            "range": [0, capacity * 1.05],
            "automargin": True,
            "title": {"text": "warps an SM"},
        },
    }
    return {"data": data, "layout": layout}


def si_prefix(largest: float) -> tuple[float, str]:
    """The SI factor that suits a chart's largest value."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= factor:
            return factor, prefix
    return 1.0, ""
