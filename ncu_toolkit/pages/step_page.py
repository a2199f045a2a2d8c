"""A program's recorded and profiled step, in its run's folder: the answer and its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ncu_toolkit.analysis.analyze import Analysis, Options, analyze
from ncu_toolkit.analysis.program import TraceResult, judged
from ncu_toolkit.core.units import shortlist
from ncu_toolkit.diagnosis.needs import Needs
from ncu_toolkit.document.card import kernel_name
from ncu_toolkit.gpu import program_run, step_run
from ncu_toolkit.model.run import Run
from ncu_toolkit.pages.program_view import write_program_page
from ncu_toolkit.pages.publish import publish_run

#: The page of a program's step, beside those of its launches.
PAGE: Final = "step.html"


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
    run, notes, known = None, [*done.notes], Analysis(())
    report = done.folder / f"{program_run.STEM}.ncu-rep"
    if done.session is not None:
        # several processes read it, where the run's reader is one
        known = analyze([report], Options(profiles=True, needs=tuple(needs)))
        read = [each.whole for each in known.launches]
        profiles = [
            replace(each, origin=replace(each.origin, file=report.name)) for each in read if each
        ]
        run = publish_run(done.folder, reports, profiles)
        notes += done.session.notes
    result = judged(done.step.trace, str(done.trace), known)
    other = [each for each in done.chosen if run and each not in result.known]
    if other:
        names = [kernel_name(done.step.trace.shapes[each].function) for each in other]
        notes.append(
            f"{len(other)} of {len(done.chosen)} kernels were not launched under ncu as they were recorded: {shortlist(names, 3)}"
        )
    sentences = (f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in notes)
    result = replace(result, notes=(*result.notes, *sentences))
    assert result.found is not None
    page = write_program_page(result.found, done.folder / PAGE, result.known)
    return StepPage(result, run, page, (done.trace, *([report] if run else [])))
