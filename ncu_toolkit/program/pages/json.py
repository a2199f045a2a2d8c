"""What was found of programs and tried in one, as JSON, and the kernels of their steps as CSV. Schemas
are program-1.json and trial-1.json in the package's folder schemas/."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ncu_toolkit.base.core.safe import csv_rows, visible
from ncu_toolkit.base.model import finite
from ncu_toolkit.kernel.analysis import gate
from ncu_toolkit.kernel.analysis.analyze import Analysis
from ncu_toolkit.kernel.pages.json import (
    analysis_document,
    as_plain,
    cells,
    diagnosis,
    document_of,
    fields_of,
    file_of,
    opened,
    parsed,
)
from ncu_toolkit.kernel.pages.json import comparison_document as compared_document
from ncu_toolkit.program.analysis import reported
from ncu_toolkit.program.analysis.changes import StepChange
from ncu_toolkit.program.analysis.program import Programs
from ncu_toolkit.program.diagnosis import Judged
from ncu_toolkit.program.explain.program import step_kernels, tested_of
from ncu_toolkit.program.model import ProgramDiagnosis, ProgramTrial
from ncu_toolkit.program.traces.ranks import Job


def report_document(analysis: Analysis, omitted_launches: int = 0) -> str:
    """`analysis_document`, with the program that the launches are of, where they are one's."""
    whole = None if omitted_launches else reported.of_analysis(analysis)
    program = {"program": program_of(*whole, None)} if whole else {}
    return analysis_document(analysis, omitted_launches, **program)


def program_document(programs: Programs, top: int | None = None) -> str:
    """Programs by their traces, with the `top` kernels of each step."""
    return document_of(
        "program",
        files=[
            opened(each, "unreadable" if each.error else "complete") for each in programs.traces
        ],
        reports=[file_of(file) for file in programs.reports.files],
        unjoined=[visible(str(each)) for each in programs.strangers],
        programs=[
            {
                "file": visible(each.path),
                **program_of(found, each.known, top),
                **({"job": job_of(each.job)} if each.job else {}),
                "notes": as_plain((*found.notes, *found.step.trace.notes, *each.notes)),
            }
            for each, found in programs.found
        ],
    )


def job_of(job: Job) -> dict[str, Any]:
    """The ranks of a job, what they exchange, and what that costs; the program is that of rank `rank`."""
    return {
        **fields_of(job, "program? step_us steps joined in_step error_us"),
        "rank": job.shown[0][0],
        "late_rank": job.late.rank if job.late else None,
        "ranks": [asdict(row) for row in job.rows],
        "collectives": [asdict(each) for each in job.exchanges],
        "findings": [{**as_plain(each), "launches": 0, "gaps": 0} for each in job.findings],
    }


def trial_document(trial: ProgramTrial) -> str:
    """What came of settings that were tried in a program."""
    return document_of(
        "trial", **fields_of(trial, "program gpu word before_us notes"), tried=as_plain(trial.tried)
    )


def comparison_document(comparison: gate.Comparison, changes: Sequence[StepChange]) -> str:
    """A comparison of traces: `steps` has the account of each pair's step, as [old, new]."""
    return compared_document(
        comparison,
        steps=[
            {
                **fields_of(each, "program=pair.name step_us=walls_us scales changed"),
                "account": [
                    fields_of(part, "key label old_us new_us change_us=us") for part in each.parts
                ],
                **fields_of(each, "findings"),
                "prediction": _prediction(each),
            }
            for each in changes
        ],
    )


def _prediction(change: StepChange) -> dict[str, Any] | None:
    if change.prediction is None:
        return None
    finding, achieved, side = change.prediction
    names = "rule ceiling_us expected_us measured_us"
    return {**fields_of(finding, names), "achieved_us": achieved, "side": side}


def program_of(found: ProgramDiagnosis, known: Judged, top: int | None) -> dict[str, Any]:
    """A program's step: its account, what was found, and its `top` kernels."""
    step, account = found.step, found.account
    kernels = step_kernels(step, account, known)
    return {
        **fields_of(step.trace, "program? recorder=source lacks"),
        "gpus": [visible(device.name) for device in step.trace.devices],
        "step": {
            **fields_of(step, "how description said=description wall_us spread covered rest launches"),
            "seen": len(step.windows),
            "times_us": [window.us for window in step.windows],
        },
        "account": {
            **fields_of(account, "wall_us busy"),
            "parts": [
                {**fields_of(part, "key label us count"), "share": account.share(part.us)}
                for part in account.parts
            ],
        },
        "findings": [
            {**as_plain(each), "launches": len(each.ops), "gaps": len(each.gaps), "tested": tested_of(found, each)} for each in found.findings
        ],
        "together_us": finite(found.together_us),
        "considered": as_plain(found.considered),
        "omitted_kernels": max(0, len(kernels) - (len(kernels) if top is None else top)),
        "kernels": [
            {
                **fields_of(each, "kernel=launch.kernel function=launch.function class=kind grid=launch.grid block=launch.block"),
                **fields_of(each, "launches total_us=us share line?"),
                "diagnosis": diagnosis(each.verdict) if each.verdict else None,
            }
            for each in kernels[:top]
        ],
    }  # fmt: skip


def program_csv(programs: Programs, top: int | None = None) -> str:
    """One row for each kernel of each program's step. Unreadable traces get a row too."""
    shown = parsed(
        "kernel=launch.kernel class=kind grid=launch.grid block=launch.block launches total_us=us share line "
        "bottleneck=verdict.primary.bottleneck predicted_speedup=verdict.primary.speedup"
    )
    rows: list[list[object]] = [["file", *(key for key, _, _ in shown)]]
    for each, found in programs.found:
        for kernel in step_kernels(found.step, found.account, each.known)[:top]:
            known = shown if kernel.verdict else shown[:-2]
            rows.append([each.path, *cells(kernel, known), *[None] * (len(shown) - len(known))])
    for each in programs.traces:
        if each.error is not None:
            rows.append([each.path, f"unreadable: {each.error.message}"])
    return csv_rows(rows)
