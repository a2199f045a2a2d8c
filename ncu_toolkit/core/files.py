"""Writing files so that nobody ever reads half of one."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from ncu_toolkit.core.errors import EnvironmentProblem


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half.

    A link is followed, and what is replaced keeps its mode and owner. What is no regular file (a
    device, a FIFO, our own standard output) cannot be replaced: it is written into.

    Raises:
        EnvironmentProblem: the disk is full or the folder cannot be written.
        BrokenPipeError: who reads a FIFO or our output went away.
    """
    try:
        try:
            there = os.stat(path)
        except FileNotFoundError:
            there = None
        ours = _our_output(there)
        if ours is not None:
            _write_into(ours, data)
        elif there is not None and not stat.S_ISREG(there.st_mode):
            _write_into(os.open(path, os.O_WRONLY), data)
        else:
            replace(path.resolve() if path.is_symlink() else path, data, there)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise EnvironmentProblem(
            f"'{path}' cannot be written: {error.strerror}",
            "Free space, or name another folder with --output",
        ) from None


def _our_output(there: os.stat_result | None) -> int | None:
    """A new descriptor of our own standard output or error where that is the file, as `/dev/stdout`
    is: opening it again would cut it off."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            if there is not None and os.path.samestat(there, os.fstat(number)):
                if stream is not None:
                    stream.flush()
                return os.dup(number)
        except OSError:
            continue  # it is closed
    return None


def _write_into(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as sink:
        sink.write(data)


def replace(path: Path, data: bytes, there: os.stat_result | None = None) -> None:
    """Put a file in the place of `there`, with its mode and owner, or of nothing. Raises
    OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        _write_into(handle, data)
        if there is not None and (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):  # only root may give a file away
                os.chown(temporary, there.st_uid, there.st_gid)
        os.chmod(temporary, 0o644 if there is None else stat.S_IMODE(there.st_mode))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
