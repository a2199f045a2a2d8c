"""Double-precision arithmetic limits the kernel, often by accident: a literal without f is enough.

What it is
FP64 runs at half of the FP32 rate on A100 and H100, at 1/32 or 1/64 on most others. A literal like 0.1, or a math
function without its f, turns a float expression into double precision, with a conversion on either side. (A literal
that float holds exactly, like 0.5, costs nothing where the result is a float: the compiler computes in float.)

Why it costs time
The FP64 pipe, and the special-function pipe that converts between the types, are far slower than the FMA pipe.
Division, roots and sines in double are long software sequences: a division is eight FP64 instructions and more.

How to confirm
DFMA, DMUL or DADD in the mix, F2F conversions next to them, and FP64 or XU as the busiest pipe.

What to change
Make literals, constants and functions single (0.1f, sinf); compile with -Xptxas
-warn-double-usage, which reports each double; keep double for the few sums that need it (or use a
compensated float sum). Where double is meant, multiply by reciprocals instead of dividing by what stays
the same.

When the advice is wrong
Where double precision is meant, this is the arithmetic roof of this GPU: use its FP64 tensor cores (DMMA) for matrix
products where it has them.

Source
CUDA C++ Programming Guide, "Arithmetic Instructions" (throughput table); CUDA C++ Best Practices Guide, "Promotions and
Truncations".
"""

import re
from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.hardware.specs import spec
from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis.figures import WARP
from ncu_toolkit.kernel.diagnosis.kernel import (
    WORTH,
    Given,
    Kernel,
    Outcome,
    Removal,
    keep,
    percent,
)
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, cycles, evidence, place
from ncu_toolkit.kernel.diagnosis.rules._launch import is_conversion, is_double
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, WEAK_STALL, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import NOISE, PIPES
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.cost import unit_cycles

TITLE: Final = "Double precision"
LIMIT: Final = "compute"
OPTIONAL: Final = ("opcodes", "fp64_pipe_active", "xu_pipe_active", "stalls")
NCU: Final = (
    ("CPIStall", "math pipe throttle"), ("HighPipeUtilization", "fp64"), ("SOLFPRoofline", "fp64"), ("FPInstructions", "fp64"),
)  # fmt: skip
UNITS: Final = ("fp64",)
CODE_RANK: Final = 2
#: Stall reasons at the special-function pipe, which converts, and at its own pipe for FP64.
SPECIAL_WAITS: Final = ("short_scoreboard", "mio_throttle", "math_pipe_throttle")
#: Kinds of instructions that the long scoreboard is for, FP64 on a shared unit aside.
MEMORY_KINDS: Final = ("global", "copy", "local", "atomic", "texture")
#: FP32 lanes an SM and cycle where the compute capability is not known: as in all since CC 8.6.
FP32_LANES: Final = 128
#: A move of a literal: into a register or a uniform one, by the pipe that has room.
LITERAL_MOVE: Final = re.compile(
    r"\bU?MOV U?R\d+, -?(0x|\d)|\bIMAD\.MOV\S* R\d+, RZ, RZ, -?(0x|\d)"
)
#: A double's literal fills two registers.
LITERAL_MOVES: Final = 2
#: Terms of a polynomial in single precision for each in double: 24 bits of the result against 53.
#: (Three pairs with exp, log and divisions keep 0.48, 0.54 and 0.70 of all their arithmetic.)
TERMS_LEFT: Final = 0.5
#: What a warp waits for an FP32 result in a chain for each cycle that it waits for an FP64 one: 4
#: cycles of latency against 8 (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
#: Microbenchmarking"; chains of DFMA and FFMA on an H200 agree), of which one is its own issue.
WAIT_LEFT: Final = 3 / 7
#: From this share of the FP32 rate down the FP64 unit is one that the SM's sub-partitions share: 1/32
#: and 1/64 (CUDA C++ Programming Guide, throughput table). Warps then queue for it like for the
#: texture unit, and its results arrive like loaded ones: on an RTX 2070 the samples of TEX throttle
#: and long scoreboard occur at DADD and F2F in a kernel without texture instructions.
SHARED_UNIT: Final = 1 / 32
#: GPUs with an FP64 pipe of their own do half of the FP32 rate: CC 7.0, 8.0, 9.0 and 10.0 (the same
#: table), those from 8.0 on with FP64 tensor cores too.
FULL_RATE: Final = 0.5
DMMA_SINCE: Final = (8, 0)
#: Below this the pipe is not what limits, where nothing else is known of the launch: the lower
#: threshold of Nsight Compute's SpeedOfLight rule.
ALONE: Final = BUSY
#: FP64 instructions of a division behind its MUFU.RCP64H (two Newton steps, the product and its
#: remainder), and all of its instructions with checks and branches: code of nvcc for Volta to Hopper.
DIVISION: Final = 8
DIVISION_IN_ALL: Final = 16
#: What a function has less in single precision for each instruction that only it has: instructions, those that
#: are arithmetic, and the literals among what it moves. A division and a root, with checks: 16 instructions
#: against 11 (a reciprocal 13 against 9), and 18 against 10. Beside literals an exponential, at its rounding by
#: 1.5 * 2^52, has 21 against 8, a logarithm 55 against 26 at its scaling by 2^54 (a division is one of them), a
#: sine 31 against 26 at its test against 2^31 (two of them convert). A power, known by its first coefficient, has
#: 143 against 62, with a logarithm and an exponential in them. Of nvcc 13 for sm_90, on the path usually taken.
SHORTER: Final[Mapping[str, tuple[int, int, int]]] = {
    r"MUFU\.RCP64H": (4, 3, 0),
    r"MUFU\.RSQ64H": (7, 4, 0),
    r" 6\.7553994\d*e\+15": (13, 9, 26),
    r" 1\.8014398\d*e\+16": (25, 12, 27),
    r" 2\.1474836\d*e\+09": (3, 5, 12),
    "7d2cafe2": (39, 21, 0),
}
#: A sine's coefficients come from a table by three loads of 16 bytes a lane: four passes through L1 each.
SINE: Final = r" 2\.1474836\d*e\+09"
SINE_PASSES: Final = 12
DIVIDES: Final = Threshold(0.25, "as multiplications they would take an eighth, so that a fifth of the FP64 work goes")  # fmt: skip
#: A division by a literal, a parameter or what is the same for all lanes.
BY_CONSTANT: Final = re.compile(r"MUFU\.RCP64H\S* R\d+, -?(\d|c\[|UR)")
RECIPROCAL: Final = "Multiply by the reciprocal where the divisor is a constant or serves many elements: const double r = 1.0 / dx, once."
#: Advice where double precision is no accident, and where it is.
FLOAT: Final = "Use float if it is accurate enough."
_SINGLE: Final[Mapping[str, str]] = {
    "cuda": "Write 0.5f for 0.5, constexpr float for constexpr double, float(M_PI) and sinf: one double operand makes the "
            "whole expression double. nvcc -Xptxas -warn-double-usage names what is left.",
    "triton": "Load or cast to single precision before the arithmetic (x.to(tl.float32)), and pass float32 tensors and scalars.",
    "numba": "Write np.float32(0.5) for literals and constants, and pass float32 scalars and arrays: Python's and NumPy's floats are double, "
             "and one double operand makes the whole expression double.",
    "warp": "Use wp.float32 for arrays and variables, and cast doubles on arrival (wp.float32(x)).",
}  # fmt: skip
LOOK_FOR: Final = "No DFMA, DMUL, DADD and F2F in the hot loop. The FMA pipe does the work."
CALL: Final = {
    "torch": ("Pass float32 tensors (x.float()). Tensors made from NumPy arrays are double unless they are converted.",
              "Keep double only for the operators whose result needs it."),
    "xla": ("In JAX leave jax_enable_x64 off, or cast to single precision first (x.astype(jnp.float32)).",
            "Keep double only for the operations whose result needs it."),
    "cupy": ("Make the arrays with dtype=cupy.float32. Without a dtype they are double, as NumPy's are.",
             "Keep double only for the operations whose result needs it."),
    "library": ("Call the routine for float32, if that is accurate enough.",),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    if not k.profile.mix.collected:
        return _by_pipe(k)
    counts = {row.opcode: row.warps for row in k.rows if is_double(row.opcode)}
    arithmetic = sum(n for opcode, n in counts.items() if attribution.kind(opcode) == "fp64")
    if not counts or not arithmetic:
        return k.ruled_out("The kernel does no double-precision arithmetic.")
    converting = sum(n for opcode, n in counts.items() if attribution.kind(opcode) == "special")
    special = k.executed("special")
    part = converting / special if special else 0.0  # of the pipe's instructions
    claimed = _claimed(k, part)
    waiting = sum(k.model.waiting(reason) * share for reason, share in claimed.items())
    busy = max(k.model.busy("fp64"), k.model.busy("xu") * part)
    evidence = (
        "fp64_pipe_active kind_share:fp64 xu_pipe_active stall_share:math_pipe_throttle stall_share:short_scoreboard stall_share:mio_throttle",
        "stall_share:tex_throttle stall_share:long_scoreboard" if _shared_unit(k) else None,
    )
    # Doubles in global memory are moved 8 bytes per lane.
    wide = any(r.base in ("LDG", "STG") and ".64" in r.opcode and r.warps for r in k.rows)
    accident = converting >= arithmetic / 4 or not wide
    prediction = k.model.without(_in_single(k, arithmetic, converting, claimed))
    # Doubles that are meant, and not waited for, do not limit where device memory is busier.
    least = max(0.5, 0.0 if accident else k.model.busy("dram"))
    weak = waiting < WEAK_STALL.value and busy < least
    # Unintended conversions are reported even where they cost little: one letter removes them.
    if weak and not (converting and accident and prediction.saved > NOISE):
        return _little(k, busy, evidence)
    if not accident and (divided := _divisions(k, arithmetic, evidence)):
        return divided
    conversions = sum(n for opcode, n in counts.items() if is_conversion(opcode)) / k.total
    reason = "on the FP64 pipe"
    if conversions:
        reason = f"and {percent(conversions)} of its instructions convert between double and float"
    meant = (
        ". The data are single precision, so this is probably not intended." if accident else "."
    )
    return k.finding(
        f"The kernel computes in double precision, {reason}{meant}{_at_rate(k)}",
        prediction,
        (evidence, k.stated("conversions", conversions)),
        (_SINGLE.get(k.language, _SINGLE["cuda"]),) if accident else _meant(k),
        LOOK_FOR,
        confidence="high" if accident else "medium",
        locations=k.locate_executed(is_double, "double-precision instructions"),
    )


def _claimed(k: Kernel, part: float) -> dict[str, float]:
    """Parts (0-1) of stall reasons due to doubles; `part` of the special functions converts them."""
    shared = _shared_unit(k)
    reasons = (*SPECIAL_WAITS, "tex_throttle") if shared else SPECIAL_WAITS
    waits_special = {reason: k.blame(reason, "special") * part for reason in reasons}
    if attribution.waits(k.profile, "math_pipe_throttle"):
        waits_double = {reason: k.blame(reason, "fp64") for reason in waits_special}
    else:
        waits_special["math_pipe_throttle"] = _part_of_pipes(k, "xu") * part
        waits_double = {"math_pipe_throttle": _part_of_pipes(k, "fp64")}
    claimed = {
        reason: min(1.0, share + waits_double.get(reason, 0.0))
        for reason, share in waits_special.items()
    }
    if shared and k.profile.samples:
        claimed["long_scoreboard"] = 1 - k.blame("long_scoreboard", *MEMORY_KINDS)
    return claimed


def _in_single(
    k: Kernel, arithmetic: float, converting: float, claimed: Mapping[str, float]
) -> Removal:
    """The conversions' instructions go, each arithmetic one becomes one on the FMA pipe, whose result
    is there in half the time, polynomials have half the terms, and divisions and roots are SHORTER."""
    lanes, special = spec(k.device.cc, "fp32") or FP32_LANES, k.executed("special")
    replaced = arithmetic * WARP / lanes / k.device.sm_count if k.device.sm_count else 0.0
    # A float's literal is part of its instruction, a double's is moved into a pair of registers first.
    moves = sum(r.executed or 0 for r in k.instructions if LITERAL_MOVE.search(r.sass))
    literals = min(float(moves), LITERAL_MOVES * arithmetic)
    code = [(r.sass, float(r.executed)) for r in k.instructions if r.executed]
    code = code or [(row.opcode, row.warps) for row in k.rows]
    calls = {x: sum(n for text, n in code if re.search(x, text)) for x in SHORTER}
    less, computed, moved = (sum(n * SHORTER[x][i] for x, n in calls.items()) for i in range(3))
    terms = max(0.0, literals - moved) / LITERAL_MOVES * (1 - TERMS_LEFT)
    replaced *= max(0.0, 1 - (terms + computed) / arithmetic)
    instructions = max(0.0, 1 - (converting + literals + terms + less) / k.total)
    tables = calls[SINE] * SINE_PASSES / k.device.sm_count if k.device.sm_count else 0.0
    loads = {
        name: max(0.0, 1 - tables / k.model.loads[name])
        for name in ("l1_data", "l1_writeback")
        if tables and name in k.model.loads
    }
    wait = instructions * keep(k.blame("wait", "fp64"), WAIT_LEFT)
    return Removal(
        "in single precision",
        stalls={reason: 1 - share for reason, share in claimed.items()} | {"wait": wait},
        loads=loads | {"fp64": 0.0, "xu": 1 - (converting / special if special else 0.0)},
        instructions=instructions,
        added={"fma": replaced} if "fma" in k.model.loads else {},
    )


def _divisions(k: Kernel, arithmetic: float, evidence: Given) -> Outcome | None:
    """Double precision that is meant, and mostly divides; None for all other."""
    count = sum(row.warps for row in k.rows if row.opcode.startswith("MUFU.RCP64H"))
    part = min(1.0, count * DIVISION / arithmetic)
    if part < DIVIDES.value:
        return None
    rows = [row for row in k.instructions if row.opcode.startswith("MUFU.RCP64H")]
    constant = sum(row.executed or 0 for row in rows if BY_CONSTANT.search(row.sass))
    by = ", most by a constant" if constant > count / 2 else ""
    left = keep(part, 1 / DIVISION)
    return k.finding(
        f"The kernel computes in double precision, and divisions take {percent(part)} of its FP64 instructions{by}: each takes "
        f"{DIVISION} and more where a multiplication takes one.{_at_rate(k)}",
        Removal(
            "with multiplications by reciprocals",
            stalls={"math_pipe_throttle": keep(k.blame("math_pipe_throttle", "fp64"), left)},
            loads={"fp64": left},
            instructions=1 - min(0.9, count * (DIVISION_IN_ALL - 1) / k.total),
        ),
        (evidence, k.stated("divisions", part, ">=", DIVIDES)),
        (RECIPROCAL, *_meant(k)),
        "Fewer MUFU.RCP64H and DFMA for the same results, an idler FP64 pipe.",
        confidence="medium",
        locations=k.locate_executed(lambda opcode: opcode.startswith("MUFU.RCP64H"), "divisions")
        or k.locate_executed(is_double, "double-precision instructions"),
    )


def _meant(k: Kernel) -> tuple[str, ...]:
    """What to change where the result may need double: fewer operations first on a GPU that does them
    at half of the FP32 rate, float first on all others."""
    if (_rate(k) or 0.0) < FULL_RATE:
        return (
            FLOAT,
            "If the result needs double, keep it for the few sums that do, or use a GPU with full-rate FP64.",
        )
    products = "Use FP64 tensor cores (DMMA) for matrix products."
    fewer = "Do fewer FP64 operations: compute once what repeats."
    return (fewer, *(products,) * (k.device.cc >= DMMA_SINCE), FLOAT)


def _by_pipe(k: Kernel) -> Outcome:
    """What the busy FP64 pipe alone tells, without counts of instructions: each instruction on it
    becomes one of the FP32 pipe."""
    if absent := k.missing("fp64_pipe_active"):
        return k.abstain(*absent, "opcodes")
    busy = k.model.busy("fp64")
    measured = k.fact("fp64_pipe_active", ">=", ALONE)
    share = _rate(k)
    if busy < ALONE.value or share is None:
        return _little(k, busy, measured)
    fp32 = k.model.loads["fp64"] * share
    prediction = k.model.without(
        Removal("in single precision", loads={"fp64": 0.0}, added={"fma": fp32})
    )
    if prediction.saved < WORTH or len(k.model.loads) < 2:
        return _little(k, busy, measured)
    return Finding(
        k.rule,
        f"The FP64 pipe is {percent(busy)} busy.{_at_rate(k)} In single precision the "
        f"same instructions would take {percent(min(1.0, busy * share))} of the time on the FP32 pipe.",
        "high" if _shared_unit(k) else "medium",
        k.facts(measured, "issue_active memory_throughput"),
        None,
        ("The report does not show what else warps wait for, so the gain is not known.",),
        _meant(k),
        LOOK_FOR,
        relieves=prediction.relieves,
        weight=prediction.saved,
    )


def _little(k: Kernel, busy: float, evidence: Given) -> Outcome:
    reason = f"There is some double precision, but its pipes are at most {percent(busy)} busy."
    return k.ruled_out(reason, evidence)


def _part_of_pipes(k: Kernel, pipe: str) -> float:
    """How busy a pipe is for each part of the time that the busiest one is (0-1): its part of the
    waiting at pipes, where no samples say at which."""
    busiest = max(k.model.busy(name) for name in ("fp64", "tensor", *PIPES) if name != "issue")
    return k.model.busy(pipe) / busiest if busiest else 0.0


def _rate(k: Kernel) -> float | None:
    """The FP64 rate of the GPU over its FP32 rate; None where either is not known."""
    double, single = (spec(k.device.cc, name) for name in ("fp64", "fp32"))
    return double / single if double and single else None


def _shared_unit(k: Kernel) -> bool:
    return (_rate(k) or 1.0) <= SHARED_UNIT


def _at_rate(k: Kernel) -> str:
    if not _shared_unit(k):
        return ""
    return f" This GPU does them at 1/{round(1 / (_rate(k) or 1.0))} of its FP32 rate."


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    double = [i for i in region.code if attribution.kind(i.opcode) == "fp64"]
    converted = [i for i in region.code if is_conversion(i.opcode)]
    # Conversions take the special-function pipe: they belong to the double precision that needs them.
    for_double = unit_cycles(converted, facts.cc, region.conditional).get("special", 0.0)
    others = [c for unit, c in region.cycles.items() if unit not in ("special", "fp64")]
    busy = max(region.cycles.get("fp64", 0.0), for_double)
    if (
        facts.dtype == "float64"
        or not double
        or busy < max(region.cycles.get("special", 0.0) - for_double, *others, -1.0)
    ):
        return None
    return facts.finding(
        "likely",
        f"Double-precision arithmetic takes more of the {place(region)} than any other unit's work"
        + (", with conversions to or from it." if converted else "."),
        (
            evidence("fp64_instructions", "FP64 instructions per iteration", len(double), "count", "DADD, DMUL, DFMA and comparisons."),
            cycles(region, "fp64", "FP64 pipe"),
            cycles(region, "fma", "FP32 pipe"),
            evidence("fp64_conversions", "Conversions to or from FP64", len(converted), "count",
                     "If float values are widened, the usual reason is a literal without f."),
        ),
        "Write float literals, constants and functions (0.5f, sinf), unless the result needs double.",
        "The FP64 pipe is the busiest, with math pipe throttle or short scoreboard stalls at DFMA.",
        double, "FP64 instructions",
    )  # fmt: skip
