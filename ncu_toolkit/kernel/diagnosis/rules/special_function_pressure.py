"""The special-function unit is the limit: roots, exponentials, sines, divisions or type
conversions.

What it is
The XU pipe computes MUFU operations (reciprocal, square root, exp2, log2, sin, cos) and most
conversions between number types, at 16 lanes a cycle and SM: an eighth of the FP32 rate on most
GPUs.

Why it costs time
A formula with one MUFU for every few multiply-adds is bound by that pipe while the FMA pipe idles.

How to confirm
The XU pipe is the busiest; MUFU, I2F, F2I or F2F in the mix; math pipe throttle, short scoreboard
or MIO throttle at them.

What to change
Compute each special function once and keep it; multiply by a reciprocal instead of dividing; use
__expf, __sinf, __fdividef or -use_fast_math where the accuracy allows; replace some functions by a
polynomial on the FMA pipe; avoid conversions in the inner loop.

When the advice is wrong
Where results must be exact to the last bits, fast variants are not an option. A kernel at the DRAM
roof gains nothing.

Source
CUDA C++ Programming Guide, "Arithmetic Instructions" (throughput table: 16 results per cycle); CUDA
C++ Best Practices Guide, "Math Libraries".
"""

import re
from typing import Final

from ncu_toolkit.base.model import Location
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, keep, percent
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, cycles, memory, place
from ncu_toolkit.kernel.diagnosis.rules._launch import converts_doubles
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, STALL
from ncu_toolkit.kernel.sass import attribution

TITLE: Final = "Special-function pressure"
LIMIT: Final = "compute"
OPTIONAL: Final = ("xu_pipe_active", "stalls", "opcodes")
NCU: Final = (
    ("CPIStall", "mio throttle"), ("CPIStall", "short scoreboard"), ("CPIStall", "math pipe throttle"), ("HighPipeUtilization", "xu"),
)  # fmt: skip
UNITS: Final = ("xu",)
WAITS: Final = {"short_scoreboard": "special", "mio_throttle": "special"}
CODE_RANK: Final = 5
#: What stays: the accurate forms take several MUFU operations and fix-up steps where the fast ones
#: take one, and a value kept is not computed again.
STEP: Final = 0.25
#: The fast variants that the second piece of advice names.
FAST: Final = re.compile(
    r"\b__(?:(?:sin|cos|sincos|tan|exp|exp10|log|log2|log10|pow)f|fdividef|frcp_r[nzud]|frsqrt_rn)\b"
)
REASONS: Final = ("math_pipe_throttle", "short_scoreboard", "mio_throttle")


def find(k: Kernel) -> Outcome:
    special = ("special",)
    sampled = any(attribution.waits(k.profile, reason) for reason in REASONS)
    # Samples at the instructions tell without the pipe's counter, counts of instructions do not.
    if (absent := k.missing("xu_pipe_active")) and not sampled:
        return k.abstain(*absent)
    busy = k.model.busy("xu")
    measured = k.fact("xu_pipe_active", ">=", BUSY)
    waiting = k.waiting_for(special, *REASONS)
    if busy < BUSY.value and waiting < STALL.value:
        if absent:
            return k.ruled_out(
                f"Warps spend only {percent(waiting)} of their time waiting for special functions.",
                *(k.stall(reason) for reason in REASONS),
            )
        return k.ruled_out(f"The special-function pipe is {percent(busy)} busy.", measured)
    if converts_doubles(k):
        reason = "The pipe converts between double and single precision: see Double precision."
        return k.ruled_out(reason, measured)
    pipe = "special-function pipe (roots, exponentials, sines, divisions and conversions)"
    summary = f"Warps spend {percent(waiting)} of their time waiting for the {pipe}."
    if busy >= BUSY.value:
        summary = f"The {pipe} is {percent(busy)} busy, and faster arithmetic pipes wait for it."
    places = k.locate_executed(
        lambda opcode: opcode.startswith(("MUFU", "I2F", "F2I", "F2F")),
        "special-function instructions",
    )
    once = "Compute each reciprocal, root or exponential once and reuse it. Replace repeated divisions by multiplications."
    return k.finding(
        summary,
        Removal(
            "with a quarter of the special functions",
            stalls=k.shrink(STEP, special, *REASONS),
            loads={"xu": STEP},
            instructions=keep(k["kind_share:special"] or 0.0, STEP),
        ),
        (
            measured,
            "kind_share:special stall_share:math_pipe_throttle stall_share:short_scoreboard stall_share:mio_throttle",
        ),
        (
            once,
            *_fast(k, places),
            "Move some of the work to the FMA pipe. A short polynomial costs a few multiply-adds.",
        ),
        "Fewer MUFU instructions, a less busy XU pipe, a busier FMA pipe.",
        confidence="high" if busy >= BUSY.value else "medium",
        locations=places,
    )


def _fast(k: Kernel, places: tuple[Location, ...]) -> tuple[str, ...]:
    """Fast variants, where the lines do not have them already."""
    fast = k.advice(
        "Use the fast variants (__expf, __sinf, __fdividef, or -use_fast_math) if they are accurate enough.",
        triton="Use tl.exp2 and tl.log2 with the factor multiplied into a constant that is there anyway.",
        numba=("Use @cuda.jit(fastmath=True) if it is accurate enough.",),
        warp='Use the module option "fast_math" (wp.set_module_options) if it is accurate enough.',
    )
    # Whether each source line at `places` has one: advice to write that has been followed. False where
    # the report holds no text of them.
    texts = []
    for at in places:
        lines = k.profile.sources.get(at.file, "").splitlines()
        if 0 < at.line <= len(lines):
            texts.append(lines[at.line - 1])
    followed = bool(texts) and all(FAST.search(text) for text in texts)
    return () if followed and FAST.search(fast[0]) else fast


def in_code(facts: KernelFacts) -> StaticFinding | None:
    region = facts.main
    busy = region.cycles.get("special", 0.0)
    others = (cycles for unit, cycles in region.cycles.items() if unit != "special")
    if not busy or busy < max([region.memory_cycles, *others]):
        return None
    used = [i for i in region.code if attribution.kind(i.opcode) == "special"]
    return facts.finding(
        "likely",
        f"Roots, exponentials, divisions and conversions take more cycles in the {place(region)} than anything else, memory included.",
        (
            cycles(region, "special", "Special-function pipe"),
            cycles(region, "fma", "FP32 pipe"),
            cycles(region, "issue", "Issue slots"),
            memory(region),
        ),
        "Compute each once and reuse it. Use the fast variants (__expf, __fdividef) if they are accurate enough. Replace some by polynomials.",
        "The XU pipe is the busiest, with MUFU in the mix.",
        used, "special-function instructions",
    )  # fmt: skip
