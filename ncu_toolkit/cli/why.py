"""`ncu-toolkit why`: what a log of ncu says of its failure."""

import json
import sys
from pathlib import Path

import click

from ncu_toolkit.base.core.errors import EXIT_INPUT, EXIT_OK, InputProblem, refused
from ncu_toolkit.base.core.files import read_bytes
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.cli._common import emit
from ncu_toolkit.cli._options import argument, formats, options
from ncu_toolkit.kernel.gpu import failures


@click.command("why")
@options(
    log=argument(metavar="LOG", type=click.Path(path_type=Path, allow_dash=True)),
    form=formats(["text", "json"], "Format to print."),
)
def command(log: Path, form: str) -> int:
    """Explain why ncu failed, from its output: what happened, to which kernel, and what to do.

    LOG is a file, or - for standard input: what ncu and the program printed, such as profile.log in a
    run's folder, or a job's output. Nothing is run.

    Exits with 0 when the log has no error of ncu, or a known one, and with 4 when it cannot be read
    or none of its errors is known.

    \b
    Examples:
      ncu-toolkit why reports/RUN/profile.log
      ncu ./app 2>&1 | ncu-toolkit why -"""
    with refused(f"'{log}' cannot be read", "Name a file, or - for standard input", InputProblem):
        raw = sys.stdin.buffer.read() if str(log) == "-" else read_bytes(log)
    if raw.startswith((b"NVR\0", b"SQLite")):
        raise InputProblem(f"'{log}' is not ncu's log", f"Read it with `ncu-toolkit analyze {log}`")
    reading = failures.read(raw.decode("utf-8", "replace"))
    if form == "json":
        about = {"schema": "ncu-toolkit/why", "version": 1}
        found = [vars(each) for each in reading.found]
        plain = {**about, "failures": found, "unknown": reading.unknown}
        click.echo(json.dumps(plain, indent=1, ensure_ascii=False))
    else:
        emit("\n".join(map(visible, _lines(reading))) + "\n", None)
    return EXIT_INPUT if reading.unknown and not reading.explained else EXIT_OK


def _lines(reading: failures.LogReading) -> list[str]:
    unknown = [f"not known: {line}" for line in reading.unknown]
    if unknown:
        unknown.append("  do    Search for it with the versions of ncu and the driver")
    found: list[str] = []
    for each in reading.found:
        mark = "warning: " if each.rank == "warning" else ""
        at = f", in '{each.kernel}'" if each.kernel else ""
        found += [f"{mark}{each.what}{at}", f"  do    {each.remedy}"]
        found += [f"  from  {each.line}", f"  see   {each.source}"]
    lines = [*found, *unknown] if reading.explained else [*unknown, *found]
    return lines or [
        "no known error of ncu is in it. Pass what ncu printed: ncu ... 2>&1 | tee LOG"
    ]
