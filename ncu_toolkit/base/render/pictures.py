"""Pictures as SVG, in pixels of the page: text keeps the page's size, and colours are classes of the
style sheet."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from markupsafe import Markup, escape

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.card import (
    Course,
    Icicle,
    Reach,
    RoofPicture,
    Strip,
    Tile,
    whole_percent,
)
from ncu_toolkit.base.document.views import StepChart

#: A roofline's size, and the room around its plot, in pixels.
_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 330, 250, 40, 8, 16, 34
#: A letter's width and a line's height, in pixels.
_LETTER, _LINE = 6.4, 14.0
#: A name as far as this from all others is far enough, in pixels.
_APART: Final = 44.0
_NAMES: Final = {"dram": "DRAM", "l2": "L2", "l1": "L1"}


@dataclass(frozen=True)
class _Plane:
    """Logarithmic axes: their ends as powers of ten, and where a value lies in pixels."""

    low: float
    high: float
    bottom: float
    top: float

    def across(self, x: float) -> float:
        part = (math.log10(x) - self.low) / (self.high - self.low)
        return _LEFT + part * (_WIDE - _LEFT - _RIGHT)

    def down(self, y: float) -> float:
        part = (math.log10(y) - self.bottom) / (self.top - self.bottom)
        return _HIGH - _BOTTOM - part * (_HIGH - _TOP - _BOTTOM)


def roofline(*pictures: RoofPicture) -> Markup:
    """Launches under their roofs on logarithmic axes: the last one's roofs, and the points of all,
    hollow where there is a later launch."""
    first = pictures[-1]
    slopes = {
        reach.level: first.rate / (reach.intensity or 1.0) / reach.busy for reach in first.points
    }
    tops = [first.rate / reach.busy for reach in first.reaches if reach.level == "work"]
    peak = max(tops, default=max(first.rate / reach.busy for reach in first.points))
    xs = [reach.intensity or 1.0 for each in pictures for reach in each.points]
    xs += [peak / slope for slope in slopes.values()]
    rates = [each.rate for each in pictures]
    plane = _Plane(
        math.log10(min(xs)) - 0.5, math.log10(max(xs)) + 0.5,
        math.log10(min(rates)) - 0.95, math.log10(max(peak, *rates)) + 0.15,
    )  # fmt: skip
    ridge = min((peak / slope for slope in slopes.values()), default=10**plane.low)
    parts = [
        *_axes(first.work, plane),
        *_slopes(pictures, slopes, peak, plane),
        *_tops(first, ridge, peak, plane),
        *_points(pictures, plane),
    ]
    spoken = "; ".join(_words(each, reach) for each in pictures for reach in each.reaches)
    return Markup(
        '<svg class="roofline" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDE, _HIGH, _WIDE, _HIGH, spoken, Markup("".join(parts)))


def _slopes(
    pictures: Sequence[RoofPicture], slopes: Mapping[str, float], peak: float, plane: _Plane
) -> Iterator[str]:
    """The memory roofs with their names, which are placed where no label of a point and no other name is,
    outside of the outermost roofs."""
    across, down = plane.across, plane.down
    tilt = math.degrees(math.atan2(down(1.0) - down(10.0), across(10.0) - across(1.0)))
    taken_by = [
        (across(reach.intensity or 1.0), down(each.rate) + 14) for each in pictures for reach in each.points
    ]  # fmt: skip
    for at, (level, slope) in enumerate(slopes.items()):
        start = max(10**plane.low, 10**plane.bottom / slope)
        end = min(10**plane.high, peak / slope)
        limit = next(reach.limit for reach in pictures[-1].points if reach.level == level)
        x, to_x, y, to_y = across(start), across(end), down(start * slope), down(end * slope)
        yield _line(f"roof {level}{' limit' if limit else ''}", x, y, to_x, to_y)
        away = 14 if slope == min(slopes.values()) and len(slopes) > 1 else -5
        places = [
            (x + part * (to_x - x), y + part * (to_y - y) + away)
            for part in (0.22, 0.5, 0.78, 0.36, 0.64, 0.1, 0.9)[at % 3 :]
        ]
        x, y = max(places, key=lambda place: min(_APART, *(math.dist(place, o) for o in taken_by)))
        taken_by.append((x, y))
        yield (
            f'<text class="name {level}"'
            f' x="{x:.0f}" y="{y:.0f}" text-anchor="middle" transform="rotate({-tilt:.0f} {x:.0f} {y:.0f})">{_NAMES[level]}</text>'
        )


def _tops(first: RoofPicture, ridge: float, peak: float, plane: _Plane) -> Iterator[str]:
    """The roofs of the arithmetic units with their names; the highest begins at the ridge."""
    works = [reach for reach in first.reaches if reach.level == "work"]
    taken: list[float] = []
    low = 10**plane.low
    for reach in sorted(works, key=lambda reach: reach.busy):
        y = plane.down(first.rate / reach.busy)
        start = max(low, ridge) if first.rate / reach.busy == peak else low
        name = f"roof work{' limit' if reach.limit else ''}"
        yield _line(name, plane.across(start), y, plane.across(10**plane.high), y)
        baseline = y - 4 if all(abs(y - 4 - other) >= _LINE for other in taken) else y + 12
        taken.append(baseline)
        yield f'<text class="name" x="{_WIDE - _RIGHT}" y="{baseline:.0f}" text-anchor="end">{escape(reach.unit)} {whole_percent(reach.busy)}</text>'


def _points(pictures: Sequence[RoofPicture], plane: _Plane) -> Iterator[str]:
    """The points with the way that each has to its roof; labels below them, in as many lines as keep
    them apart."""
    for at, picture in enumerate(pictures):
        y = plane.down(picture.rate)
        ends: list[float] = []
        old = at < len(pictures) - 1
        for reach in sorted(picture.points, key=lambda reach: reach.intensity or 0.0):
            x = plane.across(reach.intensity or 1.0)
            label = f"{_NAMES[reach.level]} {whole_percent(reach.busy)}".replace(" %", "\u202f%")
            half = len(label) * _LETTER / 2
            middle = min(max(x, _LEFT + half), _WIDE - _RIGHT - half)
            row = next((n for n, end in enumerate(ends) if end + 6 <= middle - half), len(ends))
            ends[row : row + 1] = [middle + half]
            mark = (
                ""
                if old
                else f'<text x="{middle:.0f}" y="{y + 18 + _LINE * row:.0f}" text-anchor="middle">{label}</text>'
            )
            yield (
                f'<g class="{reach.level}{" old" if old else ""}" title="{escape(_words(picture, reach))}">'
                + _line("gap", x, y, x, max(_TOP, plane.down(picture.rate / reach.busy)))
                + f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>{mark}</g>'
            )


def _words(picture: RoofPicture, reach: Reach) -> str:
    """`L2 74 % busy: 8.66 GB moved, 0.25 FLOP per byte`."""
    text = f"{reach.unit} {whole_percent(reach.busy)} busy"
    if reach.intensity:
        text += (
            f": {reach.moved} moved, {units.significant(reach.intensity)} {picture.work} per byte"
        )
    return text


def _line(cls: str, x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<path class="{cls}" d="M{x:.4g} {y:.4g}L{to_x:.4g} {to_y:.4g}"/>'


def _axes(work: str, plane: _Plane) -> Iterator[str]:
    """Grid lines at powers of ten, with their labels."""
    every, grid = max(1, round((plane.high - plane.low) / 5)), ""
    for power in range(math.ceil(plane.low), math.floor(plane.high) + 1):
        x = plane.across(10.0**power)
        grid += f"M{x:.4g} {_TOP}V{_HIGH - _BOTTOM}"
        if power % every == 0:
            yield f'<text x="{x:.0f}" y="{_HIGH - _BOTTOM + 14}" text-anchor="middle">{units.power_of_ten(power)}</text>'
    for power in range(math.ceil(plane.bottom), math.floor(plane.top) + 1):
        y = plane.down(10.0**power)
        grid += f"M{_LEFT} {y:.4g}H{_WIDE - _RIGHT}"
        if power >= 0:
            yield f'<text x="{_LEFT - 4}" y="{y + 4:.0f}" text-anchor="end">{units.power_of_ten(power)}</text>'
    yield f'<path class="grid" d="{grid}"/>'
    yield f'<text x="{_WIDE - _RIGHT}" y="{_HIGH - 5}" text-anchor="end">{escape(work)} per byte</text>'
    yield f'<text x="2" y="11">{escape(work)}/s</text>'


def course(shown: Course) -> Markup:
    """A line as wide as its place in a table, over the band of its last value."""
    ends = (*shown.values, *(shown.band or ()))
    low, high = min(shown.low, *ends), max(shown.high, *ends)
    step = 148 / (max(shown.places, len(shown.values)) - 1 or 1)

    def down(value: float) -> float:
        part: float = (high - value) / ((high - low) or 1.0)
        return 2 + 24 * part

    line = " ".join(f"{1 + step * at:.1f},{down(y):.1f}" for at, y in enumerate(shown.values))
    parts = [f'<polyline points="{line}"/>']
    if shown.band:
        top, bottom = down(shown.band[1]), down(shown.band[0])
        band = f'<rect width="150" y="{top:.1f}" height="{max(1.0, bottom - top):.1f}"/>'
        end = f'<path class="end" d="M{1 + step * (len(shown.values) - 1):.1f} {down(shown.values[-1]):.1f}h0"/>'
        parts = [band, *parts, end]
    parts += [_line("change", x, 0, x, 28) for x in (1 + step * (at - 0.5) for at in shown.changes)]
    return Markup(
        '<svg class="nc-course" viewBox="0 0 150 28" preserveAspectRatio="none" role="img" title="{}" aria-label="{}">{}</svg>'
    ).format(shown.words, shown.words, Markup("".join(parts)))


def stairs(chart: StepChart) -> Markup:
    """A line in steps, with a diamond where the launch is."""
    high, bottom = 170, 34
    first, last = chart.turns[0][0], chart.turns[-1][0]

    def across(x: float) -> float:
        return _LEFT + (x - first) / ((last - first) or 1.0) * (_WIDE - _LEFT - _RIGHT)

    def down(y: float) -> float:
        return high - bottom - y / chart.most * (high - bottom - 24)

    parts = []
    for part in (0.0, 0.5, 1.0):
        y = down(part * chart.most)
        parts.append(_line("grid", _LEFT, y, _WIDE - _RIGHT, y))
        parts.append(
            f'<text x="{_LEFT - 4}" y="{y + 4:.0f}" text-anchor="end">{part * chart.most:g}</text>'
        )
        x = first + part * (last - first)
        end = ("start", "middle", "end")[round(2 * part)]
        parts.append(
            f'<text x="{across(x):.0f}" y="{high - bottom + 14}" text-anchor="{end}">{x:.4g}</text>'
        )
    before = (chart.turns[0], *chart.turns)
    corners = [
        f"{across(x):.1f},{down(last):.1f} {across(x):.1f},{down(y):.1f}"
        for (_, last), (x, y) in zip(before, chart.turns, strict=False)
    ]
    x, y = across(chart.now[0]), down(chart.now[1])
    parts.append(f'<polyline points="{" ".join(corners)}"/>')
    parts.append(
        f'<path class="now" title="{escape(chart.words)}" d="M{x:.1f} {y - 7:.1f}l6 7l-6 7l-6-7z"/>'
    )
    parts.append(
        f'<text x="{_WIDE - _RIGHT}" y="{high - 5}" text-anchor="end">{escape(chart.label)}</text><text x="2" y="9">{escape(chart.unit)}</text>'
    )
    return Markup(
        '<svg class="stairs" viewBox="0 0 {} {}" width="{}" height="{}" role="img" aria-label="{}">{}</svg>'
    ).format(_WIDE, high, _WIDE, high, chart.summary, Markup("".join(parts)))


def strip(picture: Strip) -> Markup:
    """A step before a fix and below it after: a bar is as high as its part of the axis is busy. Names
    are text of the page, and bars take the width that they leave."""
    longest, lanes = max(picture.us), ""
    for turn, title in enumerate(("recorded", "if fixed")):
        time = units.duration(picture.us[turn]).replace(" ", "\u202f")
        lanes += f"<b>{title}</b><span>{time}</span>"
        for row in picture.rows:
            cells = (row.before, row.after)[turn]
            if not (row.host or any(eighths for _, eighths in cells)):  # a stream of the fix
                continue
            end = math.ceil(picture.us[turn] / longest * len(cells) - 0.01)
            lanes += (
                f'<i>{escape(row.name)}</i><svg class="{"host" if row.host else "gpu"}" viewBox="0 0 {len(cells)} 8"'
                f' preserveAspectRatio="none"><path class="bed" d="M0 4h{end}"/>{"".join(_bars(cells))}</svg>'
            )
    figure, _, unit = units.duration(longest).rpartition(" ")
    whole = float(figure.replace(",", ""))
    steps = (n * 10.0**power for power in range(-3, 6) for n in (1, 2, 5))
    step = next(each for each in steps if 5 * each >= whole)
    ticks = "".join(
        f'<em style="left:{n * step / whole:.2%}">{n * step:g}</em>'
        for n in range(int(whole / step) + 1)
    )
    return Markup(
        '<div class="lanes" role="img" aria-label="{}">{}<i>{}</i><div>{}</div></div>'
    ).format(picture.words, Markup(lanes), unit, Markup(ticks))


def _bars(cells: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The bars of one kind and height as one dashed line, which is as thick as they are high: a step
    of thousands of launches takes a few kilobytes."""
    dashes: dict[tuple[str, int], tuple[str, int]] = {}
    start = 0
    for cell, alike in groupby(cells):
        before, end = dashes.get(cell, ("0", 0))
        until = start + len([*alike])
        dashes[cell] = f"{before} {start - end} {until - start}", until
        start = until
    for (kind, eighths), (drawn, _) in dashes.items():
        if kind:
            yield f'<path class="q-{kind}" d="M0 {8 - eighths / 2:g}h{start}" stroke-width="{eighths}" stroke-dasharray="{drawn} {start}"/>'


def icicle(picture: Icicle, question: str, link: Callable[[str], str]) -> Markup:
    """Tiles in rows by depth. Places are style variables, so that the page's script can zoom and
    choose the cause that is shown."""
    tiles = "".join(_tile(tile, link) for tile in picture.tiles)
    colours = "".join(f".q-{key}{{--k:{kind.colour}}}" for key, kind in picture.kinds.items())
    shown = "".join(
        f'.icicle[data-shown="{at}"] .tile{{--s:var(--s{at},0)}}'
        for at in range(len(picture.causes))
    )
    return Markup(
        '<style>{}{}</style><div class="icicle" role="tree" aria-label="{}" data-shown="0" style="--n:{}">{}</div>'
    ).format(Markup(colours), Markup(shown), question, picture.levels, Markup(tiles))


def _tile(tile: Tile, link: Callable[[str], str]) -> str:
    saved = "".join(f";--s{n}:{part:.3g}" for n, part in enumerate(tile.saved) if part)
    tag, href = ("a", f' href="{escape(link(tile.href))}"') if tile.href else ("div", "")
    kind = f" q-{tile.kind}" if tile.kind else ""
    return (
        f'<{tag}{href} class="tile{kind}" role="treeitem"'
        f' style="--x:{tile.start:.6g};--w:{tile.part:.6g};--l:{tile.level}{saved}" title="{escape(tile.words)}">'
        f"{'<i></i>' if saved else ''}<b>{escape(tile.name)}</b> <span>{escape(tile.figure)}</span></{tag}>\n"
    )
