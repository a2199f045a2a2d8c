"""The one error family. Each error says what happened, to what, and what to do; the CLI turns it
into one line and an exit code."""

import contextlib
import difflib
import errno
from collections.abc import Iterable, Iterator
from pathlib import Path

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core.safe import shell_word

EXIT_OK = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_ENVIRONMENT = 3
EXIT_INPUT = 4
EXIT_KERNEL = 5
#: Ctrl-C; 128 and the signal's number for SIGTERM (143) and SIGHUP (129).
EXIT_INTERRUPTED = 130
#: A defect of ncu-toolkit itself (EX_SOFTWARE of sysexits.h).
EXIT_BUG = 70


class ToolkitError(Exception):
    """Base of every error that reaches a user.

    Args:
        message: what happened and to which file, kernel or option, on one line.
        remedy: what to do next; a command that works here where there is one.
    """

    exit_code = EXIT_USAGE
    log: Path | None = None
    """The output of the program that failed, where it was kept."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        end = "" if self.message.endswith("?") else "."
        return f"{self.message}{end} {self.remedy}" if self.remedy else self.message


class GateFailed(ToolkitError):
    """A comparison or calibration gate did not hold (exit 1)."""

    exit_code = EXIT_GATE


class UsageProblem(ToolkitError):
    """The request itself cannot be carried out: unknown name, impossible size (exit 2)."""

    exit_code = EXIT_USAGE


class EnvironmentProblem(ToolkitError):
    """This machine lacks something: GPU, driver, ncu, nvcc, CuPy, permission, disk (exit 3)."""

    exit_code = EXIT_ENVIRONMENT


class InputProblem(ToolkitError):
    """A file is unreadable, incomplete or not what it claims to be (exit 4)."""

    exit_code = EXIT_INPUT


class KernelProblem(ToolkitError):
    """A kernel failed to build, to launch, or computed a wrong result (exit 5)."""

    exit_code = EXIT_KERNEL


@contextlib.contextmanager
def refused(
    what: str, remedy: str = "", kind: type[ToolkitError] = EnvironmentProblem
) -> Iterator[None]:
    """Raise what the operating system refuses as an error for the user: `what`, and its reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror or error}", remedy) from None


def first_line(error: BaseException) -> str:
    """The first line of what a library says; the error's kind where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`Did you mean 'x'?` for the nearest of `known`, "" where none is near."""
    near = difflib.get_close_matches(name, list(known), 1, cutoff)
    return f"Did you mean '{near[0]}'?" if near else ""


def extra(name: str) -> str:
    """The command that installs an extra of this package, from where the package came from."""
    clone = PACKAGE.parent
    if (clone / "pyproject.toml").is_file():
        return f"Run `pip install -e {shell_word(f'{clone}[{name}]')}`"
    origin = _origin()
    if origin.startswith("/") and Path(origin).is_dir():
        return f"Run `pip install {shell_word(f'{origin}[{name}]')}`"
    if origin and not origin.startswith("/"):
        return f"Run `pip install {shell_word(f'ncu-toolkit[{name}] @ {origin}')}`"
    return f"Run `pip install '.[{name}]'` in a clone of ncu-toolkit"


def _origin() -> str:
    """Where pip installed this package from, a folder or an address for pip; empty if unknown."""
    import importlib.metadata
    import json
    from urllib.parse import unquote, urlsplit

    try:
        text = importlib.metadata.distribution("ncu-toolkit").read_text("direct_url.json")
        known = json.loads(text or "{}")
        address = str(known.get("url", ""))
        vcs = known.get("vcs_info", {}).get("vcs", "")
    except (importlib.metadata.PackageNotFoundError, ValueError, AttributeError):
        return ""
    parts = urlsplit(address)
    if parts.scheme == "file" and not vcs:
        return unquote(parts.path)
    return f"{vcs}+{address}" if vcs else ""


def of_system(error: OSError) -> EnvironmentProblem:
    """What the operating system refused, as an error for the user."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    what = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    return EnvironmentProblem(
        what, "Free space, or point TMPDIR and --output elsewhere" if full else ""
    )


#: What to do where memory runs out.
LESS = "End other programs, or ask for less: fewer reports at once (--jobs 1)"


def for_user(error: Exception) -> ToolkitError | None:
    """An error as one of this family; None for a defect of ncu-toolkit."""
    if isinstance(error, OSError):
        return of_system(error)
    # NVIDIA's report module raises the second.
    if isinstance(error, MemoryError) or "std::bad_alloc" in str(error):
        return EnvironmentProblem("this machine ran out of memory", f"{LESS}, or a smaller size")
    return error if isinstance(error, ToolkitError) else None
