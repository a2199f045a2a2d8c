"""The landscape of a search: the settings ranked, what fell and why, and a heat map for each pair
of parameters, as one self-contained page."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.core import files, units
from ncu_toolkit.core.errors import InputProblem
from ncu_toolkit.core.safe import plot_text, script_json, slug, visible
from ncu_toolkit.gpu.tune import tables
from ncu_toolkit.gpu.tune.halving import KIND, Search, Trial, fallen
from ncu_toolkit.model.codec import from_plain, open_document
from ncu_toolkit.render.assets_out import PLOTLY, content
from ncu_toolkit.render.views import Chart, number, plain_table, text
from ncu_toolkit.runs import store

LISTED: Final = 12
COLUMNS: Final = (
    "setting",
    "median",
    "of baseline",
    "registers",
    "shared memory",
    "warps an SM",
    "rounds",
)


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
    lines += [f"not timed: {n} x {reason}" for reason, n in list(fallen(search).items())[:6]]
    ranked, own = search.ranked(), search.own
    if ranked and own is not None:
        lines.append(
            f"best: {ranked[0].label}, {units.ratio(own.median_us / ranked[0].median_us)} the speed of the header's own "
            f"({own.label})"
        )
    if not search.finished:
        lines.append("not finished; run the same command to continue")
    return lines


def pairs(search: Search) -> list[tuple[str, str]]:
    """Parameters with more than one value among the settings, by twos."""
    names = [
        name
        for name in search.default
        if len({trial.parameters[name] for trial in search.trials}) > 1
    ]
    return list(itertools.combinations(names, 2)) or [(name, name) for name in names]


def heat(search: Search, x: str, y: str) -> dict[str, Any]:
    """One heat map: for each value of two parameters the best of all settings that have them; empty
    where none could be timed."""
    xs, ys = (sorted({trial.parameters[name] for trial in search.trials}) for name in (x, y))
    best: dict[tuple[int, int], Trial] = {}
    for trial in search.timed:
        cell = (trial.parameters[y], trial.parameters[x])
        if cell not in best or trial.score() < best[cell].score():
            best[cell] = trial
    by_baseline = any(trial.beside_us for trial in search.timed)
    values = [[_value(best.get((row, column)), by_baseline) for column in xs] for row in ys]
    texts = [[_text(best.get((row, column))) for column in xs] for row in ys]
    return {
        "type": "heatmap", "x": [str(v) for v in xs], "y": [str(v) for v in ys], "z": values, "text": texts, "hoverinfo": "text",
        "colorscale": "Cividis", "visible": False,
        "reversescale": not by_baseline,
        "colorbar": {"title": {"text": "speed relative<br>to the baseline" if by_baseline else "time, µs"}},
    }  # fmt: skip


def _value(trial: Trial | None, by_baseline: bool) -> float | None:
    if trial is None:
        return None
    return round(1 / trial.score(), 4) if by_baseline else round(trial.median_us, 3)


def _text(trial: Trial | None) -> str:
    if trial is None:
        return "no setting could be timed"
    speed = (
        f"<br>{units.percent(1 / trial.score())} of the baseline's speed" if trial.beside_us else ""
    )
    return f"{plot_text(trial.label)}<br>{units.duration(trial.median_us)}{speed}<br>{trial.registers} registers, {trial.warps} warps an SM"


def figure(search: Search) -> dict[str, Any]:
    """All heat maps in one Plotly figure, with a menu to choose the pair of parameters."""
    chosen = pairs(search)
    data = [heat(search, x, y) for x, y in chosen]
    if data:
        data[0]["visible"] = True
    buttons = [
        {
            "label": f"{y} by {x}", "method": "update",
            "args": [{"visible": [i == n for i in range(len(data))]}, {"xaxis.title.text": plot_text(x), "yaxis.title.text": plot_text(y)}],
        }
        for n, (x, y) in enumerate(chosen)
    ]  # fmt: skip
    first = chosen[0] if chosen else ("", "")
    layout = {
        "height": 560, "margin": {"t": 70}, "xaxis": {"type": "category", "title": {"text": plot_text(first[0])}},
        "yaxis": {"type": "category", "title": {"text": plot_text(first[1])}},
        "updatemenus": [{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.14}] if len(chosen) > 1 else [],
    }  # fmt: skip
    return {"data": data, "layout": layout}


def kept(gpu: str, family: str) -> dict[str, list[Search]]:
    """The landscapes at hand of a family's kernels on a GPU, by kernel, smallest size first; one
    that cannot be read is left out."""
    found: dict[str, list[Search]] = {}
    for path in tables.landscapes(gpu, family):
        try:
            search = from_plain(
                Search,
                open_document(KIND, files.read_json(path), path.name),
                path.name,
            )
        except (InputProblem, OSError):
            continue
        if search.gpu == gpu and search.family == family and search.timed:
            found.setdefault(search.rung, []).append(search)
    return {
        rung: sorted(each, key=lambda search: search.ranked()[0].median_us)
        for rung, each in found.items()
    }


def chart_key(family: str, rung: str) -> str:
    """The anchor of a kernel's landscape in the page of its run."""
    return slug(f"{family}-{rung}-landscape")


def charts(gpu: str, family: str) -> tuple[Chart, ...]:
    """A chart for each kernel that was tuned on this GPU: for each size the heat map of the two
    parameters that matter most there."""
    return tuple(_chart(family, rung, searches) for rung, searches in kept(gpu, family).items())


def _chart(family: str, rung: str, searches: Sequence[Search]) -> Chart:
    chosen = [(search, *weightiest(search)) for search in searches]
    data = [heat(search, x, y) for search, x, y in chosen]
    data[-1]["visible"] = True
    buttons = [
        {
            "label": f"{plot_text(search.size)}: {plot_text(y)} by {plot_text(x)}", "method": "update",
            "args": [{"visible": [i == n for i in range(len(data))]}, {"xaxis.title.text": plot_text(x), "yaxis.title.text": plot_text(y)}],
        }
        for n, (search, x, y) in enumerate(chosen)
    ]  # fmt: skip
    _, x, y = chosen[-1]
    layout = {
        "height": 420, "margin": {"t": 56, "b": 56, "l": 8}, "xaxis": {"type": "category", "automargin": True, "title": {"text": plot_text(x)}},
        "yaxis": {"type": "category", "automargin": True, "title": {"text": plot_text(y)}},
        "updatemenus": [{"buttons": buttons, "active": len(data) - 1, "x": 0, "xanchor": "left", "y": 1.16}] if len(chosen) > 1 else [],
    }  # fmt: skip
    summary = (
        f"Each cell is the best of all settings of {visible(rung)} with those two values, relative to the baseline on "
        f"{visible(searches[0].gpu)}. Empty cells could not be timed. The axes are the two parameters that matter most."
    )
    columns = [
        "Size",
        "Best setting",
        "Time",
        "Over the baseline's speed",
        "Over its own parameters'",
        "Settings timed",
        "Search",
    ]
    key = chart_key(family, rung)
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
        {"data": data, "layout": layout},
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
        text(f"{search.size} {search.dtype}"), text(changed or "the header's own", best.label), number(best.median_us, "us"),
        number(1 / best.score() if best.beside_us else None, "ratio", "timed without a baseline"),
        number(own.median_us / best.median_us if own else None, "ratio", "its own parameters could not be timed"),
        number(len(search.timed), "count"), text("finished" if search.finished else "unfinished"),
    ]  # fmt: skip


def weightiest(search: Search) -> tuple[str, str]:
    """The two parameters by whose values the best scores differ most."""

    def weight(name: str) -> float:
        best: dict[int, float] = {}
        for trial in search.timed:
            value = trial.parameters[name]
            best[value] = min(best.get(value, trial.score()), trial.score())
        return max(best.values()) / min(best.values())

    ranked = sorted(
        {name for pair in pairs(search) for name in pair}, key=lambda name: (-weight(name), name)
    ) or sorted(search.default)
    first, second = (*ranked, ranked[0])[:2]
    return first, second


def differs(own: Mapping[str, int], parameters: Mapping[str, int]) -> str:
    """What a setting has otherwise than its header, in words; "" for nothing."""
    return ", ".join(
        f"{name} {value} (header {own[name]})"
        for name, value in parameters.items()
        if name in own and own[name] != value
    )


def page(search: Search) -> str:
    """The landscape as one HTML file that loads nothing."""
    title = html.escape(f"Tuning {search.rung} at {search.size} on {search.gpu}")
    told = "".join(f"<p>{html.escape(line)}</p>" for line in summary(search))
    head = "".join(f"<th scope='col'>{html.escape(column)}</th>" for column in COLUMNS)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(search, 40)
    )
    plotly = (
        content(PLOTLY).decode("utf-8").replace("</script", "<\\/script").replace("<!--", "<\\!--")
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>body{{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}}
table{{border-collapse:collapse;width:100%}}td,th{{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}}
td:first-child,th:first-child{{text-align:left}}</style></head>
<body><h1>{title}</h1>{told}
<p>Each cell is the best of all settings with those two values; empty cells could not be timed.</p>
<div id="map"></div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
<script type="application/json" id="figure">{script_json(figure(search))}</script>
<script>{plotly}</script>
<script>const f=JSON.parse(document.getElementById("figure").textContent);
Plotly.newPlot("map",f.data,f.layout,{{responsive:true,displaylogo:false}});</script>
</body></html>
"""


def write(search: Search, folder: Path) -> Path:
    """Write tune.json and landscape.html into a folder; returns the page. Raises EnvironmentProblem
    where it cannot be written."""
    store.write_json(folder / "tune.json", KIND, search)
    path = folder / "landscape.html"
    store.write_atomic(path, page(search).encode())
    return path
