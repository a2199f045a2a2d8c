"""The answer to one or many launches: a table of kernels by time, and the cards of the first."""

from __future__ import annotations

import ntpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.explain.card import NAME, Card, State, short_gain

#: Kernels in the table where nothing else is asked for, and those whose cards are shown.
TOP: Final = 15
CARDS: Final = 3
_FILE: Final = 40


@dataclass(frozen=True)
class Kind:
    """Launches alike, with the card of the one that stands for them. Times are in microseconds."""

    card: Card
    launches: int = 1
    total_us: float | None = None
    agreeing: int = 1
    """Launches with the same verdict as the card's."""
    file: str = ""


@dataclass(frozen=True)
class Row:
    """A kind of launches in the table, in words."""

    kernel: str
    launches: str
    time: str
    share: str
    verdict: str
    gain: str
    hottest: str
    file: str
    state: State


@dataclass(frozen=True)
class Answer:
    """What one or many reports say. `rows` is empty for a single kernel: its card says it all."""

    headline: str
    rows: tuple[Row, ...]
    rest: str
    """How many kernels the table leaves out, and the time they take; empty where none."""
    cards: tuple[Card, ...]
    notes: tuple[str, ...] = ()
    """What could not be read, and other faults of the input."""

    @property
    def line(self) -> str:
        """All of it in one line: `matmul_kernel, 51.9 ms`."""
        first = self.cards[0] if self.cards else None
        return self.headline or (f"{first.kernel}, {first.time}" if first else "")


def answer(
    kinds: Sequence[Kind], notes: Sequence[str] = (), top: int = TOP, cards: int = CARDS
) -> Answer:
    """The answer to kinds of launches, those with most time first; `top` bounds the table."""
    total = sum(kind.total_us or 0.0 for kind in kinds)
    files = len({kind.file for kind in kinds})
    left = kinds[top:]
    rest = ""
    if left:
        time = units.duration(sum(kind.total_us or 0.0 for kind in left))
        kernels = "1 more kernel takes" if len(left) == 1 else f"{len(left)} more kernels take"
        rest = f"{kernels} {time}; --top {len(kinds)} shows all."
    return Answer(
        _headline(kinds, total),
        tuple(_row(kind, total, files > 1) for kind in kinds[:top]) if len(kinds) > 1 else (),
        rest,
        tuple(kind.card for kind in kinds[: min(top, cards)]),
        tuple(notes),
    )


def _headline(kinds: Sequence[Kind], total: float) -> str:
    """What the cards do not say: how many launches and kernels there are. Empty for one launch."""
    launches = sum(kind.launches for kind in kinds)
    if not kinds:
        return "No launch to diagnose."
    if launches == 1:
        return ""
    if len(kinds) == 1:
        return f"{kinds[0].card.kernel}: {launches} launches, {units.duration(total)} together; this is the one of median time."
    gpus = list(dict.fromkeys(kind.card.gpu for kind in kinds if kind.card.gpu))
    where = "" if not gpus else f" on {gpus[0]}" if len(gpus) == 1 else f" on {len(gpus)} GPUs"
    return f"{launches} launches of {len(kinds)} kernels, {units.duration(total)}{where}"


def _row(kind: Kind, total: float, several: bool) -> Row:
    shown = kind.card
    time = kind.total_us
    agree = "" if kind.agreeing == kind.launches else f" ({kind.agreeing} of {kind.launches})"
    return Row(
        visible(shown.kernel, NAME),
        str(kind.launches),
        units.NOT_AVAILABLE if time is None else units.duration(time),
        units.NOT_AVAILABLE if time is None or not total else units.percent(time / total, 2),
        shown.title + agree,
        short_gain(shown),
        shown.where[0].short if shown.where else "–",
        visible(ntpath.basename(kind.file), _FILE) if several else "",
        shown.state,
    )
