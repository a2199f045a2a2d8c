"""The ladders: which families and rungs lie under kernels/, found by looking, checked, and cached.

A file is read when its rung is asked for, so one half-written kernel stops nobody from using the
others. TOML between `/*+++` and `+++*/`, in a head block that says what the rung is and a tail block
with everything else, becomes a `Rung`, or an error that names the file and the key. The contract is
in kernels/README.md; an unknown key is an error, since it is a misspelt one most of the time."""

import hashlib
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    InputProblem,
    UsageProblem,
    did_you_mean,
)
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.model.codec import Misfit, convert
from ncu_toolkit.kernel.ladder.expressions import FUNCTIONS, check_syntax
from ncu_toolkit.kernel.ladder.rung import (
    DTYPES,
    HEAD,
    KINDS,
    SWIZZLES,
    BottleneckId,
    ComputeCapability,
    Expression,
    Filled,
    Header,
    Identifier,
    NamedTable,
    OpcodePattern,
    ProfileCheck,
    Rung,
    TomlTable,
)

FILE_NAME = re.compile(r"(?P<order>\d{2,3})_(?P<name>[a-z][a-z0-9_]*)\.cu")
_BLOCK = re.compile(r"\s*/\*\+\+\+[ \t]*\r?\n(?P<toml>.*?)\+\+\+\*/[ \t]*(\r?\n|\Z)", re.DOTALL)
#: Comments go, strings stay, and everything else falls into words and single characters.
_TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|\\\n|"(?:\\.|[^"\\\n])*"|\w+|[^\s\w]', re.DOTALL)

#: Functions of profile checks beside expressions.FUNCTIONS; each also with `prev_` in front, for
#: the rung it is compared with.
PROFILE_FUNCTIONS = ("executed", "stall", "stall_share", "metric")
CHECK_FUNCTIONS = frozenset(FUNCTIONS) | {
    prefix + name for prefix in ("", "prev_") for name in PROFILE_FUNCTIONS
}


#: What the text of a key must match, and what to say where it does not.
_PATTERNS: Mapping[type[str], tuple[str, str]] = {
    Filled: (r"(?s).*\S.*", "Write what it is"),
    Identifier: (r"[A-Za-z_]\w*", 'It is the name of an extern "C" __global__ function'),
    OpcodePattern: (
        r"[A-Z0-9]+(\.[A-Za-z0-9_]+)*(\|[A-Z0-9]+(\.[A-Za-z0-9_]+)*)*",
        "Write opcodes such as LDS.128, or LDG.E.128|LDG.E.64",
    ),
    BottleneckId: (
        r"([a-z][a-z0-9]*(-[a-z0-9]+)*)?",
        "It is a bottleneck id such as shared-bank-conflict",
    ),
    ComputeCapability: (r"\d+\.\d", 'Write a compute capability such as "8.0"'),
}
#: Values of keys that have a choice.
_CHOICES: Mapping[str, tuple[Any, ...]] = {"kind": KINDS, "dtype": DTYPES, "swizzle": SWIZZLES}


_KNOWN = {
    name
    for table in (*TomlTable.__subclasses__(), *NamedTable.__subclasses__())
    for name in table.__struct_encode_fields__
}


def split(text: str) -> tuple[str, str, str]:
    """A kernel file as head block, code and tail block, which together are the text; a block that it
    lacks is "". Sources in older recordings have everything in the head block."""
    head = _BLOCK.match(text)
    start = head.end() if head else 0
    end = text.rfind("\n/*+++", max(start - 1, 0)) + 1
    tail = _BLOCK.match(text, end) if head and end else None
    if tail is None or text[tail.end() :].strip():
        end = len(text)
    return text[:start], text[start:end], text[end:]


@lru_cache(maxsize=1024)
def code_digest(text: str) -> str:
    """A digest of a file's device code: of its tokens, without blocks, comments and white space."""
    tokens = (t for t in _TOKENS.findall(split(text)[1]) if not t.startswith(("//", "/*", "\\\n")))
    return hashlib.sha256(" ".join(tokens).encode()).hexdigest()[:16]


def parse_rung(path: Path, text: str, family: str) -> Rung:
    """The rung in a kernel file.

    Args:
        path: the file; order and name come from its name, `NN_name.cu`.
        text: its content.
        family: the folder it lies in.

    Raises:
        InputProblem: no head block, bad TOML, an unknown, missing or ill-typed key, a key in the
            wrong block, a launch whose kernel is not in the code.
    """
    label = f"kernels/{family}/{path.name}"
    named = FILE_NAME.fullmatch(path.name)
    if named is None:
        raise misnamed(label)
    above, code, below = split(text)
    if not above:
        remedy = "The file starts with a line /*+++, TOML, and a line +++*/"
        raise InputProblem(f"{label}: no head block, or one that does not end", remedy)
    if "/*+++" in code:
        what = f"{label}: a second block that is not the end of the file, or does not end"
        remedy = "The tail block is the last of the file: a line /*+++, TOML, and a line +++*/"
        raise InputProblem(what, remedy)
    head = _block(label, "head", above, 0)
    tail = _block(label, "tail", below, (above + code).count("\n"))
    header = _header(label, head | tail)
    _check(label, named["name"], family, header, code)
    return Rung(
        name=named["name"], family=family, order=int(named["order"]), path=path, text=text,
        code=code.strip("\n") + "\n" if code.strip() else "", **asdict(header),
    )  # fmt: skip


def misnamed(label: str) -> InputProblem:
    """The error for a file whose name is not that of a rung."""
    what = f"{label}: the file name must be NN_name.cu, such as 03_vectorized.cu"
    return InputProblem(what, "Rename it")


def _block(label: str, which: str, text: str, line: int) -> dict[str, Any]:
    """The keys of one block, below `line` lines of the file."""
    found = _BLOCK.match(text)
    lines = line + text[: found.start("toml")].count("\n") if found else 0
    try:
        # empty lines above it, so that errors count as the file does
        table = tomllib.loads("\n" * lines + found["toml"] if found else "")
    except tomllib.TOMLDecodeError as error:
        raise InputProblem(f"{label}: the {which} block is not valid TOML: {error}") from error
    for key in table:
        if key in Header.__struct_encode_fields__ and which != _place(key):
            remedy = f"Move it to the {_place(key)} block"
            raise InputProblem(f"{label}: {key} is in the {which} block", remedy)
    return table


def _place(key: str) -> str:
    """The block that a key belongs in."""
    return "head" if key in HEAD else "tail"


def _header(label: str, table: dict[str, Any]) -> Header:
    """The values of both blocks."""
    try:
        return convert(Header, table, _read)
    except Misfit as error:
        key, what = error.path, error.what
    name = re.sub(r"\[\d+\]$", "", key.rpartition(".")[2])
    remedy = ""
    if what == "is missing":
        remedy = f"It belongs in the {_place(key)} block; see kernels/README.md"
    elif what == "is not a known key":
        remedy = did_you_mean(name, _KNOWN) or "kernels/README.md lists the keys"
    elif name in _CHOICES:
        what = what.partition(",")[0]
        remedy = f"It is one of {', '.join(map(str, _CHOICES[name]))}"
    raise InputProblem(f"{label}: {key} {what}", remedy)


def _read(kind: type[str], value: Any) -> str:
    """A value of one of the text types of a block. Raises ValueError for what it does not take."""
    if issubclass(kind, Expression):
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(f"is {value!r}, expected an expression")
        try:
            check_syntax(str(value), CHECK_FUNCTIONS if kind is ProfileCheck else FUNCTIONS)
        except InputProblem as error:
            raise ValueError(f"is {str(error).removeprefix('in ')}") from error
    elif not isinstance(value, str):
        raise ValueError(f"is {value!r}, expected a string")
    elif not re.fullmatch(_PATTERNS[kind][0], value):
        raise ValueError(f"is {value!r}. {_PATTERNS[kind][1]}")
    return kind(value)


def _check(label: str, name: str, family: str, header: Header, code: str) -> None:
    """Raise InputProblem where keys do not go together, or name what is not there."""

    def wrong(what: str, remedy: str = "") -> InputProblem:
        return InputProblem(f"{label}: {what}", remedy)

    compared = header.comparison
    if compared is None and header.kind not in ("baseline", "roof", "probe"):
        raise wrong("compared_with is missing", 'Name a rung of the family, or ""')
    if compared in (name, f"{family}/{name}"):
        raise wrong("compared_with names the rung itself")
    if header.removes and not compared:
        raise wrong("removes is set, but compared_with is not", "Name the rung that lacks the step")
    if bool(header.library) == bool(header.launches):
        remedy = 'Give [[launch]] tables, or library = "name" for a baseline'
        raise wrong("launch and library: a rung has exactly one of the two", remedy)
    for key in header.parameters:
        if not re.fullmatch(_PATTERNS[Identifier][0], key):
            raise wrong(f"parameters.{key} is not a C identifier")
    model = (*header.model.over, *header.model.set) if header.model else ()
    for table, keys in (("search", header.search), ("model", model)):
        for key in keys:
            if key not in header.parameters:
                known = f"Parameters are {', '.join(header.parameters) or 'none'}"
                raise wrong(f"{table}.{key} is not a parameter of this rung", known)
    for launch in header.launches:
        if not re.search(rf"\b{re.escape(launch.kernel)}\b", code):
            what = f"launch.kernel: '{launch.kernel}' is not defined in the code"
            raise wrong(what, 'Name an extern "C" __global__ function')
    passed = {arg for launch in header.launches for arg in launch.args}
    for kind, names in (("scratch", header.scratch_tables), ("tensor_maps", header.map_tables)):
        for key in names:
            if key not in passed:
                remedy = "Add it to args, or remove the table"
                raise wrong(f"{kind}.{key}: no launch takes it", remedy)


#: Set to a folder of ladders to use instead of the shipped ones.
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
    candidates = (
        [Path(chosen)] if chosen else [PACKAGE / "kernels_data", PACKAGE.parent / "kernels"]
    )
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
    families = grouped(files, lambda path: path.parent.name)
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
