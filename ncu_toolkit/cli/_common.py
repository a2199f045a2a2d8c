"""Options, progress and output that commands share."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast

import click

from ncu_toolkit.cli import _log
from ncu_toolkit.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.core.safe import visible

if TYPE_CHECKING:
    from ncu_toolkit.diagnosis.needs import Needs
    from ncu_toolkit.document.views import Answer
    from ncu_toolkit.gpu.cluster import Executor
    from ncu_toolkit.gpu.selection import Cases
    from ncu_toolkit.ladder.problems import Problem

#: Columns of an answer that goes to a file or a pipe.
WIDTH = 100
F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_REPORTS = "reports"
_PIPED_WIDTH = 240
_NARROWEST = 40
#: Values of parameters: what fits in 64 bits.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
#: A week.
LONGEST_SECONDS = 604_800


class PathName(click.Path):
    """A path that is not empty: as a Path an empty one, as of an unset variable, would be the
    current folder."""

    def __init__(self, *, exists: bool = False, file_okay: bool = True) -> None:
        # An unreadable file is an error of that file, not of usage.
        super().__init__(exists=exists, file_okay=file_okay, readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "":
            self.fail("the path is empty.", param, ctx)
        return super().convert(value, param, ctx)


class Seconds(click.FloatRange):
    """A number of seconds: finite, and no more than timers take."""

    def __init__(self, least: float = 1) -> None:
        super().__init__(min=least, max=LONGEST_SECONDS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return found


def needs_option(what: str = "What") -> Callable[[F], F]:
    """--needs; `what` begins its help."""

    def parsed(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Needs, ...]:
        from ncu_toolkit.diagnosis.needs import parse

        return tuple(map(parse, texts))

    return click.option(
        "--needs",
        multiple=True,
        callback=parsed,
        metavar="[KERNEL:]bytes=N",
        help=(
            f"{what} one launch must move and compute at least. No report contains this: --needs 'bytes=2*256MiB,flops=17.2G'. For "
            "all launches, or with KERNEL (a regular expression) for demangled names that match. Repeat it."
        ),
    )


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
        soft_wrap=piped,
        width=piped_width(_PIPED_WIDTH) if piped else None,
        color_system=colours(),
    )
    plain = screen.render_str
    screen.render_str = lambda text, **how: plain(visible(text, keep="\n"), **how)  # type: ignore[method-assign]
    return screen


def grid(title: Any = None) -> Any:
    """An empty table as commands print it."""
    from rich import box
    from rich.table import Table

    return Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )


#: Where this machine has no GPU.
DEFAULT_ARCH = "sm_90"


def here() -> tuple[str, int | None]:
    """This machine's architecture and SM count, or the default where it has no GPU."""
    from ncu_toolkit.gpu import cuda

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
        from ncu_toolkit.render import markdown

        return markdown.brief(found) if form == "brief" else markdown.markdown(found)
    from ncu_toolkit.render.text import AnswerText

    return AnswerText(found)


def emit(shown: Any, output: Path | None, width: int = 140) -> None:
    """Print a string or a rich renderable, or write it to a file. `width` is that of renderables
    that go to no terminal."""
    import io

    from rich.console import Console

    from ncu_toolkit.core.files import write_atomic

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


#: What --kernel takes, for reports and for commands that run a program or rungs of a ladder.
MATCHES: Final = "Only kernels in whose demangled name the regular expression REGEX is found."
KERNEL: Final = (
    "Of a program: only kernels in whose demangled name this regular expression is found. Without a "
    "program: a rung by name."
)


@dataclass(frozen=True)
class Chosen:
    """What --kernel, --family, --all, --size, --dtype and --param choose."""

    kernels: tuple[str, ...]
    families: tuple[str, ...]
    everything: bool
    sizes: str | None
    dtype: str | None
    params: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return split(self.kernels)

    @property
    def ladder(self) -> bool:
        """Whether an option is given that only rungs of a ladder have."""
        return bool(self.families or self.everything or self.sizes or self.dtype or self.params)

    def cases(self, sizes: Callable[[Problem], Sequence[str]], predecessors: bool = False) -> Cases:
        """The cases, with `sizes` of a family where none is given; raises as `selection.select`."""
        from ncu_toolkit.gpu import selection

        return selection.select(
            self.names,
            split(self.families),
            self.everything,
            self.sizes,
            self.dtype,
            default_sizes=sizes,
            overrides=parse_params(self.params, self.names),
            predecessors=predecessors,
        )


def options(*decorators: Callable[[Any], Any]) -> Callable[[F], F]:
    """A command's options, which its help lists in this order."""

    def decorate(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def choose_options(function: F, program: bool = False) -> F:
    """--kernel, --family, --all, --size, --dtype and --param, as the argument `chosen`; `program`:
    also for what a program launches."""
    names = tuple(each.name for each in fields(Chosen))
    what = "A rung by name; repeat it, or separate names by commas."
    if program:
        what = f"{KERNEL} Repeat it, or separate names of rungs by commas."

    @wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        return function(*arguments, chosen=Chosen(*map(given.pop, names)), **given)

    return options(
        click.option("--kernel", "-k", "kernels", multiple=True, metavar="NAME", help=what),
        click.option("--family", "-f", "families", multiple=True, metavar="NAME",
            help="A whole ladder by name; repeat it, or separate names by commas."),
        click.option("--all", "everything", is_flag=True, help="Every ladder."),
        size_option("Problem size: 1024, 1024x512x2048, or a list of those."),
        dtype_option,
        click.option("--param", "params", multiple=True, metavar="NAME=VALUE",
            help="Override a tile parameter of a single kernel; repeat it."),
    )(cast(F, call))  # fmt: skip


def size_option(what: str, required: bool = False) -> Callable[[F], F]:
    """--size, as the argument `sizes`."""
    return click.option(
        "--size", "-s", "sizes", metavar="SIZE[,SIZE…]", required=required, help=what
    )


def dtype_option(function: F) -> F:
    """--dtype."""
    what = "Element type, where the family has several."
    return click.option("--dtype", metavar="TYPE", help=what)(function)


def output_option(function: F) -> F:
    """--output: the folder of reports."""
    return click.option(
        "--output", "-o", "reports", type=PathName(file_okay=False), default=DEFAULT_REPORTS, show_default=True, help="Folder of reports.",
    )(function)  # fmt: skip


def format_option(formats: Sequence[str], what: str = "") -> Callable[[F], F]:
    """--format, as the argument `form`: one of `formats`, text where it is not given."""
    return click.option(
        "--format", "form", type=click.Choice(formats), default="text", show_default=True, help=what
    )


def timeout_option(what: str, default: float) -> Callable[[F], F]:
    """--timeout: seconds after which `what` is given up."""
    return click.option(
        "--timeout", type=Seconds(), default=default, show_default=True, metavar="SECONDS", help=f"Give up on {what} after this long."
    )  # fmt: skip


def tuned_option(function: F) -> F:
    """--tuned / --no-tuned: whether kernels run with what `ncu-toolkit tune` found for this GPU and
    size, or what their models choose."""
    what = "Run kernels with the parameters tuned for this GPU and size, else chosen by their models, or with their headers' own."
    return click.option("--tuned/--no-tuned", default=True, show_default=True, help=what)(function)


@dataclass(frozen=True)
class Cluster:
    """What --cluster and --slow-boards name."""

    address: str | None
    slow_boards: bool

    def opened(self) -> contextlib.AbstractContextManager[Executor]:
        """The executor, this process without --cluster; raises as `schedulers.opened`."""
        from ncu_toolkit.gpu import cluster, schedulers

        if self.address is None:
            if self.slow_boards:
                raise UsageProblem("--slow-boards needs --cluster", "Leave it out")
            return contextlib.nullcontext(cluster.HERE)
        return schedulers.opened(self.address, Progress().note, self.slow_boards)


def cluster_options(function: F) -> F:
    """--cluster and --slow-boards, as the argument `where`."""

    @wraps(function)
    def call(*arguments: Any, cluster: str | None, slow_boards: bool, **given: Any) -> Any:
        return function(*arguments, where=Cluster(cluster, slow_boards), **given)

    return options(
        click.option("--cluster", metavar="WHERE",
            help="Spread the work over several GPUs: 'local' (all of this machine), the address of a Dask scheduler such as "
            "tcp://host:8786, or a YAML file with an address or settings for Slurm. See docs/cluster.md."),
        click.option("--slow-boards", is_flag=True, help="With --cluster: also use GPUs that are much slower than the others."),
    )(cast(F, call))  # fmt: skip


def any_of(patterns: Sequence[str]) -> str:
    """A regular expression that finds what any of several does."""
    return patterns[0] if len(patterns) == 1 else "|".join(f"(?:{each})" for each in patterns)


def split(names: tuple[str, ...]) -> tuple[str, ...]:
    """Comma-separated and repeated values as one list; raises UsageProblem for an empty entry."""
    entries = [entry.strip() for name in names for entry in name.split(",")]
    if any(not entry for entry in entries):
        raise UsageProblem(
            f"'{','.join(names)}' has an empty entry", "Separate names by single commas"
        )
    return tuple(entries)


def parse_params(params: tuple[str, ...], kernels: tuple[str, ...]) -> dict[str, int]:
    """NAME=VALUE pairs; raises UsageProblem for one that is not, or where more than one kernel is
    chosen."""
    values = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not _INTEGER.fullmatch(value.strip()):
            raise UsageProblem(f"--param '{text}' is not NAME=INTEGER", "Write it as --param BM=64")
        values[name.strip()] = int(value)
    if values and len(kernels) != 1:
        raise UsageProblem(
            "--param needs exactly one --kernel", "Name one kernel, or leave --param out"
        )
    return values


@contextlib.contextmanager
def interruptible(
    *numbers: signal.Signals,
) -> Iterator[Callable[[], bool]]:
    """Treat SIGTERM and SIGHUP, as CI and closed terminals send them, and `numbers` like Ctrl-C. Yields
    whether one of them came, for where the interrupt was taken for a failure."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
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
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress:
    """A reporter that shows progress bars on a terminal, else plain lines."""

    def __init__(self) -> None:
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
            disable=_log.Verbosity.quiet or not self._console.is_terminal,
        )
        self._task: Any = None
        self._title = ""
        self._done = self._total = 0
        self._last = 0.0

    def __enter__(self) -> Progress:
        self._bars.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.__exit__(kind, error, trace)

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

    def doing(self, label: str) -> None:
        if not self._bars.disable:
            self._bars.update(self._task, label=f"{visible(label)} …")

    def note(self, text: str) -> None:
        _log.logger.debug("note: %s", text)
        self._print(f"note: {text}")

    def _print(self, text: str) -> None:
        if not _log.Verbosity.quiet:
            self._console.print(text, markup=False)
