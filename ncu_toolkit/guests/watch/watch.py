"""The loop of `watch`: build, profile, and again after each save, where what runs has changed.

What runs is known by a hash: of the program, of files among its arguments, of files that the user
named, and, where an interpreter runs it or it compiles kernels as it goes, of the sources. A round
that would profile the same again is left out."""

import ast
import hashlib
import itertools
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from ncu_toolkit.base.core.children import run
from ncu_toolkit.base.core.errors import ToolkitError, UsageProblem, refused
from ncu_toolkit.kernel.ladder.catalogue import code_digest

#: Files whose change starts a round.
SOURCES: Final = frozenset(
    {".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl", ".ptx", ".py", ".pyx"}
)  # fmt: skip
#: Folders that hold no sources of the user's.
_SKIPPED: Final = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", "site-packages", ".ncu-toolkit"}
)
#: Sources whose text is part of the hash, at most.
_MOST_SOURCES: Final = 20_000
#: Longest file whose bytes are read: a program may be given a data set of any size.
_LONGEST: Final = 256 << 20
_ELF: Final = b"\x7fELF"
#: Last lines of a build or program that failed.
_LAST_LINES: Final = 12


@dataclass(frozen=True)
class Watched:
    """What is watched. `command` is empty for a rung; `inputs` are files named by the user."""

    command: tuple[str, ...] = ()
    inputs: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    build: tuple[str, ...] = ()

    def files(self) -> tuple[Path, ...]:
        """The program, the files among its arguments, and those named."""
        found = [Path(word) for word in self.command[1:] if Path(word).is_file()]
        program = shutil.which(self.command[0]) if self.command else None
        return tuple(dict.fromkeys((*([Path(program)] if program else ()), *found, *self.inputs)))

    @property
    def interpreted(self) -> bool:
        """Whether sources can change what runs without a build: an interpreter, or a script."""
        program = shutil.which(self.command[0]) if self.command else None
        if program is None or Path(program).name.startswith("python"):
            return True
        with open(program, "rb") as stream:
            return stream.read(4) != _ELF

    @property
    def places(self) -> tuple[Path, ...]:
        """The folders to watch: those named, and those of files that are named by a path. The folder
        of an interpreter is not one."""
        program = Path(self.command[0]) if self.command else Path()
        own = [program] if len(program.parts) > 1 and not self.interpreted else []
        files = [Path(word) for word in self.command[1:] if Path(word).is_file()]
        parents = [each.parent for each in (*own, *files, *self.inputs)]
        found = {each.resolve() for each in (*self.folders, *parents) if each.is_dir()}
        return tuple(each for each in sorted(found) if found.isdisjoint(each.parents))

    def starts_a_round(self, path: str) -> bool:
        """Whether a change of this file may change what runs."""
        changed = Path(path)
        if _is_source(changed.name) and not _SKIPPED.intersection(changed.parts):
            return True
        return _placed(changed) in set(map(_placed, self.files()))


def _placed(path: Path) -> Path:
    """A path without symbolic links in its folder: the file itself may be one that is replaced."""
    return path.parent.resolve() / path.name


def _is_source(name: str) -> bool:
    """Whether a file of this name is a source: hidden ones are locks and drafts of editors."""
    return name[:1] != "." and Path(name).suffix in SOURCES


def sources(folders: Iterable[Path]) -> list[Path]:
    """Source files under folders; hidden ones, links that lead nowhere and folders of packages are
    left out."""
    found: list[Path] = []
    for folder, inner, names in itertools.chain.from_iterable(map(os.walk, folders)):
        inner[:] = sorted(each for each in inner if each not in _SKIPPED and each[:1] != ".")
        there = (Path(folder, name) for name in sorted(names) if _is_source(name))
        found += [path for path in there if path.is_file()]
        if len(found) > _MOST_SOURCES:
            break
    return found[:_MOST_SOURCES]


def fingerprint(watched: Watched) -> str:
    """A hash of what runs. Comments in Python and CUDA do not count. Raises UsageProblem: a file is
    gone."""
    files = [*watched.files(), *(sources(watched.folders) if watched.interpreted else ())]
    if watched.command and shutil.which(watched.command[0]) is None:
        raise UsageProblem(f"'{watched.command[0]}' is gone", "It is profiled once it is back")
    return _digest(files)


def _digest(files: Iterable[Path]) -> str:
    state = hashlib.sha256()
    for path in dict.fromkeys(files):
        with refused(f"'{path}' cannot be read", "It is profiled once it can be", UsageProblem):
            data = _content(path)
        if path.suffix == ".py":
            try:
                data = ast.dump(ast.parse(data)).encode()
            except (SyntaxError, ValueError, RecursionError):
                pass  # half-written, say: its bytes count
        elif path.suffix in SOURCES:
            data = code_digest(data.decode("utf-8", "replace")).encode()
        state.update(f"{path} {len(data)} ".encode() + data)
    return state.hexdigest()


def _content(path: Path) -> bytes:
    """A file's bytes; of one that is too long to read on each save its length and time of change."""
    known = path.stat()
    if known.st_size > _LONGEST:
        return f"{known.st_size} {known.st_mtime_ns}".encode()
    return path.read_bytes()


class View(Protocol):
    """Where a round is shown."""

    def first(self, run: Path) -> None:
        """The first run of the kernel."""

    def again(self, old: Path, new: Path) -> None:
        """A later run, beside the one before."""

    def line(self, text: str) -> None:
        """What happened, in one line."""

    def output(self, lines: Sequence[str]) -> None:
        """The last lines of a build or program that failed."""


def build(words: Sequence[str]) -> tuple[bool, list[str]]:
    """Run a build; whether it succeeded, and the last lines of its output. Raises
    EnvironmentProblem: it cannot be started."""
    remedy = "No shell runs it: put pipes and variables into a script"
    with refused(f"--build: '{words[0]}' cannot be started", remedy):
        done = run(words, stderr=subprocess.STDOUT)
    return done.returncode == 0, last_lines(done.stdout)


def last_lines(text: str) -> list[str]:
    """The last lines of a log that are not empty."""
    return [line for line in text.splitlines() if line.strip()][-_LAST_LINES:]


def _built(words: Sequence[str], view: View) -> bool:
    """Whether the build succeeds; what it printed is shown where it does not."""
    succeeded, lines = build(words)
    if not succeeded:
        view.output(lines)
        view.line(f"the build failed: {shlex.join(words)}")
    return succeeded


def loop(
    watched: Watched,
    changes: Iterable[object],
    profile: Callable[[], Path],
    view: View,
    state: Callable[[Watched], str] = fingerprint,
    ended: Callable[[], int] = lambda: 0,
) -> None:
    """A round at once, and one after each item of `changes`, until it ends.

    Errors of a round are shown, and the loop waits for the next change. KeyboardInterrupt ends it.

    Args:
        ended: whether the user asked to end it. What profiles may have taken the interrupt for a
            failure of this round.
        profile: profiles the kernel under study; returns the run's folder.
        state: what a round runs; the same as before means that there is nothing to profile.
    """
    known = built = ""
    before: Path | None = None
    rounds = iter(changes)

    def one() -> None:
        nonlocal known, built, before
        if watched.build:
            # Taken before the build, so that an edit during it is a change.
            text = _digest([*sources(watched.folders), *watched.inputs])
            if text == built and state(watched) == known:
                return  # The build wrote its product: nvcc never writes the same bytes twice.
            if text != built:
                built = text if _built(watched.build, view) else ""
                if not built:
                    return
        now = state(watched)
        if now == known:
            view.line("unchanged: what runs is the same as before")
            return
        run = profile()
        if state(watched) != now:
            # of which version the figures are, nobody knows; the change is its own round
            view.line("a file changed while it was profiled; this round does not count")
            return
        if before is None:
            view.first(run)
        else:
            view.again(before, run)
        known, before = now, run

    def guarded() -> None:
        try:
            one()
        except ToolkitError as error:
            if not ended():
                if error.log is not None and error.log.is_file():
                    view.output(last_lines(error.log.read_text(encoding="utf-8", errors="replace")))
                view.line(str(error))

    guarded()
    while not ended() and next(rounds, None) is not None:
        guarded()
