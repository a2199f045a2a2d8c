"""`ncu-toolkit doctor`: what works here and what does not."""

import json
from dataclasses import replace

import click

from ncu_toolkit.base.core.errors import EXIT_ENVIRONMENT
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.model.codec import to_plain
from ncu_toolkit.cli._common import emit
from ncu_toolkit.cli._options import formats, options
from ncu_toolkit.program import doctor

_MARKS = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "missing": ("NO", "red")}


@click.command("doctor")
@options(form=formats(["text", "json"]))
def command(form: str) -> int:
    """Show what works on this machine, and how to fix the rest.

    Exits with 3 when profiling a program does not work here. Reading reports can still work.
    """
    checks = doctor.examine()
    if any(check.name == "driver" and check.state == "missing" for check in checks):
        why = "not checked: there is no driver"
        checks = tuple(replace(x, found=why, remedy="") if x.name == "GPU" else x for x in checks)
    works = doctor.works(checks)
    if form == "json":
        about = {"schema": "ncu-toolkit/doctor", "version": 1}
        plain = {**about, "checks": to_plain(checks), "works": works}
        click.echo(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        emit(_table(checks, works), None)
    return 0 if works["profile a program"] else EXIT_ENVIRONMENT


def _table(checks: tuple[doctor.MachineCheck, ...], works: dict[str, bool]) -> object:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for check in checks:
        mark, style = _MARKS[check.state]
        what = Text(visible(check.found))
        if check.remedy:
            what.append(f"\n→ {visible(check.remedy)}", style="dim")
        if check.state != "ok" and check.needed_for:
            what.append(f"\n  needed for {check.needed_for}", style="dim")
        table.add_row(Text(mark, style=style), Text(check.name, style="bold"), what)
    ok = {check.name for check in checks if check.state == "ok"}
    static = ["static"] if ok >= {"compiler", "disassembler"} else []
    always = ["compare"] * works.get("analyze", False) + ["explain", "list", *static]
    here = ", ".join([*(name for name, does in works.items() if does), *always])
    not_here = ", ".join(name for name, does in works.items() if not does)
    lines = [Text(f"Works here: {here}.")] + (
        [Text(f"Does not work: {not_here}.")] if not_here else []
    )
    return Group(table, Text(), *lines)
