"""What static diagnosis works on and gives: the facts of one kernel, findings, open questions, and
the objects its rules make them from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ncu_toolkit.build.nvcc import Resources
from ncu_toolkit.hardware.occupancy import Occupancy
from ncu_toolkit.model import Comparison, Evidence, Instruction, Location
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.cost import Region
from ncu_toolkit.sass.disassembly import Function, SassInstruction
from ncu_toolkit.sass.opcodes import GLOBAL_LOADS

Certainty = Literal["certain", "likely", "possible"]
CERTAINTIES: Final[tuple[Certainty, ...]] = ("certain", "likely", "possible")


@dataclass(frozen=True)
class StaticFinding:
    """One bottleneck that the code shows. `certainty`: certain (the code says it), likely, possible
    (if this region is where the time goes)."""

    bottleneck: str
    certainty: Certainty
    summary: str
    evidence: tuple[Evidence, ...]
    advice: str
    look_for: str
    """What a profile would show if this is indeed the limit."""
    locations: tuple[Location, ...] = ()


@dataclass(frozen=True)
class Unknown:
    """Something the code leaves open, with the bottlenecks it may hide."""

    bottlenecks: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class KernelFacts:
    """What is known of one kernel without running it. None and "" where it is not known."""

    name: str
    cc: tuple[int, int]
    resources: Resources
    function: Function
    regions: tuple[Region, ...]
    occupancy: Occupancy | None = None
    dtype: str = ""
    intensity: float | None = None
    """Useful operations per compulsory byte of the problem."""
    grid_blocks: int | None = None
    sm_count: int | None = None

    @property
    def main(self) -> Region:
        return self.regions[0]

    @property
    def looped(self) -> bool:
        return self.main.depth > 0

    @property
    def warps(self) -> float | None:
        """Warps on an SM at once: by occupancy, or by the grid where it is too small to fill the
        SMs."""
        if self.occupancy is None:
            return None
        blocks: float = self.occupancy.active_blocks
        if self.grid_blocks is not None and self.sm_count:
            blocks = min(blocks, self.grid_blocks / self.sm_count)
        return blocks * self.occupancy.warps_per_block


def unknowns(facts: KernelFacts) -> tuple[Unknown, ...]:
    """What only a profile can tell of this kernel, by what its code does."""
    code = facts.function.instructions
    kinds = {attribution.kind(i.opcode) for i in code}
    found = [
        Unknown((), "How long it takes, how often its loops run, and which of its paths is taken.")
    ]
    if kinds & {"global", "copy"}:
        found.append(
            Unknown(
                ("uncoalesced-global-access",),
                "Whether the lanes of a warp touch neighbouring addresses.",
            )
        )
        found.append(
            Unknown(
                (
                    "missing-data-reuse",
                    "dram-bandwidth",
                    "l2-bandwidth",
                    "l1-bandwidth",
                    "memory-latency",
                ),
                "What hits in L1 and L2, and which level of memory is busy or late.",
            )
        )
    if "shared" in kinds:
        found.append(
            Unknown(
                ("shared-bank-conflict",), "Whether shared-memory accesses conflict in their banks."
            )
        )
    if any(i.base in ("BRA", "BSSY") and i.predicate for i in code):
        found.append(
            Unknown(
                ("warp-divergence", "load-imbalance"),
                "Whether lanes and blocks take the same path and the same time.",
            )
        )
    if any(i.base == "BAR" for region in facts.regions if region.depth for i in region.code):
        found.append(
            Unknown(
                ("barrier-imbalance",),
                "How long warps wait for each other at the barrier in the loop.",
            )
        )
    if "atomic" in kinds:
        found.append(
            Unknown(("atomic-contention",), "Whether atomic operations meet at the same addresses.")
        )
    return tuple(found)


def dependent_loads(region: Region) -> list[SassInstruction]:
    """The loop's global loads whose address comes from another of its loads, in this pass or the
    one before; none outside of loops."""
    if not region.depth:
        return []
    flow = attribution.Flow(
        [
            Instruction(n, i.address, i.sass, i.opcode, i.file, i.line)
            for n, i in enumerate(region.code)
        ]
    )
    return [
        i
        for n, i in enumerate(region.code)
        if i.base in GLOBAL_LOADS and flow.address_depends_on_load(n)
    ]


def place(region: Region) -> str:
    return "loop" if region.depth else "kernel"


def evidence(
    name: str,
    label: str,
    value: float,
    unit: str,
    meaning: str,
    threshold: float | None = None,
    comparison: Comparison = "",
) -> Evidence:
    return Evidence(f"static:{name}", label, float(value), unit, meaning, threshold, comparison)


def cycles(region: Region, unit: str, label: str) -> Evidence:
    return evidence(
        f"cycles:{unit}",
        label,
        region.cycles.get(unit, 0.0),
        "cycles",
        "Cycles of an SM for one pass of a warp, at least.",
    )


def memory(region: Region) -> Evidence:
    return evidence(
        "memory_cycles",
        "Device memory",
        region.memory_cycles,
        "cycles",
        "Cycles until a warp's requested bytes could come from device memory.",
    )


def locations(rows: Sequence[SassInstruction], what: str, count: int = 3) -> tuple[Location, ...]:
    """The source lines that hold most of `rows`, each by its first instruction."""
    lines: dict[tuple[str, int], list[SassInstruction]] = {}
    for row in rows:
        lines.setdefault((row.file, row.line), []).append(row)
    heaviest = sorted(lines.values(), key=lambda group: -len(group))[:count]
    return tuple(
        Location(
            g[0].file.replace("\\", "/").rsplit("/", 1)[-1],
            g[0].line,
            g[0].address,
            g[0].sass,
            len(g) / len(rows),
            what,
        )
        for g in heaviest
    )
