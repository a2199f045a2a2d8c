"""Make a recording of ladders that can be shipped.

    python -m benchmarks.record --family transpose --output recordings/h200-transpose

Importing this module adds the command `record` to the command line of ncu-toolkit."""

import contextlib
import lzma
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.parsed import save_parsed, save_rules
from ncu_toolkit.base.core.errors import ToolkitError, UsageProblem
from ncu_toolkit.base.core.files import make_folder
from ncu_toolkit.base.model.run import Run, Skipped
from ncu_toolkit.cli import cli, main
from ncu_toolkit.cli._common import Progress, console
from ncu_toolkit.cli._options import (
    Chosen,
    Cluster,
    PathName,
    Seconds,
    option,
    options,
    split,
    switch,
)
from ncu_toolkit.kernel.gpu import runner, selection
from ncu_toolkit.kernel.gpu.executor import HERE, Executor
from ncu_toolkit.kernel.gpu.runner import Session
from ncu_toolkit.kernel.gpu.selection import Cases
from ncu_toolkit.kernel.ladder.catalogue import find_rung, load_families
from ncu_toolkit.kernel.ladder.problems import Problem, problem_for
from ncu_toolkit.kernel.report import reader, scrub
from ncu_toolkit.kernel.runs import store

#: Rungs that the curve over sizes times beside the baseline.
CURVE_RUNGS: Final = 2
_STOCK_RULES: Final = "Nsight Compute's own rules"


@dataclass(frozen=True)
class Recording:
    """What is recorded, and how."""

    families: tuple[str, ...]
    target: Path
    sizes: str | None
    bench_sizes: str | None
    dtype: str | None
    seconds: float
    stock_sizes: str | None
    stock_rules: bool
    curve: bool
    timeout: float
    tuned: bool

    def cases(self, sizes: str | None, own: Callable[[Problem], Sequence[str]]) -> Cases:
        """The cases of the families; of a family's `own` sizes where none are given."""
        return Chosen((), self.families, False, sizes, self.dtype, ()).cases(own)


@click.command("record")
@options(
    asked=Recording,
    families="A ladder to record; repeat it, or separate names by commas.",
    target=option("New folder for the recording.", "--output", "-o", type=PathName(file_okay=False), required=True),
    sizes="Sizes to profile.  [default: the family's recorded sizes]",
    bench_sizes=option("Sizes to time.  [default: the family's bench sizes]", "--bench-size", metavar="SIZE[,SIZE…]"),
    seconds=option("GPU time spent on timing one rung at one size.", type=Seconds(0.01), default=0.25, show_default=True),
    stock_sizes=option("Sizes of the run with the stock rules.  [default: the largest recorded size]", "--stock-size", metavar="SIZE[,SIZE…]"),
    stock_rules=switch("Also run Nsight Compute's own full set, for its rules' verdicts.", "--stock-rules/--no-stock-rules"),
    curve=switch("Also time the library and the fastest rungs over more sizes, where the family has such.", "--curve/--no-curve"),
    timeout=option("", default=runner.DEFAULT_TIMEOUT),
    finish="Scrub and compress an interrupted recording in --output. Needs no GPU.",
)  # fmt: skip
def command(asked: Recording, where: Cluster, finish: bool) -> None:
    """Profile and time ladders, and keep them as a recording that can be shipped.

    Host names, addresses and home folders are replaced, and machine code of libraries is blanked.
    Set NCU_TOOLKIT_SOURCE_ROOT=/src so that line information names a neutral folder. A wrong kernel
    ends the recording, and nothing is kept as finished. An interrupted recording keeps its data in
    its folder, and `--finish` finishes it."""
    target = asked.target
    if finish:
        if asked.families:
            raise UsageProblem(
                "--finish takes no --family", "It finishes the recording in --output"
            )
        _finish(target)
        return
    if not asked.families:
        raise UsageProblem(
            "no --family is given",
            "Name a ladder to record, or finish an interrupted recording with --finish",
        )
    begun = where.cluster is not None and (target / store.MANIFEST).is_file()
    if not begun and target.exists() and any(target.iterdir()):
        raise UsageProblem(
            f"'{target}' is not empty", "Name a new folder: a recording is never overwritten"
        )
    cases = asked.cases(asked.sizes, lambda problem: problem.record_sizes)
    timed = asked.cases(asked.bench_sizes, lambda problem: problem.bench_sizes)
    # At its further sizes only the library's kernels: which one does it pick where?
    further = asked.cases(None, lambda problem: problem.library_sizes)
    library = tuple(case for case in further if selection.rung_of(case).library)
    with contextlib.ExitStack() as stack:
        executor = stack.enter_context(where.opened())
        device = executor.device()
        executor.ncu()
        last = asked.stock_sizes or (asked.sizes and asked.sizes.rpartition(",")[2])
        for_rules = asked.cases(last, lambda problem: problem.record_sizes[-1:])
        for_rules, *_ = selection.ready(for_rules, asked.tuned, device, executor.run)
        cases, skipped = selection.runnable_here(cases, device)
        cases, lines = selection.settled(_merged(cases, library), asked.tuned, device, executor.run)
        timed = _merged(selection.runnable_here(timed, device)[0], library)
        timed = selection.settled(timed, asked.tuned, device, executor.run)[0]
        make_folder(target)
        progress = stack.enter_context(Progress())
        if begun:
            session = _begun(target, (*cases, *timed), progress, executor)
        else:
            session = runner.start(target, ", ".join(split(asked.families)), executor=executor)
            session.update(skipped=skipped)
        for line in lines:
            progress.note(line)
        runner.build_all(session, cases, progress, executor)
        runner.time_all(
            session, timed, progress, runner.TimingOptions(seconds=asked.seconds), executor
        )
        if asked.curve and not (target / store.CURVE).is_file():
            _time_curve(asked, session, progress, executor)
        runner.measure_ceilings(session, progress, executor)
        session.save()
        part = runner.PART_SECONDS if executor.boards else None
        options = runner.NcuOptions(asked.timeout, part_seconds=part)
        runner.profile_all(session, cases, progress, options, executor)
        if asked.stock_rules:
            try:
                _stock(session, for_rules, progress, asked.timeout, executor)
            except ToolkitError as error:
                # The recording is whole without these verdicts, and says that they are missing.
                progress.note(f"{_STOCK_RULES} are not in the recording: {error.message}")
                lost = Skipped(_STOCK_RULES, error.message)
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
    console().print(f"Recorded {title} in {target} ({total / 2**20:.1f} MiB)")


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
        lost = Skipped(_STOCK_RULES, "the recording was interrupted while they were collected")
        store.save_manifest(target, replace(manifest, skipped=(*manifest.skipped, lost)))
    _pack(target)
    _done(manifest.title, target)


def _merged(cases: Cases, more: Cases) -> Cases:
    """The cases and those of `more` whose rung is among them, each once."""
    rungs = {(case.family, case.rung) for case in cases}
    added = [case for case in more if (case.family, case.rung) in rungs]
    return tuple({case.marker: case for case in (*cases, *added)}.values())


@contextlib.contextmanager
def _apart(session: Session, name: str, **changes: Any) -> Iterator[Session]:
    """A session in its own folder within that of another, which gets its failures."""
    folder = session.folder / name
    folder.mkdir(exist_ok=True)
    apart = Session(replace(session.run, costs={}, **changes), folder)
    yield apart
    shutil.rmtree(folder)
    session.failures += apart.failures
    session.interrupted = session.interrupted or apart.interrupted
    session.context_lost = session.context_lost or apart.context_lost


def _time_curve(asked: Recording, session: Session, progress: Progress, executor: Executor) -> None:
    """Time each family's baseline and fastest rungs at the sizes of its curve, into CURVE."""
    rungs = tuple(
        f"{name}/{rung}"
        for name in split(asked.families)
        if problem_for(name).curve_sizes
        for rung in _fastest(session.run, name)
    )
    if not rungs:
        return
    chosen = Chosen(rungs, (), False, None, asked.dtype, ())
    cases = chosen.cases(lambda problem: problem.curve_sizes)
    with _apart(session, "curve", cases=(), timings=()) as apart:
        timed = selection.settled(cases, asked.tuned, executor.device(), executor.run)[0]
        runner.time_all(
            apart, timed, progress, runner.TimingOptions(seconds=asked.seconds), executor
        )
        store.write_json(session.folder / store.CURVE, "timings", list(apart.run.timings))


def _fastest(run: Run, family: str) -> list[str]:
    """The baseline and the fastest steps at the largest timed size; none without both."""
    timed = [timing for timing in run.timings if timing.family == family]
    largest = max(timed, key=lambda timing: (timing.flops, timing.compulsory_bytes), default=None)
    here = [timing for timing in timed if largest and timing.size == largest.size]
    ranked = sorted(here, key=lambda timing: timing.median_us)
    steps = [t.rung for t in ranked if find_rung(f"{family}/{t.rung}").kind == "step"]
    baseline = [t.rung for t in here if t.rung == problem_for(family).baseline]
    return [*baseline, *steps[:CURVE_RUNGS]] if steps and baseline else []


def _stock(
    session: Session, cases: Cases, progress: Progress, timeout: float, executor: Executor = HERE
) -> None:
    """Profile cases with Nsight Compute's full set, and keep its rules' verdicts in rules.json."""
    run = session.run
    known = tuple(
        replace(case, state="timed", report="") for case in run.cases if case.state == "profiled"
    )
    with _apart(session, "stock", cases=known, report_files=(), commands=()) as apart:
        options = runner.NcuOptions(timeout, set_name="full", part_seconds=None)
        runner.profile_all(apart, cases, progress, options, executor)
        profiles = [
            profile
            for name in apart.run.report_files
            for profile in reader.load_report(apart.folder / name, instructions=False).profiles
        ]
        if profiles:
            save_rules(session.folder, store.tie(profiles, apart.run.cases))
    session.update(
        commands=(*run.commands, *apart.run.commands), costs={**run.costs, **apart.run.costs}
    )


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
    raw = [name for name in manifest.report_files if not name.endswith(".xz")]
    for name in raw:
        data = scrub.scrub((target / name).read_bytes(), words=names, keep_code_of=kernels).data
        store.write_atomic(target / f"{name}.xz", lzma.compress(data, preset=9))
    packed = tuple(f"{name.removesuffix('.xz')}.xz" for name in manifest.report_files)
    commands = tuple(_neutral(command) for command in manifest.commands)
    store.save_manifest(target, replace(manifest, report_files=packed, commands=commands))
    # Last, so that a recording that is cut off before still has all of it.
    for path in target.iterdir():
        name = path.name
        if path.is_dir():
            shutil.rmtree(path)
        elif (
            name in raw
            or name.startswith("stock")
            or name.endswith((".log", ".jsonl", "-plan.json"))
        ):
            path.unlink()
    save_parsed(target)


def _neutral(command: str) -> str:
    """A command line whose absolute paths are reduced to their last part."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in command.split())


cli.add_command(command)

if __name__ == "__main__":
    main(["record", *sys.argv[1:]])
