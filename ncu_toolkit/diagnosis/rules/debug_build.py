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

from __future__ import annotations

from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules import Specificity
from ncu_toolkit.diagnosis.rules._roof import TENTH
from ncu_toolkit.diagnosis.rules._support import Threshold, abstain, ruled_out
from ncu_toolkit.diagnosis.time_model import PIPES, Removal, TimeModel
from ncu_toolkit.model import Evidence, Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution

ID: Final = "debug-build"
TITLE: Final = "Debug build"
LIMIT: Final = "compute"
REQUIRES: Final = ()
OPTIONAL: Final = ("opcodes",)
MOVES: Final = Threshold(
    0.3,
    "debug builds of nvcc 13.0 and Numba have 48% and more, optimised kernels on record 30% at most",
)
#: The same of the code itself: of 656 functions embedded in reports the 27 of debug builds are 0.50 to
#: 0.67 copies and have an ERRBAR, and of the others no more than 0.11 are copies where there is an
#: ERRBAR.
IN_CODE: Final = Threshold(
    0.3, "debug builds on record have 50% and more, optimised code with an ERRBAR 11% at most"
)
BARRIERS: Final = Threshold(0.0, "optimised code has an ERRBAR only behind a memory fence")
#: Opcodes that copy a register, to another or to a uniform one.
COPIES: Final = ("MOV", "R2UR")


class Words:
    optimised = "The code was compiled with optimisation."
    found = (
        "The kernel was compiled for a debugger (-G), without optimisation. {share} of the executed instructions only copy "
        "registers."
    )
    in_code = (
        "The kernel was compiled for a debugger (-G), without optimisation: {share} of the instructions in its code only copy "
        "registers."
    )
    basis = (
        "Optimised code keeps variables in registers: the copies go, and with them local memory and the barrier at the end. What "
        "else the compiler would do is not counted."
    )
    no_figure = "No estimate. Only a profile of the optimised code can show the gain."
    others = "The other findings apply only to this debug build."
    advice = (
        "Compile without -G (CMake: a Release build, Numba: no debug=True). Then profile again before any other change.",
        "Use -lineinfo for source lines in the profile. It costs no time.",
    )
    elsewhere: ClassVar[language.Elsewhere] = {
        "numba": (
            "Remove debug=True and opt=False from @cuda.jit, and unset NUMBA_CUDA_DEBUGINFO. Then profile again before any other change.",
            "Use @cuda.jit(lineinfo=True) for source lines in the profile. It costs no time.",
        ),
        "warp": (
            'Set wp.config.mode to "release". Then profile again before any other change.',
            "Use wp.config.lineinfo = True for source lines in the profile. It costs no time.",
        ),
    }
    look_for = "Hardly any MOV and ERRBAR among the executed instructions."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    if not profile.mix.collected:
        return _by_code(profile)
    counts: dict[str, float] = {}
    for row in figures.rows(profile):
        name = attribution.base(row.opcode)
        counts[name] = counts.get(name, 0.0) + row.warps
    total = sum(counts.values())
    share = sum(counts.get(name, 0.0) for name in COPIES) / total if total else 0.0
    evidence = (
        Evidence(
            "mov_share",
            "Executed copies",
            share,
            "fraction",
            "Part of the executed instructions that copy one register to another (MOV, R2UR).",
            MOVES.value,
            ">",
            MOVES.source,
        ),
        Evidence(
            "errbar",
            "Executed ERRBAR",
            counts.get("ERRBAR", 0.0),
            "count",
            "Error barriers: each warp of a debug build ends with one.",
            BARRIERS.value,
            ">",
            BARRIERS.source,
        ),
    )
    if not all(fact.holds for fact in evidence):
        return ruled_out(ID, Words.optimised, *evidence)
    prediction = model.without(_optimised(profile, share))
    told = prediction.quantified and prediction.saved >= TENTH
    return Finding(
        ID,
        Words.found.format(share=units.percent(share)),
        "high",
        evidence,
        prediction.speedup if told else None,
        (*(prediction.arithmetic if told else (Words.no_figure,)), Words.others),
        language.advice(profile, Words.advice, Words.elsewhere),
        Words.look_for,
        relieves=prediction.relieves if told else {},
    )


def _by_code(profile: Profile) -> Finding | NoFinding:
    """By the machine code in the report, where executions were not counted."""
    code = profile.code
    if not code.instructions:
        return abstain(ID, ("opcodes",))
    evidence = (
        Evidence(
            "static:copies",
            "Copies in the code",
            code.part(*COPIES),
            "fraction",
            "Part of the kernel's instructions that copy one register to another (MOV, R2UR). How often they run was not counted.",
            IN_CODE.value,
            ">",
            IN_CODE.source,
        ),
        Evidence(
            "static:errbar",
            "ERRBAR in the code",
            float(code.opcodes.get("ERRBAR", 0)),
            "count",
            "Error barriers: a debug build has one before each exit.",
            BARRIERS.value,
            ">",
            BARRIERS.source,
        ),
    )
    if not all(fact.holds for fact in evidence):
        return ruled_out(ID, Words.optimised, *evidence)
    return Finding(
        ID,
        Words.in_code.format(share=units.percent(code.part(*COPIES))),
        "high",
        evidence,
        None,
        (Words.no_figure, Words.others),
        language.advice(profile, Words.advice, Words.elsewhere),
        Words.look_for,
    )


def _optimised(profile: Profile, copies: float) -> Removal:
    """Without what only unoptimised code does: copies, and variables in local memory, which is
    reached by plain loads and stores too.

    A least gain: of nine builds whose optimised twin is on record it is above the gain in one, by
    three points."""
    local = figures.value(profile, "local_sectors") or 0.0
    others = (figures.value(profile, "l1_global_bytes") or 0.0) / figures.SECTOR_BYTES
    kept = others / (local + others) if local else 1.0
    left = max(0.0, 1 - copies - (figures.value(profile, "kind_share:local") or 0.0))
    return Removal(
        "without copies",
        stalls=dict.fromkeys(("long_scoreboard", "lg_throttle", "drain"), kept)
        | dict.fromkeys(("short_scoreboard", "mio_throttle"), left)
        | {"membar": 0.0},
        loads=dict.fromkeys(("l1_tag", "l1_data", "l1_writeback", "l1", "l2", "fill", "dram"), kept)
        | dict.fromkeys(PIPES, left),
        instructions=left,
        basis=Words.basis,
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.BUILD
