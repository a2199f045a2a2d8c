"""Pictures as values: each answers the question that is its title, with the figures of the card.

Times are in microseconds. Text is safe to show, as in views.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

#: What kind of cause holds a kernel up: the one map of colours (card.css `.k-…`), with its words.
KINDS: Final[Mapping[str, str]] = {
    "memory": "memory traffic",
    "compute": "arithmetic and instructions",
    "latency": "waiting",
    "shape": "size and balance of the launch",
    "none": "at its roof, or cause not known",
}


@dataclass(frozen=True)
class Saving:
    """The launches of one kind: their time, and the part of it that the fix would save."""

    name: str
    href: str
    """The page of the launch that stands for them; empty where it has none."""
    kind: str
    """A key of KINDS."""
    us: float
    saved_us: float
    cause: str
    gain: str
    """The card's gain, short: `3.1×`, `at its roof`, `–`."""
    words: str
    """All of it in a sentence, shown on hover."""


@dataclass(frozen=True)
class Savings:
    """Where time would be saved: a bar for each kind of launches, those that save most first."""

    sentence: str
    bars: tuple[Saving, ...]
    rest: str
    """What the bars leave out, in words; empty for nothing."""

    @property
    def longest(self) -> float:
        return max(bar.us for bar in self.bars)

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of causes among the bars, with their words."""
        return {
            kind: words for kind, words in KINDS.items() if kind in {bar.kind for bar in self.bars}
        }


@dataclass(frozen=True)
class Reach:
    """How far a launch is from one roof. `intensity` is its work per byte that the level moved; None
    for a roof of work itself."""

    level: str
    """`dram`, `l2` or `l1`; `work` for a roof of work."""
    unit: str
    """As the unit's bar names it."""
    busy: float
    """0-1, as on the card."""
    limit: bool
    intensity: float | None = None
    moved: str = ""


@dataclass(frozen=True)
class RoofPicture:
    """A launch under its roofs: its work per second, and each roof at work over how busy its unit
    is, so that a point is as far below its roof as the card's bar is from full."""

    work: str
    """`FLOP` or `instructions`."""
    rate: float
    """Per second, under the profiler."""
    reaches: tuple[Reach, ...]

    @property
    def points(self) -> tuple[Reach, ...]:
        return tuple(reach for reach in self.reaches if reach.intensity)


@dataclass(frozen=True)
class Course:
    """Values in their order, for a line in a table's cell. The line's axis has `places` places and
    goes from `low` to `high`, or as far as its values do."""

    values: tuple[float, ...]
    words: str
    """Shown on hover, and read out."""
    low: float = math.inf
    high: float = -math.inf
    places: int = 0
    band: tuple[float, float] | None = None
    """Where the last value may lie by chance."""
    changes: tuple[int, ...] = ()
    """Values at which something changed."""


@dataclass(frozen=True)
class Segment:
    """A part of a bar, in percent of the axis: `sizes` has one for each of the chart's views."""

    kind: str
    """A key of the chart's kinds; empty for a gap before what follows."""
    sizes: tuple[float, ...]
    words: str = ""


@dataclass(frozen=True)
class BarRow:
    """A row of bars, or of points on an axis."""

    name: str
    figures: tuple[str, ...]
    """What stands behind the bar, under the chart's heads."""
    segments: tuple[Segment, ...] = ()
    points: tuple[Segment, ...] = ()
    """Each at the place of its size."""
    note: str = ""
    """What it is, in words, before the bar."""
    words: str = ""
    """Shown on hover."""
    href: str = ""
    minor: bool = False


@dataclass(frozen=True)
class BarKind:
    """What a colour of a chart means; `colour` is one of CSS, `pattern` one of the palette's."""

    words: str
    colour: str
    pattern: str = ""


@dataclass(frozen=True)
class BarMark:
    """A line across all bars, at a percentage of the axis."""

    at: float
    words: str
    dashed: bool = False


@dataclass(frozen=True)
class Tile:
    """A block of an icicle: a part of the whole, which has the parts of that below it. `start` and
    `part` are of the whole (0-1)."""

    name: str
    figure: str
    """Its time, after the name."""
    level: int
    """0 for the whole."""
    start: float
    part: float
    words: str
    """Shown on hover."""
    kind: str = ""
    """A key of `Icicle.kinds`; empty for what holds several kinds."""
    saved: tuple[float, ...] = ()
    """The part of it (0-1) that each of `Icicle.causes` would save; empty for none."""
    href: str = ""


@dataclass(frozen=True)
class Icicle:
    """Where a step's time goes: tiles by depth, each before those within it."""

    tiles: tuple[Tile, ...]
    kinds: Mapping[str, BarKind]
    causes: tuple[str, ...]
    """What would save time; the first is shown first."""

    @property
    def levels(self) -> int:
        return 1 + max(tile.level for tile in self.tiles)
