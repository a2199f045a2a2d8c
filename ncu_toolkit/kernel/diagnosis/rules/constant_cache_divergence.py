"""The lanes of a warp read different addresses of constant memory, which the constant cache serves one after another, or
walk a table that does not stay in that cache.

What it is
The constant cache is built for broadcasts of a few values: one address for the whole warp. Each further address among
the lanes costs another request, and a table larger than its 2 KB is fetched again and again.

Why it costs time
A table in __constant__ memory indexed by the thread takes up to 32 requests for one warp's load, while everything
behind it queues.

How to confirm
The constant cache is busy for many cycles per load (LDC), well above the one or two of a broadcast, and short scoreboard
or MIO throttle stalls sit at LDC and its consumers. Or warps wait for constants (IMC miss) most of their time, or a
tenth of it in code of which a third fetches constants. A busy cache alone shows nothing: broadcasts do that too.

What to change
Put the table into shared memory or read it through the read-only path of global memory (const __restrict__,
LDG.CONSTANT). Keep __constant__ for values that all lanes read together. Where a table is walked, apply each entry to
several elements of a thread.

When the advice is wrong
Kernel parameters are constants too, and are read as broadcasts; short kernels spend a visible share on them without any
defect.

Source
CUDA C++ Best Practices Guide, "Constant Memory"; Nsight Compute Kernel Profiling Guide, "IDC" (indexed constant cache)
and "IMC miss"; 2 KB: "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking" (Jia et al.).
"""

import re
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Finding, Instruction
from ncu_toolkit.kernel.diagnosis.kernel import (
    COLLECT,
    SHARED_WAITS,
    Kernel,
    Outcome,
    Removal,
    keep,
    percent,
)
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, evidence
from ncu_toolkit.kernel.diagnosis.thresholds import (
    CONSTANT_MISSES,
    RAMP,
    SATURATED,
    WEAK_STALL,
    Threshold,
)

TITLE: Final = "Slow constant-memory accesses"
LIMIT: Final = "memory"
OPTIONAL: Final = ("cycles_per_constant_load", "stalls", "constant_cache_active")
NCU: Final = (("CPIStall", "imc miss"),)
CODE_RANK: Final = 15
#: LDC with a register in its address.
INDEXED: Final = re.compile(r"c\[0x[0-9a-f]+\]\[R\d")
#: Part of the instructions from which each result has its own fetch; parameters are fetched once.
FETCHED: Final = 0.3
#: Elements of a thread to which the advice applies each constant.
ELEMENTS: Final = 4
SERIAL: Final = Threshold(4.0, "a broadcast of up to 16 bytes takes 1 to 2 cycles; 4 means that lanes are served in several turns")  # fmt: skip


def find(k: Kernel) -> Outcome:
    fetched = k.of_base("ULDC", "LDC", "LDCU") / k.total if k.total else 0.0
    least = CONSTANT_MISSES if fetched < FETCHED else WEAK_STALL
    if k.model.waiting("imc_miss") > least.value and k.model.ramp < RAMP:
        return _misses(k, fetched, least)
    if k.executed("constant") == 0:
        return k.ruled_out("The kernel executes no indexed constant loads.")
    if absent := k.missing("cycles_per_constant_load"):
        return _busy_alone(k) or k.abstain(*absent)
    cycles = k["cycles_per_constant_load"] or 0.0
    measured = k.fact("cycles_per_constant_load", ">=", SERIAL)
    if cycles < SERIAL.value:
        return k.ruled_out("Constant loads are broadcasts.", measured, "constant_cache_active")
    return k.finding(
        "Lanes of a warp read different entries of a constant-memory table. The constant cache serves them one at a "
        f"time: {units.significant(cycles)} cycles per load.",
        Removal(
            "with the table in shared or global memory",
            stalls=k.shrink(1 / cycles, ("constant",), *SHARED_WAITS),
            loads={"constant": 1 / cycles},
        ),
        (
            measured,
            "constant_cache_active stall_share:short_scoreboard stall_share:mio_throttle kind_share:constant",
        ),
        k.advice(
            "Move the table to shared memory, or read it from global memory through a const __restrict__ pointer.",
            "Keep __constant__ memory for values that all lanes of a warp read together.",
            numba=(
                "Copy the table to shared memory (cuda.shared.array), or pass it as an ordinary array.",
                "Keep cuda.const.array_like for values that all lanes of a warp read together.",
            ),
        ),
        "No LDC with a register index, an idle constant cache, fewer short scoreboard and MIO throttle stalls.",
        locations=k.locate_stall("short_scoreboard", ("constant",), _indexed)
        or k.locate_stall("mio_throttle", ("constant",), _indexed)
        or k.locate(
            lambda row: float(row.executed or 0) if _indexed(row) else 0.0, "constant loads"
        ),
    )


def _misses(k: Kernel, fetched: float, least: Threshold) -> Outcome:
    return k.finding(
        f"Warps wait {percent(k.model.waiting('imc_miss'))} of their time for constants that are not in the constant cache: "
        f"all threads walk a table that is larger than it. {percent(fetched)} of the instructions fetch constants.",
        Removal(
            f"with each constant used for {ELEMENTS} elements",
            stalls={"imc_miss": 1 / ELEMENTS},
            instructions=keep(fetched, 1 / ELEMENTS),
        ),
        (k.stall("imc_miss", least), "stall_share:wait issue_active kind_share:constant"),
        (
            "Let each thread compute several elements, and apply each constant to all of them before fetching the next one.",
            "Or copy the table to shared memory, tile by tile, or read it from global memory through a const __restrict__ pointer.",
        ),
        "Fewer constant cache misses (IMC miss), and busier issue slots.",
        confidence="high" if least is CONSTANT_MISSES else "medium",
        locations=k.locate_stall("imc_miss"),
    )


def _indexed(row: Instruction) -> bool:
    """Whether lanes can read different entries: a parameter has one address for all of them."""
    return row.base == "LDC" and INDEXED.search(row.sass) is not None


def in_code(facts: KernelFacts) -> StaticFinding | None:
    used = [i for i in facts.main.code if i.base == "LDC" and INDEXED.search(i.operands)]
    if not used:
        return None
    return facts.finding(
        "possible",
        "A register indexes constant memory. Lanes with different indices are served one after another.",
        (
            evidence("indexed_constants", "Indexed constant loads", len(used), "count", "LDC with a register in its address.", (0, ">")),
        ),
        "Index constants by a value that is the same for the whole warp, or move the table to shared memory.",
        "Many cycles per constant load, and short scoreboard stalls at LDC.",
        used, "indexed constant loads",
    )  # fmt: skip


def _busy_alone(k: Kernel) -> Finding | None:
    """Where loads were not counted: a constant cache that is busy for SERIAL cycles and more for each
    instruction of any kind, which only loads of many cycles each can do."""
    busy, issued = k.model.utilization("constant"), k.model.utilization("issue")
    if busy is None or not issued or busy < SATURATED.value:
        return None
    if busy < SERIAL.value * issued * k.device.schedulers_per_sm:
        return None
    return k.roof(
        f"The constant cache is {percent(busy)} busy although few instructions load from it. Lanes probably read "
        "different entries of a table, which are served one at a time.",
        (k.fact("constant_cache_active", ">=", SATURATED), "issue_active"),
        (f"Collect ncu-toolkit's own section set, which counts constant loads: {COLLECT}",),
        "Cycles for each constant load.",
        confidence="low",
    )
