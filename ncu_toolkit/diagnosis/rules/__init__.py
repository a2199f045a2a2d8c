"""The rules: the bottlenecks of a kernel, one module each in this folder, and the causes of a step,
one module each in `program_rules`. A module's docstring is its reference page and its constants
declare what others ask about it (`Rule`); `find` decides whether a profile shows the bottleneck,
`in_code` whether code alone does.

Everything is discovered: a new module in a folder is a new bottleneck or cause. Module names are
ids with underscores, and no other file names an id."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from ncu_toolkit.diagnosis.kernel import Elsewhere, Kernel
from ncu_toolkit.model import Finding, NoFinding

if TYPE_CHECKING:
    from ncu_toolkit.diagnosis.program_rules._facts import StepFacts
    from ncu_toolkit.diagnosis.rules._code import KernelFacts, StaticFinding
    from ncu_toolkit.model.program import StepFinding

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
    """What a rule module declares. ID, TITLE, REQUIRES, OPTIONAL and `find` are its own; of the rest
    it declares what differs from the values here."""

    ID: str
    TITLE: str
    REQUIRES: tuple[str, ...]
    """Names without which the engine does not ask it."""
    OPTIONAL: tuple[str, ...]
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


class StepRule(Protocol):
    """What a rule of the step declares."""

    ID: str
    TITLE: str

    def find(self, s: StepFacts) -> StepFinding | NoFinding: ...


_DECLARED: Final = (
    "NCU", "ROOF", "UNITS", "COUNTERS", "WAITS", "FROM_SHAPE", "CONFIRMED_BY", "WHOLE_JOB",
    "LIMIT", "CODE_RANK", "CALL", "specificity", "in_code", "open_in_code",
)  # fmt: skip


@lru_cache(maxsize=1)
def bottleneck_ids() -> tuple[str, ...]:
    """Every bottleneck id, sorted, from the file names alone."""
    return tuple(_ids("rules"))


def _ids(folder: str) -> list[str]:
    found = pkgutil.iter_modules([str(Path(__file__).parent.parent / folder)])
    names = (each.name for each in found if each.name not in _NOT_RULES)
    return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))


def _module(folder: str, name: str) -> ModuleType:
    return importlib.import_module(f"ncu_toolkit.diagnosis.{folder}.{name.replace('-', '_')}")


@lru_cache(maxsize=1)
def load_rules() -> dict[str, Rule]:
    """Rule modules by bottleneck id, with the values of `Rule` for what they do not declare."""
    rules = {}
    for name in bottleneck_ids():
        module = _module("rules", name)
        for attribute in _DECLARED:
            vars(module).setdefault(attribute, getattr(Rule, attribute))
        rules[name] = cast(Rule, module)
    return rules


@lru_cache(maxsize=1)
def step_rules() -> dict[str, StepRule]:
    """Rules of the step by id."""
    return {name: cast(StepRule, _module("program_rules", name)) for name in _ids("program_rules")}


def title(bottleneck: str) -> str:
    """A bottleneck's name in words; an id that does not exist as it is."""
    rules = load_rules()
    return rules[bottleneck].TITLE if bottleneck in rules else bottleneck
