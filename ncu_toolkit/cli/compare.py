"""`ncu-toolkit compare`: old against new, as a gate for CI."""

from __future__ import annotations

from pathlib import Path

import click

from ncu_toolkit.analysis import answers, gate
from ncu_toolkit.analysis.analyze import DEFAULT_TIMEOUT, Options
from ncu_toolkit.cli._common import WIDTH, PathName, Seconds, emit, shown_as
from ncu_toolkit.core.errors import GateFailed, InputProblem, UsageProblem
from ncu_toolkit.core.units import counted
from ncu_toolkit.runs import baselines

FORMATS = ("text", "markdown", "comment", "json", "sarif", "html")
PAGE = "ncu-comparison.html"
#: First line of a comment, by which the next run finds it and replaces it.
COMMENT = "<!-- ncu-toolkit compare -->\n"


@click.command("compare")
@click.argument("old")
@click.argument("new", required=False)
@click.option(
    "--baseline",
    metavar="NAME",
    help="Compare with this baseline, whatever files have its name; then the only argument is NEW.",
)
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
    help="Exit with 1 if this is true for a kernel: 'time>5%', 'registers_per_thread>128'. Repeat it.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="html writes a page with both cards side by side; comment is what a pull request shows; sarif puts regressions on source lines.",
)
@click.option("--comment", is_flag=True, help="The same as --format comment.")
@click.option(
    "--output", "-o", type=PathName(), help=f"File to write; for html the page (default {PAGE})."
)
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
    new: str | None,
    baseline: str | None,
    kernel: str,
    gates: tuple[str, ...],
    form: str,
    comment: bool,
    output: Path | None,
    timeout: float,
) -> None:
    """Compare two reports: files, folders of them, folders of runs, or names of baselines.

    Shows the cards of the kernel whose time moved most, and what changed: time by cause, stalls,
    bytes, instructions, source. Launches are paired by kernel, grid and block. Repeated launches
    are compared by their medians, and their spread is taken into account. Exits with 1 when a
    --fail-on is true, and with 4 when the two cannot be compared: incomplete files or launches, no
    kernel in common, a missing figure. Reports of different GPUs are compared in shares and ratios
    only, without --fail-on. Launches whose figures contradict each other are compared, and a line
    names them.

    \b
    Examples:
      ncu-toolkit compare old.ncu-rep new.ncu-rep
      ncu-toolkit compare --baseline main reports/NEW --fail-on 'time>2%'
      ncu-toolkit compare --baseline main reports/NEW --comment -o comment.md"""
    parsed = [gate.parse_gate(text) for text in gates]
    if comment and form not in ("text", "comment"):
        raise UsageProblem(
            f"--comment and --format {form} exclude each other", "Leave one of them out"
        )
    if (new is None) == (baseline is None):
        raise UsageProblem(
            "there is nothing to compare it with" if new is None else "there are three sides",
            "Write `ncu-toolkit compare OLD NEW` or `ncu-toolkit compare --baseline NAME NEW`",
        )
    if baseline is not None:
        old, new = str(baselines.find(baseline)), old
    assert new is not None
    (old_sides, old_timings), (new_sides, new_timings) = (
        _read(text, kernel, timeout) for text in (old, new)
    )
    found = gate.compare(old_sides, new_sides, (old_timings, new_timings), parsed)
    write(found, "comment" if comment else form, output)
    if found.failures:
        names = ", ".join(dict.fromkeys(failure.pair.name for failure in found.failures))
        raise GateFailed(
            f"{counted(len(found.failures), 'regression')}: {names}", "The table shows old and new"
        )
    if not found.pairs:
        raise InputProblem(
            f"'{old}' and '{new}' have no kernel in common",
            "Kernels are paired by name. Check --kernel",
        )
    if not found.comparable:
        reason = (
            next((pair.problem for pair in found.pairs if pair.problem), None) or found.undecided[0]
        )
        what = (
            f"{found.compared} of {counted(len(found.pairs), 'kernel')} could be compared"
            if found.compared < len(found.pairs)
            else "not every --fail-on could be decided"
        )
        raise InputProblem(
            f"{what}: {reason}",
            "Compare reports of the same GPU and sections; --kernel leaves launches out",
        )


def write(found: gate.Comparison, form: str, output: Path | None) -> None:
    """Print a comparison in a format, or write it to a file."""
    if form == "json":
        from ncu_toolkit.render import json

        emit(json.comparison_document(found), output)
        return
    if form == "sarif":
        from ncu_toolkit.render import sarif

        emit(sarif.comparison_document(found), output)
        return
    if form == "comment":
        emit(COMMENT + shown_as(answers.comment(found), "markdown"), output)
        return
    shown = answers.of_comparison(found)
    if form == "html":
        from ncu_toolkit.render.card_html import write_page

        click.echo(f"Open {write_page(shown, 'Comparison', output or Path(PAGE))}")
        return
    emit(shown_as(shown, form), output, WIDTH)


def _read(text: str, kernel: str, timeout: float) -> tuple[gate.Sides, gate.Sides]:
    """Launches and unprofiled timings of one side; raises InputProblem where a file of it cannot be
    read."""
    path = baselines.resolve(text)
    timings = {} if kernel else baselines.timings_of(path)
    analysis = baselines.read([path], Options(kernel=kernel, profiles=True), timeout=timeout)
    return gate.sides_of(analysis), timings
