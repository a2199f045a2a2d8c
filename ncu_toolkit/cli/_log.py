"""How much is said: --quiet, --verbose, and --log-file for bug reports. The same three options go
before and after a command's name."""

from __future__ import annotations

import logging
import os
import platform
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import click

from ncu_toolkit import __version__
from ncu_toolkit.core.errors import EnvironmentProblem, UsageProblem

logger = logging.getLogger("ncu_toolkit")

#: Variables that change what is found or done; their values go into the log.
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
    "This log may hold command lines, folders, names of this machine and its user, kernel names, and all that ncu and the profiled program printed. "
    "Nothing was taken out: read it before you send it to others."
)


class Said:
    """What this call of the tool was asked to say. `quiet`: only results and errors. `verbose`:
    also every command that is run."""

    quiet = False
    verbose = False
    file: Path | None = None
    watched = False


def reset() -> None:
    """As at the start of a process: a process may call `main` several times."""
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()
    Said.quiet, Said.verbose, Said.file = False, False, None
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def options(*, hidden: bool) -> list[click.Parameter]:
    """--quiet, --verbose and --log-file; hidden in the help of commands, where they go as well."""
    told = "These three go before or after the command."
    return [
        click.Option(["--quiet", "-q"], is_flag=True, expose_value=False, hidden=hidden, callback=_quiet, help="No progress and no notes."),
        click.Option(["--verbose", "-v"], is_flag=True, expose_value=False, hidden=hidden, callback=_verbose, help="Show the commands that are run."),
        click.Option(
            ["--log-file"], type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", expose_value=False, hidden=hidden, is_eager=True,
            callback=_log_file, help=f"Add versions, commands, ncu's output and tracebacks to FILE, for a bug report. {told}",
        ),
    ]  # fmt: skip


def _quiet(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        if Said.verbose:
            raise UsageProblem("--quiet and --verbose cannot be combined", "Give one of them")
        Said.quiet = True


def _verbose(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    if Said.quiet:
        raise UsageProblem("--quiet and --verbose cannot be combined", "Give one of them")
    if not Said.verbose:
        Said.verbose = True
        handler = logging.StreamHandler(sys.stderr)
        handler.setLevel(logging.INFO)
        handler.setFormatter(_OneLine("%(message)s"))
        _attach(handler)


def _log_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None or ctx.resilient_parsing or Said.file is not None:
        return
    try:
        handler = logging.FileHandler(path, mode="a", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise EnvironmentProblem(
            f"'{path}' cannot be written: {error.strerror}", "Name another file with --log-file"
        ) from None
    Said.file = path
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
    from ncu_toolkit.gpu.doctor import versions

    logger.info(
        "versions: %s", ", ".join(f"{name} {version}" for name, version in versions().items())
    )


def _attach(handler: logging.Handler) -> None:
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    if not Said.watched:  # a hook cannot be taken out again
        Said.watched = True
        sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Every program that any part of the tool starts, as Python itself reports it."""
    if event == "subprocess.Popen" and logger.handlers:
        words = arguments[1]
        logger.info(
            "run: %s",
            words
            if isinstance(words, str | bytes)
            else shlex.join(os.fsdecode(word) for word in words),
        )


class _OneLine(logging.Formatter):
    """Lines for a terminal: no control characters of programs and files pass."""

    def format(self, record: logging.LogRecord) -> str:
        from ncu_toolkit.core.safe import visible

        text = visible(" ".join(record.getMessage().split()))
        return text if len(text) < 2000 else f"{text[:2000]} …"
