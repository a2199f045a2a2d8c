"""`ncu-toolkit redact`: a copy of a report that can be sent to others."""

from pathlib import Path

import click

from ncu_toolkit.base.core.units import counted
from ncu_toolkit.cli._options import PathName, argument, option, options
from ncu_toolkit.kernel.report.redact import redact


@click.command("redact")
@options(
    source=argument(metavar="IN", type=PathName()),
    target=argument(metavar="OUT", type=PathName()),
    remove_source=option("Also remove embedded source code and names of source files.", "--source"),
    names=option("Also replace this text (for example a project's name), in kernel names too. Can be repeated.", "--name",
        metavar="TEXT"),
)  # fmt: skip
def command(source: Path, target: Path, remove_source: bool, names: tuple[str, ...]) -> None:
    """Write a copy of a report without host names, users, addresses, command lines and absolute
    paths.

    The copy is checked before it is written: it must have the same figures, and none of the
    report's host names, users and folders. Kernel names and machine code stay as they are,
    except for what --name gives. Paths, addresses and names are removed from NVTX ranges, rule
    messages and source code.

    It can miss relative paths; single words that name a host, pod, user, project or customer, where
    the report does not mark them as such; passwords that look like ordinary words; and text inside
    kernel names. Give such words with --name. docs/integrity.md, Redaction, has the whole list."""
    done = redact(source, target, remove_source=remove_source, names=names)
    removed = f", {done.blanked_bytes} bytes of source removed" if remove_source else ""
    lacking = f"; {done.incomplete} of them incomplete, as before" if done.incomplete else ""
    click.echo(
        f"Wrote {done.path}: {done.replaced} texts replaced{removed}, {counted(done.launches, 'launch')} read the same{lacking}"
    )
