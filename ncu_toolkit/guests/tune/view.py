"""The landscape of a search: the settings ranked, what fell and why, and a heat map for each pair
of parameters (bars where few settings were timed), as one self-contained page."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.base.core import files, units
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.core.safe import plot_text, slug, visible
from ncu_toolkit.base.document.tables import number, plain_table, text
from ncu_toolkit.base.document.views import Answer, Chart, shown_size
from ncu_toolkit.base.model.codec import from_plain, open_document
from ncu_toolkit.base.render.html import answer_page
from ncu_toolkit.guests.tune.halving import KIND, Search, Trial, fallen
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.kernel.gpu import tuned
from ncu_toolkit.kernel.pages.charts import BLUE
from ncu_toolkit.kernel.runs import store

#: Settings in the table; up to this many timed ones are drawn as bars, more as heat maps.
LISTED: Final = 12
#: Settings in the table of a page's chart.
_TABLED: Final = 40
COLUMNS: Final = (
    "setting", "median", "of baseline", "registers", "shared memory", "warps per SM", "rounds",
)  # fmt: skip


def rows(search: Search, most: int = LISTED) -> list[tuple[str, ...]]:
    """The best settings as cells under COLUMNS, best first; the header's own parameters are always
    among them."""
    ranked = list(search.ranked())
    shown = ranked[:most]
    own = search.own
    if own is not None and own not in shown:
        shown.append(own)
    return [_row(trial, trial is own) for trial in shown]


def _row(trial: Trial, own: bool) -> tuple[str, ...]:
    beside = trial.beside_us
    return (
        trial.label + (" (header)" if own else ""), units.duration(trial.median_us), units.percent(1 / trial.score()) if beside else "",
        str(trial.registers), units.quantity(trial.shared, "B"), str(trial.warps), str(len(trial.rounds)),
    )  # fmt: skip


def summary(search: Search) -> list[str]:
    """Lines that say what was searched and what came of it."""
    count = (
        f"{len(search.trials)} settings of {search.rung} at {search.size} ({search.dtype}) "
        f"on {search.gpu}; {search.invalid} more break a constraint"
    )
    lines = [count]
    lines += [
        f"not timed: {units.counted(n, 'setting')}: {reason.replace(' N ', ' some ')}"
        for reason, n in list(fallen(search).items())[:6]
    ]
    ranked, own = search.ranked(), search.own
    if ranked and own is not None:
        lines.append(
            f"best: {ranked[0].label}, {units.ratio(own.median_us / ranked[0].median_us)} the speed of the header's own "
            f"({own.label})"
        )
    if not search.finished:
        lines.append("not finished; run the same command to continue")
    return lines


def varied(search: Search) -> list[str]:
    """Parameters with more than one value among the settings that were timed."""
    return [
        name
        for name in search.default
        if len({trial.parameters[name] for trial in search.timed}) > 1
    ]


def pairs(search: Search) -> list[tuple[str, str]]:
    """The varied parameters by twos."""
    return list(itertools.combinations(varied(search), 2))


def _grid(search: Search, x: str, y: str) -> tuple[list[int], list[int], dict[Any, Trial]]:
    """The timed values of two parameters, and the best setting by (y, x)."""
    xs, ys = (sorted({trial.parameters[name] for trial in search.timed}) for name in (x, y))
    best: dict[Any, Trial] = {}
    for trial in search.timed:
        cell = (trial.parameters[y], trial.parameters[x])
        if cell not in best or trial.score() < best[cell].score():
            best[cell] = trial
    return xs, ys, best


def heat(search: Search, x: str, y: str) -> dict[str, Any]:
    """One heat map: for each value of two parameters the best of all settings that have them; empty
    where none was timed."""
    xs, ys, best = _grid(search, x, y)
    by_baseline = any(trial.beside_us for trial in search.timed)
    values = [[_value(best.get((row, column)), by_baseline) for column in xs] for row in ys]
    texts = [[_text(best.get((row, column))) for column in xs] for row in ys]
    return {
        "type": "heatmap", "x": [str(v) for v in xs], "y": [str(v) for v in ys], "z": values, "text": texts, "hoverinfo": "text",
        "colorscale": "Cividis", "visible": False,
        "reversescale": not by_baseline,
        "colorbar": {"title": {"text": "speed relative<br>to the baseline" if by_baseline else "time, µs"}},
    }  # fmt: skip


def bars(search: Search) -> dict[str, Any]:
    """The timed settings as bars, the fastest on top, each named by what varies."""
    ranked = sorted(search.timed, key=lambda trial: -trial.score())
    by_baseline = any(trial.beside_us for trial in ranked)
    names = varied(search) or list(search.default)
    labels = [", ".join(f"{name} {trial.parameters[name]}" for name in names) for trial in ranked]
    return {
        "type": "bar", "orientation": "h", "y": [plot_text(label) for label in labels],
        "x": [_value(trial, by_baseline) for trial in ranked], "hovertext": [_text(trial) for trial in ranked], "hoverinfo": "text",
        "text": [units.percent(1 / trial.score(), 4) if trial.beside_us else units.duration(trial.median_us) for trial in ranked],
        "textposition": "inside", "insidetextanchor": "end", "textangle": 0, "constraintext": "none", "width": 0.7,
        "marker": {"color": BLUE}, "insidetextfont": {"color": "#ffffff"}, "visible": False,
    }  # fmt: skip


def _value(trial: Trial | None, by_baseline: bool) -> float | None:
    if trial is None:
        return None
    return round(1 / trial.score(), 4) if by_baseline else round(trial.median_us, 3)


def _text(trial: Trial | None) -> str:
    if trial is None:
        return "no setting with both values was timed"
    speed = (
        f"<br>{units.percent(1 / trial.score())} of the baseline's speed" if trial.beside_us else ""
    )
    return f"{plot_text(trial.label)}<br>{units.duration(trial.median_us)}{speed}<br>{trial.registers} registers, {trial.warps} warps per SM"


def figure(search: Search) -> dict[str, Any]:
    """All heat maps in one Plotly figure, with a menu to choose the pair of parameters; bars where
    fewer than two parameters vary."""
    chosen = pairs(search)
    if not chosen:
        return _figure([bars(search)], [("", *_axes(search, None))], 0, 300)
    drawn = [heat(search, x, y) for x, y in chosen]
    named = [(f"{y} by {x}", *_axes(search, (x, y))) for x, y in chosen]
    first = next(at for at, pair in enumerate(chosen) if {*pair} == {*weightiest(search)})
    return _figure(drawn, named, first, 560)


def _axes(search: Search, pair: tuple[str, str] | None) -> tuple[str, str]:
    """The titles of both axes: of a heat map's pair, or of bars."""
    if pair:
        return plot_text(pair[0]), plot_text(pair[1])
    by_baseline = any(trial.beside_us for trial in search.timed)
    return ("speed relative to the baseline" if by_baseline else "time, µs"), ""


def _figure(
    data: list[dict[str, Any]], named: list[tuple[str, str, str]], first: int, height: int
) -> dict[str, Any]:
    """Traces of which one shows; a menu chooses by its name and sets the titles of the axes."""
    data[first]["visible"] = True
    buttons = [
        {
            "label": plot_text(label), "method": "update",
            "args": [{"visible": [i == n for i in range(len(data))]}, {"xaxis.title.text": x, "yaxis.title.text": y}],
        }
        for n, (label, x, y) in enumerate(named)
    ]  # fmt: skip
    _, x, y = named[first]
    flat = data[first]["type"] == "bar"
    menu = {"buttons": buttons, "active": first, "x": 0, "xanchor": "left", "y": 1.04, "yanchor": "bottom"}  # fmt: skip
    layout = {
        "height": height, "margin": {"t": 56 if named[1:] else 12, "b": 56, "l": 8},
        "xaxis": {"automargin": True, "showgrid": flat, "title": {"text": x}, **({"rangemode": "tozero"} if flat else {"type": "category"})},
        "yaxis": {"type": "category", "automargin": True, "showgrid": False, "title": {"text": y}},
        "updatemenus": [menu] if named[1:] else [],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def kept(gpu: str, family: str) -> dict[str, list[Search]]:
    """The landscapes at hand of a family's kernels on a GPU, by kernel, smallest size first; one
    that cannot be read is left out."""
    found: dict[str, list[Search]] = {}
    for path in tuned.landscapes(gpu, family):
        try:
            search = from_plain(
                Search, open_document(KIND, files.read_json(path), path.name), path.name
            )
        except (InputProblem, OSError):
            continue
        if search.gpu == gpu and search.family == family and search.timed:
            found.setdefault(search.rung, []).append(search)
    return {
        rung: sorted(each, key=lambda search: search.ranked()[0].median_us)
        for rung, each in found.items()
    }


def charts(gpu: str, family: str, shown: str, texts: Mapping[str, str]) -> tuple[Chart, ...]:
    """A chart for each kernel that was tuned on this GPU: for each size the heat map of two
    parameters, or bars of few settings. It opens at the size `shown`. `texts` has each
    kernel's file: its comments describe the parameters."""
    found = {
        rung: searched
        for rung, searches in kept(gpu, family).items()
        if (searched := [search for search in searches if varied(search)])
    }
    return tuple(
        _chart(family, rung, searches, shown, meanings(texts.get(rung, "")))
        for rung, searches in found.items()
    )


#: A parameter of a kernel's header with what its comment says.
_PARAMETER: Final = re.compile(r"^(\w+)\s*=\s*-?\d+\s*#\s*(.+?)\s*$")


def meanings(text: str) -> dict[str, str]:
    """What the comments in a kernel's [parameters] say of each."""
    block = text.rpartition("\n[parameters]\n")[2].partition("\n[")[0]
    lines = map(_PARAMETER.match, block.splitlines())
    return {found[1]: found[2] for found in lines if found}


def _chart(
    family: str, rung: str, searches: Sequence[Search], shown: str, notes: Mapping[str, str]
) -> Chart:
    large = [search for search in searches if len(search.timed) > LISTED and pairs(search)]
    drawn = large or list(searches)
    first = next((n for n, s in enumerate(drawn) if s.size == shown), len(drawn) - 1)
    of = visible(searches[0].gpu)
    if large:
        chosen = [weightiest(search) for search in drawn]
        data = [heat(search, x, y) for search, (x, y) in zip(drawn, chosen, strict=True)]
        named = [
            (f"{shown_size(search.size)}: {y} by {x}", *_axes(search, (x, y)))
            for search, (x, y) in zip(drawn, chosen, strict=True)
        ]
        used = {name for pair in chosen for name in pair}
        empty = any(None in row for trace in data for row in trace["z"])
        summary = (
            f"Each cell is the best of all settings of {visible(rung)} with those two values, relative to the baseline on {of}. "
            + (
                "Empty cells have no timed setting: the kernel forbids it, or it failed or was not tried."
                if empty
                else "The axes are the parameters that change the speed most, of those that combine freely."
            )
        )
        height = 420
    else:
        data = [bars(search) for search in drawn]
        named = [(shown_size(search.size), *_axes(search, None)) for search in drawn]
        used = {name for search in drawn for name in varied(search)}
        summary = f"Each bar is a setting of {visible(rung)} that was timed, relative to the baseline on {of}."
        height = 130 + 34 * max(len(search.timed) for search in drawn)
    words = ", ".join(
        f"{name} ({notes[name]})" for name in searches[0].default if name in used & notes.keys()
    )
    summary += f" Parameters: {visible(words, 1000)}." if words else ""
    columns = [
        "Size", "Best setting", "Time", "Over the baseline's speed", "Over its default parameters'",
        "Settings timed", "Search",
    ]  # fmt: skip
    key = slug(f"{family}-{rung}-landscape")
    table = plain_table(
        f"{key}-data",
        f"Best of each search of {visible(rung)}",
        columns,
        [_best_row(s) for s in searches],
        numeric=(2, 3, 4, 5),
    )
    return Chart(
        key,
        f"Speed of {visible(rung)} by its parameters",
        summary,
        _figure(data, named, first, height),
        table,
        wide=True,
    )


def _best_row(search: Search) -> list[Any]:
    best, own = search.ranked()[0], search.own
    changed = " ".join(
        f"{name} {value}"
        for name, value in best.parameters.items()
        if search.default.get(name) != value
    )
    return [
        text(f"{shown_size(search.size)} {search.dtype}"), text(changed or "the header's defaults", best.label), number(best.median_us, "us"),
        number(1 / best.score() if best.beside_us else None, "ratio", "timed without a baseline"),
        number(own.median_us / best.median_us if own else None, "ratio", "its default parameters could not be timed"),
        number(len(search.timed), "count"), text("finished" if search.finished else "unfinished"),
    ]  # fmt: skip


def weightiest(search: Search) -> tuple[str, str]:
    """Of the pairs of parameters with fewest empty cells, the two by whose values the best scores
    differ most."""

    def weight(name: str) -> float:
        best: dict[int, float] = {}
        for trial in search.timed:
            value = trial.parameters[name]
            best[value] = min(best.get(value, trial.score()), trial.score())
        return max(best.values()) / min(best.values())

    def rank(pair: tuple[str, str]) -> tuple[float, float]:
        xs, ys, best = _grid(search, *pair)
        return len(best) / (len(xs) * len(ys)), math.prod(map(weight, pair))

    first, second = max(pairs(search), key=rank)
    return (first, second) if weight(first) >= weight(second) else (second, first)


def page(search: Search) -> str:
    """The landscape as one HTML file that loads nothing."""
    title = visible(f"Best parameters of {search.rung} at size {search.size} on {search.gpu}")
    drawn = (
        "Each cell is the best of all settings with those two values. Point at it to see which. Empty cells have no timed setting: "
        "the kernel forbids it, or it failed or was not tried."
        if pairs(search)
        else "Each bar is a setting that was timed."
    )
    few, many = (
        plain_table(key, "Best settings", COLUMNS, [[*map(text, row)] for row in rows(search, most)], numeric=range(1, 7))
        for key, most in (("best", LISTED), ("settings", _TABLED))
    )  # fmt: skip
    chart = Chart("landscape", "Which settings are fast?", drawn, figure(search), many, wide=True)
    points = tuple(map(visible, summary(search)))
    shown = Answer(title, points=points, tables=(few,), charts=(chart,))
    return answer_page(shown, title, definitions())


def write(search: Search, folder: Path) -> Path:
    """Write tune.json and landscape.html into a folder; returns the page. Raises EnvironmentProblem
    where it cannot be written."""
    store.write_json(folder / "tune.json", KIND, search)
    path = folder / "landscape.html"
    store.write_atomic(path, page(search).encode())
    return path
