"""`ncu-toolkit history`: how kernels changed from run to run."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ncu_toolkit.base.core import errors
from ncu_toolkit.base.core.safe import csv_rows
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.cli._common import complain
from ncu_toolkit.cli._options import Output, PathName, argument, formats, option, options
from ncu_toolkit.guests.history import history

if TYPE_CHECKING:
    from ncu_toolkit.base.model import Profile
    from ncu_toolkit.base.model.run import Run
    from ncu_toolkit.guests.history.intake import Here
    from ncu_toolkit.program.model import ProgramTrial

FORMATS: Final = ("text", "markdown", "json", "csv", "html")
PAGE: Final = "ncu-history.html"
#: Seconds for adding a round of `watch`: another process may merge the store meanwhile.
_ADD_SECONDS: Final = 60.0


@click.command("history")
@options(
    words=argument(nargs=-1, metavar="[KERNEL | import REPORT…]"),
    sql=option("Run one SELECT statement. It can read the table `launches` and nothing else.", metavar="SELECT"),
    form=formats(FORMATS, "html writes a page with the trend of each kernel."),
    output=f"File to write; for html the page (default {PAGE}).",
)  # fmt: skip
def command(words: tuple[str, ...], sql: str | None, out: Output) -> int:
    """Show how times and verdicts of kernels changed from run to run.

    Without KERNEL, it lists all kernels: the latest time and its change, the latest verdict and since
    when it is the same. With KERNEL, a name or a regular expression, it lists every run of that kernel.

    profile, bench and watch add their runs; `history import` adds earlier run folders, baselines and
    reports. The history is kept in .ncu-toolkit/history of the current folder, or in
    $NCU_TOOLKIT_HISTORY. It needs DuckDB: pip install '.[history]' in a clone. Exits with 4 if a
    file of the history is damaged; the rest is still shown.

    \b
    Examples:
      ncu-toolkit history
      ncu-toolkit history smem_tiled --format html
      ncu-toolkit history import reports .ncu-toolkit/baselines old.ncu-rep
      ncu-toolkit history --sql "select name, min(coalesce(time_us, profiled_us)) as us from launches group by name"
    """
    if words[:1] == ("import",):
        if sql is not None:
            raise errors.UsageProblem(
                "--sql cannot be combined with import", "Run them one after the other"
            )
        return _import(words[1:])
    if len(words) > 1 or (words and sql is not None):
        raise errors.UsageProblem(
            f"'{words[-1]}' is one name too many",
            "Name one kernel, or several as a regular expression: 'naive|smem_tiled'",
        )
    from ncu_toolkit.guests.history import trends

    data = out.form in ("json", "csv")
    columns = history.COLUMNS if sql else trends.RUN_COLUMNS if words else trends.COLUMNS
    with history.opened(tuple(columns)) as found:
        if sql is not None:
            what, (names, rows) = "rows", found.select(sql)
            shown = None if data else trends.of_rows(names, rows)
        elif words:
            what, runs = "runs", trends.series_of(found, words[0])
            shown = None if data else trends.of_kernels(runs)
            names, rows = _rows(trends.plain_runs(runs) if data else ())
        else:
            what, series = "kernels", trends.all_series(found)
            shown = None if data else trends.of_all(series, page=out.form == "html")
            names, rows = _rows(trends.plain_series(series) if data else ())
    if shown is not None:
        out.answer(shown, "History", PAGE)
    else:
        _write_data(what, names, [tuple(map(_plain, row)) for row in rows], out)
    return _ended(found.broken)


def _import(texts: tuple[str, ...]) -> int:
    from ncu_toolkit.guests.history import intake
    from ncu_toolkit.kernel.diagnosis.engine import diagnose

    if not texts:
        raise errors.UsageProblem(
            "nothing to import", "Name run folders or reports: ncu-toolkit history import reports"
        )
    paths = [PathName().convert(text, None, None) for text in texts]
    for path in paths:
        if not path.exists():
            raise errors.InputProblem(f"there is no report or folder '{path}'")
    done = intake.take_in(paths, diagnose)
    known = f"; {done.known} were in the history already" if done.known else ""
    click.echo(f"Added {counted(done.added, 'launch')}{known}.")
    return _ended(done.broken)


def _ended(broken: tuple[errors.ToolkitError, ...]) -> int:
    """Name each of what could not be read; returns the exit code."""
    complain(broken)
    if any(isinstance(error, errors.EnvironmentProblem) for error in broken):
        return errors.EXIT_ENVIRONMENT
    return errors.EXIT_INPUT if broken else errors.EXIT_OK


def _rows(dicts: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    return tuple(dicts[0] if dicts else ()), [tuple(each.values()) for each in dicts]


def _write_data(
    what: str, names: Sequence[str], rows: Sequence[Sequence[Any]], out: Output
) -> None:
    """Write rows as CSV, or as JSON with equal names numbered as in DuckDB: a, a_1, a_2."""
    if out.form == "csv":
        out.text(csv_rows([names, *rows]))
        return
    keys: list[str] = []
    for name in names:
        others = (f"{name}_{number}" for number in itertools.count(1))
        taken = {*keys, *names}
        keys.append(name if name not in keys else next(x for x in others if x not in taken))
    plain = [dict(zip(keys, row, strict=True)) for row in rows]
    out.plain({"schema": history.SCHEMA, "version": history.VERSION, what: plain})


def _plain(value: Any) -> Any:
    """A value of DuckDB as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def keep(run: Run, folder: Path, at: Here) -> None:
    """Add a run to the history, where DuckDB is installed. A failure is a note."""
    if not history.installed():
        return
    from ncu_toolkit.guests.history import intake
    from ncu_toolkit.kernel.pages.book import book_for

    with _noted():
        history.add(intake.rows_of_run(run, folder, book_for(run).diagnosis, at))


def keep_trial(trial: ProgramTrial, folder: Path, at: Here) -> None:
    """As `keep`, for a program whose step was timed with switches."""
    if history.installed():
        from ncu_toolkit.guests.history import intake

        with _noted():
            history.add(intake.rows_of_trial(trial, folder, at))


def keep_read(folder: Path, profiles: Sequence[Profile], at: Here) -> None:
    """As `keep`, for known profiles. DuckDB runs in another process, so this one stays fast."""
    if not history.installed():
        return
    from ncu_toolkit.base.core import workers
    from ncu_toolkit.guests.history import intake
    from ncu_toolkit.kernel.diagnosis.engine import diagnose
    from ncu_toolkit.kernel.runs import store

    with _noted():
        run = store.load_run(folder, live=True, known=profiles)
        (added,) = workers.run(
            "ncu_toolkit.guests.history.history:add",
            [(intake.rows_of_run(run, folder, diagnose, at),)],
            jobs=1,
            timeout=_ADD_SECONDS,
            label=lambda _: f"the history in '{history.root()}'",
            forks=True,
        )
        if added.error is not None:
            raise added.error


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    try:
        yield
    except errors.ToolkitError as error:
        click.echo(
            f"note: this run is not in the history: {' '.join(str(error).split())}", err=True
        )
