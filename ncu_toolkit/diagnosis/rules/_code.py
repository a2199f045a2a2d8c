"""What rules tell from code alone: the facts of one kernel, the finding they make of them, and what
several rules ask of the code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ncu_toolkit.core.cache import remembered
from ncu_toolkit.hardware.specs import Occupancy
from ncu_toolkit.model import Comparison, Evidence, Location
from ncu_toolkit.sass import attribution
from ncu_toolkit.sass.opcodes import GLOBAL_LOADS, CodeRow

if TYPE_CHECKING:  # Nsight Compute's Python, which runs the rules, cannot start processes
    from ncu_toolkit.build.nvcc import Resources
    from ncu_toolkit.sass.cost import Region
    from ncu_toolkit.sass.opcodes import Function, SassInstruction

Certainty = Literal["certain", "likely", "possible"]
CERTAINTIES: Final[tuple[Certainty, ...]] = ("certain", "likely", "possible")
FP32_BALANCE: Final = 10.0
"""FP32 operations for each byte of device memory that current GPUs can do (10 to 15 by data
sheets)."""


@dataclass(frozen=True)
class StaticFinding:
    """One bottleneck that the code shows. `certainty`: certain (the code says it), likely, possible
    (if this region is where the time goes). No speedup is predicted: the code does not say how often
    a loop runs or what its warps wait for."""

    bottleneck: str
    certainty: Certainty
    summary: str
    evidence: tuple[Evidence, ...]
    advice: str
    look_for: str
    """What a profile would show if this is indeed the limit."""
    locations: tuple[Location, ...] = ()


@dataclass(frozen=True)
class OpenQuestion:
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
    rule: str = ""
    """Which rule asks: the id that its finding bears."""

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

    @property
    def waves(self) -> float | None:
        """Blocks of the grid over those that fit on the GPU at once."""
        if not (self.occupancy and self.occupancy.active_blocks and self.sm_count):
            return None
        if self.grid_blocks is None:
            return None
        return self.occupancy.waves(self.grid_blocks, self.sm_count)

    def finding(
        self,
        certainty: Certainty,
        summary: str,
        evidence: tuple[Evidence, ...],
        advice: str,
        look_for: str,
        rows: Sequence[SassInstruction] = (),
        what: str = "",
    ) -> StaticFinding:
        """What the code shows, at the lines that hold most of `rows`, which are called `what`."""
        places = locations(rows, what)
        return StaticFinding(self.rule, certainty, summary, evidence, advice, look_for, places)

    def has(self, *kinds: str) -> bool:
        """Whether the code holds an instruction of one of `kinds`."""
        return any(attribution.kind(i.opcode) in kinds for i in self.function.instructions)


def memory_levels(facts: KernelFacts) -> str:
    """Left open of each level of memory."""
    levels = "The hit rates of L1 and L2, and which memory level is busy or late."
    return levels if facts.has("global", "copy") else ""


def paths(facts: KernelFacts) -> str:
    """Left open of lanes and blocks that branches can part."""
    parted = any(i.base in ("BRA", "BSSY") and i.predicate for i in facts.function.instructions)
    return "Whether lanes take the same path, and blocks the same time." if parted else ""


@remembered(1)
def dependent_loads(region: Region) -> list[SassInstruction]:
    """The loop's global loads whose address comes from another of its loads, in this pass or the
    one before; none outside of loops."""
    if not region.depth or not any(i.base in GLOBAL_LOADS for i in region.code):
        return []
    flow = attribution.Flow(tuple(CodeRow(i.address, i.opcode, i.sass) for i in region.code))
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
    meaning = "At least this many SM cycles for one pass of a warp."
    return evidence(f"cycles:{unit}", label, region.cycles.get(unit, 0.0), "cycles", meaning)


def memory(region: Region) -> Evidence:
    meaning = "Cycles that device memory takes at least to deliver a warp's requested bytes."
    return evidence("memory_cycles", "Device memory", region.memory_cycles, "cycles", meaning)


def grid(facts: KernelFacts) -> tuple[Evidence, ...]:
    """Waves and blocks of the launch; both must be known."""
    meaning = "Blocks of the grid over those that fit on the GPU at once."
    return (
        evidence("waves", "Waves", facts.waves or 0.0, "", meaning),
        evidence("blocks", "Blocks", facts.grid_blocks or 0, "count", "Of the grid."),
    )


def locations(rows: Sequence[SassInstruction], what: str) -> tuple[Location, ...]:
    """The three source lines that hold most of `rows`, each by its first instruction."""
    lines: dict[tuple[str, int], list[SassInstruction]] = {}
    for row in rows:
        lines.setdefault((row.file, row.line), []).append(row)
    heaviest = sorted(lines.values(), key=lambda group: -len(group))[:3]
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
