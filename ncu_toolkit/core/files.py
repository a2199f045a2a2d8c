"""Reading untrusted files, and writing files atomically.

What is read is a regular file and no larger than a limit, compressed or not. Imported by the rule
that runs inside Nsight Compute, whose Python lacks the compiled modules of `gzip` and `lzma`."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final

from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, UsageProblem

LIMIT_VARIABLE: Final = "NCU_TOOLKIT_MAX_BYTES"
#: Most bytes of one file, unpacked. No larger report was ever seen, and 440 KB of xz can unpack to
#: 9 GB.
_DEFAULT_LIMIT: Final = 2 << 30
#: Memory that parsed JSON takes, as a multiple of its size.
_JSON_GROWS: Final = 8
_XZ_MAGIC: Final = b"\xfd7zXZ\x00"
#: Memory that an xz stream may ask for; `xz -9` asks for 64 MiB.
_XZ_MEMORY: Final = 1 << 30
_CHUNK: Final = 1 << 20
#: Bytes of a file's start that `check` gets.
_HEAD: Final = 64


def limit() -> int:
    """Most bytes that one file may hold, unpacked: $NCU_TOOLKIT_MAX_BYTES, else 2 GiB.

    Raises:
        UsageProblem: the variable is no positive integer.
    """
    text = os.environ.get(LIMIT_VARIABLE, "")
    if not text:
        return _DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text)):
        raise UsageProblem(
            f"{LIMIT_VARIABLE} is '{text[:40]}', not a number of bytes",
            f"Set it to an integer such as {4 * _DEFAULT_LIMIT}, or unset it",
        )
    return int(text)


def json_limit() -> int:
    """Most bytes of a JSON document."""
    return limit() // _JSON_GROWS


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A regular file, to be read.

    Raises:
        InputProblem: it is a FIFO, a device or a socket, which may block or never end.
        OSError: it is missing, a folder, or cannot be opened.
    """
    _refuse_special(path, os.stat(path).st_mode)
    # Do not block on a FIFO that is put in its place meanwhile.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_special(path, os.fstat(descriptor).st_mode)
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            yield stream
    finally:
        os.close(descriptor)


def _refuse_special(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise InputProblem(
            f"'{path}' is not a regular file (for example a FIFO or a device)",
            "Write its content to a file first, and name that",
        )


def read_bytes(
    path: Path, most: int | None = None, check: Callable[[bytes], object] | None = None
) -> bytes:
    """A regular file's content; xz is unpacked.

    Args:
        most: bytes that are accepted, unpacked; `limit()` where None.
        check: given the first `_HEAD` bytes (unpacked) before the rest is read; raises for a file
            that is not wanted.

    Raises:
        InputProblem: no regular file, larger than `most`, or damaged xz.
        OSError: it is missing, a folder, or cannot be read.
    """
    most = limit() if most is None else most
    with opened(path) as stream:
        head = stream.peek(_HEAD)[:_HEAD]  # type: ignore[attr-defined]
        if head.startswith(_XZ_MAGIC):
            return _unpacked_xz(path, stream, most, check)
        if check is not None:
            check(head)
        if os.fstat(stream.fileno()).st_size > most:
            raise _too_large(path, most)
        return _bounded(path, stream, most)


def read_gzip(path: Path, most: int | None = None) -> bytes:
    """The unpacked content of a gzip file. Raises as `read_bytes`."""
    import gzip
    import zlib

    most = limit() if most is None else most
    with opened(path) as stream, gzip.GzipFile(fileobj=stream) as unpacked:
        try:
            return _bounded(path, unpacked, most)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InputProblem(f"'{path}' is a damaged gzip file: {error}", _AGAIN) from None


_AGAIN: Final = "Copy it again from where it was made"


def _bounded(path: Path, stream: Any, most: int) -> bytes:
    whole = io.BytesIO()
    while chunk := stream.read(_CHUNK):
        whole.write(chunk)
        if whole.tell() > most:
            raise _too_large(path, most)
    return whole.getvalue()


def _too_large(path: Path, most: int) -> InputProblem:
    return InputProblem(
        f"'{path}' has more than {most} bytes",
        f"If that is right and memory is large enough, set {LIMIT_VARIABLE} to more than {limit()} bytes",
    )


def _unpacked_xz(
    path: Path, stream: IO[bytes], most: int, check: Callable[[bytes], object] | None
) -> bytes:
    """Unpack all streams of an xz file part by part, and stop at the limit."""
    import lzma

    whole = io.BytesIO()
    packed = stream.read(_CHUNK)
    try:
        while packed:
            unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
            while not unpacker.eof:
                if unpacker.needs_input and not packed:
                    packed = stream.read(_CHUNK)
                    if not packed:
                        raise EOFError("its data are cut off")
                whole.write(unpacker.decompress(packed, _CHUNK))
                packed = b""
                if check is not None and (whole.tell() >= _HEAD or unpacker.eof):
                    check(whole.getbuffer()[:_HEAD].tobytes())
                    check = None
                if whole.tell() > most:
                    raise _too_large(path, most)
            packed = (unpacker.unused_data or stream.read(_CHUNK)).lstrip(b"\0")
            while not packed and (more := stream.read(_CHUNK)):  # padding between streams
                packed = more.lstrip(b"\0")
            if packed and not (packed + stream.peek(_HEAD)[:_HEAD]).startswith(_XZ_MAGIC):  # type: ignore[attr-defined]
                raise EOFError("the data after its end are not xz")
    except (lzma.LZMAError, EOFError) as error:
        raise InputProblem(f"'{path}' is a damaged xz file: {error}", _AGAIN) from None
    return whole.getvalue()


def parse_json(data: bytes | str, path: object) -> Any:
    """A JSON document's value.

    Raises:
        InputProblem: it is not JSON, not UTF-8, or nested or written so that it cannot be read
            (a thousand levels, a number of thousands of digits).
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise InputProblem(
            f"'{path}' is not JSON: {reason}", "It was cut off or edited; make it again"
        ) from None


def read_json(path: Path) -> Any:
    """The value of a JSON file. Raises as `read_bytes` and `parse_json`."""
    return parse_json(read_bytes(path, json_limit()), path)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half.

    A link is followed, and what is replaced keeps its mode and owner. What is not a regular file (a
    device, a FIFO, our own standard output) cannot be replaced: it is written into, and a reader
    that leaves is no error.

    Raises:
        EnvironmentProblem: the disk is full or the folder cannot be written.
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
        pass  # as after `| head`
    except OSError as error:
        folder = error.errno == errno.EISDIR
        raise EnvironmentProblem(
            f"'{path}' cannot be written: {error.strerror}",
            "Name a file with --output"
            if folder
            else "Free space, or name another folder with --output",
        ) from None


def _our_output(there: os.stat_result | None) -> int | None:
    """A new descriptor of this process's standard output or error where the path is that, such as
    `/dev/stdout`: opening it again would truncate it."""
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


def permitted(mode: int) -> int:
    """`mode` less the umask, as open() and mkdir() give it; temporary files and folders have less."""
    umask = os.umask(0o077)  # it cannot be read alone; other threads create private files meanwhile
    os.umask(umask)
    return mode & ~umask


def replace(path: Path, data: bytes, there: os.stat_result | None = None) -> None:
    """Move a file to `there`, with the mode and owner of the file that it replaces. Raises
    OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        _write_into(handle, data)
        if there is not None and (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):  # only root may give a file away
                os.chown(temporary, there.st_uid, there.st_gid)
        os.chmod(temporary, permitted(0o666) if there is None else stat.S_IMODE(there.st_mode))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def exchange(new: Path, old: Path) -> None:
    """Exchange two paths, folders too, in one step where the file system can (Linux, renameat2(2)),
    else in two. Raises OSError."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        call = None
    if call is not None:
        here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
        if call(here, os.fsencode(new), here, os.fsencode(old), swap) == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EINVAL):
            raise OSError(number, os.strerror(number), str(new), None, str(old))
    aside = Path(tempfile.mkdtemp(dir=old.parent, prefix=f".{old.name}.")) / "old"
    os.rename(old, aside)
    try:
        os.rename(new, old)
    except OSError:
        os.rename(aside, old)
        raise
    os.rename(aside, new)
    aside.parent.rmdir()
