"""Sources of public repositories: what public.toml pins, where they lie, and how they are fetched.

They are no part of this project: `fetch` writes them into the cache folder, and the drivers in
pairs/public/ include them from there."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from ncu_toolkit.base.core.cache import cache_folder, replace_file
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem

PINS: Final = Path(__file__).resolve().parent / "public.toml"
COMMAND: Final = "python -m benchmarks.field fetch"
#: Seconds that one call of git may take.
_TIMEOUT: Final = 1800.0


@dataclass(frozen=True)
class Repository:
    """A repository at one commit. `files` gives the SHA-256 of each file that a pair includes, and
    `flags` are the ones its own build gives to nvcc."""

    name: str
    url: str
    commit: str
    licence: str
    flags: tuple[str, ...]
    files: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """Where its files lie once they are fetched: `field/NAME-COMMIT` in the cache folder."""
        return cache_folder() / "field" / f"{self.name}-{self.commit[:12]}"

    def missing(self) -> tuple[str, ...]:
        """Files that are not there, or hold something else than what is pinned."""
        return tuple(p for p, pinned in self.files.items() if _sum(self.folder / p) != pinned)


@lru_cache(maxsize=1)
def repositories() -> dict[str, Repository]:
    """Every repository of public.toml by name."""
    table = tomllib.loads(PINS.read_text(encoding="utf-8"))
    return {
        name: Repository(
            name, row["url"], row["commit"], row["licence"], tuple(row["flags"]), row["files"]
        )
        for name, row in table.items()
    }


def fetched(name: str) -> Path:
    """The folder with the files of a repository.

    Raises:
        EnvironmentProblem: they are not fetched, or not as they are pinned.
    """
    repository = repositories()[name]
    if absent := repository.missing():
        raise EnvironmentProblem(
            f"{len(absent)} of {len(repository.files)} source files of {name} are not fetched",
            f"Run `{COMMAND}`",
        )
    return repository.folder


def fetch(repository: Repository, clone: Path | None = None) -> int:
    """Bring the pinned files into the cache folder, from `clone` (bare or not) or the network.

    Returns:
        How many were not there yet.

    Raises:
        EnvironmentProblem: git is not installed, or cannot reach the repository.
        InputProblem: the clone lacks the commit, or a file does not have the pinned sum.
    """
    absent = repository.missing()
    if not absent:
        return 0
    with tempfile.TemporaryDirectory(prefix="field-fetch-") as scratch:
        source = clone
        if source is None:
            source = Path(scratch)
            _clone(repository, source)
        for path in absent:
            try:
                content = _git(source, "cat-file", "blob", f"{repository.commit}:{path}")
            except _GitFailed as error:
                raise InputProblem(
                    f"{clone or repository.url} has no {path} at commit {repository.commit[:12]}: {error}",
                    "Name a clone that holds this commit",
                ) from None
            if hashlib.sha256(content).hexdigest() != repository.files[path]:
                raise InputProblem(
                    f"{path} of {repository.name} does not have the SHA-256 that public.toml pins",
                    "Nothing was written; compare the commit and the sum",
                )
            replace_file(repository.folder / path, content)
    return len(absent)


def clones(given: list[str]) -> dict[str, Path]:
    """Folders by repository, of words such as `llm.c=FOLDER`.

    Raises:
        UsageProblem: a word is not of this form, or names no repository of public.toml.
    """
    found = {}
    for word in given:
        name, equals, folder = word.partition("=")
        if name not in repositories() or not equals or not folder:
            raise UsageProblem(
                f"--from '{word}' is not REPOSITORY=FOLDER",
                f"The repositories are {', '.join(repositories())}",
            )
        found[name] = Path(folder)
    return found


def holds_source(report: bytes, repository: Repository) -> str:
    """What gives away that a report holds source text or file names of a repository; empty where
    it holds none."""
    names = {Path(path).name.encode() for path in repository.files}
    found = next((name for name in (b"__global__", *sorted(names)) if name in report), b"")
    return found.decode()


class _GitFailed(Exception):
    """git ended with an error; the text is its last line."""


def _clone(repository: Repository, folder: Path) -> None:
    """A bare clone of one commit. Blobs come when they are read, where the server can do that."""
    try:
        _git(folder, "init", "--quiet", "--bare")
        _git(folder, "remote", "add", "origin", repository.url)
        _git(folder, "config", "remote.origin.promisor", "true")
        _git(folder, "config", "remote.origin.partialclonefilter", "blob:none")
        _git(folder, "fetch", "--quiet", "--depth=1", "origin", repository.commit)
    except _GitFailed as error:
        raise EnvironmentProblem(
            f"git could not fetch {repository.url}: {error}",
            f"With a clone on this machine: `{COMMAND} --from {repository.name}=FOLDER`",
        ) from None


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},  # a private URL fails, it does not ask
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"git does not run: {error}", "Install git") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise _GitFailed(lines[-1])
    return done.stdout


def _sum(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
