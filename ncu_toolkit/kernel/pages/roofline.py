"""Roofs of a device, and the roofline: the rungs as named points under them, joined into a path.

A roof is what the device was measured to reach in the same run, or what its data say it could: peaks
come from clocks and widths that the report holds, and from figures per SM and cycle in
base/hardware/specs.py. A GPU that is not there has no such roof: nothing is assumed for it."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import plot_text
from ncu_toolkit.base.hardware.specs import spec
from ncu_toolkit.base.model import Device, Profile
from ncu_toolkit.base.model.run import Ceilings
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.pages.charts import (
    GREY,
    LEVELS,
    PURPLE,
    Figure,
    axis,
    figure,
    hover,
    scatter,
)

#: Below this utilisation the peak implied by traffic over utilisation is too coarse to draw.
_LEAST_UTILISATION: Final = 0.05

RoofName = Literal["fp32", "tensor", "dram", "l2", "l1"]
_NAMES: Final = {"fp32": "FP32", "tensor": "tensor", "dram": "DRAM", "l2": "L2", "l1": "L1"}


@dataclass(frozen=True)
class DeviceRoof:
    """One ceiling. `rate` in FLOP/s (fp32, tensor) or B/s (dram, l2, l1); `measured` tells a
    measurement from a peak computed for the device."""

    name: RoofName
    label: str
    rate: float
    measured: bool
    how: str

    @property
    def words(self) -> str:
        """For a sentence: "the measured FP32 roof"."""
        name = _NAMES[self.name]
        return f"the measured {name} roof" if self.measured else f"the device's {name} peak"

    @property
    def unit(self) -> str:
        return "FLOP/s" if self.name in ("fp32", "tensor") else "B/s"


def roofs(
    device: Device, ceilings: Ceilings, profiles: Sequence[Profile] = ()
) -> tuple[DeviceRoof, ...]:
    """Every roof that is known for a device, measured ones first. L2's comes from the profiles' own
    traffic and utilisation."""
    lanes, tensor, l1_bytes = (
        spec(device.cc, what) or 0.0 for what in ("fp32", "tensor_fp32", "l1_bytes")
    )
    cycles = (device.max_sm_hz or 0.0) * device.sm_count  # of all SMs in a second
    clock, memory_clock = device.max_sm_hz / 1e9, device.max_memory_hz / 1e9
    where = f"{device.sm_count} SMs at {clock:.2f} GHz"
    bits = device.memory_bus_bits
    known: tuple[tuple[RoofName, str, float | None, bool, str], ...] = (
        ("fp32", "FP32, measured", ceilings.fp32, True, "a loop of independent FFMA instructions, in this run"),
        ("tensor", "Tensor, measured", ceilings.tensor, True, "the library's largest 16-bit matrix product, in this run"),
        ("dram", "DRAM, measured", ceilings.copy, True, "a large device-to-device copy in this run, bytes read and written"),
        ("fp32", "FP32, device peak", 2.0 * lanes * cycles, False, f"2 x {lanes:.0f} per cycle, {where}"),
        ("tensor", "Tensor (16-bit), device peak", tensor * cycles, False, f"{tensor:.0f} per cycle, {where}"),
        ("dram", "DRAM, device peak", 2.0 * device.max_memory_hz * bits / 8, False, f"{bits} bits, twice per cycle, at {memory_clock:.2f} GHz"),
        ("l2", "L2, profiler's peak", _implied_l2(profiles), False,
         "sectors looked up, over the profiler's fraction of peak (median of the profiles)"),
        ("l1", "L1, device peak", l1_bytes * cycles, False, f"{l1_bytes:.0f} bytes per cycle, {where}"),
    )  # fmt: skip
    return tuple(
        DeviceRoof(name, label, rate, measured, how)
        for name, label, rate, measured, how in known
        if rate
    )


def best(known: Sequence[DeviceRoof], name: RoofName) -> DeviceRoof | None:
    """The roof to compare a rate with: the measured one where there is one."""
    return next((roof for roof in known if roof.name == name), None)


def _implied_l2(profiles: Sequence[Profile]) -> float | None:
    rates = []
    for profile in profiles:
        sectors, used = profile.value("l2_sectors"), profile.value("l2_utilization")
        time_us = profile.duration_us
        if sectors and time_us and used is not None and used >= _LEAST_UTILISATION:
            rates.append(sectors * figures.SECTOR_BYTES / (time_us * 1e-6) / used)
    return statistics.median(rates) if rates else None


class Spot(NamedTuple):
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


def roofline(points: Sequence[Spot], known: Sequence[DeviceRoof], arithmetic: str) -> Figure:
    """Log-log roofline: points of rungs, and a path through the trunk, at DRAM intensity (L2 and L1 by
    the legend), memory and arithmetic roofs.

    `arithmetic` is the roof that bounds the family: its lines are drawn, and memory roofs end at
    the highest of them."""
    memory = [roof for roof in known if roof.name in ("dram", "l2", "l1")]
    bounding = {"tensor": ("fp32", "tensor")}.get(arithmetic, ("fp32",))
    ceilings = [roof for roof in known if roof.name in bounding]
    xs = (
        [point.intensity["dram"] for point in points if point.intensity.get("dram")]
        or [value for point in points for value in point.intensity.values()]
        or [1.0]
    )
    rates = [point.rate for point in points]
    top = max((roof.rate for roof in ceilings), default=max(rates, default=1.0))
    lowest = min(rates, default=top / 1000)
    ridges = [top / roof.rate for roof in memory]
    low, high = min([*xs, *ridges]) / 2.5, max([*xs, *ridges]) * 2.5
    box = (math.log10(low), math.log10(high), math.log10(lowest / 2.5), math.log10(top * 1.8))
    data: list[Figure] = []
    for roof in memory:
        end = min(high, top / roof.rate)
        data.append(
            _line(roof, [low, end], [low * roof.rate, end * roof.rate], LEVELS[roof.name][0])
        )
    for roof in ceilings:
        start = min((roof.rate / each.rate for each in memory), default=low)
        colour = GREY if roof.name == "fp32" else PURPLE
        data.append(_line(roof, [max(low, start), high], [roof.rate, roof.rate], colour))
    lines = tuple((line["x"][0], line["y"][0], line["x"][1], line["y"][1]) for line in data)
    for level in ("dram", "l2", "l1"):
        at = [point for point in points if point.intensity.get(level)]
        if at:
            data += _points(at, level, lines, box)
    decades = range(max(0, math.ceil(box[2])), math.floor(box[3]) + 1)
    title = "operational intensity, FLOP per byte"
    x = axis(title, type="log", range=[*box[:2]], exponentformat="none", dtick=1, automargin=True)
    y = axis(
        "FLOP/s",
        type="log",
        range=[*box[2:]],
        tickvals=[10.0**n for n in decades],
        ticktext=[units.power_of_ten(n) for n in decades],
        automargin=True,
    )
    return figure(data, 440, x, y)


def _points(
    at: Sequence[Spot], level: str, lines: tuple[Segment, ...], box: Box
) -> tuple[Figure, Figure]:
    """The path and the points at the intensity of one memory level."""
    ways = [
        [(point.intensity[level], point.rate) for point in at if point.trunk and point.root == root]
        for root in dict.fromkeys(point.root for point in at if point.trunk)
    ]
    path = tuple((*before, *after) for way in ways for before, after in itertools.pairwise(way))
    line = [place for way in ways for place in ((None, None), *way)][1:]  # None: a gap
    spots = tuple((point.label, point.intensity[level], point.rate) for point in at)
    sides = _placed(spots, (*lines, *path), box)
    _, symbol = LEVELS[level]
    shown = {"legendgroup": level, "visible": True if level == "dram" else "legendonly"}
    marker = {
        "color": [point.colour for point in at],
        "size": 9,
        "symbol": [symbol if p.kind in ("step", "baseline") else f"{symbol}-open" for p in at],
        "line": {"width": 1},
    }
    labels = [plot_text(point.label) for point in at]
    return (
        scatter(
            "lines",
            "path",
            [x for x, _ in line],
            [y for _, y in line],
            line={"width": 1.2, "dash": "dot"},
            hoverinfo="skip",
            showlegend=False,
            **shown,
        ),
        scatter(
            "markers+text",
            f"rungs at {level.upper()}",
            [x for _, x, _ in spots],
            [y for *_, y in spots],
            # those without room have their label on hover and in the table
            text=[label if side else "" for label, side in zip(labels, sides, strict=True)],
            textposition=[side or "middle right" for side in sides],
            textfont={"size": 10},
            customdata=labels,
            marker=marker,
            **hover("%{customdata}<br>%{x:.3s} FLOP/B<br>%{y:.3s}FLOP/s"),
            **shown,
        ),
    )


#: Sides of a point on which its label may be, with the direction to the label's centre.
_SIDES: Final = (
    ("middle right", 1, 0), ("middle left", -1, 0), ("top center", 0, 1), ("bottom center", 0, -1),
    ("top right", 1, 1), ("bottom right", 1, -1), ("top left", -1, 1), ("bottom left", -1, -1),
)  # fmt: skip
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
    across, up = (
        (math.log10(x) - box[0]) / (box[1] - box[0]),
        (math.log10(y) - box[2]) / (box[3] - box[2]),
    )
    return across * _PLOT[0], up * _PLOT[1]


def _crosses(line: Segment, area: Box) -> bool:
    """Whether a segment runs through a rectangle (clipping after Liang and Barsky)."""
    x, y, dx, dy = line[0], line[1], line[2] - line[0], line[3] - line[1]
    start, end = 0.0, 1.0
    sides = ((-dx, x - area[0]), (dx, area[2] - x), (-dy, y - area[1]), (dy, area[3] - y))
    for step, room in sides:
        if step == 0:
            if room <= 0:
                return False
        elif step < 0:
            start = max(start, room / step)
        else:
            end = min(end, room / step)
    return start < end


def _line(roof: DeviceRoof, x: list[float], y: list[float], colour: str) -> Figure:
    width, dash = (2, "solid") if roof.measured else (1.2, "dash")
    line, name = {"color": colour, "width": width, "dash": dash}, plot_text(roof.label)
    return scatter(
        "lines", name, x, y, line=line, **hover(f"{name}: {units.si(roof.rate, roof.unit)}")
    )
