"""`profile -- PROGRAM`: record the program once, find its step, and profile only the launches that
the step's time goes to, in one run of ncu.

ncu cannot name a launch of each kernel: `--kernel-id` is given once, and its number counts the
launches of each name. So it takes one launch of each name, grid, block and shared memory
(`--filter-mode per-launch-config`) of the kernels that are named, and the program ends when the
launches that the trace foretells are profiled."""

import contextlib
import math
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ncu_toolkit.base.core.errors import ToolkitError, UsageProblem
from ncu_toolkit.base.model.profile import Extents, Launch
from ncu_toolkit.kernel.diagnosis.needs import Needs
from ncu_toolkit.kernel.gpu import collect
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.model import Account, Op, Step, Window
from ncu_toolkit.program.recording import program_run, recorder
from ncu_toolkit.program.traces import choice
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import write_trace
from ncu_toolkit.program.traces.step import find_step

TRACE: Final = "program.ncu-trace"
#: Longest word of a command line (Linux's MAX_ARG_STRLEN is 128 KiB).
_LONGEST: Final = 100_000
#: Seconds that ncu takes for a launch, and how often it runs the kernel: on an H100 23 launches of a
#: GPT took 33 s, 17 took 27 s, kernels of cuBLAS twice as long as others.
_LAUNCH_S: Final = 1.5
_PASSES: Final = 16
#: What ncu tells one launch from another by: name, grid, block and shared memory.
_Key = tuple[str, Extents | None, Extents | None, int | None]


@dataclass(frozen=True)
class Selection:
    """ncu's options that take the chosen kernels, and how many launches they take."""

    words: tuple[str, ...]
    expected: int


@dataclass(frozen=True)
class StepRun:
    """A program's trace, and the run of ncu over its step."""

    folder: Path
    trace: Path
    step: Step
    chosen: tuple[int, ...]
    """The kernels that were to be profiled, by their places in `Trace.shapes`."""
    session: Session | None
    """None where nothing could be profiled; `problem` says why."""
    problem: ToolkitError | None = None
    notes: tuple[str, ...] = ()
    code: int = 0
    """The program's exit code when it was recorded."""
    seconds: float = 0.0
    """How long that took."""
    interrupted: bool = False
    """Ctrl-C ended the program; what was recorded and profiled until then is here."""


def under_ncu(recorded: float) -> float:
    """Seconds that the program may take under ncu, so that the whole command takes three times the
    program and 30 s, for a program that was `recorded` in so many. Reading and pages take 10 s."""
    return 3 * _alone(recorded) + 30 - recorded - 10


def seconds_for(recorded: float) -> float:
    """Seconds that launches may take of `under_ncu`: the program takes a tenth more there, and 3 s."""
    return under_ncu(recorded) - (1.1 * _alone(recorded) + 3)


def _alone(recorded: float) -> float:
    """Seconds of the program alone: recording adds 1 s and a sixth, as of 50 programs on an H100."""
    return 0.85 * max(0.0, recorded - 1)


def picks(
    step: Step, account: Account, most: int = program_run.DEFAULT_KERNELS, seconds: float = math.inf
) -> tuple[int, ...]:
    """The kernels worth profiling, by their places in `Trace.shapes`: kernels that hold 95 % of the
    step's kernel time (`choice.choose`), as many as `most` launches and `seconds` of ncu allow, and
    one in any case. A name costs a launch for each of its grids, so names with much time for what
    they cost come first."""
    shapes = step.trace.shapes
    count = Counter[str]()
    cost: defaultdict[str, float] = defaultdict(float)
    time: defaultdict[str, float] = defaultdict(float)
    for group in choice.groups(step, account):
        name = shapes[group.shape].kernel
        count[name] += 1
        cost[name] += _LAUNCH_S + _PASSES * group.us / len(group.ops) * 1e-6
        time[name] += group.us
    chosen = [each.group.shape for each in choice.choose(step, account, most)]
    names = dict.fromkeys(shapes[each].kernel for each in chosen)
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: -time[name] / cost[name]):
        if not taken or (count[name] <= most and cost[name] <= seconds):
            taken.add(name)
            most -= count[name]
            seconds -= cost[name]
    return tuple(each for each in chosen if shapes[each].kernel in taken)


def selection(
    step: Step, chosen: Sequence[int], symbols: Mapping[str, tuple[str, ...]]
) -> Selection:
    """What makes ncu profile a launch of each chosen kernel in a steady step, and few others: those
    of the same names with other grids.

    Args:
        symbols: the mangled names of each kernel by `Launch.kernel` (`recorder.symbols`).
    """
    shapes = step.trace.shapes
    kernels = {shapes[each].kernel for each in chosen}
    named = {name for kernel in kernels for name in symbols.get(kernel, (kernel,))}
    pattern = f"^({'|'.join(map(re.escape, sorted(named)))})$"
    known = len(pattern) <= _LONGEST
    keys = {at: _key(shape) for at, shape in enumerate(shapes)}
    queue = [
        (op.process, keys[op.shape], op)
        for op in sorted(step.trace.ops, key=lambda op: _queued(step, op))
        if op.kind == "kernel" and (not known or shapes[op.shape].kernel in kernels)
    ]
    wanted = {keys[each] for each in chosen}
    steady = _steady(step)
    before = Counter(
        key
        for process, key, op in queue
        if op.start < steady.start and step.process in (None, process)
    )
    skip = min(before[key] for key in wanted)
    count: Counter[tuple[int, _Key]] = Counter()
    expected = 0
    for process, key, op in queue:
        if not wanted and op.start >= steady.end:
            break
        count[process, key] += 1
        if count[process, key] == skip + 1:
            expected += 1
            wanted.discard(key)
    name = ("--kernel-name-base", "mangled", "--kernel-name", f"regex:{pattern}") if known else ()
    mode = ("--filter-mode", "per-launch-config", "--launch-skip", str(skip))
    return Selection((*name, *mode, "--launch-count", "1"), expected)


def _queued(step: Step, op: Op) -> tuple[int, int]:
    """When the host queued a launch; kernels of a graph by their start."""
    return (step.trace.calls[op.call].start if op.call >= 0 else op.start), op.start


def _key(shape: Launch) -> _Key:
    return shape.kernel, shape.grid, shape.block, shape.shared


def profile_step(
    request: collect.Request,
    reports: Path,
    *,
    timeout: float,
    asked: recorder.RecordOptions | None = None,
    most: int = 0,
    steps: int = 0,
    redact: bool = False,
    redact_source: bool = False,
    needs: Sequence[Needs] = (),
    tell: Callable[[str], None] = lambda line: None,
    watch: Callable[[str], None] = lambda line: None,
) -> StepRun:
    """Record a program, find its step and profile the kernels that its time goes to. The trace lies
    in the run's folder as `TRACE`, also where nothing could be profiled.

    Args:
        request: the program and how it is profiled; which launches is found here.
        most: launches that are profiled at most; 0: as many as `seconds_for` allows, and no more than
            DEFAULT_KERNELS.
        steps: end the recorded program after so many steady steps; 0: let it run.
        tell: gets a line about each stage; `watch` one about each launch under ncu, a few times a
            second.

    Raises:
        ToolkitError: nothing was recorded; the cause and its remedy.
        KeyboardInterrupt: it came before anything was recorded, or between recording and profiling.
    """
    asked = asked or recorder.RecordOptions()
    done = interrupted = False

    def has_steps(folder: Path) -> bool:
        nonlocal done
        done = _has_steps(folder, steps)
        return done

    if steps:
        asked = replace(asked, enough=has_steps)
    name = program_run.name_of(request.command)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-record-") as place:
        raw = Path(place)
        tell(f"Recording {name}; it runs with its own input and output")
        began = time.monotonic()
        try:
            code = recorder.record(request.command, raw, asked)
        except KeyboardInterrupt:
            code, interrupted = 0, True
        recorded = time.monotonic() - began
        if not interrupted and (done or 0 < asked.seconds < recorded):
            after = f"{steps} steady steps" if done else f"{asked.seconds:g} s"
            tell(f"The recorded run was ended after {after}, as was asked")
        try:
            trace = recorder.read_recording(raw, name)
        except UsageProblem as error:
            if interrupted:
                raise KeyboardInterrupt("nothing was recorded") from None
            if not code:
                raise
            ended = f"{error.message}; it ended with exit code {code}"
            raise UsageProblem(ended, f"What it printed may say why. {error.remedy}") from None
        symbols = recorder.symbols(raw)
    folder = store.new_run_folder(reports, name)
    write_trace(trace, folder / TRACE)
    with keeping(folder):
        step = find_step(trace)
        left = math.inf if most else seconds_for(recorded)
        longest = math.inf if most else under_ncu(recorded)
        most = most or min(program_run.DEFAULT_KERNELS, int(left / _LAUNCH_S))
        chosen = () if interrupted else picks(step, account_of(step), most, left)
    notes = [f"the program ended with exit code {code} when it was recorded"] if code else []
    session: Session | None = None
    problem: ToolkitError | None = None
    if interrupted:
        notes.append("it was interrupted while it was recorded, and no kernel was profiled")
    elif not chosen:
        notes.append("no kernel of the step can be profiled alone: all wait for other GPUs")
    else:
        tell(f"Profiling {len(chosen)} kernels of its {step.word} under ncu")
        try:
            found = selection(step, chosen, symbols)
            one = len({trace.shapes[each].kernel for each in chosen}) == 1
            limit = min(found.expected, most) if one else found.expected
            narrowed = replace(request, launch_count=0, extra=(*request.extra, *found.words))
            functions = {
                name: shape.function
                for shape in trace.shapes
                for name in symbols.get(shape.kernel, ())
            }
            start = time.monotonic()
            last = [0, start]
            patience = _patience(step, recorded)
            late = False

            def enough(finished: int, begun: str) -> bool:
                nonlocal late
                now = time.monotonic()
                if begun or finished != last[0]:
                    last[:] = finished, now
                if begun and finished < limit:
                    watch(f"launch {finished + 1} of {limit}: {functions.get(begun, begun)}")
                late = late or (0 < finished < limit and now - start > longest)
                return finished >= limit or late or now - last[1] > patience

            session = program_run.profile(
                narrowed, reports, timeout=timeout, redact=redact, redact_source=redact_source,
                needs=needs, folder=folder, enough=enough,
            )  # fmt: skip
            # That ncu's filters left launches out is no news here.
            session.notes = [each for each in session.notes if not each.startswith("Profiled ")]
            if late:
                notes.append(
                    f"ncu was ended after {longest:.0f} s, a limit that --launches {min(len(chosen), most)} lifts"
                )
        except UsageProblem as error:
            problem = UsageProblem(
                f"under ncu the program launched none of the {len(chosen)} kernels that were chosen",
                error.remedy,
            )
        except ToolkitError as error:
            problem = error
        except KeyboardInterrupt:
            interrupted = True
            notes.append("it was interrupted under ncu before a launch was profiled")
    return StepRun(
        folder,
        folder / TRACE,
        step,
        chosen,
        session,
        None if session else problem,
        tuple(notes),
        code,
        recorded,
        interrupted or (session is not None and session.interrupted),
    )


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Have a KeyboardInterrupt say where the trace is."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the trace is kept in {folder / TRACE}") from None


def _patience(step: Step, recorded: float) -> float:
    """Seconds that the program under ncu may go on without a launch that was chosen, before it is
    ended: three times what it took until they were over when it was recorded, and 30 s."""
    ops = step.trace.ops
    first, last = min(op.start for op in ops), max(op.end for op in ops)
    before = max(0.0, recorded - (last - first) * 1e-9)
    return 3 * (before + (_steady(step).end - first) * 1e-9) + 30


def _steady(step: Step) -> Window:
    """The second steady step: the first may still be that of a tuner."""
    return step.windows[min(1, len(step.windows) - 1)]


def _has_steps(folder: Path, steps: int) -> bool:
    """Whether what is recorded so far holds that many steady steps."""
    try:
        step = find_step(recorder.read_recording(folder))
    except ToolkitError:
        return False
    return step.how != "whole" and len(step.windows) >= steps
