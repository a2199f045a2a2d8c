"""A program's recorded and profiled step, in its run's folder: the answer and its page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ncu_toolkit.base.core.units import counted, shortlist
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.kernel.analysis.analyze import Analysis, Options, analyze
from ncu_toolkit.kernel.diagnosis.needs import Needs
from ncu_toolkit.kernel.pages.run_view import STEP_PAGE
from ncu_toolkit.program.analysis.program import TraceResult, judged
from ncu_toolkit.program.explain.program import label_of
from ncu_toolkit.program.pages.program_view import write_program_page
from ncu_toolkit.program.pages.publish import publish_run
from ncu_toolkit.program.recording import program_run, step_run


@dataclass(frozen=True)
class StepPage:
    """What was found, the run of its profiled kernels (None where none could be), and its files."""

    result: TraceResult
    run: Run | None
    page: Path
    files: tuple[Path, ...]
    """The trace, and the report where there is one."""


def publish_step(done: step_run.StepRun, reports: Path, needs: Sequence[Needs] = ()) -> StepPage:
    """Judge a program's step and write its page, and those of its profiled kernels."""
    notes, known = [*done.notes], Analysis(())
    report = done.folder / f"{program_run.STEM}.ncu-rep"
    if done.session is not None:
        # several processes read it, where the run's reader is one
        known = analyze([report], Options(profiles=True, needs=tuple(needs)))
        took = f"recording took {done.recorded.seconds:.0f} s, and profiling {{}} s for {counted(len(known.launches), 'launch')}"
        notes += [*done.session.notes, took.format(round(done.session.run.costs["profiling"]))]
    result = judged(done.step.trace, str(done.trace), known)
    other = [each for each in done.chosen if done.session and each not in result.known]
    if other:
        names = [label_of(done.step.trace.shapes[each]) for each in other]
        notes.append(
            f"{len(other)} of {counted(len(done.chosen), 'kernel')} had no launch under ncu, or none as recorded: {shortlist(names, 3)}"
        )
    sentences = (f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in notes)
    result = replace(result, notes=(*result.notes, *sentences))
    assert result.found is not None
    page = done.folder / STEP_PAGE
    write = partial(write_program_page, result.found, page, result.known, job=result.job)
    if done.session is None:
        write()
        return StepPage(result, None, page, (done.trace,))
    read = [(each.whole, each.diagnosis) for each in known.launches if each.whole]
    renamed = (replace(each, origin=replace(each.origin, file=report.name)) for each, _ in read)
    profiles = [*zip(renamed, (verdict for _, verdict in read), strict=True)]
    run = publish_run(done.folder, reports, profiles, write)
    return StepPage(result, run, page, (done.trace, report))
