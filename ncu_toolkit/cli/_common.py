"""Screens, progress and interrupts that commands share."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from ncu_toolkit.base.core.errors import EnvironmentProblem, extra
from ncu_toolkit.base.core.files import write_atomic
from ncu_toolkit.base.core.guests import guest
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.cli import _log

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ncu_toolkit.base.document.views import Answer
    from ncu_toolkit.base.model import Profile
    from ncu_toolkit.base.model.run import Run
    from ncu_toolkit.program.model import ProgramTrial

#: Columns of an answer that goes to a file or a pipe.
WIDTH: Final = 100
_PIPED_WIDTH: Final = 240
_NARROWEST: Final = 40
#: Where this machine has no GPU.
DEFAULT_ARCH: Final = "sm_90"


def piped_width(otherwise: int) -> int:
    """Columns of what goes to no terminal: $COLUMNS where it says so."""
    asked = os.environ.get("COLUMNS", "")
    return max(_NARROWEST, int(asked)) if asked.isdecimal() and len(asked) < 5 else otherwise


def console(stderr: bool = False) -> Any:
    """A rich console; colours follow NO_COLOR and whether a terminal listens. Where none does,
    lines are wide, so that names are not folded. Strings may hold names from files: control
    characters in them are spelled out."""
    from rich.console import Console

    piped = not (sys.stderr if stderr else sys.stdout).isatty()
    screen = Console(
        stderr=stderr,
        highlight=False,
        markup=False,
        soft_wrap=piped,
        width=piped_width(_PIPED_WIDTH) if piped else None,
        color_system=colours(),
    )
    plain = screen.render_str
    screen.render_str = lambda text, **how: plain(visible(text, keep="\n"), **how)  # type: ignore[method-assign]
    return screen


def grid(
    columns: Iterable[str],
    rows: Iterable[Iterable[Any]],
    title: Any = None,
    overflow: Literal["ellipsis", "fold"] = "ellipsis",
) -> Any:
    """A table as commands print it; columns that begin with ">" hold numbers."""
    from rich import box
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for column in columns:
        side: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">"), justify=side, overflow=overflow)
    for row in rows:
        table.add_row(*row)
    return table


def here() -> tuple[str, int | None]:
    """This machine's architecture and SM count, or the default where it has no GPU."""
    from ncu_toolkit.kernel.gpu import cuda

    try:
        device = cuda.device()
    except EnvironmentProblem:
        return DEFAULT_ARCH, None
    return device.arch, device.sm_count


def colours() -> Literal["auto"] | None:
    """None where NO_COLOR is set and not empty: no colour and no other style."""
    return None if os.environ.get("NO_COLOR") else "auto"


def shown_as(found: Answer, form: str) -> Any:
    """An answer in a format: a string, or for text a rich renderable."""
    if form in ("markdown", "brief"):
        from ncu_toolkit.base.render import markdown

        return markdown.brief(found) if form == "brief" else markdown.markdown(found)
    from ncu_toolkit.base.render.text import AnswerText

    return AnswerText(found)


def emit(shown: Any, output: Path | None, width: int = 140) -> None:
    """Print or write a string or a rich renderable; `width` is for files and pipes."""
    from rich.console import Console

    if not isinstance(shown, str):
        sink = io.StringIO() if output else None
        screen = Console(
            file=sink,
            highlight=False,
            width=None if sink is None and sys.stdout.isatty() else piped_width(width),
            color_system=None if sink else colours(),
        )
        screen.print(shown, crop=False)  # a command is longer than some terminals are wide
        shown = sink.getvalue() if sink else ""
    if output is None:
        click.echo(shown, nl=False)
    else:
        write_atomic(output, shown.encode("utf-8", "backslashreplace"))


def require(what: str, wanted: str, *modules: str) -> None:
    """Raise EnvironmentProblem where modules of the extra `wanted` are missing."""
    if None in map(importlib.util.find_spec, modules):
        raise EnvironmentProblem(f"{what}, which is not installed", extra(wanted))


def complain(lines: Iterable[object]) -> None:
    """Name what is wrong with the input, on standard error."""
    for line in lines:
        click.echo(f"error: {visible(' '.join(str(line).split()))}", err=True)


@contextlib.contextmanager
def interruptible(*numbers: signal.Signals) -> Iterator[Callable[[], int]]:
    """Treat SIGTERM and SIGHUP, as CI and closed terminals send them, and `numbers` like Ctrl-C. Yields
    which of them came last (0: none did), also where the interrupt was taken for a failure."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return

    def interrupt(number: int, frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt)
        for number in (signal.SIGTERM, signal.SIGHUP, *numbers)
        if signal.getsignal(number) != signal.SIG_IGN  # as under nohup
    }
    try:
        yield lambda: came[-1] if came else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def one_line() -> Iterator[Callable[[str], None]]:
    """Yields what shows a line instead of the one before, on a terminal; nothing goes to a pipe, nor
    with --quiet. The line is there from its first text on."""
    screen = console(stderr=True)
    if _log.Verbosity.quiet or not screen.is_terminal:
        yield lambda text: None
        return
    status = screen.status("")

    def show(text: str) -> None:
        status.update(visible(text, 100))
        status.start()

    try:
        yield show
    finally:
        status.stop()


class Progress:
    """A reporter that shows progress bars on a terminal, else plain lines."""

    def __init__(self, *, gone: bool = False) -> None:
        """`gone`: on a terminal nothing is left of it at the end."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description:<16}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[label]}", markup=False),
            console=self._console,
            transient=gone,
            disable=_log.Verbosity.quiet or not self._console.is_terminal,
        )
        self._task: Any = None
        self._title = ""
        self._done = self._total = 0
        self._last = 0.0

    def __enter__(self) -> Progress:
        self._bars.__enter__()
        return self

    def __exit__(self, *ended: Any) -> None:
        self._bars.__exit__(*ended)

    def stage(self, title: str, total: int) -> None:
        self._title, self._done, self._total = title, 0, total
        _log.logger.debug("%s: %d to do", title, total)
        if self._bars.disable:
            self._print(f"{title}: {total} to do")
        self._task = self._bars.add_task(title, total=total, label="")

    def step(self, label: str) -> None:
        label = visible(label)
        self._done += 1
        _log.logger.debug("%s: %d of %d (%s)", self._title, self._done, self._total, label)
        if self._bars.disable:
            now = time.monotonic()
            if self._done == self._total or now - self._last > 5 or _log.Verbosity.verbose:
                self._last = now
                self._print(f"{self._title}: {self._done} of {self._total} ({label})")
            return
        self._bars.update(self._task, advance=1, label=label)

    def reached(self, done: int, total: int, label: str) -> None:
        """As many steps as are done of all that are known."""
        self._bars.update(self._task, completed=done, total=total, label=visible(label))

    def show(self, what: RenderableType) -> None:
        """Something above the bars as long as they are there."""
        from rich.console import Group

        bars, own = self._bars, type(self._bars).get_renderables
        if not bars.disable:
            bars.get_renderables = lambda: (Group(what), *own(bars))  # type: ignore[method-assign]

    def doing(self, label: str) -> None:
        if not self._bars.disable:
            self._bars.update(self._task, label=f"{visible(label)} …")

    def note(self, text: str) -> None:
        _log.logger.debug("note: %s", text)
        self._print(f"note: {text}")

    def _print(self, text: str) -> None:
        if not _log.Verbosity.quiet:
            self._console.print(text)


class RunHistory:
    """What the history, where that guest is installed, keeps of a run. It is made before the run,
    since it notes the commit that is profiled. A failure to keep is a note."""

    def __init__(self, gpu_uuid: str) -> None:
        intake = guest("history.intake")
        self._at = intake.here(gpu_uuid) if intake else None

    def keep(self, run: Run, folder: Path) -> None:
        if history := guest("history.command"):
            history.keep(run, folder, self._at)

    def keep_trial(self, trial: ProgramTrial, folder: Path) -> None:
        """As `keep`, for a program whose step was timed with settings."""
        if history := guest("history.command"):
            history.keep_trial(trial, folder, self._at)

    def keep_read(self, folder: Path, profiles: Sequence[Profile]) -> None:
        """As `keep`, for known profiles, by another process."""
        if history := guest("history.command"):
            history.keep_read(folder, profiles, self._at)
