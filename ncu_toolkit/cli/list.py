"""`ncu-toolkit list`: the ladders, their rungs and ideas."""

import json
from collections.abc import Container

import click

from ncu_toolkit.cli._common import console, grid
from ncu_toolkit.cli._options import formats, options, split, switch
from ncu_toolkit.kernel.ladder.catalogue import Family, find_family, load_families
from ncu_toolkit.kernel.ladder.rung import Rung
from ncu_toolkit.kernel.runs.store import pending_rungs

#: What JSON has of a rung as it is.
_SHOWN = ("name", "order", "kind", "title", "idea", "compared_with", "removes")
_MARKS = {
    "step": "", "regression": "regression", "planted": "planted defect", "baseline": "baseline", "roof": "roof", "probe": "demonstration",
}  # fmt: skip
_LEGEND = "[baseline]: library. [regression]: slower. [planted defect]: slow on purpose. [roof]: at a hardware limit. [demonstration]: not for speed."


@click.command("list")
@options(
    families="Only this ladder; can be repeated, or separate names by commas.",
    ideas=switch(
        "Also show the idea of each kernel: what it changes.  [default: no]",
        "--ideas/--no-ideas",
        default=False,
    ),
    form=formats(["text", "json"]),
)
def command(families: tuple[str, ...], ideas: bool, form: str) -> None:
    """Show the kernels that come with the tool: ladders (series for one problem) and their rungs."""
    chosen = [*map(find_family, split(families))] or [*load_families().values()]
    pending = pending_rungs()
    if form == "json":
        shown = [_plain(family, pending) for family in chosen]
        click.echo(json.dumps(shown, indent=1, ensure_ascii=False))
        return
    screen = console()
    for family in chosen:
        screen.print(_table(family, ideas, pending))
    screen.print(_LEGEND, markup=False)
    screen.print("Profile one with `ncu-toolkit profile --kernel NAME --size N`.")


def _plain(family: Family, pending: Container[tuple[str, str]]) -> dict[str, object]:
    def of(rung: Rung) -> dict[str, object]:
        major, minor = rung.minimum_cc
        return {name: getattr(rung, name) for name in _SHOWN} | {
            "minimum_cc": f"{major}.{minor}",
            "parameters": dict(rung.parameters),
            "claim": rung.source.claim,
            "source": rung.source.document,
            "pending": (family.name, rung.name) in pending,
        }

    return {"family": family.name, "rungs": [*map(of, family.rungs)]}


def _table(family: Family, ideas: bool, pending: Container[tuple[str, str]]) -> object:
    from rich.text import Text

    rows = []
    for rung in family.rungs:
        mark = _MARKS[rung.kind]
        text = not mark or mark.split()[0] in rung.title
        what = Text(rung.title + ("" if text else f" [{mark}]"))
        if (family.name, rung.name) in pending:
            what.append(" [not recorded yet]")
        if ideas:
            what.append(f"\n{rung.idea}", style="dim")
        major, minor = rung.minimum_cc
        needs = f"sm_{major}{minor}{'a only' if rung.arch_specific else ' or later'}"
        rows.append((f"{rung.order:02d}", Text(rung.name, style="bold"), what, rung.removes, needs))
    columns = ("", "rung", "what it is", "removes or reduces", "needs")
    return grid(columns, rows, Text(family.name, style="bold"), overflow="fold")
