"""Tables of the parameters that a search found best, by GPU and size.

One JSON file a GPU: the user's own under `tuned/` in the cache folder, and those shipped in the
package under data/tuned/. The user's win. An entry holds for exactly its kernel, size and element
type, and for the source that it was measured with: once that changes, the kernel runs with its
header's own parameters again. Beside the tables, under `landscapes/`, lies what each search found
of all settings, one file a search."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.cache import cache_folder, keep
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem, refused
from ncu_toolkit.base.model.codec import document, from_plain, open_document
from ncu_toolkit.kernel.build.nvcc import source_digest
from ncu_toolkit.kernel.ladder.rung import Rung

KIND: Final = "tuned"


@dataclass(frozen=True)
class TunedEntry:
    """The best parameters of one kernel at one size, and their median time in microseconds."""

    family: str
    rung: str
    size: str
    dtype: str
    parameters: Mapping[str, int]
    time_us: float
    settings: int
    """Settings that were timed."""
    source: str
    """Digest of the kernel's source when it was tuned."""
    created: str
    tool_version: str
    finished: bool = True
    """Whether a search was completed. If not, these are the fastest parameters timed so far, by a
    search or from the settings that the kernel's model proposes."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.family, self.rung, self.size, self.dtype


@dataclass(frozen=True)
class TunedTable:
    """Everything tuned on one model of GPU."""

    gpu: str
    entries: tuple[TunedEntry, ...] = ()


def shipped_folder() -> Path:
    return PACKAGE / "data" / "tuned"


def own_folder() -> Path:
    """The folder of the user's tables. Raises EnvironmentProblem as `cache_folder`."""
    return cache_folder() / "tuned"


def _readable() -> Iterator[Path]:
    """Folders of tables, the shipped ones first; only those where there is no home."""
    yield shipped_folder()
    with contextlib.suppress(EnvironmentProblem):
        yield own_folder()


def file_name(gpu: str) -> str:
    """`NVIDIA H200` -> `nvidia-h200.json`."""
    return "-".join("".join(c if c.isalnum() else " " for c in gpu.lower()).split())[:80] + ".json"


def read_table(path: Path) -> TunedTable | None:
    """A table, None where there is no such file. Raises InputProblem: it cannot be read, or is of
    another kind or version."""
    what, remedy = f"'{path}' cannot be read", "Remove it, and tune again"
    with refused(what, remedy, InputProblem), contextlib.suppress(FileNotFoundError):
        return _read(path, path.stat().st_mtime_ns)
    return None


@lru_cache(maxsize=16)
def _read(path: Path, _mtime: int) -> TunedTable:
    try:
        data = files.read_json(path)
    except InputProblem as error:
        raise InputProblem(error.message, "Remove it, and tune again") from None
    return from_plain(TunedTable, open_document(KIND, data, str(path)), path.name)


def lookup(rung: Rung, size: str, dtype: str, gpu: str) -> TunedEntry | None:
    """The entry for a kernel, size label, element type and GPU name; None where there is none for
    the kernel's present source. Raises InputProblem: a table cannot be read."""
    return next((entry for entry in _entries(rung, size, dtype, gpu) if _holds(entry, rung)), None)


def _entries(rung: Rung, size: str, dtype: str, gpu: str) -> Iterator[TunedEntry]:
    """The user's entry, then the shipped one."""
    if not rung.search:
        return
    key = (rung.family, rung.name, size, dtype)
    for folder in reversed([*_readable()]):
        table = read_table(folder / file_name(gpu))
        if table is not None and table.gpu == gpu:
            yield from (entry for entry in table.entries if entry.key == key)


def _holds(entry: TunedEntry, rung: Rung) -> bool:
    """Whether an entry is for this source, and the rung takes its parameters."""
    with contextlib.suppress(UsageProblem):
        return entry.source == source_digest(rung) and bool(rung.with_parameters(entry.parameters))
    return False


def change(rung: Rung, parameters: Mapping[str, int], size: str) -> str:
    """`BM=64 at 2048`: what differs from the rung's own parameters at a size."""
    own = rung.parameters
    changed = [f"{name}={value}" for name, value in parameters.items() if own.get(name) != value]
    return f"{' '.join(changed) or 'its own parameters'} at {size}"


def notes(rung: Rung, sizes: Iterable[str], dtype: str, gpu: str) -> list[str]:
    """Lines for the user before a kernel runs: the sizes at which it runs as tuned, and those whose
    entry is for another source of the kernel. Raises InputProblem: a table cannot be read."""
    words, old = [], []
    for size in sizes:
        entry = lookup(rung, size, dtype, gpu)
        if entry is None:
            old += [size] if any(_entries(rung, size, dtype, gpu)) else []
            continue
        how = "" if entry.finished else f" (the fastest of {entry.settings} that were timed)"
        words.append(change(rung, entry.parameters, size) + how)
    lines = []
    if words:
        tuned = f"{rung.name} runs as tuned for {gpu}, with {'; '.join(words)}"
        lines.append(f"{tuned}; --no-tuned runs it as its file says")
    if old:
        where = f"what was tuned for {gpu} at {', '.join(old)} is for another version of {rung.name} and is not used"
        lines.append(f"{where}: `ncu-toolkit tune -k {rung.name} -s {','.join(old)}` retunes it")
    return lines


def store(gpu: str, entries: Iterable[TunedEntry], folder: Path | None = None) -> Path:
    """Add entries to the user's table of a GPU, each replacing the one with its key; returns the
    file. Raises EnvironmentProblem: the folder cannot be written. Raises InputProblem: the table
    that is there cannot be read."""
    path = (folder or own_folder()) / file_name(gpu)
    table = read_table(path) or TunedTable(gpu)
    merged = {entry.key: entry for entry in (*table.entries, *entries)}
    table = replace(table, entries=tuple(merged[key] for key in sorted(merged)))
    keep(path, (json.dumps(document(KIND, table), indent=1, ensure_ascii=False) + "\n").encode())
    return path


def store_search(gpu: str, entry: TunedEntry, landscape: Mapping[str, Any]) -> None:
    """Store a search's best setting and its landscape (the search as a document). An unfinished
    search does not replace a finished one of the same source. Raises EnvironmentProblem: the folder
    cannot be written. Raises InputProblem: the table that is there cannot be read."""
    table = read_table(own_folder() / file_name(gpu)) or TunedTable(gpu)
    finished = {(each.key, each.source) for each in table.entries if each.finished}
    if not entry.finished and (entry.key, entry.source) in finished:
        return
    store(gpu, [entry])
    path = own_folder() / landscape_name(gpu, *entry.key)
    keep(path, (json.dumps(landscape, separators=(",", ":"), ensure_ascii=False) + "\n").encode())


def landscape_name(gpu: str, family: str, rung: str, size: str, dtype: str) -> Path:
    """Path of a search's landscape in the folder of tables."""
    folder = Path("landscapes") / file_name(gpu).removesuffix(".json")
    return folder / f"{family}-{rung}-{size}-{dtype}.json"


def landscapes(gpu: str, family: str) -> list[Path]:
    """Files of the landscapes of a family's kernels on a GPU, by name; the user's instead of the
    shipped one of the same search."""
    found: dict[str, Path] = {}
    for folder in _readable():
        place = (folder / landscape_name(gpu, family, "", "", "")).parent
        found |= {path.name: path for path in place.glob(f"{family}-*.json")}
    return [found[name] for name in sorted(found)]
