"""`ncu-toolkit probe`: what limits kernels, without performance counters."""

import contextlib
import itertools
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import click

from ncu_toolkit.base.core import patterns
from ncu_toolkit.base.core.errors import EXIT_INTERRUPTED, EnvironmentProblem, UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import short_name
from ncu_toolkit.base.document.views import CARDS, TOP, Answer
from ncu_toolkit.base.model import Context, Profile
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.base.model.trace import KernelTimes
from ncu_toolkit.cli import _options
from ncu_toolkit.cli._common import Progress
from ncu_toolkit.cli._program import ProgramCommand
from ncu_toolkit.guests.probe import trace
from ncu_toolkit.guests.probe.probed import Probed, answer_of
from ncu_toolkit.kernel.diagnosis import regime
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.gpu import cuda, executor, selection

FORMATS: Final = ("text", "markdown", "brief", "json")


@click.command("probe", cls=ProgramCommand)
@_options.options(
    kernels=f"{_options.KERNEL} Can be repeated, or separate names of a ladder's kernels by commas.",
    experiments=_options.switch("Run other work alongside the kernels, and see which of it slows them.  [default: on for kernels of a "
        "ladder, off for a program, which it slows down without changing its results]", "--experiments/--no-experiments", default=None),
    top=_options.option("Kernels in the table.", default=TOP, show_default=True),
    form=_options.formats(FORMATS, "Format to print."),
    output="File to write instead of printing.",
)  # fmt: skip
def command(
    chosen: _options.Chosen, tuned: bool, experiments: bool | None, top: int, out: _options.Output, program: tuple[str, ...]
) -> int:  # fmt: skip
    """Find what limits kernels where the GPU's performance counters cannot be read.

    `ncu-toolkit probe -- python script.py` runs the program once, with its own input, output and
    exit code, and records each launch through CUPTI: times, grids, blocks, occupancy, and the gaps in
    which the GPU ran no kernel. With --experiments it also runs slices of other work alongside the
    program, which load one unit of the GPU at a time. `--kernel NAME` does the same for a ladder's
    kernel.

    No special permissions are needed. The verdict is only a class (such as limited by memory), less
    certain than one from counters; see docs/probe.md."""
    ladder = chosen.families or chosen.everything or (chosen.kernels and not program)
    if bool(program) == bool(ladder):
        raise UsageProblem(
            "give a program or a ladder, not both" if program else "nothing to probe",
            "Put a program after '--': ncu-toolkit probe -- python script.py; or name a --kernel",
        )
    notes: list[str] = []
    code, then = 0, ""
    if program:
        pattern = _options.any_of(chosen.kernels or ("",))
        patterns.compiled(pattern, "--kernel")
        found, verdicts, notes, code = _program(program, bool(experiments), top, pattern)
        if not experiments:
            then = f"ncu-toolkit probe --experiments -- {shlex.join(program)}"
    else:
        cases = chosen.cases(lambda problem: problem.bench_sizes[-1:])
        if experiments is False:
            raise UsageProblem(
                "a ladder's kernel is probed by experiments", "Leave --no-experiments out"
            )
        found, verdicts = _rungs(cases, tuned)
    answer = answer_of(found, verdicts, top=top, then=then, notes=notes)
    if out.form == "json":
        out.text(document(found, verdicts, answer))
    else:
        out.answer(answer)
    return code


def _program(
    program: tuple[str, ...], experiments: bool, top: int, pattern: str
) -> tuple[KernelTimes, list[Probed], list[str], int]:
    """Probe a program: matching kernels, verdicts of the first ones, notes, and its exit code."""
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-probe-") as name:
        folder = Path(name)
        plan = trace.plan(folder) if experiments else None
        try:
            code = trace.run(program, folder, plan)
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
        try:
            found = trace.read(folder)
        except UsageProblem:
            if code == EXIT_INTERRUPTED:
                raise KeyboardInterrupt("nothing was recorded") from None
            raise
        wanted = [patterns.found(pattern, k.launch.function, "--kernel") for k in found.kernels]
        matching = tuple(itertools.compress(found.kernels, wanted))
        if found.kernels and not matching:
            raise UsageProblem(
                f"no kernel of the program matches --kernel '{visible(pattern, 200)}'",
                "Leave it out to see all of them",
            )
        found = replace(found, kernels=matching)
        verdicts, notes = judged(found, top)
    if experiments:
        notes += [
            f"{short_name(kernel.launch.function)}: too few of its {kernel.launches} launches lay "
            "inside a slice of pressure, so it is judged by its shape"
            for kernel, verdict in zip(found.kernels[:CARDS], verdicts, strict=False)
            if verdict.regime is None
        ]
    if code:
        notes.append(f"the program ended with exit code {code}")
    return found, verdicts, notes, code


def confirmations(profiles: Sequence[Profile], program: tuple[str, ...]) -> list[str]:
    """Run a profiled program again with experiments: whether they confirm each kernel's verdict. Of
    launches of one shape the first one counts.

    Raises:
        ToolkitError: the experiments cannot be made here, or nothing was launched.
    """
    with tempfile.TemporaryDirectory(prefix="ncu-toolkit-probe-") as name:
        trace.run(program, Path(name), trace.plan(Path(name)))
        kernels = {_shape(each.launch): each for each in trace.read(Path(name)).kernels}
    text = {}
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
        text[short_name(profile.launch.function)] = line
    return [f"{name}: {line}" for name, line in text.items() if line]


def _shape(launch: Launch) -> tuple[object, ...]:
    """What tells a kernel in two programs that name it in two ways."""
    name = short_name(launch.function).split("<")[0].split("(")[0].split("::")[-1]
    return name, launch.grid, launch.block, launch.registers


def _rungs(cases: selection.Cases, tuned: bool) -> tuple[KernelTimes, list[Probed]]:
    from ncu_toolkit.guests.probe import probe

    cases, skipped, lines = selection.ready(cases, tuned, cuda.device(), executor.HERE.run)
    kernels, verdicts = [], []
    with Progress() as progress:
        for line in [*lines, *(f"skipped {each.what}: {each.reason}" for each in skipped)]:
            progress.note(line)
        for case, kernel, cubin in probe.rungs(cases, progress):
            label = f"{case.rung} {case.size}" if len(cases) > 1 else case.rung
            kernel = replace(kernel, launch=replace(kernel.launch, function=label))
            kernels.append(kernel)
            diagnosis, probed = regime.verdict(kernel, cuda.device())
            code = None
            with contextlib.suppress(EnvironmentProblem):  # No disassembler: it does without.
                code = trace.code_in(cubin, kernel.launch) if cubin is not None else None
            verdicts.append(Probed(diagnosis, probed, code))
    if not kernels:
        raise EnvironmentProblem("no kernel could be probed", "The notes above say why")
    return KernelTimes(cuda.device(), tuple(kernels), len(kernels), 0.0, 0.0), verdicts


def judged(found: KernelTimes, top: int) -> tuple[list[Probed], list[str]]:
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
        diagnosis, probed = regime.verdict(kernel, found.device)
        verdicts.append(Probed(diagnosis, probed, code))
    return verdicts, notes


def document(trace: KernelTimes, verdicts: Sequence[Probed], shown: Answer) -> str:
    """What a probe found: kernels with most time first, the first ones with their verdict and
    card."""
    from ncu_toolkit.kernel.pages import json

    kernels = []
    for at, kernel in enumerate(trace.kernels):
        row = {
            "kernel": visible(kernel.launch.function),
            **json.fields_of(kernel.launch, "grid block registers shared_static shared_dynamic"),
            **json.fields_of(
                kernel,
                "launches total_us median_us low_us high_us conditions_us=conditions kept=rates",
            ),
        }
        if at < len(verdicts):
            row["diagnosis"] = json.diagnosis(verdicts[at].diagnosis)
        if at < len(shown.cards):
            row["card"] = json.card(shown.cards[at])
        kernels.append(row)
    return json.document_of(
        "probe",
        device=asdict(trace.device),
        **json.fields_of(trace, "launches span_us busy_us median_gap_us=gap_us"),
        gaps=json.as_plain(trace.gaps),
        kernels=kernels,
        notes=json.as_plain(shown.notes),
    )
