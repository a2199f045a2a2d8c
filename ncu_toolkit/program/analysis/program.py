"""Traces of programs, alone or beside reports of the same program: read, joined, judged.

A report's launch is joined to a trace's by its whole name, grid and block; by its function's name
where that leaves one choice. Nothing is left out in silence: traces that cannot be read, and reports
that are of another program, are part of the result."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from ncu_toolkit.base.core import workers
from ncu_toolkit.base.core.cache import without_collector
from ncu_toolkit.base.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INPUT,
    EXIT_OK,
    EnvironmentProblem,
    InputProblem,
    ToolkitError,
    for_user,
)
from ncu_toolkit.base.core.files import may_be_trace, named_like_traces
from ncu_toolkit.base.core.safe import shell_word, visible
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.core.units import shortlist
from ncu_toolkit.base.document.views import CARDS, TOP, Answer, distinct_names
from ncu_toolkit.base.model import Diagnosis, Launch, Profile
from ncu_toolkit.base.model.profile import Extents
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.analysis.analyze import analyze as analyze_reports
from ncu_toolkit.program.analysis.trial import load_trial
from ncu_toolkit.program.diagnosis import diagnose_program, for_caller, with_trial
from ncu_toolkit.program.explain.program import Known, of_step_finding, program_answer
from ncu_toolkit.program.explain.ranks import job_answer
from ncu_toolkit.program.explain.trial import tried_lines
from ncu_toolkit.program.model import ProgramDiagnosis, Step, Trace
from ncu_toolkit.program.rules._ranks import diagnosed
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.files import is_trace, is_trace_inside, read_trace
from ncu_toolkit.program.traces.ranks import Job, RankRow, Timeline, job_of, split, timeline
from ncu_toolkit.program.traces.step import find_step

#: Calls a function of each file elsewhere.
OnWorkers = Callable[[Callable[[str], Timeline | None], Sequence[str]], Sequence[Timeline | None]]
#: Ranks' traces that are read at once at most: a worker takes 200 MB for one of 100,000 events.
_AT_ONCE: Final = 8
_TRACES: Final = "Name what `nsys export --type sqlite` or PyTorch's export_chrome_trace wrote"
#: What ends the names of reports and traces.
_KIND: Final = re.compile(
    r"(\.ncu-rep(\.xz|z)?|\.ncu-trace|\.sqlite|(\.pt)?(\.trace)?\.json(\.gz)?)$"
)
#: A cast before a number in a list of templates' arguments, which not all demanglers write.
_CAST: Final = re.compile(r"\((?:unsigned )?(?:int|long|bool|char|short)\)(?=[-\d])")
#: What else demanglers write differently: tags of an ABI, numbers of lambdas and of types, parameters, and "void".
_TAG: Final = re.compile(r"\[abi:[^\]]*\]")
_INSTANCE: Final = re.compile(r" \(instance (\d+)\)")
_SUFFIX: Final = re.compile(r"\b(\d+)(?:ul|u|l)\b")
_PARENTHESES: Final = re.compile(r"\([^()]*\)")
_VOID: Final = re.compile(r"\bvoid (?=[\w:])|\bconst\b")
#: Name, grid and block.
_Key = tuple[str, Extents | None, Extents | None]


@dataclass(frozen=True)
class TraceResult:
    """One trace: what was found, or why it could not be read."""

    path: str
    found: ProgramDiagnosis | None = None
    known: Known = field(default_factory=dict)
    """What the reports next to it say of its kernels, by place in `Trace.shapes`."""
    notes: tuple[str, ...] = ()
    """What was tried, a sentence each."""
    error: ToolkitError | None = None
    job: Job | None = None
    """Of several ranks: what they exchange and wait for. `found` is then of the late rank, else of a
    usual one, and `path` that of a folder where each rank has its trace."""


@dataclass(frozen=True)
class Programs:
    """Traces in the order in which they were named, and the reports next to them."""

    traces: tuple[TraceResult, ...]
    reports: analyze.Analysis = field(default_factory=lambda: analyze.Analysis(()))
    strangers: tuple[InputProblem, ...] = ()
    """Of each report of which no launch is in a trace."""
    alone: analyze.Analysis | None = None
    """Reports of a folder that belong to none of its traces."""

    @property
    def found(self) -> tuple[tuple[TraceResult, ProgramDiagnosis], ...]:
        """Traces that could be read, each with what was found."""
        return tuple((each, each.found) for each in self.traces if each.found is not None)

    @property
    def errors(self) -> list[ToolkitError]:
        return [each.error for each in self.traces if each.error is not None]

    @property
    def exit_code(self) -> int:
        """As `Analysis.exit_code`, of traces and the reports next to them."""
        if any(isinstance(error, EnvironmentProblem) for error in self.errors):
            return EXIT_ENVIRONMENT
        if self.errors or self.strangers:
            return EXIT_INPUT
        return self.reports.exit_code if self.reports.files else EXIT_OK

    @property
    def faults(self) -> list[str]:
        """As `Analysis.faults`, of traces and the reports next to them."""
        lines = [*(f"unreadable: {error}" for error in self.errors), *map(str, self.strangers)]
        return lines + (self.reports.faults if self.reports.files else [])


def traces_among(paths: Iterable[Path]) -> list[Path]:
    """The paths that are traces; folders are none."""
    return [path for path in paths if may_be_trace(path) and is_trace(path)]


def traces_inside(folders: Iterable[Path]) -> list[Path]:
    """The traces in folders and below, in order."""
    named = (path for each in folders if os.path.isdir(each) for path in named_like_traces(each))
    return [path for path in named if is_trace_inside(path)]


def _of(report: Path, traces: Sequence[Path]) -> tuple[Path | None, bool]:
    """The trace to which a report of a folder belongs, and whether by its name: the one that is named
    like it, else the only one in that folder."""
    beside = [path for path in traces if path.parent == report.parent]
    alike = [path for path in beside if _stem(path) == _stem(report)]
    if alike:
        return alike[0], True
    return (beside[0], False) if len(beside) == 1 else (None, False)


def _stem(path: Path) -> str:
    """A file's name without what says that it is a report or a trace."""
    return _KIND.sub("", path.name.lower())


def judged(
    trace: Trace, path: str, reports: analyze.Analysis, joined: set[str] | None = None
) -> TraceResult:
    """What costs a trace's step, with the reports joined to it; theirs are added to `joined`.

    Raises:
        InputProblem: the trace holds no kernel.
    """
    known = join(trace, reports, joined)
    ranks = split(trace)
    if len(ranks) > 1:
        steps = [find_step(each) for each in ranks]
        job = job_of([timeline(each, path) for each in steps], path)
        if job is not None:
            job = diagnosed(job, lambda row: _found(steps[row.rank], known))
            return TraceResult(path, job.shown[0][1], known, job=job)
    return TraceResult(path, _found(find_step(trace, f"'{path}'"), known), known)


def _found(step: Step, known: Known) -> ProgramDiagnosis:
    return diagnose_program(step, account_of(step), known)


def rank_timeline(path: str) -> Timeline | None:
    """What is kept of a rank's trace; None where it cannot be read, or no collective is in it."""
    try:
        with without_collector():
            trace = read_trace(Path(path))
        found = timeline(find_step(trace, f"'{path}'"), path)
    except (ToolkitError, OSError, MemoryError):
        return None
    return found if len(found.times) else None


def _job_inside(
    folder: Path, traces: Sequence[Path], timeout: float, elsewhere: OnWorkers | None
) -> TraceResult | None:
    """The job whose ranks each have a trace in a folder; None where these are no ranks of one. Ranks
    are read one after another by workers that keep little of them."""
    by_name = sorted(traces, key=lambda path: [int(x) if x.isdigit() else x for x in re.split(r"(\d+)", str(path))])  # fmt: skip
    first, *others = by_name
    known = rank_timeline(str(first))
    if known is None:
        return None
    if elsewhere is not None:
        theirs = elsewhere(rank_timeline, [os.path.abspath(path) for path in others])
        rest = [replace(each, path=str(path)) for each, path in zip(theirs, others, strict=True) if each]  # fmt: skip
    else:
        done = workers.run(
            f"{__name__}:rank_timeline", [(str(path),) for path in others], jobs=min(len(others), workers.default_jobs(), _AT_ONCE),
            timeout=timeout, label=lambda at: f"'{others[at]}'",
        )  # fmt: skip
        rest = [each.value for each in sorted(done, key=lambda each: each.index) if each.value]
    lines = [known, *rest]
    # two recordings of one rank look like a job: traces that do not say their rank have numbers for it
    if any(each.rank < 0 for each in lines) and len({re.sub(r"\d+", "", Path(each.path).name) for each in lines}) > 1:  # fmt: skip
        return None
    job = job_of(lines, str(folder))
    if job is None:
        return None

    def judge(row: RankRow) -> ProgramDiagnosis:
        return _found(find_step(read_trace(Path(row.path)), f"'{row.path}'"), {})

    job = diagnosed(job, judge)
    return TraceResult(str(folder), job.shown[0][1], job=job)


def analyze_programs(
    paths: Sequence[Path],
    options: analyze.Options | None = None,
    *,
    jobs: int | None = None,
    timeout: float = analyze.DEFAULT_TIMEOUT,
    progress: analyze.Progress | None = None,
    elsewhere: OnWorkers | None = None,
) -> Programs:
    """Read and judge traces, with the reports among `paths` joined to them.

    Args:
        elsewhere: reads the ranks of a job, on the workers of a cluster.
        timeout: seconds for one file; in another thread than the main one for a report alone.

    Raises:
        UsageProblem: as `analyze`.
    """
    options = replace(options or analyze.Options(), profiles=True)
    folders = [path for path in paths if os.path.isdir(path)]
    inside = traces_inside(folders)
    traces = dict.fromkeys((*traces_among(paths), *inside))
    # a folder of traces alone lacks no reports
    bare = {path for path in folders if inside and not analyze.find_reports([path])[0]}
    others = [path for path in paths if path not in traces and path not in bare]
    reports = analyze.Analysis((), options)
    if others:
        reports = analyze_reports(others, options, jobs=jobs, timeout=timeout, progress=progress)
    # a report that was named is looked for in each trace, one of a folder in its own
    named = {str(path) for path in others}
    own = {
        each.path: _of(Path(each.path), inside) for each in reports.files if each.path not in named
    }
    joined: set[str] = set()
    results = []
    for folder in [] if others else folders:
        ranks = [path for path in traces if folder in path.parents]
        if len(ranks) > 1 and (job := _job_inside(folder, ranks, timeout, elsewhere)):
            results.append(job)
            used = {row.path for row in job.job.rows} if job.job else set()
            traces = {path: None for path in traces if str(path) not in used}
    for path in traces:
        there = [each for each in reports.files if own.get(each.path, (path,))[0] == path]
        results.append(_read(path, replace(reports, files=tuple(there)), joined, timeout))
        if progress is not None:
            progress(str(path), 1, 1, None)
    readable = {each.path: each for each in results if each.found is not None}
    strangers, alone = [], []
    for file in reports.files:
        if not file.launches or file.path in joined or not readable:
            continue
        trace, by_name = own.get(file.path, (None, True))
        if by_name and (trace is None or str(trace) in readable):
            asked = [*readable.values()] if trace is None else [readable[str(trace)]]
            strangers.append(_stranger(file, asked))
        else:
            alone.append(file)
    left = replace(reports, files=tuple(alone)) if alone else None
    return Programs(tuple(results), reports, tuple(strangers), left)


def _read(path: Path, reports: analyze.Analysis, joined: set[str], timeout: float) -> TraceResult:
    """One trace; the reports with launches of it are added to `joined`."""
    late = InputProblem(
        f"'{path}' did not finish within {timeout:.0f} s", "Allow more time with --timeout"
    )
    try:
        with workers.time_limit(timeout, late):
            return _with_trial(judged(read_trace(path), str(path), reports, joined), path)
    except (ToolkitError, OSError, MemoryError) as error:
        return TraceResult(str(path), error=for_user(error))


def _with_trial(result: TraceResult, path: Path) -> TraceResult:
    """With what was tried of the program, where that is next to its trace."""
    try:
        trial = load_trial(path)
    except InputProblem as error:
        return replace(result, notes=(*result.notes, f"What was tried is left out: {error}"))
    if trial is None or result.found is None:
        return result
    found = with_trial(result.found, trial)
    return replace(result, found=found, notes=(*result.notes, *tried_lines(trial)))


def join(trace: Trace, reports: analyze.Analysis, joined: set[str] | None = None) -> Known:
    """What reports say of a trace's kernels.

    Of launches alike the typical one stands for all. A report of another GPU is not joined."""
    gpus = _gpus(trace)
    known: dict[int, tuple[Profile, Diagnosis]] = {}
    for file in reports.files:
        groups = [group for group in reports.judged if group.typical.file == file.path]
        own = {re.sub(r" \(GPU \d+\)$", "", group.typical.gpu) for group in groups}
        if gpus and gpus.isdisjoint(own):
            continue
        found = _matches(trace.shapes, groups)
        for at, group in found.items():
            if (profile := group.typical.profile) is not None:
                verdict = group.typical.diagnosis
                if trace.timed:  # of a report alone the reader may be the library's author
                    verdict = for_caller(verdict, trace.shapes[at])
                known.setdefault(at, (profile, verdict))
        if found and joined is not None:
            joined.add(file.path)
    return known


def _gpus(trace: Trace) -> set[str]:
    """Names of the trace's GPUs, as far as it tells them."""
    names = {device.name for device in trace.devices}
    return {name for name in names if name and not name.startswith("an unknown")}


def _matches(
    shapes: Sequence[Launch], groups: Sequence[analyze.Group]
) -> Mapping[int, analyze.Group]:
    """The group of each shape, by its place."""

    def by_key(name_of: Callable[[Launch], str], each: Iterable[Launch]) -> dict[_Key, list[int]]:
        """Places of launches by name, grid and block."""
        keys = [(name_of(launch), launch.grid, launch.block) for launch in each]
        return grouped(range(len(keys)), keys.__getitem__)

    found: dict[int, analyze.Group] = {}
    known = [(group, each.launch) for group in groups if (each := group.typical.profile)]
    for name_of, alone in ((_signature, False), (_skeleton, True), (attrgetter("function"), True)):
        theirs = by_key(name_of, (launch for _, launch in known))
        for key, places in by_key(name_of, shapes).items():
            alike = theirs.get(key, [])
            if alike and not (alone and len(places) * len(alike) > 1):
                for at in places:
                    found.setdefault(at, known[alike[0]][0])
    return found


def _signature(launch: Launch) -> str:
    """A kernel's demangled name as all demanglers would write it."""
    name = _CAST.sub("", launch.kernel.removeprefix("void "))
    return "".join(name.replace("<unnamed>", "(anonymous namespace)").split())


def _skeleton(launch: Launch) -> str:
    """The same without what demanglers write each in their way: parameters, return types, and
    values of types."""
    name = launch.kernel.replace("<unnamed>", "").replace("(anonymous namespace)", "")
    name = _TAG.sub("", name)
    name = _INSTANCE.sub(r"#\1", name).replace("[", "{").replace("]", "}")
    name = name.replace("(bool)0", "false").replace("(bool)1", "true")
    name = _SUFFIX.sub(r"\1", _CAST.sub("", name))
    before = ""
    while before != name:
        before, name = name, _PARENTHESES.sub("", name)
    return "".join(_VOID.sub("", name).split())


def _stranger(file: analyze.FileResult, traces: Sequence[TraceResult]) -> InputProblem:
    names = shortlist([f"'{each.path}'" for each in traces], 2)
    gpus = {name for each in traces if each.found for name in _gpus(each.found.step.trace)}
    gpu = file.launches[0].gpu
    why = f" (it is of {gpu})" if gpus and gpu not in gpus else ""
    return InputProblem(
        f"'{file.path}' has no launch of {names}{why}",
        "Name a report of the same program, or analyze it alone",
    )


def load_program(path: Path, reports: Sequence[Path] = ()) -> TraceResult:
    """One trace with reports of its program.

    Raises:
        InputProblem: one of them cannot be read, or a report is of another program.
    """
    if not traces_among([path]) and len(traces_inside([path])) < 2:
        raise InputProblem(f"'{path}' is not a trace that can be read", _TRACES)
    programs = analyze_programs([path, *reports], analyze.Options())
    theirs = (file.error for file in programs.reports.unreadable)
    for error in filter(None, (*programs.errors, *theirs, *programs.strangers)):
        raise error
    return programs.traces[0]


def answers_of(programs: Programs, top: int | None = None, *, page: bool = True) -> list[Answer]:
    """The answer of each trace that could be read. `page`: with the command that writes its page."""
    names = distinct_names([each.path for each in programs.traces])
    found = []
    for each, _ in programs.found:
        shown = answer_of(each, top, page=page)
        headline = ": ".join(filter(None, (names[each.path], shown.headline)))
        found.append(replace(shown, headline=headline))
    return found


def finding_answers(each: TraceResult) -> tuple[Answer, ...]:
    """An answer to each finding of a trace that could be read: those with a card of `answer_of`."""
    assert each.found is not None
    if each.job is not None:
        cards = job_answer(each.job, cards=len(each.job.findings)).cards
        return tuple(Answer("", cards=(card,)) for card in cards)
    return tuple(of_step_finding(each.found, finding) for finding in each.found.costly)


def answer_of(
    each: TraceResult,
    top: int | None = None,
    cards: int = CARDS,
    *,
    flags: bool = True,
    page: bool = True,
) -> Answer:
    """The answer of a trace that could be read."""
    assert each.found is not None
    command = f"ncu-toolkit analyze {shell_word(each.path)} --format html" if page else ""
    if each.job is not None:
        answer = job_answer(each.job, cards=cards, next_command=command)
    else:
        answer = program_answer(
            each.found, each.known, top=top or TOP, cards=cards, next_command=command, flags=flags
        )
    return replace(answer, notes=(*answer.notes, *map(visible, each.notes)))
