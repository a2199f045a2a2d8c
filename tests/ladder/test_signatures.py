"""The static signature of every rung on every architecture: it compiles, spills nothing unplanned,
and its code holds what its header says.

Cubins and disassemblies are cached by content, so a second run compiles only what changed. Without
xdist they are made on all CPUs at once before the first test; with it, each worker makes its own.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from sass_signature import check_register_pool, check_signature

from ncu_toolkit.build import nvcc, toolchain
from ncu_toolkit.core.errors import EnvironmentProblem, ToolkitError
from ncu_toolkit.ladder.catalogue import load_rung, rung_files
from ncu_toolkit.ladder.problems import problem_for
from ncu_toolkit.ladder.rung import Rung
from ncu_toolkit.model import matches_opcode
from ncu_toolkit.sass.disassembly import disassemble

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")


def missing_tools() -> str:
    for tool in ("nvcc", "nvdisasm"):
        try:
            toolchain.find_tool(tool)
        except EnvironmentProblem as error:
            return str(error)
    return ""


MISSING = missing_tools()
pytestmark = [pytest.mark.toolchain, pytest.mark.skipif(bool(MISSING), reason=MISSING)]


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


def violations(case: Case) -> list[str]:
    """What does not hold of a case, in words."""
    rung = case.rung or load_rung(case.path)
    macros = problem_for(rung.family).macros(problem_for(rung.family).dtypes[0])
    cubin = nvcc.compile_rung(rung, case.arch, macros=macros)
    found = list(cubin.warnings)
    missing = {launch.kernel for launch in rung.launches} - set(cubin.entries)
    if missing:
        found.append(
            f'the cubin has no kernel {", ".join(sorted(missing))}: only {", ".join(sorted(cubin.entries))}; is extern "C" missing?'
        )
    local_is_planted = any(
        matches_opcode(opcode, pattern)
        for pattern in rung.expect.sass.present
        for opcode in ("LDL", "STL")
    )
    for kernel, used in cubin.entries.items():
        if used.spills and not local_is_planted:
            found.append(
                f"{kernel} spills: {used.spill_stores} bytes stored, {used.spill_loads} loaded, with {used.registers} registers"
            )
    registers = {kernel: used.registers for kernel, used in cubin.entries.items()}
    problem = problem_for(rung.family)
    sizes = map(problem.parse_size, problem.record_sizes)
    size = next(each for each in sizes if problem.macros(problem.dtypes[0], each) == macros)
    scalars = problem.scalars(size, problem.dtypes[0], rung.problem)
    names = {**{name: each.value for name, each in scalars.items()}, **size.as_dict()}
    threads = {each.kernel: each.threads for each in rung.launch_geometry(names, None, 132)}
    functions = disassemble(cubin.path)
    found += check_register_pool(functions, registers, threads)
    return found + check_signature(rung.expect.sass, functions, registers)


def attempt(case: Case) -> list[str] | ToolkitError:
    try:
        return violations(case)
    except ToolkitError as error:
        return error


CASES = cases()


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> dict[str, list[str] | ToolkitError]:
    """Violations of all cases that are to run here, found on all CPUs; empty under xdist, which
    spreads the tests itself."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        return {}
    wanted = {
        item.callspec.params["case"]
        for item in request.session.items
        if hasattr(item, "callspec") and "case" in item.callspec.params
    }
    chosen = [case for case in CASES if case in wanted]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(map(name_of, chosen), pool.map(attempt, chosen), strict=True))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_signature(case: Case, prepared: dict[str, list[str] | ToolkitError]) -> None:
    assert case.arch != "nowhere", f"{case.path} runs on none of {', '.join(ARCHITECTURES)}"
    outcome = prepared.get(name_of(case))
    if outcome is None:
        outcome = attempt(case)
    if isinstance(outcome, ToolkitError):
        pytest.fail(str(outcome), pytrace=False)
    if outcome:
        pytest.fail(f"{name_of(case)}: " + "; ".join(outcome), pytrace=False)
