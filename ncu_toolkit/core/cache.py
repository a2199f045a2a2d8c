"""The cache folder (cubins, disassembly, tuned parameters, searches), remembered answers, and work
without the cycle collector.

The Python inside Nsight Compute lacks many compiled modules (tests/report/test_ncu_rule.py)."""

import contextlib
import gc
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from ncu_toolkit.core import files
from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, refused

CACHE_VARIABLE = "NCU_TOOLKIT_CACHE"
#: Most bytes of one cached file, unpacked too; all texts of a cache take a quarter of it.
LARGEST = 256 << 20
_DIGEST = 32
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


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step, and make its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(path, content)


def seal(path: Path, content: bytes) -> None:
    """The same for what can be made again: with its SHA-256. Raises OSError."""
    replace_file(path, hashlib.sha256(content).digest() + content)


def unsealed(path: Path) -> bytes | None:
    """What `seal` wrote; None where that is missing, cut off, changed or larger than a cache
    holds."""
    try:
        data = files.read_bytes(path, LARGEST)
    except (OSError, InputProblem):
        return None
    digest, content = data[:_DIGEST], data[_DIGEST:]
    return content if hashlib.sha256(content).digest() == digest else None


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
