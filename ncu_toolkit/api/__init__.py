"""The Python interface: `load` a report or a program's trace, `compare` two reports, record and
profile a program's step with `profile_program`, and mark what `ncu-toolkit profile -- python script.py`
should look at: a `step`, or whatever `profile` surrounds.

They are found as `ncu_toolkit.load` and so on; nothing heavy is imported before they are used."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

from ncu_toolkit.base.model import Diagnosis, Profile
from ncu_toolkit.program.model import STEP_RANGE

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from ncu_toolkit.base.document.card import Card
    from ncu_toolkit.base.document.views import Answer
    from ncu_toolkit.kernel.analysis.analyze import Analysis, LaunchResult
    from ncu_toolkit.kernel.analysis.gate import Comparison
    from ncu_toolkit.program.analysis.changes import StepChange
    from ncu_toolkit.program.analysis.program import TraceResult
    from ncu_toolkit.program.model import Account, ProgramDiagnosis, Step, StepFinding, Trace
    from ncu_toolkit.program.traces.ranks import Job

F = TypeVar("F", bound=Callable[..., Any])
Table = Literal["launches", "metrics", "instructions"]


class _Shown:
    """What shows as its answer: as text when printed, as HTML in a notebook."""

    @property
    def _answer(self) -> Answer:
        raise NotImplementedError

    def __str__(self) -> str:
        from ncu_toolkit.base.render.text import plain_text

        return plain_text(_in_python(self._answer))

    def _repr_html_(self) -> str:
        from ncu_toolkit.base.render.html import fragment

        return fragment(_in_python(self._answer))

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": str(self), "text/html": self._repr_html_()}


class KernelLaunch(_Shown, Profile):
    """One launch of a report, with its verdict. Shows as its card: `print(launch)`, and in a
    notebook."""

    @cached_property
    def _judged(self) -> LaunchResult:
        from ncu_toolkit.kernel.analysis.analyze import Options, judge

        return judge(self, self.origin.file, Options(profiles=True))

    @property
    def diagnosis(self) -> Diagnosis:
        """What limits the launch."""
        return self._judged.diagnosis

    @property
    def card(self) -> Card:
        """The answer on one screen, as a value."""
        return self._judged.card

    def figure(self, which: Literal["roofline", "units"] = "roofline") -> Figure:
        """A picture of the launch's page as a `plotly.graph_objects.Figure`: the launch under its
        roofs, or how busy each unit was.

        Raises:
            ValueError: there is no such figure, or the report lacks the time, the work or the bytes
                that a roofline is drawn from.
        """
        from ncu_toolkit.base.render import figures
        from ncu_toolkit.kernel.explain.sections import roof_plot

        if which == "units":
            return figures.units(self.card)
        if which != "roofline":
            raise ValueError(f"a launch has the figures 'roofline' and 'units', not {which!r}")
        plot = roof_plot((self, self.card, self.diagnosis.bounds))
        if plot is None:
            raise ValueError("the report lacks what a roofline is drawn from: time, work or bytes")
        return figures.roofline(plot.pictures[0], self.card.kernel)

    @property
    def _answer(self) -> Answer:
        return _answer_of((self._judged,))


@dataclass(frozen=True)
class Report(_Shown):
    """The launches of one report, in file order. `damage` says where the bytes of one stop making
    sense that was read with `allow_partial`; `missing` what one lacks that can be read. Shows as
    its answer: `print(report)`, and in a notebook."""

    path: str
    profiles: tuple[KernelLaunch, ...]
    ncu_version: str = ""
    damage: str = ""
    missing: str = ""

    def __len__(self) -> int:
        return len(self.profiles)

    def __iter__(self) -> Iterator[KernelLaunch]:
        return iter(self.profiles)

    @overload
    def __getitem__(self, which: int) -> KernelLaunch: ...

    @overload
    def __getitem__(self, which: str | slice) -> Report: ...

    def __getitem__(self, which: int | str | slice) -> KernelLaunch | Report:
        """A launch by its place; by a kernel's name, or a slice, a report of those launches.

        Raises:
            IndexError, KeyError: there is no such launch.
        """
        if isinstance(which, int):
            return self.profiles[which]
        if isinstance(which, slice):
            return replace(self, profiles=self.profiles[which])
        found = tuple(
            each for each in self.profiles if which in (each.launch.function, each.launch.kernel)
        )
        if not found:
            from ncu_toolkit.base.core.units import shortlist

            names = list(dict.fromkeys(each.launch.function for each in self.profiles))
            raise KeyError(f"no kernel '{which}'; kernels are {shortlist(names, 10)}")
        return replace(self, profiles=found)

    def __repr__(self) -> str:
        return f"<Report of {len(self)} launches, from {self.path!r}>"

    @property
    def _answer(self) -> Answer:
        return _answer_of(self._judged)

    @property
    def _judged(self) -> tuple[LaunchResult, ...]:
        return tuple(each._judged for each in self.profiles)

    @property
    def _analysis(self) -> Analysis:
        from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, Options

        count = len(self)
        file = FileResult(
            self.path, self._judged, self.ncu_version, count, count, self.damage, self.missing
        )
        return Analysis((file,), Options(profiles=True))

    def diagnose(self) -> tuple[Diagnosis, ...]:
        """What limits each launch, in the order of the launches."""
        return tuple(each.diagnosis for each in self.profiles)

    def to_html(self, path: str | Path) -> Path:
        """Write the report's pages as one HTML file that holds everything; returns its path.

        Raises:
            ValueError: the report holds no launch.
            EnvironmentProblem: the file cannot be written.
        """
        from ncu_toolkit.kernel.pages.html import write_analysis
        from ncu_toolkit.program.analysis.reported import card_of

        if not self.profiles:
            raise ValueError("there is no launch to show")
        return write_analysis(self._analysis, Path(path), across=card_of)

    def needs(self, kernel: str = "", **given: Any) -> Report:
        """The report with what its launches must move and compute at the least: see
        `Profile.needs` for what can be given.

        Args:
            kernel: only for launches whose demangled name this regular expression is found in.

        Raises:
            ValueError: no launch matches, or as `Profile.needs`.
        """
        matching = [re.search(kernel, each.launch.kernel) is not None for each in self.profiles]
        if not any(matching):
            raise ValueError(f"no launch matches '{kernel}'")
        return replace(
            self,
            profiles=tuple(
                each.needs(**given) if matches else each
                for each, matches in zip(self.profiles, matching, strict=True)
            ),
        )

    def to_frame(self, table: Table = "launches") -> pandas.DataFrame:
        """A pandas table: one row per launch (with its verdict), a metric of a launch, or an
        instruction of a launch.

        A launch's verdict: `bottleneck` is its id and `title` its name; `predicted_speedup` with
        `speedup_low` and `speedup_high`, between which it lay in 80% of the cases on record;
        `confidence` is high, medium or low; `share` the launch's part (0-1) of the time of all;
        `line` the one that costs most, as `file:line`.

        Units are those of the registry: microseconds, bytes, B/s, Hz, fractions of 1. Columns are
        there also where a report has no such rows.

        Raises:
            ValueError: there is no such table.
        """
        from ncu_toolkit.kernel.analysis import frames

        if table not in get_args(Table):
            raise ValueError(
                f"there is no table '{table}'; tables are {', '.join(get_args(Table))}"
            )
        if table == "metrics":
            return frames.metrics_frame(self.profiles)
        if table == "instructions":
            return frames.instructions_frame(self.profiles)
        frame = frames.launches_frame(self.profiles)
        primaries = [verdict.primary for verdict in self.diagnose()]
        ends = [finding.interval or (None, None) for finding in primaries]
        cards = [each.card for each in self.profiles]
        total = frame["duration"].sum()
        more: dict[str, Any] = {
            "bottleneck": [finding.bottleneck for finding in primaries],
            "predicted_speedup": [finding.speedup for finding in primaries],
            "title": [card.title for card in cards],
            "speedup_low": [low for low, _ in ends],
            "speedup_high": [high for _, high in ends],
            "confidence": [finding.confidence for finding in primaries],
            "share": frame["duration"] / total if total else None,
            "line": [card.where[0].place if card.where else "" for card in cards],
        }
        return frame.assign(**more)


@dataclass(frozen=True)
class ProgramTrace(_Shown):
    """A program's trace with what costs its step. Shows as its answer: `print(trace)`, and in a
    notebook."""

    _result: TraceResult

    @property
    def path(self) -> str:
        return self._result.path

    @property
    def diagnosis(self) -> ProgramDiagnosis:
        """Findings, what was ruled out, and what all findings save together."""
        assert self._result.found is not None
        return self._result.found

    @property
    def job(self) -> Job | None:
        """Of several ranks: a row a rank, what they exchange, and what that costs; else None. The
        step is then that of the late rank, else of a usual one."""
        return self._result.job

    @property
    def trace(self) -> Trace:
        """What the GPUs and the host did, in nanoseconds."""
        return self.step.trace

    @property
    def step(self) -> Step:
        """The part of the program that repeats."""
        return self.diagnosis.step

    @property
    def account(self) -> Account:
        """The step's wall time by what it went to, in microseconds."""
        return self.diagnosis.account

    @property
    def findings(self) -> tuple[StepFinding, ...]:
        """What costs the step time, by what it saves and how sure it is."""
        return self.diagnosis.findings

    @property
    def _answer(self) -> Answer:
        from ncu_toolkit.program.analysis.program import answer_of

        return answer_of(self._result, flags=False)

    def __repr__(self) -> str:
        return f"<ProgramTrace of {self.step.launches} launches per step, from {self.path!r}>"

    def to_html(self, path: str | Path) -> Path:
        """Write the program's page as one HTML file that holds everything; returns its path.

        Raises:
            EnvironmentProblem: the file cannot be written.
        """
        from ncu_toolkit.program.pages.program_view import write_program_page

        name = Path(self.path).name
        return write_program_page(self.diagnosis, Path(path), self._result.known, name, self.job)

    def figure(self, which: Literal["icicle"] = "icicle") -> Figure:
        """Where the step's time goes, by range, operator and kernel, as a
        `plotly.graph_objects.Figure`. Raises ValueError for any other figure."""
        from ncu_toolkit.base.render import figures
        from ncu_toolkit.program.pages.program_view import program_view

        if which != "icicle":
            raise ValueError(f"a step has the figure 'icicle', not {which!r}")
        view = program_view(self.diagnosis, self._result.known, Path(self.path).name)
        return figures.icicle(view.icicle, self.account.wall_us, view.title)

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table, one row a kernel of the step with one grid and block: `kernel`, `class`,
        `grid`, `block`, `launches`, `time_us` (microseconds that nothing else accounts for),
        `share` of the step (0-1), `line`, and the `bottleneck` that a report gave it."""
        from ncu_toolkit.program.analysis.frames import step_frame
        from ncu_toolkit.program.explain.program import step_kernels

        return step_frame(step_kernels(self.step, self.account, self._result.known))


@overload
def load(path: str | Path, *, instructions: bool = True, allow_partial: bool = False) -> Report: ...


@overload
def load(path: str | Path, *, reports: Sequence[str | Path]) -> ProgramTrace: ...


def load(
    path: str | Path,
    *,
    instructions: bool = True,
    allow_partial: bool = False,
    reports: Sequence[str | Path] | None = None,
) -> Report | ProgramTrace:
    """Read a `.ncu-rep`, also packed (`.ncu-repz`, `.ncu-rep.xz`); or a program's trace, as a
    `ProgramTrace`: what Nsight Systems exports (`.sqlite`), what PyTorch's profiler exports
    (`.json`), or our own (`.ncu-trace`); or a folder with a trace of each rank of a job.

    Args:
        instructions: also read per-instruction counters and source; the verdicts are surer with
            them, and reading takes longer.
        allow_partial: read what is intact of a damaged file; `damage` of the result says where it
            breaks off.
        reports: reports of the traced program: what their counters say is joined to the trace's
            kernels. An empty list tells type checkers that `path` is a trace.

    Raises:
        InputProblem: the file is unreadable: no report and no trace, damaged, or without a launch.
            One that is incomplete is read: see `missing`, and the status of each launch. Of a trace,
            that a report is unreadable or of another program.
        EnvironmentProblem: NVIDIA's `ncu_report` module is missing.
    """
    from ncu_toolkit.base.core.files import may_be_trace

    if reports is not None or may_be_trace(Path(path)) or Path(path).is_dir():
        from ncu_toolkit.program.analysis.program import load_program, traces_among

        if reports is not None or Path(path).is_dir() or traces_among([Path(path)]):
            return ProgramTrace(load_program(Path(path), [Path(each) for each in reports or ()]))
    from ncu_toolkit.kernel.report import reader

    report = reader.load_report(path, instructions=instructions, allow_partial=allow_partial)
    launches = tuple(KernelLaunch(**vars(profile)) for profile in report.profiles)
    return Report(report.path, launches, report.ncu_version, report.damage, report.missing)


@dataclass(frozen=True)
class ReportComparison(_Shown):
    """What changed between two reports; shows as `ncu-toolkit compare` does: `print(comparison)`,
    and in a notebook."""

    comparison: Comparison

    @cached_property
    def _answer(self) -> Answer:
        from ncu_toolkit.kernel.analysis import answers

        return answers.of_comparison(self.comparison)

    def __repr__(self) -> str:
        from ncu_toolkit.base.core.units import counted

        return f"<ReportComparison of {counted(len(self.comparison.pairs), 'kernel')}>"

    def to_html(self, path: str | Path) -> Path:
        """Write the comparison as one HTML file that holds everything; returns its path.

        Raises:
            EnvironmentProblem: the file cannot be written.
        """
        from ncu_toolkit.kernel.pages.html import write_answer

        return write_answer(self._answer, "Comparison", Path(path))

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table, one row a kernel: `kernel`, `old_us` and `new_us` (medians in
        microseconds), `change` and `noise` (fractions of the old time), `old_bottleneck`,
        `new_bottleneck`, and in `problem` why the two cannot be compared."""
        from ncu_toolkit.kernel.analysis import frames

        return frames.comparison_frame(self.comparison)


@dataclass(frozen=True)
class TraceComparison(ReportComparison):
    """What changed between two traces of a program; shows as `ncu-toolkit compare` does."""

    steps: tuple[StepChange, ...]
    """Each step with its account on both sides, what went and came, and what was predicted."""

    @cached_property
    def _answer(self) -> Answer:
        from ncu_toolkit.program.analysis import changes

        return changes.answer_of(self.comparison, self.steps)

    def __repr__(self) -> str:
        return f"<TraceComparison of {self.comparison.pairs[0].name!r}>"

    def to_frame(self) -> pandas.DataFrame:
        """A pandas table, one row a part of a step's account: `step`, `part`, `old_us` and `new_us`
        (microseconds of the step), and `change_us`."""
        from ncu_toolkit.program.analysis import frames

        return frames.changes_frame(self.steps)


@overload
def compare(old: ProgramTrace, new: ProgramTrace) -> TraceComparison: ...


@overload
def compare(
    old: Report | str | Path,
    new: Report | str | Path,
    *,
    pair: tuple[str, str] | Sequence[tuple[str, str]] = (),
) -> ReportComparison: ...


def compare(
    old: Report | ProgramTrace | str | Path,
    new: Report | ProgramTrace | str | Path,
    *,
    pair: tuple[str, str] | Sequence[tuple[str, str]] = (),
) -> ReportComparison:
    """What changed from one report to another: launches paired by kernel, grid and block, then by
    name. Of two traces of a program, what changed in its step, as a `TraceComparison`.

    Args:
        pair: kernels to compare by hand, before all others: `("matmul", "matmul_v2")`, or several
            such pairs. Names with or without arguments.

    Raises:
        InputProblem, EnvironmentProblem: as `load`. InputProblem too where the reports have no kernel
            in common, where `pair` names one that is not there, where one side is a trace and the
            other is none, and where traces are of two programs.
    """
    from ncu_toolkit.base.core.errors import InputProblem
    from ncu_toolkit.kernel.analysis import gate

    one, other = (load(each) if isinstance(each, str | Path) else each for each in (old, new))
    if isinstance(one, ProgramTrace) and isinstance(other, ProgramTrace):
        from ncu_toolkit.program.analysis import changes, program

        before, after = (program.Programs((each._result,)) for each in (one, other))
        return TraceComparison(*changes.compare_programs(before, after))
    if isinstance(one, ProgramTrace) or isinstance(other, ProgramTrace):
        what = "one is a trace of a program, and the other is not"
        raise InputProblem(what, "Compare two traces, or two reports")
    sides = [gate.sides_of(each._analysis) for each in (one, other)]
    named = [(pair[0], pair[1])] if pair and isinstance(pair[0], str) else list(pair)
    found = gate.compare(sides[0], sides[1], named=named)  # type: ignore[arg-type]
    if not found.pairs:
        near = found.likely or ("OLD", "NEW")
        raise InputProblem(
            "the reports have no kernel in common",
            f"Kernels are paired by name. Name two with pair=({near[0]!r}, {near[1]!r})",
        )
    return ReportComparison(found)


def _answer_of(launches: tuple[LaunchResult, ...]) -> Answer:
    from ncu_toolkit.kernel.analysis import answers
    from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult
    from ncu_toolkit.program.analysis.reported import across

    file = FileResult("", launches, read=len(launches))
    return answers.of_analysis(Analysis((file,)), flags=False, across=partial(across, flags=False))


def _in_python(shown: Answer) -> Answer:
    """An answer whose next steps are calls where this package has them: `profile` stays a command."""
    cards = tuple(replace(card, next=_call(card.next)) for card in shown.cards)
    return replace(shown, cards=cards, next=_call(shown.next))


def _call(command: str) -> str:
    import shlex

    words = shlex.split(command)
    if words[:2] == ["ncu-toolkit", "compare"]:
        return f"ncu_toolkit.compare({words[2]!r}, {words[3]!r})"
    if words[:2] == ["ncu-toolkit", "analyze"]:
        file = next(word for word in words[2:] if not word.startswith("-"))
        return f"ncu_toolkit.load({file!r}).to_html('report.html')"
    return command


class Range(contextlib.ContextDecorator):
    """A named stretch of a program that is to be profiled; made by `profile`. May be nested and
    entered again and again."""

    _depth = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: list[_Library | None] = []

    def __enter__(self) -> Range:
        library = find_library()
        if library is not None and Range._depth == 0:
            library.start()
        if library is not None:
            library.push(self.name)
        Range._depth += 1
        self._open.append(library)
        return self

    def __exit__(self, *_: object) -> None:
        library = self._open.pop()
        Range._depth -= 1
        if library is None:
            return
        library.pop()
        if Range._depth == 0:
            library.stop()


@dataclass(frozen=True)
class _Library:
    """How the imported GPU library marks profiler ranges and NVTX ranges."""

    start: Callable[[], object]
    stop: Callable[[], object]
    push: Callable[[str], object]
    pop: Callable[[], object]


def find_library() -> _Library | None:
    """The GPU library that the program has imported: PyTorch, CuPy or Numba, else the driver
    itself; None without a GPU driver.

    Waiting for the GPU before the range ends is part of `stop`, so that launches still queued
    belong to the range."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and torch.cuda.is_available():
        runtime, nvtx = torch.cuda.cudart(), torch.cuda.nvtx
        return _Library(
            runtime.cudaProfilerStart,
            lambda: (torch.cuda.synchronize(), runtime.cudaProfilerStop()),
            nvtx.range_push,
            nvtx.range_pop,
        )
    if cupy is not None and cupy.cuda.is_available():
        profiler, nvtx = cupy.cuda.profiler, cupy.cuda.nvtx
        return _Library(
            profiler.start,
            lambda: (cupy.cuda.Device().synchronize(), profiler.stop()),
            nvtx.RangePush,
            nvtx.RangePop,
        )
    return _driver()


def _driver() -> _Library | None:
    """The CUDA driver's own profiler calls, for JAX, Numba and others; it has no NVTX."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None

    return _Library(
        driver.cuProfilerStart,
        lambda: (driver.cuCtxSynchronize(), driver.cuProfilerStop()),
        lambda _: None,
        lambda: None,
    )


@overload
def profile(what: F) -> F: ...


@overload
def profile(what: str = "") -> Range: ...


def profile(what: Any = "") -> Any:
    """Mark what `ncu-toolkit profile -- python script.py` profiles: `@profile`, `@profile("name")`
    or `with profile("name"):`.

    Opens an NVTX range of that name between profiler start and stop, through PyTorch or CuPy where
    one is imported, else through the driver. Without ncu, or without a GPU, the program runs as
    before."""
    if callable(what):
        return Range(getattr(what, "__qualname__", "range"))(what)
    return Range(str(what) or "range")


@contextlib.contextmanager
def step() -> Iterator[None]:
    """Mark a step of the program, as `with ncu_toolkit.step():` around the body of its loop, or
    `@ncu_toolkit.step()`. `ncu-toolkit profile` and Nsight Systems then know where steps begin.

    Opens an NVTX range through PyTorch, CuPy or the `nvtx` package where one is imported, else
    through NVIDIA's NVTX library where one is found; else it does nothing."""
    nvtx = _nvtx()
    if nvtx is not None:
        nvtx[0](STEP_RANGE)
    try:
        yield
    finally:
        if nvtx is not None:
            nvtx[1]()


def _nvtx() -> tuple[Callable[[str], object], Callable[[], object]] | None:
    """What opens and closes an NVTX range."""
    torch, cupy, nvtx = (sys.modules.get(name) for name in ("torch", "cupy", "nvtx"))
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    if cupy is not None and cupy.cuda.is_available():
        return cupy.cuda.nvtx.RangePush, cupy.cuda.nvtx.RangePop
    if nvtx is not None:
        return nvtx.push_range, nvtx.pop_range
    return _nvtx_library()


@lru_cache(maxsize=1)
def _nvtx_library() -> tuple[Callable[[str], object], Callable[[], object]] | None:
    import ctypes

    names = ("libnvtx3interop.so.1", "libnvtx3interop.so", "libnvToolsExt.so.1")
    installed = ("nvidia/cu13/lib", "nvidia/nvtx/lib")
    paths = [
        Path(entry) / part / name for entry in sys.path for part in installed for name in names
    ]
    for path in (*(str(path) for path in paths if path.is_file()), *names):
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(path)
            return _pushing(library.nvtxRangePushA), library.nvtxRangePop
    return None


def _pushing(push: Callable[[bytes], object]) -> Callable[[str], object]:
    return lambda name: push(name.encode())


def profile_program(
    command: Sequence[str],
    *,
    output: str | Path = "reports",
    launches: int = 0,
    steps: int = 0,
    seconds: float = 0.0,
    lines: bool = True,
    timeout: float = 1800.0,
) -> ProgramTrace:
    """Record a program, find its step and profile the kernels that its time goes to, as
    `ncu-toolkit profile -- COMMAND` does. The trace, the report and their pages lie in a new folder
    under `output`. Where ncu cannot profile, the trace answers alone, and a note says why.

    Args:
        command: the program and its arguments, `["python", "train.py"]`. It runs twice.
        launches: launches that are profiled at most; 0: 24, or fewer where the whole would take more
            than three times the program and 30 s.
        steps: end the recorded program after this many steady steps; 0: let it run.
        seconds: end the recorded program after this many seconds; 0: let it run.
        lines: also record the Python line of each launch (Python 3.12), and samples of Python's stacks.
        timeout: seconds that ncu has.

    Raises:
        UsageProblem: there is no such program, or it launches no kernel.
        EnvironmentProblem: nothing can be recorded here: no C compiler, no CUPTI.
    """
    from ncu_toolkit.kernel.gpu import collect
    from ncu_toolkit.program.pages.step_page import publish_step
    from ncu_toolkit.program.recording import program_run, recorder, step_run

    words = (command,) if isinstance(command, str) else tuple(command)
    program_run.check(words, "")
    options = recorder.RecordOptions(lines=lines, samples=lines, seconds=seconds)
    job = step_run.StepJob(
        collect.Request(command=words), Path(output), timeout, record=options, launches=launches, steps=steps
    )  # fmt: skip
    done = step_run.profile_step(job)
    made = publish_step(done, job.reports)
    failed = [done.problem, *(done.session.failures if done.session else ())]
    notes = tuple(str(each) for each in failed if each is not None)
    return ProgramTrace(replace(made.result, notes=(*made.result.notes, *notes)))
