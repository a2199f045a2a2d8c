"""Reports and traces below a root, each analysed once for each content.

An answer comes from one content of a file: it is copied with its SHA-256, and ids begin with that.
A report that is replaced gets other ids; what was analysed before is kept for a while."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ncu_toolkit.base.core import workers
from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.base.core.files import may_be_trace
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.views import TOP, Answer
from ncu_toolkit.base.model import Finding
from ncu_toolkit.guests.mcp.root import Content, Root
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, LaunchResult, Options

if TYPE_CHECKING:
    from ncu_toolkit.program.analysis.program import TraceResult

#: Seconds for one report.
TIMEOUT: Final = 120.0
#: Reports that are kept, and those that are kept with their profiles, which comparing needs.
_KEPT: Final = 32
_WHOLE: Final = 4
#: Reports that are read at once; each takes as many processes as there are processors.
_AT_ONCE: Final = 2
#: What the id of a finding of a step begins with, after that of its trace.
STEP: Final = "step."
#: Hexadecimal digits of a report's id.
_ID: Final = 10
#: Name, SHA-256, and whether profiles are kept.
_Key = tuple[str, str, bool]


@dataclass(frozen=True)
class ServedProgram:
    """The answer to a program's step, and one to each of its findings in the order of the answer's
    cards. No more of the trace is kept."""

    answer: Answer
    findings: tuple[Answer, ...]


@dataclass(frozen=True)
class ServedReport:
    """One content of a report. `id` comes from its SHA-256, other ids from places in it."""

    id: str
    name: str
    analysis: Analysis
    program: ServedProgram | None = None
    """Of a trace: its answer; the analysis is then empty."""

    def launch_id(self, launch: LaunchResult) -> str:
        return f"{self.id}/{launch.key}"

    def finding_id(self, launch: LaunchResult, finding: Finding) -> str:
        return f"{self.launch_id(launch)}/{_cause(finding)}"


def read(path: str, options: Options, timeout: float) -> FileResult | ServedProgram:
    """One report or trace, or a folder of a job's, in a worker that has one thread, so that its own
    workers are forks."""
    if Path(path).is_dir():
        from ncu_toolkit.program.analysis import program

        found = program.load_program(Path(path))
        if found.job is None:
            raise InputProblem(
                "the traces in this folder are not of the ranks of one job", "Name one of them"
            )
        return _program(found)
    if may_be_trace(Path(path)):
        from ncu_toolkit.program.analysis import program

        if program.traces_among([Path(path)]):
            return _program(program.load_program(Path(path)))
    return analyze.analyze([Path(path)], options, timeout=timeout).files[0]


def _program(read: TraceResult) -> ServedProgram:
    from ncu_toolkit.program.analysis.program import answer_of, finding_answers

    each = finding_answers(read)
    shown = answer_of(read, cards=max(1, len(each)), top=max(TOP, len(each)), flags=False)
    return ServedProgram(shown, each)


class Reports:
    """The reports below a root. Safe to use from several threads.

    Make it while this process has one thread: its first worker is then a fork that is ready when
    the first report comes."""

    def __init__(self, root: Root, timeout: float = TIMEOUT) -> None:
        self.root, self._timeout = root, timeout
        self._names: dict[int, str] = {}
        self._pool = workers.WorkerPool(
            "ncu_toolkit.guests.mcp.reports:read", timeout, lambda n: f"'{self._names.get(n, '')}'"
        )
        self._pool.fork(1, analyze.prepare)
        self._readers = ThreadPoolExecutor(_AT_ONCE, "reader")
        self._kept: OrderedDict[_Key, Future[ServedReport]] = OrderedDict()
        self._lock = threading.Lock()
        self._copying = threading.Lock()

    def close(self) -> None:
        self._pool.close()
        self._readers.shutdown(cancel_futures=True)
        self.root.close()

    def load(self, path: str, *, profiles: bool = False) -> ServedReport:
        """A report as its file is now.

        Raises:
            ToolkitError: it is outside the root, or cannot be read.
        """
        name = self.root.name(path)
        known = self.root.digest(name)
        found = self._get((name, known, profiles)) if known else None
        if found is not None:
            return found.result()
        with contextlib.ExitStack() as held:
            with self._copying:
                content = held.enter_context(self.root.copied(name))
                key = (name, content.digest, profiles)
                found = self._get(key)
                if found is None:
                    found = self._readers.submit(self._read, content, profiles)
                    self._keep(key, found)
                else:
                    held.close()
            try:
                return found.result()
            except Exception:
                self._drop(key, found)
                raise

    def launch(self, name: str) -> tuple[ServedReport, LaunchResult]:
        """The launch of that id.

        Raises:
            UsageProblem: there is none in the reports that were read.
        """
        number, _, key = name.partition("/")
        for report in self._done():
            if report.id == number:
                for launch in report.analysis.launches:
                    if launch.key == key:
                        return report, launch
        raise UsageProblem(
            f"there is no launch '{visible(name, 80)}'",
            "Ids come from `analyze`; call it again where the server was restarted",
        )

    def finding(self, name: str) -> tuple[ServedReport, LaunchResult, Finding]:
        """The finding of that id. Raises as `launch`."""
        place, _, cause = name.rpartition("/")
        report, launch = self.launch(place)
        for finding in launch.diagnosis.findings:
            if _cause(finding) == cause:
                return report, launch, finding
        known = ", ".join(map(_cause, launch.diagnosis.findings))
        raise UsageProblem(
            f"launch '{visible(place, 80)}' has no finding '{visible(cause, 80)}'",
            f"Its findings are {known}",
        )

    def step_finding(self, name: str) -> tuple[ServedReport, Answer] | None:
        """The finding of a step of that id; None where the id is none of a trace."""
        number, _, key = name.partition("/")
        for report in self._done():
            if report.id == number and report.program is not None:
                for at, each in enumerate(report.program.findings):
                    if key.partition("/")[0] == f"{STEP}{at}":
                        return report, each
        return None

    def _done(self) -> list[ServedReport]:
        """What was read, the latest first."""
        with self._lock:
            done = [each for each in self._kept.values() if each.done() and not each.exception()]
        return [each.result() for each in reversed(done)]

    def _get(self, key: _Key) -> Future[ServedReport] | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _keep(self, key: _Key, found: Future[ServedReport]) -> None:
        """Keep a report, and forget those that were asked for longest ago."""
        with self._lock:
            self._kept[key] = found
            whole = [each for each in self._kept if each[2]]
            for old in [*whole[:-_WHOLE], *list(self._kept)[:-_KEPT]]:
                self._kept.pop(old, None)

    def _drop(self, key: _Key, failed: Future[ServedReport]) -> None:
        with self._lock:
            if self._kept.get(key) is failed:
                del self._kept[key]

    def _read(self, content: Content, profiles: bool) -> ServedReport:
        options = Options(profiles=profiles)
        number = threading.get_ident()
        self._names[number] = content.name
        done = self._pool.do(number, (str(content.copy), options, self._timeout))
        if isinstance(done.value, ServedProgram):
            return ServedReport(
                content.digest[:_ID], content.name, Analysis((), options), done.value
            )
        file: FileResult = done.value if done.error is None else FileResult("", error=done.error)
        file = _renamed(file, content)
        if file.error is not None:
            raise file.error
        return ServedReport(content.digest[:_ID], content.name, Analysis((file,), options))


def _cause(finding: Finding) -> str:
    return visible(finding.bottleneck, 80)


def _renamed(file: FileResult, content: Content) -> FileResult:
    """The file's result with its own name instead of its copy's."""
    folder = str(content.copy)[: -len(content.name)]

    def plain(text: str) -> str:
        return text.replace(f"{folder}-", "./-").replace(folder, "")

    error = file.error
    if error is not None:
        error = type(error)(plain(error.message), plain(error.remedy))
    launches = tuple(
        replace(
            launch,
            file=content.name,
            card=replace(launch.card, next=plain(launch.card.next)),
            profile=launch.profile
            and replace(launch.profile, origin=replace(launch.profile.origin, file=content.name)),
        )
        for launch in file.launches
    )
    damage, missing = plain(file.damage), plain(file.missing)
    return replace(
        file, path=content.name, launches=launches, error=error, damage=damage, missing=missing
    )
