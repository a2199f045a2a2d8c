"""Help of every command is there, and its summary short."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from ncu_toolkit.cli import cli, commands

MOST_WORDS = 25


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Every command by the words that call it."""
    top = click.Context(cli, info_name="ncu-toolkit")
    for name in commands():
        command = cli.get_command(top, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {part}", inner) for part, inner in command.commands.items())


def test_summaries_of_help_are_short() -> None:
    """The line in the list of commands, and the first sentence of each command's own help."""
    summaries = [*commands().values()]
    summaries += [(command.help or "").partition("\n\n")[0] for _, command in every_command()]
    sentences = [s for text in summaries for s in re.split(r"(?<=[.:;])\s+", text) if s]
    assert [s for s in sentences if len(s.split()) > MOST_WORDS] == []
    assert [s for s in summaries if not s] == []
