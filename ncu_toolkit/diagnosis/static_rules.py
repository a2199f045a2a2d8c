"""Diagnoses that need no counters: what a kernel's code and resources alone prove or suggest, and
what they cannot tell.

Ids are those of the profile rules (`rules/`), whose pages say what each means and what to change. A
static finding carries no predicted speedup: the code does not say how often a loop runs or what its
warps wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.static_facts import (
    CERTAINTIES,
    KernelFacts,
    StaticFinding,
    cycles,
    evidence,
    locations,
    memory,
    place,
)
from ncu_toolkit.diagnosis.static_memory_rules import (
    MULTIPLY_ADDS,
    constant_indexed,
    copy_wait,
    data_reuse,
    local_memory,
    memory_latency,
    narrow,
    shared_pressure,
)
from ncu_toolkit.hardware.occupancy import next_steps
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.cost import SCHEDULERS, unit_cycles

#: Integer instructions: as in rules/integer_arithmetic.py, more than all others together; half of
#: that where divisions are among them.
INTEGER_SHARE: Final = 0.5
LOW_OCCUPANCY: Final = 0.5
"""As in rules/low_occupancy.py: half of what an SM holds hides arithmetic latency on every GPU
since Volta."""
BUSY: Final = 0.6
"""Nsight Compute's SpeedOfLight rule: below 60% a unit is not the limit."""
CACHED_CODE: Final = 128 * 1024
"""Bytes of instructions held next to an SM (Jia et al., "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking": L1.5, 128 KiB)."""
TAIL: Final = 0.2
"""Idle part of the last wave from which Nsight Compute's LaunchConfiguration rule speaks."""


def diagnose_static(facts: KernelFacts) -> tuple[StaticFinding, ...]:
    """Every finding of every rule, the most certain first."""
    found = [finding for rule in RULES if (finding := rule(facts)) is not None]
    return tuple(sorted(found, key=lambda finding: CERTAINTIES.index(finding.certainty)))


def double_precision(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    double = [i for i in region.code if attribution.kind(i.opcode) == "fp64"]
    converted = [
        i for i in region.code if "F64" in i.modifiers and i.base in ("F2F", "I2F", "F2I", "FRND")
    ]
    # Conversions take the special-function pipe: they belong to the double precision that needs
    # them.
    for_double = unit_cycles(converted, facts.cc, region.conditional).get("special", 0.0)
    others = max(
        [
            region.cycles.get("special", 0.0) - for_double,
            *(c for unit, c in region.cycles.items() if unit not in ("special", "fp64")),
        ]
    )
    if (
        facts.dtype == "float64"
        or not double
        or max(region.cycles.get("fp64", 0.0), for_double) < others
    ):
        return None
    return StaticFinding(
        "double-precision",
        "likely",
        f"Double-precision arithmetic takes more of the {place(region)} than any other unit's work"
        + (", with conversions to or from it." if converted else "."),
        (
            evidence(
                "fp64_instructions",
                "FP64 instructions a pass",
                len(double),
                "count",
                "DADD, DMUL, DFMA and comparisons.",
            ),
            cycles(region, "fp64", "FP64 pipe"),
            cycles(region, "fma", "FP32 pipe"),
            evidence(
                "fp64_conversions",
                "Conversions to or from FP64",
                len(converted),
                "count",
                "Where float values are widened, a literal without f is often the reason.",
            ),
        ),
        "Write float literals and functions (0.5f, sqrtf), unless double is meant.",
        "The FP64 pipe is the busiest; math pipe throttle or short scoreboard at DFMA.",
        locations(double, "FP64 instructions"),
    )


def tensor_core(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    if facts.cc < (7, 0) or any(
        attribution.kind(i.opcode) == "tensor" for i in facts.function.instructions
    ):
        return None
    fused = [i for i in region.code if i.base in ("FFMA", "FFMA2", "HFMA2") and i.flops]
    if not region.depth or len(fused) < MULTIPLY_ADDS * region.instructions:
        return None
    half = sum(i.flops for i in fused if i.base == "HFMA2")
    narrow = [i for r in facts.regions for i in r.code if i.base in ("LDG", "LDS")]
    sixteen = sum("U16" in i.modifiers or "S16" in i.modifiers for i in narrow)
    converted = sum(i.opcode.startswith("HADD2.F32") for i in region.code)
    declared = facts.dtype in ("float16", "bfloat16")
    # the same tests as the profile rule's: half arithmetic does the work, or 16-bit loads or
    # conversions feed it
    if not (
        declared
        or half > sum(i.flops for i in fused) / 2
        or sixteen > len(narrow) / 2
        or converted > len(fused) / 8
    ):
        return None
    return StaticFinding(
        "tensor-core-unused",
        "likely" if declared else "possible",
        "16-bit numbers are multiplied and added in a loop on the ordinary pipes; no matrix instruction is in the code.",
        (
            evidence(
                "multiply_adds",
                "Multiply-adds in the loop",
                len(fused) / region.instructions,
                "fraction",
                "FFMA and HFMA2 among its instructions.",
                MULTIPLY_ADDS,
                ">=",
            ),
            evidence(
                "matrix_instructions",
                "Matrix instructions",
                0,
                "count",
                "HMMA, HGMMA and the like.",
            ),
            evidence(
                "half_conversions",
                "Conversions from half a pass",
                converted,
                "count",
                "16-bit operands widened before they are multiplied.",
            ),
        ),
        "Use wmma, mma.sync or (on Hopper) wgmma with 16-bit operands and float accumulators, or a library.",
        "The tensor pipe is idle while the FMA or FP16 pipe works.",
        locations(fused, "multiply-adds"),
    )


def special_functions(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    busy = region.cycles.get("special", 0.0)
    others = max(
        [region.memory_cycles, *(c for unit, c in region.cycles.items() if unit != "special")]
    )
    if not busy or busy < others:
        return None
    used = [i for i in region.code if attribution.kind(i.opcode) == "special"]
    return StaticFinding(
        "special-function-pressure",
        "likely",
        f"Roots, exponentials, divisions and conversions need more cycles in the {place(region)} than anything else, memory included.",
        (
            cycles(region, "special", "Special-function pipe"),
            cycles(region, "fma", "FP32 pipe"),
            cycles(region, "issue", "Issue slots"),
            memory(region),
        ),
        "Compute each once and keep it; use the fast variants (__expf, __fdividef) where their accuracy is enough; replace some by polynomials.",
        "The XU pipe is the busiest; MUFU in the mix.",
        locations(used, "special-function instructions"),
    )


def integer(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    if facts.dtype.startswith(("int", "uint")) or (
        region.flops and region.limit not in ("issue", "alu", "special")
    ):
        return None
    back = sum(i.base == "F2I" for i in region.code)
    divisions = min(
        back,
        sum(i.base == "I2F" for i in region.code),
        sum(i.opcode.startswith("MUFU.RCP") for i in region.code),
    )
    share = region.share("integer", "special") if divisions else region.share("integer")
    threshold = INTEGER_SHARE / 2 if divisions else INTEGER_SHARE
    busiest = max(region.cycles.values(), default=0.0)
    if share < threshold or busiest < region.memory_cycles:
        return None
    rows = [i for i in region.code if attribution.kind(i.opcode) == "integer"]
    return StaticFinding(
        "integer-arithmetic",
        "likely" if divisions else "possible",
        f"{units.percent(share)} of the instructions in the {place(region)} are integer arithmetic"
        + (f", {divisions} divisions or modulo operations among them." if divisions else "."),
        (
            evidence(
                "integer_share",
                "Integer instructions",
                share,
                "fraction",
                "Addresses, indices, comparisons.",
                threshold,
                ">=",
            ),
            evidence(
                "divisions",
                "Integer divisions",
                divisions,
                "count",
                "I2F, MUFU.RCP and F2I together: a division by a value not known at compile time.",
            ),
            cycles(region, "alu", "Integer pipe"),
            memory(region),
        ),
        "Use 2-D indices, shifts, masks or constants in place of division; step addresses by a constant; unroll, so that elements share an address.",
        "Issue slots or the integer pipe are busy while memory is not.",
        locations(rows, "integer instructions"),
    )


def dependency(facts: KernelFacts) -> StaticFinding | None:
    region, warps = facts.main, facts.warps
    if warps is None or not region.depth or warps <= 0:
        return None
    issued = warps / SCHEDULERS * region.instructions
    if issued >= BUSY * region.dependency_cycles:
        return None
    return StaticFinding(
        "instruction-dependency",
        "likely",
        f"Each pass of the loop takes a warp at least {region.dependency_cycles} cycles of waiting for its own "
        f"arithmetic, and {units.significant(warps / SCHEDULERS)} warps a scheduler "
        f"issue {units.significant(issued)} instructions in that time.",
        (
            evidence(
                "dependency_cycles",
                "Cycles a pass by dependencies",
                region.dependency_cycles,
                "cycles",
                "Arithmetic latency along the chain, loads taken as there at once.",
            ),
            evidence(
                "issue_share",
                "Issue slots used at most",
                issued / region.dependency_cycles,
                "fraction",
                "With all resident warps.",
                BUSY,
                "<",
            ),
        ),
        "Keep several independent accumulators, unroll, or run more warps.",
        "The wait stall is the largest and issue slots are idle.",
    )


def occupancy_low(facts: KernelFacts) -> StaticFinding | None:
    found = facts.occupancy
    if found is None or found.fraction >= LOW_OCCUPANCY:
        return None
    steps = next_steps(found)
    hints = [
        f"{resource} down to {units.count(value)}"
        + (" bytes a block" if resource == "shared memory" else " a thread")
        for resource, value in steps.items()
    ]
    never = found.active_blocks == 0
    return StaticFinding(
        "low-occupancy",
        "certain" if never else "possible",
        "No block fits on a multiprocessor: the launch will fail."
        if never
        else f"{found.active_warps} of {found.max_warps} warps fit on a multiprocessor, limited by "
        f"{' and '.join(found.limiters)}. Enough where each warp has much independent work.",
        (
            evidence(
                "theoretical_occupancy",
                "Theoretical occupancy",
                found.fraction,
                "fraction",
                "Warps that fit over the most an SM holds.",
                LOW_OCCUPANCY,
                "<",
            ),
            evidence(
                "registers", "Registers a thread", found.registers, "count", "As ptxas gives them."
            ),
            evidence("shared", "Shared memory a block", found.shared, "B", "Static and dynamic."),
        ),
        f"One more block fits with {' or '.join(hints)}."
        if hints
        else "Choose another block size, so that more blocks or warps fit.",
        "Few eligible warps and idle issue slots.",
    )


def launch_shape(facts: KernelFacts) -> StaticFinding | None:
    if (
        facts.occupancy is None
        or facts.grid_blocks is None
        or not facts.sm_count
        or not facts.occupancy.active_blocks
    ):
        return None
    waves = facts.occupancy.waves(facts.grid_blocks, facts.sm_count)
    shown = (
        evidence(
            "waves",
            "Waves",
            waves,
            "",
            "Blocks of the grid over those that fit on the GPU at once.",
        ),
        evidence("blocks", "Blocks", facts.grid_blocks, "count", "Of the grid."),
    )
    if facts.grid_blocks < facts.sm_count:
        idle = f"The grid has {units.count(facts.grid_blocks)} blocks for {facts.sm_count} multiprocessors: the others have nothing to do."
        return StaticFinding(
            "grid-too-small",
            "certain",
            idle,
            shown,
            "Split the work into more blocks.",
            "Fewer SMs active than there are.",
        )
    whole = -(-facts.grid_blocks // (facts.occupancy.active_blocks * facts.sm_count))
    lost = 1 - waves / whole
    if waves > 1 and lost >= TAIL:
        text = f"{units.significant(waves)} waves take the time of {whole}: up to {units.percent(lost)} of it goes by in the last, partial one."
        return StaticFinding(
            "tail-effect",
            "possible",
            text,
            shown,
            "Choose another tile or block size, or a persistent grid of as many blocks as fit.",
            "SMs idle towards the end.",
        )
    return None


def instruction_cache(facts: KernelFacts) -> StaticFinding | None:
    size = len(facts.main.code) * 16
    if not facts.looped or size <= CACHED_CODE:
        return None
    return StaticFinding(
        "instruction-cache",
        "likely",
        f"The loop's code takes {units.count(size)} bytes, more than the instruction cache next to an SM holds: every pass fetches it again.",
        (
            evidence(
                "loop_bytes",
                "Code of the loop",
                size,
                "B",
                "16 bytes an instruction.",
                CACHED_CODE,
                ">",
            ),
        ),
        "Unroll less.",
        "The no-instruction stall is large.",
    )


#: In the order in which findings of the same certainty are shown.
RULES: Final[tuple[Callable[[KernelFacts], StaticFinding | None], ...]] = (
    local_memory, double_precision, tensor_core, data_reuse, special_functions, copy_wait, memory_latency, dependency, launch_shape,
    instruction_cache, shared_pressure, integer, narrow, occupancy_low, constant_indexed,
)  # fmt: skip
