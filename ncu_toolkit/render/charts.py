"""Plotly figures as plain JSON. Colours of text, grid and paper are left out: the page's script sets them for the light or dark theme.

Functions take values and return `data` and `layout`; what to draw is decided by the view builders.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from ncu_toolkit import units
from ncu_toolkit.render import palette
from ncu_toolkit.render.roofs import Roof
from ncu_toolkit.render.safe import plot_text

Figure = dict[str, Any]
_ROW: Final = 26
_OUTLINE: Final = {"color": "rgba(0,0,0,0.35)", "width": 0.5}


@dataclass(frozen=True)
class Bar:
    """One rung of the ladder chart. `low` and `high` bound the rate (10th to 90th percentile of the times)."""

    label: str
    rate: float
    low: float
    high: float
    kind: str
    text: str


@dataclass(frozen=True)
class Point:
    """One rung on the roofline: operational intensity in FLOP/B by memory level, and FLOP/s."""

    label: str
    rate: float
    intensity: Mapping[str, float]
    kind: str


def height_for(rows: int, extra: int = 110) -> int:
    """Pixels for a chart of horizontal bars."""
    return rows * _ROW + extra


def ladder(bars: Sequence[Bar], unit: str, lines: Sequence[tuple[str, float, str]]) -> Figure:
    """Rates by rung as horizontal bars, first rung on top. `lines` are (label, rate, dash) across all of them."""
    factor, prefix = _prefix(max([bar.high for bar in bars] + [rate for _, rate, _ in lines], default=1.0))
    data = []
    for kind in dict.fromkeys(bar.kind for bar in bars):
        colour, pattern, words = palette.KINDS.get(kind, palette.KINDS["step"])
        chosen = [bar for bar in bars if bar.kind == kind]
        data.append({
            "type": "bar", "orientation": "h", "name": words, "y": [plot_text(bar.label) for bar in chosen], "x": [bar.rate / factor for bar in chosen],
            "error_x": {
                "type": "data", "symmetric": False, "array": [(bar.high - bar.rate) / factor for bar in chosen], "arrayminus": [(bar.rate - bar.low) / factor for bar in chosen], "thickness": 1.2, "width": 3,
            },
            "marker": {"color": colour, "line": _OUTLINE, "pattern": {"shape": pattern, "size": 6, "solidity": 0.35}},
            "customdata": [plot_text(bar.text) for bar in chosen], "hovertemplate": "%{y}<br>%{customdata}<extra></extra>",
        })  # fmt: skip
    shapes, notes = [], []
    for index, (label, rate, dash) in enumerate(sorted(lines, key=lambda line: line[1])):
        shapes.append({"type": "line", "x0": rate / factor, "x1": rate / factor, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": dash, "width": 1.5}})
        notes.append({"x": rate / factor, "yref": "paper", "y": 1, "yanchor": "bottom", "yshift": 2 + 14 * (len(lines) - 1 - index), "xanchor": "right", "text": plot_text(label), "showarrow": False, "font": {"size": 11}})
    layout = {
        "barmode": "overlay", "bargap": 0.25, "margin": {"l": 8, "r": 24, "t": 16 + 14 * max(1, len(lines)), "b": 44}, "height": height_for(len(bars), 130 + 14 * len(lines)),
        "xaxis": {"title": {"text": f"{prefix}{unit}"}, "rangemode": "tozero"}, "yaxis": _rungs([bar.label for bar in bars]), "shapes": shapes, "annotations": notes,
        "showlegend": len(data) > 1, "legend": _LEGEND,
    }  # fmt: skip
    return {"data": data, "layout": layout}


#: Below the plot; the page's script makes room for as many lines as the width needs.
_LEGEND: Final = {"orientation": "h", "x": 0, "xref": "container", "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom", "traceorder": "normal", "font": {"size": 11}}


def _rungs(labels: Sequence[str]) -> dict[str, Any]:
    shown = [plot_text(label) for label in labels]
    return {"autorange": "reversed", "categoryorder": "array", "categoryarray": shown, "automargin": True, "ticks": "", "type": "category", "showgrid": False}


def stalls(stacks: Sequence[tuple[str, Mapping[str, float]]], reasons: Sequence[str]) -> Figure:
    """Cycles per issued instruction by stall reason, stacked, one bar a rung. `reasons` gives the order; what is not in it is drawn as "other"; far longer bars are cut."""
    labels = [plot_text(label) for label, _ in stacks]
    data = []
    for reason in reasons:
        colour, pattern = palette.STALLS.get(reason, (palette.LIGHT, "."))
        data.append(_stack_part(reason.replace("_", " "), labels, [stack.get(reason, 0.0) for _, stack in stacks], colour, pattern))
    others = [sum(value for reason, value in stack.items() if reason not in reasons) for _, stack in stacks]
    if any(value > 0 for value in others):
        data.append(_stack_part("other", labels, others, palette.LIGHT, "."))
    totals = [sum(stack.values()) for _, stack in stacks]
    limit = _cut(totals)
    cut = [(label, total) for label, total in zip(labels, totals, strict=True) if total > limit]
    notes = [
        {"y": label, "x": limit, "xanchor": "right", "text": f"{units.significant(total)} →", "showarrow": False, "font": {"size": 11, "color": "#000000"}, "bgcolor": "rgba(255,255,255,0.85)", "borderpad": 1} for label, total in cut
    ]
    layout: Figure = {
        "barmode": "stack", "bargap": 0.25, "margin": {"l": 8, "r": 16, "t": 44, "b": 44}, "height": height_for(len(stacks), 170), "annotations": notes,
        "xaxis": {"title": {"text": "cycles per issued instruction"}, "range": [0, limit]}, "yaxis": _rungs([label for label, _ in stacks]), "legend": _LEGEND, "showlegend": True,
    }  # fmt: skip
    views: list[tuple[str, Figure]] = [("cycles", {"barnorm": "", "xaxis.title.text": "cycles per issued instruction", "xaxis.range": [0, limit], "annotations": notes})]
    if cut:
        views.append(("whole bars", {"barnorm": "", "xaxis.title.text": "cycles per issued instruction", "xaxis.range": [0, 1.03 * max(totals)], "annotations": []}))
    views.append(("share", {"barnorm": "percent", "xaxis.title.text": "% of a warp's time", "xaxis.range": [0, 100], "annotations": []}))
    layout["updatemenus"] = [{
        "type": "buttons", "direction": "right", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "pad": {"b": 8, "t": 0, "l": 0, "r": 0}, "showactive": True, "active": 0,
        "buttons": [{"label": name, "method": "relayout", "args": [change]} for name, change in views],
    }]  # fmt: skip
    return {"data": data, "layout": layout}


#: Stacks higher than this many times the median are cut off, with their height written on them: one slow rung must not flatten all others.
_CUT_AT: Final = 6.0


def _cut(totals: Sequence[float]) -> float:
    """Where the axis of the stall stacks ends."""
    bound = _CUT_AT * statistics.median(totals)
    return 1.05 * max((total for total in totals if total <= bound), default=1.0) if max(totals) > bound else 1.03 * max(totals, default=1.0)


def _stack_part(name: str, labels: Sequence[str], values: Sequence[float], colour: str, pattern: str) -> Figure:
    return {
        "type": "bar", "orientation": "h", "name": plot_text(name), "y": list(labels), "x": list(values), "marker": {"color": colour, "line": _OUTLINE, "pattern": {"shape": pattern, "size": 6, "solidity": 0.35}},
        "customdata": [f"{units.significant(value)} cycles per instruction" for value in values], "hovertemplate": "%{y}<br>%{fullData.name}: %{customdata}<extra></extra>",
    }  # fmt: skip


def roofline(points: Sequence[Point], roofs: Sequence[Roof], arithmetic: str) -> Figure:
    """Log-log roofline: the points joined into a path at DRAM intensity (L2 and L1 by the legend), memory and arithmetic roofs.

    `arithmetic` is the roof that bounds the family: its lines are drawn, and memory roofs end at the highest of them.
    """
    memory = [roof for roof in roofs if roof.name in ("dram", "l2", "l1")]
    ceilings = [roof for roof in roofs if roof.name in ("fp32", "tensor") and (roof.name == arithmetic or arithmetic == "tensor")]
    if arithmetic not in ("fp32", "tensor"):
        ceilings = [roof for roof in roofs if roof.name == "fp32"]
    xs = [point.intensity["dram"] for point in points if point.intensity.get("dram")] or [value for point in points for value in point.intensity.values()] or [1.0]
    top = max((roof.rate for roof in ceilings), default=max((point.rate for point in points), default=1.0))
    lowest = min([point.rate for point in points], default=top / 1000)
    ridges = [top / roof.rate for roof in memory]
    low, high = min([*xs, *ridges]) / 2.5, max([*xs, *ridges]) * 2.5
    box = (math.log10(low), math.log10(high), math.log10(lowest / 2.5), math.log10(top * 1.8))
    data: list[Figure] = []
    for roof in memory:
        colour, _ = palette.LEVELS[roof.name]
        end = min(high, top / roof.rate)
        data.append(_line(roof, [low, end], [low * roof.rate, end * roof.rate], colour))
    for roof in ceilings:
        start = min((roof.rate / memory_roof.rate for memory_roof in memory), default=low)
        data.append(_line(roof, [max(low, start), high], [roof.rate, roof.rate], palette.GREY if roof.name == "fp32" else palette.PURPLE))
    for level in ("dram", "l2", "l1"):
        known = [point for point in points if point.intensity.get(level)]
        if not known:
            continue
        colour, symbol = palette.LEVELS[level]
        data.append({
            "type": "scatter", "mode": "lines+markers+text", "name": f"rungs at {level.upper()}", "x": [point.intensity[level] for point in known], "y": [point.rate for point in known],
            "text": _labels(known, level, box), "textposition": _positions(known, level, box), "textfont": {"size": 10}, "customdata": [plot_text(point.label) for point in known],
            "marker": {"color": colour, "size": 9, "symbol": [symbol if point.kind in ("step", "baseline") else f"{symbol}-open" for point in known], "line": {"width": 1}},
            "line": {"color": colour, "width": 1, "dash": "dot"}, "visible": True if level == "dram" else "legendonly",
            "hovertemplate": "%{customdata}<br>%{x:.3s} FLOP/B<br>%{y:.3s}FLOP/s<extra></extra>",
        })  # fmt: skip
    layout = {
        "height": 520, "margin": {"l": 8, "r": 16, "t": 8, "b": 44}, "legend": {**_LEGEND},
        "xaxis": {"type": "log", "title": {"text": "operational intensity, FLOP per byte"}, "range": [box[0], box[1]], "exponentformat": "power", "dtick": 1, "automargin": True},
        "yaxis": {"type": "log", "title": {"text": "FLOP/s"}, "range": [box[2], box[3]], "exponentformat": "SI", "dtick": 1, "automargin": True}, "showlegend": True,
    }  # fmt: skip
    return {"data": data, "layout": layout}


#: Where labels may stand beside their points, with the direction of the text's centre.
_SIDES: Final = (("middle right", 1, 0), ("middle left", -1, 0), ("top center", 0, 1), ("bottom center", 0, -1), ("top right", 1, 1), ("bottom right", 1, -1), ("top left", -1, 1), ("bottom left", -1, -1))
#: The plot's size that labels are placed for, and a letter's, in pixels.
_PLOT: Final = (1120.0, 430.0)
_LETTER: Final = (5.6, 13.0)


@lru_cache(maxsize=64)
def _placed(spots: tuple[tuple[str, float, float], ...], box: tuple[float, float, float, float]) -> tuple[str, ...]:
    """A side for each label so that none covers another or a point; empty where there is none. Fastest points choose first."""
    pixels = [((math.log10(x) - box[0]) / (box[1] - box[0]) * _PLOT[0], (math.log10(y) - box[2]) / (box[3] - box[2]) * _PLOT[1]) for _, x, y in spots]
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in pixels]
    sides = [""] * len(spots)
    for index in sorted(range(len(spots)), key=lambda i: -pixels[i][1]):
        (x, y), width = pixels[index], len(spots[index][0]) * _LETTER[0]
        for side, across, up in _SIDES:
            cx, cy = x + across * (width / 2 + 8), y + up * (_LETTER[1] / 2 + 6)
            area = (cx - width / 2, cy - _LETTER[1] / 2, cx + width / 2, cy + _LETTER[1] / 2)
            inside = area[0] > 0 and area[2] < _PLOT[0]
            if inside and not any(a < area[2] and c > area[0] and b < area[3] and d > area[1] for n, (a, b, c, d) in enumerate(taken) if n != index):
                sides[index] = side
                taken.append(area)
                break
    return tuple(sides)


def _sides(points: Sequence[Point], level: str, box: tuple[float, float, float, float]) -> tuple[str, ...]:
    return _placed(tuple((point.label, point.intensity[level], point.rate) for point in points), box)


def _labels(points: Sequence[Point], level: str, box: tuple[float, float, float, float]) -> list[str]:
    """Labels of those points that have room for one; the others have theirs on hover and in the table."""
    return [plot_text(point.label) if side else "" for point, side in zip(points, _sides(points, level, box), strict=True)]


def _positions(points: Sequence[Point], level: str, box: tuple[float, float, float, float]) -> list[str]:
    return [side or "middle right" for side in _sides(points, level, box)]


def _line(roof: Roof, x: list[float], y: list[float], colour: str) -> Figure:
    return {
        "type": "scatter", "mode": "lines", "name": plot_text(roof.label), "x": x, "y": y, "line": {"color": colour, "width": 2 if roof.measured else 1.2, "dash": "solid" if roof.measured else "dash"},
        "hovertemplate": f"{plot_text(roof.label)}: {units.si(roof.rate, roof.unit)}<extra></extra>",
    }  # fmt: skip


def traffic(rows: Sequence[tuple[str, Mapping[str, float]]]) -> Figure:
    """Bytes at each memory level over the compulsory bytes, one row a rung, logarithmic; the line at 1 is the least possible."""
    data = []
    for level, name in (("l1", "asked of L1"), ("l2", "asked of L2"), ("dram", "DRAM")):
        known = [(label, values[level]) for label, values in rows if values.get(level)]
        if known:
            colour, symbol = palette.LEVELS[level]
            data.append({
                "type": "scatter", "mode": "markers", "name": name, "y": [plot_text(label) for label, _ in known], "x": [value for _, value in known], "marker": {"color": colour, "symbol": symbol, "size": 10, "line": _OUTLINE},
                "customdata": [units.ratio(value) for _, value in known], "hovertemplate": "%{y}<br>%{fullData.name}: %{customdata} compulsory<extra></extra>",
            })  # fmt: skip
    layout = {
        "height": 20 * len(rows) + 110, "margin": {"l": 8, "r": 16, "t": 8, "b": 44}, "legend": _LEGEND, "showlegend": True,
        "xaxis": {"type": "log", "title": {"text": "bytes moved over compulsory bytes"}, "dtick": 1}, "yaxis": {**_rungs([label for label, _ in rows]), "showgrid": True},
        "shapes": [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot", "width": 1.5}}],
    }  # fmt: skip
    return {"data": data, "layout": layout}


#: Rungs drawn at first in the chart over sizes; the others wait in the legend.
_SIZES_SHOWN: Final = 6


def by_size(series: Sequence[tuple[str, str, Sequence[tuple[float, str, float]]]], unit: str) -> Figure:
    """Rate over size, a line for each rung: (label, kind, [(position, size text, rate)])."""
    factor, prefix = _prefix(max((rate for _, _, points in series for _, _, rate in points), default=1.0))
    ticks = dict(sorted({position: text for _, _, points in series for position, text, _ in points}.items()))
    fastest = sorted((points[-1][2] for _, kind, points in series if kind == "step"), reverse=True)[:_SIZES_SHOWN]
    data = []
    for index, (label, kind, points) in enumerate(series):
        baseline = kind in ("baseline", "roof")
        colour = palette.GREY if baseline else palette.SERIES[index % (len(palette.SERIES) - 1)]
        data.append({
            "type": "scatter", "mode": "lines+markers", "name": plot_text(label), "x": [position for position, _, _ in points], "y": [rate / factor for _, _, rate in points],
            "line": {"color": colour, "width": 3 if baseline else 1.5, "dash": "dash" if kind in ("regression", "planted") else "solid"},
            "marker": {"symbol": palette.SYMBOLS[index % len(palette.SYMBOLS)], "size": 7}, "text": [f"{plot_text(text)}: {units.si(rate, unit)}" for _, text, rate in points],
            "hovertemplate": "%{fullData.name}<br>%{text}<extra></extra>", "visible": True if baseline or index == 0 or (fastest and points[-1][2] >= fastest[-1]) else "legendonly",
        })  # fmt: skip
    layout = {
        "height": 460, "margin": {"l": 8, "r": 16, "t": 8, "b": 44}, "legend": _LEGEND, "showlegend": True,
        "xaxis": {"type": "log", "title": {"text": "size"}, "tickvals": list(ticks), "ticktext": [plot_text(text) for text in ticks.values()], "automargin": True},
        "yaxis": {"title": {"text": f"{prefix}{unit}"}, "rangemode": "tozero", "automargin": True},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def what_if(label: str, values: Sequence[float], warps: Sequence[float], now: float, capacity: float) -> Figure:
    """Resident warps an SM over one resource, with a diamond where the launch is now."""
    at = min(range(len(values)), key=lambda i: abs(values[i] - now), default=0)
    data = [
        {"type": "scatter", "mode": "lines", "name": "warps", "x": list(values), "y": list(warps), "line": {"color": palette.BLUE, "shape": "hv", "width": 2}, "hovertemplate": "%{x}: %{y} warps<extra></extra>"},
        {"type": "scatter", "mode": "markers", "name": "now", "x": [now], "y": [warps[at]], "marker": {"color": palette.VERMILION, "size": 11, "symbol": "diamond"}, "hovertemplate": "now: %{x}, %{y} warps<extra></extra>"},
    ]  # fmt: skip
    layout = {
        "height": 230, "margin": {"l": 8, "r": 8, "t": 8, "b": 40}, "showlegend": False, "xaxis": {"title": {"text": plot_text(label)}, "automargin": True},
        "yaxis": {"range": [0, capacity * 1.05], "automargin": True, "title": {"text": "warps an SM"}},
    }  # fmt: skip
    return {"data": data, "layout": layout}


def _prefix(largest: float) -> tuple[float, str]:
    """The SI factor that suits a chart's largest value."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if largest >= factor:
            return factor, prefix
    return 1.0, ""
