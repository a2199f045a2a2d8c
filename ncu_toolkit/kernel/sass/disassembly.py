"""Disassembly: nvdisasm's text → functions of instructions.

Its text with -gi has source lines, inlining and targets of indirect branches; its JSON has not."""

import contextlib
import ctypes
import ctypes.util
import hashlib
import re
import subprocess
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from ncu_toolkit.base.core.cache import LARGEST, cache_folder, seal, unsealed
from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, refused
from ncu_toolkit.kernel.build.toolchain import Tool, find_tool
from ncu_toolkit.kernel.sass.opcodes import Function, SassInstruction, without_padding

TIMEOUT = 300  # seconds for one nvdisasm call; the largest cubin here takes under one

_SECTION = re.compile(r'^\s*\.section\s+"?\.text\.([^",]+)"?\s*,')
_LABEL = re.compile(r"^([.$\w@]+):\s*$")
_LINE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T\d]+)\s+)?([A-Z][\w.]*)\s*(.*)$")
_TARGET = re.compile(r"\.L_[\w$]+")


def disassemble(cubin: Path) -> tuple[Function, ...]:
    """The functions of a cubin; nvdisasm's text is cached by content and version.

    Raises:
        EnvironmentProblem: no nvdisasm, or it did not run.
        InputProblem: nvdisasm cannot read the file, or it holds no code.
    """
    tool = find_tool("nvdisasm")
    with refused(f"{cubin.name} cannot be read", kind=InputProblem):
        key = hashlib.sha256(cubin.read_bytes() + tool.version.encode()).hexdigest()[:32]
    cached = cache_folder() / "sass" / f"{key}.z"
    packed = unsealed(cached)
    try:
        text = zlib.decompressobj().decompress(packed or b"", LARGEST).decode()
    except (zlib.error, UnicodeDecodeError):
        text = ""
    if not text:
        text = _run_nvdisasm(tool, cubin)
        with contextlib.suppress(OSError):  # Without a cache it is only slower.
            seal(cached, zlib.compress(text.encode(), 1))
    functions = parse_disassembly(text)
    if not functions:
        raise InputProblem(f"{cubin.name} has no code", "Give a cubin with at least one kernel")
    return functions


def _run_nvdisasm(tool: Tool, cubin: Path) -> str:
    command = [str(tool.path), "-c", "-gi", str(cubin)]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(
            f"nvdisasm did not run on {cubin.name}: {error}", "Check the CUDA toolkit"
        ) from error
    if answer.returncode != 0:
        reason = (answer.stderr.strip().splitlines() or ["no reason given"])[0]
        raise InputProblem(
            f"{cubin.name} cannot be disassembled: {reason}",
            f"nvdisasm here is {tool.version}. The file may be newer, or not a cubin",
        )
    return answer.stdout


def parse_disassembly(text: str) -> tuple[Function, ...]:
    """Functions in the output of `nvdisasm -c [-g|-gi]`."""
    functions = []
    name, lines = "", list[str]()
    for row in text.splitlines():
        if found := _SECTION.match(row):
            functions.append(_function(name, lines))
            name, lines = found[1], []
        elif row.startswith("//-----"):
            functions.append(_function(name, lines))
            name, lines = "", []
        elif name:
            lines.append(row)
    functions.append(_function(name, lines))
    return tuple(f for f in functions if f.instructions)


def _function(name: str, lines: Iterable[str]) -> Function:
    labels: dict[str, int] = {}
    waiting: list[str] = []
    rows: list[tuple[int, str, str, str]] = []
    places: list[tuple[str, int]] = []
    file, number, fresh = "", 0, True
    for row in lines:
        if found := _LINE.match(row):
            if fresh:  # The first line of a group is the innermost position.
                file, number, fresh = found[1], int(found[2]), False
        elif found := _LABEL.match(row):
            waiting.append(found[1])
        elif found := _INSTRUCTION.match(row):
            address = int(found[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting.clear()
            rows.append((address, found[2] or "", found[3], found[4]))
            places.append((file, number))
            fresh = True
    instructions = []
    for (address, predicate, opcode, rest), (source, line) in zip(rows, places, strict=True):
        named = [label for label in _TARGET.findall(rest) if label in labels]
        called = re.search(r"`\(([^)]+)\)", rest)
        if called and called[1] in labels and called[1] not in named:
            named.append(called[1])
        targets = tuple(dict.fromkeys(labels[label] for label in named))
        operands = rest.partition("(*")[0].rstrip("; \t")
        predicate = "" if predicate == "@PT" else predicate
        instructions.append(
            SassInstruction(address, opcode, operands, predicate, source, line, targets)
        )
    return Function(name, tuple(without_padding(instructions)))


@lru_cache(maxsize=1)
def _demangler() -> Any:
    try:
        library = ctypes.CDLL(ctypes.util.find_library("stdc++") or "libstdc++.so.6")
        function = library.__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return function


def readable(name: str) -> str:
    """A kernel's name as the source has it, without its arguments: `_Z3fooIfEvPf` is `foo<float>`."""
    function = _demangler() if name.startswith("_Z") else None
    if function is None:
        return name
    status = ctypes.c_int(0)
    found = function(name.encode(), None, None, ctypes.addressof(status))
    if not found or status.value:
        return name
    text = ctypes.string_at(found).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    text = re.sub(r"^void ", "", text)
    depth = 0
    for at, character in enumerate(text):
        depth += (character == "<") - (character == ">" and text[at - 1] != "-")
        if character == "(" and not depth and not text.startswith("(anonymous", at):
            return text[:at]
    return text
