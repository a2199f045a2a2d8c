"""Reading one kernel file: the TOML between `/*+++` and `+++*/` becomes a `Rung`, or an error that
names the file and the key.

The contract is in kernels/README.md. Nothing is guessed: an unknown key is an error, since it is a
misspelt one most of the time."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from ncu_toolkit.core.errors import InputProblem
from ncu_toolkit.ladder.expressions import FUNCTIONS, check_syntax
from ncu_toolkit.ladder.rung import (
    KINDS,
    Expectation,
    Kind,
    LaunchSpec,
    Measured,
    ProfileExpectation,
    Requirement,
    Rung,
    SassExpectation,
    Scratch,
    Source,
    TensorMap,
)

FILE_NAME = re.compile(r"(?P<order>\d{2,3})_(?P<name>[a-z][a-z0-9_]*)\.cu")
HEADER = re.compile(r"\A\s*/\*\+\+\+[ \t]*\r?\n(?P<toml>.*?)\+\+\+\*/[ \t]*\r?\n?", re.DOTALL)
IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
BOTTLENECK_ID = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
OPCODE_PATTERN = re.compile(r"[A-Z0-9]+(\.[A-Za-z0-9_]+)*(\|[A-Z0-9]+(\.[A-Za-z0-9_]+)*)*")

#: Functions of profile checks beside expressions.FUNCTIONS; each also with `prev_` in front, for
#: the rung it is compared with.
PROFILE_FUNCTIONS = ("executed", "stall", "stall_share", "metric")
CHECK_FUNCTIONS = frozenset(FUNCTIONS) | {
    prefix + name for prefix in ("", "prev_") for name in PROFILE_FUNCTIONS
}
DTYPES = frozenset(
    {
        "uint8",
        "int8",
        "float16",
        "bfloat16",
        "uint16",
        "int32",
        "uint32",
        "float32",
        "int64",
        "uint64",
        "float64",
    }
)
SWIZZLES = (0, 32, 64, 128)


def parse_rung(path: Path, text: str, family: str) -> Rung:
    """The rung in a kernel file.

    Args:
        path: the file; order and name come from its name, `NN_name.cu`.
        text: its content.
        family: the folder it lies in.

    Raises:
        InputProblem: no header, bad TOML, an unknown, missing or ill-typed key, a launch whose
            kernel is not in the code.
    """
    label = f"kernels/{family}/{path.name}"
    named = FILE_NAME.fullmatch(path.name)
    if named is None:
        raise InputProblem(
            f"{label}: the file name must be NN_name.cu, such as 03_vectorized.cu", "Rename it"
        )
    found = HEADER.match(text)
    if found is None:
        raise InputProblem(
            f"{label}: no header comment, or one that does not end",
            "The file starts with a line /*+++, TOML, and a line +++*/",
        )
    try:
        toml = tomllib.loads(found["toml"])
    except tomllib.TOMLDecodeError as error:
        raise InputProblem(
            f"{label}: the header is no valid TOML: {error}", "Lines count from the one after /*+++"
        ) from error
    top = _Table(label, "", toml)
    rung = _rung(
        top,
        named["name"],
        int(named["order"]),
        family,
        path,
        text,
        text[: found.end()].count("\n") + 1,
    )
    top.finish()
    _check_code(label, rung)
    return rung


def _rung(
    top: _Table, name: str, order: int, family: str, path: Path, text: str, code_start: int
) -> Rung:
    kind = top.text("kind")
    if kind not in KINDS:
        raise top.wrong("kind", f"is '{kind}'", f"Kinds are {', '.join(KINDS)}")
    removes = top.text("removes", "")
    if removes and not BOTTLENECK_ID.fullmatch(removes):
        raise top.wrong(
            "removes", f"is '{removes}'", "It is a bottleneck id such as shared-bank-conflict"
        )
    compared_with = (
        top.text("compared_with", "")
        if kind in ("baseline", "roof", "probe")
        else top.text("compared_with")
    )
    if compared_with in (name, f"{family}/{name}"):
        raise top.wrong("compared_with", "names the rung itself", "")
    if removes and not compared_with:
        raise top.wrong(
            "removes", "is set, but compared_with is not", "Say from which rung the step leads here"
        )
    library = top.text("library", "")
    launches = tuple(_launch(table) for table in top.tables("launch"))
    if bool(library) == bool(launches):
        raise top.wrong(
            "launch",
            "and library: a rung has exactly one of the two",
            'Give [[launch]] tables, or library = "name" for a baseline',
        )
    parameters = dict(top.table("parameters").items_of(int, IDENTIFIER))
    return Rung(
        name=name, family=family, order=order, path=path, text=text, code_start=code_start,
        title=top.text("title", required_content=True), idea=top.text("idea", required_content=True),
        kind=cast(Kind, kind), compared_with=compared_with, removes=removes,
        minimum_cc=_cc(top), arch_specific=top.flag("arch_specific", False),
        shapes=_requirements(top, "shapes"), source=_source(top.table("source")),
        parameters=MappingProxyType(parameters), search=_search(top, parameters), constraints=_requirements(top, "constraint"),
        launches=launches, scratch=_scratch(top.table("scratch")), tensor_maps=_tensor_maps(top.table("tensor_maps")),
        expect=_expect(top.table("expect")), measured=tuple(_measured(t) for t in top.tables("measured")),
        problem=MappingProxyType(top.table("problem").rest()), baseline=top.text("baseline", ""), library=library,
    )  # fmt: skip


def _cc(top: _Table) -> tuple[int, int]:
    text = top.text("minimum_cc")
    found = re.fullmatch(r"(\d+)\.(\d)", text)
    if found is None:
        raise top.wrong("minimum_cc", f"is '{text}'", 'Write a compute capability such as "8.0"')
    return int(found[1]), int(found[2])


def _source(table: _Table) -> Source:
    source = Source(table.text("document", ""), table.text("claim", ""), table.text("device", ""))
    table.finish()
    return source


def _requirements(top: _Table, key: str) -> tuple[Requirement, ...]:
    requirements = []
    for table in top.tables(key):
        requirements.append(
            Requirement(table.expression("check"), table.text("says", required_content=True))
        )
        table.finish()
    return tuple(requirements)


def _search(top: _Table, parameters: Mapping[str, int]) -> Mapping[str, tuple[int, ...]]:
    table = top.table("search")
    choices = {}
    for name, values in table.items_of(list, IDENTIFIER):
        if name not in parameters:
            raise table.wrong(
                name,
                "is no parameter of this rung",
                f"Parameters are {', '.join(parameters) or 'none'}",
            )
        if not values or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            raise table.wrong(name, "must be a list of integers", "")
        choices[name] = tuple(values)
    return MappingProxyType(choices)


def _launch(table: _Table) -> LaunchSpec:
    kernel = table.text("kernel")
    if not IDENTIFIER.fullmatch(kernel):
        raise table.wrong(
            "kernel", f"is '{kernel}'", 'It is the name of an extern "C" __global__ function'
        )
    spec = LaunchSpec(
        kernel,
        table.triple("grid"),
        table.triple("block"),
        table.expression("shared", "0"),
        table.texts("args"),
        table.expression("repeat", "1"),
    )
    table.finish()
    return spec


def _scratch(parent: _Table) -> tuple[Scratch, ...]:
    buffers = []
    for table in parent.named_tables():
        dtype = table.text("dtype")
        if dtype not in DTYPES:
            raise table.wrong("dtype", f"is '{dtype}'", f"Known are {', '.join(sorted(DTYPES))}")
        buffers.append(
            Scratch(table.name, dtype, table.expression("count"), table.flag("zeroed", False))
        )
        table.finish()
    return tuple(buffers)


def _tensor_maps(parent: _Table) -> tuple[TensorMap, ...]:
    maps = []
    for table in parent.named_tables():
        box = tuple(table.expressions("box"))
        swizzle = table.integer("swizzle", 0)
        if swizzle not in SWIZZLES:
            raise table.wrong(
                "swizzle",
                f"is {swizzle}",
                f"TMA swizzles are {', '.join(map(str, SWIZZLES))} bytes",
            )
        maps.append(TensorMap(table.name, table.text("array"), box, swizzle or 0))
        table.finish()
    return tuple(maps)


def _expect(table: _Table) -> Expectation:
    sass = table.table("sass")
    for key in ("present", "absent"):
        for pattern in sass.texts(key, ()):
            if not OPCODE_PATTERN.fullmatch(pattern):
                raise sass.wrong(
                    key,
                    f"holds '{pattern}'",
                    "Write opcodes such as LDS.128, or LDG.E.128|LDG.E.64",
                )
    signature = SassExpectation(
        sass.texts("present", ()), sass.texts("absent", ()), sass.integer("max_registers")
    )
    sass.finish()
    profile = []
    for check in table.tables("profile"):
        says, expression = (
            check.text("says", required_content=True),
            check.expression("check", functions=CHECK_FUNCTIONS),
        )
        profile.append(ProfileExpectation(says, expression, check.texts("sizes", ())))
        check.finish()
    expectation = Expectation(signature, tuple(profile), table.number("ratio_at_least"))
    table.finish()
    return expectation


def _measured(table: _Table) -> Measured:
    measured = Measured(table.text("gpu"), table.text("says", required_content=True))
    table.finish()
    return measured


def _check_code(label: str, rung: Rung) -> None:
    """A launch must name a kernel that the code defines, and its scratch and tensor maps must be
    passed to some launch."""
    for launch in rung.launches:
        if not re.search(rf"\b{re.escape(launch.kernel)}\b", rung.code):
            raise InputProblem(
                f"{label}: launch.kernel: '{launch.kernel}' is not defined in the code",
                'Name an extern "C" __global__ function',
            )
    passed = {arg for launch in rung.launches for arg in launch.args}
    for kind, names in (
        ("scratch", [s.name for s in rung.scratch]),
        ("tensor_maps", [t.name for t in rung.tensor_maps]),
    ):
        for name in names:
            if name not in passed:
                raise InputProblem(
                    f"{label}: {kind}.{name}: no launch takes it",
                    "Add it to args, or remove the table",
                )


class _Table:
    """One TOML table, read key by key with types checked; what is left over at `finish` is
    unknown."""

    def __init__(self, label: str, prefix: str, values: Mapping[str, Any]) -> None:
        self.label, self.prefix, self.values, self.read = label, prefix, values, set[str]()

    @property
    def name(self) -> str:
        return self.prefix.rpartition(".")[2]

    def key(self, key: str) -> str:
        return f"{self.prefix}.{key}" if self.prefix else key

    def wrong(self, key: str, what: str, remedy: str) -> InputProblem:
        return InputProblem(f"{self.label}: {self.key(key)} {what}", remedy)

    def get(self, key: str, types: tuple[type, ...], wanted: str, required: bool) -> Any:
        self.read.add(key)
        if key not in self.values:
            if required:
                raise self.wrong(key, "is missing", f"It is {wanted}; see kernels/README.md")
            return None
        value = self.values[key]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise self.wrong(key, f"is {value!r}", f"It must be {wanted}")
        return value

    def text(self, key: str, default: str | None = None, required_content: bool = False) -> str:
        value = self.get(key, (str,), "a string", default is None)
        if required_content and not value.strip():
            raise self.wrong(key, "is empty", "")
        return default if value is None and default is not None else str(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key, (bool,), "true or false", False)
        return default if value is None else bool(value)

    def integer(self, key: str, default: int | None = None) -> int | None:
        value = self.get(key, (int,), "an integer", False)
        return default if value is None else int(value)

    def number(self, key: str) -> float | None:
        value = self.get(key, (int, float), "a number", False)
        return None if value is None else float(value)

    def texts(self, key: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self.get(key, (list,), "a list of strings", default is None)
        if value is None:
            return default or ()
        if not all(isinstance(item, str) for item in value):
            raise self.wrong(key, f"is {value!r}", "It must be a list of strings")
        return tuple(value)

    def expression(
        self, key: str, default: str | None = None, functions: frozenset[str] = frozenset(FUNCTIONS)
    ) -> str:
        value = self.get(key, (str, int), "an expression", default is None)
        text = default if value is None and default is not None else str(value)
        check_syntax(text, functions, f"{self.label}: {self.key(key)}")
        return text

    def expressions(self, key: str) -> tuple[str, ...]:
        values = self.get(key, (list,), "a list of expressions", True)
        for i, item in enumerate(values):
            if not isinstance(item, str | int) or isinstance(item, bool):
                raise self.wrong(f"{key}[{i}]", f"is {item!r}", "It must be an expression")
            check_syntax(str(item), where=f"{self.label}: {self.key(key)}[{i}]")
        return tuple(str(item) for item in values)

    def triple(self, key: str) -> tuple[str, str, str]:
        values = self.expressions(key)
        if not 1 <= len(values) <= 3:
            raise self.wrong(key, f"has {len(values)} entries", "It is [x, y, z]")
        x, y, z = (*values, "1", "1")[:3]
        return x, y, z

    def table(self, key: str) -> _Table:
        return _Table(self.label, self.key(key), self.get(key, (dict,), "a table", False) or {})

    def tables(self, key: str) -> list[_Table]:
        values = self.get(key, (list,), f"an array of tables, [[{self.key(key)}]]", False) or []
        for i, value in enumerate(values):
            if not isinstance(value, dict):
                raise self.wrong(f"{key}[{i}]", f"is {value!r}", "It must be a table")
        return [
            _Table(self.label, f"{self.key(key)}[{i}]", value) for i, value in enumerate(values)
        ]

    def named_tables(self) -> list[_Table]:
        return [self.table(key) for key in self.values]

    def items_of(self, kind: type, pattern: re.Pattern[str]) -> list[tuple[str, Any]]:
        for key in self.values:
            if not pattern.fullmatch(key):
                raise self.wrong(key, "is no C identifier", "")
            self.get(key, (kind,), "an integer" if kind is int else "a list", True)
        return list(self.values.items())

    def rest(self) -> dict[str, Any]:
        self.read.update(self.values)
        return dict(self.values)

    def finish(self) -> None:
        for key in self.values:
            if key not in self.read:
                near = difflib.get_close_matches(key, self.read, n=1)
                raise self.wrong(
                    key,
                    "is no known key",
                    f"Did you mean '{near[0]}'?"
                    if near
                    else f"Known are {', '.join(sorted(self.read))}",
                )
