"""Two profiles side by side: what differs, and which change explains the difference in time, in
parts that add up.

The time of a launch is a product (Little's law on one scheduler): instructions x cycles an
instruction / warps / busy part of the time / clock. The logarithm of the ratio of two times is then
the sum of the logarithms of the factors' ratios, and each factor gets its part of the difference in
proportion (the additive logarithmic mean Divisia index of energy accounting: Ang, "Decomposition
analysis for policymaking in energy"). The cycles per instruction are split further among the stall
reasons that make them up."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Profile, Timing
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.rules import load_rules


@dataclass(frozen=True)
class Change:
    """One figure before and after. `before` or `after` is None where that side does not hold it."""

    name: str
    label: str
    unit: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before and self.after is not None else None

    @property
    def moved(self) -> float:
        """After less before; what a side does not hold counts as zero."""
        return (self.after or 0.0) - (self.before or 0.0)


@dataclass(frozen=True)
class Launches:
    """What one rung launches for one result, in order, with its unprofiled timing where there is one."""

    profiles: tuple[Profile, ...] = ()
    timing: Timing | None = None
    name: str = ""

    @property
    def timed_us(self) -> float | None:
        """The median of the unprofiled times."""
        return self.timing.median_us if self.timing else None

    @property
    def main(self) -> Profile:
        """The launch that takes longest. Raises ValueError where none was profiled."""
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
    """The fraction of a rung's time that goes with a cause of its longest launch, which saves `saved` of
    that launch and takes `part` of the whole.

    A chain of launches is judged as a whole; any other cause saves only in the launch that has it."""
    rule = load_rules().get(cause)
    return saved if rule and rule.WHOLE_JOB else saved * part


def _repeat(profile: Profile) -> int:
    return profile.context.repeat if profile.context else 1


@dataclass(frozen=True)
class TimeCause:
    """A cause's part of the difference in time, in microseconds: negative where it made the second
    launch faster."""

    name: str
    label: str
    microseconds: float
    before: float | None = None
    after: float | None = None
    unit: str = ""
    factor: float = 1.0
    """What it multiplies the time by. The factors of all causes, the residual included, multiply to
    after over before; a part in microseconds may exceed the whole time where others offset it."""


#: A difference in clock beyond this changes times as much as the profiler's own repeats do.
CLOCK: Final = 0.02


def attribute(before: Profile, after: Profile) -> list[TimeCause]:
    """The difference in time by cause, in microseconds, largest first and the residual last; empty where
    a time is missing.

    Factors that either profile lacks are left out, and what they would explain is in the residual."""
    t0, t1 = before.duration_us, after.duration_us
    if not t0 or not t1:
        return []
    scale = t0 if t0 == t1 else (t1 - t0) / math.log(t1 / t0)
    causes: list[TimeCause] = []
    for name, label, unit, sign, figure in _FACTORS:
        old, new = figure(before), figure(after)
        if not old or not new:
            continue
        whole = TimeCause(name, label, scale * sign * math.log(new / old), old, new, unit)
        causes += _by_stall(before, after, whole) if name == "latency" else [whole]
    causes.sort(key=lambda cause: -abs(cause.microseconds))
    explained = sum(cause.microseconds for cause in causes)
    causes.append(TimeCause("residual", "unexplained", t1 - t0 - explained))
    return [replace(cause, factor=math.exp(cause.microseconds / scale)) for cause in causes]


def _instructions_per_scheduler(profile: Profile) -> float | None:
    total, sms = profile.value("instructions"), profile.device.sm_count
    return total / sms / profile.device.schedulers_per_sm if total and sms else None


#: (name, label, unit, whether time grows or falls with it, value) of each factor of the time.
_FACTORS: Final[tuple[tuple[str, str, str, int, Callable[[Profile], float | None]], ...]] = (
    ("instructions", "instructions per scheduler", "count", 1, _instructions_per_scheduler),
    ("latency", "cycles per instruction of a warp", "cycles/inst", 1, lambda p: p.stalls.total if p.stalls is not None else p.value("warp_latency")),
    ("warps", "active warps per scheduler", "warps", -1, lambda p: p.value("active_warps")),
    ("busy", "share of the time in which SMs had work", "fraction", -1, lambda p: figures.value(p, "active_fraction")),
    ("clock", "SM clock", "Hz", -1, lambda p: p.value("sm_clock")),
)  # fmt: skip


def _by_stall(before: Profile, after: Profile, whole: TimeCause) -> list[TimeCause]:
    """Split the latency's part among stall reasons, in proportion to how far each one's cycles an
    instruction moved."""
    if before.stalls is None or after.stalls is None:
        return [whole]
    moved = stall_cycles(before, after)
    total = sum(each.moved for each in moved)
    if not total or sum(abs(each.moved) for each in moved) > 10 * abs(total):
        # Reasons that cancel would each get a huge part of a small difference.
        return [whole]
    return [
        TimeCause(
            each.name,
            f"waiting: {each.name.removeprefix('stall_').replace('_', ' ')}",
            whole.microseconds * each.moved / total,
            each.before,
            each.after,
            each.unit,
        )
        for each in moved
        if each.moved
    ]


def comparability(before: Profile, after: Profile) -> list[str]:
    """Reasons why a difference between the two may not come from the kernels."""
    found = [
        f"The {which} launch is {profile.launch.status}."
        for profile, which in ((before, "first"), (after, "second"))
        if not profile.launch.complete
    ]
    a, b = before.device, after.device
    if (a.name, a.cc, a.sm_count) != (b.name, b.cc, b.sm_count):
        gpus = [f"{x.name} ({x.arch}{f', {x.sm_count} SMs' if x.sm_count else ''})" for x in (a, b)]
        found.append(f"Different GPUs: {' and '.join(gpus)}.")
    for name, label in (("sm_clock", "SM"), ("dram_clock", "memory")):
        first, second = before.value(name), after.value(name)
        if first and second and abs(second / first - 1) > CLOCK:
            clocks = f"{units.si(first, 'Hz')} and {units.si(second, 'Hz')}"
            found.append(f"The {label} clock differs: {clocks}.")
    versions = [side.origin.ncu_version or "unknown" for side in (before, after)]
    if versions[0] != versions[1]:
        found.append(f"Different versions of ncu: {versions[0]} and {versions[1]}.")
    one, other = before.context, after.context
    if one and other:
        for field, label in (("family", "families"), ("size", "sizes"), ("dtype", "types")):
            if getattr(one, field) != getattr(other, field):
                found.append(
                    f"Different {label}: {getattr(one, field)} and {getattr(other, field)}."
                )
        if one.launch_count != other.launch_count:
            found.append(
                f"One of {one.launch_count} launches is compared with one of {other.launch_count}. Compare their sums."
            )
    return found


#: What a step is described by, in that order. The opcode patterns are those of
#: `InstructionMix.executed`.
FIGURES: Final = (
    "registers_per_thread", "theoretical_occupancy", "achieved_occupancy", "instructions", "issue_active", "ld_sectors_per_request",
    "st_sectors_per_request", "global_sector_excess",
    "shared_conflict_excess", "shared_wavefronts", "local_sectors", "l1_global_bytes", "l2_bytes", "dram_bytes", "load_bytes_per_lane",
    "shared_load_bytes_per_lane", "shared_store_bytes_per_lane",
    "lanes_predicated_on", "fma_pipe_active", "tensor_pipe_active", "lsu_pipe_active", "dram_utilization",
)  # fmt: skip
OPCODES: Final = (
    "LDG", "LDG.128", "STG", "LDGSTS", "LDS", "LDS.128", "STS", "STS.128", "LDSM", "FFMA", "HMMA",
    "HGMMA", "DFMA", "MUFU", "SHFL", "BAR", "ATOMG", "RED", "LDL", "STL",
)  # fmt: skip
#: Those of FIGURES, beside the counts of OPCODES, that are sums over launches; all others are rates
#: and limits of one launch.
SUMS: Final = (
    "instructions", "shared_wavefronts", "local_sectors", "l1_global_bytes", "l2_bytes",
    "dram_bytes",
)  # fmt: skip


def changes(
    before: Profile | Launches,
    after: Profile | Launches,
    names: Iterable[str] = (*FIGURES, *OPCODES),
) -> list[Change]:
    """Figures, and counts of OPCODES, on both sides; those that neither holds are left out.

    Of several launches counts and bytes are summed (where all were profiled on both sides), and the
    rest is of the longest."""
    sides = [side if isinstance(side, Launches) else Launches((side,)) for side in (before, after)]
    whole = all(side.whole for side in sides)
    found = []
    bare = any(side.main.launch.shared == 0 for side in sides)  # ncu counts wavefronts there too
    for name in (each for each in names if not (bare and each == "shared_wavefronts")):
        opcode, figure = name in OPCODES, _figure(name)
        old, new = (
            side.total(figure) if whole and (opcode or name in SUMS) else figure(side.main)
            for side in sides
        )
        if old or new or ((old, new) != (None, None) and not opcode):
            unit, label = (
                ("count", f"{name} instructions") if opcode else figures.describe(name)[:2]
            )
            found.append(Change(name, label, unit, old, new))
    return found


def _figure(name: str) -> Callable[[Profile], float | None]:
    if name in OPCODES:
        return lambda profile: float(profile.mix.executed(name)) if profile.mix.collected else None
    return lambda profile: figures.value(profile, name)


def by_reason(before: Mapping[str, float], after: Mapping[str, float], unit: str) -> list[Change]:
    """What either side has of each stall reason."""
    return [
        Change(f"stall_{reason}", figures.reason_name(reason), unit, before.get(reason, 0.0), after.get(reason, 0.0))
        for reason in dict.fromkeys([*before, *after])
    ]  # fmt: skip


def stall_cycles(before: Profile, after: Profile) -> list[Change]:
    """Cycles an issued instruction by stall reason; empty where a stack was not collected."""
    if before.stalls is None or after.stalls is None:
        return []
    return by_reason(dict(before.stalls.reasons), dict(after.stalls.reasons), "cycles/inst")


def waiting(before: Launches, after: Launches) -> list[Change]:
    """Microseconds that an average warp was in each stall reason, over all launches where both sides
    have all of theirs, else in the longest of each. Empty where a launch's stalls are not known."""
    whole = before.whole and after.whole
    old, new = (
        _waited(side if whole else replace(side, profiles=(side.main,))) for side in (before, after)
    )
    if not old or not new:
        return []
    return [each for each in by_reason(old, new, "us") if each.before or each.after]


def _waited(side: Launches) -> dict[str, float]:
    found: dict[str, float] = {}
    for profile in side.profiles:
        shares = figures.stall_shares(profile)
        if not shares or not profile.duration_us:
            return {}
        times = _repeat(profile) if side.whole else 1
        for reason, share in shares.items():
            found[reason] = found.get(reason, 0.0) + share * profile.duration_us * times
    return found
