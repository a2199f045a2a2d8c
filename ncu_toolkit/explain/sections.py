"""Facts × launches: facts are found by name, and launches are the columns of a table of them.

A name is one of the registry, a derived figure, `stall_share:x` or `kind_share:x`
(`figures.describe`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from ncu_toolkit.diagnosis import figures
from ncu_toolkit.document.views import Cell, Spec, Table, missing, number, table, text
from ncu_toolkit.model import Profile

Item = TypeVar("Item")


def spec(
    label: str, cell: Callable[[Item], Cell | str], title: str = "", *, words: bool = False
) -> Spec[Item]:
    """A column of numbers, or of `words`."""
    return Spec(label.lower(), label, title, numeric=not words, cell=cell)


def fact_cell(
    profile: Profile | None, name: str, *, bar: bool = False, meaning: bool = True, absent: str = ""
) -> Cell:
    """A fact of a launch, with its `meaning` or the reason for its absence on hover; `absent` is
    said where there is no launch. A `bar` is drawn for fractions."""
    if profile is None:
        return missing(absent)
    found = figures.fact(profile, name)
    drawn = found.value if bar and found.unit == "fraction" else None
    title = found.meaning if meaning else ""
    return number(found.value, found.unit, found.why, title=title, bar=drawn)


def fact_label(name: str) -> Cell:
    """The label of a fact, with its meaning on hover."""
    _, shown, meaning = figures.describe(name)
    return text(shown, meaning)


def by_fact(
    key: str,
    caption: str,
    names: Iterable[str],
    launches: Mapping[str, Profile],
    *,
    unchanged: float | None = None,
    note: str = "",
) -> Table:
    """A row a fact, a column a launch by its heading; of two launches also new over old.

    `unchanged` leaves out facts that a launch lacks, and those that differ by no more than this part
    of the larger value."""
    kept = [n for n in names if unchanged is None or moved([*launches.values()], n, unchanged)]
    specs = [spec("Figure", fact_label, words=True)]
    specs += [
        spec(head, partial(fact_cell, profile, meaning=False)) for head, profile in launches.items()
    ]
    if len(launches) == 2:
        old, new = launches.values()
        specs.append(spec("Change", lambda n: change(figures.value(old, n), figures.value(new, n))))
    return table(caption, specs, kept, note, key)


def moved(launches: list[Profile], name: str, unchanged: float) -> bool:
    """Whether all launches have a fact, and differ in it by more than a part of its largest value."""
    values = [value for each in launches if (value := figures.value(each, name)) is not None]
    return len(values) == len(launches) and max(values) - min(values) > unchanged * max(
        map(abs, values)
    )


def change(old: float | None, new: float | None) -> Cell:
    """New over old."""
    if old is None or new is None:
        return missing("one of the two does not have it")
    if old == new:
        return Cell("=", 1.0, "unchanged", tone="muted")
    if not old:
        return Cell("new", None, "none before")
    return number(new / old, "ratio") if new else Cell("gone", 0.0, "none now")
