"""`ncu-toolkit compare`: old against new, as a gate for CI."""

from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from ncu_toolkit.base.core.errors import GateFailed, InputProblem, UsageProblem
from ncu_toolkit.base.core.files import may_be_trace, named_like_traces
from ncu_toolkit.base.core.guests import guest, known
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.cli._common import shown_as
from ncu_toolkit.cli._options import Output, argument, formats, option, options
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import DEFAULT_TIMEOUT, Analysis, Options, find_reports
from ncu_toolkit.kernel.runs import baselines
from ncu_toolkit.program.analysis import trial

FORMATS: Final = ("text", "markdown", "comment", "json", *known("sarif"), "html")
PAGE: Final = "ncu-comparison.html"
#: First line of a comment, by which the next run finds it and replaces it.
COMMENT: Final = "<!-- ncu-toolkit compare -->\n"


@click.command("compare")
@options(
    old=argument(), new=argument(required=False),
    baseline=option("Compare NEW with the baseline NAME, and leave out OLD. A file called NAME is ignored.", metavar="NAME"),
    named=option(
        "Compare the kernel OLD of the old report with the kernel NEW of the new one, for example after a rename. Can be repeated.",
        "--pair", metavar="OLD=NEW"),
    gates=option("Exit with 1 if this is true of any kernel or step: 'time>5%', 'step>5%', 'registers_per_thread>128'. Can be repeated.",
        "--fail-on", metavar="GATE"),
    form=formats(FORMATS, "html writes a page with both diagnoses side by side; comment is Markdown for a pull request; sarif puts regressions "
        "on source lines."),
    comment="The same as --format comment.",
    output=f"File to write; for html the page (default {PAGE}).",
    timeout=option(default=DEFAULT_TIMEOUT),
)  # fmt: skip
def command(
    old: str, new: str | None, baseline: str | None, kernel: str, named: tuple[str, ...], gates: tuple[str, ...], form: str, comment: bool,
    output: Path | None, timeout: float,
) -> None:  # fmt: skip
    """Compare two reports. Each is a file, a folder of reports or runs, or the name of a baseline. Or
    compare a program before and after a change, by two traces or two runs of `profile`; or two results
    of `try` (the step without and with each setting).

    Shows the time of every kernel, then the diagnoses of the kernel whose time changed most, and what
    changed in it: time by cause, stalls, bytes, instructions, source. Launches are paired by full name,
    grid and block, then by short name. If each report has only one kernel, these two are compared.
    --pair pairs by hand. Repeated launches are compared by their medians, and a change within their
    noise does not count. If unmatched kernels take 10 % or more of a report's time, the first line compares the totals of both reports.

    For a program, shows how its step changed: where its time goes, old and new, causes that are gone
    or new, and the achieved saving next to the predicted one. The noise of a step is the spread of
    its repetitions. With --kernel, --pair, or a --fail-on about a metric of kernels, the .ncu-rep files of the two
    runs are compared instead of their traces.

    Exits with 1 if a --fail-on is true, and with 4 if something cannot be compared: an incomplete
    file or launch, no kernel in common, a missing figure. For reports of different GPUs the
    change of time is not given, and --fail-on exits with 4. A launch with inconsistent
    counters is compared too, with a warning.

    \b
    Examples:
      ncu-toolkit compare old.ncu-rep new.ncu-rep
      ncu-toolkit compare old.ncu-rep new.ncu-rep --pair matmul=matmul_v2
      ncu-toolkit compare before.sqlite after.sqlite --fail-on 'step>5%'
      ncu-toolkit compare --baseline main reports/NEW --fail-on 'time>2%'
      ncu-toolkit compare --baseline main reports/NEW --comment -o comment.md"""
    parsed = [gate.parse_gate(text) for text in gates]
    chosen = [_names(text) for text in named]
    if comment and form not in ("text", "comment"):
        raise UsageProblem(
            f"--comment and --format {form} cannot be combined", "Leave one of them out"
        )
    if (new is None) == (baseline is None):
        raise UsageProblem(
            "there is nothing to compare it with" if new is None else "there are three reports",
            "Write `ncu-toolkit compare OLD NEW` or `ncu-toolkit compare --baseline NAME NEW`",
        )
    if baseline is not None:
        old, new = str(baselines.find(baseline)), old
    assert new is not None
    of_kernels = any((kernel, chosen, *(each.names - {gate.TIME, gate.STEP} for each in parsed)))
    title = f"{Path(old).name} → {Path(new).name}"
    out = Output("comment" if comment else form, output)
    if traces := _traces((old, new), of_kernels):
        found = _programs(traces, parsed, timeout, out, title)
    else:
        sides, timings, unmatched = _read((old, new), kernel, timeout)
        compared = gate.compare(*sides, timings, parsed, chosen)
        found = replace(compared, unmatched=unmatched, filtered=bool(kernel))
        write(found, out, title)
    if found.failures:
        names = ", ".join(dict.fromkeys(map(answers.pair_name, (f.pair for f in found.failures))))
        raise GateFailed(
            f"{answers.failed_gates(found.failures)}: {names}", "The table shows old and new"
        )
    if not found.pairs and found.unmatched:
        raise InputProblem(found.unmatched, "The pattern is matched against demangled names")
    if not found.pairs:
        what = f"'{old}' and '{new}' have no {found.what} in common"
        raise InputProblem(what, "Kernels are paired by name: pair others with --pair OLD=NEW")
    if not found.comparable:
        problem = next((pair.problem for pair in found.pairs if pair.problem), "")
        what = "not every --fail-on could be decided"
        remedy = "Compare reports of the same GPU and sections"
        if found.compared < len(found.pairs):
            what = f"{found.compared} of {counted(len(found.pairs), 'kernel')} could be compared"
        if problem:
            remedy = f"Profile it again{'' if kernel else ', or leave it out with --kernel'}"
        raise InputProblem(f"{what}: {problem or found.undecided[0]}", remedy)


def _names(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise UsageProblem(
            f"--pair '{text}' is not OLD=NEW", "Write it like --pair matmul=matmul_v2"
        )
    return old, new


def write(found: gate.Comparison, out: Output, title: str) -> None:
    """Print a comparison in a format, or write it to a file."""
    if out.form in ("json", "sarif"):
        from ncu_toolkit.kernel.pages import json

        out.text((json if out.form == "json" else guest("sarif.sarif")).comparison_document(found))
    elif out.form == "comment":
        out.text(COMMENT + shown_as(answers.comment(found), "markdown"))
    else:
        out.answer(answers.of_comparison(found), visible(title), PAGE)


def _traces(texts: tuple[str, str], of_kernels: bool) -> list[Path]:
    """Both paths, where they are traces or folders with traces and their steps are compared; else
    none: of two folders that hold reports too, the kernels may be meant. Raises InputProblem where
    one side alone is of a program."""
    paths = [baselines.resolve(text) for text in texts]
    if not any(may_be_trace(path) or named_like_traces(path) for path in paths):
        return []
    from ncu_toolkit.program.analysis.program import traces_among, traces_inside

    traced = [bool(traces_among([path]) or traces_inside([path])) for path in paths]
    if not any(traced):
        return []
    tried = [bool(trial.find_trials(path)) for path in paths]
    if all(x and not _reports(y) for x, y in zip(tried, paths, strict=True)):
        return []
    of_reports = [
        path.is_file() if not is_traced else bool(_reports(path))
        for path, is_traced in zip(paths, traced, strict=True)
    ]
    if all(traced) and not (of_kernels and all(of_reports)):
        if of_kernels:
            raise UsageProblem(
                "a trace has steps, not kernels",
                "Leave out --kernel and --pair, and write gates as 'step>5%'",
            )
        return paths
    if all(of_reports) or any(tried):
        return []
    one, other = texts if traced[0] else texts[::-1]
    raise InputProblem(
        f"'{one}' is a trace of a program, and '{other}' is not",
        "Compare two traces, or two reports",
    )


def _programs(
    paths: list[Path], gates: list[gate.Gate], timeout: float, out: Output, title: str
) -> gate.Comparison:
    """Compare traces, and write what came of it."""
    from ncu_toolkit.program.analysis import changes, program

    if out.form == "sarif":
        raise UsageProblem("--format sarif applies to reports", "Use json")
    old, new = (program.analyze_programs([path], timeout=timeout) for path in paths)
    found, steps = changes.compare_programs(old, new, gates)
    if out.form == "json":
        from ncu_toolkit.program.pages import json

        out.text(json.comparison_document(found, steps))
    elif out.form == "comment":
        out.text(COMMENT + shown_as(changes.answer_of(found, steps), "markdown"))
    else:
        out.answer(changes.answer_of(found, steps), visible(title), PAGE)
    return found


def _read(
    texts: tuple[str, str], kernel: str, timeout: float
) -> tuple[tuple[gate.Sides, gate.Sides], tuple[gate.Sides, gate.Sides], str]:
    """Launches of both sides, their unprofiled timings, and what --kernel did not find; raises
    InputProblem where a file cannot be read, or one side alone is a trial. Both are read at once, and
    a file of both sides once."""
    paths = [baselines.resolve(text) for text in texts]
    tried = [[] if _reports(path) else trial.find_trials(path) for path in paths]
    if all(tried):
        if kernel:
            raise UsageProblem("a trial has steps, not kernels", "Leave --kernel out")
        return (trial.steps_of(tried[0]), trial.steps_of(tried[1])), ({}, {}), ""
    if any(tried):
        one, other = texts if tried[0] else texts[::-1]
        raise InputProblem(
            f"'{one}' holds steps that `try` timed, and '{other}' holds none",
            "Compare two trials, or two reports",
        )
    old, new = ({} if kernel else baselines.timings_of(path) for path in paths)
    options = Options(kernel=kernel, profiles=True, packed=True)
    every = baselines.read(paths, options, timeout=timeout)
    mine, theirs = ({file.absolute() for file in find_reports([path])[0]} for path in paths)
    sides = (_side_in(every, mine), _side_in(every, theirs))
    if not every.launches:
        unmatched = every.unmatched("there is")
    else:
        labels = ("the old report has", "the new report has")
        parts = (side.unmatched(label) for side, label in zip(sides, labels, strict=True))
        unmatched = "; ".join(filter(None, parts))
    return (gate.sides_of(sides[0]), gate.sides_of(sides[1])), (old, new), unmatched


def _reports(path: Path) -> list[Path]:
    return find_reports([path])[0] if path.is_dir() else []


def _side_in(every: Analysis, wanted: set[Path]) -> Analysis:
    files = tuple(file for file in every.files if Path(file.path).absolute() in wanted)
    return replace(every, files=files)
