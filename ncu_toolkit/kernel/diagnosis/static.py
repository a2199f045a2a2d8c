"""What is known of a kernel without a GPU: its resources, occupancy, hot loops and the
bottlenecks that its code shows.

`analyse_rung` takes a rung of a ladder, `analyse_source` any .cu file, `analyse_cubin` any cubin.
`code_of` takes the code that a report holds, which needs no toolchain, and `checked` compares its
findings with the profile's verdict.
The terminal and JSON forms are the command's; the JSON document is described in docs/static.md."""

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from ncu_toolkit.base.core.errors import EnvironmentProblem, InputProblem, UsageProblem
from ncu_toolkit.base.hardware.specs import (
    MAX_BLOCK_THREADS,
    Occupancy,
    limits_of,
    next_steps,
    occupancy,
    what_if_block,
)
from ncu_toolkit.base.model import Diagnosis, Location, Profile
from ncu_toolkit.base.model.codec import document, to_plain
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.build.nvcc import BuiltCubin, Resources
from ncu_toolkit.kernel.build.toolchain import find_tool
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.engine import diagnose_code, unknowns
from ncu_toolkit.kernel.diagnosis.kernel import sentence
from ncu_toolkit.kernel.diagnosis.rules import (
    KernelFacts,
    OpenQuestion,
    StaticFinding,
    _addresses,
    locations,
    title,
)
from ncu_toolkit.kernel.ladder.problems import Problem, problem_for
from ncu_toolkit.kernel.ladder.rung import LaunchGeometry, Rung
from ncu_toolkit.kernel.sass import branches, disassembly, opcodes
from ncu_toolkit.kernel.sass.branches import Liveness
from ncu_toolkit.kernel.sass.cost import LISTED, Region, regions_of
from ncu_toolkit.kernel.sass.disassembly import readable

TIMEOUT: Final = 120  # seconds for one cuobjdump call
#: Block sizes shown where a file does not say which it is launched with.
TYPICAL_BLOCKS: Final = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class WhatIf:
    """The nearest change of one resource alone that puts more warps on an SM: from `now` to `then`
    (registers per thread, bytes or threads per block)."""

    resource: str
    now: int
    then: int
    active_warps: int
    fraction: float


@dataclass(frozen=True)
class KernelAnalysis:
    """One kernel. Resources as ptxas gives them: registers per thread; spilled and stack bytes a
    thread; static shared bytes per block."""

    name: str
    registers: int
    spill_stores: int | None
    """None for a cubin, which does not record spills: see the local-memory finding."""
    spill_loads: int | None
    stack: int
    shared_static: int
    shared_dynamic: int
    barriers: int
    instructions: int
    live_registers: int
    """Most general registers that hold a value still needed, at any instruction."""
    live_at: Location
    """The first instruction with that many; its share is 1."""
    block_threads: int | None
    """None where neither a header nor --block says it."""
    grid_blocks: int | None
    waves: float | None
    occupancy: Occupancy | None
    what_if: tuple[WhatIf, ...]
    blocks: tuple[Occupancy, ...]
    """Occupancy at TYPICAL_BLOCKS where the block size is not known."""
    regions: tuple[Region, ...]
    """Loops with most work first, at most LISTED; one of depth 0 where there is no loop."""
    loops: int
    bytes_in_flight: float | None
    """Bytes of global loads that an SM can have outstanding in the first region, all resident warps
    together."""
    findings: tuple[StaticFinding, ...]
    unknown: tuple[OpenQuestion, ...]
    code: tuple[opcodes.SassInstruction, ...] = ()
    live: tuple[int, ...] = ()
    """Live general registers per thread at each instruction of `code`."""


@dataclass(frozen=True)
class StaticAnalysis:
    """A file or rung. `nothing` says why there is nothing to analyse, "" where there is."""

    subject: str
    target: str
    compiler: str
    parameters: Mapping[str, int]
    size: str
    dtype: str
    kernels: tuple[KernelAnalysis, ...]
    nothing: str = ""

    def as_document(self) -> dict[str, Any]:
        """The JSON document (docs/static.md)."""

        def bare(k: KernelAnalysis) -> KernelAnalysis:
            regions = tuple(replace(r, code=(), conditional=frozenset()) for r in k.regions)
            return replace(k, code=(), live=(), regions=regions)

        plain = document("static", replace(self, kernels=tuple(map(bare, self.kernels))))
        for kernel, given in zip(plain["data"]["kernels"], self.kernels, strict=True):
            del kernel["code"], kernel["live"]
            filled = zip(kernel["blocks"], given.blocks, strict=True)
            for table, found in [(kernel["occupancy"], given.occupancy), *filled]:
                for name in _FILLED if found is not None else ():
                    table[name] = to_plain(getattr(found, name))
            for table, region in zip(kernel["regions"], given.regions, strict=True):
                del table["code"]
                table["limit"] = region.limit
                table["conditional"] = len(region.conditional)
        return plain


#: What a document has of an occupancy besides its fields.
_FILLED: Final = ("active_blocks", "active_warps", "fraction", "limiters")
Outcome = Literal["confirmed", "runner-up", "refuted", "not judged", "not seen"]
#: Longest code that is analysed for a page: beyond it the loops of machine-written code take longer
#: than the rest of the page.
LONGEST: Final = 60_000


@dataclass(frozen=True)
class Checked:
    """A static finding and what the profile's verdict says of it, with the reason in words."""

    finding: StaticFinding
    outcome: Outcome
    why: str


@dataclass(frozen=True)
class ProfiledCode:
    """What the code of one launch says."""

    facts: KernelFacts
    live: Liveness
    local_instructions: int
    findings: tuple[StaticFinding, ...]


def analyse_rung(
    rung: Rung,
    arch: str,
    *,
    size: str | None = None,
    dtype: str | None = None,
    parameters: Mapping[str, int] | None = None,
    sm_count: int | None = None,
) -> StaticAnalysis:
    """Compile a rung (or take it from the cache) and analyse it.

    Args:
        rung: what to analyse; a library baseline gives an analysis without kernels that says so.
        arch: `sm_90` and so on.
        size: problem size for the launch's block and grid; the family's last bench size where
            None.
        dtype: element type; the family's first where None.
        parameters: overrides of the rung's parameters.
        sm_count: multiprocessors of the GPU, for waves; not computed where None.

    Raises:
        UsageProblem: an architecture, size or parameters that the rung does not take.
        EnvironmentProblem: no nvcc or nvdisasm.
        KernelProblem: the code does not compile.
    """
    subject = f"{rung.family}/{rung.name}"
    if rung.library:
        what = f"{rung.name} runs a library ({rung.library}), whose code is not in this repository. Profile it instead"
        return StaticAnalysis(subject, "", "", {}, "", "", (), what)
    problem = _problem(rung)
    case = problem.case(size or problem.bench_sizes[-1], dtype, rung.problem) if problem else None
    macros = problem.macros(case.dtype, case.size) if problem and case else {}
    cubin = nvcc.compile_rung(rung, arch, parameters, macros)
    # a cubin from the cache has them sorted
    in_order = {name: cubin.parameters[name] for name in (*rung.parameters, *cubin.parameters)}
    geometry: dict[str, LaunchGeometry] = {}
    label = chosen = ""
    intensity = None
    if problem and case:
        label, chosen = case.size.label, case.dtype
        # Persistent kernels take their grid from the number of SMs; their block does not depend on it.
        launches = rung.launch_geometry(problem.values(case), parameters, sm_count or 1)
        geometry = {launch.kernel: launch for launch in reversed(launches)}
        intensity = problem.flops(case) / max(1.0, problem.compulsory_bytes(case))
    shared = StaticAnalysis(subject, cubin.target, cubin.compiler, in_order, label, chosen, ())
    return _analyse(shared, cubin.path, cubin.entries, geometry, intensity, sm_count)


def analyse_source(
    source: Path,
    arch: str,
    *,
    macros: Mapping[str, str] | None = None,
    block: int | None = None,
    shared: int = 0,
    timeout: float = nvcc.TIMEOUT,
) -> StaticAnalysis:
    """Compile any .cu file and analyse its kernels.

    Args:
        source: the file.
        arch: `sm_90`, `sm_90a` and so on.
        macros: passed as -DNAME=VALUE.
        block: threads per block it is launched with; not known where None.
        shared: bytes of dynamic shared memory per block.
        timeout: seconds that the compiler may take.

    Raises:
        as `analyse_rung`.
    """
    cubin: BuiltCubin = nvcc.compile_file(source, arch, macros, timeout)
    if not cubin.entries:
        raise InputProblem(
            f"'{source.name}' has no kernel",
            "Give a file with a __global__ function. Instantiate templates in it",
        )
    geometry = _given(cubin.entries, block, shared)
    made = StaticAnalysis(source.name, cubin.target, cubin.compiler, {}, "", "", ())
    return _analyse(made, cubin.path, cubin.entries, geometry)


def analyse_cubin(
    cubin: Path, *, block: int | None = None, shared: int = 0, only: str = ""
) -> StaticAnalysis:
    """Analyse the kernels of a cubin, whatever compiled it. `block` and `shared` as in
    `analyse_source`; `only` is the mangled name of one kernel ("" for all).

    Raises:
        EnvironmentProblem: no nvdisasm or cuobjdump.
        InputProblem: not a cubin.
    """
    if not cubin.is_file():
        raise UsageProblem(
            f"there is no file '{cubin}'", "Give a .cu file, a .cubin, or the name of a kernel"
        )
    target, entries = read_cubin(cubin)
    if only:
        entries = {name: used for name, used in entries.items() if name == only}
    made = StaticAnalysis(cubin.name, target, "", {}, "", "", ())
    return _analyse(made, cubin, entries, _given(entries, block, shared), spills_known=False)


def read_cubin(cubin: Path) -> tuple[str, dict[str, Resources]]:
    """Target and resources by kernel, as cuobjdump reads them from the file; spills are not in it
    (0 here).

    Raises:
        EnvironmentProblem: no cuobjdump.
        InputProblem: not a cubin.
    """
    tool = find_tool("cuobjdump")

    def dumped(option: str) -> str:
        words = [str(tool.path), option, str(cubin)]
        try:
            answer = subprocess.run(words, capture_output=True, timeout=TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            what = f"cuobjdump did not run on {cubin.name}: {error}"
            raise EnvironmentProblem(what, "Check the CUDA toolkit") from error
        return answer.stdout.decode("utf-8", "replace")

    target = re.search(r"\b(sm_\d+a?)\b", dumped("-lelf"))
    if target is None:
        what = f"{cubin.name} is not a cubin that cuobjdump {tool.version} can read"
        raise InputProblem(what, "Make one with `nvcc -cubin`")
    # From CC 9.0 on cuobjdump counts the driver's part of the block's shared memory; ptxas does not.
    cc = nvcc.parse_arch(target[1])
    reserved = limits_of(cc).shared_reserved if cc >= (9, 0) else 0
    entries = {}
    for name, row in re.findall(r"Function (\S+):\s*\n\s*(REG:.*)", dumped("-res-usage")):
        found = Counter({key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", row)})
        shared = max(0, found["SHARED"] - reserved)
        entries[name] = Resources(found["REG"], found["STACK"], shared=shared)
    return target[1], entries


def _problem(rung: Rung) -> Problem | None:
    try:
        return problem_for(rung.family)
    except UsageProblem:  # a ladder of the user's own, which only has code
        return None


def _given(
    entries: Mapping[str, Resources], block: int | None, shared: int
) -> dict[str, LaunchGeometry]:
    if block is None:
        return {}
    if not 1 <= block <= MAX_BLOCK_THREADS:
        raise UsageProblem(
            f"a block of {block} threads is out of range", f"It is 1 to {MAX_BLOCK_THREADS}"
        )
    return {name: LaunchGeometry(name, (0, 1, 1), (block, 1, 1), shared, ()) for name in entries}


def _analyse(
    made: StaticAnalysis, cubin: Path, entries: Mapping[str, Resources], geometry: Mapping[str, LaunchGeometry], intensity: float | None = None,
    sm_count: int | None = None, *, spills_known: bool = True,
) -> StaticAnalysis:  # fmt: skip
    cc = nvcc.parse_arch(made.target)
    functions = {function.name: function for function in disassembly.disassemble(cubin)}
    names = sorted(
        (name for name in entries if name in functions),
        key=lambda name: (list(geometry).index(name) if name in geometry else len(geometry), name),
    )
    kernels = []
    for name in names:
        launch, used, function = geometry.get(name), entries[name], functions[name]
        fill = _occupancy(cc, used, launch.threads, launch.shared) if launch else None
        blocks = (launch.blocks or None) if launch and sm_count else None
        grid = launch.grid if launch and all(launch.grid) else None
        facts = KernelFacts(
            name, cc, used, function, regions_of(function, cc), fill, made.dtype, intensity, blocks, sm_count,
            launch.block if launch else None, grid,
        )  # fmt: skip
        kernels.append(_kernel(facts, launch, spills_known))
    nothing = "" if kernels else "the file has no kernel to analyse"
    return replace(made, kernels=tuple(kernels), nothing=nothing)


def _occupancy(cc: tuple[int, int], used: Resources, threads: int, dynamic: int) -> Occupancy:
    return occupancy(cc, threads, used.registers, used.shared, dynamic, None, max(1, used.barriers))


def _kernel(
    facts: KernelFacts, launch: LaunchGeometry | None, spills_known: bool
) -> KernelAnalysis:
    used, fill, warps = facts.resources, facts.occupancy, facts.warps
    live = branches.live_in_code(facts.function.lines, facts.function.targets)
    flying = None if warps is None else facts.main.bytes_in_flight * warps * opcodes.WARP_SIZE
    sizes = () if fill else TYPICAL_BLOCKS
    return KernelAnalysis(
        name=readable(facts.name),
        registers=used.registers,
        spill_stores=used.spill_stores if spills_known else None,
        spill_loads=used.spill_loads if spills_known else None,
        stack=used.stack,
        shared_static=used.shared,
        shared_dynamic=launch.shared if launch else 0,
        barriers=used.barriers,
        instructions=len(facts.function.instructions),
        live_registers=live.peak,
        live_at=locations(facts.function.instructions[live.peak_index :][:1], "live registers")[0],
        block_threads=launch.threads if launch else None,
        grid_blocks=facts.grid_blocks,
        waves=facts.waves,
        occupancy=fill,
        what_if=_what_if(fill) if fill else (),
        blocks=tuple(_occupancy(facts.cc, used, threads, 0) for threads in sizes),
        regions=tuple(_addresses.with_conflicts(facts))[:LISTED],
        loops=sum(region.depth > 0 for region in facts.regions),
        bytes_in_flight=flying,
        findings=diagnose_code(facts),
        unknown=unknowns(facts),
        code=facts.function.instructions,
        live=live.counts,
    )


def _what_if(base: Occupancy) -> tuple[WhatIf, ...]:
    """The nearest change of registers, shared memory and block size, each alone, that puts more
    warps on an SM; none where all are there."""
    found = []
    for resource, then in next_steps(base).items():
        in_registers = resource == "registers"
        registers, shared = (then, base.shared) if in_registers else (base.registers, then)
        after = occupancy(base.cc, base.block_threads, registers, shared, 0, None, base.barriers)
        now = base.registers if in_registers else base.shared
        found.append(WhatIf(resource, now, then, after.active_warps, after.fraction))
    gaining = {
        size: after
        for size, after in what_if_block(base).items()
        if after.active_warps > base.active_warps
    }
    if gaining:
        nearest = min(gaining, key=lambda size: (abs(size - base.block_threads), size))
        after = gaining[nearest]
        found.append(
            WhatIf("block", base.block_threads, nearest, after.active_warps, after.fraction)
        )
    return tuple(found)


def code_of(profile: Profile) -> ProfiledCode | None:
    """Static analysis of a launch's code, as the report holds it: the output of ptxas is not in it, so
    that spills show as LDL and STL. None where the report holds none of it, or where its
    branches cannot be followed."""
    rows = profile.instructions
    if len(rows) > LONGEST:
        return None
    targets, live = branches.targets(rows), branches.live_registers(rows)
    if targets is None or live is None:
        return None
    code = []
    for i, row in enumerate(rows):
        predicate, operands = opcodes.parts(row.sass)
        jumps = tuple(rows[j].address for j in targets.get(i, ()))
        code.append(
            opcodes.SassInstruction(
                row.address, row.opcode, operands, predicate, row.file, row.line, jumps
            )
        )
    function = opcodes.Function(profile.launch.function, tuple(opcodes.without_padding(code)))
    if not function.instructions:
        return None
    launch, context = profile.launch, profile.context
    known = (
        context.flops / context.compulsory_bytes
        if context and context.flops and context.compulsory_bytes
        else None
    )
    facts = KernelFacts(
        function.name, profile.device.cc, Resources(launch.registers or 0, shared=launch.shared_static or 0), function,
        regions_of(function, profile.device.cc), figures.occupancy_of(profile), context.dtype if context else "", known,
        launch.blocks or None, profile.device.sm_count or None, launch.block, launch.grid,
    )  # fmt: skip
    local = sum(i.base in opcodes.LOCAL for i in function.instructions)
    return ProfiledCode(facts, live, local, diagnose_code(facts))


def checked(code: ProfiledCode, diagnosis: Diagnosis) -> tuple[Checked, ...]:
    """Each static finding with the profile's verdict on the same bottleneck.

    Confirmed by the verdict itself, by a runner-up, refuted where the rule ruled it out by its
    evidence, not judged where it lacked inputs."""
    found = [each.bottleneck for each in diagnosis.findings if not each.good]
    ruled = {each.bottleneck: each for each in reversed(diagnosis.considered)}
    first = next(iter(diagnosis.findings), None)

    def against(finding: StaticFinding) -> Checked:
        name = finding.bottleneck
        if first and name == first.bottleneck and not first.good:
            return Checked(finding, "confirmed", "It is the verdict.")
        if first and name in found:
            behind = f"Also found, ranked behind {title(first.bottleneck)}."
            return Checked(finding, "runner-up", behind)
        if name in ruled:
            refuted = ruled[name].outcome == "ruled out"
            outcome: Outcome = "refuted" if refuted else "not judged"
            return Checked(finding, outcome, sentence(ruled[name].reason))
        return Checked(finding, "not seen", "The profile did not show it.")

    return tuple(map(against, code.findings))
