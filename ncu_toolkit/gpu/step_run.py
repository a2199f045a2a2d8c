"""`profile -- PROGRAM`: record the program once, find its step, and profile only the launches that
the step's time goes to, in one run of ncu.

How ncu numbers launches is not settled: its manual (2025.3) counts each kernel with each grid, block
and shared memory for itself, an earlier one each name. Every numbering is written here, and
`NUMBERING` says which one holds (/benchmarks/programs/README.md has the experiment)."""

from __future__ import annotations

import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from ncu_toolkit.core.errors import EnvironmentProblem, ToolkitError, UsageProblem
from ncu_toolkit.diagnosis.needs import Needs
from ncu_toolkit.gpu import collect, program_run, recorder
from ncu_toolkit.gpu.runner import Session
from ncu_toolkit.model.profile import Launch, Profile
from ncu_toolkit.model.program import Account, Step, Trace
from ncu_toolkit.program import choice
from ncu_toolkit.program.account import account_of
from ncu_toolkit.program.builder import function_name
from ncu_toolkit.program.files import write_trace
from ncu_toolkit.program.step import find_step
from ncu_toolkit.runs import store

TRACE: Final = "program.ncu-trace"
#: What ncu counts up for `--kernel-id`: all launches of a process, those of a kernel's name, or those
#: of a name with a grid, block and shared memory; "config" takes no number: one launch of each.
Numbering = Literal["all", "name", "shape", "config"]
NUMBERING: Final[Numbering] = "shape"
#: Longest word of a command line (Linux's MAX_ARG_STRLEN is 128 KiB).
_LONGEST: Final = 100_000
#: Steady windows before the last that launches are taken from: later ones are like them.
_WINDOWS: Final = 8


@dataclass(frozen=True)
class Pick:
    """A kernel that is profiled: its place in `Trace.shapes`, and the launches of it in steady steps
    by their places in `Trace.ops`, the typical one first."""

    shape: int
    launches: tuple[int, ...]


@dataclass(frozen=True)
class Selection:
    """ncu's options that take the chosen launches, and how many launches of the trace they take."""

    words: tuple[str, ...]
    expected: int


@dataclass(frozen=True)
class StepRun:
    """A program's trace, and the run of ncu over its step."""

    folder: Path
    trace: Path
    step: Step
    chosen: tuple[Pick, ...]
    session: Session | None
    """None where nothing could be profiled; `problem` says why."""
    problem: ToolkitError | None = None
    notes: tuple[str, ...] = ()
    code: int = 0
    """The program's exit code when it was recorded."""


def picks(
    step: Step, account: Account, most: int = program_run.DEFAULT_KERNELS
) -> tuple[Pick, ...]:
    """The kernels worth profiling (`choice.choose`), with their launches in steady steps."""
    trace, ops = step.trace, step.ops
    of: defaultdict[object, list[int]] = defaultdict(list)
    for window in step.windows[-_WINDOWS:]:
        for at in range(window.first, window.last):
            op = trace.ops[at]
            if (
                op.kind == "kernel"
                and step.process in (None, op.process)
                and step.device in (None, op.device)
            ):
                of[_key(trace.shapes[op.shape], "shape")].append(at)
    found = []
    for each in choice.choose(step, account, most):
        typical, key = ops[each.op], _key(trace.shapes[each.group.shape], "shape")
        steady = sorted(of[key], key=lambda at: trace.ops[at] is not typical)
        if steady:
            found.append(Pick(each.group.shape, tuple(steady)))
    return tuple(found)


def numbers(trace: Trace, process: int, numbering: Numbering) -> dict[int, int]:
    """The number, from 1, that ncu gives each launch of a process, by its place in `Trace.ops`.
    Launches count in the order of their calls, kernels of a graph in that of their start."""

    def called(at: int) -> tuple[int, int]:
        op = trace.ops[at]
        return (trace.calls[op.call].start if op.call >= 0 else op.start), op.start

    mine = (at for at, op in enumerate(trace.ops) if op.kind == "kernel" and op.process == process)
    count: Counter[object] = Counter()
    found = {}
    for at in sorted(mine, key=called):
        key = _key(trace.shapes[trace.ops[at].shape], numbering)
        count[key] += 1
        found[at] = count[key]
    return found


def _key(shape: Launch, numbering: Numbering) -> object:
    if numbering == "all":
        return ""
    if numbering == "name":
        return shape.kernel
    return shape.kernel, shape.grid, shape.block, shape.shared_static + shape.shared_dynamic


def selection(
    step: Step,
    chosen: Sequence[Pick],
    symbols: Mapping[str, tuple[str, ...]],
    numbering: Numbering = NUMBERING,
) -> Selection:
    """What makes ncu profile a launch of each chosen kernel, and as few others as can be.

    A number holds for every kernel that is named, so the fewest numbers are taken that meet a steady
    launch of each. ncu stops the program after the last one.

    Args:
        symbols: the mangled names of each kernel by `Launch.kernel` (`recorder.symbols`).
    """
    trace = step.trace
    process = trace.ops[chosen[0].launches[0]].process
    number = numbers(trace, process, numbering)
    places = {each.shape: [at for at in each.launches if at in number] for each in chosen}
    kernels = {trace.shapes[each.shape].kernel for each in chosen}
    named = {name for kernel in kernels for name in symbols.get(kernel, (kernel,))}
    pattern = f"^({'|'.join(map(re.escape, sorted(named)))})$"
    if len(pattern) > _LONGEST:
        pattern = ""
    base = ("--kernel-name-base", "mangled") if pattern else ()
    if numbering == "config":
        skip = max(0, min(max(number[at] for at in some) for some in places.values()) - 1)
        name = ("--kernel-name", f"regex:{pattern}") if pattern else ()
        words = (
            *base,
            *name,
            "--filter-mode",
            "per-launch-config",
            "--launch-skip",
            str(skip),
            "--launch-count",
            "1",
        )
        alike = {
            _key(shape, "shape") for shape in trace.shapes if shape.kernel in kernels or not pattern
        }
        return Selection(words, len(alike))
    if numbering == "all":
        taken = {number[some[0]] for some in places.values()}
        words = ("--kernel-id", f":::{_either(taken)}")
        expected = len(taken)
    else:
        taken = _cover({shape: {number[at] for at in some} for shape, some in places.items()})
        words = (
            *base,
            "--kernel-id",
            f"::{f'regex:{pattern}' if pattern else ''}:{_either(taken)}",
        )
        expected = sum(
            count in taken and (trace.shapes[trace.ops[at].shape].kernel in kernels or not pattern)
            for at, count in number.items()
        )
    return Selection((*words, "--launch-count", str(expected), "--kill", "yes"), expected)


def _either(taken: set[int]) -> str:
    return "|".join(map(str, sorted(taken)))


def _cover(choices: Mapping[int, set[int]]) -> set[int]:
    """Few numbers of which each kernel has at least one: the one that most kernels have comes first."""
    left, taken = dict(choices), set[int]()
    while left:
        count = Counter(number for each in left.values() for number in each)
        if not count:
            break
        best = min(count, key=lambda number: (-count[number], number))
        taken.add(best)
        left = {shape: each for shape, each in left.items() if best not in each}
    return taken


def profile_step(
    request: collect.Request,
    reports: Path,
    *,
    timeout: float,
    asked: recorder.RecordOptions | None = None,
    most: int = program_run.DEFAULT_KERNELS,
    steps: int = 0,
    redact: bool = False,
    redact_source: bool = False,
    needs: Sequence[Needs] = (),
    tell: Callable[[str], None] = lambda line: None,
    numbering: Numbering = NUMBERING,
) -> StepRun:
    """Record a program, find its step and profile the kernels that its time goes to. The trace lies
    in the run's folder as `TRACE`, also where nothing could be profiled.

    Args:
        request: the program and how it is profiled; which launches is found here.
        steps: end the recorded program after so many steady steps; 0: let it run.
        tell: gets a line about each stage.

    Raises:
        ToolkitError: nothing was recorded; the cause and its remedy.
    """
    asked = asked or recorder.RecordOptions()
    if steps:
        asked = replace(asked, enough=lambda folder: _has_steps(folder, steps))
    name = program_run.name_of(request.command)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-record-") as place:
        raw = Path(place)
        tell(f"Recording {request.command[0]}; it runs with its own input and output")
        code = recorder.record(request.command, raw, asked)
        try:
            trace = recorder.read_recording(raw, name)
        except UsageProblem as error:
            ended = f"; it ended with exit code {code}" if code else ""
            raise UsageProblem(f"{error.message}{ended}", error.remedy) from None
        symbols = recorder.symbols(raw)
    step = find_step(trace)
    account = account_of(step)
    chosen = picks(step, account, most)
    folder = store.new_run_folder(reports, name)
    write_trace(trace, folder / TRACE)
    notes = [f"the program ended with exit code {code} when it was recorded"] if code else []
    session: Session | None = None
    problem: ToolkitError | None = None
    if not chosen:
        notes.append("no kernel of the step can be profiled alone: all wait for other GPUs")
    else:
        tell(f"{step.said} Profiling {len(chosen)} of its kernels under ncu")
    for way in (numbering, "config") if chosen else ():
        words = selection(step, chosen, symbols, way).words
        stack = ("--call-stack-type", "python") if _python(request) else ()
        narrowed = replace(request, launch_count=0, extra=(*request.extra, *words, *stack))
        try:
            session = program_run.profile(
                narrowed, reports, timeout=timeout, redact=redact, redact_source=redact_source,
                needs=needs, folder=folder,
            )  # fmt: skip
            # That ncu's filters left launches out is no news here.
            session.notes = [each for each in session.notes if "(--kernel-" not in each]
            break
        except UsageProblem as error:
            # Under ncu the program launched others: one launch of each kernel by its name then.
            problem = error
            notes.append("ncu met none of the launches by their numbers; it took them by name")
        except EnvironmentProblem as error:
            problem = error
            break
    return StepRun(
        folder,
        folder / TRACE,
        step,
        chosen,
        session,
        None if session else problem,
        tuple(notes),
        code,
    )


def missing(step: Step, chosen: Sequence[Pick], profiles: Sequence[Profile]) -> list[Launch]:
    """The chosen kernels that a report does not hold with that name, grid and block: tuners choose
    others under ncu."""
    there = {
        (function_name(each.launch.kernel), each.launch.grid, each.launch.block)
        for each in profiles
    }
    wanted = (step.trace.shapes[each.shape] for each in chosen)
    return [
        each for each in wanted if (function_name(each.kernel), each.grid, each.block) not in there
    ]


def _has_steps(folder: Path, steps: int) -> bool:
    """Whether what is recorded so far holds that many steady steps."""
    try:
        step = find_step(recorder.read_recording(folder))
    except ToolkitError:
        return False
    return step.how != "whole" and len(step.windows) >= steps


def _python(request: collect.Request) -> bool:
    return any(
        Path(word).suffix == ".py" or Path(word).name.startswith("python")
        for word in request.command[:3]
    )
