"""Parameters that a tuner found best, by GPU and size: where they are kept, and how the launcher finds them.

One JSON file a GPU: the user's own under `tuned/` in the cache folder, and those shipped in the package under data/tuned/. The user's win. An entry
holds for exactly its kernel, size and element type; a kernel whose header no longer takes the parameters falls back to its defaults.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from ncu_toolkit.errors import EnvironmentProblem, InputProblem, UsageProblem
from ncu_toolkit.ladder import Rung
from ncu_toolkit.serialize import document, from_plain, open_document
from ncu_toolkit.toolchain import cache_folder, replace_file

KIND: Final = "tuned"


@dataclass(frozen=True)
class TunedEntry:
    """The best parameters of one kernel at one size. Times are medians in microseconds, None where there was nothing to time."""

    family: str
    rung: str
    size: str
    dtype: str
    parameters: Mapping[str, int]
    time_us: float
    baseline_us: float | None
    """The baseline's, run beside it."""
    default_us: float | None
    """The header's own parameters, timed in the same search."""
    settings: int
    """Settings that were timed."""
    source: str
    """Digest of the kernel's source when it was tuned."""
    created: str
    tool_version: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.family, self.rung, self.size, self.dtype


@dataclass(frozen=True)
class TunedTable:
    """Everything tuned on one model of GPU."""

    gpu: str
    entries: tuple[TunedEntry, ...] = ()


def shipped_folder() -> Path:
    return Path(__file__).resolve().parent / "data" / "tuned"


def own_folder() -> Path:
    return cache_folder() / "tuned"


def file_name(gpu: str) -> str:
    """`NVIDIA H200` -> `nvidia-h200.json`."""
    return "-".join("".join(c if c.isalnum() else " " for c in gpu.lower()).split())[:80] + ".json"


def read_table(path: Path) -> TunedTable | None:
    """A table, None where there is no such file.

    Raises:
        InputProblem: it cannot be read, or is of another kind or version.
    """
    try:
        return _read(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputProblem(f"'{path}' cannot be read: {error.strerror}", "Remove it, and tune again") from error


@lru_cache(maxsize=16)
def _read(path: Path, _mtime: int) -> TunedTable:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputProblem(f"'{path}' is not JSON: {error}", "Remove it, and tune again") from None
    return from_plain(TunedTable, open_document(KIND, data, str(path)), path.name)


def lookup(rung: Rung, size: str, dtype: str, gpu: str) -> TunedEntry | None:
    """The entry for a kernel, size label, element type and GPU name; None where there is none, or where the kernel no longer takes it.

    Raises:
        InputProblem: a table cannot be read.
    """
    if not rung.search:
        return None
    key = (rung.family, rung.name, size, dtype)
    for folder in (own_folder(), shipped_folder()):
        table = read_table(folder / file_name(gpu))
        for entry in table.entries if table is not None and table.gpu == gpu else ():
            if entry.key == key and _takes(rung, entry.parameters):
                return entry
    return None


def _takes(rung: Rung, parameters: Mapping[str, int]) -> bool:
    try:
        rung.with_parameters(parameters)
    except UsageProblem:
        return False
    return True


def parameters_for(rung: Rung, size: str, dtype: str, gpu: str, overrides: Mapping[str, int], use: bool = True) -> dict[str, int]:
    """What to run a kernel with beside its defaults: the user's overrides where there are any, else what was tuned, else nothing."""
    if overrides or not use:
        return dict(overrides)
    entry = lookup(rung, size, dtype, gpu)
    return dict(entry.parameters) if entry else {}


def store(gpu: str, entries: Iterable[TunedEntry], folder: Path | None = None) -> Path:
    """Put entries into the user's table of a GPU, each in place of an earlier one of the same kernel, size and type; returns the file.

    Raises:
        EnvironmentProblem: the folder cannot be written.
        InputProblem: the table that is there cannot be read.
    """
    path = (folder or own_folder()) / file_name(gpu)
    table = read_table(path) or TunedTable(gpu)
    kept = {entry.key: entry for entry in (*table.entries, *entries)}
    table = replace(table, entries=tuple(kept[key] for key in sorted(kept)))
    try:
        replace_file(path, (json.dumps(document(KIND, table), indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise EnvironmentProblem(f"'{path}' cannot be written: {error.strerror}", "Free some space") from error
    return path
