"""Lanes of a warp hit the same shared-memory bank at different addresses, so one access is done in several wavefronts.

What it is
Shared memory has 32 banks of 4 bytes. A warp's access takes one wavefront (a pass through the banks) when its lanes use
different banks or the same word; n lanes on different words of one bank take n. Wide accesses (8 or 16 bytes per lane)
take 2 or 4 wavefronts at best.

Why it costs time
Wavefronts go through the one data stage that shared memory and L1 have in common, one per cycle. Extra ones delay the
results (short scoreboard), and the instruction queue behind them fills (MIO throttle).

How to confirm
Wavefronts beyond the ideal at particular shared loads or stores. The aggregate conflict counter also counts
arbitration: compare the wavefronts of each instruction with its ideal.

What to change
Change which lane touches what, so that neighbouring lanes touch neighbouring words. Where lanes must walk down a
column, each in its own row, pad the rows of the tile by one element (or by the vector width), or swizzle the column
with the row by XOR, so that the walk touches all banks.

When the advice is wrong
When shared memory is not what the warps wait for, conflicts cost nothing. Padding and XOR move a row as a whole: they
do not help lanes that collide within one row. A pad can cost occupancy or break 16-byte alignment; a swizzle does not.

Source
CUDA C++ Programming Guide, "Shared Memory" (banks); Nsight Compute Kernel Profiling Guide, "Shared Memory" table
(wavefronts and their ideal).
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.figures import WARP
from ncu_toolkit.kernel.diagnosis.kernel import (
    SHARED_WAITS,
    Kernel,
    Outcome,
    Removal,
    at,
    capital,
    keep,
)
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts, StaticFinding, _addresses, evidence
from ncu_toolkit.kernel.diagnosis.rules._launch import (
    WORD,
    atomic_wavefronts,
    shared_wavefront_part,
)
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.opcodes import kind

TITLE: Final = "Shared-memory bank conflicts"
LIMIT: Final = "memory"
FILLS_L1: Final = (True, True)
REQUIRES: Final = ("shared_conflict_excess",)
OPTIONAL: Final = ("stalls", "l1_data_active", "shared_wavefronts")
COSTS: Final = (("shared",), SHARED_WAITS)
NCU: Final = (
    ("UncoalescedSharedAccess", ""), ("SharedMemoryConflicts", ""), ("CPIStall", "mio throttle"), ("CPIStall", "short scoreboard"),
)  # fmt: skip
CODE_RANK: Final = 0
EXCESS: Final = Threshold(0.1, "Nsight Compute's SharedMemoryConflicts rule: conflicts above 10% of the wavefronts")  # fmt: skip
IN_CODE: Final = Threshold(1 / 3, "as _launch.COALESCED: the code does not show how much of the time goes to shared memory")  # fmt: skip


def find(k: Kernel) -> Outcome:
    excess = k["shared_conflict_excess"] or 0.0
    meaning = "Wavefronts that a conflict-free layout would avoid."
    measured = k.fact("shared_conflict_excess", ">", EXCESS, meaning)
    if excess <= EXCESS.value:
        reason = "Shared memory accesses take close to the fewest wavefronts possible."
        return k.ruled_out(reason, measured)
    left = 1 - excess
    shared = ("shared",)
    data = keep(shared_wavefront_part(k) * (1 - atomic_wavefronts(k)[0]), left)
    removal = Removal(
        "without bank conflicts",
        stalls={
            reason: keep(k.blame(reason, *shared), left)
            for reason in ("short_scoreboard", "mio_throttle")
        },
        loads={"l1_data": data, "l1": data, "l1_writeback": data},
    )
    ways = 1 / left
    places = k.locate(
        lambda row: (
            row.counters.get("shared_wavefronts", 0.0)
            - row.counters.get("shared_wavefronts_ideal", 0.0)
        ),
        "the wavefronts beyond the conflict-free minimum",
    )
    return k.finding(
        f"Lanes of a warp hit the same shared-memory banks: accesses take {units.ratio(ways)} as many wavefronts as without conflicts.",
        removal,
        (
            measured,
            "shared_wavefronts l1_data_active stall_share:short_scoreboard stall_share:mio_throttle",
        ),
        k.advice(
            *_advice(k),
            triton=(
                "Triton lays out shared memory itself. Try another block shape or num_warps, which change the layout.",
                "Load operands in the order in which tl.dot reads them, so that no transposition passes through shared memory."
                if k.executed("tensor") != 0
                else "Where tl.sum or tl.max runs in a loop, keep a block of partial results and reduce it once after the loop.",
            ),
        ),
        f"No wavefronts beyond the conflict-free minimum{at(places)}, fewer short scoreboard and MIO throttle stalls.",
        confidence="high"
        if any("shared_wavefronts_ideal" in row.counters for row in k.instructions)
        else "medium",
        locations=places,
    )


def in_code(facts: KernelFacts) -> StaticFinding | None:
    found = _addresses.wasteful(facts, shared=True, tolerated=1.0)
    if found is None or found.excess <= IN_CODE.value:
        return None
    row, worst = found.rows[0], found.accesses[0]
    passes, least = worst.wavefronts or 0.0, worst.least_wavefronts
    sizes = {n: attribution.width(i.opcode) for n, i in enumerate(facts.function.instructions)}
    rows = _addresses.layout(_addresses.in_code(facts), sizes, worst)
    words = _addresses.apart(worst)
    return facts.finding(
        "certain" if facts.block else "likely",
        f"Lanes of a warp hit the same banks: {row.base} takes {units.significant(passes)} wavefronts per request where "
        f"{units.significant(least)} would do{words and f' ({words})'}.",
        (
            evidence("wavefronts", "Wavefronts per request", passes, "", "At the access with most conflicts.", (least, ">")),
            evidence("wavefront_excess", "Excess wavefronts", found.excess, "fraction",
                     "Share of the wavefronts of accesses whose addresses are known.", (IN_CODE.value, ">")),
        ),
        f"{capital(rows)}." if rows else "Let neighbouring lanes access neighbouring words, pad the rows of the tile, or XOR column and row index.",
        "Wavefronts beyond the ideal at these lines, and short scoreboard or MIO throttle stalls.",
        found.rows, "shared accesses with conflicts",
    )  # fmt: skip


def open_in_code(facts: KernelFacts) -> str:
    left = any(
        access.stopped and kind(facts.function.instructions[n].opcode) == "shared"
        for n, access in _addresses.in_code(facts).items()
    )
    return "Whether shared-memory accesses have bank conflicts." if left else ""


def _advice(k: Kernel) -> tuple[str, ...]:
    """What to try, the likelier first: lanes that all meet in one bank lie whole rows apart, those
    that meet in a few lie apart within a row."""
    lanes = (
        "Let neighbouring lanes access neighbouring words. For example, give each thread two groups of four floats far "
        "apart instead of eight in a row."
    )
    rows = (
        "If each lane reads another row of the tile, pad the rows by one element (four floats for float4), or XOR column "
        "and row index. Padding does not help lanes in the same row."
    )
    return (rows, lanes) if _whole_rows(k) else (lanes, rows)


#: Of the most passes that an access can take, from where all its lanes count as meeting in one
#: bank: a tenth for warps that are not full.
ALL: Final = 0.9


def _whole_rows(k: Kernel) -> bool:
    """Whether most passes beyond the ideal are of accesses all of whose lanes meet in one bank, as
    those do that lie a multiple of 32 words apart."""
    total = worst = 0.0
    for row in figures.placed(k.profile):
        passes = row.counters.get("shared_wavefronts", 0.0)
        ideal = row.counters.get("shared_wavefronts_ideal", 0.0)
        if passes > ideal > 0:
            total += passes - ideal
            # An access of 4 bytes a lane takes up to 32 passes for one, one of 16 bytes up to 32
            # for four.
            worst += (passes - ideal) * (
                passes / ideal >= ALL * WARP * WORD / max(WORD, attribution.width(row.opcode))
            )
    return worst > total / 2
