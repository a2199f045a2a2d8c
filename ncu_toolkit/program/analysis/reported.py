"""A program as a report of many launches shows it: what costs time across its kernels.

A profiler runs launches one at a time, each after what it does itself, so that a report has their
order and what each takes alone: no time between them, no copies, no host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ncu_toolkit.base.core.safe import shell_word, visible
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.document.views import CARDS, MANY, TOP, Answer
from ncu_toolkit.base.model import Device, Diagnosis, Launch
from ncu_toolkit.kernel.analysis.analyze import Analysis, LaunchResult, typical
from ncu_toolkit.kernel.report import reader

if TYPE_CHECKING:
    from ncu_toolkit.kernel.pages.book import Book
    from ncu_toolkit.program.diagnosis import Judged
    from ncu_toolkit.program.model import Lack, ProgramDiagnosis, StepFinding, Trace

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
        from ncu_toolkit.program.rules import step_rules

        rules = step_rules()
        return tuple(each for each in self.found.costly if each.rule in rules)

    @property
    def leads(self) -> bool:
        """Whether one of them can save more than what is found of any kernel."""
        return self.found.costly[0] in self.causes


def across(
    analysis: Analysis,
    shown: Answer,
    top: int | None = None,
    *,
    flags: bool = True,
    leads: bool = True,
) -> Answer:
    """The answer to many launches, with what costs time across their kernels. Where they are a
    program's, and what costs most is no single kernel's, the answer to the program, unless `leads` is
    false."""
    whole = of_analysis(analysis)
    if whole is None:
        return shown
    from ncu_toolkit.program.explain.program import program_answer

    if not (leads and whole.leads):
        causes = (f"{visible(each.title)}: {visible(each.summary)}" for each in whole.causes)
        return replace(shown, points=(*shown.points, *causes)[:CARDS])
    file = analysis.launches[0].file
    command = f"ncu-toolkit analyze {shell_word(file)} --format html"
    answer = program_answer(*whole, top=top or TOP, next_command=command, flags=flags)
    notes = (*answer.notes, *map(visible, shown.notes))
    return replace(answer, points=(*shown.points, *answer.points), notes=notes)


def card_of(book: Book) -> Card | None:
    """What costs the program of a run's launches most, where that is no single kernel's. None where
    others may have run between them."""
    files = {profile.origin.file for profile in book.strangers}
    if len(files) != 1 or book.filtered:
        return None
    launches = [
        ReportedLaunch(each.launch, each.device, each.duration_us, partial(book.diagnosis, each))
        for each in book.strangers
    ]
    whole = of_launches(launches)
    if whole is None or not whole.leads:
        return None
    from ncu_toolkit.program.explain.program import program_answer

    return program_answer(*whole).cards[0]


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
    from ncu_toolkit.program.diagnosis import diagnose_program
    from ncu_toolkit.program.traces.account import account_of
    from ncu_toolkit.program.traces.step import find_step

    trace = trace_of(ran)
    alike = grouped(range(len(trace.ops)), lambda at: trace.ops[at].shape)
    known = {}
    for shape, places in alike.items():
        usual = places[typical([ran[at].us for at in places])]
        known[shape] = None, ran[usual].verdict()
    step = find_step(trace)
    program = ReportedProgram(diagnose_program(step, account_of(step), known), known)
    return program if program.causes else None


def trace_of(launches: Iterable[ReportedLaunch]) -> Trace:
    """Launches as a trace, back to back from time 0, with a call of no length for each whose line is
    known."""
    import msgspec

    from ncu_toolkit.program.traces.builder import GpuWork, LaunchShape, TraceBuilder

    made = TraceBuilder()
    now = 0
    for at, (launch, device, us, _) in enumerate(launches):
        end = now + max(1, round((us or 0.0) * 1e3))
        made.devices[device] = device
        if line := launch.caller:
            made.line(len(made.calls), (line.file, line.line))
            made.call(now, now, "cudaLaunchKernel", (0, launch.process), at)
        shape = LaunchShape(
            launch.kernel, launch.grid, launch.block, launch.registers, launch.shared_static,
            launch.shared_dynamic, launch.function,
        )  # fmt: skip
        place = made.shape(shape)
        made.op(GpuWork(now, end, "kernel", place, at, device, process=launch.process))
        now = end
    trace = made.trace("Nsight Compute")
    lines = tuple(lack for lack in trace.lacks if lack == "lines")
    return msgspec.structs.replace(trace, lacks=(*_LACKS, *lines))


def _launched(each: LaunchResult) -> ReportedLaunch:
    capability = each.arch.removeprefix("sm_")
    cc = int(capability[:-1]), int(capability[-1])
    device = Device(each.gpu, cc, each.sms, index=each.device)
    launch = Launch(
        each.kernel, each.function, each.grid, each.block, status=each.status,
        workload=each.workload, stack=each.stack, process=each.process,
    )  # fmt: skip
    return ReportedLaunch(launch, device, each.duration_us, lambda: each.diagnosis)
