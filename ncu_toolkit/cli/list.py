"""`ncu-toolkit list`: the ladders, their rungs and ideas."""

from __future__ import annotations

import json

import click

from ncu_toolkit.cli._common import console, format_option, grid, split
from ncu_toolkit.ladder.catalogue import Family, find_family, load_families

_MARKS = {
    "step": "",
    "regression": "regression",
    "planted": "planted defect",
    "baseline": "baseline",
    "roof": "roof",
    "probe": "probe",
}


@click.command("list")
@click.option(
    "--family",
    "-f",
    "families",
    multiple=True,
    metavar="NAME",
    help="Only this ladder; repeat it, or separate names by commas.",
)
@click.option("--ideas/--no-ideas", default=False, help="Also the idea of each rung.")
@format_option(["text", "json"])
def command(families: tuple[str, ...], ideas: bool, form: str) -> None:
    """Show the ladders, their rungs and ideas."""
    chosen = (
        [find_family(name) for name in split(families)]
        if families
        else list(load_families().values())
    )
    if form == "json":
        click.echo(json.dumps([_plain(family) for family in chosen], indent=1, ensure_ascii=False))
        return
    screen = console()
    for family in chosen:
        screen.print(_table(family, ideas))
    screen.print("Profile one with `ncu-toolkit profile --kernel NAME --size N`.", markup=False)


def _plain(family: Family) -> dict[str, object]:
    return {
        "family": family.name,
        "rungs": [
            {
                "name": rung.name,
                "order": rung.order,
                "kind": rung.kind,
                "title": rung.title,
                "idea": rung.idea,
                "compared_with": rung.compared_with,
                "removes": rung.removes,
                "minimum_cc": f"{rung.minimum_cc[0]}.{rung.minimum_cc[1]}",
                "parameters": dict(rung.parameters),
                "claim": rung.source.claim,
                "source": rung.source.document,
            }
            for rung in family.rungs
        ],
    }


def _table(family: Family, ideas: bool) -> object:
    from rich.text import Text

    table = grid(Text(family.name, style="bold"))
    for column in ("", "rung", "what it is", "removes", "needs"):
        table.add_column(column, overflow="fold")
    for rung in family.rungs:
        mark = _MARKS[rung.kind]
        told = not mark or mark.split()[0] in rung.title
        what = Text(rung.title + ("" if told else f" [{mark}]"))
        if ideas:
            what.append("\n" + rung.idea, style="dim")
        needs = (
            f"sm_{rung.minimum_cc[0]}{rung.minimum_cc[1]}a"
            if rung.arch_specific
            else f"CC {rung.minimum_cc[0]}.{rung.minimum_cc[1]}"
        )
        table.add_row(
            f"{rung.order:02d}", Text(rung.name, style="bold"), what, Text(rung.removes), needs
        )
    return table
