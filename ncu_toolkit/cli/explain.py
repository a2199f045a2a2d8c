"""`ncu-toolkit explain`: an entry of the glossary in full."""

import click
from rich.text import Text

from ncu_toolkit.cli._common import WIDTH, console, piped_width
from ncu_toolkit.cli._options import argument, options
from ncu_toolkit.kernel.diagnosis import glossary
from ncu_toolkit.kernel.explain import entry
from ncu_toolkit.kernel.runs import store


@click.command("explain")
@options(name=argument(nargs=-1, metavar="[NAME]"))
def command(name: tuple[str, ...]) -> None:
    """Explain a bottleneck, a stall reason, a unit or a figure: what it is, why it costs time, how to
    confirm it, and what to change, with code before and after.

    NAME is an id, or a title as `analyze` shows it; case and punctuation do not matter. Without NAME it
    lists all names. Exits with 2 when there is no such name.

    \b
    Examples:
      ncu-toolkit explain shared-bank-conflict
      ncu-toolkit explain "MIO throttle"
      ncu-toolkit explain Launch-bound"""
    screen = console()
    width = min(screen.width, WIDTH) if screen.is_terminal else piped_width(WIDTH)
    asked, measured = " ".join(name), store.longest(entry.PAIRS)
    found = entry.plain(glossary.lookup(asked), width, measured) if asked else entry.listed(width)
    for line, heading in found:
        screen.print(Text(line, style="bold" if heading else ""), soft_wrap=True)
