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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import replace as replaced

from ncu_toolkit.base.core.errors import ToolkitError, UsageProblem
from ncu_toolkit.base.core.shares import summed
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.report.redact import redact_text
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.model import Op, Step, Trace, Window
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


class Limits(NamedTuple):
    """What may be profiled of a step."""

    launches: int = program_run.DEFAULT_KERNELS
    seconds: float = math.inf
    """That these launches may take."""
    under_ncu: float = math.inf
    """Seconds that the whole program may take."""


@dataclass(frozen=True)
class StepJob(program_run.ProgramJob):
    """A program whose step is profiled; which launches of it is found from its recording."""

    record: recorder.RecordOptions = field(default_factory=recorder.RecordOptions)
    launches: int = 0
    """Launches that are profiled at most; 0: as many as `seconds_for` allows, and no more than
    DEFAULT_KERNELS."""
    steps: int = 0
    """End the recorded program after this many steady steps; 0: let it run."""

    def limits(self, recorded: float) -> Limits:
        """For a program that was `recorded` in this many seconds."""
        if self.launches:
            return Limits(self.launches)
        left = seconds_for(recorded)
        most = min(program_run.DEFAULT_KERNELS, int(left / _LAUNCH_S))
        return Limits(most, left, under_ncu(recorded))


@dataclass(frozen=True)
class RecordedRun:
    """A program that ran with the recorder."""

    trace: Trace
    symbols: Mapping[str, tuple[str, ...]]
    """The mangled names of each kernel by `Launch.kernel`."""
    code: int
    seconds: float
    interrupted: bool


@dataclass(frozen=True)
class StepRun:
    """A program's trace, and the run of ncu over its step."""

    folder: Path
    trace: Path
    step: Step
    chosen: tuple[int, ...]
    """The kernels that were to be profiled, by their places in `Trace.shapes`."""
    recorded: RecordedRun
    session: Session | None = None
    """None where nothing could be profiled; `problem` says why."""
    problem: ToolkitError | None = None
    notes: tuple[str, ...] = ()
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


def choose(step: Step, limits: Limits) -> tuple[int, ...]:
    """The kernels worth profiling, by their places in `Trace.shapes`: kernels that hold 95 % of the
    step's kernel time (`choice.choose`), as many as the limits allow, and one in any case. A name
    costs a launch for each of its grids, so names with much time for what they cost come first."""
    shapes, account = step.trace.shapes, account_of(step)
    most, seconds, _ = limits
    named = [(shapes[group.shape].kernel, group) for group in choice.groups(step, account)]
    count = Counter(name for name, _ in named)
    cost = summed((name, _LAUNCH_S + _PASSES * x.us / len(x.ops) * 1e-6) for name, x in named)
    time = summed((name, group.us) for name, group in named)
    chosen = [group.shape for group in choice.choose(step, account, most)]
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
) -> tuple[tuple[str, ...], int]:
    """The options that make ncu profile a launch of each chosen kernel in a steady step, and few
    others, those of the same names with other grids; and how many launches they take.

    Args:
        symbols: as in `RecordedRun`.
    """
    shapes = step.trace.shapes
    kernels = {shapes[each].kernel for each in chosen}
    named = {name for kernel in kernels for name in symbols.get(kernel, (kernel,))}
    pattern = f"^({'|'.join(map(re.escape, sorted(named)))})$"
    known = len(pattern) <= _LONGEST
    keys, calls = [*map(choice.key_of, shapes)], step.trace.calls

    def queued(op: Op) -> tuple[int, int]:  # by the host; kernels of a graph by their start
        return (calls[op.call].start if op.call >= 0 else op.start), op.start

    queue = [
        (op.process, keys[op.shape], op)
        for op in sorted(step.trace.ops, key=queued)
        if op.kind == "kernel" and (not known or shapes[op.shape].kernel in kernels)
    ]
    wanted = {keys[each] for each in chosen}
    steady = _steady(step)
    early = [(process, key) for process, key, op in queue if op.start < steady.start]
    before = Counter(key for process, key in early if step.process in (None, process))
    skip = min(before[key] for key in wanted)
    count: Counter[tuple[int, choice.LaunchKey]] = Counter()
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
    return (*name, *mode, "--launch-count", "1"), expected


def profile_step(
    job: StepJob,
    tell: Callable[[str], None] = lambda line: None,
    watch: Callable[[str], None] = lambda line: None,
) -> StepRun:
    """Record a program, find its step and profile the kernels that its time goes to. The trace lies
    in the run's folder as `TRACE`, also where nothing could be profiled.

    Args:
        tell: gets a line about each stage; `watch` one about each launch under ncu, a few times a
            second.

    Raises:
        ToolkitError: nothing was recorded; the cause and its remedy.
        KeyboardInterrupt: it came before anything was recorded, or between recording and profiling.
    """
    made = record(job, tell)
    folder = store.new_run_folder(job.reports, program_run.name_of(job.request.command))
    write_trace(made.trace, folder / TRACE)
    with keeping(folder):
        step, limits = find_step(made.trace), job.limits(made.seconds)
        chosen = () if made.interrupted else choose(step, limits)
    ended = f"the program ended with exit code {made.code} when it was recorded"
    notes = [ended] if made.code else []
    if made.interrupted:
        notes.append("it was interrupted while it was recorded, and no kernel was profiled")
    elif not chosen:
        notes.append("no kernel of the step can be profiled alone: all wait for other GPUs")
    done = StepRun(
        folder, folder / TRACE, step, chosen, made, notes=tuple(notes), interrupted=made.interrupted
    )
    if not chosen:
        return done
    tell(f"Profiling {len(chosen)} kernels of its {step.word} under ncu")
    return profile(done, job, limits, watch)


def record(job: StepJob, tell: Callable[[str], None]) -> RecordedRun:
    """Run the program with the recorder. Raises as `profile_step`."""
    options, done, interrupted = job.record, False, False

    def has_steps(folder: Path) -> bool:
        nonlocal done
        with contextlib.suppress(ToolkitError):
            step = find_step(recorder.read_recording(folder))
            done = step.how != "whole" and len(step.windows) >= job.steps
        return done

    if job.steps:
        options = replace(options, enough=has_steps)
    name = program_run.name_of(job.request.command)
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-record-") as place:
        raw = Path(place)
        tell(f"Recording {name}; it runs with its own input and output")
        began = time.monotonic()
        try:
            code = recorder.record(job.request.command, raw, options)
        except KeyboardInterrupt:
            code, interrupted = 0, True
        seconds = time.monotonic() - began
        if not interrupted and (done or 0 < options.seconds < seconds):
            after = f"{job.steps} steady steps" if done else f"{options.seconds:g} s"
            tell(f"The recorded run was ended after {after}, as requested")
        try:
            trace = recorder.read_recording(raw, name)
        except UsageProblem as error:
            if interrupted:
                raise KeyboardInterrupt("nothing was recorded") from None
            if not code:
                raise
            ended = f"{error.message}; it ended with exit code {code}"
            raise UsageProblem(ended, f"What it printed may say why. {error.remedy}") from None
        if job.redact:
            trace = redacted(trace)
        return RecordedRun(trace, recorder.symbols(raw), code, seconds, interrupted)


def redacted(trace: Trace) -> Trace:
    """A trace whose lines and Python functions name neither this machine nor its user: a file's folder
    can, where two files have one name."""

    def plain(each: Any, *names: str) -> Any:
        return replaced(each, **{name: redact_text(getattr(each, name)) for name in names})

    frames = tuple(plain(each, "function", "file") for each in trace.frames)
    results = tuple(plain(each, "function", "file", "caller") for each in trace.results)
    lines = tuple(map(redact_text, trace.lines))
    padding = plain(trace.padding, "mask", "line") if trace.padding else None
    return replaced(trace, frames=frames, lines=lines, results=results, padding=padding)


def profile(done: StepRun, job: StepJob, limits: Limits, watch: Callable[[str], None]) -> StepRun:
    """Run ncu over the chosen kernels, into the run's folder."""
    chosen, shapes, symbols = done.chosen, done.step.trace.shapes, done.recorded.symbols
    session: Session | None = None
    problem: ToolkitError | None = None
    interrupted, notes = False, list(done.notes)
    try:
        words, expected = selection(done.step, chosen, symbols)
        alone = len({shapes[each].kernel for each in chosen}) == 1
        request = replace(job.request, launch_count=0, extra=(*job.request.extra, *words))
        names = {name: each.function for each in shapes for name in symbols.get(each.kernel, ())}
        enough = _Enough(
            min(expected, limits.launches) if alone else expected,
            _patience(done.step, done.recorded.seconds), limits.under_ncu, lambda begun: names.get(begun, begun), watch,
        )  # fmt: skip
        session = program_run.profile(replace(job, request=request), done.folder, enough=enough)
        # That ncu's filters left launches out is no news here.
        session.notes = [each for each in session.notes if not each.startswith("Profiled ")]
        if enough.late:
            lifts = f"a limit that --launches {min(len(chosen), limits.launches)} lifts"
            notes.append(f"ncu was ended after {limits.under_ncu:.0f} s, {lifts}")
    except UsageProblem as error:
        none = f"none of the {len(chosen)} kernels that were chosen"
        problem = UsageProblem(f"under ncu the program launched {none}", error.remedy)
    except ToolkitError as error:
        problem = error
    except KeyboardInterrupt:
        interrupted = True
        notes.append("it was interrupted under ncu before a launch was profiled")
    interrupted |= session is not None and session.interrupted
    return replace(
        done, session=session, problem=None if session else problem, notes=tuple(notes), interrupted=interrupted
    )  # fmt: skip


@dataclass
class _Enough:
    """Whether a program under ncu may end: its launches are profiled, or it takes too long."""

    launches: int
    patience: float
    """Seconds without a launch."""
    longest: float
    """Seconds that ncu may take once a launch is profiled."""
    named: Callable[[str], str]
    watch: Callable[[str], None]
    late: bool = False
    """It was ended for `longest`."""
    start: float = field(default_factory=time.monotonic)
    last: tuple[int, float] = field(default_factory=lambda: (0, time.monotonic()))
    """Launches that were profiled, and when one was begun or finished last."""

    def __call__(self, finished: int, begun: str) -> bool:
        now = time.monotonic()
        if begun or finished != self.last[0]:
            self.last = finished, now
        if begun and finished < self.launches:
            self.watch(f"launch {finished + 1} of {self.launches}: {self.named(begun)}")
        self.late |= 0 < finished < self.launches and now - self.start > self.longest
        return finished >= self.launches or self.late or now - self.last[1] > self.patience


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
