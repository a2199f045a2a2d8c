"""`ncu-toolkit probe`: what limits kernels, without performance counters."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from ncu_toolkit.cli._common import (
    WIDTH,
    Chosen,
    PathName,
    Progress,
    any_of,
    choose_options,
    emit,
    format_option,
    options,
    shown_as,
    tuned_option,
)
from ncu_toolkit.core import patterns
from ncu_toolkit.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import regime
from ncu_toolkit.diagnosis.engine import diagnose
from ncu_toolkit.document.answer import CARDS, TOP
from ncu_toolkit.document.card import short_name
from ncu_toolkit.explain.probed import Verdict, answer_of
from ncu_toolkit.gpu import cuda, selection, trace
from ncu_toolkit.model import Context, Profile
from ncu_toolkit.model.profile import Launch
from ncu_toolkit.model.trace import Trace

FORMATS = ("text", "markdown", "brief", "json")


@click.command("probe")
@options(
    partial(choose_options, program=True),
    tuned_option,
    click.option("--experiments/--no-experiments", default=None,
        help="Run other work beside the kernels, and see which of it slows them.  [default: for kernels of a ladder; a program becomes slower by "
        "it, with the same results]"),
    click.option("--top", type=click.IntRange(min=1), default=TOP, show_default=True, metavar="N", help="Kernels in the table."),
    format_option(FORMATS, "Format to print."),
    click.option("--output", "-o", type=PathName(), help="File to write instead of printing."),
    click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ARGUMENTS…]"),
    click.pass_context,
)  # fmt: skip
def command(
    ctx: click.Context, chosen: Chosen, tuned: bool, experiments: bool | None, top: int, form: str, output: Path | None,
    program: tuple[str, ...],
) -> None:  # fmt: skip
    """Find what limits kernels where the GPU's performance counters are locked.

    `ncu-toolkit probe -- python script.py` runs the program once, with its own input, output and
    exit code, and records each launch through CUPTI: times, shapes, occupancy, and the gaps in
    which the GPU ran no kernel. With --experiments it also runs slices of other work beside the
    program, which load one unit of the GPU at a time. `--kernel NAME` does the same to a ladder's
    kernel.

    Neither needs a permission. The verdict is a regime, with less confidence than one from
    counters; see docs/probe.md."""
    if bool(program) == bool(
        chosen.families or chosen.everything or (chosen.kernels and not program)
    ):
        raise UsageProblem(
            "give a program or a ladder, not both" if program else "nothing to probe",
            "Put a program after '--': ncu-toolkit probe -- python script.py; or name a --kernel",
        )
    if program:
        pattern = any_of(chosen.kernels or ("",))
        patterns.compiled(pattern, "--kernel")
        code = _program(program, bool(experiments), top, form, output, pattern)
        ctx.exit(code)
    cases = chosen.cases(lambda problem: problem.bench_sizes[-1:])
    if experiments is False:
        raise UsageProblem(
            "a ladder's kernel is probed by experiments", "Leave --no-experiments out"
        )
    _rungs(cases, tuned, top, form, output)


def _program(
    program: tuple[str, ...],
    experiments: bool,
    top: int,
    form: str,
    output: Path | None,
    pattern: str,
) -> int:
    """Probe a program and show what was found of kernels that match; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-probe-") as name:
        folder = Path(name)
        code = trace.run(program, folder, trace.plan(folder) if experiments else None)
        found = trace.read(folder)
        every = len(found.kernels)
        found = replace(
            found,
            kernels=tuple(
                each
                for each in found.kernels
                if patterns.found(pattern, each.launch.function, "--kernel")
            ),
        )
        if every and not found.kernels:
            raise UsageProblem(
                f"no kernel of the program matches --kernel '{visible(pattern, 200)}'",
                "Leave it out to see all of them",
            )
        verdicts, notes = judged(found, top)
    if experiments:
        notes += [
            f"{short_name(kernel.launch.function)}: too few of its {kernel.launches} launches lay "
            "inside a slice of pressure, so it is judged by its shape"
            for kernel, verdict in zip(found.kernels[:CARDS], verdicts, strict=False)
            if verdict.told is None
        ]
    if code:
        notes.append(f"the program ended with exit code {code}")
    then = f"ncu-toolkit probe --experiments -- {shlex.join(program)}"
    _show(found, verdicts, top, "" if experiments else then, notes, form, output)
    return code


def confirmations(profiles: Sequence[Profile], program: tuple[str, ...]) -> list[str]:
    """Run a profiled program again with experiments: whether they confirm each kernel's verdict. Of
    launches of one shape the first one counts.

    Raises:
        ToolkitError: the experiments cannot be made here, or nothing was launched.
    """
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-probe-") as name:
        trace.run(program, Path(name), trace.plan(Path(name)))
        kernels = {_shape(each.launch): each for each in trace.read(Path(name)).kernels}
    said = {}
    for profile in profiles:
        kernel = kernels.pop(_shape(profile.launch), None)
        if kernel is None:
            continue
        context = replace(
            profile.context or Context(),
            pressure_us=kernel.conditions,
            pressure_kept=regime.kept(kernel),
        )
        line = regime.confirmation(replace(profile, context=context), diagnose(profile))
        said[short_name(profile.launch.function)] = line
    return [f"{name}: {line}" for name, line in said.items() if line]


def _shape(launch: Launch) -> tuple[object, ...]:
    """What tells a kernel in two programs that name it in two ways."""
    name = short_name(launch.function).split("<")[0].split("(")[0].split("::")[-1]
    return name, launch.grid, launch.block, launch.registers


def _rungs(cases: selection.Cases, tuned: bool, top: int, form: str, output: Path | None) -> None:
    from ncu_toolkit.gpu import probe

    cases, skipped, lines = selection.ready(cases, tuned, cuda.device())
    kernels, verdicts = [], []
    with Progress() as progress:
        for line in [*lines, *(f"skipped {each.what}: {each.reason}" for each in skipped)]:
            progress.note(line)
        for case, kernel, cubin in probe.rungs(cases, progress):
            label = f"{case.rung} {case.size}" if len(cases) > 1 else case.rung
            kernel = replace(kernel, launch=replace(kernel.launch, function=label))
            kernels.append(kernel)
            diagnosis, told = regime.verdict(kernel, cuda.device())
            code = None
            with contextlib.suppress(EnvironmentProblem):  # No disassembler: it does without.
                code = trace.code_in(cubin, kernel.launch) if cubin is not None else None
            verdicts.append(Verdict(diagnosis, told, code))
    if not kernels:
        raise EnvironmentProblem("no kernel could be probed", "The notes above say why")
    found = Trace(cuda.device(), tuple(kernels), len(kernels), 0.0, 0.0)
    _show(found, verdicts, top, "", [], form, output)


def judged(found: Trace, top: int) -> tuple[list[Verdict], list[str]]:
    """A verdict for each of the first kernels, and what could not be read for them."""
    verdicts, notes = [], []
    readable = True
    for at, kernel in enumerate(found.kernels[:top]):
        code = None
        try:
            code = trace.code_of(found, kernel.launch) if at < CARDS and readable else None
        except EnvironmentProblem as error:
            readable = False
            notes.append(f"the kernels' code is not read: {error.message}")
        diagnosis, told = regime.verdict(kernel, found.device)
        verdicts.append(Verdict(diagnosis, told, code))
    return verdicts, notes


def _show(
    found: Trace,
    verdicts: list[Verdict],
    top: int,
    then: str,
    notes: list[str],
    form: str,
    output: Path | None,
) -> None:
    answer = answer_of(found, verdicts, top=top, then=then, notes=notes)
    shown: Any
    if form == "json":
        from ncu_toolkit.pages import json

        shown = json.probe_document(found, verdicts, answer)
    else:
        shown = shown_as(answer, form)
    emit(shown, output, WIDTH)
