"""The command line, one file a command. Only this package prints and exits."""

from __future__ import annotations

import difflib
import errno
import importlib
import io
import os
import re
import signal
import sys
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from ncu_toolkit import __version__
from ncu_toolkit.base.core import guests
from ncu_toolkit.base.core.errors import EXIT_BUG, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, for_user
from ncu_toolkit.base.core.files import keep
from ncu_toolkit.cli import _log
from ncu_toolkit.cli._common import interruptible

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer
    from click.shell_completion import CompletionItem

#: Group of `--help` -> command -> one-line help, a verb first. A command is
#: `ncu_toolkit.cli.<name>.command`. Guests add theirs, each to the group that it names.
GROUPS: Final = {
    "Diagnose": {
        "analyze": "Diagnose the kernels in Nsight Compute reports.",
        "explain": "Explain a bottleneck, a stall reason, a unit or a figure.",
        "static": "Analyse compiled code without a GPU: resources, occupancy, hot loops, bottlenecks.",
    },
    "Profile": {
        "profile": "Profile a program, or kernels of a ladder, and write the report.",
        "try": "Try optimization settings in a program, and measure what each gains.",
        "why": "Say why ncu failed, from its log, and what to do.",
    },
    "Compare and CI": {
        "compare": "Compare two reports; fail CI on a regression.",
        "baseline": "Keep reports under a name, as a baseline for later comparisons.",
    },
    "Ladders": {
        "list": "Show the ladders (series of kernels for one problem) and their kernels.",
        "build": "Compile kernels and show their registers, spills and shared memory.",
        "bench": "Verify and time kernels, without profiling them.",
        "report": "Write pages of the recorded runs in the package, and of your own runs.",
    },
    "Project": {
        "doctor": "Check what works on this machine, and how to fix what does not.",
        "redact": "Copy a report without host names, users, addresses, command lines and paths.",
        "completion": "Print a script for completion in bash, zsh or fish.",
    },
}
COMMANDS: Final = {name: text for group in GROUPS.values() for name, text in group.items()}
#: Characters of an error that are shown.
_LONGEST: Final = 8000
#: Set to see a traceback instead of the one-line error.
_DEBUG_VARIABLE: Final = "NCU_TOOLKIT_DEBUG"


#: Commands that keep what they finished before they were interrupted.
_KEEPING: Final = ("bench", "build", "profile", "try", "tune", "watch")
#: Options that take a file to write.
_OUTPUT: Final = re.compile("-[qv]*o|--output|--log-file")
#: Raised by click, from 8.2 on, where a group is called without a command; its message is the whole
#: help.
_NO_ARGUMENTS: Final[Any] = getattr(click.exceptions, "NoArgsIsHelpError", ())


def commands() -> dict[str, str]:
    """Commands and their lines of help, those of guests last."""
    return {**COMMANDS, **{name: text for name, (_, text, _) in guests.commands().items()}}


class Commands(click.Group):
    """A group that imports a command's module only when that command runs or asks for help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = pairwise(("", *args))  # those that may name a file to read
        keep([word for before, word in words if not _OUTPUT.fullmatch(before)])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stopped:
            if ctx.invoked_subcommand in _KEEPING and not stopped.args:
                raise KeyboardInterrupt("what was finished is kept") from None
            raise

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*commands()]  # not list(): the command module of that name lies in this package

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = f"ncu_toolkit.cli.{cmd_name}"
        if cmd_name not in COMMANDS:
            place = guests.commands().get(cmd_name, ("", "", ""))[0]
        if not place:  # one that another package may have added
            return super().get_command(ctx, cmd_name)
        command = importlib.import_module(place).command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=text)
            for name, text in commands().items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        further = guests.commands().items()
        for group, own in GROUPS.items():
            theirs = [(name, text) for name, (_, text, its) in further if its == group]
            with formatter.section(group):
                formatter.write_dl([*own.items(), *theirs])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if os.path.exists(name) or re.search(r"[./]", name):
                return super().resolve_command(ctx, ["analyze", *args])
            near = difflib.get_close_matches(name, commands(), n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"commands are {', '.join(commands())}"
            raise click.UsageError(f"no command '{name}'; {hint}")
        return super().resolve_command(ctx, args)


def _version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    from ncu_toolkit.program.doctor import versions

    click.echo(f"ncu-toolkit {__version__}")
    for name, version in versions().items():
        click.echo(f"  {name} {version}")
    ctx.exit()


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the versions of ncu-toolkit and of what it uses.",
)
@partial(_log.options, hidden=False)
def cli() -> None:
    """Profile CUDA kernels with Nsight Compute, and explain what limits each of them.

    Start with `ncu-toolkit my.ncu-rep` if you have a report: `analyze` may be left out. Without one, profile your
    program: `ncu-toolkit profile -- ./app`. With neither a report nor a GPU, run `ncu-toolkit
    report`."""


def main(arguments: list[str] | None = None) -> Any:
    """Entry point: runs a command and turns every error into one line and its exit code."""
    _standard_streams()
    try:
        _main(arguments)
    except SystemExit as ended:
        if _log.Verbosity.file is not None:
            _log.logger.info("exit code %s", ended.code)
            click.echo(
                f"Log: {_log.Verbosity.file}. Nothing was redacted, so read it before you send it",
                err=True,
            )
        raise
    finally:
        _log.reset()
        keep(())


class _Closed(io.TextIOBase):
    """Standard output that was closed at the start: showing a result is an error."""

    encoding, errors = "utf-8", "backslashreplace"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raise OSError(
            errno.EBADF,
            "standard output is closed, so nothing can be shown. Name a file with --output, or leave it open",
        )


class _Output(io.FileIO):
    """Standard output or error as a file descriptor. A closed pipe, as of `| head`, does not end
    the command, whose exit code may be a gate's: messages are dropped, and
    results that cannot be written are an error, once."""

    _lost = False

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        if self._lost:
            return size
        try:
            return super().write(data)
        except OSError as error:
            self._lost = True
            if self.fileno() == 2 or error.errno == errno.EPIPE:
                return size
            raise


def _wrapped(stream: TextIO, number: int) -> TextIO:
    """The stream over `_Output`; what its encoding lacks is spelled out."""
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Output(number, "w", closefd=False)),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=number == 2 or stream.isatty(),
    )


def _standard_streams() -> None:
    """Reserve descriptors of closed standard streams, and let the others take any text."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            if os.open(os.devnull, os.O_RDWR) != number:
                break  # A lower descriptor is in use.
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for as long as the process lives)
    # Not a stream that a caller put in their place.
    if sys.stdout is sys.__stdout__ and sys.__stdout__ is not None:
        sys.stdout = sys.__stdout__ = _wrapped(sys.__stdout__, 1)  # type: ignore[misc,assignment]
    if sys.stderr is sys.__stderr__ and sys.__stderr__ is not None:
        sys.stderr = sys.__stderr__ = _wrapped(sys.__stderr__, 2)  # type: ignore[misc,assignment]


def _main(arguments: list[str] | None) -> Any:
    try:
        with interruptible() as came:
            code = cli.main(args=arguments, prog_name="ncu-toolkit", standalone_mode=False)
        if code == EXIT_INTERRUPTED and came():
            code = 128 + came()
        sys.exit(code if isinstance(code, int) else EXIT_OK)
    except click.exceptions.Exit as exit_request:
        sys.exit(exit_request.exit_code)
    except click.ClickException as error:
        if isinstance(error, _NO_ARGUMENTS) and error.ctx is not None:
            click.echo(error.ctx.get_help(), err=True)
            _complain("no command was given")
            sys.exit(EXIT_USAGE)
        message = error.format_message().removesuffix(".")
        if isinstance(error, click.UsageError) and error.ctx is not None:
            stop = "" if message.endswith("?") else "."
            message = f"{message}{stop} See `{error.ctx.command_path} --help`"
        _complain(message)
        sys.exit(EXIT_USAGE)
    except (click.Abort, KeyboardInterrupt) as stopped:
        kept = str(stopped.__cause__ or stopped)  # click makes an Abort of it
        _complain(f"interrupted; {kept}" if kept else "interrupted")
        sys.exit(128 + (came() or signal.SIGINT))
    except Exception as error:
        known = for_user(error)
        _log.ended("a defect:" if known is None else "ended by:")
        if os.environ.get(_DEBUG_VARIABLE):
            raise
        remedy = "Run it again with --log-file FILE and report what is in it"
        defect = f"a bug in ncu-toolkit: {type(error).__name__}: {error}. {remedy}"
        _complain(defect if known is None else str(known))
        sys.exit(EXIT_BUG if known is None else known.exit_code)


def _complain(message: str) -> None:
    one_line = " ".join(message[:_LONGEST].split())
    safe = "".join(character if character.isprintable() else "�" for character in one_line)
    click.echo(f"error: {safe}", err=True)
