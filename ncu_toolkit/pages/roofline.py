"""The roofline: memory and arithmetic roofs, and the rungs as named points joined into a path."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import plot_text
from ncu_toolkit.pages import palette
from ncu_toolkit.pages.charts import LEGEND, Figure
from ncu_toolkit.pages.roofs import Roof


@dataclass(frozen=True)
class Point:
    """One rung on the roofline: operational intensity in FLOP/B by memory level, and FLOP/s."""

    label: str
    rate: float
    intensity: Mapping[str, float]
    kind: str
    colour: str
    trunk: bool = True
    """Whether the path through the points leads through it."""
    root: str = ""
    """The rung that its path starts from: points of two functions have two paths."""


def roofline(points: Sequence[Point], roofs: Sequence[Roof], arithmetic: str) -> Figure:
    """Log-log roofline: points of rungs, and a path through the trunk, at DRAM intensity (L2 and L1 by the legend),
    memory and arithmetic roofs.

    `arithmetic` is the roof that bounds the family: its lines are drawn, and memory roofs end at
    the highest of them."""
    memory = [roof for roof in roofs if roof.name in ("dram", "l2", "l1")]
    ceilings = [
        roof
        for roof in roofs
        if roof.name in ("fp32", "tensor") and (roof.name == arithmetic or arithmetic == "tensor")
    ]
    if arithmetic not in ("fp32", "tensor"):
        ceilings = [roof for roof in roofs if roof.name == "fp32"]
    xs = (
        [point.intensity["dram"] for point in points if point.intensity.get("dram")]
        or [value for point in points for value in point.intensity.values()]
        or [1.0]
    )
    top = max(
        (roof.rate for roof in ceilings), default=max((point.rate for point in points), default=1.0)
    )
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
        data.append(
            _line(
                roof,
                [max(low, start), high],
                [roof.rate, roof.rate],
                palette.GREY if roof.name == "fp32" else palette.PURPLE,
            )
        )
    lines = tuple((line["x"][0], line["y"][0], line["x"][1], line["y"][1]) for line in data)
    for level in ("dram", "l2", "l1"):
        known = [point for point in points if point.intensity.get(level)]
        if not known:
            continue
        ways = [
            [(p.intensity[level], p.rate) for p in known if p.trunk and p.root == root]
            for root in dict.fromkeys(point.root for point in known if point.trunk)
        ]
        path = tuple((*before, *after) for way in ways for before, after in itertools.pairwise(way))
        line = [place for way in ways for place in ((None, None), *way)][1:]  # None: a gap
        sides = _placed(
            tuple((point.label, point.intensity[level], point.rate) for point in known),
            (*lines, *path),
            box,
        )
        _, symbol = palette.LEVELS[level]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "path",
                "x": [x for x, _ in line],
                "y": [y for _, y in line],
                "line": {"width": 1.2, "dash": "dot"},
                "hoverinfo": "skip",
                "showlegend": False,
                "legendgroup": level,
                "visible": True if level == "dram" else "legendonly",
            }
        )
        data.append(
            {
                "type": "scatter",
                "mode": "markers+text",
                "legendgroup": level,
                "name": f"rungs at {level.upper()}",
                "x": [point.intensity[level] for point in known],
                "y": [point.rate for point in known],
                # those without room have their label on hover and in the table
                "text": [
                    plot_text(point.label) if side else ""
                    for point, side in zip(known, sides, strict=True)
                ],
                "textposition": [side or "middle right" for side in sides],
                "textfont": {"size": 10},
                "customdata": [plot_text(point.label) for point in known],
                "marker": {
                    "color": [point.colour for point in known],
                    "size": 9,
                    "symbol": [
                        symbol if point.kind in ("step", "baseline") else f"{symbol}-open"
                        for point in known
                    ],
                    "line": {"width": 1},
                },
                "visible": True if level == "dram" else "legendonly",
                "hovertemplate": "%{customdata}<br>%{x:.3s} FLOP/B<br>%{y:.3s}FLOP/s<extra></extra>",
            }
        )
    decades = range(max(0, math.ceil(box[2])), math.floor(box[3]) + 1)
    layout = {
        "height": 440,
        "margin": {"l": 8, "r": 16, "t": 8, "b": 44},
        "legend": {**LEGEND},
        "xaxis": {
            "type": "log",
            "title": {"text": "operational intensity, FLOP per byte"},
            "range": [box[0], box[1]],
            "exponentformat": "none",
            "dtick": 1,
            "automargin": True,
        },
        "yaxis": {
            "type": "log",
            "title": {"text": "FLOP/s"},
            "range": [box[2], box[3]],
            "tickvals": [10.0**n for n in decades],
            "ticktext": [f"{10 ** (n % 3)}{_PREFIXES[n // 3]}" for n in decades],
            "automargin": True,
        },
        "showlegend": True,
    }
    return {"data": data, "layout": layout}


#: Prefixes of a thousand's powers: Plotly's own end at T.
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")
#: Where labels may stand beside their points, with the direction of the text's centre.
_SIDES: Final = (
    ("middle right", 1, 0),
    ("middle left", -1, 0),
    ("top center", 0, 1),
    ("bottom center", 0, -1),
    ("top right", 1, 1),
    ("bottom right", 1, -1),
    ("top left", -1, 1),
    ("bottom left", -1, -1),
)
#: The plot's size that labels are placed for, and a letter's, in pixels. The page's script hides
#: them where the plot is much narrower.
_PLOT: Final = (1120.0, 350.0)
_LETTER: Final = (6.0, 13.0)
#: Half the side of a marker with the air around it, in pixels.
_MARKER: Final = 6.0

Box = tuple[float, float, float, float]
Segment = tuple[float, float, float, float]


@lru_cache(maxsize=64)
def _placed(
    spots: tuple[tuple[str, float, float], ...], lines: tuple[Segment, ...], box: Box
) -> tuple[str, ...]:
    """A side for each label so that none covers another or a point, and if there is such a side no
    line either; empty where there is none.

    `spots` are (label, intensity, rate), `lines` the roofs and the path as (intensity, rate,
    intensity, rate). Fastest points choose first."""
    pixels = [_pixel(x, y, box) for _, x, y in spots]
    drawn = [(*_pixel(a, b, box), *_pixel(c, d, box)) for a, b, c, d in lines]
    taken = [(x - _MARKER, y - _MARKER, x + _MARKER, y + _MARKER) for x, y in pixels]
    sides = [""] * len(spots)
    for index in sorted(range(len(spots)), key=lambda i: -pixels[i][1]):
        (x, y), width = pixels[index], len(spots[index][0]) * _LETTER[0]
        free = []
        for side, across, up in _SIDES:
            cx, cy = x + across * (width / 2 + 8), y + up * (_LETTER[1] / 2 + 6)
            area = (cx - width / 2, cy - _LETTER[1] / 2, cx + width / 2, cy + _LETTER[1] / 2)
            covers = any(
                a < area[2] and c > area[0] and b < area[3] and d > area[1]
                for n, (a, b, c, d) in enumerate(taken)
                if n != index
            )
            if area[0] > 0 and area[2] < _PLOT[0] and not covers:
                free.append((sum(_crosses(line, area) for line in drawn), side, area))
        if free:
            _, sides[index], area = min(free, key=lambda place: place[0])
            taken.append(area)
    return tuple(sides)


def _pixel(x: float, y: float, box: Box) -> tuple[float, float]:
    return (math.log10(x) - box[0]) / (box[1] - box[0]) * _PLOT[0], (math.log10(y) - box[2]) / (
        box[3] - box[2]
    ) * _PLOT[1]


def _crosses(line: Segment, area: Box) -> bool:
    """Whether a segment runs through a rectangle (clipping after Liang and Barsky)."""
    x, y, dx, dy = line[0], line[1], line[2] - line[0], line[3] - line[1]
    start, end = 0.0, 1.0
    for step, room in (
        (-dx, x - area[0]),
        (dx, area[2] - x),
        (-dy, y - area[1]),
        (dy, area[3] - y),
    ):
        if step == 0:
            if room <= 0:
                return False
        elif step < 0:
            start = max(start, room / step)
        else:
            end = min(end, room / step)
    return start < end


def _line(roof: Roof, x: list[float], y: list[float], colour: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": plot_text(roof.label),
        "x": x,
        "y": y,
        "line": {
            "color": colour,
            "width": 2 if roof.measured else 1.2,
            "dash": "solid" if roof.measured else "dash",
        },
        "hovertemplate": f"{plot_text(roof.label)}: {units.si(roof.rate, roof.unit)}<extra></extra>",
    }
