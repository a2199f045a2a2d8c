"""Writing files so that nobody ever reads half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from ncu_toolkit.errors import EnvironmentProblem


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half.

    Raises:
        EnvironmentProblem: the disk is full or the folder cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as sink:
                sink.write(data)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EnvironmentProblem(f"'{path}' cannot be written: {error.strerror}", "Free space, or name another folder with --output") from None
