"""The rules: the bottlenecks of a kernel, one module each in this folder; the causes of a step are
alike (`program/rules`). A module's docstring is its reference page and its constants
declare what others ask about it (`Rule`); `find` decides whether a profile shows the bottleneck,
`in_code` whether code alone does: from the facts of one kernel (`KernelFacts`), with what several rules
ask of the code.

Everything is discovered: a new module in the folder is a new bottleneck. Module names are
ids with underscores, and no other file names an id."""

from __future__ import annotations

import importlib
import ntpath
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.hardware.specs import Occupancy
from ncu_toolkit.base.model import Comparison, Evidence, Finding, Location, NoFinding
from ncu_toolkit.kernel.diagnosis.kernel import Elsewhere, Kernel
from ncu_toolkit.kernel.sass import attribution
from ncu_toolkit.kernel.sass.branches import targets_of
from ncu_toolkit.kernel.sass.opcodes import GLOBAL_LOADS, CodeRow

if TYPE_CHECKING:
    from ncu_toolkit.base.model.profile import Extents
    from ncu_toolkit.kernel.build.nvcc import Resources
    from ncu_toolkit.kernel.sass.cost import Region
    from ncu_toolkit.kernel.sass.opcodes import Function, SassInstruction

_NOT_RULES: Final = ("reference",)


class Specificity(IntEnum):
    """Which of two findings goes first where both would save about as much: the lower one."""

    BUILD = 0
    """All other findings hold for this build alone: it goes first, whatever it saves."""
    CHANGE = 1
    """It says what to change."""
    WARPS = 2
    """More warps: one way among others to cover waiting, which leaves the code as it is."""
    SYMPTOM = 3
    """It names what the warps feel."""
    SHADOW = 4
    """It may only mirror what another finding names."""

    def always(self, finding: Finding) -> Specificity:
        """As `Rule.specificity` of a rule whose findings are all so specific."""
        return self


@dataclass(frozen=True)
class Roof:
    """A unit at work, which a change can use better but not remove: its words, the figure of how
    busy it is ("" for none), and what must be needed for the verdict to be good."""

    words: str
    figure: str
    rests_on: Literal["bytes", "flops"]


class Rule(Protocol):
    """What a rule module declares. TITLE and `find` are its own, ID comes from the file's name; of
    the rest it declares what differs from the values here."""

    ID: str
    TITLE: str
    REQUIRES: tuple[str, ...] = ()
    """Names without which the engine does not ask it."""
    OPTIONAL: tuple[str, ...] = ()
    """Names that make it surer."""
    NCU: tuple[tuple[str, str], ...] = ()
    """Nsight Compute's rules that can mean this bottleneck, each with a word of its title or text,
    "" where the rule needs none. Generous: a stall counts for every cause that shows as it."""
    ROOF: Roof | None = None
    UNITS: tuple[str, ...] = ()
    """Resources of the time model whose roof goes by this bottleneck."""
    COUNTERS: Mapping[str, str] = {}
    """Figures of units that are no resource of the time model, with the unit's words."""
    WAITS: Mapping[str, str] = {}
    """Stall reasons that show as this bottleneck where nothing else explains a launch, with the
    kind of instruction that must cause most of the stall ("" for any)."""
    FROM_SHAPE: bool = False
    """Whether the launch's shape and the SMs' times tell it, without what warps wait for."""
    CONFIRMED_BY: tuple[str, ...] = ("stalls",)
    """What a report must hold beside REQUIRES for a finding to be as sure as the rule says: each of
    these that is missing makes it one step less sure. Nothing where the evidence shows the cause itself."""
    COSTS: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Kinds of instructions (none for any) and stall reasons of the waiting that it can take: what it
    could save at most in a report that lacks the counters to judge it. Kinds alone are those of a
    unit that may be full where any executes."""
    FILLS_L1: tuple[bool, bool] | None = None
    """What of L1 shows it where nothing else does (_launch.fills_l1): whether requests are to shared memory,
    and whether their lanes lie apart."""
    WHOLE_CAUSE: bool = False
    """Whether its removal leaves nothing of the cause, so that units keep the work it leaves them."""
    WHOLE_JOB: bool = False
    """Whether its saving is of all launches that share a job, not of the launch that has it."""
    LIMIT: Literal["memory", "compute", "latency"] = "latency"
    """The class that a rule of two thresholds can tell: a busy memory system, busy arithmetic, or
    neither."""
    CODE_RANK: int = 99
    """Place of its finding in code among those of the same certainty."""
    CALL: Elsewhere = MappingProxyType({})
    """What to change about the call, by who made the kernel, where that was not the reader; what
    `language.call` says of all others."""
    __doc__: str | None

    def find(self, k: Kernel) -> Finding | NoFinding: ...

    @staticmethod
    def specificity(finding: Finding) -> Specificity:
        """How specific a finding of this rule is."""
        return Specificity.CHANGE

    @staticmethod
    def in_code(facts: KernelFacts) -> StaticFinding | None:
        """What the code alone shows of it; None for nothing."""
        return None

    @staticmethod
    def open_in_code(facts: KernelFacts) -> str:
        """What this kernel's code leaves open about it, a sentence; "" for nothing."""
        return ""


_DECLARED: Final = (
    "REQUIRES", "OPTIONAL", "NCU", "ROOF", "UNITS", "COUNTERS", "WAITS", "FROM_SHAPE", "CONFIRMED_BY", "COSTS", "FILLS_L1", "WHOLE_CAUSE",
    "WHOLE_JOB", "LIMIT", "CODE_RANK", "CALL", "specificity", "in_code", "open_in_code",
)  # fmt: skip


@lru_cache(maxsize=1)
def bottleneck_ids() -> tuple[str, ...]:
    """Every bottleneck id, sorted, from the file names alone."""
    return tuple(_ids(__name__))


def rules_of(package: str) -> dict[str, ModuleType]:
    """The rule modules of a package by id, sorted; none where it is not installed."""
    return {
        name: importlib.import_module(f"{package}.{name.replace('-', '_')}")
        for name in _ids(package)
    }


def _ids(package: str) -> list[str]:
    folder = PACKAGE.joinpath(*package.split(".")[1:])
    names = (each.name for each in pkgutil.iter_modules([str(folder)]))
    return sorted(
        name.replace("_", "-")
        for name in names
        if not name.startswith("_") and name not in _NOT_RULES
    )


@lru_cache(maxsize=1)
def load_rules() -> dict[str, Rule]:
    """Rule modules by bottleneck id, with the values of `Rule` for what they do not declare."""
    rules = {}
    for name, module in rules_of(__name__).items():
        vars(module)["ID"] = name
        for attribute in _DECLARED:
            vars(module).setdefault(attribute, getattr(Rule, attribute))
        rules[name] = cast(Rule, module)
    return rules


def title(bottleneck: str) -> str:
    """A bottleneck's name in words; an id that does not exist as it is."""
    rules = load_rules()
    return rules[bottleneck].TITLE if bottleneck in rules else bottleneck


Certainty = Literal["certain", "likely", "possible"]
CERTAINTIES: Final[tuple[Certainty, ...]] = ("certain", "likely", "possible")
Bound = tuple[()] | tuple[float, Comparison]
"""A value that evidence lies above or below, and how."""
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
    block: Extents | None = None
    grid: Extents | None = None
    rule: str = ""
    """Which rule asks: the id of its finding."""

    @property
    def main(self) -> Region:
        return self.regions[0]

    @property
    def looped(self) -> bool:
        return self.main.depth > 0

    @property
    def warps(self) -> float | None:
        """Warps on an SM at once: by occupancy, or by the grid where it is too small to fill the SMs."""
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
def dependent_loads_in(region: Region) -> list[SassInstruction]:
    """The loop's global loads whose address comes from another of its loads, in this pass or the
    one before; none outside of loops."""
    if not region.depth or not any(i.base in GLOBAL_LOADS for i in region.code):
        return []
    rows = tuple(CodeRow(i.address, i.opcode, i.sass) for i in region.code)
    flow = attribution.Flow(rows, targets_of(rows))
    return [
        i
        for n, i in enumerate(region.code)
        if i.base in GLOBAL_LOADS and flow.address_depends_on_load(n)
    ]


def place(region: Region) -> str:
    return "loop" if region.depth else "kernel"


def evidence(
    name: str, label: str, value: float, unit: str, meaning: str, bound: Bound = ()
) -> Evidence:
    return Evidence(f"static:{name}", label, float(value), unit, meaning, *bound)


def cycles(region: Region, unit: str, label: str) -> Evidence:
    meaning = "At least this many SM cycles for one warp to run it once."
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
    """The three source lines that hold most of `rows`, each by its first instruction, or the
    opcode of several alike."""
    lines: dict[tuple[str, int], list[SassInstruction]] = {}
    for row in rows:
        lines.setdefault((row.file, row.line), []).append(row)
    heaviest = sorted(lines.values(), key=lambda group: -len(group))[:3]
    places = []
    for first, *more in heaviest:
        alike = more and {row.opcode for row in more} == {first.opcode}
        name, sass = ntpath.basename(first.file), first.opcode if alike else first.sass
        share = (1 + len(more)) / len(rows)
        places.append(Location(name, first.line, first.address, sass, share, what))
    return tuple(places)
