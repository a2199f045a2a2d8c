"""Reading one kernel file: TOML between `/*+++` and `+++*/`, in a head block that says what the rung
is and a tail block with everything else, becomes a `Rung`, or an error that names the file and the
key.

The contract is in kernels/README.md. Nothing is guessed: an unknown key is an error, since it is a
misspelt one most of the time."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, field

from ncu_toolkit.core.errors import InputProblem
from ncu_toolkit.ladder.expressions import FUNCTIONS, check_syntax
from ncu_toolkit.ladder.rung import (
    KINDS,
    Check,
    Expectation,
    Expression,
    Filled,
    Identifier,
    Kind,
    LaunchSpec,
    Measured,
    OpcodePattern,
    ProfileExpectation,
    Requirement,
    Rung,
    SassExpectation,
    Scratch,
    Source,
    TensorMap,
    TimeModel,
    TomlTable,
)
from ncu_toolkit.model.codec import Misfit, convert

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
DTYPES = (
    "bfloat16", "float16", "float32", "float64", "int32", "int64", "int8", "uint16", "uint32", "uint64", "uint8",
)  # fmt: skip
SWIZZLES = (0, 32, 64, 128)


class BottleneckId(str):
    """`shared-bank-conflict`, or "" for none."""


class ComputeCapability(str):
    """`8.0`."""


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


class _Buffer(TomlTable, frozen=True):
    dtype: Literal[DTYPES]  # type: ignore[valid-type]
    count: Expression
    zeroed: bool = False


class _Map(TomlTable, frozen=True):
    array: str
    box: tuple[Expression, ...]
    swizzle: Literal[SWIZZLES] = 0  # type: ignore[valid-type]


class _Head(TomlTable, frozen=True):
    """The block at the top: what the rung is."""

    title: Filled
    idea: Filled
    kind: Kind
    compared_with: str | None = None
    removes: BottleneckId = BottleneckId("")


class _Tail(TomlTable, frozen=True):
    """The block at the end: how it is compiled and launched, and what must be true of it."""

    minimum_cc: ComputeCapability
    arch_specific: bool = False
    library: str = ""
    baseline: str = ""
    shapes: tuple[Requirement, ...] = ()
    source: Source = Source()
    problem: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    search: dict[str, Annotated[tuple[int, ...], Meta(min_length=1)]] = field(default_factory=dict)
    constraint: tuple[Requirement, ...] = ()
    model: TimeModel | None = None
    launch: tuple[LaunchSpec, ...] = ()
    scratch: dict[str, _Buffer] = field(default_factory=dict)
    tensor_maps: dict[str, _Map] = field(default_factory=dict)
    expect: Expectation = Expectation()
    measured: tuple[Measured, ...] = ()


_KNOWN = {
    name
    for table in (_Head, _Tail, _Buffer, _Map, Expectation, LaunchSpec, Measured, ProfileExpectation, Requirement, SassExpectation, Source, TimeModel)
    for name in table.__struct_fields__
}  # fmt: skip
_T = TypeVar("_T", _Head, _Tail)


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
        raise InputProblem(
            f"{label}: the file name must be NN_name.cu, such as 03_vectorized.cu", "Rename it"
        )
    above, code, below = split(text)
    if not above:
        raise InputProblem(
            f"{label}: no head block, or one that does not end",
            "The file starts with a line /*+++, TOML, and a line +++*/",
        )
    if "/*+++" in code:
        raise InputProblem(
            f"{label}: a second block that is not the end of the file, or does not end",
            "The tail block is the last of the file: a line /*+++, TOML, and a line +++*/",
        )
    head = _block(label, "head", above, 0, _Head)
    tail = _block(label, "tail", below, (above + code).count("\n"), _Tail)
    _check(label, named["name"], family, head, tail, code)
    major, _, minor = tail.minimum_cc.partition(".")
    return Rung(
        name=named["name"], family=family, order=int(named["order"]), path=path, text=text,
        code=code.strip("\n") + "\n" if code.strip() else "",
        title=head.title, idea=head.idea, kind=head.kind, compared_with=head.compared_with or "", removes=head.removes,
        minimum_cc=(int(major), int(minor)), arch_specific=tail.arch_specific, shapes=tail.shapes, source=tail.source,
        parameters=MappingProxyType(tail.parameters), search=MappingProxyType(tail.search), constraints=tail.constraint,
        model=tail.model,
        launches=tail.launch, scratch=tuple(Scratch(name, b.dtype, b.count, b.zeroed) for name, b in tail.scratch.items()),
        tensor_maps=tuple(TensorMap(name, m.array, m.box, m.swizzle) for name, m in tail.tensor_maps.items()),
        expect=tail.expect, measured=tail.measured, problem=MappingProxyType(tail.problem), baseline=tail.baseline,
        library=tail.library,
    )  # fmt: skip


def _block(label: str, which: str, text: str, line: int, kind: type[_T]) -> _T:
    """The values of one block, below `line` lines of the file."""
    found = _BLOCK.match(text)
    lines = line + text[: found.start("toml")].count("\n") if found else 0
    try:
        # empty lines above it, so that errors count as the file does
        return convert(kind, tomllib.loads("\n" * lines + found["toml"] if found else ""), _read)
    except tomllib.TOMLDecodeError as error:
        raise InputProblem(f"{label}: the {which} block is no valid TOML: {error}") from error
    except Misfit as error:
        key, what = error.path, error.what
    name = re.sub(r"\[\d+\]$", "", key.rpartition(".")[2])
    remedy = ""
    if what == "is missing":
        remedy = f"It stands in the {which} block; see kernels/README.md"
    elif what == "is no known key" and key in (*_Head.__struct_fields__, *_Tail.__struct_fields__):
        what = f"stands in the {which} block"
        remedy = f"Move it to the {'tail' if which == 'head' else 'head'} block"
    elif what == "is no known key":
        near = difflib.get_close_matches(name, _KNOWN, n=1)
        remedy = f"Did you mean '{near[0]}'?" if near else "kernels/README.md lists the keys"
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
            check_syntax(str(value), CHECK_FUNCTIONS if kind is Check else FUNCTIONS)
        except InputProblem as error:
            raise ValueError(f"is {str(error).removeprefix('in ')}") from error
    elif not isinstance(value, str):
        raise ValueError(f"is {value!r}, expected a string")
    elif not re.fullmatch(_PATTERNS[kind][0], value):
        raise ValueError(f"is {value!r}. {_PATTERNS[kind][1]}")
    return kind(value)


def _check(label: str, name: str, family: str, head: _Head, tail: _Tail, code: str) -> None:
    """Raise InputProblem where keys do not go together, or name what is not there."""

    def wrong(what: str, remedy: str = "") -> InputProblem:
        return InputProblem(f"{label}: {what}", remedy)

    if head.compared_with is None and head.kind not in ("baseline", "roof", "probe"):
        raise wrong("compared_with is missing", 'Name a rung of the family, or ""')
    if head.compared_with in (name, f"{family}/{name}"):
        raise wrong("compared_with names the rung itself")
    if head.removes and not head.compared_with:
        raise wrong("removes is set, but compared_with is not", "Name the rung that lacks the step")
    if bool(tail.library) == bool(tail.launch):
        raise wrong(
            "launch and library: a rung has exactly one of the two",
            'Give [[launch]] tables, or library = "name" for a baseline',
        )
    for key in tail.parameters:
        if not re.fullmatch(_PATTERNS[Identifier][0], key):
            raise wrong(f"parameters.{key} is no C identifier")
    for key in tail.search:
        if key not in tail.parameters:
            known = ", ".join(tail.parameters) or "none"
            raise wrong(f"search.{key} is no parameter of this rung", f"Parameters are {known}")
    for key in (*tail.model.over, *tail.model.set) if tail.model else ():
        if key not in tail.parameters:
            known = ", ".join(tail.parameters) or "none"
            raise wrong(f"model.{key} is no parameter of this rung", f"Parameters are {known}")
    for launch in tail.launch:
        if not re.search(rf"\b{re.escape(launch.kernel)}\b", code):
            raise wrong(
                f"launch.kernel: '{launch.kernel}' is not defined in the code",
                'Name an extern "C" __global__ function',
            )
    passed = {arg for launch in tail.launch for arg in launch.args}
    for kind, names in (("scratch", tail.scratch), ("tensor_maps", tail.tensor_maps)):
        for key in names:
            if key not in passed:
                raise wrong(
                    f"{kind}.{key}: no launch takes it", "Add it to args, or remove the table"
                )
