"""What ncu's output says of a failure: `data/failures.toml` is the table, `read` reads a log with it."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
)

_KINDS: Final = {"environment": EnvironmentProblem, "usage": UsageProblem, "kernel": KernelProblem}
#: ncu's own lines, and the kernels that it lists where a filter matched none.
_OWN: Final = re.compile(r"={2,8} ?\w+ ?={2}|={8} |Available Kernels:|\s*\d+\. \S")
_ERROR: Final = re.compile(r"==ERROR== ?(.*)", re.IGNORECASE)
#: Error lines that only say that there was one.
_EMPTY: Final = re.compile(
    r"An error was reported by|An error occurred while trying|Failed to profile|For more information, see|application returned an error code|"
    r"No kernels were profiled|^==ERROR== Use --"
)
_KERNEL: Final = re.compile(r'Failed to profile (?:kernel )?"([^"\n]+)"')
#: ncu ends the program after its own error, by a signal whose number it then reports.
_ENDED: Final = "Trying to shutdown target application"
_BY_NCU: Final = re.compile(r"application returned an error code \((?:9|15)\)")
#: What only Windows' drivers have in a log: WSL's folders, programs of Windows.
_WINDOWS: Final = re.compile(r"/mnt/[a-z]/|/usr/lib/wsl|\.exe\)")


@dataclass(frozen=True)
class KnownFailure:
    """An entry of the table; its head says what each field is."""

    id: str
    pattern: str
    what: str
    remedy: str
    seen: str
    source: str
    kind: str = "environment"
    rank: str = "cause"
    program: bool = False
    wsl: str = ""


@dataclass(frozen=True)
class FoundFailure:
    """A failure that a log tells of, in words. `line` is where it does; `kernel` the one that was being
    profiled, empty where none is named."""

    id: str
    what: str
    remedy: str
    line: str = ""
    source: str = ""
    kind: str = "environment"
    rank: str = "cause"
    kernel: str = ""

    def error(self) -> ToolkitError:
        """The same as an error for the user."""
        at = f" (in '{self.kernel}')" if self.kernel else ""
        return _KINDS[self.kind](f"{self.what}{at}", self.remedy)


@dataclass(frozen=True)
class LogReading:
    """What a log tells. `found` holds its causes, or else the effect that says most, and then warnings;
    `unknown` error lines that no entry of the table is for."""

    found: tuple[FoundFailure, ...]
    unknown: tuple[str, ...]

    @property
    def explained(self) -> bool:
        """Whether a cause is known."""
        return any(each.rank == "cause" for each in self.found)

    @property
    def first(self) -> FoundFailure | None:
        """What to say of a failed run: a cause, else that ncu's error is not known, else the effect with
        what ncu warned of."""
        if self.explained:
            return self.found[0]
        if self.unknown:
            return FoundFailure("unknown", self.unknown[0], "")
        warned = "".join(
            f". ncu warned: {each.what}" for each in self.found if each.rank == "warning"
        )
        effect = next((each for each in self.found if each.rank == "effect"), None)
        return effect and replace(effect, remedy=effect.remedy + warned)


@cache
def table() -> dict[str, KnownFailure]:
    """The known failures by id, in their order."""
    file = resources.files("ncu_toolkit").joinpath("data", "failures.toml")
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["failure"]
    return {entry["id"]: KnownFailure(**entry) for entry in entries}


def on_windows() -> bool:
    """Whether this is WSL, where the driver is that of Windows."""
    try:
        return "microsoft" in Path("/proc/version").read_text().lower()
    except OSError:
        return False


def remedy_of(id: str) -> str:
    """What to do about a known failure on this machine."""
    known = table()[id]
    return known.wsl if known.wsl and on_windows() else known.remedy


def read(text: str, failed: bool | None = None) -> LogReading:
    """What a log of ncu says. Lines of the program count only where the run `failed`; None: where ncu
    tells of an error, or did not come to the program's end."""
    own = "\n".join(line for line in text.splitlines() if _OWN.match(line))
    errors = [error.group() for line in own.splitlines() if (error := _ERROR.match(line))]
    if failed is None:
        failed = bool(errors) or "==PROF== Disconnected" not in own
    windows = on_windows() or _WINDOWS.search(text) is not None
    found = list(_found(own, text if failed else own, windows))
    causes, effects, warnings = (
        [each for each in found if each.rank == rank] for rank in ("cause", "effect", "warning")
    )
    if causes and (kernels := _KERNEL.findall(own)):
        causes[0] = replace(causes[0], kernel=kernels[-1])
    patterns = [re.compile(known.pattern) for known in table().values()]
    unknown = {
        _ERROR.sub(r"\1", line).strip(" ."): None
        for line in errors
        if not _EMPTY.search(line) and not any(each.search(line) for each in patterns)
    }
    if _ENDED in own:
        others = [each for each in effects if not _BY_NCU.search(each.line)]
        effects, ended = others, others != effects
        if ended and not causes and not unknown:
            unknown = {"it ended the program and names no cause": None}
    return LogReading((*(causes or effects[:1]), *warnings), tuple(unknown))


def _found(own: str, whole: str, windows: bool) -> Iterator[FoundFailure]:
    for known in table().values():
        match = re.search(known.pattern, whole if known.program else own)
        if match is None:
            continue
        text = match.string
        line = text[text.rfind("\n", 0, match.start()) + 1 :].splitlines()[0].strip()
        values = {name: value or "?" for name, value in match.groupdict().items()}
        remedy = known.wsl if windows and known.wsl else known.remedy
        yield FoundFailure(
            known.id, known.what.format(**values), remedy.format(**values), line, known.source, known.kind, known.rank
        )  # fmt: skip
