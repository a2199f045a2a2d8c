"""A program as a report of many launches shows it: what costs time across its kernels.

A profiler runs launches one at a time, each after what it does itself, so that a report has their
order and what each takes alone: no time between them, no copies, no host."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import msgspec

from ncu_toolkit.base.core.safe import shell_word, visible
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.document.views import CARDS, MANY, TOP, Answer
from ncu_toolkit.base.model import Device, Diagnosis, Launch
from ncu_toolkit.kernel.analysis import answers
from ncu_toolkit.kernel.analysis.analyze import Analysis, LaunchResult, typical
from ncu_toolkit.kernel.pages.book import Book
from ncu_toolkit.kernel.report import reader
from ncu_toolkit.program.diagnosis import diagnose_program
from ncu_toolkit.program.explain.program import Judged, program_answer
from ncu_toolkit.program.model import Lack, ProgramDiagnosis, StepFinding, Trace
from ncu_toolkit.program.rules import step_rules
from ncu_toolkit.program.traces.account import account_of
from ncu_toolkit.program.traces.builder import TraceBuilder
from ncu_toolkit.program.traces.step import find_step

#: What no report has; whether it has lines is seen.
_LACKS: Final[tuple[Lack, ...]] = ("wall time", "host calls", "marks", "shapes", "memory kinds")
#: A report of MANY launches tells of a program if they are of this many kernels, each launched this
#: often on average. Of 168 reports, those of fewer hold chosen launches, or one of each kernel.
_KERNELS: Final = 3
_EACH: Final = 2


class ReportedLaunch(NamedTuple):
    """A launch in its report: what was launched, where, its microseconds, and what gives its
    verdict, which takes memory: most are not looked at."""

    launch: Launch
    device: Device
    us: float | None
    verdict: Callable[[], Diagnosis]


class ReportedProgram(NamedTuple):
    """What costs time across a report's kernels, and the verdict on each by place in
    `Trace.shapes`."""

    found: ProgramDiagnosis
    known: Judged

    @property
    def causes(self) -> tuple[StepFinding, ...]:
        """Findings of more than one kernel, those that can save most first."""
        rules = step_rules()
        return tuple(each for each in self.found.costly if each.rule in rules)

    @property
    def leads(self) -> bool:
        """Whether one of them can save more than what is found of any kernel."""
        return self.found.costly[0].rule in step_rules()


def answered(
    analysis: Analysis,
    top: int | None = None,
    cards: int = CARDS,
    most_notes: int = TOP,
    *,
    flags: bool = True,
    program: bool = True,
) -> Answer:
    """`answers.of_analysis`, with what costs time across the kernels. Where the launches are a
    program's, and what costs most is no single kernel's, it is the answer to the program, unless
    `program` is false."""
    shown = answers.of_analysis(analysis, top, cards, most_notes, flags)
    whole = of_analysis(analysis)
    if whole is None:
        return shown
    if not (program and whole.leads):
        causes = (f"{visible(each.title)}: {visible(each.summary)}" for each in whole.causes)
        return replace(shown, points=(*shown.points, *causes)[:CARDS])
    file = analysis.launches[0].file
    across = program_answer(
        *whole,
        top=top or TOP,
        cards=min(cards, CARDS),
        notes=shown.notes,
        next_command=f"ncu-toolkit analyze {shell_word(file)} --format html",
        flags=flags,
    )
    return replace(across, points=(*shown.points, *across.points))


def digest(analysis: Analysis, top: int | None = None) -> Answer:
    """As `answered`, of as many kernels and notes as fit a page."""
    most = min(top or answers.DIGEST_TOP, answers.DIGEST_TOP)
    return answered(analysis, top, most, answers.DIGEST_TOP)


def card_of(book: Book) -> Card | None:
    """What costs the program of a run's launches most, where that is no single kernel's. None where
    others may have run between them."""
    files = {profile.origin.file for profile in book.strangers}
    if len(book.strangers) < MANY or len(files) != 1 or book.filtered:
        return None
    launches = [
        ReportedLaunch(each.launch, each.device, each.duration_us, partial(book.diagnosis, each))
        for each in book.strangers
    ]
    whole = of_launches(launches)
    return program_answer(*whole).cards[0] if whole is not None and whole.leads else None


def of_analysis(analysis: Analysis) -> ReportedProgram | None:
    """As `of_launches`, of a single report in which no kernel was left out."""
    if len(analysis.files) != 1 or len(analysis.launches) < MANY:
        return None
    (file,) = analysis.files
    if file.filtered_out or reader.by_kernel(file.left_out):
        return None
    return of_launches([_launched(each) for each in file.launches])


def of_launches(launches: Sequence[ReportedLaunch]) -> ReportedProgram | None:
    """What a report's launches, in their order, tell of the program. None where they are too few, of
    too few kernels or nearly all different, or were profiled as ranges, and where no rule of the step
    finds anything."""
    ran = [each for each in launches if each.launch.single and each.us]
    kernels = {each.launch.kernel for each in ran}
    if len(ran) < max(MANY, _EACH * len(kernels)) or len(kernels) < _KERNELS:
        return None
    trace = trace_of(ran)
    alike: defaultdict[int, list[int]] = defaultdict(list)
    for at, op in enumerate(trace.ops):
        alike[op.shape].append(at)
    known = {
        shape: (None, ran[places[typical([ran[at].us for at in places])]].verdict())
        for shape, places in alike.items()
    }
    step = find_step(trace)
    program = ReportedProgram(diagnose_program(step, account_of(step), known), known)
    return program if program.causes else None


def trace_of(launches: Iterable[ReportedLaunch]) -> Trace:
    """Launches as a trace, back to back from time 0, with a call of no length for each whose line is
    known."""
    made = TraceBuilder()
    now = 0
    for at, (launch, device, us, _) in enumerate(launches):
        end = now + max(1, round((us or 0.0) * 1e3))
        made.devices[device] = device
        if line := launch.caller:
            made.line(len(made.calls), line.file, line.line)
            made.call(now, now, "cudaLaunchKernel", process=launch.process, key=at)
        shape = made.shape(
            launch.kernel, launch.grid, launch.block, launch.registers, launch.shared_static,
            launch.shared_dynamic, launch.function,
        )  # fmt: skip
        made.op(now, end, "kernel", shape, at, device, process=launch.process)
        now = end
    trace = made.trace("Nsight Compute")
    lines = tuple(lack for lack in trace.lacks if lack == "lines")
    return msgspec.structs.replace(trace, lacks=(*_LACKS, *lines))


def _launched(each: LaunchResult) -> ReportedLaunch:
    capability = each.arch.removeprefix("sm_")
    device = Device(
        each.gpu, (int(capability[:-1]), int(capability[-1])), each.sms, index=each.device
    )
    launch = Launch(
        each.kernel, each.function, each.grid, each.block, status=each.status,
        workload=each.workload, stack=each.stack, process=each.process,
    )  # fmt: skip
    return ReportedLaunch(launch, device, each.duration_us, lambda: each.diagnosis)
