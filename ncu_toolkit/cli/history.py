"""`ncu-toolkit history`: how kernels changed from run to run."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ncu_toolkit.cli._common import WIDTH, PathName, emit, format_option, shown_as
from ncu_toolkit.core.errors import (
    EXIT_ENVIRONMENT,
    EXIT_INPUT,
    EXIT_OK,
    EnvironmentProblem,
    InputProblem,
    ToolkitError,
    UsageProblem,
)
from ncu_toolkit.core.safe import visible
from ncu_toolkit.core.units import counted
from ncu_toolkit.document.views import Answer
from ncu_toolkit.runs import history

if TYPE_CHECKING:
    from ncu_toolkit.model import Profile
    from ncu_toolkit.model.run import Run
    from ncu_toolkit.runs.intake import Here

FORMATS = ("text", "markdown", "json", "csv", "html")
PAGE = "ncu-history.html"
#: Seconds for adding a round of `watch`: another process may merge the store meanwhile.
_ADD_SECONDS: Final = 60.0


@click.command("history")
@click.argument("words", nargs=-1, metavar="[KERNEL | import REPORT…]")
@click.option(
    "--sql",
    metavar="SELECT",
    help="Run one SELECT on the table launches; it can access nothing else.",
)
@format_option(FORMATS, "html writes a page with the trend of each kernel.")
@click.option(
    "--output", "-o", type=PathName(), help=f"File to write; for html the page (default {PAGE})."
)
def command(words: tuple[str, ...], sql: str | None, form: str, output: Path | None) -> int:
    """Show how times and verdicts of kernels changed from run to run.

    Without KERNEL: a table of all kernels with the last time, its change, the verdict, and the date
    since which it holds. With KERNEL, a name or a regular expression: every run of that kernel.

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
            raise UsageProblem("--sql does not go with import", "Run them one after the other")
        return _import(words[1:])
    if len(words) > 1 or (words and sql is not None):
        raise UsageProblem(
            f"'{words[-1]}' is one name too many",
            "Name one kernel, or several as a regular expression: 'naive|smem_tiled'",
        )
    if sql is not None:
        with history.opened() as found:
            _write_rows(*found.select(sql), form, output)
    else:
        from ncu_toolkit.runs import trends

        with history.opened(trends.RUN_COLUMNS if words else trends.COLUMNS) as found:
            _write_kernels(found, words[0] if words else "", form, output)
    return _complain(found.broken)


def _import(texts: tuple[str, ...]) -> int:
    from ncu_toolkit.diagnosis.engine import diagnose
    from ncu_toolkit.runs import intake

    if not texts:
        raise UsageProblem(
            "nothing to import", "Name run folders or reports: ncu-toolkit history import reports"
        )
    paths = [PathName().convert(text, None, None) for text in texts]
    for path in paths:
        if not path.exists():
            raise InputProblem(f"there is no report or folder '{path}'")
    done = intake.take_in(paths, diagnose)
    known = f"; {done.known} were in the history already" if done.known else ""
    click.echo(f"Added {counted(done.added, 'launch', 'launches')}{known}.")
    return _complain(done.broken)


def _complain(broken: tuple[ToolkitError, ...]) -> int:
    """Name each of what could not be read; returns the exit code."""
    for error in broken:
        click.echo(f"error: {visible(' '.join(str(error).split()))}", err=True)
    if any(isinstance(error, EnvironmentProblem) for error in broken):
        return EXIT_ENVIRONMENT
    return EXIT_INPUT if broken else EXIT_OK


def _write_kernels(found: history.History, kernel: str, form: str, output: Path | None) -> None:
    from ncu_toolkit.runs import trends

    data = form in ("json", "csv")
    if kernel:
        runs = trends.series_of(found, kernel)
        if data:
            _write_dicts("runs", trends.plain_runs(runs), form, output)
        else:
            _write(trends.of_kernels(runs), form, output)
        return
    series = trends.all_series(found)
    if data:
        _write_dicts("kernels", trends.plain_series(series), form, output)
    else:
        _write(trends.of_all(series), form, output)


def _write_rows(
    names: tuple[str, ...], rows: list[tuple[Any, ...]], form: str, output: Path | None
) -> None:
    from ncu_toolkit.runs import trends

    if form in ("json", "csv"):
        _write_data("rows", names, [tuple(map(_plain, row)) for row in rows], form, output)
    else:
        _write(trends.of_rows(names, rows), form, output)


def _plain(value: Any) -> Any:
    """A value of DuckDB as JSON has it."""
    import math

    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def _write_dicts(what: str, rows: list[dict[str, Any]], form: str, output: Path | None) -> None:
    names = tuple(rows[0] if rows else ())
    _write_data(what, names, [tuple(row.values()) for row in rows], form, output)


def _write_data(
    what: str,
    names: tuple[str, ...],
    rows: list[tuple[Any, ...]],
    form: str,
    output: Path | None,
) -> None:
    if form == "csv":
        from ncu_toolkit.core.safe import csv_rows

        emit(csv_rows([names, *rows]), output)
        return
    from ncu_toolkit.pages import json

    keys = _numbered(names)
    plain = {
        "schema": history.SCHEMA,
        "version": history.VERSION,
        what: [dict(zip(keys, row, strict=True)) for row in rows],
    }
    emit(json.written(plain), output)


def _numbered(names: tuple[str, ...]) -> list[str]:
    """The names with equal ones told apart, as DuckDB does in a subquery: a, a_1, a_2."""
    found: list[str] = []
    for name in names:
        number = itertools.count(1)
        one = name
        while one in found or (one != name and one in names):
            one = f"{name}_{next(number)}"
        found.append(one)
    return found


def _write(shown: Answer, form: str, output: Path | None) -> None:
    if form == "html":
        from ncu_toolkit.render.card_html import write_page

        click.echo(f"Open {write_page(shown, 'History', output or Path(PAGE))}")
    else:
        emit(shown_as(shown, form), output, WIDTH)


def keep(run: Run, folder: Path, at: Here) -> None:
    """Add a run to the history, where DuckDB is installed. A history that cannot be written costs
    the run nothing but a note."""
    if not history.installed():
        return
    from ncu_toolkit.pages.html import book_for
    from ncu_toolkit.runs import intake

    with _noted():
        history.add(intake.rows_of_run(run, folder, book_for(run).diagnosis, at))


def keep_read(folder: Path, profiles: Sequence[Profile], at: Here) -> None:
    """As `keep`, for a run whose profiles are known and that has no pages. DuckDB runs in a process
    of its own, so that this one reads the next report as fast (`history.installed`)."""
    from ncu_toolkit.core import workers
    from ncu_toolkit.diagnosis.engine import diagnose
    from ncu_toolkit.runs import intake, store

    with _noted():
        run = store.load_run(folder, live=True, known=profiles)
        (added,) = workers.run(
            "ncu_toolkit.runs.history:add",
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
    except ToolkitError as error:
        click.echo(
            f"note: this run is not in the history: {' '.join(str(error).split())}", err=True
        )
