"""The code was compiled for a debugger (nvcc -G), without optimisation.

What it is
With -G the compiler keeps every variable where a debugger finds it. It moves values between
registers at each step, inlines nothing, unrolls nothing, and fuses nothing.

Why it costs time
Most instructions only move values, and every small function is a call. Kernels take several times
as long as optimised ones, and wait for other things than those do.

How to confirm
More than 30% of the executed instructions are MOV, and warps run ERRBAR: with -G each warp ends
with a memory barrier and an error barrier. `cuobjdump -sass` shows the same.

What to change
Compile without -G: with -lineinfo the profile still names source lines. In Numba that is
`@cuda.jit(lineinfo=True)` without `debug=True`, in CMake a Release build. Then profile again.

When the advice is wrong
When you study the debug build itself. All other findings on such a launch hold
for this build alone.

Source
CUDA Compiler Driver NVCC, "--device-debug (-G)": "turns off all optimizations on device code".
Shares: nvcc 13.0 -G for CC 7.5 to 9.0 gives 49 to 60% MOV and an ERRBAR before each EXIT; of 858
optimised launches none has both, and the highest share of MOV is 30%, in a kernel without ERRBAR.
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import Specificity
from ncu_toolkit.diagnosis.rules._support import Threshold, ruled_out
from ncu_toolkit.diagnosis.time_model import TimeModel
from ncu_toolkit.model import Evidence, Finding, NoFinding, Profile
from ncu_toolkit.sass import attribution

ID: Final = "debug-build"
TITLE: Final = "Debug build"
LIMIT: Final = "compute"
REQUIRES: Final = ("opcodes",)
OPTIONAL: Final = ()
MOVES: Final = Threshold(
    0.3, "debug builds of nvcc 13.0 have 49% and more, optimised kernels on record 30% at most"
)
BARRIERS: Final = Threshold(0.0, "optimised code has an ERRBAR only behind a memory fence")


class Words:
    optimised = "The code was compiled with optimisation."
    found = (
        "The kernel was compiled for a debugger (-G), without optimisation. {share} of the executed instructions only copy "
        "registers."
    )
    no_figure = (
        "No estimate. Only a profile of the optimised code can show the gain.",
        "The other findings apply only to this debug build.",
    )
    advice = (
        "Compile without -G (CMake: a Release build, Numba: no debug=True). Then profile again before any other change.",
        "Use -lineinfo for source lines in the profile. It costs no time.",
    )
    look_for = "Hardly any MOV and ERRBAR among the executed instructions."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    counts: dict[str, float] = {}
    for row in figures.rows(profile):
        name = attribution.base(row.opcode)
        counts[name] = counts.get(name, 0.0) + row.warps
    share = counts.get("MOV", 0.0) / sum(counts.values()) if counts else 0.0
    evidence = (
        Evidence(
            "mov_share",
            "Executed MOV",
            share,
            "fraction",
            "Part of the executed instructions that copy one register to another.",
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
    return Finding(
        ID,
        Words.found.format(share=units.percent(share)),
        "high",
        evidence,
        None,
        Words.no_figure,
        Words.advice,
        Words.look_for,
    )


def specificity(finding: Finding) -> Specificity:
    return Specificity.BUILD
