"""The tools that a model may call: their arguments, their answers, and what they do.

Every tool reads only what lies below one root; none uses a shell. `profile` is there only where it
was allowed."""

import inspect
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, get_type_hints

import msgspec
from msgspec import Meta

from ncu_toolkit.base.core.errors import InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.base.core.guests import guest
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.base.document.views import Answer
from ncu_toolkit.guests.mcp import code, digest
from ncu_toolkit.guests.mcp.digest import Digest, LaunchIds, lay_out, plain
from ncu_toolkit.guests.mcp.reports import STEP, Reports, ServedReport
from ncu_toolkit.guests.mcp.root import MOST_BYTES
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.analysis.analyze import LaunchResult
from ncu_toolkit.kernel.diagnosis.glossary import lookup
from ncu_toolkit.kernel.diagnosis.rules.reference import rules
from ncu_toolkit.kernel.explain import entry
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program import doctor
from ncu_toolkit.program.analysis.reported import across

SCHEME: Final = "ncu-toolkit://"
#: Seconds for a program under ncu.
PROFILE_TIMEOUT: Final = 600.0
#: More kernels than fit the largest budget.
_FITTING: Final = 400
#: How often a history is listed again that changes while it is read.
_TRIES: Final = 3

#: What tools take, as a model reads it.
Budget = Annotated[
    int,
    Meta(
        ge=digest.LEAST,
        le=digest.MOST,
        description=f"most tokens of the answer; {digest.BYTES} bytes of UTF-8 count as one",
    ),
]
File = Annotated[str, Meta(min_length=1, max_length=4096)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Kernel = Annotated[str, Meta(max_length=200)]
Word = Annotated[str, Meta(max_length=4096)]
Which = Annotated[str, Meta(max_length=100, description="one part that was left out, by its id")]
ReportPath = Annotated[
    File,
    Meta(
        description="path below the root: a .ncu-rep file, a program's trace (.sqlite, .json, .ncu-trace), or a folder of the traces of a job"
    ),
]
Before = Annotated[File, Meta(description="path of the report before the change")]
After = Annotated[File, Meta(description="path of the report after it")]
CodePath = Annotated[File, Meta(description="path of a .cu or .cubin file below the root")]
Arch = Annotated[str, Meta(max_length=8, description="architecture for a .cu file, such as sm_90")]
Block = Annotated[int, Meta(ge=0, le=1024, description="threads per block, if known")]
Skip = Annotated[int, Meta(ge=0, description="kernels already shown")]
FindingId = Annotated[Name, Meta(description="id of a finding, from analyze")]
LaunchId = Annotated[Name, Meta(description="id of a launch, from analyze")]
TermName = Annotated[Name, Meta(description="a stall reason, figure, unit or bottleneck")]
Recorded = Annotated[Kernel, Meta(description="a name; all kernels where empty")]
Matching = Annotated[Kernel, Meta(description="only kernels whose name matches this regex")]
Count = Annotated[int, Meta(ge=1, le=1000)]
Command = Annotated[
    list[Word],
    Meta(
        min_length=1,
        max_length=100,
        description="program below the root and its arguments, or python and a script below it",
    ),
]
#: The tools, in the order in which they are listed.
_TITLES: Final = {
    "analyze": "Diagnose a report",
    "why": "Explain a finding",
    "where": "Show a launch's lines",
    "compare": "Compare two reports",
    "static": "Analyse code without a profile",
    "glossary": "Explain a term",
    "history": "Show earlier runs",
    "doctor": "Check this machine",
    "profile": "Profile a program",
}


class GlossaryEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the glossary."""

    key: str
    title: str
    text: str
    unit: str = ""
    source: str = ""
    see: Annotated[str, Meta(description="a resource with details")] = ""


#: A schema names it, so it has the name that models know.
_Check = msgspec.defstruct(
    "Check",
    [("name", str), ("state", str), ("found", str), ("remedy", str, "")],
    frozen=True,
    omit_defaults=True,
    namespace={"__doc__": "Something that ncu-toolkit needs: ok, warning or missing."},
)


class Machine(msgspec.Struct, frozen=True):
    """What works on this machine."""

    works: dict[str, bool]
    checks: tuple[_Check, ...]  # type: ignore[valid-type]


@dataclass(frozen=True)
class ModelTool:
    """A tool: `does` gets the fields of `takes` and returns `gives`."""

    name: str
    title: str
    about: str
    takes: type[msgspec.Struct]
    gives: type[msgspec.Struct]
    does: Callable[..., msgspec.Struct]
    reads_only: bool = True


def _tool(does: Callable[..., Any]) -> ModelTool:
    """A tool from a method: the docstring is for the model, the parameters are its fields."""
    name: str = does.__name__
    types = get_type_hints(does, include_extras=True)
    fields = [
        (each.name, types[each.name], *(() if each.default is each.empty else (each.default,)))
        for each in inspect.signature(does).parameters.values()
    ]
    takes = msgspec.defstruct(
        name.capitalize(),
        fields,
        frozen=True,
        forbid_unknown_fields=True,
        namespace=None if fields else {"__doc__": "No arguments."},
    )
    about = " ".join((does.__doc__ or "").split())
    return ModelTool(name, _TITLES[name], about, takes, types["return"], does, name != "profile")


class Tools:
    """The tools over the reports of one root."""

    def __init__(self, reports: Reports, *, allow_profile: bool = False) -> None:
        self.reports = reports
        self._compiling = threading.Lock()
        self.root = reports.root
        self.all: Mapping[str, ModelTool] = {
            name: _tool(getattr(self, name))
            for name in _TITLES
            if name != "profile" or allow_profile
        }

    def call(self, name: str, arguments: Mapping[str, Any]) -> msgspec.Struct:
        """A tool's answer.

        Raises:
            ToolkitError: there is no such tool, an argument is wrong, or what was asked for cannot
                be done.
        """
        tool = self.all.get(name)
        if tool is None:
            raise UsageProblem(
                f"there is no tool '{visible(name, 80)}'", f"Tools are {', '.join(self.all)}"
            )
        try:
            wanted = msgspec.convert(arguments, tool.takes)
        except (msgspec.ValidationError, RecursionError) as error:
            raise UsageProblem(
                f"{name}: {visible(str(error), 300)}", "See the tool's schema"
            ) from None
        return tool.does(**msgspec.structs.asdict(wanted))

    def analyze(
        self, report: ReportPath, budget_tokens: Budget = digest.DEFAULT, skip: Skip = 0
    ) -> Digest:
        """Names what limits each kernel of a Nsight Compute report, with the gain, the line of code
        and the change that removes the cause. Kernels with most time come first. Of a program's
        trace: what costs its step. Call this first."""
        return analysed(self.reports.load(report), budget_tokens, skip)

    def why(
        self, finding: FindingId, budget_tokens: Budget = digest.DEFAULT, part: Which = ""
    ) -> Digest:
        """Explains one finding: the figures it rests on with their thresholds, how its gain is
        predicted, and all its advice."""
        if (step := self.reports.step_finding(finding)) is not None:
            return _of_step(*step, finding, budget_tokens, part)
        report, launch, found = self.reports.finding(finding)
        mark = LaunchIds(report.launch_id(launch), (finding,))
        base = _base(report, found.bottleneck)
        shown = answers.of_finding(launch, found)
        cards = (
            replace(each, gpu="", shape="", bars=(), waits=(), headroom=None)
            for each in shown.cards
        )
        shown = replace(shown, cards=tuple(cards))  # what `analyze` has shown
        return lay_out(shown, budget_tokens, (mark,), part=part, base=base)

    def where(
        self, launch: LaunchId, budget_tokens: Budget = digest.DEFAULT, part: Which = ""
    ) -> Digest:
        """Shows one launch in full, and every line and instruction that a finding of it names."""
        if (step := self.reports.step_finding(launch)) is not None:
            return _of_step(*step, launch, budget_tokens, part)
        report, found = self.reports.launch(launch)
        shown, mark = answers.of_places(found), _mark(report, found)
        return lay_out(shown, budget_tokens, (mark,), part=part, base=_base(report))

    def compare(
        self, a: Before, b: After, budget_tokens: Budget = digest.DEFAULT, part: Which = ""
    ) -> Digest:
        """Compares two reports: what got faster or slower, by which cause, and what changed in
        stalls, bytes, instructions and source."""
        sides = [self.reports.load(path, profiles=True) for path in (a, b)]
        for side in sides:
            if side.program is not None:
                raise InputProblem(
                    f"'{side.name}' is a trace, and `compare` takes reports", "Name two reports"
                )
            for file in side.analysis.partial:
                raise InputProblem(
                    f"'{side.name}' is incomplete: {file.lacking}", "Record it again"
                )
        old, new = (gate.sides_of(side.analysis) for side in sides)
        found = gate.compare(old, new)
        shown = answers.of_comparison(found)
        if found.pairs:
            shown = replace(shown, verdict="")  # no gate was asked for
        marks: list[LaunchIds] = []
        pair = next((each for each in found.ordered if not each.problem and each.profiled), None)
        if pair is not None and shown.cards:
            for side, each, card in zip(sides, (pair.old, pair.new), shown.cards, strict=True):
                assert each.representative is not None
                name = f"{side.id}/{each.representative.origin.key}"
                marks.append(LaunchIds(name, (f"{name}/{card.bottleneck}",)))
        return lay_out(shown, budget_tokens, marks, part=part)

    def static(
        self,
        file: CodePath,
        arch: Arch = "",
        block: Block = 0,
        budget_tokens: Budget = digest.DEFAULT,
        part: Which = "",
    ) -> Digest:
        """Shows what compiled code alone tells of a .cu or .cubin file: registers, occupancy, loops,
        likely bottlenecks. Needs no GPU."""
        with self._compiling:  # a compiler may take all of the memory
            shown = code.analysed(self.root, file, arch, block or None)
        return lay_out(shown, budget_tokens, part=part)

    def glossary(self, term: TermName) -> GlossaryEntry:
        """Explains a stall reason, figure, unit, bottleneck or cause in one paragraph."""
        found = lookup(term)
        about = next((word for word in found.words if found.group in ("bottleneck", "cause")), "")
        see = f"{SCHEME}bottlenecks/{about}" if about else ""
        return GlossaryEntry(
            found.key, found.title, plain(found.text, 4000), found.unit, plain(found.source), see
        )

    def history(
        self, kernel: Recorded = "", budget_tokens: Budget = digest.DEFAULT, part: Which = ""
    ) -> Digest:
        """Shows how times and verdicts of kernels changed from run to run."""
        history, trends = guest("history.history"), guest("history.trends")
        if history is None or trends is None:
            raise UsageProblem("this installation keeps no history")

        with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
            self._copy_history(history.root(), Path(scratch))
            columns = trends.RUN_COLUMNS if kernel else trends.COLUMNS
            with history.opened(columns, Path(scratch)) as found:
                shown = (
                    trends.of_kernels(trends.series_of(found, kernel))
                    if kernel
                    else trends.of_all(trends.all_series(found))
                )
            notes = [error.message.replace(f"{scratch}/", "") for error in found.broken]
        shown = replace(shown, notes=(*shown.notes, *notes))
        return lay_out(shown, budget_tokens, part=part)

    def _copy_history(self, home: Path, folder: Path) -> None:
        """Copy the files of the history as they are at one moment.

        Raises:
            UsageProblem: one is outside the root.
            InputProblem: one cannot be read, or files are merged again and again.
        """
        name = self.root.name(str(home if home.is_absolute() else self.root.path / home))
        for turn in range(_TRIES):
            try:
                names = self._names(name)
            except InputProblem:
                return  # there is no history yet
            try:
                for each in names:
                    (folder / each).write_bytes(self.root.read(f"{name}/{each}", MOST_BYTES))
                return
            except InputProblem:  # merged into another file meanwhile
                if turn + 1 == _TRIES:
                    raise

    def _names(self, folder: str) -> list[str]:
        with self.root.held(folder) as descriptor:
            names = os.listdir(descriptor)
        return [each for each in names if each.endswith(".parquet") and each[0] != "."]

    def doctor(self) -> Machine:
        """Checks what works on this machine, and how to fix what does not."""
        checks = doctor.examine()
        found = (_Check(x.name, x.state, plain(x.found), plain(x.remedy)) for x in checks)
        return Machine(doctor.works(checks), tuple(found))

    def profile(
        self,
        command: Command,
        kernel: Matching = "",
        launch_count: Count = 20,
        budget_tokens: Budget = digest.DEFAULT,
    ) -> Digest:
        """Runs a program below the root under Nsight Compute, writes a report and analyses it. The
        program runs with the server's rights."""
        from ncu_toolkit.kernel.gpu import collect
        from ncu_toolkit.program.recording import program_run

        request = collect.Request(
            command=self._program(command), kernel_filter=kernel, launch_count=launch_count
        )
        job = program_run.ProgramJob(request, self.root.path / "reports", PROFILE_TIMEOUT)
        made = program_run.profile(job)
        made.raise_failure()
        (report,) = made.run.report_files
        return self.analyze(str(made.folder / report), budget_tokens)

    def _program(self, command: Sequence[str]) -> tuple[str, ...]:
        """A command whose program, or whose Python script, is a file below the root.

        Raises:
            UsageProblem: it is another program.
        """
        program, *arguments = command
        python = program in ("python", "python3")
        if python and (not arguments or arguments[0].startswith("-")):
            raise UsageProblem(
                "python needs a script below the root first", 'Write ["python", "train.py"]'
            )
        file = arguments[0] if python else program
        name = self.root.name(file)
        with self.root.held(name) as descriptor:
            mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode) or not (python or mode & 0o111):
            raise UsageProblem(
                f"'{visible(file, 200)}' is not a program", "Name an executable file below the root"
            )
        whole = str(self.root.path / PurePosixPath(name))
        return (program, whole, *arguments[1:]) if python else (whole, *arguments)


def analysed(report: ServedReport, budget: int = digest.DEFAULT, skip: int = 0) -> Digest:
    """The digest of a report: within the budget, and LAUNCH tokens for each kernel."""
    if report.program is not None:
        return _of_program(report, report.program.answer, budget, skip)
    marks = [_mark(report, group.typical) for group in report.analysis.judged]
    count = min(max(len(marks), 1), skip + _FITTING)
    shown = answers.of_analysis(
        report.analysis, top=count, cards=count, across=partial(across, leads=False)
    )
    budget = min(budget, digest.LAUNCH * max(len(marks) - skip, 1))
    return lay_out(shown, budget, marks, skip=skip, base=_first(report, shown, skip))


def _of_program(report: ServedReport, shown: Answer, budget: int, skip: int) -> Digest:
    """The digest of a program's step; where its time goes is a point, and so is what all save."""
    first = shown.cards[0]
    goes = f"{first.of}: {first.busy}. {first.basis}".strip()
    together = [" ".join(row).strip() for row in first.then if len(first.then) > 1][-1:]
    marks = [
        LaunchIds(f"{report.id}/{STEP}{at}", (f"{report.id}/{STEP}{at}/{card.bottleneck}",))
        for at, card in enumerate(shown.cards)
    ]
    shown = replace(
        shown,
        cards=(replace(first, bars=(), basis=""), *shown.cards[1:]),
        points=(goes, *together, *shown.points),
        next="",
    )
    return lay_out(shown, budget, marks, skip=skip, base=_first(report, shown, skip))


def _of_step(report: ServedReport, shown: Answer, name: str, budget: int, part: str) -> Digest:
    """One finding of a program's step, for `why` and `where`."""
    place = "/".join(name.split("/")[:2])
    mark = LaunchIds(place, (f"{place}/{shown.cards[0].bottleneck}",))
    base = _base(report, shown.cards[0].bottleneck)
    return lay_out(shown, budget, (mark,), part=part, base=base)


def _base(report: ServedReport, about: str = "") -> Digest:
    """What every answer about a report begins with. `about`: the id whose page it names."""
    see = f"{SCHEME}bottlenecks/{about}" if about in rules() else ""
    return Digest(digest.NOTE, report=plain(report.name, 200), report_id=report.id, see=see)


def _first(report: ServedReport, shown: Answer, skip: int) -> Digest:
    """As `_base`, with the page of the first card's cause."""
    return _base(report, next((card.bottleneck for card in shown.cards[skip:]), ""))


def _mark(report: ServedReport, launch: LaunchResult) -> LaunchIds:
    findings = [report.finding_id(launch, each) for each in launch.diagnosis.findings]
    return LaunchIds(report.launch_id(launch), tuple(findings))


def bottleneck_page(name: str) -> str:
    """The page of a bottleneck, or of a cause of a step, as Markdown; raises as `lookup`."""
    return entry.markdown(lookup(name), store.longest(entry.PAIRS))


def error_line(error: ToolkitError) -> str:
    """An error as one line that is safe to show."""
    return plain(" ".join(str(error).split()), 1000)


def listed(reports: Reports) -> str:
    """The reports below the root as Markdown, newest first."""
    found = reports.root.reports()
    lines = [f"{digest.NOTE}", "", counted(len(found), "report") + ", newest first:", ""]
    return "\n".join([*lines, *(f"- {plain(name)} ({size} bytes)" for name, size in found), ""])
