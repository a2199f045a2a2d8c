"""The lanes of a warp read different addresses of constant memory, which the constant cache serves
one after another.

What it is
The constant cache is made for broadcasts: one address for the whole warp. Each further address
among the lanes costs another request.

Why it costs time
A table in __constant__ memory indexed by the thread takes up to 32 requests for one warp's load,
while everything behind it queues.

How to confirm
The constant cache is busy for many cycles a load (LDC), and short scoreboard or MIO throttle stalls
sit at LDC and its consumers.

What to change
Put the table into shared memory or read it through the read-only path of global memory (const
__restrict__, LDG.CONSTANT). Keep __constant__ for values that all lanes read together.

When the advice is wrong
Kernel parameters are constants too, and are read as broadcasts; short kernels spend a visible share
on them without any defect.

Source
CUDA C++ Best Practices Guide, "Constant Memory"; Nsight Compute Kernel Profiling Guide, "IDC"
(indexed constant cache).
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules._roof import roof
from ncu_toolkit.diagnosis.rules._support import (
    SATURATED,
    Threshold,
    abstain,
    blame,
    fact,
    finding,
    keep,
    locate,
    locate_stall,
    missing,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.rules.unknown import command
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.model import Finding, Profile, Ruled

ID: Final = "constant-cache-divergence"
TITLE: Final = "Divergent constant-memory access"
REQUIRES: Final = ("cycles_per_constant_load",)
OPTIONAL: Final = ("stalls", "constant_cache_active")
SERIAL: Final = Threshold(
    4.0,
    "a broadcast of up to 16 bytes takes 1 to 2 cycles; 4 means that lanes are served in several turns",
)
REASONS: Final = ("short_scoreboard", "mio_throttle")


def find(profile: Profile, model: TimeModel) -> Finding | Ruled:
    if figures.executed(profile, ("constant",)) == 0:
        return ruled_out(ID, "The kernel executes no indexed constant loads.")
    if absent := missing(profile, REQUIRES):
        return _busy_alone(profile, model) or abstain(ID, absent)
    cycles = figures.value(profile, "cycles_per_constant_load") or 0.0
    measured = fact(profile, "cycles_per_constant_load", "", SERIAL, ">=")
    if cycles < SERIAL.value:
        return ruled_out(
            ID, "Constant loads are broadcasts.", measured, fact(profile, "constant_cache_active")
        )
    left = 1 / cycles
    parts = {reason: blame(profile, reason, ("constant",)) for reason in REASONS}
    removal = Removal(
        "with the table where lanes can read it in parallel",
        stalls={reason: keep(part, left) for reason, part in parts.items()},
        loads={"constant": left},
    )
    return finding(
        ID,
        f"Threads of a warp read different entries of a constant-memory table, which serves them one at a time: {units.significant(cycles)} "
        "cycles for each load.",
        model.without(removal),
        (
            measured,
            fact(profile, "constant_cache_active"),
            stall_fact(profile, "short_scoreboard"),
            stall_fact(profile, "mio_throttle"),
            fact(profile, "kind_share:constant"),
        ),
        (
            "Move the table to shared memory, or read it from global memory through a const __restrict__ pointer.",
            "Keep __constant__ memory for values that all lanes of a warp read together.",
        ),
        "LDC with a register index disappears; the constant cache is idle; short scoreboard and MIO throttle shrink.",
        locations=locate_stall(profile, "short_scoreboard", ("constant",))
        or locate_stall(profile, "mio_throttle", ("constant",))
        or locate(
            profile,
            lambda row: float(row.executed or 0) if row.opcode.startswith("LDC") else 0.0,
            "constant loads",
        ),
    )


def _busy_alone(profile: Profile, model: TimeModel) -> Finding | None:
    """Where loads were not counted: a constant cache that is nearly always busy, for broadcasts
    cannot fill it.

    A warp's LDC takes one cycle of it, and passes the load/store queue before; that pipe would then
    be as busy."""
    busy = model.busy("constant")
    if busy < SATURATED.value or model.busy("lsu") >= busy / SERIAL.value:
        return None
    return roof(
        ID,
        f"The constant cache is {units.percent(busy)} busy, with few load instructions for it: lanes that read different entries of a table in "
        "constant memory are served one at a time.",
        model,
        (
            fact(profile, "constant_cache_active", "", SATURATED, ">="),
            fact(profile, "lsu_pipe_active"),
        ),
        (f"Collect how many loads there are: {command(('SourceCounters', 'InstructionStats'))}",),
        "Cycles for each constant load.",
        good=False,
        confidence="low",
    )
