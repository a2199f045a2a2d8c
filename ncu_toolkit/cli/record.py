"""`ncu-toolkit record`: make a recording that can be shipped."""

from __future__ import annotations

import lzma
import time
from dataclasses import replace
from pathlib import Path

import click

from ncu_toolkit.cli._common import PathName, Progress, Seconds, console, split, tuned_option
from ncu_toolkit.core.errors import ToolkitError, UsageProblem
from ncu_toolkit.gpu import cuda, profiling, session
from ncu_toolkit.gpu.collect import find_ncu
from ncu_toolkit.gpu.selection import Selection
from ncu_toolkit.gpu.session import Collected
from ncu_toolkit.ladder.catalogue import load_families
from ncu_toolkit.model.run import Skipped
from ncu_toolkit.report import scrub
from ncu_toolkit.runs import store


@click.command("record")
@click.option(
    "--family",
    "-f",
    "families",
    multiple=True,
    metavar="NAME",
    help="A ladder to record; repeat it, or separate names by commas.",
)
@click.option(
    "--output",
    "-o",
    "target",
    type=PathName(file_okay=False),
    required=True,
    help="New folder for the recording.",
)
@click.option(
    "--size",
    "-s",
    "sizes",
    metavar="SIZE[,SIZE…]",
    help="Sizes to profile.  [default: the family's recorded sizes]",
)
@click.option(
    "--bench-size",
    "bench_sizes",
    metavar="SIZE[,SIZE…]",
    help="Sizes to time.  [default: the family's bench sizes]",
)
@click.option("--dtype", metavar="TYPE", help="Element type, where the family has several.")
@click.option(
    "--seconds",
    type=Seconds(0.01),
    default=0.25,
    show_default=True,
    help="GPU time spent on timing one rung at one size.",
)
@click.option(
    "--stock-size",
    "stock_sizes",
    metavar="SIZE[,SIZE…]",
    help="Sizes of the run with the stock rules.  [default: the largest recorded size]",
)
@click.option(
    "--stock-rules/--no-stock-rules",
    default=True,
    show_default=True,
    help="Also run Nsight Compute's own full set, for its rules' verdicts.",
)
@click.option(
    "--timeout",
    type=Seconds(),
    default=session.DEFAULT_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
)
@tuned_option
@click.option(
    "--finish",
    is_flag=True,
    help="Scrub and compress what a recording that was cut off has left in --output; needs no GPU.",
)
def command(
    families: tuple[str, ...],
    target: Path,
    sizes: str | None,
    bench_sizes: str | None,
    dtype: str | None,
    stock_sizes: str | None,
    seconds: float,
    stock_rules: bool,
    timeout: float,
    tuned: bool,
    finish: bool,
) -> None:
    """Profile and time ladders, and keep them as a recording that can be shipped.

    Host names, addresses and home folders are replaced, and machine code of libraries is blanked.
    Set NCU_TOOLKIT_SOURCE_ROOT=/src so that line information names a neutral folder. A wrong kernel
    ends the recording: nothing of it is kept as finished. What was collected before a recording was
    cut off stays in its folder: `record --finish` makes a recording of it."""
    if finish:
        if families:
            raise UsageProblem(
                "--finish takes no --family", "It makes a recording of what lies in --output"
            )
        _finish(target)
        return
    if not families:
        raise UsageProblem(
            "no --family is given",
            "Name a ladder to record, or finish a recording that was cut off with --finish",
        )
    if target.exists() and any(target.iterdir()):
        raise UsageProblem(
            f"'{target}' is not empty", "Name a new folder: a recording is never overwritten"
        )
    names = split(families)
    to_profile = session.select(
        (), names, False, sizes, dtype, default_sizes=lambda problem: problem.record_sizes
    )
    to_time = session.select(
        (), names, False, bench_sizes, dtype, default_sizes=lambda problem: problem.bench_sizes
    )
    to_profile, to_time = (
        tuple(replace(selection, tuned=tuned) for selection in chosen)
        for chosen in (to_profile, to_time)
    )
    cuda.cupy()
    find_ncu()
    collected = Collected()
    to_profile = session.runnable_here(to_profile, collected)
    for_rules = tuple(
        replace(
            s, sizes=session.parse_sizes(s.problem, stock_sizes) if stock_sizes else s.sizes[-1:]
        )
        for s in to_profile
    )
    to_profile += _library_selections(to_profile)
    collected.skipped.clear()  # the same rungs are skipped for both; list them once
    to_time = session.runnable_here(to_time, collected)
    to_time += _library_selections(to_time)
    target.mkdir(parents=True, exist_ok=True)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    title = f"{', '.join(names)} on {cuda.device().name}"
    with Progress() as progress:
        session.build_all(to_profile, {}, progress, collected)
        session.time_all(to_time, {}, None, progress, collected, seconds)
        session.measure_ceilings(collected, progress)
        session.save(target, title, created, collected)
        profiling.profile_all(
            to_profile, {}, target, progress, collected, timeout=timeout, part_seconds=None
        )
        session.save(target, title, created, collected)
        if stock_rules:
            try:
                _stock(for_rules, target, progress, collected, timeout)
            except ToolkitError as error:
                # the rules' verdicts are an addition: without them the recording stands, and says
                # so
                progress.note(
                    f"Nsight Compute's own rules are not in the recording: {error.message}"
                )
                collected.skipped.append(Skipped("Nsight Compute's own rules", error.message))
        session.save(target, title, created, collected)
    _pack(target)
    if collected.failures:
        raise collected.failures[0]
    _done(title, target)


def _done(title: str, target: Path) -> None:
    total = sum(path.stat().st_size for path in target.iterdir())
    console().print(f"Recorded {title} in {target} ({total / 2**20:.1f} MiB)", markup=False)


def _finish(target: Path) -> None:
    manifest = store.load_manifest(target)
    if not manifest.report_files:
        raise UsageProblem(
            f"'{target}' holds no report yet: the recording was cut off before it profiled",
            "Record it again, into a new folder",
        )
    if all(name.endswith(".xz") for name in manifest.report_files):
        raise UsageProblem(
            f"'{target}' is finished already", "Name the folder of a recording that was cut off"
        )
    if any(target.glob("stock*")) and not (target / store.RULES).is_file():
        lost = Skipped(
            "Nsight Compute's own rules", "the recording was cut off while they were collected"
        )
        store.save_manifest(target, replace(manifest, skipped=(*manifest.skipped, lost)))
    _pack(target)
    _done(manifest.title, target)


def _library_selections(chosen: tuple[Selection, ...]) -> tuple[Selection, ...]:
    """The library baselines alone at the family's further sizes: which kernels does the library
    pick where?"""
    added = []
    for selection in chosen:
        rungs = tuple(rung for rung in selection.rungs if rung.library)
        sizes = tuple(
            size for size in selection.problem.library_sizes if size not in selection.sizes
        )
        if rungs and sizes:
            added.append(replace(selection, rungs=rungs, sizes=sizes))
    return tuple(added)


def _stock(
    chosen: tuple[Selection, ...],
    target: Path,
    progress: Progress,
    collected: Collected,
    timeout: float,
) -> None:
    """A second run with Nsight Compute's full set; only its rules' verdicts are kept, in
    rules.json."""
    from ncu_toolkit.report import reader

    apart = Collected(
        cases={
            marker: replace(case, state="timed", report="")
            for marker, case in collected.cases.items()
            if case.state == "profiled"
        }
    )
    profiling.profile_all(
        chosen,
        {},
        target,
        progress,
        apart,
        timeout=timeout,
        set_name="full",
        stem="stock",
        part_seconds=None,
    )
    profiles = [
        profile
        for name in apart.reports
        for profile in reader.load_profiles(target / name, instructions=False)
    ]
    if profiles:
        store.save_rules(target, store.tie(profiles, tuple(apart.cases.values())))
    for name in apart.reports:
        (target / name).unlink()
    collected.commands += apart.commands
    collected.failures += apart.failures
    collected.costs.update(apart.costs)
    collected.interrupted = collected.interrupted or apart.interrupted


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
    # only now: cut off before, all of it is still there
    for path in target.iterdir():
        raw = path.name in manifest.report_files and path.name not in packed
        if (
            raw
            or path.suffix in (".log", ".jsonl")
            or path.name.endswith("-plan.json")
            or path.name.startswith("stock")
        ):
            path.unlink()


def _neutral(command: str) -> str:
    """A command line with folders reduced to their last component, so that it can be repeated and
    names no machine."""
    return " ".join(Path(word).name if word.startswith("/") else word for word in command.split())
