"""The tools that a model may call: their arguments, their answers, and what they do.

Every tool reads only what lies below one root; none uses a shell. `profile` is there only where it
was allowed."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import msgspec

from ncu_toolkit.agents import code, digest
from ncu_toolkit.agents.digest import Digest, Mark, lay_out, plain
from ncu_toolkit.agents.reports import Report, Reports
from ncu_toolkit.agents.root import MOST_BYTES
from ncu_toolkit.analysis import answers, gate
from ncu_toolkit.analysis.analyze import LaunchResult
from ncu_toolkit.core.errors import InputProblem, ToolkitError, UsageProblem
from ncu_toolkit.core.safe import visible
from ncu_toolkit.core.units import counted
from ncu_toolkit.diagnosis.glossary import definitions
from ncu_toolkit.diagnosis.rules import bottleneck_ids
from ncu_toolkit.diagnosis.rules.reference import page
from ncu_toolkit.gpu import doctor
from ncu_toolkit.runs import history

SCHEME: Final = "ncu-toolkit://"
#: Seconds for a program under ncu.
PROFILE_TIMEOUT: Final = 600.0
#: More kernels than fit the largest budget.
_FITTING: Final = 400
#: How often a history is listed again that changes while it is read.
_TRIES: Final = 3
#: Terms that an unknown one is answered with.
_NEAR: Final = 5

Budget = Annotated[
    int,
    msgspec.Meta(
        ge=digest.LEAST,
        le=digest.MOST,
        description=f"most tokens of the answer; {digest.BYTES} bytes of UTF-8 count as one",
    ),
]
File = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Which = Annotated[
    str, msgspec.Meta(max_length=100, description="one part that was left out, by its id")
]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class Analyze(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    report: Annotated[File, msgspec.Meta(description="path of a .ncu-rep file below the root")]
    budget_tokens: Budget = digest.DEFAULT
    skip: Annotated[int, msgspec.Meta(ge=0, description="kernels already shown")] = 0


class Why(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    finding: Annotated[Name, msgspec.Meta(description="id of a finding, from analyze")]
    budget_tokens: Budget = digest.DEFAULT
    part: Which = ""


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    launch: Annotated[Name, msgspec.Meta(description="id of a launch, from analyze")]
    budget_tokens: Budget = digest.DEFAULT
    part: Which = ""


class Compare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    a: Annotated[File, msgspec.Meta(description="path of the report before the change")]
    b: Annotated[File, msgspec.Meta(description="path of the report after it")]
    budget_tokens: Budget = digest.DEFAULT
    part: Which = ""


class Static(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file: Annotated[File, msgspec.Meta(description="path of a .cu or .cubin file below the root")]
    arch: Annotated[
        str, msgspec.Meta(max_length=8, description="architecture for a .cu file, such as sm_90")
    ] = ""
    block: Annotated[int, msgspec.Meta(ge=0, le=1024, description="threads a block, if known")] = 0
    budget_tokens: Budget = digest.DEFAULT
    part: Which = ""


class Glossary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    term: Annotated[Name, msgspec.Meta(description="a stall reason, figure, unit or bottleneck")]


class History(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kernel: Annotated[
        str, msgspec.Meta(max_length=200, description="a name; all kernels where empty")
    ] = ""
    budget_tokens: Budget = digest.DEFAULT
    part: Which = ""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=4096)]],
        msgspec.Meta(
            min_length=1,
            max_length=100,
            description="program below the root and its arguments, or python and a script below it",
        ),
    ]
    kernel: Annotated[
        str, msgspec.Meta(max_length=200, description="only kernels whose name matches this regex")
    ] = ""
    launch_count: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 20
    budget_tokens: Budget = digest.DEFAULT


class Term(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the glossary."""

    key: str
    title: str
    text: str
    unit: str = ""
    source: str = ""
    see: Annotated[str, msgspec.Meta(description="a resource that says more")] = ""


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that ncu-toolkit needs: ok, warning or missing."""

    name: str
    state: str
    found: str
    remedy: str = ""


class Machine(msgspec.Struct, frozen=True):
    """What works on this machine."""

    works: dict[str, bool]
    checks: tuple[Check, ...]


@dataclass(frozen=True)
class Tool:
    """A tool: `does` gets the arguments as `takes` and returns `gives`."""

    name: str
    title: str
    about: str
    takes: type[msgspec.Struct]
    gives: type[msgspec.Struct]
    does: Callable[[Any], msgspec.Struct]
    reads_only: bool = True


class Tools:
    """The tools over the reports of one root."""

    def __init__(self, reports: Reports, *, allow_profile: bool = False) -> None:
        self.reports = reports
        self._compiling = threading.Lock()
        self.root = reports.root
        found = [
            Tool("analyze", "Diagnose a report", _ANALYZE, Analyze, Digest, self.analyze),
            Tool("why", "Explain a finding", _WHY, Why, Digest, self.why),
            Tool("where", "Show a launch's lines", _WHERE, Where, Digest, self.where),
            Tool("compare", "Compare two reports", _COMPARE, Compare, Digest, self.compare),
            Tool("static", "Analyse code without a profile", _STATIC, Static, Digest, self.static),
            Tool("glossary", "Explain a term", _GLOSSARY, Glossary, Term, self.glossary),
            Tool("history", "Show earlier runs", _HISTORY, History, Digest, self.history),
            Tool("doctor", "Check this machine", _DOCTOR, Nothing, Machine, self.doctor),
        ]
        if allow_profile:
            found.append(
                Tool("profile", "Profile a program", _PROFILE, Profile, Digest, self.profile, False)
            )
        self.all: Mapping[str, Tool] = {each.name: each for each in found}

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
        return tool.does(wanted)

    def analyze(self, asked: Analyze) -> Digest:
        return analysed(self.reports.load(asked.report), asked.budget_tokens, asked.skip)

    def why(self, asked: Why) -> Digest:
        report, launch, finding = self.reports.finding(asked.finding)
        mark = Mark(report.launch_id(launch), (asked.finding,))
        about = f"{SCHEME}bottlenecks/{finding.bottleneck}"
        known = finding.bottleneck in bottleneck_ids()
        base = msgspec.structs.replace(_base(report), see=about if known else "")
        shown = answers.of_finding(launch, finding)
        cards = (
            replace(each, gpu="", shape="", bars=(), waits=(), headroom=None)
            for each in shown.cards
        )
        shown = replace(shown, cards=tuple(cards))  # what `analyze` has told
        return lay_out(shown, asked.budget_tokens, (mark,), part=asked.part, base=base)

    def where(self, asked: Where) -> Digest:
        report, launch = self.reports.launch(asked.launch)
        shown, mark = answers.of_places(launch), _mark(report, launch)
        return lay_out(shown, asked.budget_tokens, (mark,), part=asked.part, base=_base(report))

    def compare(self, asked: Compare) -> Digest:
        sides = [self.reports.load(path, profiles=True) for path in (asked.a, asked.b)]
        for side in sides:
            for file in side.analysis.partial:
                raise InputProblem(
                    f"'{side.name}' is incomplete: {file.lacking}", "Record it again"
                )
        old, new = (gate.sides_of(side.analysis) for side in sides)
        found = gate.compare(old, new)
        shown = answers.of_comparison(found)
        if found.pairs:
            shown = replace(shown, verdict="")  # no gate was asked for
        marks: list[Mark] = []
        pair = next((each for each in found.ordered if not each.problem and each.profiled), None)
        if pair is not None and shown.cards:
            for side, each, card in zip(sides, (pair.old, pair.new), shown.cards, strict=True):
                assert each.representative is not None
                name = f"{side.id}/{each.representative.origin.key}"
                marks.append(Mark(name, (f"{name}/{card.bottleneck}",)))
        return lay_out(shown, asked.budget_tokens, marks, part=asked.part)

    def static(self, asked: Static) -> Digest:
        with self._compiling:  # a compiler may take all of the memory
            shown = code.analysed(self.root, asked.file, asked.arch, asked.block or None)
        return lay_out(shown, asked.budget_tokens, part=asked.part)

    def glossary(self, asked: Glossary) -> Term:
        terms = definitions().terms
        key = asked.term if asked.term in terms else definitions().find(asked.term)
        if not key:
            names = {term.title.lower(): term.title for term in terms.values()}
            near = difflib.get_close_matches(asked.term.lower(), names, _NEAR, 0.5)
            hint = f"Near it are {', '.join(names[each] for each in near)}" if near else ""
            raise UsageProblem(f"the glossary has no '{visible(asked.term, 80)}'", hint)
        term = terms[key]
        about = next((word for word in term.words if term.group == "bottleneck"), "")
        see = f"{SCHEME}bottlenecks/{about}" if about else ""
        return Term(
            term.key, term.title, plain(term.text, 4000), term.unit, plain(term.source), see
        )

    def history(self, asked: History) -> Digest:
        from ncu_toolkit.runs import trends

        with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
            self._copy_history(Path(scratch))
            columns = trends.RUN_COLUMNS if asked.kernel else trends.COLUMNS
            with history.opened(columns, Path(scratch)) as found:
                shown = (
                    trends.of_kernels(trends.series_of(found, asked.kernel))
                    if asked.kernel
                    else trends.of_all(trends.all_series(found))
                )
            notes = [error.message.replace(f"{scratch}/", "") for error in found.broken]
        shown = replace(shown, notes=(*shown.notes, *notes))
        return lay_out(shown, asked.budget_tokens, part=asked.part)

    def _copy_history(self, folder: Path) -> None:
        """Copy the files of the history as they are at one moment.

        Raises:
            UsageProblem: one is outside the root.
            InputProblem: one cannot be read, or files are merged again and again.
        """
        home = history.root()
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
        descriptor = self.root.open(folder)
        try:
            names = os.listdir(descriptor)
            return [each for each in names if each.endswith(".parquet") and each[0] != "."]
        finally:
            os.close(descriptor)

    def doctor(self, asked: Nothing) -> Machine:
        checks = doctor.examine()
        return Machine(
            doctor.works(checks),
            tuple(
                Check(each.name, each.state, plain(each.found), plain(each.remedy))
                for each in checks
            ),
        )

    def profile(self, asked: Profile) -> Digest:
        from ncu_toolkit.gpu import collect, program_run

        command = self._program(asked.command)
        request = collect.Request(
            command=command, kernel_filter=asked.kernel, launch_count=asked.launch_count
        )
        made = program_run.profile(request, self.root.path / "reports", timeout=PROFILE_TIMEOUT)
        made.raise_failure()
        (report,) = made.run.report_files
        return self.analyze(Analyze(str(made.folder / report), asked.budget_tokens))

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
        descriptor = self.root.open(name)
        try:
            mode = os.fstat(descriptor).st_mode
        finally:
            os.close(descriptor)
        if not stat.S_ISREG(mode) or not (python or mode & 0o111):
            raise UsageProblem(
                f"'{visible(file, 200)}' is no program", "Name an executable file below the root"
            )
        whole = str(self.root.path / PurePosixPath(name))
        return (program, whole, *arguments[1:]) if python else (whole, *arguments)


def analysed(report: Report, budget: int = digest.DEFAULT, skip: int = 0) -> Digest:
    """The digest of a report: within the budget, and LAUNCH tokens for each kernel."""
    marks = [_mark(report, group.typical) for group in report.groups]
    count = min(max(len(marks), 1), skip + _FITTING)
    shown = answers.of_analysis(report.analysis, top=count, cards=count)
    budget = min(budget, digest.LAUNCH * max(len(marks) - skip, 1))
    return lay_out(shown, budget, marks, skip=skip, base=_base(report))


def _base(report: Report) -> Digest:
    return Digest(digest.NOTE, report=plain(report.name, 200), report_id=report.id)


def _mark(report: Report, launch: LaunchResult) -> Mark:
    findings = [report.finding_id(launch, each) for each in launch.diagnosis.findings]
    return Mark(report.launch_id(launch), tuple(findings))


def bottleneck_page(name: str) -> str:
    """The reference of a bottleneck as Markdown, from its rule.

    Raises:
        UsageProblem: there is none of that id.
    """
    if name not in bottleneck_ids():
        near = difflib.get_close_matches(name, bottleneck_ids(), 1)
        raise UsageProblem(
            f"there is no bottleneck '{visible(name, 80)}'", f"Near it is {near[0]}" if near else ""
        )
    about = page(name)
    lines = [f"# {about.title}", about.summary]
    for heading, body in about.sections.items():
        lines += [f"## {heading}", " ".join(body.split())]
    return "\n\n".join(lines) + "\n"


def error_line(error: ToolkitError) -> str:
    """An error as one line that is safe to show."""
    return plain(" ".join(str(error).split()), 1000)


def listed(reports: Reports) -> str:
    """The reports below the root as Markdown, newest first."""
    found = reports.root.reports()
    lines = [f"{digest.NOTE}", "", counted(len(found), "report") + ", newest first:", ""]
    return "\n".join([*lines, *(f"- {plain(name)} ({size} bytes)" for name, size in found), ""])


_ANALYZE: Final = (
    "Names what limits each kernel of a Nsight Compute report, with the gain, the line of code and the change that "
    "removes the cause. Kernels with most time come first. Call this first."
)
_WHY: Final = (
    "Explains one finding: the figures it rests on with their thresholds, how its gain is predicted, "
    "and all its advice."
)
_WHERE: Final = (
    "Shows one launch in full, and every line and instruction that a finding of it names."
)
_COMPARE: Final = (
    "Compares two reports: what got faster or slower, by which cause, and what changed in stalls, bytes, "
    "instructions and source."
)
_STATIC: Final = (
    "Shows what compiled code alone tells of a .cu or .cubin file: registers, occupancy, loops, likely bottlenecks. "
    "Needs no GPU."
)
_GLOSSARY: Final = "Explains a stall reason, figure, unit or bottleneck in one paragraph."
_HISTORY: Final = "Shows how times and verdicts of kernels changed from run to run."
_DOCTOR: Final = "Checks what works on this machine, and how to mend what does not."
_PROFILE: Final = (
    "Runs a program below the root under Nsight Compute, writes a report and analyses it. "
    "The program runs with the server's rights."
)
