"""The code was compiled for a debugger (nvcc -G), without optimisation.

What it is
With -G the compiler keeps every variable where a debugger finds it. It moves values between
registers at each step, inlines nothing, unrolls nothing, and fuses nothing.

Why it costs time
Most instructions only move values, and every small function is a call. Kernels take several times
as long as optimised ones, and wait for other things than those do.

How to confirm
More than 30% of the executed instructions are MOV or R2UR, which copy a register, and warps run
ERRBAR: with -G each warp ends with a memory barrier and an error barrier. `cuobjdump -sass` shows
the same.

What to change
Compile without -G: with -lineinfo the profile still names source lines. In Numba that is
`@cuda.jit(lineinfo=True)` without `debug=True`, in CMake a Release build. Then profile again.

When the advice is wrong
When you study the debug build itself. All other findings on such a launch hold
for this build alone.

Source
CUDA Compiler Driver NVCC, "--device-debug (-G)": "turns off all optimizations on device code".
Shares: nvcc 13.0 -G for CC 7.5 to 9.0 gives 49 to 60% MOV and an ERRBAR before each EXIT, Numba's
debug=True 23% MOV and 25% R2UR; no optimised launch on record has both, and the highest share of
copies is 30%, in a kernel without ERRBAR.
"""

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.kernel.diagnosis.kernel import TENTH, Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.rules import Specificity
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.kernel.diagnosis.time_model import PIPES

TITLE: Final = "Debug build"
LIMIT: Final = "compute"
OPTIONAL: Final = ("opcodes",)
MOVES: Final = Threshold(0.3, "debug builds of nvcc 13.0 and Numba have 48% and more, optimised kernels on record 30% at most")  # fmt: skip
#: The same of the code itself: of 656 functions embedded in reports the 27 of debug builds are 0.50 to
#: 0.67 copies and have an ERRBAR, and of the others no more than 0.11 are copies where there is an
#: ERRBAR.
IN_CODE: Final = Threshold(0.3, "debug builds on record have 50% and more, optimised code with an ERRBAR 11% at most")  # fmt: skip
BARRIERS: Final = Threshold(0.0, "optimised code has an ERRBAR only behind a memory fence")
#: Opcodes that copy a register, to another or to a uniform one.
COPIES: Final = ("MOV", "R2UR")
_ADVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("Compile without -G (CMake: a Release build, Numba: no debug=True). Then profile again before any other change.",
             "Use -lineinfo for source lines in the profile. It costs no time."),
    "numba": ("Remove debug=True and opt=False from @cuda.jit, and unset NUMBA_CUDA_DEBUGINFO. Then profile again before any other change.",
              "Use @cuda.jit(lineinfo=True) for source lines in the profile. It costs no time."),
    "warp": ('Set wp.config.mode to "release". Then profile again before any other change.',
             "Use wp.config.lineinfo = True for source lines in the profile. It costs no time."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    code, counted = k.profile.code, k.profile.mix.collected
    without = None
    if counted:
        share = k.of_base(*COPIES) / k.total if k.total else 0.0
        evidence = (
            k.stated("mov_share", share, ">", MOVES),
            k.stated("errbar", k.of_base("ERRBAR"), ">", BARRIERS),
        )
        shown = f". {percent(share)} of the executed instructions"
        without = k.model.without(_optimised(k, share))
    else:  # by the machine code in the report
        if not code.instructions:
            return k.abstain("opcodes")
        evidence = (
            k.stated("static:copies", code.part(*COPIES), ">", IN_CODE),
            k.stated("static:errbar", code.opcodes.get("ERRBAR", 0), ">", BARRIERS),
        )
        shown = f": {percent(code.part(*COPIES))} of the instructions in its code"
    if not all(fact.holds for fact in evidence):
        return k.ruled_out("The code was compiled with optimisation.", evidence)
    if without and not (without.quantified and without.saved >= TENTH):
        without = None
    unknown = ("No estimate. Only a profile of the optimised code can show the gain.",)
    return Finding(
        k.rule,
        f"The kernel was compiled for a debugger (-G), without optimisation{shown} only copy registers.",
        "high",
        evidence,
        without.speedup if without else None,
        (
            *(without.arithmetic if without else unknown),
            "The other findings apply only to this debug build.",
        ),
        k.advice(**_ADVICE),
        "Hardly any MOV and ERRBAR among the executed instructions.",
        relieves=without.relieves if without else {},
    )


def _optimised(k: Kernel, copies: float) -> Removal:
    """Without what only unoptimised code does: copies, and variables in local memory, which is
    reached by plain loads and stores too.

    A least gain: of nine builds whose optimised twin is on record it is above the gain in one, by
    three points."""
    local = k["local_sectors"] or 0.0
    others = (k["l1_global_bytes"] or 0.0) / SECTOR_BYTES
    kept = others / (local + others) if local else 1.0
    left = max(0.0, 1 - copies - (k["kind_share:local"] or 0.0))
    return Removal(
        "without copies",
        stalls=dict.fromkeys(("long_scoreboard", "lg_throttle", "drain"), kept)
        | dict.fromkeys(("short_scoreboard", "mio_throttle"), left)
        | {"membar": 0.0},
        loads=dict.fromkeys(("l1_tag", "l1_data", "l1_writeback", "l1", "l2", "fill", "dram"), kept)
        | dict.fromkeys(PIPES, left),
        instructions=left,
        basis="Optimised code keeps variables in registers: the copies go, and with them local memory and the barrier at the "
        "end. What else the compiler would do is not counted.",
    )


specificity = Specificity.BUILD.always
