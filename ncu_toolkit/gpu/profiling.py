"""A ladder under ncu, a part at a time: each part is a run of ncu with a report of its own, so that
what is finished lies on the disk.

ncu writes its report when it ends. Were the whole ladder one run, a `kill -9` would take everything
with it; so the program under ncu ends after PART_SECONDS and the next run of ncu goes on with the
rest (docs/decisions/06-parts-and-resume.md)."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, KernelProblem, ToolkitError
from ncu_toolkit.gpu import collect, cuda
from ncu_toolkit.gpu.selection import Selection
from ncu_toolkit.gpu.session import (
    DEFAULT_TIMEOUT,
    FINAL,
    Collected,
    Reporter,
    by_options,
    record_of,
    section_folder,
)
from ncu_toolkit.gpu.target import Plan, PlannedCase, Step, read_plan, read_progress, write_plan
from ncu_toolkit.metrics.sections import SET_NAME
from ncu_toolkit.report import framing
from ncu_toolkit.report.redact import redact_command, redact_in_place
from ncu_toolkit.runs import store
from ncu_toolkit.runs.store import Asked

#: A part of a ladder begins no further case after this many seconds: what a kill can cost. Starting
#: a part costs a few.
PART_SECONDS: Final = 15.0
#: Signals by which somebody ends a program; ncu or the program ending by another one is a crash.
_ENDED_BY: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
CUT: Final = ".damaged"
#: What Python is given to run a plan. -P keeps the current folder off its path: a json.py that lies
#: there is none of ours.
TARGET: Final = ("-P", "-m", "ncu_toolkit.gpu.target")


@dataclass(frozen=True)
class Adopted:
    """A report that is part of the run, with the cases it holds whole."""

    name: str
    markers: tuple[str, ...]


def plan_all(
    selections: Sequence[Selection], overrides: Mapping[str, int], collected: Collected
) -> list[PlannedCase]:
    """Every case that has no launches yet and may have some, in order; each has a record
    afterwards."""
    planned = []
    for selection in selections:
        for size in selection.sizes:
            for rungs in by_options(selection.rungs).values():
                for rung in rungs:
                    applied = selection.parameters(
                        rung, selection.problem.parse_size(size).label, overrides
                    )
                    record = record_of(rung, selection.problem, size, selection.dtype, applied)
                    known = collected.cases.setdefault(record.marker, record)
                    if known.state not in (*FINAL, "profiled"):
                        planned.append(
                            PlannedCase(
                                rung.family, rung.name, record.size, selection.dtype, applied
                            )
                        )
    return planned


def profile_all(
    selections: Sequence[Selection], overrides: Mapping[str, int], folder: Path, reporter: Reporter, collected: Collected,
    *, timeout: float = DEFAULT_TIMEOUT, set_name: str = SET_NAME, cache_control: str = "all", stem: str = "profile",
    part_seconds: float | None = PART_SECONDS, saved: Callable[[], object] | None = None, keep_open: Sequence[int] = (),
) -> None:  # fmt: skip
    """Profile every case that is not profiled yet, restricted to the launches under study; wrong
    rungs are left out.

    A case that crashes costs itself: the next part goes on after it. On Ctrl-C the current case is
    finished, its report written and kept.

    Args:
        timeout: seconds for all parts together.
        part_seconds: how long a run of ncu begins new cases; None for all in one run.
        saved: called after each part, to keep what is there so far.
        keep_open: file descriptors that ncu inherits: a lock that holds as long as any process of
            the run lives.

    Raises:
        ToolkitError: nothing could be profiled; the cause and its remedy.
    """
    ncu = collect.find_ncu()
    planned = plan_all(selections, overrides, collected)
    if not planned:
        return
    sections = [section_folder()]
    if ncu.stock_sections is not None:
        sections.append(ncu.stock_sections)
    elif set_name != SET_NAME:
        raise EnvironmentProblem(
            f"ncu's own section files are not found beside '{ncu.path}', and the set '{set_name}' is in them",
            "Set NCU to the ncu of an installation that has them",
        )
    request = collect.Request(
        output=folder / stem,
        command=(),
        section_folders=tuple(sections),
        set_name=set_name,
        cache_control=cache_control,
    )
    reporter.stage("Profile", len(planned))
    try:
        cuda.cupy().get_default_memory_pool().free_all_blocks()
    except Exception:
        if not collected.context_lost:
            raise
    deadline = time.monotonic() + timeout
    while planned:
        problem = _part(
            planned,
            request,
            ncu,
            folder,
            _free_stem(folder, stem),
            reporter,
            collected,
            deadline,
            timeout,
            part_seconds,
            keep_open,
        )
        left = [
            case
            for case in planned
            if collected.cases[case.marker].state not in (*FINAL, "profiled")
        ]
        if saved is not None:
            saved()
        if problem is not None:
            collected.failures.append(problem)
            if not collected.reports:
                raise problem
            reporter.note(f"{problem.message}; what was profiled before is kept")
            return
        if collected.interrupted or (len(left) == len(planned)):
            return
        planned = left


def _free_stem(folder: Path, stem: str) -> str:
    """`profile`, `profile-2`, …: the first of which no file is there, so that no part ever writes
    over another."""
    names = [path.name for path in folder.iterdir()]
    number = 1
    while any(
        re.match(
            re.escape(_numbered(stem, number)) + r"(\.|-plan\.json$|-progress\.jsonl$|-stop$)", name
        )
        for name in names
    ):
        number += 1
    return _numbered(stem, number)


def _numbered(stem: str, number: int) -> str:
    return stem if number == 1 else f"{stem}-{number}"


def _part(
    planned: Sequence[PlannedCase], request: collect.Request, ncu: collect.Ncu, folder: Path, stem: str, reporter: Reporter, collected: Collected,
    deadline: float, timeout: float, part_seconds: float | None, keep_open: Sequence[int],
) -> ToolkitError | None:  # fmt: skip
    """One run of ncu; returns what ends the ladder, None where it may go on. A case that failed by
    itself does not."""
    plan_path, progress, stop = (
        folder / f"{stem}-plan.json",
        folder / f"{stem}-progress.jsonl",
        folder / f"{stem}-stop",
    )
    write_plan(
        Plan(tuple(planned), str(progress.resolve()), str(stop.resolve()), seconds=part_seconds),
        plan_path,
    )
    asked = replace(
        request,
        output=folder / stem,
        command=(sys.executable, *TARGET, str(plan_path)),
    )
    words = collect.argv(ncu, asked)
    redacted = collected.asked is not None and collected.asked.redact
    collected.commands.append(redact_command(words) if redacted else " ".join(words))

    def tick() -> None:
        # a case counts as done when its report lies on the disk: what the progress bar says is what
        # a kill leaves
        steps = read_progress(progress)
        if steps and steps[-1].case < len(planned):
            reporter.doing(planned[steps[-1].case].label)

    package_parent = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package_parent, *filter(None, [os.environ.get("PYTHONPATH")])])
    log = folder / f"{stem}.log"
    outcome = collect.run(
        words, folder / stem, log, timeout=max(1.0, deadline - time.monotonic()), tick=tick, request_stop=stop.touch,
        environment={"PYTHONPATH": path}, keep_open=keep_open,
    )  # fmt: skip
    label = f"profiling ({request.set_name})"
    collected.costs[label] = collected.costs.get(label, 0.0) + outcome.seconds
    collected.interrupted = outcome.interrupted
    stop.unlink(missing_ok=True)
    adopted = adopt(folder, stem, collected, reporter)
    problem = _settle(planned, read_progress(progress), adopted, outcome, log, timeout, collected)
    for case in planned:
        state = collected.cases[case.marker].state
        if state in (*FINAL, "profiled"):
            reporter.step(case.label + ("" if state == "profiled" else f": {state}"))
    return problem


def _settle(
    planned: Sequence[PlannedCase], steps: Sequence[Step], adopted: Adopted | None, outcome: collect.Outcome, log: Path, timeout: float,
    collected: Collected,
) -> ToolkitError | None:  # fmt: skip
    """Carry the outcome of each planned case over from the progress; returns what keeps the rest of
    the ladder from being profiled."""
    ended = {step.case: step for step in steps}
    settled = bool(adopted and adopted.markers)
    crashed = outcome.cause == "crash" or (
        outcome.cause == "signal" and -outcome.returncode not in _ENDED_BY
    )
    problem = outcome.problem
    for index, case in enumerate(planned):
        record, step = collected.cases[case.marker], ended.get(index)
        state, message = "not run", "profiling ended before it"
        if record.state == "profiled":
            continue
        if step is not None and step.state in FINAL:
            state, message = step.state, step.message
        elif step is not None and step.state == "started":
            message = "it was under way when profiling ended"
            if outcome.cause == "memory" and problem is not None:
                state, message = "skipped", str(problem)
            elif crashed:
                state, message = (
                    "failed",
                    f"{case.label}: the program ended while this case ran; its output is in {log.name}",
                )
        collected.cases[case.marker] = replace(record, state=state, message=message)
        if state == "failed":
            collected.failures.append(KernelProblem(message))
        settled = settled or state in FINAL
    if outcome.interrupted or (
        settled and (crashed or outcome.cause in ("", "memory", "no-kernels"))
    ):
        return None
    if outcome.cause == "timeout":
        remedy = "What was finished is kept: go on with --resume, and give more with --timeout"
        return EnvironmentProblem(f"the ladder was not profiled within {timeout:.0f} s", remedy)
    return problem or EnvironmentProblem(
        "ncu ended without writing a report", f"Its output is in {log}"
    )


def adopt(folder: Path, stem: str, collected: Collected, reporter: Reporter) -> Adopted | None:
    """Make the report of a part belong to the run: its cases that are finished are marked so. None
    where there is none, or nothing in it.

    A report that was cut off is kept under another name, and what is whole of it under its own.
    """
    path = folder / f"{stem}.ncu-rep"
    if not path.is_file() or path.name in collected.reports:
        return None
    data = path.read_bytes()
    frame = framing.parse(data)
    if frame.problem or not data.startswith(framing.MAGIC):
        path.rename(path.with_name(path.name + CUT))
        if not data.startswith(framing.MAGIC) or not frame.declared_launches:
            reporter.note(
                f"{path.name} was cut off before its first launch was whole; it is kept as {path.name}{CUT}"
            )
            return None
        data = _whole_launches(data, frame)
        store.write_atomic(path, data)
        reporter.note(
            f"{path.name} was cut off; its {frame.declared_launches} whole launches are kept, the rest is in {path.name}{CUT}"
        )
    asked = collected.asked or Asked()
    if asked.redact:
        redact_in_place(path, remove_source=asked.redact_source)
    collected.reports.append(path.name)
    try:
        cases = read_plan(folder / f"{stem}-plan.json").cases
    except (InputProblem, OSError):
        return Adopted(path.name, ())
    finished = {
        step.case
        for step in read_progress(folder / f"{stem}-progress.jsonl")
        if step.state == "profiled"
    }
    markers = []
    for index, case in enumerate(cases):
        record = collected.cases.get(case.marker)
        if (
            record is None
            or record.state == "profiled"
            or index not in finished
            or not holds(data, case.marker)
        ):
            continue
        collected.cases[case.marker] = replace(
            record, state="profiled", message="", report=path.name
        )
        markers.append(case.marker)
    return Adopted(path.name, tuple(markers))


def _whole_launches(data: bytes, frame: framing.Framing) -> bytes:
    """A cut report up to its last whole launch: code that follows is of launches that were lost."""
    last = max(index for index, block in enumerate(frame.blocks) if block.results)
    return data[
        : frame.blocks[last + 1].offset if last + 1 < len(frame.blocks) else frame.intact_bytes
    ]


def holds(data: bytes, marker: str) -> bool:
    """Whether a report holds a launch in the NVTX range `marker`, which stands in it as it is."""
    return re.search(re.escape(marker.encode()) + rb"(?![\w.-])", data) is not None


def adopt_all(
    folder: Path, collected: Collected, reporter: Reporter, stem: str = "profile"
) -> list[Adopted]:
    """Adopt what earlier parts left behind when the toolkit was killed before it could: in the
    order in which they were run."""
    names = [path.name.removesuffix("-plan.json") for path in folder.glob(f"{stem}*-plan.json")]
    found = []
    for name in sorted(names, key=lambda name: (len(name), name)):
        adopted = adopt(folder, name, collected, reporter)
        if adopted is not None:
            found.append(adopted)
        _failed_before(folder, name, collected)
        (folder / f"{name}-stop").unlink(missing_ok=True)
    return found


def _failed_before(folder: Path, stem: str, collected: Collected) -> None:
    """Cases that a part found wrong before the toolkit was killed: a wrong kernel is a result."""
    try:
        cases = read_plan(folder / f"{stem}-plan.json").cases
    except (InputProblem, OSError):
        return
    for step in read_progress(folder / f"{stem}-progress.jsonl"):
        record = collected.cases.get(cases[step.case].marker) if step.case < len(cases) else None
        if record is not None and step.state in FINAL and record.state not in (*FINAL, "profiled"):
            collected.cases[record.marker] = replace(record, state=step.state, message=step.message)
