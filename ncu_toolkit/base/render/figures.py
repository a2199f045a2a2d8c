"""Pictures of pages as Plotly figures, for notebooks: `.show()`, `.write_image()`, `.update_layout()`.
They draw the values that the pages draw as SVG and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ncu_toolkit.base.core.safe import plot_text
from ncu_toolkit.base.document.card import Card, Icicle, Reach, RoofPicture

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

#: Colours of memory levels and of what limits, as in the charts of ladders.
_LEVELS = {"dram": "#0072B2", "l2": "#E69F00", "l1": "#009E73"}
_NAMES = {"dram": "DRAM", "l2": "L2", "l1": "L1 and shared memory"}
_LIMIT, _WORK = "#D55E00", "#8A8F98"


def roofline(picture: RoofPicture, title: str) -> Figure:
    """A launch under its roofs, on logarithmic axes: work per byte of each level of memory across, work
    per second up."""
    from plotly.graph_objects import Figure, Scatter

    tops = [reach for reach in picture.reaches if not reach.intensity]
    peak = max((picture.rate / reach.busy for reach in tops), default=picture.rate)
    slopes = [
        (reach, picture.rate / (reach.intensity or 1) / reach.busy) for reach in picture.points
    ]
    ends = [reach.intensity or 1 for reach, _ in slopes] + [peak / slope for _, slope in slopes]
    low, high = min(ends) / 4, max(ends) * 4

    def line(reach: Reach, x: Sequence[float], y: Sequence[float], name: str) -> Scatter:
        colour = _LIMIT if reach.limit else _LEVELS.get(reach.level, _WORK)
        words = f"{plot_text(reach.unit)} {reach.busy:.0%} busy"
        style = {"color": colour, "width": 3 if reach.limit else 1.5}
        return Scatter(x=x, y=y, mode="lines", name=name, line=style, hovertext=words)

    drawn = [
        line(reach, [low, peak / slope], [low * slope, peak], f"{_NAMES[reach.level]} roof")
        for reach, slope in slopes
    ]
    drawn += [
        line(reach, [low, high], [picture.rate / reach.busy] * 2, f"{plot_text(reach.unit)} roof")
        for reach in tops
    ]
    drawn += [
        Scatter(
            x=[reach.intensity],
            y=[picture.rate],
            mode="markers",
            name=f"by bytes of {_NAMES[reach.level]}",
            marker={"color": _LEVELS[reach.level], "size": 11},
            hovertext=f"{reach.moved} moved, {plot_text(reach.unit)} {reach.busy:.0%} busy",
        )
        for reach in picture.points
    ]
    axes = {
        "xaxis": {"type": "log", "title": {"text": f"{picture.work} per byte"}},
        "yaxis": {
            "type": "log",
            "title": {"text": f"{picture.work} per second"},
            "exponentformat": "SI",
        },
    }
    return Figure(drawn, {"title": {"text": plot_text(title)}, **axes})


def units(card: Card) -> Figure:
    """How busy each unit was, as on the card, the busiest at the top; what limits in another colour."""
    from plotly.graph_objects import Bar, Figure

    bars = card.bars[::-1]
    drawn = Bar(
        x=[100 * bar.busy for bar in bars],
        y=[plot_text(bar.label) for bar in bars],
        orientation="h",
        marker={"color": [_LIMIT if bar.limit else _LEVELS["dram"] for bar in bars]},
    )
    axis = {"title": {"text": "% of the time"}, "range": [0, 100]}
    return Figure([drawn], {"title": {"text": plot_text(card.kernel)}, "xaxis": axis})


def icicle(picture: Icicle, wall_us: float, title: str) -> Figure:
    """Where a step's time goes, in microseconds: its parts below each other."""
    from plotly.graph_objects import Figure
    from plotly.graph_objects import Icicle as Drawn

    parents: list[str] = []
    above: dict[int, int] = {}
    rest = [tile.part for tile in picture.tiles]
    for place, tile in enumerate(picture.tiles):
        parent = above.get(tile.level - 1)
        parents.append("" if parent is None else str(parent))
        if parent is not None:
            rest[parent] -= tile.part
        above[tile.level] = place
    colours: list[Any] = [
        picture.kinds[tile.kind].colour if tile.kind in picture.kinds else _WORK
        for tile in picture.tiles
    ]
    drawn = Drawn(
        ids=[str(place) for place in range(len(picture.tiles))],
        labels=[plot_text(tile.name) for tile in picture.tiles],
        parents=parents,
        values=[max(0.0, part) * wall_us for part in rest],
        hovertext=[plot_text(tile.words) for tile in picture.tiles],
        hoverinfo="text",
        branchvalues="remainder",  # a sum that is rounded up past its whole would draw nothing
        tiling={"orientation": "v"},
        marker={"colors": colours},
    )
    return Figure([drawn], {"title": {"text": plot_text(title)}})
