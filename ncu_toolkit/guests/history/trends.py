"""The history of kernels as answers and as plain data: how their times and verdicts changed from run to
run."""

import datetime
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.base.document.card import NAME, Course, factor_text, kernel_name, short_name
from ncu_toolkit.base.document.tables import Cell, Column, Spec, Table, Tone, table
from ncu_toolkit.base.document.views import Answer, Trend, TrendPoint
from ncu_toolkit.guests.history.history import History

#: Runs that a sparkline shows.
SPARK: Final = 24
#: Namespaces without a name, as the demangler writes them.
_ANONYMOUS: Final = re.compile(r"(?:\(anonymous namespace\)|<unnamed>)::")
#: Kernels in a table of all, histories of one name, and runs in a table of one where text is
#: written; JSON and CSV hold all.
KERNELS: Final = 40
HISTORIES: Final = 8
RUNS: Final = 40
#: Kernels that a page names as slower.
SLOWER: Final = 6
#: Rows of --sql that text shows.
ROWS: Final = 200
_COMMIT: Final = 9

#: What of a launch is read for a table of all kernels, and for the runs of one.
COLUMNS: Final = (
    "name", "kernel", "size", "dtype", "gpu", "run", "date", "status", "time_us", "spread", "profiled_us", "verdict", "title", "gain",
)  # fmt: skip
RUN_COLUMNS: Final = (
    *COLUMNS, "git_commit", "git_dirty", "occupancy_percent", "registers", "dram_percent", "l2_percent", "l1_percent", "stall", "code",
)  # fmt: skip
#: A run of a kernel: the median of its launches, and the verdict of the longest. Times of CUDA
#: events and times under ncu are never mixed: a kernel that was ever timed is followed by its
#: timings.
_RUNS: Final = """
        SELECT name, size, dtype, gpu, run, min(date) AS date,
               any_value(git_commit) AS git_commit, bool_or(git_dirty) AS git_dirty,
               count(*) AS launches, median(time_us) AS timed_us, median(profiled_us) AS profiled_us,
               median(spread) AS spread,
               CASE WHEN count(profiled_us) > 1 THEN (max(profiled_us) - min(profiled_us)) / median(profiled_us) END AS range,
               coalesce(arg_max(verdict, coalesce(profiled_us, 0)) FILTER (verdict <> ''), '') AS verdict,
               arg_max(title, coalesce(profiled_us, 0)) FILTER (verdict <> '') AS title,
               arg_max(gain, coalesce(profiled_us, 0)) FILTER (verdict <> '') AS gain,
               median(occupancy_percent) AS occupancy_percent, max(registers) AS registers,
               median(dram_percent) AS dram_percent, median(l2_percent) AS l2_percent, median(l1_percent) AS l1_percent,
               arg_max(stall, coalesce(profiled_us, 0)) AS stall, any_value(code) AS code
        FROM launches WHERE status = 'complete' AND {chosen} GROUP BY name, size, dtype, gpu, run ORDER BY date, run
"""
#: Medians take most of the time, so they are of the last runs only: those since `recent`.
_SERIES: Final = """
    WITH runs AS MATERIALIZED (
        SELECT name, size, dtype, gpu, run, min(date) AS date, count(*) AS launches,
               count(time_us) AS timed, count(profiled_us) AS profiled,
               coalesce(arg_max(verdict, coalesce(profiled_us, 0)) FILTER (verdict <> ''), '') AS verdict
        FROM launches WHERE status = 'complete' AND {chosen} GROUP BY name, size, dtype, gpu, run),
    last AS MATERIALIZED (
        SELECT name, size, dtype, gpu, sum(timed) > 0 AS by_events,
               arg_max(verdict, date) FILTER (verdict <> '') AS verdict, arg_max(run, date) FILTER (verdict <> '') AS judged,
               list_min(CASE WHEN sum(timed) > 0 THEN max(date, {spark}) FILTER (timed > 0)
                             ELSE max(date, {spark}) FILTER (profiled > 0) END) AS recent
        FROM runs GROUP BY name, size, dtype, gpu),
    other AS (
        SELECT name, size, dtype, gpu, max(date) FILTER (runs.verdict <> '' AND runs.verdict <> last.verdict) AS until
        FROM runs JOIN last USING (name, size, dtype, gpu) GROUP BY name, size, dtype, gpu),
    every AS (
        SELECT name, size, dtype, gpu, count(*) AS runs, max(date) AS date, sum(launches)::BIGINT AS launches,
               min(date) FILTER (runs.verdict = last.verdict AND (until IS NULL OR date > until)) AS since
        FROM runs JOIN last USING (name, size, dtype, gpu) JOIN other USING (name, size, dtype, gpu)
        GROUP BY name, size, dtype, gpu),
    timed AS (
        SELECT name, size, dtype, gpu, min(date) AS date, median(CASE WHEN by_events THEN time_us ELSE profiled_us END) AS time,
               coalesce(arg_max(launches.verdict, coalesce(profiled_us, 0)) FILTER (launches.verdict <> ''), '') AS verdict,
               CASE WHEN any_value(by_events) THEN median(spread)
                    WHEN count(profiled_us) > 1 THEN (max(profiled_us) - min(profiled_us)) / median(profiled_us) END AS spread
        FROM launches JOIN last USING (name, size, dtype, gpu)
        WHERE status = 'complete' AND date >= recent GROUP BY name, size, dtype, gpu, run),
    times AS (
        SELECT name, size, dtype, gpu, list_reverse(arg_max(time, date, {spark})) AS times, list_reverse(arg_max(spread, date, 2)) AS spreads,
               list_reverse(arg_max(verdict, date, {spark}) FILTER (time IS NOT NULL)) AS verdicts
        FROM timed GROUP BY name, size, dtype, gpu),
    words AS (
        SELECT name, size, dtype, gpu, arg_max(title, coalesce(profiled_us, 0)) AS title, arg_max(gain, coalesce(profiled_us, 0)) AS gain
        FROM launches JOIN last USING (name, size, dtype, gpu)
        WHERE status = 'complete' AND run = judged AND launches.verdict <> '' GROUP BY name, size, dtype, gpu)
    SELECT every.*, by_events, coalesce(times, []) AS times, coalesce(spreads, []) AS spreads, coalesce(verdicts, []) AS verdicts,
           coalesce(last.verdict, '') AS verdict, coalesce(title, '') AS title, gain
    FROM every JOIN last USING (name, size, dtype, gpu)
    LEFT JOIN times USING (name, size, dtype, gpu) LEFT JOIN words USING (name, size, dtype, gpu)
    ORDER BY date DESC, name, size, dtype, gpu
"""
#: What times of one kernel differ by where a run has no spread: the profiler's repeats, by 1-2%.
REPEATS: Final = 0.02


@dataclass(frozen=True)
class KernelRun:
    """A kernel in one run: the verdict's id and words; those of the run before where they differ."""

    run: str
    date: datetime.datetime
    git_commit: str
    git_dirty: bool | None
    launches: int
    time_us: float | None
    spread: float | None
    profiled_us: float | None
    verdict: str
    title: str
    before: str
    title_before: str
    gain: float | None
    occupancy_percent: float | None
    registers: int | None
    dram_percent: float | None
    l2_percent: float | None
    l1_percent: float | None
    stall: str
    code: str

    @property
    def change(self) -> str:
        """The verdict in words, with the one before where it changed."""
        return f"{self.title_before} → {self.title}" if self.before else self.title


@dataclass(frozen=True)
class KernelSeries:
    """A kernel on one GPU model at one size, over all runs, the last `times` of which are kept.

    `by_events` tells whether times come from CUDA events or from ncu."""

    name: str
    size: str
    dtype: str
    gpu: str
    runs: int
    launches: int
    date: datetime.datetime
    by_events: bool
    times: tuple[float, ...]
    spreads: tuple[float | None, ...]
    verdict: str
    title: str
    gain: float | None
    since: datetime.datetime | None
    verdicts: tuple[str, ...]
    """Of each of `times`; empty where its run has none."""

    @property
    def last_us(self) -> float | None:
        return self.times[-1] if self.times else None

    @property
    def change(self) -> float | None:
        """The last time relative to the one before it; None where there are not two."""
        if len(self.times) < 2 or not self.times[-2]:
            return None
        return self.times[-1] / self.times[-2] - 1

    @property
    def noise(self) -> float:
        """The larger spread of the last two runs; REPEATS where neither has one."""
        return max((spread for spread in self.spreads if spread is not None), default=REPEATS)

    @property
    def course(self) -> Course | None:
        """The times with the noise of the last one; None for fewer than two."""
        if len(self.times) < 2 or not all(map(math.isfinite, self.times)):
            return None
        changes, before = [], ""
        for at, verdict in enumerate(self.verdicts):
            if before and verdict and verdict != before:
                changes.append(at)
            before = verdict or before
        last, half = self.times[-1], self.times[-1] * self.noise / 2
        words = f"{len(self.times)} runs, {units.duration(min(self.times))} to {units.duration(max(self.times))}"
        words += f"; the verdict changed {counted(len(changes), 'time')}" if changes else ""
        band = (last - half, last + half)
        return Course(self.times, words, band=band, changes=tuple(changes))

    @property
    def heading(self) -> str:
        return " · ".join(filter(None, (_short(self.name), self.size, self.dtype, self.gpu)))


def all_series(history: History) -> list[KernelSeries]:
    """Every kernel, the one that ran last first."""
    return _series(history, "true", [])


def series_of(history: History, text: str) -> list[tuple[KernelSeries, list[KernelRun]]]:
    """The kernels whose name is `text`, else those whose name it is found in as a regular
    expression, each with its runs, oldest first.

    Raises:
        UsageProblem: it is no regular expression. InputProblem: no kernel matches.
    """
    exactly = "name = $1 OR regexp_extract(kernel, '^(?:void )?([A-Za-z_0-9:]+)', 1) = $1"
    for condition in (exactly, "regexp_matches(name, $1) OR regexp_matches(kernel, $1)"):
        query = f"SELECT DISTINCT name FROM (SELECT DISTINCT name, kernel FROM launches WHERE status = 'complete') WHERE {condition}"
        try:
            if condition is not exactly:  # over no rows, DuckDB may not read the expression
                history.rows("SELECT regexp_matches('', $1)", [text])
            names = [row["name"] for row in history.rows(query, [text])]
        except history.wrong as error:
            raise UsageProblem(
                f"'{visible(text, 200)}' is neither a kernel nor a regular expression: {str(error).partition(chr(10))[0]}",
                "`ncu-toolkit history` lists the kernels",
            ) from None
        if names:
            break
    else:
        raise InputProblem(
            f"no kernel in the history matches '{visible(text, 200)}'",
            "`ncu-toolkit history` lists the kernels; `ncu-toolkit history import REPORT` adds runs",
        )
    chosen = "name IN (SELECT unnest($1))"
    found = _series(history, chosen, [names])
    clocks = {_key(each): each.by_events for each in found}
    runs: dict[tuple[str, ...], list[KernelRun]] = {key: [] for key in clocks}
    before = dict.fromkeys(clocks, ("", ""))
    for row in history.rows(_RUNS.format(chosen=chosen), [names]):
        key = (row["name"], row["size"], row["dtype"], row["gpu"])
        events, verdict = clocks[key], row["verdict"]
        words = row["title"] or ""
        old = before[key] if verdict and before[key][0] not in ("", verdict) else ("", "")
        row["time_us"] = row["timed_us" if events else "profiled_us"]
        row["spread"] = row["spread" if events else "range"]
        row["title"], (row["before"], row["title_before"]) = words, old
        runs[key].append(KernelRun(**{each.name: row[each.name] for each in fields(KernelRun)}))
        if verdict:
            before[key] = (verdict, words)
    return [(each, runs[_key(each)]) for each in found]


def _key(one: KernelSeries) -> tuple[str, ...]:
    return (one.name, one.size, one.dtype, one.gpu)


def _series(history: History, chosen: str, values: Sequence[object]) -> list[KernelSeries]:
    rows = history.rows(_SERIES.format(chosen=chosen, spark=SPARK), values)
    return [msgspec.convert(row, KernelSeries) for row in rows]


def of_all(found: Sequence[KernelSeries], page: bool = False) -> Answer:
    """Every kernel with its last time, how it changed, and its verdict: KERNELS of them, on a `page`
    all, with their times drawn."""
    if not found:
        return Answer(
            "The history is empty.",
            points=("profile, bench and watch add their runs; `ncu-toolkit history import REPORT` adds earlier ones.",),
            next="ncu-toolkit history import reports",
        )  # fmt: skip
    first, last = min(each.date for each in found), max(each.date for each in found)
    span = f", last run on {last:%Y-%m-%d}" if first.date() == last.date() else f", last runs from {first:%Y-%m-%d} to {last:%Y-%m-%d}"  # fmt: skip
    gpus = {each.gpu for each in found}
    columns: tuple[Spec[KernelSeries], ...] = (
        Spec(
            "kernel",
            cell=lambda one: _short(one.name),
            numeric=False,
            code=True,
            shortest=24,
            name=True,
        ),
        Spec("size", cell=lambda one: Cell(one.size, one.size), gives_way=4),
        Spec("dtype", cell=lambda one: one.dtype, numeric=False, gives_way=2),
        Spec("GPU", cell=lambda one: one.gpu if len(gpus) > 1 else "", numeric=False, gives_way=3),
        Spec("runs", cell=lambda one: Cell(str(one.runs), one.runs), gives_way=6),
        Spec("time", cell=lambda one: Cell(_time(one.last_us), one.last_us)),
        Spec("change", cell=lambda one: Cell(_signed(one.change), one.change, tone=_tone(one))),
        Spec(
            "trend",
            cell=lambda one: Cell(units.sparkline(one.times), course=one.course),
            numeric=False,
            gives_way=7,
        ),
        Spec("verdict", cell=lambda one: one.title, numeric=False, shortest=16),
        Spec("since", cell=_since, gives_way=5),
        Spec("gain", cell=lambda one: Cell(_gain(one.gain), one.gain), gives_way=1),
    )
    points = _moved(found) if page else ()
    if page:
        found = sorted(found, key=lambda one: ("bad", "good", "").index(_tone(one)))
    most = len(found) if page else KERNELS
    left = len(found) - most
    rest = f"{counted(left, 'more kernel')}; --format csv lists all." if left > 0 else ""
    shown = table("", columns, found[:most], _clock(found[:most]))
    if page:
        points += (
            "Change: of the last run against the one before. A trend's band is the noise of its last time; at a dashed line the verdict changed.",
        )
        shown = replace(shown, key="kernels", sortable=True)
    headline = f"{counted(len(found), 'kernel')}, {counted(sum(each.launches for each in found), 'launch')}{span}"
    return Answer(
        headline,
        shown,
        rest,
        points=points,
        next=f"ncu-toolkit history {_short(found[0].name).partition('<')[0]}",
    )


def _moved(found: Sequence[KernelSeries]) -> tuple[str, ...]:
    """Which kernels became slower in their last run, beyond noise; those that moved most first."""
    slower = sorted(
        (one for one in found if _tone(one) == "bad"), key=lambda one: -(one.change or 0.0)
    )
    if not slower:
        return ("No kernel was slower in its last run than in the one before, beyond noise.",)
    named = [f"{_short(one.name)} ({_signed(one.change)})" for one in slower]
    return (f"Slower in the last run than in the one before: {units.shortlist(named, SLOWER)}.",)


def _since(one: KernelSeries) -> Cell:
    day = f"{one.since:%Y-%m-%d}" if one.since else ""
    return Cell(day, day or None)


def of_kernels(found: Sequence[tuple[KernelSeries, list[KernelRun]]]) -> Answer:
    """The runs of each kernel, newest last, and its trend."""
    shown = found[:HISTORIES]
    more = len(found) - len(shown)
    return Answer(
        shown[0][0].heading if len(found) == 1 else f"{counted(len(found), 'kernel')} match",
        tables=tuple(_runs_table(one, runs, len(found) > 1) for one, runs in shown),
        trends=tuple(trend(one, runs) for one, runs in shown),
        notes=(f"{counted(more, 'more kernel')} of this name; --format csv lists all.",) if more else (),
    )  # fmt: skip


def _runs_table(one: KernelSeries, runs: Sequence[KernelRun], titled: bool) -> Table:
    shown = runs[-RUNS:]
    columns: tuple[Spec[KernelRun], ...] = (
        Spec("date", cell=lambda run: f"{run.date:%Y-%m-%d %H:%M}", numeric=False),
        Spec("commit", cell=_commit, numeric=False, gives_way=6),
        Spec("time", cell=lambda run: _time(run.time_us)),
        Spec("spread", cell=lambda run: "" if run.spread is None else units.percent(run.spread, 2), gives_way=5),
        Spec("verdict", cell=lambda run: Cell(run.change, tone="strong" if run.before else ""), numeric=False, shortest=16),
        Spec("gain", cell=lambda run: _gain(run.gain), gives_way=7),
        Spec("occupancy", cell=lambda run: _percent(run.occupancy_percent), gives_way=4),
        Spec("registers", cell=lambda run: "" if run.registers is None else str(run.registers), gives_way=3),
        Spec("DRAM", cell=lambda run: _percent(run.dram_percent), gives_way=3),
        Spec("L2", cell=lambda run: _percent(run.l2_percent), gives_way=2),
        Spec("L1", cell=lambda run: _percent(run.l1_percent), gives_way=2),
        Spec("waiting for", cell=lambda run: run.stall.replace("_", " "), numeric=False, gives_way=1),
    )  # fmt: skip
    left = len(runs) - len(shown)
    notes = [_clock([one])]
    if left:
        notes.append(f"{counted(left, 'earlier run')} left out; --format csv lists all.")
    return table(one.heading if titled else "", columns, shown, " ".join(notes))


def trend(one: KernelSeries, runs: Iterable[KernelRun]) -> Trend:
    """The times of a kernel as a chart, marked where the verdict changed."""
    points = []
    for run in runs:
        if run.time_us is None or not math.isfinite(run.time_us):
            continue
        commit = _commit(run)
        note = " · ".join(
            filter(None, (f"{run.date:%Y-%m-%d %H:%M}", commit, units.duration(run.time_us), run.change))
        )  # fmt: skip
        half = run.time_us * (run.spread or 0.0) / 2
        points.append(
            TrendPoint(
                run.time_us,
                max(0.0, run.time_us - half),
                run.time_us + half,
                visible(note),
                visible(run.title) if run.before else "",
            )
        )
    return Trend(visible(one.heading), tuple(points))


def of_rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Answer:
    """What --sql selected."""
    numbers = {
        at
        for at in range(len(names))
        if all(isinstance(row[at], int | float | None) for row in rows)
    }
    left = len(rows) - ROWS
    columns = tuple(
        Column(visible(name, NAME), numeric=at in numbers) for at, name in enumerate(names)
    )
    cells = tuple(tuple(Cell(_value(v)) for v in row) for row in rows[:ROWS])
    note = f"{counted(left, 'more row')}; --format csv lists all." if left > 0 else ""
    return Answer(counted(len(rows), "row"), tables=(Table("", "", columns, cells, note=note),))


def _value(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(name: str) -> str:
    """The function's own name in a demangled one: without what it returns, its namespaces, its
    template parameters and its arguments."""
    plain = _ANONYMOUS.sub("", short_name(name)).partition("(")[0]
    return kernel_name(
        plain.rpartition("::")[2].removeprefix("void ").partition("<")[0].strip() or name
    )


def _time(microseconds: float | None) -> str:
    return "" if microseconds is None else units.duration(microseconds)


def _percent(value: float | None) -> str:
    return "" if value is None else units.percent(value / 100, 2)


def _signed(change: float | None) -> str:
    if change is None:
        return ""
    return f"{'+' if change > 0 else ''}{units.percent(change, 2)}"


def _tone(one: KernelSeries) -> Tone:
    """Whether the last run is better or worse than the one before by more than their spread."""
    change = one.change
    if change is None or abs(change) <= one.noise:
        return ""
    return "bad" if change > 0 else "good"


def _gain(factor: float | None) -> str:
    return "" if factor is None else factor_text(factor)


def _commit(run: KernelRun) -> str:
    return f"{run.git_commit[:_COMMIT]}{'+' if run.git_dirty else ''}"


def _clock(found: Sequence[KernelSeries]) -> str:
    """Where the times come from."""
    by_events = {each.by_events for each in found}
    if by_events == {True}:
        return "Times are medians of unprofiled runs."
    if by_events == {False}:
        return "Times are durations under ncu, with the clocks and caches that it sets."
    return "Times are medians of unprofiled runs; for kernels that were never timed, durations under ncu."


# --- data ------------------------------------------------------------------------------------


def plain_series(found: Sequence[KernelSeries]) -> list[dict[str, Any]]:
    """The kernels as plain data, for JSON and CSV. Times are in microseconds."""
    return [
        {
            **_plain_kernel(one), "runs": one.runs, "launches": one.launches, "last_run": one.date.isoformat(), "time_us": one.last_us,
            "change": one.change, "clock": _clock_name(one), "verdict": one.verdict or None, "gain": one.gain,
            "since": one.since.isoformat() if one.since else None,
        }
        for one in found
    ]  # fmt: skip


def plain_runs(found: Sequence[tuple[KernelSeries, list[KernelRun]]]) -> list[dict[str, Any]]:
    """The runs of kernels as plain data, oldest first."""
    return [
        {
            **_plain_kernel(one), "run": run.run, "date": run.date.isoformat(), "git_commit": run.git_commit or None, "git_dirty": run.git_dirty,
            "launches": run.launches, "clock": _clock_name(one), "time_us": run.time_us, "spread": run.spread,
            "profiled_us": run.profiled_us, "verdict": run.verdict or None, "verdict_before": run.before or None,
            "gain": run.gain, "occupancy_percent": run.occupancy_percent, "registers": run.registers,
            "dram_percent": run.dram_percent, "l2_percent": run.l2_percent, "l1_percent": run.l1_percent,
            "stall": run.stall or None, "code": run.code or None,
        }
        for one, runs in found
        for run in runs
    ]  # fmt: skip


def _plain_kernel(one: KernelSeries) -> dict[str, Any]:
    return {"name": visible(one.name), "size": one.size, "dtype": one.dtype, "gpu": one.gpu}


def _clock_name(one: KernelSeries) -> str:
    return "cuda events" if one.by_events else "ncu"
