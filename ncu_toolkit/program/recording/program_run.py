"""A program under ncu: which launches, for how long, and how it is ended so that finished launches
are kept."""

import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from ncu_toolkit import __version__
from ncu_toolkit.base.core import patterns, units
from ncu_toolkit.base.core.errors import InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.base.model.run import Run, Skipped
from ncu_toolkit.kernel.diagnosis.needs import Needs
from ncu_toolkit.kernel.gpu import collect, cuda, failures
from ncu_toolkit.kernel.gpu.runner import DEFAULT_TIMEOUT, Session
from ncu_toolkit.kernel.report import framing, reader
from ncu_toolkit.kernel.report.redact import (
    redact_command,
    redact_folder,
    redact_in_place,
    redact_text,
)
from ncu_toolkit.kernel.report.slim import slim
from ncu_toolkit.kernel.runs import store

#: Launches profiled by default: each is replayed a dozen times or more, and a training step has
#: thousands.
DEFAULT_LAUNCHES: Final = 20
#: Launches of a step that are profiled at most: those of a small GPT hold 80 % of its kernels' time.
DEFAULT_KERNELS: Final = 24
STEM: Final = "profile"
#: Remedy of a time-out; the option is that of a program's launches, or of its step's.
_FEWER: Final = "allow more time with --timeout, or profile fewer launches ({})"
#: ncu saves what kernels write between passes, and JAX takes three quarters of the memory at its start unless this is "false".
_PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"
#: Calls in a script that mark what is to be profiled.
_MARKS: Final = re.compile(
    r"\bncu_toolkit\b[^\n]*\bprofile\b|cudaProfilerStart|profilerStart|profiler\.start\(|profile_start\("
)
_LONGEST_SCRIPT: Final = 4 << 20
#: Shortest argument of the program that is removed from a redacted log: shorter ones are switches
#: and numbers.
_SHORTEST_ARGUMENT: Final = 4
#: Options of Python that are followed by a value.
_PYTHON_OPTIONS: Final = ("-W", "-X", "--check-hash-based-pycs")
#: What starts the ranks of a job.
_LAUNCHERS: Final = frozenset((
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "mpirun", "mpiexec", "srun", "accelerate",
    "deepspeed",
))  # fmt: skip


def marks_ranges(command: Sequence[str]) -> bool:
    """Whether a Python script on the command line marks the ranges it wants profiled
    (`ncu_toolkit.profile`, cudaProfilerStart)."""
    for word in command:
        path = Path(word)
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= _LONGEST_SCRIPT:
            return bool(_MARKS.search(path.read_text(encoding="utf-8", errors="replace")))
    return False


def check(command: Sequence[str], kernel_filter: str) -> None:
    """Raise UsageProblem where the program does not exist, or the kernel filter is no regular
    expression."""
    if not command:
        example = "Put it after '--': ncu-toolkit profile -- ./app arguments"
        raise UsageProblem("no program to profile", example)
    if shutil.which(command[0]) is None:
        hint = "Write ./name for a program in this folder, `python name.py` for a script, --kernel for a kernel of a ladder"
        raise UsageProblem(f"there is no program '{command[0]}'", hint)
    patterns.compiled(kernel_filter, "--kernel")


@dataclass(frozen=True)
class ProgramJob:
    """A program under ncu, and what is kept of it."""

    request: collect.Request
    """The program and its launches; output and section folders are set by `profile`."""
    reports: Path
    timeout: float = DEFAULT_TIMEOUT
    """Seconds that ncu has."""
    redact: bool = False
    redact_source: bool = False
    needs: tuple[Needs, ...] = ()
    """What its launches must move and compute, for their verdicts."""


def profile(
    job: ProgramJob, folder: Path | None = None, enough: collect.Enough = lambda *_: False
) -> Session:
    """Run a program under ncu into a new run folder. Launches that were finished before a failure,
    time-out or Ctrl-C are kept.

    Args:
        folder: the run folder of a program's step, which stays where nothing is profiled.
            The report keeps no code of kernels that were not launched.
        enough: as in `collect.run`.

    Raises:
        ToolkitError: nothing could be profiled; the cause and its remedy.
        KeyboardInterrupt: it came before any launch was profiled.
    """
    request, command = job.request, job.request.command
    check(command, request.kernel_filter)
    ncu = collect.find_ncu()
    name, own = name_of(command), folder is None
    folders = collect.section_folders(ncu, request.set_name)
    folder = folder or store.new_run_folder(job.reports, name)
    detected = request.ranges_only is None
    request = replace(request, output=folder / STEM, section_folders=folders)
    if detected:
        request = replace(request, ranges_only=marks_ranges(command))
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    less = _FEWER.format("--launch-count" if own else "--launches")
    environment = {_PREALLOCATE: os.environ.get(_PREALLOCATE, "false")}
    of_ncu = collect.NcuJob(ncu, request, job.timeout, environment, less=less)
    outcome, report = _report_of(of_ncu, enough, own)
    notes = _notes(request, outcome, detected)
    failure = outcome.problem.message if outcome.problem else ""
    words = outcome.command
    shown = " ".join(words)
    if not own:
        notes.extend(_slim(report))
    if job.redact:
        _redact(report, job.redact_source, command)
        shown = f"{redact_command(words[: len(words) - len(command)])} {redact_text(name)}"
        failure, notes = redact_text(failure), list(map(redact_text, notes))
    run = Run(
        id=folder.name, title=name, created=created, tool_version=__version__,
        environment={"ncu": ncu.version, "Driver": cuda.driver_version()}, commands=(shown,),
        skipped=tuple(Skipped(name, text) for text in (failure, *notes) if text),
        report_files=(report.name,), costs={"profiling": outcome.seconds}, needs=tuple(map(str, job.needs)),
        step=not own,
    )  # fmt: skip
    session = Session(run, folder, notes=notes, interrupted=outcome.interrupted)
    if outcome.problem is not None:
        outcome.problem.log = outcome.log
        session.failures.append(outcome.problem)
    session.save()
    return session


def _report_of(
    job: collect.NcuJob, enough: collect.Enough, own: bool
) -> tuple[collect.NcuOutcome, Path]:
    """How ncu ended, and its report. Raises as `profile` where there is none; the folder is then
    discarded if it was made for it (`own`) and the message does not point there."""
    outcome = collect.run(job, enough=enough)
    if outcome.cause == "crashed" and outcome.report is None and not outcome.interrupted:
        # ncu 2025.3 crashed in 4 of 10 starts of JAX programs, and not in the next
        outcome = collect.run(job, enough=enough)
    if outcome.report is not None:
        return outcome, outcome.report
    if outcome.interrupted:
        where = f"the program's output is in {outcome.log}"
        raise KeyboardInterrupt(f"no launch was profiled, and {where}")
    folder = job.log.parent
    refused = _without_report(outcome, job.request)
    if str(folder) in str(refused):  # The message points to the log there.
        refused.log = outcome.log
    elif own:
        store.discard(folder)
    raise refused


def _slim(report: Path) -> tuple[str, ...]:
    """Take the machine code of kernels that were not launched out of a report: of one of PyTorch's
    with 23 launches it is 48 of 77 MB. A note about it; none where the report stays as it is, also
    where another launch would be read of the shorter one."""
    data = report.read_bytes()
    made = slim(data)
    if len(made) >= len(data):
        return ()
    before, after = map(framing.parse, (data, made))
    results = zip_longest(before.results(), after.results())
    if after.problem or any(one is None or two is None or one[2] != two[2] for one, two in results):
        return ()
    write_atomic(report, made)
    size = units.si(len(data) - len(made), "B")
    return (f"the report is kept without the code of kernels that did not run ({size})",)


def _redact(report: Path, remove_source: bool, command: Sequence[str]) -> None:
    """Redact a report and the files next to it, including the program's arguments. Raises
    InputProblem where the report would not stay whole."""
    try:
        redact_in_place(report, remove_source=remove_source)
    except InputProblem as error:
        remedy = f"The report lies unredacted in {report.parent}; delete it, or redact it with `ncu-toolkit redact`"
        raise InputProblem(error.message, remedy) from None
    arguments = {part for word in command[1:] for part in (word, word.partition("=")[2])}
    words = [word for word in arguments if len(word) >= _SHORTEST_ARGUMENT]
    redact_folder(report.parent, words=words)


def _without_report(outcome: collect.NcuOutcome, request: collect.Request) -> ToolkitError:
    where = f"the program's output is in {outcome.log}"
    if outcome.problem is not None and outcome.cause != "no-kernels":
        return outcome.problem
    ranges = ", ".join(request.nvtx_include)
    known = failures.table()["no-kernels"]
    what, of_ncu = known.what, ""
    if outcome.problem is not None and outcome.problem.remedy != known.remedy:
        what, of_ncu = outcome.problem.message, outcome.problem.remedy
    hints = {
        of_ncu: of_ncu,
        "only marked ranges were profiled. --no-ranges profiles everything": request.ranges_only,
        f"--kernel is '{request.kernel_filter}', which is searched in demangled names": request.kernel_filter,
        f"the first {request.launch_skip} launches were skipped": request.launch_skip,
        f"only NVTX ranges {ranges} were profiled": ranges,
    }
    remedy = "; ".join([*(hint for hint, holds in hints.items() if holds), where])
    return UsageProblem(what, remedy[0].upper() + remedy[1:])


def _notes(request: collect.Request, outcome: collect.NcuOutcome, detected: bool) -> list[str]:
    notes, profiled = [], len(outcome.passes)
    if request.ranges_only and detected:
        marked = "only the ranges that the script marks were profiled"
        notes.append(f"{marked}. --no-ranges profiles everything")
    text = outcome.log.read_text(encoding="utf-8", errors="replace")
    one_process = text.count("==PROF== Connected to process") <= 1
    notes.append(reader.by_command(outcome.command, profiled, one_process))
    begun = collect.BEGUN.findall(text)
    if len(begun) > profiled and (outcome.problem or outcome.interrupted):
        why = f": {reader.COLLECTIVE}" if reader.is_collective(begun[-1]) else ""
        notes.append(f"'{begun[-1]}' was not finished when profiling ended{why}")
    return [note for note in notes if note]


def name_of(command: Sequence[str]) -> str:
    """Name of a run: the script's or the module's name, else the program's; never another
    argument. What starts the ranks of a job is none."""
    name = Path(command[0]).name
    if name in _LAUNCHERS or any(word in _LAUNCHERS for word in command[1:3]):
        for at, word in enumerate(command[1:], 1):
            if word.endswith(".py"):
                return Path(word).name
            if not word.startswith("-") and not word.isdigit() and shutil.which(word):
                return name_of(command[at:])
    if not name.startswith("python") and name not in ("bash", "sh"):
        return name
    words = iter(command[1:])
    for word in words:
        if word == "-m":
            return next(words, name)
        if word.startswith("-c") or word == "-":
            return name
        if word in _PYTHON_OPTIONS:
            next(words, None)
        elif not word.startswith("-"):
            return Path(word).name
    return name
