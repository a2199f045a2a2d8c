"""Runs, baselines and reports as rows of the history."""

import datetime
import hashlib
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from ncu_toolkit import __version__
from ncu_toolkit.base.core.errors import InputProblem, ToolkitError
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.model import Context, Diagnosis, Profile, Timing, finite
from ncu_toolkit.base.model.run import Run, RunCase
from ncu_toolkit.guests.history.history import Row, add, opened
from ncu_toolkit.kernel.analysis import analyze
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.rules import title
from ncu_toolkit.kernel.report import integrity
from ncu_toolkit.kernel.report.ncu_action import UNNAMED
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.program.explain.trial import came_of
from ncu_toolkit.program.model import ProgramTrial

_GIT_SECONDS: Final = 10.0
#: Family, rung, size and element type.
Case = tuple[str, str, str, str]


@dataclass(frozen=True)
class Here:
    """What a report does not hold, and the machine and the folder where one works do."""

    gpu_uuid: str = ""
    git_commit: str = ""
    git_dirty: bool | None = None


def here(gpu_uuid: str = "") -> Here:
    """The current folder's commit, and whether it was changed; empty without git or repository."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no") if commit else None
    return Here(gpu_uuid, commit or "", None if changes is None else bool(changes))


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def rows_of_run(
    run: Run, folder: Path, diagnose: Callable[[Profile], Diagnosis], at: Here | None = None
) -> tuple[Row, ...]:
    """A row for each launch of a run, and for each timing without one. Raises InputProblem where
    its date is none, or a report is missing."""
    at = at or Here()
    try:
        datetime.datetime.fromisoformat(run.created)
    except ValueError:
        raise InputProblem(
            f"'{folder / store.MANIFEST}': created is '{visible(run.created, 80)}', which is not a date",
            "The manifest was edited; make the run again",
        ) from None
    cases = {case.marker: case for case in run.cases}
    sums = {name.removesuffix(".xz"): integrity.digest(folder / name) for name in run.report_files}
    main: dict[Case, Profile] = {}
    for profile in sorted(run.profiles, key=lambda each: each.duration_us or 0.0, reverse=True):
        if c := profile.rung:
            main.setdefault(_case(c), profile)
    timings: dict[Case, Timing] = {}
    for timing in run.timings:
        timings.setdefault(_case(timing), timing)
    rows = []
    for profile in run.profiles:
        c = profile.rung
        leads = c is not None and main[_case(c)] is profile
        timed = timings.get(_case(c)) if c and leads else None
        source = next((cases[m].source for m in profile.launch.nvtx if m in cases), "")
        digest = sums[Path(profile.origin.file).name.removesuffix(".xz")]
        row = _row(profile, diagnose(profile), digest, run, at, source)
        row = replace(row, name=c.rung) if c and leads else row
        rows.append(
            replace(row, time_us=timed.median_us, spread=finite(timed.spread)) if timed else row
        )
    sources = {_case(case): case.source for case in run.cases}
    for key, timing in timings.items():
        if key not in main:
            rows.append(_timing_row(timing, ":".join(key), run, at, sources.get(key, "")))
    return tuple(rows)


def _case(of: Context | RunCase | Timing) -> Case:
    return (of.family, of.rung, of.size, of.dtype)


def _timing_row(timing: Timing, key: str, run: Run, at: Here, code: str) -> Row:
    digest = hashlib.sha256(repr(timing.times_us).encode()).hexdigest()
    return Row(
        report=digest, launch=key, run=run.id, date=run.created, tool=run.tool_version, gpu=run.device.name,
        driver=run.environment.get("Driver", ""), **asdict(at), name=timing.rung, code=code, size=timing.size, dtype=timing.dtype, status="complete",
        time_us=timing.median_us, spread=finite(timing.spread),
    )  # fmt: skip


def rows_of_trial(trial: ProgramTrial, folder: Path, at: Here | None = None) -> tuple[Row, ...]:
    """The step of a program as it is, and with each switch that was timed: what it gained."""
    at = at or Here()
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    timed = [(each.switches, each.after_us, each) for each in trial.tried if each.after_us]
    rows = []
    for switches, times, tried in [((), trial.before_us, None), *timed]:
        middle, which = statistics.median(times), " + ".join(switches)
        low, *_, high = statistics.quantiles(times, n=10) if len(times) > 1 else (middle, middle)
        name = " with ".join(filter(None, (f"{trial.word} of {trial.program}", which)))
        row = Row(
            report=hashlib.sha256(repr(times).encode()).hexdigest(), launch=which or "step", run=folder.name, date=date,
            tool=__version__, gpu=trial.gpu, **asdict(at), name=name, status="complete", time_us=middle,
            spread=finite((high - low) / middle if middle else None),
        )  # fmt: skip
        if tried is not None:
            differ = ", other results" if tried.results == "differ" else ""
            row = replace(row, verdict=tried.outcome, title=came_of(tried) + differ)
        rows.append(row)
    return tuple(rows)


def _row(
    profile: Profile, diagnosis: Diagnosis, report: str, run: Run, at: Here, code: str = ""
) -> Row:
    launch, context, finding = profile.launch, profile.context, diagnosis.primary
    stalls = profile.stalls
    waits = [r for r in stalls.reasons if r[0] != "selected"] if stalls else []
    stall, cycles = max(waits, key=lambda reason: reason[1], default=("", 0.0))
    return Row(
        report=report, launch=profile.origin.key, run=run.id, date=run.created, tool=run.tool_version, gpu=profile.device.name,
        gpu_uuid=at.gpu_uuid, driver=run.environment.get("Driver", ""), git_commit=at.git_commit, git_dirty=at.git_dirty,
        name=launch.kernel or launch.function, kernel=launch.kernel, code=code or _code(profile),
        size=context.size if context else "", dtype=context.dtype if context else "",
        grid="x".join(map(str, launch.grid or ())), block="x".join(map(str, launch.block or ())), status=launch.status,
        profiled_us=finite(profile.duration_us), verdict=finding.bottleneck if launch.single else "",
        title=title(finding.bottleneck) if launch.single else "",
        gain=finite(finding.speedup) if launch.single else None, confidence=finding.confidence if launch.single else "",
        occupancy_percent=_percent(profile, "achieved_occupancy"), registers=launch.registers,
        dram_percent=_percent(profile, "dram_utilization"),
        l2_percent=_percent(profile, "l2_throughput", "l2_utilization"),
        l1_percent=_percent(profile, "l1_throughput", "l1_data_active"),
        stall=stall, stall_percent=100 * cycles / stalls.total if stalls and stall and stalls.total > 0 else None,
    )  # fmt: skip


def _percent(profile: Profile, *names: str) -> float | None:
    """The first of the metrics that is known, in percent."""
    values = (finite(figures.value(profile, name)) for name in names)
    return next((100 * value for value in values if value is not None), None)


def _code(profile: Profile) -> str:
    """A digest of the launch's instructions; empty where the report holds none."""
    text = "\n".join(instruction.sass for instruction in profile.instructions)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if text else ""


@dataclass(frozen=True)
class Imported:
    """What an import did: launches added and known before, and what could not be read."""

    added: int
    known: int
    broken: tuple[ToolkitError, ...]


def take_in(paths: Sequence[Path], diagnose: Callable[[Profile], Diagnosis]) -> Imported:
    """Add the runs, baselines and reports in `paths` that the history does not have. Raises
    ToolkitError as `opened` and `add`."""
    with opened() as history:
        known = {(row["report"], row["launch"]) for row in history.rows("FROM launches")}
        broken: list[ToolkitError] = list(history.broken)
    counts = [0, 0]
    for rows in _rows_among(paths, diagnose, broken):
        new = [row for row in rows if (row.report, row.launch) not in known]
        add(new)
        known |= {(row.report, row.launch) for row in new}
        counts[0] += len(new)
        counts[1] += len(rows) - len(new)
    return Imported(counts[0], counts[1], tuple(broken))


def _rows_among(
    paths: Sequence[Path], diagnose: Callable[[Profile], Diagnosis], broken: list[ToolkitError]
) -> Iterator[Sequence[Row]]:
    """The rows of each run folder, then of each report that lies in none."""
    folders = sorted(
        {m.parent for path in paths if path.is_dir() for m in path.rglob(store.MANIFEST)}
    )
    for folder in folders:
        try:
            run = store.load_run(folder, live=True)
            rows: Sequence[Row] = rows_of_run(run, folder, diagnose)
        except ToolkitError as error:
            broken.append(error)
            continue
        yield _named(rows, folder, broken)
    reports, empty = analyze.find_reports(paths)
    if not folders:
        broken += [file.error for file in empty if file.error]
    inside = {folder.absolute() for folder in folders}
    loose = [path for path in reports if path.absolute().parent not in inside]
    if not loose:
        return
    for file in analyze.analyze(loose, analyze.Options(profiles=True)).files:
        if file.error is not None:
            broken.append(file.error)
            continue
        if file.lacking:
            broken.append(file.incomplete)
            continue
        path = Path(file.path)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(path.stat().st_mtime))
        digest = integrity.digest(path)
        run = Run(f"{path.name.partition('.')[0]}-{digest[:8]}", path.name, stamp)
        rows = [
            _row(launch.profile, launch.diagnosis, digest, run, Here())
            for launch in file.launches
            if launch.profile is not None
        ]
        yield _named(rows, file.path, broken)


def _named(rows: Sequence[Row], where: object, broken: list[ToolkitError]) -> Sequence[Row]:
    """The rows that have a name; the others go to `broken`."""
    broken += [
        InputProblem(
            f"launch {row.launch} of '{where}' was left out, because it has no name ({row.status})",
            "Copy or record the report again",
        )
        for row in rows
        if row.name == UNNAMED
    ]
    return [row for row in rows if row.name != UNNAMED]
