"""--quiet, --verbose and --log-file, which go before and after a command's name."""

import contextlib
import logging
import os
import platform
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from ncu_toolkit import __version__
from ncu_toolkit.base.core.errors import EnvironmentProblem, UsageProblem, refused
from ncu_toolkit.base.core.files import refuse_loss
from ncu_toolkit.base.core.safe import visible

F = TypeVar("F", bound=Callable[..., Any])
logger = logging.getLogger("ncu_toolkit")

#: Environment variables that are written into the log.
_VARIABLES: Final = (
    "NCU",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "TMPDIR",
    "NO_COLOR",
    "PYTHONPATH",
)
_WARNING: Final = (
    "This log may contain command lines, folders, machine and user names, kernel names, and all output of ncu and the "
    "program. Nothing was redacted: read it before you send it to others."
)


class Verbosity:
    """Options of this call. `verbose` also shows every command that is run."""

    quiet = False
    verbose = False
    file: Path | None = None
    watched = False


def reset() -> None:
    """Reset: a process may call `main` several times."""
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    Verbosity.quiet, Verbosity.verbose, Verbosity.file = False, False, None
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def options(function: F, hidden: bool = True) -> F:
    """--quiet, --verbose and --log-file; hidden in the help of commands, where they go as well."""
    where = "-q, -v and --log-file may go before or after the command."
    for option in (
        click.option("--log-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", expose_value=False, hidden=hidden, is_eager=True,
            callback=_log_file, help=f"Add versions, commands, ncu's output and tracebacks to FILE, for a bug report. {where}"),
        click.option("--verbose", "-v", is_flag=True, expose_value=False, hidden=hidden, callback=_set_level, help="Show the commands that are run."),
        click.option("--quiet", "-q", is_flag=True, expose_value=False, hidden=hidden, callback=_set_level, help="No progress and no notes."),
    ):  # fmt: skip
        function = option(function)
    return function


def _set_level(ctx: click.Context, option: click.Parameter, asked: bool) -> None:
    """--quiet or --verbose."""
    if not asked or ctx.resilient_parsing:
        return
    quiet, before = "--quiet" in option.opts, Verbosity.verbose
    Verbosity.quiet, Verbosity.verbose = Verbosity.quiet or quiet, before or not quiet
    if Verbosity.quiet and Verbosity.verbose:
        raise UsageProblem("--quiet and --verbose cannot be combined", "Give one of them")
    if Verbosity.verbose and not before:
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(logging.INFO)
        handler.setFormatter(_OneLine("%(message)s"))
        _attach(handler)


class _File(logging.FileHandler):
    """A log that ends the command where it cannot be written, without a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        logger.removeHandler(self)
        Verbosity.file = None
        with contextlib.suppress(OSError):
            self.close()  # what it holds cannot be written either
        if not isinstance(error, OSError):
            raise
        raise EnvironmentProblem(
            f"'{self.baseFilename}' cannot be written: {error.strerror}",
            "Free space, or name another file with --log-file",
        ) from None


def _log_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None or ctx.resilient_parsing or Verbosity.file is not None:
        return
    refuse_loss(path)
    with refused(f"'{path}' cannot be written", "Name another file with --log-file"):
        handler = _File(path, mode="a", encoding="utf-8", errors="backslashreplace")
    Verbosity.file = path
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    _attach(handler)
    logger.info(_WARNING)
    logger.info("ncu-toolkit %s: %s", __version__, shlex.join(sys.argv))
    logger.info("on %s, Python %s", platform.platform(), platform.python_version())
    logger.info(
        "variables: %s",
        {
            name: os.environ[name]
            for name in os.environ
            if name in _VARIABLES or name.startswith("NCU_TOOLKIT_")
        },
    )
    from ncu_toolkit.program.doctor import versions

    logger.info(
        "versions: %s", ", ".join(f"{name} {version}" for name, version in versions().items())
    )


def ended(by: str) -> None:
    """Add the error that ends the command to the log, if that can be written."""
    with contextlib.suppress(EnvironmentProblem):
        logger.debug(by, exc_info=True)


def _attach(handler: logging.Handler) -> None:
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    if not Verbosity.watched:  # An audit hook cannot be removed.
        Verbosity.watched = True
        sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Log every program that this process starts."""
    if event == "subprocess.Popen" and logger.handlers:
        words = arguments[1]
        logger.info(
            "run: %s",
            words
            if isinstance(words, str | bytes)
            else shlex.join(os.fsdecode(word) for word in words),
        )


class _OneLine(logging.Formatter):
    """Formats lines for a terminal: control characters are spelled out."""

    def format(self, record: logging.LogRecord) -> str:
        text = visible(" ".join(record.getMessage().split()))
        return text if len(text) < 2000 else f"{text[:2000]} …"
