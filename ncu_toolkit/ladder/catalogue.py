"""The ladders: which families and rungs lie under kernels/, found by looking, checked, and cached.

A file is read when its rung is asked for, so one half-written kernel stops nobody from using the
others."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from ncu_toolkit.core.errors import EnvironmentProblem, InputProblem, UsageProblem, did_you_mean
from ncu_toolkit.ladder.header import FILE_NAME, misnamed, parse_rung
from ncu_toolkit.ladder.rung import Rung

#: Set to a folder of ladders to use in place of the shipped ones.
ROOT_VARIABLE = "NCU_TOOLKIT_KERNELS"
_COMMON = "common"


@dataclass(frozen=True, eq=False)
class Family:
    """One ladder: a folder under kernels/. `rungs` reads the files, in order, when first asked."""

    name: str
    files: tuple[Path, ...]

    @cached_property
    def rungs(self) -> tuple[Rung, ...]:
        """All rungs, in the order of their file names. Raises InputProblem at the first broken
        file."""
        return tuple(load_rung(path) for path in self.files)

    @property
    def rung_names(self) -> tuple[str, ...]:
        """Names of the rungs, from the file names alone."""
        return tuple(_name_of(path) for path in self.files)

    def rung(self, name: str) -> Rung:
        """The rung `name`; raises UsageProblem where the family has none."""
        for path in self.files:
            if _name_of(path) == name:
                return load_rung(path)
        raise UsageProblem(f"{self.name} has no rung '{name}'", _suggest(name, self.rung_names))


def kernels_root() -> Path:
    """The folder of the ladders: $NCU_TOOLKIT_KERNELS, else `kernels` inside the package (a wheel),
    else beside it (a checkout). Raises EnvironmentProblem: no such folder."""
    chosen = os.environ.get(ROOT_VARIABLE)
    package = Path(__file__).resolve().parents[1]
    candidates = [Path(chosen)] if chosen else [package / "kernels", package.parent / "kernels"]
    for candidate in candidates:
        if (candidate / _COMMON).is_dir() or (chosen and candidate.is_dir()):
            return candidate.resolve()
    unset = f"Unset {ROOT_VARIABLE}, or point it to a folder of ladders"
    remedy = unset if chosen else "Reinstall ncu-toolkit"
    raise EnvironmentProblem(f"no folder of kernels at {candidates[-1]}", remedy)


def rung_files(root: Path | None = None) -> tuple[Path, ...]:
    """Every kernel file, `<family>/NN_name.cu`, sorted by family and order."""
    base = kernels_root() if root is None else root
    # Not Path.glob: a lookup of one rung comes here, and takes six times as long with it.
    found: list[tuple[str, str]] = []
    for folder in os.scandir(base):
        if folder.name != _COMMON and folder.is_dir():
            found += ((folder.name, name) for name in os.listdir(folder) if name.endswith(".cu"))
    return tuple(base / family / name for family, name in sorted(found))


def load_families(root: Path | None = None) -> dict[str, Family]:
    """Families by name. File names are checked here, contents when a family's rungs are read.
    Raises InputProblem: a file name that is not NN_name.cu, or one rung name in two places."""
    files = rung_files(root)
    _check_names(files)
    families: dict[str, list[Path]] = {}
    for path in files:
        families.setdefault(path.parent.name, []).append(path)
    return {name: Family(name, tuple(paths)) for name, paths in families.items()}


def find_family(name: str, root: Path | None = None) -> Family:
    """The family `name`; raises UsageProblem, with the nearest name, where there is none."""
    families = load_families(root)
    if name not in families:
        raise UsageProblem(f"no family '{name}'", _suggest(name, families))
    return families[name]


def find_rung(name: str, root: Path | None = None) -> Rung:
    """The rung `name` (or `family/name`). Raises UsageProblem: no such rung; the nearest name is
    suggested. Raises InputProblem: its file is broken."""
    family, _, bare = name.rpartition("/")
    if family:
        return find_family(family, root).rung(bare)
    files = rung_files(root)
    found = [path for path in files if _name_of(path) == bare]
    if not found:
        raise UsageProblem(f"no kernel '{name}'", _suggest(name, [*map(_name_of, files)]))
    _check_names(found)
    return load_rung(found[0])


def comparison_of(rung: Rung, root: Path | None = None) -> Rung | None:
    """The rung that `rung` is compared with, or None for the first of a ladder. Raises
    InputProblem: `compared_with` names no rung."""
    if not rung.compared_with:
        return None
    name = rung.compared_with
    name = name if "/" in name else f"{rung.family}/{name}"
    try:
        return find_rung(name, rung.path.parents[1] if root is None else root)
    except UsageProblem as error:
        raise InputProblem(f"{rung.label}: compared_with: {error.message}", error.remedy) from error


def load_rung(path: Path) -> Rung:
    """The rung in one file, cached until the file changes. Raises InputProblem: unreadable, or a
    broken header."""
    try:
        state = path.stat()
        return _load(path, state.st_mtime_ns, state.st_size)
    except OSError as error:
        raise InputProblem(f"{_label(path)}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputProblem(f"{_label(path)}: is not UTF-8 text") from error


@lru_cache(maxsize=1024)
def _load(path: Path, _mtime: int, _size: int) -> Rung:
    return parse_rung(path, path.read_text(encoding="utf-8"), path.parent.name)


def _check_names(files: Collection[Path]) -> None:
    places: dict[str, str] = {}
    for path in files:
        label = _label(path)
        if FILE_NAME.fullmatch(path.name) is None:
            raise misnamed(label)
        name = _name_of(path)
        if name in places:
            what = f"{label}: there is a rung '{name}' already, in {places[name]}"
            raise InputProblem(what, "Rung names are unique across all families")
        places[name] = label


#: Most names that an error lists.
_LISTED: Final = 25


def _label(path: Path) -> str:
    return f"kernels/{path.parent.name}/{path.name}"


def _name_of(path: Path) -> str:
    return path.stem.partition("_")[2]


def _suggest(name: str, known: Collection[str]) -> str:
    if near := did_you_mean(name, known, cutoff=0.5):
        return near
    if len(known) > _LISTED:
        return "`ncu-toolkit list` shows them"
    return f"Known are {', '.join(sorted(known)) or 'none'}"
