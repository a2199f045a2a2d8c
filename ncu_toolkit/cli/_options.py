"""What a command takes, by the name of its function's parameter: one table of the options that
commands share, and objects for options that are passed on together."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem
from ncu_toolkit.base.core.files import REPORT_SUFFIXES
from ncu_toolkit.base.core.guests import guest
from ncu_toolkit.cli import _complete, _log, _program
from ncu_toolkit.cli._common import WIDTH, Progress, emit, shown_as

if TYPE_CHECKING:
    from ncu_toolkit.base.document.views import Answer
    from ncu_toolkit.kernel.diagnosis.needs import Needs
    from ncu_toolkit.kernel.gpu.executor import Executor
    from ncu_toolkit.kernel.gpu.selection import Cases
    from ncu_toolkit.kernel.ladder.problems import Problem

F = TypeVar("F", bound=Callable[..., Any])
Settings = dict[str, Any]

DEFAULT_REPORTS: Final = "reports"
#: Values of parameters: what fits in 64 bits.
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
#: A week.
LONGEST_SECONDS: Final = 604_800
#: What --kernel takes, for reports and for commands that run a program or rungs of a ladder.
MATCHES: Final = "Only kernels whose demangled name contains a match of this regular expression."
KERNEL: Final = (
    "With a program: only kernels whose demangled name contains a match of this regular expression. "
    "Without one: a kernel of a ladder (see `ncu-toolkit list`), by name."
)
#: What --needs takes, after its first word.
NEEDS: Final = (
    " DRAM bytes and FLOPs that one launch really needs; the excess counts as a possible gain: --needs "
    "'bytes=2*256MiB,flops=17.2G'. Applies to all launches, or with KERNEL (a regular expression) to matching demangled names. Can be repeated."
)
COUNT: Final = click.IntRange(min=1)


class PathName(click.Path):
    """A path that is not empty: Path('') would be the current folder."""

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


def option(help: str | None = None, *words: str, **settings: Any) -> Settings:
    """An option. Without `words` it is called like the parameter; `help` and settings that are not
    given are those of the table."""
    given = {"words": words} if words else {}
    return {"made": click.option, **given, **({} if help is None else {"help": help}), **settings}


def switch(help: str, *words: str, default: bool | None = True) -> Settings:
    """An option with its opposite; `words` is "--this/--no-this"."""
    return option(help, *words, default=default, show_default=bool(default))


def argument(**settings: Any) -> Settings:
    return {"made": click.argument, **settings}


def formats(names: Sequence[str], help: str = "") -> Settings:
    """--format: one of `names`."""
    return option(help, type=click.Choice(names))


def _needs(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> tuple[Needs, ...]:
    from ncu_toolkit.kernel.diagnosis.needs import parse

    return tuple(map(parse, texts))


def _reports(_: click.Context, __: click.Parameter, folder: Path) -> Path:
    if folder.suffix in REPORT_SUFFIXES:
        raise UsageProblem(
            f"--output names a folder here, and '{folder}' is the name of a report",
            "Give a folder: each run gets a subfolder with its report, profile.ncu-rep",
        )
    return folder


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
        from ncu_toolkit.kernel.gpu import selection

        return selection.select(
            self.names,
            None if self.everything else split(self.families),
            self.sizes or sizes,
            self.dtype,
            overrides=parse_params(self.params, self.names),
            predecessors=predecessors,
        )


@dataclass(frozen=True)
class Cluster:
    """What --cluster and --slow-boards name."""

    cluster: str | None
    slow_boards: bool

    def opened(self) -> contextlib.AbstractContextManager[Executor]:
        """The executor, this process without --cluster; raises as `schedulers.opened`."""
        from ncu_toolkit.kernel.gpu import executor

        if self.cluster is None:
            if self.slow_boards:
                raise UsageProblem("--slow-boards needs --cluster", "Leave it out")
            return contextlib.nullcontext(executor.HERE)
        schedulers = guest("cluster.schedulers")
        if schedulers is None:
            raise EnvironmentProblem("--cluster needs the guest 'cluster'", "Reinstall ncu-toolkit")
        opened: contextlib.AbstractContextManager[Executor] = schedulers.opened(
            self.cluster, Progress().note, self.slow_boards
        )
        return opened


@dataclass(frozen=True)
class Output:
    """--format and --output: as what and where a command writes."""

    form: str
    output: Path | None

    def text(self, shown: Any, width: int = 140) -> None:
        """As `emit`."""
        emit(shown, self.output, width)

    def plain(self, document: Any) -> None:
        """Write a document as JSON."""
        from ncu_toolkit.kernel.pages import json

        self.text(json.written(document))

    def answer(self, shown: Answer, title: str = "", page: str = "") -> None:
        """Write an answer; of html say which page to open: `page` where --output names none."""
        if self.form == "html":
            from ncu_toolkit.kernel.pages.html import write_answer

            click.echo(f"Open {write_answer(shown, title, self.output or Path(page))}")
        else:
            self.text(shown_as(shown, self.form), WIDTH)


#: Options by the name of the parameter that takes them, and objects that take several.
TABLE: Final[dict[str, Settings | type]] = {
    "paths": argument(nargs=-1, required=True, type=PathName(), metavar="REPORT…"),
    "program": argument(nargs=-1, type=click.UNPROCESSED, metavar="[-- PROGRAM ARGUMENTS…]"),
    "chosen": Chosen,
    "where": Cluster,
    "out": Output,
    "form": option("", "--format", default="text", show_default=True),
    "output": option("File to write.", "--output", "-o", type=PathName()),
    "reports": option("Folder of reports.", "--output", "-o", type=PathName(file_okay=False), default=DEFAULT_REPORTS, show_default=True,
        callback=_reports),
    "kernel": option(MATCHES, "--kernel", "-k", default="", metavar="REGEX", callback=_program.without_prefix),
    "kernels": option("A kernel of a ladder, by name; can be repeated, or separate names by commas.", "--kernel", "-k", metavar="NAME",
        shell_complete=_complete.kernels, callback=_program.without_prefix),
    "families": option("All kernels of a ladder (see `list`); can be repeated, or separate names by commas.", "--family", "-f", metavar="NAME",
        shell_complete=_complete.families),
    "everything": option("All kernels of all ladders.", "--all"),
    "size": option("", "--size", "-s", metavar="SIZE"),
    "sizes": option("Problem size: 1024, 1024x512x2048, or a list of those.", "--size", "-s", metavar="SIZE[,SIZE…]"),
    "dtype": option("Element type, where the ladder has several.", metavar="TYPE"),
    "params": option("Override a tile parameter of a single kernel; can be repeated.", "--param", metavar="NAME=VALUE"),
    "tuned": switch(
        "--tuned: the tile parameters that `tune` found for this GPU and size, else the fastest that a model names. --no-tuned: the defaults.",
        "--tuned/--no-tuned"),
    "cluster": option(
        "Spread the work over several GPUs: 'local' (all of this machine), the address of a Dask scheduler such as "
        "tcp://host:8786, or a YAML file with an address or settings for Slurm. See docs/cluster.md.", metavar="WHERE"),
    "slow_boards": option("With --cluster: also use GPUs that are much slower than the others."),
    "needs": option(f"The{NEEDS}", callback=_needs, metavar="[KERNEL:]bytes=N,flops=N"),
    "top": option("", type=COUNT, metavar="N"),
    "jobs": option("", "--jobs", "-j", type=COUNT, metavar="N"),
    "launch_skip": option("", type=click.IntRange(min=0), default=0, metavar="N"),
    "launch_count": option("", show_default=True, metavar="N"),
    "timeout": option("Give up on a file after this long.", type=Seconds(), show_default=True, metavar="SECONDS"),
}  # fmt: skip


def options(**own: Settings | str | type) -> Callable[[F], F]:
    """Give a command the options and arguments that its parameters name, in their order.

    `own` says what differs from the table: another help, settings that go over those of the
    table, or a dataclass whose fields are parameters themselves and which the command gets. An
    option of type bool is a flag, and one of several values may be given several times."""

    def entry(name: str) -> Settings | type:
        given, known = own.get(name, {}), TABLE.get(name, {})
        for found in (given, known):
            if isinstance(found, type):
                return found
        assert isinstance(known, dict)
        changes = {"help": given} if isinstance(given, str) else given
        return {"made": click.option, **known, **changes}  # type: ignore[dict-item]

    def decorators(name: str, kind: Any) -> list[Callable[[F], F]]:
        found = entry(name)
        if isinstance(found, type):
            return [each for field in members(found) for each in decorators(*field)]
        made, words = found.pop("made"), found.pop("words", None)
        if made is click.argument:
            return [made(name, **found)]
        if kind in (
            bool,
            "bool",
        ):  # as text where a module has types that it imports for types alone
            found.setdefault("is_flag", True)
        if str(kind).startswith("tuple["):
            found.setdefault("multiple", True)
        return [made(*(words or [f"--{name.replace('_', '-')}"]), name, **found)]

    def members(group: type) -> list[tuple[str, Any]]:
        return [(each.name, each.type) for each in fields(group)]

    def decorate(function: F) -> F:
        kinds = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
        groups = {name: found for name in kinds if isinstance(found := entry(name), type)}

        @wraps(function)
        def call(**given: Any) -> Any:
            for name, group in groups.items():
                given[name] = group(*(given.pop(member) for member, _ in members(group)))
            return function(**given)

        made = [each for name, kind in kinds.items() for each in decorators(name, kind)]
        return reduce(lambda found, each: each(found), reversed(made), _log.options(call))  # type: ignore[return-value]

    return decorate


def given(name: str) -> bool:
    """Whether the command line gives an option of the command that runs, by its parameter."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def any_of(patterns: Sequence[str]) -> str:
    """A regular expression that finds what any of several does."""
    return patterns[0] if len(patterns) == 1 else "|".join(f"(?:{each})" for each in patterns)


def split(names: Sequence[str]) -> tuple[str, ...]:
    """Comma-separated and repeated values as one list; raises UsageProblem for an empty entry."""
    entries = [entry.strip() for name in names for entry in name.split(",")]
    if not all(entries):
        raise UsageProblem(
            f"'{','.join(names)}' has an empty entry", "Separate names by single commas"
        )
    return tuple(entries)


def parse_params(params: tuple[str, ...], kernels: tuple[str, ...]) -> dict[str, int]:
    """NAME=VALUE pairs. Raises UsageProblem for a wrong one, or without exactly one kernel."""
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
