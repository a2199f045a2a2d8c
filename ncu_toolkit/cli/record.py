"""`ncu-toolkit record`: make a recording that can be shipped."""

from __future__ import annotations

import contextlib
import lzma
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from ncu_toolkit.cli._common import (
    Cluster,
    PathName,
    Progress,
    Seconds,
    cluster_options,
    console,
    dtype_option,
    options,
    size_option,
    split,
    tuned_option,
)
from ncu_toolkit.core.errors import ToolkitError, UsageProblem
from ncu_toolkit.core.files import make_folder
from ncu_toolkit.gpu import runner, selection
from ncu_toolkit.gpu.cluster import HERE, Executor
from ncu_toolkit.gpu.runner import Session
from ncu_toolkit.gpu.selection import Cases
from ncu_toolkit.ladder.catalogue import find_rung, load_families
from ncu_toolkit.ladder.problems import Problem, problem_for
from ncu_toolkit.model.run import Run, Skipped
from ncu_toolkit.report import scrub
from ncu_toolkit.runs import store

#: Rungs that the curve over sizes times beside the baseline.
CURVE_RUNGS: Final = 2


@click.command("record")
@options(
    click.option("--family", "-f", "families", multiple=True, metavar="NAME", help="A ladder to record; repeat it, or separate names by commas."),
    click.option("--output", "-o", "target", type=PathName(file_okay=False), required=True, help="New folder for the recording."),
    size_option("Sizes to profile.  [default: the family's recorded sizes]"),
    click.option("--bench-size", "bench_sizes", metavar="SIZE[,SIZE…]", help="Sizes to time.  [default: the family's bench sizes]"),
    dtype_option,
    click.option("--seconds", type=Seconds(0.01), default=0.25, show_default=True, help="GPU time spent on timing one rung at one size."),
    click.option("--stock-size", "stock_sizes", metavar="SIZE[,SIZE…]",
        help="Sizes of the run with the stock rules.  [default: the largest recorded size]"),
    click.option("--stock-rules/--no-stock-rules", default=True, show_default=True,
        help="Also run Nsight Compute's own full set, for its rules' verdicts."),
    click.option("--curve/--no-curve", default=True, show_default=True,
        help="Also time the library and the fastest rungs over more sizes, where the family has such."),
    click.option("--timeout", type=Seconds(), default=runner.DEFAULT_TIMEOUT, show_default=True, metavar="SECONDS"),
    tuned_option,
    cluster_options,
    click.option("--finish", is_flag=True, help="Scrub and compress an interrupted recording in --output. Needs no GPU."),
)  # fmt: skip
def command(
    families: tuple[str, ...], target: Path, sizes: str | None, bench_sizes: str | None, dtype: str | None, stock_sizes: str | None,
    seconds: float, stock_rules: bool, curve: bool, timeout: float, tuned: bool, where: Cluster, finish: bool,
) -> None:  # fmt: skip
    """Profile and time ladders, and keep them as a recording that can be shipped.

    Host names, addresses and home folders are replaced, and machine code of libraries is blanked.
    Set NCU_TOOLKIT_SOURCE_ROOT=/src so that line information names a neutral folder. A wrong kernel
    ends the recording, and nothing is kept as finished. An interrupted recording keeps its data in
    its folder, and `record --finish` finishes it."""
    if finish:
        if families:
            raise UsageProblem(
                "--finish takes no --family", "It finishes the recording in --output"
            )
        _finish(target)
        return
    if not families:
        raise UsageProblem(
            "no --family is given",
            "Name a ladder to record, or finish an interrupted recording with --finish",
        )
    begun = where.address is not None and (target / store.MANIFEST).is_file()
    if not begun and target.exists() and any(target.iterdir()):
        raise UsageProblem(
            f"'{target}' is not empty", "Name a new folder: a recording is never overwritten"
        )
    names = split(families)

    def chosen(text: str | None, own: Callable[[Problem], Sequence[str]]) -> Cases:
        return selection.select((), names, False, text, dtype, default_sizes=own)

    cases = chosen(sizes, lambda problem: problem.record_sizes)
    timed = chosen(bench_sizes, lambda problem: problem.bench_sizes)
    # At its further sizes only the library's kernels: which one does it pick where?
    further = chosen(None, lambda problem: problem.library_sizes)
    library = tuple(case for case in further if selection.rung_of(case).library)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(where.opened())
        device = executor.device()
        executor.ncu()
        last = stock_sizes or (sizes and sizes.rpartition(",")[2])
        for_rules = chosen(last, lambda problem: problem.record_sizes[-1:])
        for_rules, *_ = selection.ready(for_rules, tuned, device)
        cases, skipped = selection.runnable_here(cases, device)
        cases, lines = selection.settled(_merged(cases, library), tuned, device)
        timed = _merged(selection.runnable_here(timed, device)[0], library)
        timed = selection.settled(timed, tuned, device)[0]
        make_folder(target)
        progress = stack.enter_context(Progress())
        if begun:
            session = _begun(target, (*cases, *timed), progress, executor)
        else:
            session = runner.start(target, ", ".join(names), executor=executor)
            session.update(skipped=skipped)
        for line in lines:
            progress.note(line)
        runner.build_all(session, cases, progress, executor)
        runner.time_all(session, timed, progress, seconds=seconds, executor=executor)
        if curve and not (target / store.CURVE).is_file():
            _time_curve(session, names, dtype, tuned, progress, seconds, executor)
        runner.measure_ceilings(session, progress, executor)
        session.save()
        part = runner.PART_SECONDS if executor.boards else None
        runner.profile_all(
            session, cases, progress, timeout=timeout, part_seconds=part, executor=executor
        )
        if stock_rules:
            try:
                _stock(session, for_rules, progress, timeout, executor)
            except ToolkitError as error:
                # The recording is whole without these verdicts, and says that they are missing.
                progress.note(
                    f"Nsight Compute's own rules are not in the recording: {error.message}"
                )
                lost = Skipped("Nsight Compute's own rules", error.message)
                session.update(skipped=(*session.run.skipped, lost))
        session.save()
    _pack(target)
    if session.failures:
        raise session.failures[0]
    _done(session.run.title, target)


def _begun(target: Path, cases: Cases, progress: Progress, executor: Executor) -> Session:
    """An interrupted recording of the same kernels goes on, on a cluster.

    Raises:
        UsageProblem: it is finished, or of other kernels or parameters.
    """
    session = runner.resume(target, progress, executor, ladder=False)
    if any(name.endswith(".xz") for name in session.run.report_files):
        raise UsageProblem(f"'{target}' is finished already", "Name a new folder")
    asked = {runner.identity(case) for case in cases}
    if other := [each for each in session.run.cases if runner.identity(each) not in asked]:
        raise UsageProblem(
            f"'{target}' holds a recording with {other[0].label}, which is not asked for now",
            "Give the command that began it, or name a new folder",
        )
    shutil.rmtree(target / "stock", ignore_errors=True)
    return session


def _done(title: str, target: Path) -> None:
    total = sum(path.stat().st_size for path in target.iterdir())
    console().print(f"Recorded {title} in {target} ({total / 2**20:.1f} MiB)", markup=False)


def _finish(target: Path) -> None:
    manifest = store.load_manifest(target)
    if not manifest.report_files:
        raise UsageProblem(
            f"'{target}' has no report yet: the recording was interrupted before it profiled",
            "Record it again, into a new folder",
        )
    if all(name.endswith(".xz") for name in manifest.report_files):
        raise UsageProblem(
            f"'{target}' is finished already", "Name the folder of an interrupted recording"
        )
    if any(target.glob("stock*")) and not (target / store.RULES).is_file():
        lost = Skipped(
            "Nsight Compute's own rules", "the recording was interrupted while they were collected"
        )
        store.save_manifest(target, replace(manifest, skipped=(*manifest.skipped, lost)))
    _pack(target)
    _done(manifest.title, target)


def _merged(cases: Cases, more: Cases) -> Cases:
    """The cases and those of `more` whose rung is among them, each once."""
    rungs = {(case.family, case.rung) for case in cases}
    added = [case for case in more if (case.family, case.rung) in rungs]
    return tuple({case.marker: case for case in (*cases, *added)}.values())


def _time_curve(
    session: Session,
    names: Sequence[str],
    dtype: str | None,
    tuned: bool,
    progress: Progress,
    seconds: float,
    executor: Executor,
) -> None:
    """Time the baseline and the fastest rungs of each family at its curve's sizes, in turns and
    without the others, into CURVE."""
    rungs = [
        f"{name}/{rung}"
        for name in names
        if problem_for(name).curve_sizes
        for rung in _fastest(session.run, name)
    ]
    if not rungs:
        return
    cases = selection.select(
        rungs, (), False, None, dtype, default_sizes=lambda problem: problem.curve_sizes
    )
    folder = session.folder / "curve"
    folder.mkdir(exist_ok=True)
    apart = Session(replace(session.run, cases=(), timings=(), costs={}), folder)
    timed = selection.settled(cases, tuned, executor.device())[0]
    runner.time_all(apart, timed, progress, seconds=seconds, executor=executor)
    store.write_json(session.folder / store.CURVE, "timings", list(apart.run.timings))
    shutil.rmtree(folder)
    session.failures += apart.failures
    session.context_lost = session.context_lost or apart.context_lost


def _fastest(run: Run, family: str) -> list[str]:
    """The baseline of a family and its fastest steps, as timed at the largest size; none where
    fewer than two were."""
    timed = [timing for timing in run.timings if timing.family == family]
    largest = max(timed, key=lambda timing: (timing.flops, timing.compulsory_bytes), default=None)
    here = [timing for timing in timed if largest and timing.size == largest.size]
    ranked = sorted(here, key=lambda timing: timing.median_us)
    steps = [t.rung for t in ranked if find_rung(f"{family}/{t.rung}").kind == "step"]
    baseline = [t.rung for t in here if t.rung == problem_for(family).baseline]
    return [*baseline, *steps[:CURVE_RUNGS]] if steps and baseline else []


def _stock(
    session: Session,
    cases: Cases,
    progress: Progress,
    timeout: float,
    executor: Executor = HERE,
) -> None:
    """Profile cases again with Nsight Compute's full set, and keep only its rules' verdicts, in
    rules.json."""
    from ncu_toolkit.report import reader

    run, folder = session.run, session.folder / "stock"
    folder.mkdir()
    known = tuple(
        replace(case, state="timed", report="") for case in run.cases if case.state == "profiled"
    )
    apart = Session(replace(run, cases=known, report_files=(), commands=(), costs={}), folder)
    runner.profile_all(
        apart,
        cases,
        progress,
        timeout=timeout,
        set_name="full",
        part_seconds=None,
        executor=executor,
    )
    profiles = [
        profile
        for name in apart.run.report_files
        for profile in reader.load_profiles(folder / name, instructions=False)
    ]
    if profiles:
        store.save_rules(session.folder, store.tie(profiles, apart.run.cases))
    shutil.rmtree(folder)
    session.update(
        commands=(*run.commands, *apart.run.commands), costs={**run.costs, **apart.run.costs}
    )
    session.failures += apart.failures
    session.interrupted = session.interrupted or apart.interrupted


def _pack(target: Path) -> None:
    """Scrub and compress the reports, drop logs and plans, and rename the files in the manifest."""
    manifest = store.load_manifest(target)
    kernels = {
        launch.kernel
        for family in load_families().values()
        for rung in family.rungs
        for launch in rung.launches
    }
    names = scrub.machine_names()
    packed = []
    for name in manifest.report_files:
        if name.endswith(".xz"):
            packed.append(name)
            continue
        data = scrub.scrub((target / name).read_bytes(), words=names, keep_code_of=kernels).data
        store.write_atomic(target / f"{name}.xz", lzma.compress(data, preset=9))
        packed.append(f"{name}.xz")
    commands = tuple(_neutral(command) for command in manifest.commands)
    store.save_manifest(target, replace(manifest, report_files=tuple(packed), commands=commands))
    # Last, so that a recording that is cut off before still has all of it.
    for path in target.iterdir():
        raw = path.name in manifest.report_files and path.name not in packed
        if path.is_dir():
            shutil.rmtree(path)
        elif (
            raw
            or path.suffix in (".log", ".jsonl")
            or path.name.endswith("-plan.json")
            or path.name.startswith("stock")
        ):
            path.unlink()
    store.save_parsed(target)


def _neutral(command: str) -> str:
    """A command line with folders reduced to their last component, so that it can be repeated and
    names no machine."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in command.split())
