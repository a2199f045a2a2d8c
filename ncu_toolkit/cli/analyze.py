"""`ncu-toolkit analyze`: diagnose the kernels in reports."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ncu_toolkit.base.core.errors import UsageProblem
from ncu_toolkit.base.core.files import make_folder, may_be_trace, named_like_traces
from ncu_toolkit.base.core.guests import guest, known
from ncu_toolkit.base.core.safe import slug
from ncu_toolkit.cli._common import WIDTH, Progress, complain, emit, shown_as
from ncu_toolkit.cli._options import formats, given, option, options
from ncu_toolkit.kernel.analysis.analyze import (
    DEFAULT_TIMEOUT,
    Analysis,
    Options,
    analyze,
    find_reports,
)
from ncu_toolkit.kernel.analysis.analyze import Progress as Reading

if TYPE_CHECKING:
    from ncu_toolkit.base.document.card import Card
    from ncu_toolkit.base.document.views import Answer
    from ncu_toolkit.kernel.diagnosis.needs import Needs
    from ncu_toolkit.program.analysis.program import Programs

FORMATS: Final = ("text", "markdown", "json", "csv", "html", "brief", *known("sarif"))
STANDALONE: Final = "ncu-report.html"


@click.command("analyze")
@options(
    form=formats(FORMATS, "brief is at most one page; html writes pages; sarif puts findings on source lines."),
    top="Only the N kernels that take the most time.",
    output="File to write. For html: a folder (default reports), or one file where the name ends in .html.",
    standalone=f"Write one self-contained HTML file (default {STANDALONE}).",
    allow_partial="Read the intact part of damaged and incomplete files, and exit with 0.",
    redacted=option("For html: leave out command lines, embedded source and folders of source files.", "--redact"),
    jobs="Read N files at once.  [default: one for each processor]",
    cluster="Read the traces of ranks on the workers of a Dask cluster: its address, such as tcp://host:8786, or a YAML file (docs/cluster.md).",
    timeout=option(default=DEFAULT_TIMEOUT),
)  # fmt: skip
def command(
    paths: tuple[Path, ...], form: str, kernel: str, needs: tuple[Needs, ...], top: int | None, output: Path | None,
    standalone: bool, allow_partial: bool, redacted: bool, jobs: int | None, cluster: str | None, timeout: float,
) -> int:  # fmt: skip
    """Diagnose the kernels in Nsight Compute reports, or a program's step from its trace. Each REPORT is
    a file or a folder of files.

    A trace is an export of Nsight Systems (.sqlite) or of PyTorch's profiler (.json), or our own
    .ncu-trace. Add a report of the same program to see what its counters show. A folder with one trace
    per rank of a job gets one answer.

    Reads reports of any GPU since Volta and any ncu since 2020; needs no GPU. Launches are ranked
    by time, and repeats are grouped. Exits with 4 when a file is unreadable, a file or launch is
    incomplete, or no launch matches --kernel; the rest is still shown. With --allow-partial it
    names what is missing and exits with 0, if at least one launch is left. If figures of a launch
    contradict each other, a line names them and the verdict is less certain.

    \b
    Examples:
      ncu-toolkit analyze my.ncu-rep
      ncu-toolkit analyze reports/RUN --format sarif --output findings.sarif
      ncu-toolkit analyze train.sqlite train.ncu-rep"""
    if standalone:
        if form != "html" and given("form"):
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
    traces: Sequence[Path] = ()
    if any(map(may_be_trace, paths)):
        from ncu_toolkit.program.analysis.program import traces_among

        if traces := traces_among(paths):
            refuse_for_traces(form, kernel, needs, redacted, alone=len(traces) == len(paths))
    if traces or (_for_programs(paths, form, kernel, redacted) and _traces_inside(paths)):
        asked = Options(allow_partial=allow_partial, packed=form != "html", needs=needs)
        return _programs(_read(paths, asked, jobs, timeout, cluster), form, top, output)
    if cluster:
        raise UsageProblem(
            "--cluster reads the traces of a job's ranks, and no folder of them is named",
            "Leave it out",
        )
    asked = Options(kernel, allow_partial, form == "csv", form == "html", needs=needs)
    with _reading() as tell:
        views = (
            "ncu_toolkit.kernel.pages.html" if form == "html" else "ncu_toolkit.base.render.text"
        )
        analysis = analyze(
            paths,
            asked,
            jobs=jobs,
            timeout=timeout,
            progress=tell,
            meanwhile=lambda: import_module(views),
        )
    shown = form != "text" or output or len(analysis.unreadable) < len(analysis.files)
    if shown:  # else there is nothing but the faults
        _show(analysis, form, top, output, standalone=bool(standalone), redacted=redacted)
    if not shown or form != "text" or output or not sys.stdout.isatty():
        complain(analysis.faults)  # on a terminal the text itself contains it
    return analysis.exit_code


def _traces_inside(paths: tuple[Path, ...]) -> list[Path]:
    """Traces in the folders among `paths`."""
    folders = [path for path in paths if os.path.isdir(path)]
    if not any(map(named_like_traces, folders)):
        return []
    from ncu_toolkit.program.analysis.program import traces_inside

    return traces_inside(folders)


def _for_programs(paths: tuple[Path, ...], form: str, kernel: str, redacted: bool) -> bool:
    """Whether traces that only lie in folders are answered. What is for reports alone, and what
    machines read where there are reports, is of those."""
    if kernel or redacted or form == "sarif":
        return False
    return form not in ("json", "csv") or not find_reports(paths)[0]


@contextlib.contextmanager
def _reading() -> Iterator[Reading | None]:
    """What to call with how far each file is, on a terminal. Elsewhere None: an analysis of a few
    files is done before a line could be read.

    The bar is made with the first call, since a process with threads cannot be forked."""
    if not sys.stderr.isatty():
        yield None
        return
    bars: list[Progress] = []
    files: dict[str, tuple[int, int]] = {}
    with contextlib.ExitStack() as stack:

        def tell(path: str, judged: int, launches: int, card: Card | None) -> None:
            if not bars:
                bars.append(stack.enter_context(Progress(gone=True)))
                bars[0].stage("Reading", launches)
            files[path] = judged, launches
            done, total = map(sum, zip(*files.values(), strict=True))
            bars[0].reached(done, total, path)
            if card is not None and len(files) == 1:
                from ncu_toolkit.base.document.views import Answer
                from ncu_toolkit.base.render.text import AnswerText

                bars[0].show(AnswerText(Answer("", cards=(card,))))

        yield tell


def refuse_for_traces(
    form: str, kernel: str, needs: tuple[Needs, ...], redacted: bool, *, alone: bool
) -> None:
    """Raise UsageProblem for options that no trace has, or none without a report next to it."""
    named, whole = "and a trace is named", "a trace is analyzed as a whole"
    for asked, what, remedy in (
        (form == "sarif", f"--format {form} applies to reports, {named}", "Use json, or leave the trace out"),
        (kernel, f"--kernel selects launches of reports, and {whole}", "Leave --kernel out; --top N shows more kernels"),
        (needs and alone, "--needs applies to launches of a report", "Name a report next to the trace"),
        (redacted, f"--redact applies to reports, {named}", "Leave out --redact, or the trace"),
    ):  # fmt: skip
        if asked:
            raise UsageProblem(what, remedy)


def _read(
    paths: tuple[Path, ...], asked: Options, jobs: int | None, timeout: float, cluster: str | None
) -> Programs:
    from ncu_toolkit.program.analysis.program import analyze_programs

    elsewhere = partial(guest("cluster.schedulers").on_workers, cluster) if cluster else None
    with _reading() as tell:
        return analyze_programs(
            paths, asked, jobs=jobs, timeout=timeout, progress=tell, elsewhere=elsewhere
        )


def _programs(programs: Programs, form: str, top: int | None, output: Path | None) -> int:
    """Answer for traces, and the reports next to them."""
    from ncu_toolkit.program.analysis.program import answers_of

    if form in ("json", "csv"):
        from ncu_toolkit.program.pages import json

        write = json.program_csv if form == "csv" else json.program_document
        emit(write(programs, top), output)
    elif not programs.found:
        if programs.reports.launches:
            _show(programs.reports, form, top, output)
    elif form == "html":
        for page in _program_pages(programs, output):
            click.echo(f"Open {page}")
        if programs.alone and (output is None or not output.suffix):
            _show(programs.alone, form, top, output)
    else:
        answers = answers_of(programs, top, page=output is None and sys.stdout.isatty())
        if programs.alone:
            answers.append(answer_to(programs.alone, form, top))
        if form == "text":
            from ncu_toolkit.base.render.text import AnswersText

            emit(AnswersText(answers), output, WIDTH)
        else:
            emit("\n".join(shown_as(each, form) for each in answers), output)
    complain(programs.faults)
    return programs.exit_code


def _show(
    analysis: Analysis, form: str, top: int | None, output: Path | None, *, standalone: bool = False,
    redacted: bool = False,
) -> None:  # fmt: skip
    """Print or write the analysis of reports in a format, or as pages."""
    if form != "html":
        emit(render(analysis, form, top), output, WIDTH)
    elif page := write_pages(analysis, top, output, standalone=standalone, redacted=redacted):
        click.echo(f"Open {page}")


def _program_pages(programs: Programs, output: Path | None) -> list[Path]:
    """Write a page for each trace: the file `output`, or one in that folder."""
    from ncu_toolkit.base.document.views import distinct_names
    from ncu_toolkit.program.pages.program_view import write_program_page

    if len(programs.found) == 1 and (output is None or output.suffix.lower() in (".html", ".htm")):
        ((each, found),) = programs.found
        name = Path(each.path).name
        page = output or Path(f"{slug(name.partition('.')[0])}.html")
        return [write_program_page(found, page, each.known, name, each.job)]
    folder = output or Path("reports")
    make_folder(folder)
    names = distinct_names([each.path for each, _ in programs.found])
    return [
        write_program_page(
            found,
            folder / f"{slug(names[each.path] or each.path)}.html",
            each.known,
            Path(each.path).name,
            each.job,
        )
        for each, found in programs.found
    ]


def render(analysis: Analysis, form: str, top: int | None) -> Any:
    """The analysis in a format: a string, or for text a rich renderable."""
    if form in ("json", "csv", "sarif"):
        chosen, left_out = limited(analysis, top)
        if form == "sarif":
            return str(guest("sarif.sarif").analysis_document(chosen))
        if form == "csv":
            from ncu_toolkit.kernel.pages import json

            return json.csv(chosen)
        from ncu_toolkit.program.pages.json import report_document

        return report_document(chosen, left_out)
    return shown_as(answer_to(analysis, form, top), form)


def answer_to(analysis: Analysis, form: str, top: int | None) -> Answer:
    """The answer to the launches, as many as a form shows."""
    from ncu_toolkit.kernel.analysis import answers
    from ncu_toolkit.program.analysis import reported

    found = answers.digest if form == "brief" else answers.of_analysis
    return found(analysis, top, across=partial(reported.across, top=top))


def limited(analysis: Analysis, top: int | None) -> tuple[Analysis, int]:
    """The analysis with its `top` kinds only, and how many launches that leaves out."""
    if top is None:
        return analysis, 0
    kept = {(each.file, each.key) for group in analysis.groups[:top] for each in group.launches}
    files = tuple(
        replace(file, launches=tuple(x for x in file.launches if (x.file, x.key) in kept))
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
    from ncu_toolkit.kernel.pages.html import write_analysis, write_analysis_folder
    from ncu_toolkit.program.analysis.reported import card_of

    if not analysis.launches:
        return None
    chosen, _ = limited(analysis, top)
    if standalone:
        target = output or Path(STANDALONE)
        return write_analysis(chosen, target, redacted=redacted, across=card_of)
    folder = output or Path("reports")
    return write_analysis_folder(chosen, folder, redacted=redacted, across=card_of)
