"""SHA-256 sums beside reports: the format itself carries none, so a changed figure cannot be seen
from the file alone.

Two places are looked at, both optional: `<report>.sha256` as `sha256sum` writes it, and the
`checksums` of a run's manifest `run.json`."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ncu_toolkit.core.files import write_atomic

SUFFIX: Final = ".sha256"
_SUM: Final = re.compile(r"^\\?([0-9a-fA-F]{64}) [ *](.+)$")
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Verdict:
    """`source` names the file that holds a matching sum; `problem` says what does not match. Both
    are empty where there is no sum."""

    source: str = ""
    problem: str = ""


def digest(path: Path) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    state = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def verify(path: Path) -> Verdict:
    """Hold a file against the sums that lie beside it. A sum that cannot be read is a problem: it
    was written to be checked."""
    expected: list[tuple[str, str]] = []
    try:
        for found in (_side_file(path), _manifest(path)):
            if found is not None:
                expected.append(found)
    except ValueError as error:
        return Verdict(problem=str(error))
    if not expected:
        return Verdict()
    actual = digest(path)
    for source, value in expected:
        if value.lower() != actual:
            return Verdict(
                problem=f"is not what was recorded: its SHA-256 differs from the one in {source}"
            )
    return Verdict(" and ".join(source for source, _ in expected))


def write(path: Path) -> Path:
    """Write `<path>.sha256`, fit for `sha256sum --check` in the same folder; returns it."""
    side = path.with_name(path.name + SUFFIX)
    write_atomic(side, f"{digest(path)}  {path.name}\n".encode())
    return side


def _side_file(path: Path) -> tuple[str, str] | None:
    side = path.with_name(path.name + SUFFIX)
    try:
        text = side.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"has a sum beside it that cannot be read: {side.name}: {error}") from None
    for line in text.splitlines():
        found = _SUM.match(line)
        if found and Path(found.group(2)).name == path.name:
            return side.name, found.group(1)
    raise ValueError(f"has a sum beside it, {side.name}, that does not name it")


def _manifest(path: Path) -> tuple[str, str] | None:
    manifest = path.with_name("run.json")
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return None  # some other run.json, or a broken one: store.load_manifest says so where it matters
    payload = (
        data.get("data")
        if isinstance(data, dict) and data.get("schema") == "ncu-toolkit/run"
        else None
    )
    sums = payload.get("checksums") if isinstance(payload, dict) else None
    value = sums.get(path.name) if isinstance(sums, dict) else None
    return ("run.json", value) if isinstance(value, str) else None
