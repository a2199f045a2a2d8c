"""Reading untrusted files, and writing files atomically.

Files must be regular and no larger than a limit, also unpacked. The Python inside Nsight Compute,
where a rule imports this, lacks the modules of `gzip`, `lzma` and zstd."""

import contextlib
import errno
import importlib
import io
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem

LIMIT_VARIABLE: Final = "NCU_TOOLKIT_MAX_BYTES"
#: Most bytes of one file, unpacked: reports are smaller, but 440 KB of xz can unpack to 9 GB.
_DEFAULT_LIMIT: Final = 2 << 30
_STORED: Final = 8
#: Memory that parsed JSON takes, as a multiple of its size.
_JSON_GROWS: Final = 8
_XZ_MAGIC: Final = b"\xfd7zXZ\x00"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
#: Memory for unpacking, as a power of two; `xz -9` needs 64 MiB, `zstd -19` 8 MiB.
_MEMORY_LOG: Final = 30
#: Suffixes of a report: plain, packed by hand, and packed as ncu has done since 2026.3.
REPORT_SUFFIXES: Final = (".ncu-rep", ".ncu-rep.xz", ".ncu-repz")
#: What names of traces end with; of other files too.
TRACE_SUFFIXES: Final = (".ncu-trace", ".sqlite", ".json", ".json.gz")
_CHUNK: Final = 1 << 20
#: Bytes of a file's start that `check` gets.
_HEAD: Final = 64
#: First bytes of a `.ncu-rep`, unpacked.
REPORT: Final = b"NVR\0"
_Check = Callable[[bytes], object] | None
#: Device and inode of each file that is read and not to be written over (`keep`).
_kept: Final[set[tuple[int, int]]] = set()


def limit() -> int:
    """Most bytes that one file may hold, unpacked: $NCU_TOOLKIT_MAX_BYTES, else 2 GiB. Raises
    UsageProblem where that is no positive integer."""
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


def read_bytes(path: Path, most: int | None = None, check: _Check = None) -> bytes:
    """A regular file's content; xz and zstd are unpacked.

    Args:
        most: bytes that are accepted, unpacked; `limit()` where None.
        check: raises for an unwanted file, given its first `_HEAD` bytes (unpacked).

    Raises:
        InputProblem: no regular file, larger than `most`, or damaged xz or zstd.
        OSError: it is missing, a folder, or cannot be read.
    """
    most = limit() if most is None else most
    with opened(path) as stream:
        head = stream.peek(_HEAD)[:_HEAD]  # type: ignore[attr-defined]
        packing = _packing(head)
        if packing is not None:
            return _unpacked(path, stream, most, check, packing)
        if check is not None:
            check(head)
        refuse_larger(path, os.fstat(stream.fileno()).st_size, most)
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


def refuse_larger(path: Path, size: int, most: int | None = None, *, stored: bool = False) -> None:
    """Raise InputProblem for a file of more than `most` bytes, `limit()` where None; by default
    eight times as many where it is `stored`, not held in memory."""
    most = limit() if most is None else most
    if size > (_STORED * most if stored and LIMIT_VARIABLE not in os.environ else most):
        raise _too_large(path, most)


def _too_large(path: Path, most: int) -> InputProblem:
    return InputProblem(
        f"'{path}' has more than {most} bytes",
        f"If that is right and memory is large enough, set {LIMIT_VARIABLE} to more than {limit()} bytes",
    )


class _Packing(NamedTuple):
    """A way to pack a file: its name, magic bytes, unpacker and errors, and what may come between
    streams."""

    name: str
    magic: bytes
    unpacker: Callable[[], Any]
    errors: tuple[type[Exception], ...]
    padding: bytes = b""


def _packing(head: bytes) -> _Packing | None:
    """How a file that starts so is packed; None where it is not."""
    if head.startswith(_XZ_MAGIC):
        import lzma

        unxz = partial(lzma.LZMADecompressor, lzma.FORMAT_XZ, memlimit=1 << _MEMORY_LOG)
        return _Packing("xz", _XZ_MAGIC, unxz, (lzma.LZMAError, EOFError), b"\0")
    if head.startswith(_ZSTD_MAGIC):
        zstd_ = zstd()
        most = {zstd_.DecompressionParameter.window_log_max: _MEMORY_LOG}
        unzstd = partial(zstd_.ZstdDecompressor, options=most)
        return _Packing("zstd", _ZSTD_MAGIC, unzstd, (zstd_.ZstdError, EOFError))
    return None


def zstd() -> Any:
    """Python's own module, from 3.14 on, or the same one for older Pythons."""
    return importlib.import_module(
        "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    )


def packed(name: str, data: bytes) -> bytes:
    """A report's or a trace's bytes as a file of that name holds them; zstd gets a checksum, as xz
    has one."""
    if name.endswith(".xz"):
        import lzma

        return lzma.compress(data)
    if name.endswith((".ncu-repz", ".ncu-trace")):
        zstd_ = zstd()
        with_checksum = {zstd_.CompressionParameter.checksum_flag: 1}
        found: bytes = zstd_.compress(data, options=with_checksum)
        return found
    return data


def _unpacked(path: Path, stream: IO[bytes], most: int, check: _Check, packing: _Packing) -> bytes:
    """Unpack all streams of a packed file part by part, and stop at the limit."""
    whole = io.BytesIO()
    data = stream.read(_CHUNK)
    try:
        while data:
            unpacker = packing.unpacker()
            while not unpacker.eof:
                if unpacker.needs_input and not data:
                    data = stream.read(_CHUNK)
                    if not data:
                        raise EOFError("its data are cut off")
                whole.write(unpacker.decompress(data, _CHUNK))
                data = b""
                if check is not None and (whole.tell() >= _HEAD or unpacker.eof):
                    check(whole.getbuffer()[:_HEAD].tobytes())
                    check = None
                if whole.tell() > most:
                    raise _too_large(path, most)
            data = (unpacker.unused_data or stream.read(_CHUNK)).lstrip(packing.padding)
            while not data and (more := stream.read(_CHUNK)):  # padding between streams
                data = more.lstrip(packing.padding)
            if data and not (data + stream.peek(_HEAD)[:_HEAD]).startswith(packing.magic):  # type: ignore[attr-defined]
                raise EOFError(f"the data after its end are not {packing.name}")
    except packing.errors as error:
        raise InputProblem(f"'{path}' is a damaged {packing.name} file: {error}", _AGAIN) from None
    return whole.getvalue()


def may_be_trace(path: Path) -> bool:
    """Whether a path is worth a look for a trace: it is no folder, and not named like a report."""
    return not path.name.lower().endswith(REPORT_SUFFIXES) and not os.path.isdir(path)


def named_like_traces(folder: Path) -> list[Path]:
    """The files in a folder and below whose names end as those of traces do, in order."""
    return sorted(
        Path(place) / name
        for place, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(TRACE_SUFFIXES)
    )


def head(path: Path, size: int) -> bytes:
    """The first bytes of a file, unpacked (gzip too); none where it cannot be read."""
    import zlib

    try:
        with opened(path) as stream:
            data = stream.read(size)
    except (OSError, InputProblem):
        return b""
    packing = _packing(data)
    if data.startswith(b"\x1f\x8b"):
        with contextlib.suppress(zlib.error):
            return zlib.decompressobj(31).decompress(data, size)
    if packing is not None:
        with contextlib.suppress(*packing.errors):
            unpacked: bytes = packing.unpacker().decompress(data, size)
            return unpacked
    return data


def parse_json(data: bytes | str, path: object) -> Any:
    """A JSON document's value.

    Raises InputProblem: it is not JSON, not UTF-8, or too deep or long to be read."""
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


def keep(paths: Iterable[Path | str]) -> None:
    """Let `refuse_loss` refuse these files, the inputs of a command, and no others."""
    _kept.clear()
    found = filter(None, map(_stat, paths))
    _kept.update((each.st_dev, each.st_ino) for each in found if stat.S_ISREG(each.st_mode))


def _stat(path: Path | str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def refuse_loss(path: Path, data: bytes = b"") -> None:
    """Raise UsageProblem where writing to `path` would cost an input or an unrelated report."""
    there = _stat(path)
    if there is None or not stat.S_ISREG(there.st_mode):
        return
    remedy = "Name another file: inputs and reports are not overwritten"
    if (there.st_dev, there.st_ino) in _kept:
        raise UsageProblem(f"'{path}' is an input of this command", remedy)
    with contextlib.suppress(OSError, InputProblem), opened(path) as stream:
        if _is_report(stream.read(1 << 16)) and not _is_report(data):
            raise UsageProblem(f"'{path}' is an ncu report", remedy)


def _is_report(data: bytes) -> bool:
    """Whether a file that starts so is a report, packed or not."""
    packing = _packing(data)
    if packing is not None:
        with contextlib.suppress(*packing.errors):
            data = packing.unpacker().decompress(data, len(REPORT))
    return data.startswith(REPORT)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one, never half.

    A link is followed, and a replaced file keeps its mode and owner. What is no regular file (a
    device, a FIFO, our own standard output) is written into; a reader that leaves is no error.

    Raises:
        EnvironmentProblem: the disk is full or the folder cannot be written.
        UsageProblem: as `refuse_loss`.
    """
    refuse_loss(path, data)
    there = None
    try:
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(path)
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
        if error.errno == errno.ENOENT and not path.parent.exists():
            raise EnvironmentProblem(
                f"'{path}' cannot be written: there is no folder '{path.parent}'",
                "Make it first, or name another",
            ) from None
        folder = error.errno == errno.EISDIR
        raise EnvironmentProblem(
            f"'{path}' cannot be written: {error.strerror}",
            "Name a file" if folder else _elsewhere(error),
        ) from None


def make_folder(path: Path) -> None:
    """Make a folder with those above it. Raises EnvironmentProblem where it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise EnvironmentProblem(
            f"'{path}' exists and is not a folder", "Name another folder with --output"
        ) from None
    except OSError as error:
        raise EnvironmentProblem(
            f"'{path}' cannot be made: {error.strerror}", f"{_elsewhere(error)} with --output"
        ) from None


def _elsewhere(error: OSError) -> str:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return f"{'Free space, or name' if full else 'Name'} another folder"


def _our_output(there: os.stat_result | None) -> int | None:
    """A new descriptor of this process's standard output or error if the path is that, such as
    `/dev/stdout`; opening it again would truncate it."""
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
    """`mode` less the umask, as open() and mkdir() give it."""
    umask = os.umask(0o077)  # it cannot be read alone; other threads create private files meanwhile
    os.umask(umask)
    return mode & ~umask


def replace(
    path: Path, data: bytes, there: os.stat_result | None = None, mode: int | None = None
) -> None:
    """Write a file in one step, with the mode and owner of the file that it replaces (`there`), or
    with `mode`. Raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        _write_into(handle, data)
        if there is not None and (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(OSError):  # only root may give a file away
                os.chown(temporary, there.st_uid, there.st_gid)
        if mode is None:
            mode = permitted(0o666) if there is None else stat.S_IMODE(there.st_mode)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def exchange(new: Path, old: Path) -> None:
    """Exchange two paths, in one step where the system can (Linux, renameat2(2)). Raises
    OSError."""
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
