"""A program as a trace holds it: what its GPUs did, the host's calls, and marks. Then what is found
in its step. Events are in nanoseconds on one clock, sums in microseconds."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ncu_toolkit.base.model.profile import Device, Evidence, Launch, NoFinding

OpKind = Literal["kernel", "copy", "set"]
CallKind = Literal["launch", "copy", "set", "sync", "allocate", "free", "graph", "load", "other"]
#: "step": one step of the program, as its author marked it; "range": NVTX; "operator": a call of a
#: framework's operator, with its input shapes in the name where they are known.
MarkKind = Literal["step", "range", "operator"]
#: What a trace can lack. Rules abstain where they need it.
Lack = Literal[
    "wall time", "host calls", "marks", "lines", "shapes", "grids", "registers", "memory kinds"
]


#: The NVTX range by which `ncu_toolkit.step` marks a step.
STEP_RANGE: Final = "ncu_toolkit.step"


class Interval(msgspec.Struct, frozen=True):
    """From `start` to `end`, nanoseconds of the trace's clock."""

    start: int
    end: int

    @property
    def us(self) -> float:
        return (self.end - self.start) / 1e3


class Op(Interval, frozen=True, array_like=True, gc=False):
    """Work of a GPU: a kernel, a copy, or a set of memory."""

    kind: OpKind
    shape: int = -1
    """Of a kernel: its place in `Trace.shapes`."""
    call: int = -1
    """The host's call that queued it, by its place in `Trace.calls`; -1 if unknown."""
    device: int = 0
    """Its place in `Trace.devices`."""
    stream: int = 0
    process: int = 0
    size: int | None = None
    """Bytes copied or set. Of a collective those of a rank's message, as NCCL counts them: of an
    all-gather and of sends what a rank gives, of a reduce-scatter what it gets. None of other kernels,
    and where they are not recorded."""
    path: str = ""
    """Of a copy: "HtoD", "DtoH", "DtoD", "PtoP" or "HtoH"."""
    pinned: bool | None = None
    """Of a copy between host and device: whether the host's memory is pinned; None if unknown."""
    node: int = 0
    """Of work in a CUDA graph: the node's id; else 0."""
    group: str = ""
    """Of a collective: its process group, the same on all its ranks; empty if unknown."""

    @property
    def queue(self) -> tuple[int, int, int]:
        """Its process, device and stream: its work is in order."""
        return self.process, self.device, self.stream


class Call(Interval, frozen=True, array_like=True, gc=False):
    """A call of the CUDA runtime or driver."""

    kind: CallKind
    name: int
    """Its place in `Trace.names`: `cudaLaunchKernel`."""
    thread: int = 0
    process: int = 0
    line: int = -1
    """The user's line that made it, by its place in `Trace.lines`; -1 if unknown."""
    callers: int = -1
    """The lines that called the function of that line, by their place in `Trace.callers`; -1 if unknown."""


class Mark(Interval, frozen=True, array_like=True, gc=False):
    """A range of time on one thread that the program or its framework named."""

    kind: MarkKind
    name: int
    """Its place in `Trace.names`."""
    thread: int = 0
    process: int = 0


class PythonFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A function of Python on a thread's stack."""

    function: str
    """Its name, with its class where that is known: `ToTensor.__call__`."""
    file: str
    """Its file as the profiler names it, without what precedes `site-packages`."""
    line: int = 0
    """The line that ran, or the function's first where only that is known; 0 if unknown."""


class Sample(Interval, frozen=True, array_like=True, gc=False):
    """What a thread of the host ran from `start` to `end`: one stack all that time, as far as a
    sampler saw or a profiler recorded."""

    stack: int
    """Its place in `Trace.stacks`."""
    thread: int = 0
    process: int = 0


class Padding(msgspec.Struct, frozen=True):
    """How full the first padded batches of a program were, in elements of all of them."""

    mask: str
    """What says which elements count: `attention_mask of BertModel.forward`, `result of to_dense_batch`."""
    line: str
    """The user's line that made the call, `train.py:33`; empty if unknown."""
    width: int
    """Elements in a row of the last of them."""
    elements: int
    longest: int
    """What they would be if each were as wide as its longest row."""
    kept: int
    """Those that count."""


class Result(msgspec.Struct, frozen=True):
    """A function of the user's, or a line of theirs that calls one of a package, that returned arrays of
    a GPU, compared from call to call."""

    function: str
    file: str
    """As in `Trace.lines`."""
    first: int
    last: int
    """Its lines."""
    calls: int
    same: bool
    """Whether all that were compared returned the same values."""
    caller: str = ""
    """The user's line that called it then, as in `Trace.lines`; empty of a package's, and if unknown."""
    within: tuple[int, ...] = ()
    """Places in `Trace.results` of the functions that were running whenever it was called, in recordings
    without `Trace.callers`."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """What a program did on its GPUs. `ops`, `calls`, `marks` and `samples` are by start."""

    source: str
    """What recorded it: `Nsight Systems 2024.5`, `PyTorch profiler`, `ncu-toolkit 0.1.0`."""
    program: str = ""
    """The program in a word, `train.py`; empty if unknown."""
    devices: tuple[Device, ...]
    shapes: tuple[Launch, ...]
    """Each kernel with each grid, block, registers and shared memory once."""
    ops: tuple[Op, ...]
    calls: tuple[Call, ...] = ()
    marks: tuple[Mark, ...] = ()
    names: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Lines of the user's code: `train.py:33`."""
    callers: tuple[tuple[int, ...], ...] = ()
    """Lines that called one another, by places in `lines`, the outermost first, where results were compared."""
    samples: tuple[Sample, ...] = ()
    """Python's stacks on threads of the program and of its worker processes. Where a profiler
    recorded every function, only those of time in which the GPUs idle are kept."""
    stacks: tuple[tuple[int, ...], ...] = ()
    """Places in `frames`, the outermost function first."""
    frames: tuple[PythonFrame, ...] = ()
    padding: Padding | None = None
    """Where the recorder saw a mask, or lengths."""
    results: tuple[Result, ...] = ()
    lacks: tuple[Lack, ...] = ()
    notes: tuple[str, ...] = ()
    """What went wrong while it was recorded or read, a sentence each."""
    rank: int = -1
    """Its process among those of a distributed job; -1 if unknown, or of several."""

    @property
    def timed(self) -> bool:
        """Whether its times are the program's. A report's launches ran alone, one after another."""
        return "wall time" not in self.lacks

    def __repr__(self) -> str:
        kernels = sum(op.kind == "kernel" for op in self.ops)
        return f"<Trace of {self.program or 'a program'}: {kernels} launches, by {self.source}>"


class Window(Interval, frozen=True):
    """One step in a trace: from `start` to `end` nanoseconds; its work is `Trace.ops[first:last]`
    without what `Step.ops` leaves out."""

    first: int
    last: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a program that repeats, or all of it."""

    trace: Trace
    windows: tuple[Window, ...]
    """Every steady step, in order; never empty."""
    typical: int
    """The place of the window of median time."""
    how: Literal["marked", "repeats", "whole"]
    description: str
    """How it was found, a sentence: `The program marks it by the NVTX range "step".`"""
    covered: float = 1.0
    """The part (0-1) of the run, from the first of the steps on, that they take."""
    rest: tuple[str, ...] = ()
    """What else it holds: `2 steps that loaded modules (1.2 s)`."""
    spread: float = 0.0
    """Half of the range that holds the middle 80 % of the steps' times, over the median."""
    process: int | None = None
    """The process whose step it is, in a trace of several; else None."""
    device: int | None = None
    """The GPU whose step it is, by its place in `Trace.devices`, in a trace of several; else None."""

    @property
    def window(self) -> Window:
        return self.windows[self.typical]

    @property
    def word(self) -> Literal["step", "run"]:
        """What sentences call it."""
        return "run" if self.how == "whole" else "step"

    @property
    def wall_us(self) -> float:
        """Wall time of a step: the mean of all steady ones, since a step that waits counts too."""
        return statistics.fmean(window.us for window in self.windows)

    @property
    def uneven(self) -> bool:
        """Whether the mean says something else than the typical step (`UNEVEN`)."""
        return self.wall_us > UNEVEN * self.window.us

    @property
    def ops(self) -> tuple[Op, ...]:
        """What the GPU did in the typical step, by start."""
        ops = self.trace.ops[self.window.first : self.window.last]
        if self.process is None and self.device is None:
            return ops
        return tuple(op for op in ops if (op.process, op.device) == (self.process, self.device))

    @property
    def launches(self) -> int:
        return sum(op.kind == "kernel" for op in self.ops)


GapCause = Literal["host late", "sync", "copy", "allocation", "between", "unknown"]
#: Steps whose mean is this many times the typical one are uneven: it is what steps of a steady
#: program differ by (of 101 recordings, 3 have a mean above 1.07 times their median).
UNEVEN: Final = 1.1
#: Microseconds of idle time from which a late host did more than launch (`_host.OTHER_WORK`).
OTHER_WORK_US: Final = 200.0


class IdleGap(Interval, frozen=True):
    """Time of a step in which the GPU did nothing. `before` is the place in `Step.ops` of the work
    that ended it, `call` that of the call in `Trace.calls` that explains it (-1 for none)."""

    cause: GapCause
    before: int = -1
    call: int = -1
    part: float = 1.0
    """How much of it a mean step has: of a gap in one of 28 uneven steps, a 28th."""

    @property
    def us(self) -> float:
        """What it takes of a mean step."""
        return self.part * (self.end - self.start) / 1e3

    @property
    def key(self) -> str:
        """The key of its `AccountPart`."""
        long = self.cause == "host late" and self.end - self.start >= OTHER_WORK_US * 1e3
        return f"idle: {'host work' if long else self.cause}"


class AccountPart(msgspec.Struct, frozen=True):
    """A part of a step's wall time. `key` is a kernel class's id (`program/traces/classes.py`), "copy",
    "set", or "idle: " and a gap's cause, where "host work" is long "host late"."""

    key: str
    label: str
    us: float
    count: int
    """Launches, copies or gaps."""


class Account(msgspec.Struct, frozen=True):
    """The mean step's wall time without rest: `parts`, the longest first, add up to it."""

    wall_us: float
    parts: tuple[AccountPart, ...]
    gaps: tuple[IdleGap, ...]
    """Of the typical step; of uneven or sampled steps, long ones of all of them."""
    exclusive_us: tuple[float, ...]
    """Of each of `Step.ops`, the wall time of the mean step that it alone accounts for: where several
    run at once, each has its part. What they sum to is the time that the GPU was busy."""

    @property
    def busy(self) -> float:
        """The part (0-1) of the wall time in which the GPU worked."""
        return self.share(sum(self.exclusive_us))

    def share(self, us: float) -> float:
        """A time as part (0-1) of the wall time."""
        return us / self.wall_us if self.wall_us else 0.0


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a step, of which a replay says what it saves (`program/traces/replay.py`). Work is
    named by its place in `Step.ops`."""

    keeps: Mapping[int, float] = {}
    """The part of its time that work keeps, above 1 where it does that of others too."""
    drops: frozenset[int] = frozenset()
    """Work that is not there any more, and is not launched."""
    graphed: frozenset[int] = frozenset()
    """Work that a CUDA graph launches."""
    moved: frozenset[int] = frozenset()
    """Work before whose launch the host does nothing long any more, but on another thread."""
    beside: frozenset[int] = frozenset()
    """Work on its own streams, ahead of what needs it."""
    waits: frozenset[int] = frozenset()
    """Calls, by their places in `Trace.calls`, that wait no more."""

    @staticmethod
    def joined(edits: "Iterable[Edit]") -> "Edit":
        """All of them at once."""
        edits = [*edits]
        parts = (part for each in edits for part in each.keeps.items())
        keeps = dict(sorted(parts, key=lambda part: -part[1]))  # the least of each comes last
        rest = ("drops", "graphed", "moved", "beside", "waits")
        joined = {name: frozenset().union(*(getattr(e, name) for e in edits)) for name in rest}
        return Edit(keeps=keeps, **joined)


class StepTimes(msgspec.Struct, frozen=True):
    """A mean step in time, as it is replayed, in microseconds from its start. What reaches into the
    next step is at its beginning."""

    us: float
    """How long it takes."""
    rows: Mapping[str, Sequence[tuple[float, float, str]]]
    """Of the host ("host", and "host thread 2" of one that runs beside it) and of each stream, what
    it does: start, end, and "host-launch", "host-work" (OTHER_WORK_US and more of it), "host-wait",
    "copy", "set", or the id of a kernel's class."""


class StepFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A cause that costs a step time. Gains are time of the step, in microseconds."""

    rule: str
    """Id of its rule (`program/rules/`), or of a kernel's rule."""
    title: str
    summary: str
    confidence: Literal["high", "medium", "low"]
    ceiling_us: float
    """What goes if all of its cause does: the step replayed with `edit`."""
    expected_us: tuple[float, float, float] | None = None
    """Low, likely and high of what its fix saves (`kernel/diagnosis/achieved.py`: 80 % of the cases on record
    lie between), above the ceiling as fixes removed more. None where no cases are like it,
    and of all findings but the first."""
    measured_us: float | None = None
    """What a try saved; None where none was made."""
    frees_us: float = 0.0
    """What goes of the time of `ops`: more than it saves where something else limits the step then."""
    ops: tuple[int, ...] = ()
    """Places in `Step.ops` whose time it would change."""
    gaps: tuple[int, ...] = ()
    """Places in `Account.gaps` that it would close."""
    evidence: tuple[Evidence, ...] = ()
    arithmetic: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    """The user's lines, those with most time first."""
    switch: str = ""
    """The setting that `ncu-toolkit try` applies for it; empty where there is none."""
    edit: Edit | None = None
    """The change of the step that its fix is; None of what has nothing to gain."""
    before: tuple[str, ...] = ()
    """Ids of findings that it goes before, whatever they save: their fix waits for its fix, or it
    explains most of what they are about."""
    after: Mapping[str, float] = {}
    """Ids of findings whose fixes must come first, each with what both fixes save."""
    good: bool = False
    """Nothing to gain: the step is at what this cause is about."""


class ProgramDiagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What limits a program's step: findings by what they can save, and what was ruled out."""

    step: Step
    account: Account
    findings: tuple[StepFinding, ...]
    considered: tuple[NoFinding, ...] = ()
    together_us: float = 0.0
    """What the shown findings can save at most if all are fixed, launches counted once."""
    notes: tuple[str, ...] = ()
    times: Callable[..., StepTimes] | None = None
    """The step in time with the given edits (`Replay.times`). None where it has no times, or where it
    is not replayed as it was recorded."""

    @property
    def costly(self) -> tuple[StepFinding, ...]:
        """Findings with something to gain."""
        return tuple(each for each in self.findings if not each.good)


#: "broke": the program fails with it. "other step": what repeats is no longer the same, so that times
#: cannot be compared.
TryOutcome = Literal["faster", "slower", "same", "broke", "not applied", "other step"]
#: Whether the program prints the same: "within" what the switch may change.
Results = Literal["equal", "within", "differ", "not compared"]


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What a switch, or several at once, did to a program's step. Times are in microseconds, the
    mean step of each run; of a larger batch, its part for the work of the first."""

    switches: tuple[str, ...]
    """Ids, with a value after a colon: `triton-warps:8`."""
    title: str
    outcome: TryOutcome
    description: str = msgspec.field(name="said")  # the key in files of version 1
    """What came of it, a sentence."""
    before_us: tuple[float, ...] = ()
    after_us: tuple[float, ...] = ()
    noise_us: float = 0.0
    """What medians of runs alike differ by (`kernel/analysis/gate.py`)."""
    p: float | None = None
    """How often chance alone makes the two differ as much; None where the runs are too few to tell."""
    results: Results = "not compared"
    compared: str = ""
    """How what the program prints differs, a sentence."""
    causes: tuple[str, ...] = ()
    """Ids of the findings that it is for."""
    ceiling_us: float | None = None
    """What it saves at most by these; None where none was made."""
    keep: tuple[str, ...] = ()
    """The lines that make it permanent."""

    @property
    def before(self) -> float:
        return statistics.median(self.before_us) if self.before_us else 0.0

    @property
    def after(self) -> float:
        return statistics.median(self.after_us) if self.after_us else 0.0

    @property
    def left(self) -> float:
        """The step's time with it, over that without."""
        return self.after / self.before if self.before else 1.0

    @property
    def good(self) -> bool:
        """Whether it is worth keeping: faster, and the results are what the switch says they are."""
        return self.outcome == "faster" and self.results != "differ"


class ProgramTrial(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that were tried in a program, the best first."""

    program: str
    gpu: str
    word: Literal["step", "run"]
    """What was timed: a step, or the whole run where none was found."""
    before_us: tuple[float, ...]
    """All runs without a switch."""
    tried: tuple[Tried, ...]
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> Tried | None:
        """What is worth keeping and fastest."""
        return min((each for each in self.tried if each.good), key=lambda t: t.left, default=None)
