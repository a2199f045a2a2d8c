"""SHA-256 sums beside reports: the format carries none, so that nothing in a file shows a change.

Both places are optional: `<report>.sha256` as `sha256sum` writes it, and the `checksums` of a run's
`run.json`."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ncu_toolkit.core import files
from ncu_toolkit.core.errors import InputProblem

SUFFIX: Final = ".sha256"
_SUM: Final = re.compile(r"^\\?([0-9a-fA-F]{64}) [ *](.+)$")
_CHUNK: Final = 1 << 20
#: Largest file of sums in bytes: ten thousand sums.
_LIST_BYTES: Final = 1 << 20
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
#: How a run.json of this package starts.
_OURS: Final = b'{\n "schema": "ncu-toolkit/run"'


@dataclass(frozen=True)
class SumCheck:
    """`source` names the file with a matching sum, `problem` the mismatch; both "" without sums."""

    source: str = ""
    problem: str = ""


def digest(path: Path) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    state = hashlib.sha256()
    with files.opened(path) as stream:
        while chunk := stream.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def verify(path: Path) -> SumCheck:
    """Compare a file with the checksums beside it. A checksum that cannot be read is a problem."""
    expected: list[tuple[str, str]] = []
    try:
        for found in (_side_file(path), _manifest(path)):
            if found is not None:
                expected.append(found)
    except ValueError as error:
        return SumCheck(problem=str(error))
    if not expected:
        return SumCheck()
    actual = digest(path)
    for source, value in expected:
        if value.lower() != actual:
            return SumCheck(
                problem=f"differs from what was recorded: its SHA-256 is not the one in {source}"
            )
    return SumCheck(" and ".join(source for source, _ in expected))


def _side_file(path: Path) -> tuple[str, str] | None:
    side = path.with_name(path.name + SUFFIX)
    try:
        text = os.fsdecode(files.read_bytes(side, _LIST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, InputProblem) as error:
        raise ValueError(f"has a checksum file that cannot be read: {_reason(error)}") from None
    for line in text.splitlines():
        found = _SUM.match(line)
        if found and Path(found.group(2)).name == path.name:
            return side.name, found.group(1)
    raise ValueError(f"has a checksum file, {side.name}, that does not name it")


def _manifest(path: Path) -> tuple[str, str] | None:
    manifest = path.with_name("run.json")
    data = b""
    try:
        data = files.read_bytes(manifest, files.json_limit())
        found = files.parse_json(data, manifest)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, InputProblem) as error:
        if data and not data.startswith(_OURS) and not _OURS.startswith(data):
            return None  # another program's
        raise ValueError(
            f"may have a checksum in run.json, which cannot be read: {_reason(error)}"
        ) from None
    if not isinstance(found, dict) or found.get("schema") != "ncu-toolkit/run":
        return None
    payload = found.get("data")
    sums = payload.get("checksums", {}) if isinstance(payload, dict) else None
    if isinstance(sums, dict) and path.name not in sums:
        return None
    value = sums.get(path.name) if isinstance(sums, dict) else None
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError("has a checksum in run.json that is not a SHA-256")
    return "run.json", value


def _reason(error: OSError | InputProblem) -> str:
    return error.message if isinstance(error, InputProblem) else f"{error.strerror or error}"
