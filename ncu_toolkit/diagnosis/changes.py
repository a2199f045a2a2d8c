"""Figures of two kernels side by side: of one launch each, or of all launches that a rung takes
together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from ncu_toolkit.diagnosis import figures
from ncu_toolkit.model import Profile


@dataclass(frozen=True)
class Change:
    """One figure before and after. `before` or `after` is None where that profile does not hold
    it."""

    name: str
    label: str
    unit: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class Launches:
    """What one rung launches for one result, in order, with the median of its unprofiled time in
    microseconds where it was timed."""

    profiles: tuple[Profile, ...]
    timed_us: float | None = None
    name: str = ""

    @property
    def main(self) -> Profile:
        """The launch that takes longest."""
        return max(self.profiles, key=lambda profile: profile.duration_us or 0.0)

    @property
    def count(self) -> int:
        """Launches for one result, repeats of one kernel included."""
        contexts = [profile.context for profile in self.profiles if profile.context]
        profiled = sum(_repeat(profile) for profile in self.profiles)
        return max([profiled, *(context.launch_count - 1 + context.repeat for context in contexts)])

    @property
    def whole(self) -> bool:
        """Whether every kernel of the rung was profiled, so that sums over the launches say
        something of the rung."""
        return (
            all(p.launch.complete for p in self.profiles)
            and sum(_repeat(profile) for profile in self.profiles) >= self.count
        )

    @property
    def profiled_us(self) -> float | None:
        """Time of all launches under the profiler, without the gaps between them; None where one is
        missing."""
        return self.total(lambda profile: profile.duration_us)

    @property
    def part(self) -> float:
        """The part of that time (0-1) that the longest launch takes by itself; 1 where it is not
        known."""
        total, own = self.profiled_us, self.main.duration_us
        return own * _repeat(self.main) / total if total and own else 1.0

    def total(self, figure: Callable[[Profile], float | None]) -> float | None:
        """A figure summed over the launches; None where a launch or its figure is missing."""
        values = [(figure(profile), _repeat(profile)) for profile in self.profiles]
        return (
            sum(value * times for value, times in values if value is not None)
            if self.whole and all(v is not None for v, _ in values)
            else None
        )


def of_all(cause: str, saved: float, part: float) -> float:
    """The fraction of a rung's time that goes with a cause of its longest launch, which saves
    `saved` of that launch and takes `part` of the whole.

    A chain of launches is judged as a whole; any other cause saves only in the launch that has it.
    """
    return saved if cause == "launch-overhead" else saved * part


def _repeat(profile: Profile) -> int:
    return profile.context.repeat if profile.context else 1


#: What a step is described by, in the order it is told. The opcode patterns are those of
#: `InstructionMix.executed`.
FIGURES: Final = (
    "registers_per_thread", "theoretical_occupancy", "achieved_occupancy", "instructions", "issue_active", "ld_sectors_per_request",
    "st_sectors_per_request", "global_sector_excess",
    "shared_conflict_excess", "shared_wavefronts", "local_sectors", "l1_global_bytes", "l2_bytes", "dram_bytes", "load_bytes_per_lane",
    "shared_load_bytes_per_lane", "shared_store_bytes_per_lane",
    "lanes_predicated_on", "fma_pipe_active", "tensor_pipe_active", "lsu_pipe_active", "dram_utilization",
)  # fmt: skip
OPCODES: Final = (
    "LDG",
    "LDG.128",
    "STG",
    "LDGSTS",
    "LDS",
    "LDS.128",
    "STS",
    "STS.128",
    "LDSM",
    "FFMA",
    "HMMA",
    "HGMMA",
    "DFMA",
    "MUFU",
    "SHFL",
    "BAR",
    "ATOMG",
    "RED",
    "LDL",
    "STL",
)
#: Those of FIGURES, beside the counts of OPCODES, that are sums over launches; all others are rates
#: and limits of one launch.
SUMS: Final = (
    "instructions",
    "shared_wavefronts",
    "local_sectors",
    "l1_global_bytes",
    "l2_bytes",
    "dram_bytes",
)


def changes(before: Profile | Launches, after: Profile | Launches) -> tuple[Change, ...]:
    """The figures of FIGURES and the counts of OPCODES on both sides, those that neither holds left
    out.

    Of several launches counts and bytes are summed (where all were profiled on both sides), and the
    rest is of the longest."""
    sides = [side if isinstance(side, Launches) else Launches((side,)) for side in (before, after)]
    whole = all(side.whole for side in sides)
    found = []
    for name in FIGURES:
        unit, label, _ = figures.describe(name)
        pair = _pair(sides, whole and name in SUMS, partial(_value, name=name))
        if pair != (None, None):
            found.append(Change(name, label, unit, *pair))
    for opcode in OPCODES:
        pair = _pair(sides, whole, partial(_executed, opcode=opcode))
        if any(pair):
            found.append(Change(opcode, f"{opcode} instructions", "count", *pair))
    return tuple(found)


def _pair(
    sides: Sequence[Launches], summed: bool, figure: Callable[[Profile], float | None]
) -> tuple[float | None, float | None]:
    before, after = (side.total(figure) if summed else figure(side.main) for side in sides)
    return before, after


def _value(profile: Profile, name: str) -> float | None:
    return figures.value(profile, name)


def _executed(profile: Profile, opcode: str) -> float | None:
    return float(profile.mix.executed(opcode)) if profile.mix.collected else None
