"""The static signature of every rung on every architecture: it compiles, spills nothing unplanned,
and its code holds what its header says.

signatures.json holds what was compiled last, by the digest of what can change it. The quick tests
compare headers with it and compile what has changed since; the slow ones compile all and compare
the code with it.

    python tests/ladder/test_signatures.py     compile all and write signatures.json
"""

from __future__ import annotations

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (2, 1)]

import msgspec
import pytest
from sass_signature import Code, check_register_pool, check_signature, signature

from ncu_toolkit.base.core.errors import EnvironmentProblem, ToolkitError
from ncu_toolkit.base.model import matches_opcode
from ncu_toolkit.kernel.build import nvcc, toolchain
from ncu_toolkit.kernel.ladder.catalogue import load_rung, rung_files
from ncu_toolkit.kernel.ladder.problems import problem_for
from ncu_toolkit.kernel.ladder.rung import Rung
from ncu_toolkit.kernel.sass.disassembly import disassemble

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")
SIGNATURES = Path(__file__).with_name("signatures.json")


class Compiled(msgspec.Struct, frozen=True):
    """A rung's code on an architecture, and the digest of what it was compiled from."""

    source: str
    functions: dict[str, Code]


class Signatures(msgspec.Struct, frozen=True):
    """All that was compiled last, by case, and with which nvcc."""

    compiler: str
    rungs: dict[str, Compiled]


@lru_cache
def kept() -> Signatures:
    return msgspec.json.decode(SIGNATURES.read_bytes(), type=Signatures)


def missing_tools() -> str:
    for tool in ("nvcc", "nvdisasm"):
        try:
            toolchain.find_tool(tool)
        except EnvironmentProblem as error:
            return str(error)
    return ""


MISSING = missing_tools()


@dataclass(frozen=True)
class Case:
    """A file on an architecture; `rung` is None where its header cannot be read, and the test says
    why."""

    path: Path
    arch: str
    rung: Rung | None = None


def cases() -> list[Case]:
    found = []
    for path in rung_files():
        try:
            rung = load_rung(path)
        except ToolkitError:
            found.append(Case(path, "header"))
            continue
        if not rung.library:
            supported = [
                arch for arch in ARCHITECTURES if not rung.unsupported_on(nvcc.parse_arch(arch))
            ]
            found.extend(Case(path, arch, rung) for arch in supported or ["nowhere"])
    return found


def name_of(case: Case) -> str:
    return f"{case.rung.name if case.rung else case.path.name}-{case.arch}"


def macros_of(rung: Rung) -> dict[str, str]:
    problem = problem_for(rung.family)
    return dict(problem.macros(problem.dtypes[0]))


def source(case: Case) -> str:
    """A digest of all that can change a case's code, but the compiler."""
    assert case.rung is not None
    parts = (nvcc.source_digest(case.rung), nvcc.FLAGS, case.arch, macros_of(case.rung))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def compiled(case: Case) -> tuple[dict[str, Code], list[str]]:
    """A case's code, compiled or from the cache, and nvcc's warnings."""
    rung = case.rung or load_rung(case.path)
    cubin = nvcc.compile_rung(rung, case.arch, macros=macros_of(rung))
    return signature(cubin, disassemble(cubin.path)), list(cubin.warnings)


def violations(rung: Rung, code: dict[str, Code]) -> list[str]:
    """What does not hold of a rung's code, in words."""
    found = []
    kernels = {name for name, function in code.items() if function.registers is not None}
    if missing := {launch.kernel for launch in rung.launches} - kernels:
        found.append(
            f'the cubin has no kernel {", ".join(sorted(missing))}: only {", ".join(sorted(kernels))}; is extern "C" missing?'
        )
    local_is_planted = any(
        matches_opcode(opcode, pattern)
        for pattern in rung.expect.sass.present
        for opcode in ("LDL", "STL")
    )
    for kernel, used in code.items():
        if (used.spill_stores or used.spill_loads) and not local_is_planted:
            found.append(
                f"{kernel} spills: {used.spill_stores} bytes stored, {used.spill_loads} loaded, with {used.registers} registers"
            )
    problem, macros = problem_for(rung.family), macros_of(rung)
    cases = (problem.case(text, None, rung.problem) for text in problem.record_sizes)
    case = next(each for each in cases if problem.macros(each.dtype, each.size) == macros)
    names = problem.values(case)
    threads = {each.kernel: each.threads for each in rung.launch_geometry(names, None, 132)}
    return [*found, *check_register_pool(code, threads), *check_signature(rung.expect.sass, code)]


def attempt(case: Case) -> tuple[dict[str, Code], list[str]] | ToolkitError:
    try:
        return compiled(case)
    except ToolkitError as error:
        return error


CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_signature(case: Case) -> None:
    assert case.arch != "nowhere", f"{case.path} runs on none of {', '.join(ARCHITECTURES)}"
    rung = case.rung or load_rung(case.path)
    code = kept().rungs.get(name_of(case))
    if code is not None and code.source == source(case):
        functions = code.functions
    elif MISSING:
        pytest.skip(f"{name_of(case)} has changed since it was compiled, and here: {MISSING}")
    else:
        functions, _ = compiled(case)
    if found := violations(rung, functions):
        pytest.fail(f"{name_of(case)}: " + "; ".join(found), pytrace=False)


@pytest.mark.slow
@pytest.mark.toolchain
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_compiled(case: Case) -> None:
    outcome = attempt(case)
    if isinstance(outcome, ToolkitError):
        pytest.fail(str(outcome), pytrace=False)
    functions, warnings = outcome
    assert not warnings
    assert not violations(case.rung or load_rung(case.path), functions)
    if toolchain.find_tool("nvcc").version == kept().compiler:
        now = Compiled(source(case), functions)
        assert kept().rungs.get(name_of(case), now) == now, (  # a new rung may not be kept yet
            "the code differs from signatures.json: run `python tests/ladder/test_signatures.py`"
        )


def test_no_signature_is_left_over() -> None:
    assert set(kept().rungs) <= set(map(name_of, CASES))


def write() -> None:
    """Compile every case on all CPUs and write signatures.json."""
    cases = [case for case in CASES if case.rung]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = dict(zip(map(name_of, cases), pool.map(compiled, cases), strict=True))
    rungs = {name_of(case): Compiled(source(case), made[name_of(case)][0]) for case in cases}
    text = msgspec.json.encode(Signatures(toolchain.find_tool("nvcc").version, rungs))
    lines = text.replace(b'},"', b'},\n"') + b"\n"
    SIGNATURES.write_bytes(lines)


if __name__ == "__main__":
    sys.exit(MISSING or write())
