"""Anybody's program under ncu: which launches, for how long, and how it is brought to an end so
that what was finished is kept."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ncu_toolkit import __version__
from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.diagnosis.needs import Needs
from ncu_toolkit.gpu import collect
from ncu_toolkit.gpu.session import section_folder
from ncu_toolkit.metrics.sections import SET_NAME
from ncu_toolkit.model.run import Skipped
from ncu_toolkit.report import missed
from ncu_toolkit.report.redact import (
    redact_command,
    redact_folder,
    redact_in_place,
    redact_text,
)
from ncu_toolkit.runs import store
from ncu_toolkit.runs.store import Manifest

#: Launches profiled where nothing else is said: each is replayed a dozen times or more, and a
#: training step has thousands.
DEFAULT_LAUNCHES: Final = 20
STEM: Final = "profile"
#: What to do about a time-out.
FEWER: Final = "give more with --timeout, or profile fewer launches (--launch-count)"
#: Marks the processes of one run, so that they can be found and ended.
TOKEN: Final = "NCU_TOOLKIT_RUN"
#: Calls in a script that mark what is to be profiled.
_MARKS: Final = re.compile(
    r"\bncu_toolkit\b[^\n]*\bprofile\b|cudaProfilerStart|profilerStart|profiler\.start\(|profile_start\("
)
_LONGEST_SCRIPT: Final = 4 << 20
#: Arguments of the program that go from a redacted log: shorter ones are switches and numbers.
_SHORTEST_ARGUMENT: Final = 4
#: Options of Python that take a word of their own.
_PYTHON_OPTIONS: Final = ("-W", "-X", "--check-hash-based-pycs")


@dataclass(frozen=True)
class Selection:
    """Which launches of a program to profile. `ranges_only` restricts them to those between
    profiler start and stop; None finds out."""

    kernel: str = ""
    skip: int = 0
    count: int = DEFAULT_LAUNCHES
    nvtx: tuple[str, ...] = ()
    ranges_only: bool | None = None
    cache_control: str = "all"
    set_name: str = SET_NAME
    redact: bool = False
    redact_source: bool = False
    needs: tuple[Needs, ...] = ()
    """What its launches must move and compute, for their verdicts."""


@dataclass(frozen=True)
class Collected:
    """How a program's profiling ended. `notes` say what a user should know; `problem` what went
    wrong although a report is there."""

    folder: Path
    notes: tuple[str, ...]
    problem: ToolkitError | None
    interrupted: bool


def marks_ranges(command: Sequence[str]) -> bool:
    """Whether a Python script on the command line marks the ranges it wants profiled
    (`ncu_toolkit.profile`, cudaProfilerStart)."""
    for word in command:
        path = Path(word)
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= _LONGEST_SCRIPT:
            return bool(_MARKS.search(path.read_text(encoding="utf-8", errors="replace")))
    return False


def check(command: Sequence[str], selection: Selection) -> None:
    """Raise UsageProblem where the program does not exist, or the kernel filter is no regular
    expression."""
    if not command:
        raise UsageProblem(
            "no program to profile", "Put it after '--': ncu-toolkit profile -- ./app arguments"
        )
    if shutil.which(command[0]) is None:
        hint = "A program in this folder is ./name, a script `python name.py`; a kernel of a ladder goes after --kernel"
        raise UsageProblem(f"there is no program '{command[0]}'", hint)
    if selection.kernel:
        try:
            re.compile(selection.kernel)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageProblem(
                f"--kernel-filter '{selection.kernel}' is not a regular expression: {error}"
            ) from None


def request_for(
    command: Sequence[str], selection: Selection, folder: Path, ncu: collect.Ncu
) -> collect.Request:
    """What to ask of ncu for a program. Raises EnvironmentProblem where the sections of the chosen
    set are missing."""
    sections = [section_folder()]
    if ncu.stock_sections is not None:
        sections.append(ncu.stock_sections)
    elif selection.set_name != SET_NAME:
        raise EnvironmentProblem(
            f"ncu's own sections are not found beside '{ncu.path}'",
            "Set NCU to the ncu of an installation that has them",
        )
    ranges = selection.ranges_only if selection.ranges_only is not None else marks_ranges(command)
    return collect.Request(
        output=folder / STEM, command=tuple(command), section_folders=tuple(sections), set_name=selection.set_name, ranges_only=ranges,
        kernel_filter=selection.kernel, launch_skip=selection.skip, launch_count=selection.count, nvtx_include=selection.nvtx,
        cache_control=selection.cache_control,
    )  # fmt: skip


def profile(
    command: Sequence[str], selection: Selection, reports: Path, *, timeout: float
) -> Collected:
    """Run a program under ncu into a new run folder, with its manifest. What was finished before a
    failure, time-out or Ctrl-C is kept.

    Raises:
        ToolkitError: nothing could be profiled; the cause and its remedy.
    """
    check(command, selection)
    ncu = collect.find_ncu()
    name = _name(command)
    request_for(command, selection, reports, ncu)  # complains before a folder is made
    folder = store.new_run_folder(reports, name)
    request = request_for(command, selection, folder, ncu)
    words = collect.argv(ncu, request)
    token = secrets.token_hex(16)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def stop() -> None:
        end_programs(token)

    log = folder / f"{STEM}.log"
    try:
        outcome = collect.run(
            words,
            folder / STEM,
            log,
            timeout=timeout,
            request_stop=stop,
            environment={TOKEN: token},
            less=FEWER,
        )
    finally:
        end_programs(token, signal.SIGKILL)
    if outcome.report is None:
        refused = _without_report(outcome, folder, request)
        if str(folder) not in str(refused):  # it points to the log there
            store.discard(folder)
        raise refused
    notes = list(_notes(request, outcome, selection))
    told = outcome.problem.message if outcome.problem else ""
    shown = " ".join(words)
    if selection.redact:
        _redact(outcome.report, selection.redact_source, command)
        shown = f"{redact_command(words[: len(words) - len(command)])} {redact_text(name)}"
        told, notes = redact_text(told), list(map(redact_text, notes))
    lost = (Skipped(name, told),) if told else ()
    skipped = (*lost, *(Skipped(name, note) for note in notes))
    environment = {"ncu": ncu.version, "Driver": driver_version()}
    manifest = Manifest(
        id=folder.name, title=name, created=created, tool_version=__version__, device=None, environment=environment,
        commands=(shown,), skipped=skipped, report_files=(outcome.report.name,), costs={"profiling": outcome.seconds},
        needs=tuple(map(str, selection.needs)),
    )  # fmt: skip
    store.save(folder, manifest, ())
    return Collected(folder, tuple(notes), outcome.problem, outcome.interrupted)


def _redact(report: Path, remove_source: bool, command: Sequence[str]) -> None:
    """Redact a report and what lies beside it, of which the program's arguments go too. Raises
    InputProblem where the report would not stay whole, and says that it lies there as it was."""
    try:
        redact_in_place(report, remove_source=remove_source)
    except InputProblem as error:
        raise InputProblem(
            error.message,
            f"The report lies unredacted in {report.parent}; delete it, or redact it with `ncu-toolkit redact`",
        ) from None
    arguments = {part for word in command[1:] for part in (word, word.partition("=")[2])}
    redact_folder(
        report.parent, words=[word for word in arguments if len(word) >= _SHORTEST_ARGUMENT]
    )


def _without_report(
    outcome: collect.Outcome, folder: Path, request: collect.Request
) -> ToolkitError:
    if (
        outcome.problem is not None
        and "no kernel was profiled" not in outcome.problem.message
        and not outcome.interrupted
    ):
        return outcome.problem
    if outcome.interrupted:
        return EnvironmentProblem(
            "interrupted before any launch was profiled",
            f"What the program said is in {folder / f'{STEM}.log'}",
        )
    hints = []
    if request.ranges_only:
        hints.append("only marked ranges were profiled: --no-ranges profiles everything")
    if request.kernel_filter:
        hints.append(f"the kernel filter is '{request.kernel_filter}'")
    if request.launch_skip:
        hints.append(f"the first {request.launch_skip} launches were skipped")
    if request.nvtx_include:
        hints.append(f"only NVTX ranges {', '.join(request.nvtx_include)} were profiled")
    where = f"what the program said is in {folder / f'{STEM}.log'}"
    remedy = "; ".join([*hints, where])
    return UsageProblem("no kernel was profiled", remedy[:1].upper() + remedy[1:])


def _notes(request: collect.Request, outcome: collect.Outcome, selection: Selection) -> list[str]:
    notes = []
    profiled = len(outcome.passes)
    if request.ranges_only and selection.ranges_only is None:
        notes.append(
            "only the ranges that the script marks were profiled; --no-ranges profiles everything"
        )
    text = outcome.log.read_text(encoding="utf-8", errors="replace")
    one_process = text.count("==PROF== Connected to process") <= 1
    notes.append(missed.by_command(outcome.command, profiled, one_process))
    unfinished = _unfinished(text, profiled) if outcome.problem or outcome.interrupted else ""
    if unfinished:
        why = f": {missed.COLLECTIVE}" if missed.is_collective(unfinished) else ""
        notes.append(f"'{unfinished}' was not finished when profiling ended{why}")
    return [note for note in notes if note]


def _unfinished(log: str, finished: int) -> str:
    """The kernel that ncu was at when it ended; empty where it had finished all that it began."""
    begun = re.findall(r'==PROF== Profiling "([^"\n]+)"', log)
    return begun[-1] if len(begun) > finished else ""


def end_programs(token: str, how: signal.Signals = signal.SIGTERM) -> int:
    """Signal every process of a run but ncu itself, which then writes its report; returns how many
    there were."""
    mark = f"{TOKEN}={token}".encode()
    ended = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            if how != signal.SIGKILL and (entry / "comm").read_text().strip().startswith(
                ("ncu", "TreeLauncher")
            ):
                continue
            os.kill(int(entry.name), how)
            ended += 1
        except (OSError, ValueError):
            continue  # it ended meanwhile, or is another user's
    return ended


def driver_version() -> str:
    """Version of the kernel driver; empty where there is none."""
    try:
        found = re.search(
            r"Module.*?(\d+\.\d+(?:\.\d+)?)",
            Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"),
        )
    except OSError:
        return ""
    return found.group(1) if found else ""


def _name(command: Sequence[str]) -> str:
    """What a run is called: the script's or the module's name, else the program's; never another
    argument."""
    if not command:
        return "program"
    name = Path(command[0]).name
    if not name.startswith("python"):
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
