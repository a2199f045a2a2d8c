"""Every measured launch as a row, kept in Parquet files and read with DuckDB (extra `history`).

The store is the folder `.ncu-toolkit/history/` or $NCU_TOOLKIT_HISTORY. Each run adds one file
named by the SHA-256 of its content, so that readers see whole files and notice damage. Many files
are merged under a lock. A row's key is report and launch; in two files it counts once."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem, extra
from ncu_toolkit.kernel.report import integrity

VARIABLE: Final = "NCU_TOOLKIT_HISTORY"
SCHEMA: Final = "ncu-toolkit/history"
#: Raised when a column changes its meaning or goes away.
VERSION: Final = 1
#: Files from which on they are merged into one.
MANY: Final = 32
_SUFFIX: Final = ".parquet"
_LOCK: Final = ".lock"
_RESTORE: Final = "Restore it or remove it; `ncu-toolkit history import` takes its run in again"
_FOREIGN: Final = "it is not a file of the history"
#: Seconds after which a temporary file belongs to a writer that was killed.
_STALE: Final = 86_400.0
#: How often a reader lists the files again that a merge has removed meanwhile.
_TRIES: Final = 20


@dataclass(frozen=True)
class Row:
    """One launch, or one timing of a kernel that was not profiled. Empty or None where not known."""

    report: str
    """SHA-256 of the report; of the repeats for a timing. With `launch` it tells rows apart."""
    launch: str
    """Place in the report."""
    run: str = ""
    date: str = ""
    """ISO 8601, UTC."""
    tool: str = ""
    gpu: str = ""
    gpu_uuid: str = ""
    driver: str = ""
    git_commit: str = ""
    git_dirty: bool | None = None
    name: str = ""
    """What its history is kept under: the rung, else the demangled name."""
    kernel: str = ""
    """Demangled name."""
    code: str = ""
    """Digest of the rung's source, else of the launch's SASS."""
    size: str = ""
    dtype: str = ""
    grid: str = ""
    block: str = ""
    status: str = ""
    time_us: float | None = None
    """Median of unprofiled repeats, by CUDA events."""
    spread: float | None = None
    """(p90 - p10) / median of those."""
    profiled_us: float | None = None
    """The launch's duration under ncu."""
    verdict: str = ""
    """Id of the bottleneck."""
    title: str = ""
    """The verdict in words."""
    gain: float | None = None
    confidence: str = ""
    occupancy_percent: float | None = None
    registers: int | None = None
    dram_percent: float | None = None
    l2_percent: float | None = None
    l1_percent: float | None = None
    stall: str = ""
    """The reason that warps wait for most."""
    stall_percent: float | None = None


_TYPES: Final = {
    "str": "VARCHAR", "float | None": "DOUBLE", "int | None": "INTEGER", "bool | None": "BOOLEAN"
}  # fmt: skip
#: Column -> its type in DuckDB.
COLUMNS: Final = {
    f.name: "TIMESTAMP" if f.name == "date" else _TYPES[str(f.type)] for f in fields(Row)
}


def root() -> Path:
    """The folder of the history."""
    return Path(os.environ.get(VARIABLE) or Path(".ncu-toolkit") / "history")


def installed() -> bool:
    """Whether DuckDB is there. It is not loaded: it would slow down reading (kernel/report/ncu_action.py)."""
    return importlib.util.find_spec("duckdb") is not None


def _duckdb() -> Any:
    if not installed():
        what = "the history needs DuckDB, which is not installed"
        raise EnvironmentProblem(what, extra("history"))
    return importlib.import_module("duckdb")


def _memory() -> Any:
    """A database in memory that loads no extension and writes no temporary file."""
    config = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "python_enable_replacements": "false",
        "temp_directory": "",
        "threads": "1",  # more take more processor time, and save the user little
    }
    return _duckdb().connect(":memory:", config=config)


def add(rows: Sequence[Row]) -> None:
    """Add a run's rows as one file, and merge files where there are many.

    Raises EnvironmentProblem where DuckDB is missing or the folder cannot be written, and
    InputProblem where a newer version wrote the history."""
    if not rows:
        return
    with contextlib.closing(_memory()) as base:
        _known(base, _listed())
        shape = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        base.execute(f"CREATE TABLE launches ({shape})")
        plain = [{name: _storable(value) for name, value in asdict(row).items()} for row in rows]
        base.execute(
            "INSERT INTO launches SELECT unnest(from_json(?, ?), recursive := true)",
            [json.dumps(plain, ensure_ascii=False, allow_nan=False), json.dumps([COLUMNS])],
        )
        _publish(base)
    if len(_listed()) >= MANY:
        merge()


def _storable(value: Any) -> Any:
    """Text of a report as text that UTF-8 has."""
    if not isinstance(value, str):
        return value
    return value.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _publish(base: Any) -> Path:
    """Write the table `launches` to the store so that it is there whole or not at all."""
    folder = root()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
        temporary = Path(name)
        options = f"FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false, KV_METADATA {{schema: '{SCHEMA}', version: '{VERSION}'}}"
        quoted = name.replace("'", "''")
        try:
            base.execute(f"COPY (SELECT * FROM launches ORDER BY date) TO '{quoted}' ({options})")
            os.fchmod(handle, files.permitted(0o666))
            os.fsync(handle)
            target = folder / f"{integrity.digest(temporary)}{_SUFFIX}"
            os.replace(temporary, target)
            number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from None
    except _duckdb().Error as error:
        raise _unwritable(folder, _first_line(error)) from None
    return target


def _unwritable(folder: Path, why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"the history in '{folder}' cannot be written: {why}",
        f"Set {VARIABLE} to a folder you may write, or free space",
    )


def merge() -> None:
    """Merge the files of the store into one, unless another process does. Unreadable files stay. A
    reader finds the rows in the old files, the new one, or both. Raises EnvironmentProblem."""
    folder = root()
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _unwritable(folder, error.strerror or str(error)) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        _remove_stale(folder)
        with contextlib.closing(_memory()) as base:
            paths, _ = _load(base)
            if len(paths) < 2:
                return
            whole = _publish(base)
        for path in paths:
            if path != whole:
                path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(".new-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _STALE:
                path.unlink()


@dataclass(frozen=True)
class History:
    """An open history: the table `launches` in memory, and the files that were left out."""

    base: Any
    broken: tuple[InputProblem, ...]

    @property
    def wrong(self) -> Any:
        """What a query raises that is wrong."""
        return _duckdb().Error

    def rows(self, query: str, values: Sequence[object] = ()) -> list[dict[str, Any]]:
        """A fixed query as rows by column."""
        done = self.base.execute(query, list(values))
        names = [column[0] for column in done.description]
        return [dict(zip(names, row, strict=True)) for row in done.fetchall()]

    def select(self, sql: str) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Headings and rows of a user's SELECT, which can reach no file or network and change no
        setting.

        Raises:
            UsageProblem: it is not one SELECT, is refused, or is wrong SQL.
            EnvironmentProblem: it takes more memory than there is.
        """
        duckdb = _duckdb()
        remedy = "One SELECT over the table launches is allowed"
        try:
            for setting in ("enable_external_access = false", "lock_configuration = true"):
                self.base.execute(f"SET {setting}")
            statements = self.base.extract_statements(sql)
            kinds = [statement.type for statement in statements]
            if kinds != [duckdb.StatementType.SELECT]:
                found = ", ".join(kind.name for kind in kinds) or "nothing"
                raise UsageProblem(f"--sql is not one SELECT but {found}", remedy)
            done = self.base.execute(statements[0])
            return tuple(column[0] for column in done.description), done.fetchall()
        except (MemoryError, duckdb.OutOfMemoryException):
            raise EnvironmentProblem(
                "--sql takes more memory than this machine has",
                "Select fewer rows or columns, for example with LIMIT, or end other programs",
            ) from None
        except duckdb.Error as error:
            if not isinstance(error, duckdb.PermissionException):
                remedy = "See the columns with --sql 'select * from launches limit 1' --format csv"
            raise UsageProblem(f"--sql: {_first_line(error)}", remedy) from None
        except RuntimeError as error:
            if "interrupted" in str(error):  # DuckDB reports Ctrl-C like this
                raise KeyboardInterrupt from None
            raise


@contextlib.contextmanager
def opened(
    columns: Sequence[str] = tuple(COLUMNS), folder: Path | None = None
) -> Iterator[History]:
    """The history, to be read, with the columns that are needed; `folder` holds a copy to read
    instead.

    Raises EnvironmentProblem where DuckDB is missing or the folder cannot be read, and InputProblem
    where a newer version wrote it."""
    with contextlib.closing(_memory()) as base:
        yield History(base, _load(base, columns, folder)[1])


def _listed(folder: Path | None = None) -> list[Path]:
    """The store's files; none where there is no store."""
    folder = folder or root()
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        what = f"the history in '{folder}' cannot be read: {error.strerror}"
        remedy = f"Give yourself permission, or set {VARIABLE} to another folder"
        raise EnvironmentProblem(what, remedy) from None
    return sorted(folder / n for n in names if n.endswith(_SUFFIX) and not n.startswith("."))


def _load(
    base: Any, columns: Sequence[str] = tuple(COLUMNS), folder: Path | None = None
) -> tuple[list[Path], tuple[InputProblem, ...]]:
    """Read the store into a table `launches`; the files that were read, and errors of the others."""
    for attempt in range(_TRIES):
        listed = _listed(folder)
        whole, broken = _whole(listed)
        try:
            known = _known(base, whole)
            _fill(base, known, columns)
        except _duckdb().Error as error:
            if all(map(os.path.lexists, listed)) or attempt == _TRIES - 1:
                raise InputProblem(f"the history in '{root()}': {_first_line(error)}") from None
            continue
        if all(map(os.path.lexists, listed)):
            foreign = (path for path in whole if path not in known)
            broken += [_left_out(each, _FOREIGN, "Move it elsewhere") for each in foreign]
            return known, tuple(broken)
    raise InputProblem(f"the history in '{root()}' changes while it is read", "Try again")


def _fill(base: Any, paths: Sequence[Path], columns: Sequence[str]) -> None:
    shape = ", ".join(f"{name}::{COLUMNS[name]} AS {name}" for name in columns)
    made = "CREATE OR REPLACE TABLE launches AS SELECT"
    if not paths:
        nothing = ", ".join(f"NULL AS {name}" for name in COLUMNS)
        base.execute(f"{made} {shape} FROM (SELECT {nothing}) WHERE false")
        return
    files, there = [list(map(str, paths))], "FROM read_parquet(?)"
    # a hash that two rows share by chance costs time, and no row
    twice = f"SELECT 1 {there} GROUP BY hash(report, launch) HAVING count(*) > 1 LIMIT 1"
    once = "DISTINCT ON (report, launch) " if base.execute(twice, files).fetchone() else ""
    base.execute(f"{made} {once}{shape} {there}", files)


def _whole(paths: Sequence[Path]) -> tuple[list[Path], list[InputProblem]]:
    """The files whose content is as it was written, and errors of the others."""
    whole, broken = [], []
    for path in paths:
        try:
            if integrity.digest(path) == path.name.removesuffix(_SUFFIX):
                whole.append(path)
            else:
                broken.append(_left_out(path, "it is damaged: its checksum differs from its name"))
        except FileNotFoundError:
            if path.is_symlink():
                broken.append(_left_out(path, "it is a link to a file that is not there"))
            continue  # merged meanwhile
        except InputProblem as error:
            broken.append(error)
        except OSError as error:
            broken.append(_left_out(path, error.strerror or str(error)))
    return whole, broken


def _left_out(path: Path, why: str, remedy: str = _RESTORE) -> InputProblem:
    return InputProblem(f"'{path}' is left out of the history: {why}", remedy)


def _known(base: Any, paths: Sequence[Path]) -> list[Path]:
    """The files that hold a history of this version. Raises InputProblem for a newer one."""
    known = []
    for path in paths:
        try:
            rows = base.execute("SELECT key, value FROM parquet_kv_metadata(?)", [str(path)])
            entries = {_text(key): _text(value) for key, value in rows.fetchall()}
        except _duckdb().Error:
            continue  # damaged, or merged meanwhile
        version = entries.get("version", "")
        if entries.get("schema") != SCHEMA or not version.isdigit():
            continue
        if int(version) > VERSION:
            raise InputProblem(
                f"'{path}' is of version {version} of the history; this ncu-toolkit knows version {VERSION}",
                f"Upgrade ncu-toolkit, or set {VARIABLE} to another folder",
            )
        known.append(path)
    return known


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".!")
