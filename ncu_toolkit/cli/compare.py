"""`ncu-toolkit compare`: old against new, as a gate for CI."""

from __future__ import annotations

from pathlib import Path

import click

from ncu_toolkit.analysis import gate
from ncu_toolkit.analysis.analyze import DEFAULT_TIMEOUT, Options
from ncu_toolkit.cli._common import PathName, Seconds, emit
from ncu_toolkit.core.errors import GateFailed, InputProblem
from ncu_toolkit.render.words import counted
from ncu_toolkit.runs import baselines, store

FORMATS = ("text", "markdown", "json")


@click.command("compare")
@click.argument("old")
@click.argument("new")
@click.option(
    "--kernel",
    "-k",
    default="",
    metavar="REGEX",
    help="Only launches whose demangled name matches REGEX.",
)
@click.option(
    "--fail-on",
    "gates",
    multiple=True,
    metavar="GATE",
    help="Exit with 1 if this holds for a kernel: 'time>5%', 'registers_per_thread>128'; repeat it.",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--output", "-o", type=PathName(), help="File to write to.")
@click.option(
    "--timeout",
    type=Seconds(),
    default=DEFAULT_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Give up on a file after this long.",
)
def command(
    old: str,
    new: str,
    kernel: str,
    gates: tuple[str, ...],
    form: str,
    output: Path | None,
    timeout: float,
) -> None:
    """Compare two reports: files, folders of them, folders of runs, or names of baselines.

    Launches are paired by kernel, grid and block. Repeated launches are compared by their medians,
    with allowance for their spread. Exits with 1 when a --fail-on holds, and with 4 when the two
    cannot be compared: different GPUs, incomplete files or launches, no kernel in common, a missing
    figure. Launches whose figures contradict each other are compared, and a line names them."""
    from ncu_toolkit.render import comparison as views

    parsed = [gate.parse_gate(text) for text in gates]
    (old_sides, old_timings), (new_sides, new_timings) = (
        _read(text, kernel, timeout) for text in (old, new)
    )
    found = gate.compare(old_sides, new_sides, (old_timings, new_timings), parsed)
    shown = {"markdown": views.markdown_text, "json": views.document, "text": views.text}[form](
        found
    )
    emit(shown, output)
    if found.failures:
        names = ", ".join(dict.fromkeys(failure.pair.name for failure in found.failures))
        raise GateFailed(
            f"{counted(len(found.failures), 'regression')}: {names}", "The table shows old and new"
        )
    if not found.pairs:
        raise InputProblem(
            f"'{old}' and '{new}' have no kernel in common",
            "Kernels are paired by name; --kernel may leave none",
        )
    if not found.comparable:
        reason = (
            next((pair.problem for pair in found.pairs if pair.problem), None) or found.undecided[0]
        )
        what = (
            f"{found.compared} of {counted(len(found.pairs), 'kernel')} could be compared"
            if found.compared < len(found.pairs)
            else "not every gate could be decided"
        )
        raise InputProblem(
            f"{what}: {reason}",
            "Compare reports of the same GPU and sections; --kernel leaves launches out",
        )


_Sides = dict[tuple[object, ...], gate.Side]


def _read(text: str, kernel: str, timeout: float) -> tuple[_Sides, _Sides]:
    """Launches and unprofiled timings of one side; raises InputProblem where a file of it cannot be
    read."""
    path = baselines.resolve(text)
    timings: _Sides = {}
    if (path / store.MANIFEST).is_file() and not kernel:
        device = store.load_manifest(path).device.name
        timings = gate.sides_of_timings(store.load_timings(path), device)
    analysis = baselines.read([path], Options(kernel=kernel, profiles=True), timeout=timeout)
    return gate.sides_of(analysis), timings
