"""`ncu-toolkit try`: try optimization settings in a program, and time its step."""

import shlex
import shutil
from pathlib import Path

import click

from ncu_toolkit.base.core import patterns
from ncu_toolkit.base.core.errors import UsageProblem, did_you_mean
from ncu_toolkit.base.core.safe import shell_word
from ncu_toolkit.cli._common import RunHistory, console
from ncu_toolkit.cli._options import (
    DEFAULT_REPORTS,
    Output,
    Seconds,
    argument,
    formats,
    option,
    options,
)
from ncu_toolkit.cli._program import ProgramCommand
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.program.explain.trial import list_answer, trial_answer
from ncu_toolkit.program.recording import trying
from ncu_toolkit.program.switches import switches

FORMATS = ("text", "markdown", "json", "html")


class _Try(ProgramCommand):
    def leads(self, word: str) -> bool:
        return word.partition(":")[0] in switches()


@click.command("try", cls=_Try)
@options(
    words=argument(nargs=-1, type=click.UNPROCESSED, metavar="[SETTING…] -- PROGRAM ARGUMENTS…"),
    everything=option("Try each setting that the program's trace suggests, then together all that are worth keeping.", "--all"),
    listed=option("List the settings.", "--list"),
    runs=option("Runs with each setting, and as many without.", type=click.IntRange(min=2, max=100),
        default=trying.DEFAULT_RUNS, show_default=True, metavar="N"),
    kernel=option("For kernel settings: only kernels whose name contains a match of this regular expression.", "--kernel", "-k", default="",
        metavar="REGEX"),
    build=option('The command that builds the program, for compiler settings: --build "nvcc -O2 app.cu -o app".', default="",
        metavar="COMMAND"),
    seconds=option("Stop each run after this long, and use what was timed.", type=Seconds(), default=None, metavar="SECONDS"),
    timeout=option("Kill a run that takes longer, and report it as failed.", default=600.0),
    reports=option("Folder for the trace and the results.", "--reports", default=DEFAULT_REPORTS, show_default=True),
    form=formats(FORMATS, "Format to print."),
    output="File to write instead of printing.",
)  # fmt: skip
def command(
    everything: bool, listed: bool, runs: int, kernel: str, build: str, seconds: float | None, timeout: float,
    reports: Path, out: Output, words: tuple[str, ...],
) -> None:  # fmt: skip
    """Measure what an optimization setting gains: run a program with and without it, in turn.

    `ncu-toolkit try tf32 -- python train.py` runs the program 5 times with TF32 and 5 times without.
    It times the step (one iteration, as `profile` finds it) and compares the output. `--all` traces the program first and tries the
    settings that fit what it finds. The program's files stay as they are: the answer says which line
    of code makes a setting permanent.

    A setting that breaks the program, slows it down, changes results by more than the setting's tolerance, or
    changes nothing is reported as such. Ctrl-C keeps what was measured."""
    if listed:
        out.answer(list_answer())
        return
    names, program = _split(words)
    if bool(names) == everything:
        near = did_you_mean(program[0].partition(":")[0], switches()) if program else ""
        what = "--all takes no names of settings" if names else "no setting is named"
        if not names and program and shutil.which(program[0]) is None:
            what = f"'{program[0]}' is neither a setting nor a program"
        example = (
            "ncu-toolkit try --all -- python train.py; ncu-toolkit try --list shows the settings"
        )
        raise UsageProblem(what, near or example)
    if not program:
        raise UsageProblem(
            "no program to run", "Put it after '--': ncu-toolkit try tf32 -- python train.py"
        )
    patterns.compiled(kernel, "--kernel")
    screen = console(stderr=True)
    job = trying.TryJob(program, tuple(shlex.split(build)), kernel, timeout, seconds or 0.0)
    trial, trace = trying.try_program(job, names, reports, runs=runs, tell=screen.print)
    RunHistory(cuda.gpu_uuid()).keep_trial(trial, trace.parent)
    answer = trial_answer(trial, trace=f"ncu-toolkit analyze {shell_word(str(trace))}")
    if out.form == "json":
        from ncu_toolkit.program.pages import json

        out.text(json.trial_document(trial))
    else:
        out.answer(answer, f"Settings tried in {trial.program}", "ncu-try.html")
    if trying.INTERRUPTED in trial.notes:
        raise KeyboardInterrupt


def _split(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Settings, and the program's words: what comes first that is no setting begins it."""
    at = next(
        (at for at, word in enumerate(words) if word.partition(":")[0] not in switches()),
        len(words),
    )
    return words[:at], words[at:]
