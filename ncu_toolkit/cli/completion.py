"""`ncu-toolkit completion`: the script by which a shell completes command lines."""

import click
from click.shell_completion import get_completion_class

from ncu_toolkit.cli._options import argument, options

#: The variable by which the script asks; click derives the same from the program's name.
VARIABLE = "_NCU_TOOLKIT_COMPLETE"


@click.command("completion")
@options(shell=argument(type=click.Choice(["bash", "zsh", "fish"])))
def command(shell: str) -> None:
    """Print a completion script for bash, zsh or fish.

    It completes commands, options, kernels, families and runs.

    In bash or zsh, put `eval "$(ncu-toolkit completion bash)"` (or `zsh`) into ~/.bashrc (~/.zshrc).
    In fish, run `ncu-toolkit completion fish > ~/.config/fish/completions/ncu-toolkit.fish`."""
    from ncu_toolkit.cli import cli

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(cli, {}, "ncu-toolkit", VARIABLE).source())
