"""What a command answers, as one value that every writer shows: a headline, a table of kernels, cards,
what was found beside them, notes. Its text is safe to show; writers escape for their own markup."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.document.card import Card, State, in_the_middle, kernel_name, short_gain
from ncu_toolkit.document.views import Answer, Cell, Spec, Table, Tone, table

#: How a card's state is coloured.
TONES: Final[dict[State, Tone]] = {
    "slow": "bad", "roof": "good", "unknown": "warn", "incomplete": "warn", "together": "strong"
}  # fmt: skip
#: Kernels in the table where nothing else is asked for, and those whose cards are shown.
TOP: Final = 15
CARDS: Final = 3
#: Launches from which on a report can tell of a program (analysis/reported.py asks for more).
MANY: Final = 20
_FILE: Final = 40


@dataclass(frozen=True)
class Kind:
    """Launches alike, with the card of the one that stands for them. Times are in microseconds."""

    card: Card
    launches: int = 1
    total_us: float | None = None
    agreeing: int = 1
    """Launches with the same verdict as the card's."""


class Whole(NamedTuple):
    """All that was launched: launches, kernels, and their time in microseconds."""

    launches: int
    kernels: int
    total_us: float


def answer(
    kinds: Sequence[Kind],
    notes: Sequence[str] = (),
    top: int = TOP,
    cards: int = CARDS,
    next_command: str = "",
    whole: Whole | None = None,
    flags: bool = True,
) -> Answer:
    """The answer to kinds of launches, those with most time first; `top` bounds the table.

    Args:
        whole: what the kinds are the first of; themselves where it is None.
        flags: name options of the command line for what is left out.
    """
    whole = whole or Whole(
        sum(kind.launches for kind in kinds),
        len(kinds),
        sum(kind.total_us or 0.0 for kind in kinds),
    )
    total = whole.total_us
    left = whole.kernels - min(top, len(kinds))
    rest = ""
    if left:
        time = units.duration(total - sum(kind.total_us or 0.0 for kind in kinds[:top]))
        kernels = "1 more kernel takes" if left == 1 else f"{left} more kernels take"
        rest = (
            f"{kernels} {time}; --top {whole.kernels} shows all." if flags else f"{kernels} {time}."
        )
    shown = min(top, cards)
    if len(kinds) > shown > 0:
        rest = f"{rest} The cards below are of the first {shown}.".lstrip()
    return Answer(
        _headline(kinds, whole) if kinds or not notes else "",
        _kernels(kinds, total, top) if len(kinds) > 1 else None,
        rest,
        tuple(kind.card for kind in kinds[:shown]),
        tuple(_ran(kind, total) for kind in kinds[:shown]) if len(kinds) > 1 else (),
        notes=tuple(notes),
        next=next_command,
    )


def _headline(kinds: Sequence[Kind], whole: Whole) -> str:
    """What the cards do not say: how many launches and kernels there are. Empty for one launch."""
    launches, total = whole.launches, whole.total_us
    if not kinds:
        return "No launch to diagnose."
    if launches == 1:
        return ""
    if whole.kernels == 1:
        return (
            f"{kinds[0].card.kernel}: {launches} launches, {units.duration(total)} in total. The card shows a typical one: "
            "shorter ones take less than half of the time."
        )
    gpus = list(dict.fromkeys(kind.card.gpu for kind in kinds if kind.card.gpu))
    where = "" if not gpus else f" on {gpus[0]}" if len(gpus) == 1 else f" on {len(gpus)} GPUs"
    what = f"{launches} launches of {whole.kernels} kernels"
    if any(kind.card.state == "together" for kind in kinds):
        what = f"{launches} results of {whole.kernels} kinds"
    return f"{what}, {units.duration(total)}{where}"


def _ran(kind: Kind, total: float) -> str:
    """`13 launches, this one 322 µs, 78 % of the time`."""
    parts = [f"{kind.launches} launches", f"this one {kind.card.time}"]
    said = parts if kind.launches > 1 else [kind.card.time] if kind.card.time_us is not None else []
    share = _share(kind, total)
    return ", ".join([*said, f"{share} of the time"] if share else said)


def _share(kind: Kind, total: float) -> str:
    """A kernel's part of the time of all; empty where it is not known."""
    return units.percent(kind.total_us / total, 2) if kind.total_us is not None and total else ""


def _kernels(kinds: Sequence[Kind], total: float, top: int) -> Table:
    def verdict(kind: Kind) -> Cell:
        agree = f" ({kind.agreeing} of {kind.launches})" if kind.agreeing != kind.launches else ""
        return Cell(kind.card.title + agree, tone=TONES[kind.card.state])

    def file(kind: Kind) -> str:
        return in_the_middle(
            kind.card.file.removesuffix(".ncu-rep").removesuffix(".ncu-repz"), _FILE
        )

    grids = dict(zip(map(id, kinds), apart(kinds), strict=True))

    columns: tuple[Spec[Kind], ...] = (
        Spec(
            "kernel",
            cell=lambda kind: kernel_name(kind.card.kernel),
            numeric=False,
            code=True,
            name=True,
        ),
        Spec("grid", cell=lambda kind: grids[id(kind)], numeric=False, gives_way=6),
        Spec("file", cell=file, numeric=False, code=True, gives_way=5, shortest=16),
        Spec("launches", cell=lambda kind: str(kind.launches), gives_way=2),
        Spec("time", cell=lambda kind: duration(kind.total_us)),
        Spec("share", cell=lambda kind: _share(kind, total) or units.NOT_AVAILABLE, gives_way=3),
        Spec("verdict", cell=verdict, numeric=False, gives_way=7, shortest=12),
        Spec("gain", cell=lambda kind: Cell(short_gain(kind.card), tone="strong")),
        Spec("hottest line", cell=_hottest, numeric=False, code=True, gives_way=4),
    )
    return table("", columns, kinds[:top])


def apart(kinds: Sequence[Kind]) -> list[str]:
    """The grid of each kind where another of its report has the same name, with the block where grids
    are the same too."""
    names = [(kind.card.kernel, kind.card.file) for kind in kinds]
    shapes = [kind.card.shape.removeprefix("grid ").split(", ") for kind in kinds]
    found = []
    for name, shape in zip(names, shapes, strict=True):
        same = [other for known, other in zip(names, shapes, strict=True) if known == name]
        most = next((most for most in (1, 2) if len({tuple(x[:most]) for x in same}) > 1), 0)
        found.append(", ".join(shape[:most]))
    return found


def _hottest(kind: Kind) -> str:
    return kind.card.where[0].short if kind.card.where else "–"


def duration(microseconds: float | None) -> str:
    """A time, or `n/a`."""
    return units.NOT_AVAILABLE if microseconds is None else units.duration(microseconds)


def told_apart(paths: Sequence[str]) -> dict[str, str]:
    """What to call each of several files: its path below their common folder, safe to show."""
    places = {path: os.path.abspath(path) for path in paths}
    above = os.path.commonpath([os.path.dirname(place) for place in places.values()] or ["/"])
    return {
        path: visible(os.path.relpath(place, above)) if len(places) > 1 else ""
        for path, place in places.items()
    }
