"""One folder, and nothing outside it: files below it are opened step by step from its descriptor.

No step follows a link by itself, so that a folder that is exchanged for a link meanwhile leads
nowhere (the rule of openat2(2), RESOLVE_BENEATH). Links that stay inside are followed. A hard link
or a mount below the folder counts as inside."""

import contextlib
import errno
import hashlib
import math
import os
import posixpath
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.kernel.report import integrity
from ncu_toolkit.program.analysis.trial import SUFFIX

#: Most bytes of a file that is served, as it lies on disk.
MOST_BYTES: Final = 1 << 30
#: Links that one name may lead through, as in Linux.
_LINKS: Final = 40
#: Reports that are listed, and files looked at to find them.
LISTED: Final = 200
_LOOKED_AT: Final = 20_000
#: Traces of a folder that are read: one for each rank of a job.
_RANKS: Final = 1024
_CHUNK: Final = 1 << 20
#: Nanoseconds after a file's last change in which another change may have the same time.
_FRESH_NS: Final = 2_000_000_000
#: How often a file is read again that changes while it is read.
_TRIES: Final = 3
_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
#: What a file's content is known by while it does not change.
Stamp = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Content:
    """A file as it was read once: its name below the root, its SHA-256, and its copy."""

    name: str
    digest: str
    copy: Path


class Root:
    """A folder whose files are served.

    Raises:
        UsageProblem: it is no folder that can be read.
    """

    def __init__(self, folder: Path) -> None:
        try:
            self.path = folder.resolve(strict=True)
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        except (OSError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageProblem(
                f"'{folder}' cannot be the root: {why}", "Name a folder that you can read"
            ) from None
        self._given = folder.absolute()
        self._digests: dict[Stamp, str] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        os.close(self._descriptor)

    def name(self, text: str) -> str:
        """A path below the root, relative to it. An absolute one may begin with the root.

        Raises:
            UsageProblem: it is empty, absolute elsewhere, or no path.
        """
        if not text or "\0" in text:
            raise UsageProblem("the path is empty", "Name a file below the root")
        path = PurePosixPath(text)
        for base in (self.path, self._given):
            if path.is_absolute() and path.is_relative_to(base):
                path = path.relative_to(base)
        if path.is_absolute():
            raise self._outside(text)
        try:
            os.fsencode(str(path))
        except UnicodeError:
            raise UsageProblem(f"'{visible(text, 200)}' is not a path") from None
        return str(path)

    def _outside(self, text: str) -> UsageProblem:
        return UsageProblem(
            f"'{visible(text, 200)}' is outside the root",
            "Only files below the folder that the server was started for are read",
        )

    def open(self, name: str) -> int:
        """A descriptor of the file of that name below the root; of a folder too.

        Raises:
            UsageProblem: the name or a link leads out of the root.
            InputProblem: there is no such file, or it cannot be opened.
        """
        waiting = [*reversed(PurePosixPath(name).parts)]
        steps = [os.dup(self._descriptor)]
        links = 0
        try:
            while waiting:
                part = waiting.pop()
                if part == "..":
                    if len(steps) == 1:
                        raise self._outside(name)
                    os.close(steps.pop())
                    continue
                target = self._link(part, steps[-1])
                if target is None:
                    steps.append(os.open(part, _OPEN, dir_fd=steps[-1]))
                    continue
                links += 1
                if links > _LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                path = PurePosixPath(target)
                if path.is_absolute():
                    if not path.is_relative_to(self.path):
                        raise self._outside(name)
                    path = path.relative_to(self.path)
                    while len(steps) > 1:
                        os.close(steps.pop())
                waiting += reversed(path.parts)
            return os.dup(steps[-1])
        except OSError as error:
            raise InputProblem(
                f"'{visible(name, 200)}' cannot be opened: {error.strerror}",
                "The resource ncu-toolkit://reports lists the reports",
            ) from None
        finally:
            for step in steps:
                os.close(step)

    def _link(self, part: str, folder: int) -> str | None:
        """Where a link leads; None where it is none. What becomes a link later is refused by open."""
        try:
            return os.readlink(part, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def read(self, name: str, most: int) -> bytes:
        """The content of a regular file below the root. Raises as `open`, and InputProblem for
        more than `most` bytes."""
        with self._regular(name, most) as (descriptor, _):
            return b"".join(_chunks(descriptor, name, most))

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[int]:
        """`open`, and closed at the end."""
        descriptor = self.open(name)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _regular(self, name: str, most: float = math.inf) -> Iterator[tuple[int, os.stat_result]]:
        """A regular file of at most this many bytes."""
        with self.held(name) as descriptor:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                what = "a folder" if stat.S_ISDIR(found.st_mode) else "not a regular file"
                raise InputProblem(f"'{visible(name, 200)}' is {what}", "Name a file")
            if found.st_size > most:
                raise _too_large(name, most)
            yield descriptor, found

    def digest(self, name: str) -> str:
        """SHA-256 of a file's content, and of what was tried of it; empty where its content has to be
        read to know it, as that of a folder."""
        with self.held(name) as descriptor:
            known = self._digests.get(_stamp(os.fstat(descriptor)), "")
        return _with(known, self._beside(name, SUFFIX)) if known else ""

    def _beside(self, name: str, suffix: str) -> bytes:
        """The file beside another, by what its name has more; nothing where it cannot be read."""
        with contextlib.suppress(InputProblem, UsageProblem):
            return self.read(name + suffix, files.json_limit())
        return b""

    @contextlib.contextmanager
    def copied(self, name: str) -> Iterator[Content]:
        """A copy of a report, of the checksums and of what was tried beside it, as they were at one
        moment; of a folder, of the traces in it and below.

        Raises:
            UsageProblem, InputProblem: as `open`; it is neither a regular file nor a folder of
                traces, is too large, or changes again and again while it is read.
        """
        with tempfile.TemporaryDirectory(prefix="ncu-toolkit-") as scratch:
            label = posixpath.normpath(name)
            copy = Path(scratch) / (label if not label.startswith("..") else Path(label).name)
            if traces := self._traces(name):
                state, size = hashlib.sha256(), 0
                for each in traces:
                    state.update(self._whole(f"{name}/{each}", copy / each).encode())
                    size += (copy / each).stat().st_size
                    if size > MOST_BYTES:
                        raise _too_large(name, MOST_BYTES)
                yield Content(str(copy.relative_to(scratch)), state.hexdigest(), copy)
                return
            digest = self._whole(name, copy)
            for side in (copy.name + integrity.SUFFIX, "run.json"):
                with contextlib.suppress(InputProblem, UsageProblem):
                    beside = str(PurePosixPath(name).with_name(side))
                    copy.with_name(side).write_bytes(self.read(beside, files.json_limit()))
            if tried := self._beside(name, SUFFIX):
                copy.with_name(copy.name + SUFFIX).write_bytes(tried)
            yield Content(str(copy.relative_to(scratch)), _with(digest, tried), copy)

    def _whole(self, name: str, copy: Path) -> str:
        """Copy a file as it is at one moment; returns its SHA-256."""
        copy.parent.mkdir(parents=True, exist_ok=True)
        digest = next(filter(None, (self._copy(name, copy) for _ in range(_TRIES))), "")
        if not digest:
            raise InputProblem(f"'{visible(name, 200)}' changes while it is read", "Try again")
        return digest

    def _traces(self, name: str) -> list[str]:
        """Names of the traces in a folder and below; none where it is a file, or holds a single one."""
        with self.held(name) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return []
            found = [path for path, _, _ in _below(descriptor, files.TRACE_SUFFIXES)]
        if len(found) > _RANKS:
            what = f"'{visible(name, 200)}' holds more than {_RANKS} traces"
            raise InputProblem(what, "Name the folder of one job")
        return sorted(found) if len(found) > 1 else []

    def _copy(self, name: str, copy: Path) -> str:
        """Copy a file; returns its SHA-256, or nothing where it changed meanwhile."""
        most = min(MOST_BYTES, files.limit())
        with self._regular(name, most) as (descriptor, before):
            state = hashlib.sha256()
            with copy.open("wb") as sink:
                for chunk in _chunks(descriptor, name, most):
                    state.update(chunk)
                    sink.write(chunk)
            stamp = _stamp(before)
            # not the time of the inode's change: to be replaced by another file changes that
            if _stamp(os.fstat(descriptor))[:-1] != stamp[:-1]:
                return ""
            if time.time_ns() - before.st_ctime_ns > _FRESH_NS:
                with self._lock:
                    self._digests[stamp] = state.hexdigest()
            return state.hexdigest()

    def reports(self) -> list[tuple[str, int]]:
        """Reports below the root and their sizes, newest first; no links, no hidden folders."""
        found: list[tuple[float, str, int]] = []
        for path, name, descriptor in _below(self._descriptor, files.REPORT_SUFFIXES):
            with contextlib.suppress(OSError):
                at = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if stat.S_ISREG(at.st_mode):
                    found.append((-at.st_mtime, path, at.st_size))
        return [(name, size) for _, name, size in sorted(found)[:LISTED]]


def _below(folder: int, suffixes: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    """Files whose names end so, in a folder and below, but for hidden folders: path, name, and a
    descriptor of the folder that it is in. Stops after `_LOOKED_AT` files."""
    looked = 0
    for place, folders, names, descriptor in os.fwalk(dir_fd=folder, follow_symlinks=False):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        looked += len(names) + len(folders)
        for name in names:
            if name.lower().endswith(suffixes):
                yield str(PurePosixPath(place) / name), name, descriptor
        if looked > _LOOKED_AT:
            break


def _with(digest: str, tried: bytes) -> str:
    """The digest of a file together with what was tried of its program."""
    return hashlib.sha256(digest.encode() + tried).hexdigest() if tried else digest


def _stamp(found: os.stat_result) -> Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _chunks(descriptor: int, name: str, most: int) -> Iterator[bytes]:
    read = 0
    while chunk := os.read(descriptor, _CHUNK):
        read += len(chunk)
        if read > most:
            raise _too_large(name, most)
        yield chunk


def _too_large(name: str, most: float) -> InputProblem:
    return InputProblem(
        f"'{visible(name, 200)}' has more than {most} bytes", "Profile fewer launches"
    )
