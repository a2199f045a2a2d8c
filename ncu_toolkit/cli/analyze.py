"""`ncu-toolkit analyze`: diagnose the kernels in reports."""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ncu_toolkit.analysis.analyze import DEFAULT_TIMEOUT, Analysis, Options, analyze, find_reports
from ncu_toolkit.cli._common import (
    MATCHES,
    WIDTH,
    PathName,
    emit,
    format_option,
    needs_option,
    shown_as,
    timeout_option,
)
from ncu_toolkit.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INPUT,
    EnvironmentProblem,
    UsageProblem,
    partly,
)
from ncu_toolkit.core.safe import visible

if TYPE_CHECKING:
    from ncu_toolkit.diagnosis.needs import Needs

#: Times alone, for services that keep them over commits (pages/exports.py).
EXPORTS = ("asv", "bencher", "github-action-benchmark")
FORMATS = ("text", "markdown", "json", "csv", "html", "brief", "sarif", *EXPORTS)
STANDALONE = "ncu-report.html"


@click.command("analyze")
@click.argument("paths", nargs=-1, required=True, type=PathName(), metavar="REPORT…")
@format_option(
    FORMATS,
    "brief is at most one page; html writes pages; sarif puts findings on source lines; the last three write times for those services.",
)
@click.option(
    "--kernel",
    "-k",
    default="",
    metavar="REGEX",
    help=MATCHES,
)
@needs_option()
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the N kernels that take most time.",
)
@click.option(
    "--output",
    "-o",
    type=PathName(),
    help="File to write. For html: a folder (default reports), or one file where the name ends in .html.",
)
@click.option(
    "--standalone",
    is_flag=True,
    help=f"Write one self-contained HTML file (default {STANDALONE}).",
)
@click.option(
    "--allow-partial",
    is_flag=True,
    help="Read the intact part of damaged and incomplete files, and exit with 0.",
)
@click.option(
    "--redact",
    "redacted",
    is_flag=True,
    help="For html: leave out command lines, embedded source and folders of source files.",
)
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    metavar="N",
    help="Read N files at once.  [default: one for each processor]",
)
@timeout_option("a file", DEFAULT_TIMEOUT)
@click.pass_context
def command(
    ctx: click.Context, paths: tuple[Path, ...], form: str, kernel: str, needs: tuple[Needs, ...], top: int | None, output: Path | None,
    standalone: bool, allow_partial: bool, redacted: bool, jobs: int | None, timeout: float,
) -> int:  # fmt: skip
    """Diagnose the kernels in Nsight Compute reports: files, or folders of them.

    Reads reports of any GPU since Volta and any ncu since 2020; needs no GPU. Launches are ranked
    by time, and repeats are grouped. Exits with 4 when a file is unreadable, a file or launch is
    incomplete, or no launch matches --kernel; the rest is still shown. With --allow-partial it
    names what is missing and exits with 0, as long as one launch is left. If figures of a launch
    contradict each other, a line names them and the verdict is less certain.

    \b
    Examples:
      ncu-toolkit analyze my.ncu-rep
      ncu-toolkit analyze reports/RUN --format sarif --output findings.sarif
      ncu-toolkit analyze reports/RUN --format bencher"""
    if standalone:
        if (
            form != "html"
            and ctx.get_parameter_source("form") is click.core.ParameterSource.COMMANDLINE
        ):
            raise UsageProblem(
                f"--standalone writes HTML and cannot be combined with --format {form}",
                "Leave one of them out",
            )
        form = "html"
    elif form == "html" and output is not None and output.suffix.lower() in (".html", ".htm"):
        standalone = not output.is_dir()
    if redacted and form != "html":
        raise UsageProblem(
            "--redact needs --format html",
            "`ncu-toolkit redact IN OUT` redacts a report for every other use",
        )
    options = Options(
        kernel=kernel,
        allow_partial=allow_partial,
        figures=form == "csv",
        profiles=form == "html",
        needs=needs,
    )
    with _progress(len(find_reports(paths)[0])) as tell:
        analysis = analyze(
            paths,
            options,
            jobs=jobs,
            timeout=timeout,
            progress=tell,
            meanwhile=lambda: _load_views(form),
        )
    if form == "html":
        page = write_pages(analysis, top, output, standalone=standalone, redacted=redacted)
        if page is not None:
            click.echo(f"Open {page}")
    elif form in EXPORTS:
        emit(_export(analysis, form, top, paths), output)
    else:
        emit(render(analysis, form, top), output, WIDTH)
    if (
        form != "text" or output is not None or not sys.stdout.isatty()
    ):  # on a terminal the text itself has said it
        for line in lacking(analysis):
            click.echo(f"error: {line}", err=True)
    return exit_code(analysis)


def exit_code(analysis: Analysis) -> int:
    """4 where something of the input is missing: a file, launches, a launch's data, or any launch
    that --kernel names; 3 where this machine lacked what reading takes (space, memory, a module).

    --allow-partial accepts that where any launch is left.
    """
    if any(isinstance(file.error, EnvironmentProblem) for file in analysis.unreadable):
        return EXIT_ENVIRONMENT
    if not analysis.launches:
        return EXIT_INPUT
    if not (analysis.unreadable or analysis.partial or analysis.incomplete):
        return 0
    return (
        0
        if analysis.options.allow_partial and any(launch.complete for launch in analysis.launches)
        else EXIT_INPUT
    )


def lacking(analysis: Analysis) -> list[str]:
    """What of the input is missing, a line each, safe to show; what --allow-partial accepts is in the
    output alone."""
    return [visible(" ".join(line.split())) for line in _lacking(analysis)]


def _lacking(analysis: Analysis) -> list[str]:
    lines = [f"unreadable: {file.error}" for file in analysis.unreadable]
    if not analysis.launches and not lines:
        from ncu_toolkit.analysis.answers import unmatched

        kernel = analysis.options.kernel
        other = f"no launch matches --kernel '{kernel}'" if kernel else "no launch could be read"
        lines.append(unmatched(analysis) or other)
    if analysis.options.allow_partial:
        return lines
    whole = {launch.file for launch in analysis.launches if launch.complete}
    lines += [
        f"incomplete: '{file.path}': {file.missing}. Copy or record it again{_rest_of(file.path, whole)}"
        for file in analysis.partial
    ]
    lost = analysis.incomplete
    if lost:
        first, more = lost[0], f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        lines.append(
            f"launch {first.key} of '{first.file}' ({first.function}) is {first.status}{more}. Record it again{_rest_of(first.file, whole)}"
        )
    return lines


def _rest_of(path: str, whole: set[str]) -> str:
    """How to be shown what is left of a file; empty where it holds no whole launch."""
    return f"; {partly(path)}" if path in whole else ""


def _load_views(form: str) -> None:
    """What shows the result, loaded while others read."""
    import_module("ncu_toolkit.pages.html" if form == "html" else "ncu_toolkit.render.text")


def render(analysis: Analysis, form: str, top: int | None) -> Any:
    """The analysis in a format: a string, or for text a rich renderable."""
    from ncu_toolkit.analysis import answers

    if form in ("json", "csv", "sarif"):
        from ncu_toolkit.pages import json, sarif

        chosen, left_out = limited(analysis, top)
        if form == "sarif":
            return sarif.analysis_document(chosen)
        return json.csv(chosen) if form == "csv" else json.analysis_document(chosen, left_out)
    found = answers.digest if form == "brief" else answers.of_analysis
    return shown_as(found(analysis, top), form)


def _export(analysis: Analysis, form: str, top: int | None, paths: tuple[Path, ...]) -> str:
    """Times as a service takes them: unprofiled ones where a run has them and nothing was chosen by
    --kernel or --top, else those of the profiled launches."""
    from ncu_toolkit.analysis import gate
    from ncu_toolkit.pages import exports
    from ncu_toolkit.runs import baselines

    timed: gate.Sides = {}
    if not analysis.options.kernel and top is None:
        for path in paths:
            timed |= baselines.timings_of(path)
    chosen, _ = limited(analysis, top)
    return exports.FORMATS[form](exports.named(timed or gate.sides_of(chosen)))


def limited(analysis: Analysis, top: int | None) -> tuple[Analysis, int]:
    """The analysis with the launches of its `top` kinds only, and how many launches that leaves
    out."""
    from dataclasses import replace

    if top is None:
        return analysis, 0
    kept = {
        (launch.file, launch.key) for group in analysis.groups[:top] for launch in group.launches
    }
    files = tuple(
        replace(
            file,
            launches=tuple(launch for launch in file.launches if (launch.file, launch.key) in kept),
        )
        for file in analysis.files
    )
    return replace(analysis, files=files), len(analysis.launches) - len(kept)


def write_pages(
    analysis: Analysis,
    top: int | None,
    output: Path | None,
    *,
    standalone: bool,
    redacted: bool = False,
) -> Path | None:
    """Write the analysis as pages; None where there is nothing to show."""
    from ncu_toolkit.pages.analysis_run import write_folder, write_standalone

    if not analysis.launches:
        return None
    chosen, _ = limited(analysis, top)
    if standalone:
        return write_standalone(chosen, output or Path(STANDALONE), redacted=redacted)
    return write_folder(chosen, output or Path("reports"), redacted=redacted)


@contextlib.contextmanager
def _progress(count: int) -> Any:
    """Tells what is read, on a terminal only: an analysis of a few files is done before a line
    could be read."""
    if not sys.stderr.isatty():
        yield None
        return
    from ncu_toolkit.cli._common import Progress

    with Progress() as bars:
        bars.stage("Reading", count)
        yield bars.step
