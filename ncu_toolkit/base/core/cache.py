"""The cache folder (cubins, disassembly, tuned parameters, searches), remembered answers, and work
without the cycle collector.

The Python inside Nsight Compute lacks many compiled modules (tests/report/test_ncu_rule.py)."""

import contextlib
import errno
import gc
import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, refused

CACHE_VARIABLE = "NCU_TOOLKIT_CACHE"
#: Most bytes of one cached file, unpacked too; all texts of a cache take a quarter of it.
LARGEST = 256 << 20
_DIGEST = ".sha256"
_DIGEST_SIZE = 32
P = ParamSpec("P")
R = TypeVar("R")


def cache_folder() -> Path:
    """$NCU_TOOLKIT_CACHE, else $XDG_CACHE_HOME/ncu-toolkit, else ~/.cache/ncu-toolkit.

    Raises EnvironmentProblem without any of them and without a home."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "ncu-toolkit"
    except RuntimeError:
        raise EnvironmentProblem(
            "there is no folder for the cache: HOME is not set and this user has no entry",
            f"Set HOME or {CACHE_VARIABLE}",
        ) from None


def private(top: Path, *below: str, make: bool = True) -> Path:
    """A folder, and those named below it, that no other user can write to, whatever the umask: made
    with mode 0700, or checked. Where the user named `top`, others may read in it.

    Raises OSError: one of them is a link or no folder, is another user's, or others can write to it
    and that cannot be changed."""
    folders = [top, *(top.joinpath(*below[: n + 1]) for n in range(len(below)))]
    missing = itertools.takewhile(lambda each: not each.exists(), [*folders[::-1], *top.parents])
    for folder in reversed([*missing] if make else []):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
    for folder in folders:
        found = folder.lstat()
        named = folder == top and str(top) == os.environ.get(CACHE_VARIABLE)
        if not stat.S_ISDIR(found.st_mode):
            _refuse(folder, "is a link or no folder")
        if found.st_uid != os.geteuid() and not (named and found.st_uid == 0):
            _refuse(folder, "belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077 and not named:
            os.chmod(folder, 0o700)
            found = folder.lstat()  # some file systems have no modes
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            _refuse(folder, "can be written to by others")
    return top.joinpath(*below)


def _refuse(folder: Path, what: str) -> NoReturn:
    raise PermissionError(errno.EPERM, f"'{folder}' {what}", str(folder))


def _in_cache(path: Path, make: bool) -> bool:
    """Whether a file is below the cache, whose folders are then made or checked. Raises as
    `private`."""
    top = cache_folder()
    if not path.is_relative_to(top):
        return False
    private(top, *path.parent.relative_to(top).parts, make=make)
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step, and make its folder; in the cache only this user reads them. Raises
    OSError."""
    mode = 0o600 if _in_cache(path, True) else None
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, content, mode=mode)


def own_bytes(path: Path) -> bytes:
    """The content of a file of the cache, in a folder and with a mode that let nobody else write to it. Raises OSError
    where that is not so, and where it is a link or no regular file."""
    if not _in_cache(path, False):
        _refuse(path, "is not in the cache")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            _refuse(path, "can be written to by others")
        return stream.read()


def edition(*paths: Path) -> str:
    """What changes with any of these files, for the names of what was made with them. Raises
    OSError."""
    return "-".join(f"{made.st_size:x}-{made.st_mtime_ns:x}" for made in map(os.stat, paths))


def keep_code(path: Path, content: bytes) -> None:
    """Keep what will be loaded or run, with its digest. Raises EnvironmentProblem."""
    keep(path, content)
    keep(path.with_name(path.name + _DIGEST), hashlib.sha256(content).hexdigest().encode())


def holds_code(path: Path) -> bool:
    """Whether a file is as `keep_code` wrote it: not cut, not altered, not another user's."""
    try:
        known = own_bytes(path.with_name(path.name + _DIGEST)).decode("ascii", "replace")
        return hashlib.sha256(own_bytes(path)).hexdigest() == known
    except OSError:
        return False


def seal(path: Path, content: bytes) -> None:
    """The same for what can be made again: with its SHA-256. Raises OSError."""
    replace_file(path, hashlib.sha256(content).digest() + content)


def unsealed(path: Path, *, own: bool = False) -> bytes | None:
    """What `seal` wrote; None where that is missing, cut off, changed or larger than a cache
    holds; with `own` also where another user could have written it (`own_bytes`)."""
    try:
        data = own_bytes(path) if own else files.read_bytes(path, LARGEST)
    except (OSError, InputProblem):
        return None
    digest, content = data[:_DIGEST_SIZE], data[_DIGEST_SIZE:]
    return content if hashlib.sha256(content).digest() == digest else None


def trim(folder: Path, most: int) -> None:
    """Delete the oldest files below a folder until at most this many bytes are left."""
    with contextlib.suppress(OSError):
        found = [(path.stat(), path) for path in folder.rglob("*") if path.is_file()]
        for state, path in sorted(found, key=lambda one: -one[0].st_mtime):
            most -= state.st_size
            if most < 0:
                path.unlink(missing_ok=True)


def keep(path: Path, content: bytes) -> None:
    """Write a file that must be kept. Raises EnvironmentProblem."""
    remedy = f"Free some space, or set {CACHE_VARIABLE}"
    with refused(f"'{path}' cannot be written", remedy):
        replace_file(path, content)


def remembered(count: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keep a function's answers to its last `count` calls. Strings are compared by value, all other
    arguments by identity, since hashing a profile takes long; they are kept alive."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kept: dict[tuple[object, ...], tuple[tuple[object, ...], R]] = {}

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            key = tuple([arg if isinstance(arg, str) else id(arg) for arg in args])
            found = kept.get(key)
            if found is None:
                found = kept[key] = args, function(*args, **kwargs)
                if len(kept) > count:
                    kept.pop(next(iter(kept)), None)
            return found[1]

        return call

    return decorate


@contextlib.contextmanager
def without_collector(last: bool = False) -> Iterator[None]:
    """Turn the cycle collector off for work that makes many objects and no cycles: it took a third
    of the time of reading a report. `last`: nothing follows, so nothing is collected either."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if last:
            gc.freeze()
        if was:
            gc.enable()
