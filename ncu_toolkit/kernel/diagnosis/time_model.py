"""An explicit model of where a launch's time goes: what each resource needs at least, what warps
wait for, and what is left without a cause.

The time is the larger of two sides (docs/time-model.md derives this and names its limits):

* **Loads.** Each resource (issue slots, a pipe, a level of the memory hierarchy) is busy for
  `utilisation x time`, and for a fraction of that once a cause is gone. No resource can be driven
  beyond ACHIEVABLE of its peak, so load / ACHIEVABLE bounds the time from below.
* **Waiting.** By Little's law a scheduler issues `warps / latency` instructions per cycle, and the
  stall stack splits that latency by reason. Once a cause is gone a reason's share shrinks; the rest
  stays. This is Amdahl's law along one warp. It bounds the time where schedulers idle. Where they
  do not, the issue bound takes over, so a stall share is never taken as time when the schedulers
  issue well.

How far a predicted gain can be off is an 80% interval from cases whose outcome is known. The
residual of a case is (ln achieved - ln predicted) / (1 + ln predicted), of factors: a relative error
that may grow with the gain. On that scale errors are about as large for small gains as for large
ones, and for each confidence (docs/lab/calibration.md). The interval lies between two quantiles of the
residuals, of all cases mixed with the rule's own (data/intervals.json, written by `python
benchmarks/heldout/fit.py`). The rule inside Nsight Compute imports this module, so it imports nothing
that needs a compiled one."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.hardware.specs import launch_floor
from ncu_toolkit.base.model import Finding, Profile
from ncu_toolkit.kernel.diagnosis import figures

#: Highest fraction of a resource's peak that kernels reach. Kernels that are bound by one unit alone
#: keep it 0.85 to 0.98 busy on an H200 (DRAM 0.85 to 0.95, L2 and its link 0.90 to 0.96, FMA 0.92, L1
#: data 0.96, issue slots 0.98); copies reach 0.88 to 0.92 of DRAM, there and in public reports of
#: GPUs with GDDR6.
ACHIEVABLE: Final = 0.9
#: What well-written kernels with other work too keep up: where Nsight Compute's SpeedOfLight rule
#: calls a throughput high. The vendor's FP32 matrix product reaches 0.78 of an H200's FMA peak.
SUSTAINED: Final = 0.8

#: Fewest microseconds a kernel takes: three device-memory round trips (first instructions, first
#: data, last store) at 600-800 cycles (microbenchmarks of Volta to Hopper) and 1.5-2 GHz.
FLOOR_US: Final = 1.2

#: Most cycles of an access on an idle GPU: microbenchmarks of Volta to Hopper (Jia et al.; Luo et
#: al.) find 600 to 800 for device memory behind a TLB miss.
UNLOADED: Final = 1000.0

BUSY: Final = 0.6
"""Below this a unit does not limit: the lower threshold of Nsight Compute's SpeedOfLight rule."""


class Resource(NamedTuple):
    """A unit whose load bounds the time."""

    metrics: tuple[str, ...]
    """Names of utilisation metrics, of which the largest counts."""
    in_sm: bool
    """Units in an SM idle when the SM has no work; the others are shared by all SMs."""
    label: str


RESOURCES: Final[Mapping[str, Resource]] = {
    name: Resource(*parts)
    for name, parts in {
        "issue": (("issue_active",), True, "issue slots"),
        "fma": (("fma_pipe_active",), True, "the FP32 FMA pipe"),
        "fmaheavy": (("fmaheavy_pipe_active",), True, "the half of the FMA pipe that also multiplies integers"),
        "alu": (("alu_pipe_active",), True, "the integer and logic pipe"),
        "fp64": (("fp64_pipe_active",), True, "the FP64 pipe"),
        "fp16": (("fp16_pipe_active",), True, "the FP16 pipe"),
        "xu": (("xu_pipe_active",), True, "the special-function pipe"),
        "tensor": (("tensor_pipe_active", "hmma_pipe_active"), True, "the tensor pipe"),
        "uniform": (("uniform_pipe_active",), True, "the uniform pipe"),
        "lsu": (("lsu_pipe_active", "l1_request_active"), True, "the load/store pipe"),
        "l1_tag": (("l1_tag_active",), True, "the L1 tag stage"),
        "l1_data": (("l1_data_active",), True, "the data stage of L1 and shared memory"),
        "l1_writeback": (("l1_writeback_active",), True, "the path from L1 and shared memory to the registers"),
        "l1": (("l1_throughput",), True, "L1"),
        "blocks": (("block_start_active",), False, "the unit that starts blocks"),
        "constant": (("constant_cache_active",), False, "the constant cache"),
        "fill": (("l1_fill_active", "l2_to_sm_active"), False, "the link from L2 to the SMs"),
        "l2": (("l2_utilization", "l2_throughput"), False, "L2"),
        "atomic": (("l2_atomic_unit_active", "l2_atomic_unit_busiest"), False, "the atomic units in L2"),
        "dram": (("dram_utilization", "dram_bus_active"), False, "device memory"),
    }.items()
}  # fmt: skip
#: Roll-ups that count the cycles in which any of several parts was active: not an amount of work.
#: At 0.35, 0.53, 0.71, 0.82 and 0.95 of an H200's DRAM bandwidth, L2's is 0.47, 0.62, 0.80, 0.90 and
#: 0.94. They count as work only where the parts are not known.
ACTIVITY: Final = ("l2_throughput",)
#: Of the slices of L2 the one whose atomic unit is busiest: an address belongs to one slice.
SLICE: Final = "l2_atomic_unit_busiest"
#: Every SM's own end of the link from L2, counted while that SM has work.
LINK: Final = "l1_fill_active"
#: What device memory reaches beyond ACHIEVABLE where it does not turn around between reads and writes:
#: on an H200 0.95-0.96 when only reading, 0.92 with a quarter written, 0.88 with half (copies).
READ_ONLY: Final = 0.05
#: The launch itself as a bound beside the resources, and its words.
LAUNCH: Final = "launch"
LAUNCH_LABEL: Final = "a launch of this grid without any work"
#: What lies behind the SMs: idle until the first request and after the last answer (FLOOR_US).
OFF_CHIP: Final = ("fill", "l2", "atomic", "dram")
#: Units of the SMs that are busy with instructions of any kind, so that fewer of them are less work.
PIPES: Final = ("issue", "fma", "fmaheavy", "alu", "fp16", "xu", "uniform")
ON_CHIP: Final = ("lsu", "l1_tag", "l1_data", "l1_writeback")
MEMORY: Final = (*ON_CHIP, "fill", "l2", "dram")
"""Resources that a global memory access uses."""


@dataclass(frozen=True)
class Removal:
    """What changes without a cause, as the fraction (0-1) that stays; unnamed things stay whole.

    `stalls`: waiting by stall reason. `loads`: work by resource. `instructions`: issued instructions and
    their stalls. `parallelism`: factor (>= 1) on warps that wait side by side, outside queues.
    `balance`: part of the elapsed time that an SM's evenly spread work takes. `added`: new work in
    cycles by resource. `basis`: a sentence on where the size of the change comes from."""

    what: str
    stalls: Mapping[str, float] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)
    instructions: float = 1.0
    parallelism: float = 1.0
    balance: float = 1.0
    added: Mapping[str, float] = field(default_factory=dict)
    basis: str = ""


class Bound(NamedTuple):
    """Cycles that a launch takes at least without a cause, and why, by a resource or `waiting`."""

    name: str
    cycles: float
    why: str


@dataclass(frozen=True)
class Prediction:
    """Time without a cause. `limit` names the resource (or `waiting`) that takes over, `relieves`
    the resources with less work and the part (0-1) that stays.

    With too few metrics, `quantified` is False: the speedup (>= 1) then only serves for ranking."""

    speedup: float
    limit: str
    arithmetic: tuple[str, ...]
    relieves: Mapping[str, float] = field(default_factory=dict)
    quantified: bool = True

    @property
    def saved(self) -> float:
        return 1 - 1 / self.speedup


#: Stalls that come with every instruction issued, so that they go when instructions go.
PER_INSTRUCTION: Final = (
    "selected", "not_selected", "wait", "math_pipe_throttle", "dispatch_stall",
    "branch_resolving", "no_instruction", "imc_miss", "misc",
)  # fmt: skip
#: Resources whose work is instructions, so that it goes when instructions go unless stated otherwise.
_INSTRUCTION_RESOURCES: Final = ("issue",)
#: Waiting in the SM's memory path and behind it: it queues at the path's limiting unit.
_QUEUES_ON_CHIP: Final = (
    "long_scoreboard", "lg_throttle", "mio_throttle", "short_scoreboard", "tex_throttle",
)  # fmt: skip
_QUEUES_OFF_CHIP: Final = ("long_scoreboard", "lg_throttle", "tex_throttle")
#: Waiting in line for a shared unit, which does not shrink with more warps side by side.
CONTENTION: Final = (
    "not_selected", "dispatch_stall", "math_pipe_throttle", "lg_throttle", "mio_throttle",
    "tex_throttle",
)  # fmt: skip
#: A prediction that moves the time by less moves nothing: the profiler's repeats differ by 1-2%.
NOISE: Final = 0.02
#: Predictions of time saved are off by five points and more (docs/lab/calibration.md): a smaller lead
#: does not count for a cause without a remedy.
ACCURACY: Final = 0.05


@dataclass(frozen=True)
class TimeModel:
    """One launch. `cycles` is the time now (1 where unknown: shares still hold), as are loads."""

    cycles: float
    hertz: float | None
    loads: Mapping[str, float]
    stalls: Mapping[str, float]
    """Shares of a warp's time by reason; empty where not collected."""
    active: float
    """Mean part of the time in which an SM had work, 1 where not known."""
    activity: Mapping[str, float] = field(default_factory=dict)
    """Resource -> part of the time in which it was active, if counted (ACTIVITY)."""
    peaks: Mapping[str, float] = field(default_factory=dict)
    """Resource -> fraction of its peak that can be had, where it is not ACHIEVABLE."""
    access: float = 0.0
    """Cycles that a warp waits for each of its memory accesses, 0 where not known."""
    floor: tuple[float, float] = (0.0, 0.0)
    """Cycles of this launch without any work, as `launch_floor`; 0 where no time is known."""
    needed: tuple[float, float] = (0.0, 0.0)
    """Parts of device memory's work that fixes of its traffic, and others, leave: stored, and read once."""

    def utilization(self, resource: str) -> float | None:
        """Load over time, None where it was not collected."""
        return self.loads[resource] / self.cycles if resource in self.loads else None

    def waiting(self, *reasons: str) -> float:
        """Sum of the shares of several reasons, 0 where not collected."""
        return sum(self.stalls.get(reason, 0.0) for reason in reasons)

    @remembered(64)
    def busiest(self, *resources: str) -> tuple[str, float]:
        """The busiest of the resources (default: all) with its `busy`; ("", 0) without any."""
        known = [(name, self.busy(name)) for name in (resources or RESOURCES) if name in self.loads]
        return max(known, key=lambda item: item[1], default=("", 0.0))

    def busy(self, resource: str) -> float:
        """Utilisation while the resource could be used (in SMs: while active); 0 if not collected."""
        return max(self.worked(resource), self.activity.get(resource, 0.0))

    def counted(self, resource: str) -> float:
        """Utilisation as its counter shows it, for readers: of the whole time for what is behind
        the SMs, of the active time in them. 0 where not collected."""
        if RESOURCES[resource].in_sm:
            return self.busy(resource)
        return max(self.utilization(resource) or 0.0, self.activity.get(resource, 0.0))

    def worked(self, resource: str) -> float:
        """As `busy`, without cycles in which a unit was active below its capacity."""
        in_sm, off_chip = RESOURCES[resource].in_sm, resource in OFF_CHIP
        usable = self.active if in_sm else 1 - self.ramp if off_chip else 1.0
        return min(1.0, self.loads.get(resource, 0.0) / (self.cycles * usable))

    def reach(self, resource: str) -> float:
        """The reachable fraction of a resource's peak: the usual one, or what this launch reaches."""
        return max(self.peaks.get(resource, ACHIEVABLE), self.worked(resource))

    @property
    def ramp(self) -> float:
        """The part of the time in which a launch starts and ends (FLOOR_US) and memory idles."""
        return min(0.9, FLOOR_US * 1e-6 * (self.hertz or 0.0) / self.cycles)

    @property
    def working(self) -> float:
        """Mean part of the time in which an SM had work, without every launch's start and end."""
        return min(1.0, self.active / (1 - self.ramp))

    def microseconds(self, cycles: float) -> float | None:
        return cycles / self.hertz * 1e6 if self.hertz else None

    def idle(self, blocks: float = 1.0) -> float:
        """Cycles of the launch without any work, and with a part (0-1) of its blocks."""
        return min(self.cycles, self.floor[0] + self.floor[1] * blocks)

    def least(self, resource: str) -> float:
        """Cycles that a resource needs at least for its load."""
        return min(self.cycles, self.loads[resource])

    def bounds_us(self) -> dict[str, float]:
        """Lower bounds on the time (us) by resource, and by latency; or empty."""
        if self.hertz is None:
            return {}
        found = {name: self.least(name) / self.hertz * 1e6 for name in self.loads}
        if any(self.floor):
            found[LAUNCH] = self.idle() / self.hertz * 1e6
        useful = self.waiting("selected")
        if useful:
            found["one_instruction_a_warp"] = useful * self.cycles / self.hertz * 1e6
        return found

    def text(self, cycles: float) -> str:
        microseconds = self.microseconds(cycles)
        if microseconds is None:
            return f"{units.percent(cycles / self.cycles)} of the time"
        return units.duration(microseconds)

    def without(self, removal: Removal) -> Prediction:
        """The time if `removal` took place: the larger of the resources' needs and the warps'
        waiting. No figure where unmeasured waiting would be shared by more warps, or unmeasured
        loads take over."""
        relieves = {name: stays for name in self.loads if (stays := self._stays(name, removal)) < 1}
        bounds = [*self._resource_times(removal), *self._waiting_time(removal)]
        if any(self.floor):
            idle = self.idle(removal.loads.get("blocks", 1.0))
            bounds.append(Bound(LAUNCH, idle, f"{LAUNCH_LABEL}, {self.text(idle)}"))
        if not any(bound.name == "waiting" for bound in bounds) and not self._explains(removal):
            why = "No estimate. Stall reasons were not collected, and no measured load shows how much time this takes."
            return Prediction(1.0, "unknown", (why,))
        # stable: of limits that tie, the first is named
        bounds.sort(key=lambda bound: -bound.cycles)
        limit, needed, why = (
            bounds[0] if bounds else ("unknown", self.cycles, "nothing was measured")
        )
        cycles = min(needed, self.cycles)
        speedup = self.cycles / cycles if cycles > 0 else 1.0
        now = f"Time now: {self.text(self.cycles)}."
        what = removal.what[:1].upper() + removal.what[1:]
        if 1 - 1 / speedup < NOISE:
            same = f"{now} {what} it would not be shorter: {why}."
            return Prediction(1.0, limit, (same,), relieves)
        if missing := self._no_figure(removal):
            return Prediction(speedup, limit, (missing,), relieves, quantified=False)
        lines = [
            now,
            *filter(None, [removal.basis]),
            *self._waiting_lines(removal),
            f"{what}: {self.text(cycles)}, limited by {why}.",
        ]
        for bound in bounds[1:2]:
            next_ = self.text(min(bound.cycles, self.cycles))
            lines.append(f"The next limit is {next_}: {bound.why}.")
        quotient = f"{self.text(self.cycles)} / {self.text(cycles)} = {units.ratio(speedup)}"
        saved = units.percent(1 - 1 / speedup)
        lines.append(f"{quotient} if only this is fixed, {saved} of the time saved.")
        return Prediction(speedup, limit, tuple(lines), relieves)

    def _no_figure(self, removal: Removal) -> str:
        """Why there is no figure for a removal; empty where there is one."""
        if removal.parallelism > 1 and not self.stalls:
            return "No estimate. Stall reasons were not collected, so the waiting that more warps would hide is not known."
        if not any(name in self.loads for name in (*MEMORY, "l1")):
            return "No estimate. Memory utilisation was not collected, and memory may be the next limit."
        return ""

    @staticmethod
    def _stays(resource: str, removal: Removal) -> float:
        """The fraction of a resource's work that a removal leaves."""
        otherwise = removal.instructions if resource in _INSTRUCTION_RESOURCES else 1.0
        return removal.loads.get(resource, otherwise)

    def _resource_times(self, removal: Removal) -> Iterator[Bound]:
        for name in dict.fromkeys((*self.loads, *removal.added)):
            resource = RESOURCES[name]
            load = self.loads.get(name, 0.0)
            keep = self._stays(name, removal)
            left = load * keep + removal.added.get(name, 0.0)
            # Idle SMs stay idle unless the removal balances them, and their units with them.
            available = min(1.0, self.active / removal.balance) if resource.in_sm else 1.0
            reach = self.reach(name) * available
            start = self.ramp * self.cycles if name in OFF_CHIP and left else 0.0
            late = start >= 0.01 * self.cycles
            beside = f" after {self.text(start)} of start and end" if late else ""
            less = f" ({units.percent(1 - keep)} less than now)" if keep < 1 and load else ""
            work = f"{resource.label}, {self.text(left)} of work{less} at {units.percent(reach)} of peak{beside}"
            yield Bound(name, left / reach + start, work)

    def _waiting_time(self, removal: Removal) -> Iterator[Bound]:
        if self.stalls or _spreads(removal):
            left = self._left(removal)
            # Where stalls were not collected, waiting can only be spread or go with its instructions.
            part = sum(left.values()) if self.stalls else removal.instructions / removal.parallelism
            yield Bound("waiting", self.cycles * part * removal.balance, "the remaining stalls")

    def _kept(self, removal: Removal) -> dict[str, float]:
        """What stays of each stall reason: the removal's part, less queues at a relieved unit."""
        kept = {
            reason: removal.stalls.get(
                reason, removal.instructions if reason in PER_INSTRUCTION else 1.0
            )
            for reason in self.stalls
        }
        unit, busy = self.busiest(*MEMORY)
        relief = removal.loads.get(unit, 1.0) if unit else 1.0
        if relief < 1:
            in_sm = RESOURCES[unit].in_sm
            # A warp is throttled only while the line in front of the unit is full; of a scoreboard
            # the unit's own latency stays.
            queued = dict.fromkeys(_QUEUES_ON_CHIP if in_sm else _QUEUES_OFF_CHIP, self.queue(busy))
            if not in_sm:
                queued["lg_throttle"] = busy
            for reason in ("mio_throttle", "short_scoreboard"):
                queued[reason] = max(queued.get(reason, 0.0), self.queue(0.0))
            for reason in kept.keys() & queued.keys():
                kept[reason] = min(kept[reason], 1 - queued[reason] * (1 - relief))
        if "barrier" in kept and "barrier" not in removal.stalls:
            waits = ("selected", "not_selected", "barrier")
            others = {name: share for name, share in self.stalls.items() if name not in waits}
            total = sum(others.values())
            stays = sum(share * kept[reason] for reason, share in others.items())
            kept["barrier"] = stays / total if total else 1.0
        return kept

    def _left(self, removal: Removal) -> dict[str, float]:
        """The shares of a warp's time that stay, by stall reason."""
        kept = self._kept(removal)
        return {
            reason: share * kept[reason] / self._overlap(reason, removal)
            for reason, share in self.stalls.items()
        }

    def _overlap(self, reason: str, removal: Removal) -> float:
        """How many times shorter a reason's waiting gets with `parallelism` times the warps: not in
        queues, which grow as much longer. Only the rest of a shortened queue counts."""
        queued = 1.0 if reason in CONTENTION else self.queued(reason)
        if reason in _QUEUES_ON_CHIP and queued < 1:
            relief = removal.loads.get(self.busiest(*MEMORY)[0], 1.0)
            queued = queued * relief / (1 - queued * (1 - relief))
        return 1 / (queued + (1 - queued) / removal.parallelism)

    def queued(self, reason: str) -> float:
        """The part of a memory stall's time in the queue of the busiest unit on its way (queue_share); 0
        for other stalls. An instruction's issue cycle counts as waiting at the issue slots."""
        if reason == "selected":
            return queue_share(self.busy("issue"))
        if reason not in _QUEUES_ON_CHIP:
            return 0.0
        off_chip = reason in _QUEUES_OFF_CHIP
        busy = self.busiest(*(MEMORY if off_chip else ON_CHIP))[1]
        return self.queue(busy) if off_chip else queue_share(busy)

    def queue(self, busy: float) -> float:
        """The part (0-1) of a memory access's time in queues: by the busiest unit's load
        (queue_share) or by its time beyond UNLOADED, whichever is more. A queue at one slice,
        channel or page table shows in no unit's average, but in the access time."""
        return max(queue_share(busy), 1 - UNLOADED / self.access if self.access else 0.0)

    def _waiting_lines(self, removal: Removal) -> list[str]:
        """The waiting side as a sum: what goes of each reason and why, of the rest, and what stays."""
        lines = []
        if removal.parallelism > 1:
            lines.append(
                f"{units.ratio(removal.parallelism)} as many warps run at once. All waiting outside queues shrinks by this factor."
            )
        fewer = units.percent(1 - removal.instructions) if removal.instructions < 1 else ""
        if self.stalls:
            kept, left = self._kept(removal), self._left(removal)
            with_each = [r for r in self.stalls if r in PER_INSTRUCTION and r not in removal.stalls]
            named = [reason for reason in self.stalls if reason not in with_each]
            listed = [reason for reason in named if self.stalls[reason] - left[reason] >= 0.005]
            lines += [
                f"{figures.reason_name(reason)}: {self._part([reason], left)}{self._why(reason, kept[reason], removal)}."
                for reason in listed
            ]
            with_each = [reason for reason in with_each if self.stalls[reason] > 0]
            if with_each and fewer:
                lines.append(
                    f"Issuing and per-instruction stalls ({self._names(with_each)}): {self._part(with_each, left)}; "
                    f"it scales with the instructions, and {fewer} of them go."
                )
                listed += with_each
            rest = [
                reason for reason in self.stalls if reason not in listed and self.stalls[reason] > 0
            ]
            if rest:
                lines.append(f"Other stalls ({self._names(rest)}): {self._part(rest, left)}.")
            stays = sum(left.values())
        else:
            stays = removal.instructions / removal.parallelism
            lines += [f"{fewer} of the instructions go."] if fewer else []
        even = units.percent(removal.balance) if removal.balance < 1 else ""
        if even:
            lines.append(f"With even work, the launch takes {even} of the elapsed time.")
        if self.stalls or stays < 1 or even:
            spread = f" × {even}" if even else ""
            time = f"{self.text(self.cycles)} × {units.percent(stays)}{spread} = {self.text(self.cycles * stays * removal.balance)}"
            lines.append(f"In total {units.percent(stays)} of a warp's time remains: {time}.")
        return lines

    def _part(self, reasons: Sequence[str], left: Mapping[str, float]) -> str:
        """The share of a warp's time that `reasons` take, and what goes of it."""
        share = sum(self.stalls[reason] for reason in reasons)
        gone = share - sum(left[reason] for reason in reasons)
        stays = (
            "unchanged" if abs(gone) < 0.0005 else f"which shrinks by {units.percent(gone / share)}"
        )
        return f"{units.percent(share)} of a warp's time, {stays}"

    def _names(self, reasons: Sequence[str]) -> str:
        """The largest of some reasons by name."""
        ordered = sorted(reasons, key=lambda reason: -self.stalls[reason])
        more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
        return ", ".join(map(figures.reason_name, ordered[:3])) + more

    def _why(self, reason: str, kept: float, removal: Removal) -> str:
        """Why a reason's waiting shrinks: as _kept has it."""
        if reason in removal.stalls and kept >= removal.stalls[reason]:
            return ", removed by the change"
        if reason == "barrier":
            return ", because warps at a barrier wait for the slowest, which now waits less"
        unit, busy = self.busiest(*MEMORY)
        if kept < 1 and unit:
            relief = units.percent(1 - removal.loads.get(unit, 1.0))
            return f", because the queue for {RESOURCES[unit].label} ({units.percent(busy)} busy) gets {relief} less work"
        return ", apart from queueing" if removal.parallelism > 1 else ""

    def _explains(self, removal: Removal) -> bool:
        """Without stalls: whether the removal relieves a limiting resource, or spreads the work."""
        if _spreads(removal):
            return True
        name, busy = self.busiest()
        return busy >= BUSY and removal.loads.get(name, 1.0) < 1


def _spreads(removal: Removal) -> bool:
    """Whether a removal spreads the work, or leaves instructions out."""
    return removal.balance < 1 or removal.parallelism > 1 or removal.instructions < 1


def queue_share(utilization: float) -> float:
    """The part (0-1) of the time at a unit in its queue, for random arrivals and a fixed time of
    service (M/D/1): u / (2 - u). It shrinks with the unit's load; the rest is unloaded latency."""
    return utilization / (2 - utilization)


@remembered(4)
def build(profile: Profile) -> TimeModel:
    """The model of a profile, from whatever it holds."""
    hertz = profile.value("sm_clock")
    cycles = profile.value("sm_cycles")
    duration = profile.duration_us
    if not cycles and duration and hertz:
        cycles = duration * 1e-6 * hertz
    if cycles and duration and not hertz:
        hertz = cycles / (duration * 1e-6)
    if not cycles and duration:
        cycles, hertz = duration, 1e6
    total = cycles or 1.0
    active = figures.value(profile, "active_fraction") or 1.0
    loads, activity = {}, {}
    for name, (names, in_sm, _) in RESOURCES.items():
        found = {metric: v for metric in names if (v := figures.value(profile, metric)) is not None}
        # One slice's load limits the launch only where it is full; else a change may move it.
        if found.get(SLICE, 1.0) < BUSY:
            del found[SLICE]
        if not in_sm and LINK in found:
            found[LINK] *= active
        work = [v for metric, v in found.items() if metric not in ACTIVITY] or list(found.values())
        if work:
            loads[name] = min(1.0, max(work)) * total * (active if in_sm else 1.0)
            activity[name] = min(1.0, max(found.values()))
    if "l1_data" in loads:  # stock reports hold L1's roll-up too: the same work
        loads.pop("l1", None)
    read, written = profile.value("dram_read_bytes"), profile.value("dram_write_bytes")
    peaks, needed = {"blocks": 1.0}, (0.0, 0.0)  # as measured, not by a data sheet
    if read is not None and written is not None and read + written:
        reached = ACHIEVABLE + READ_ONLY * max(0.0, 1 - 2 * written / (read + written))
        # What L2 writes back only after the launch does not load memory during it. Below BUSY
        # memory is not the limit, whatever L2 holds.
        owed = figures.value(profile, "dram_owed_bytes") or 0.0
        peaks["dram"] = max(BUSY, reached * (read + written) / (read + written + owed))
        named = "lane_store_bytes", "global_store_sectors", "lane_load_bytes"
        lanes, sectors, loaded = (figures.value(profile, name) or 0.0 for name in named)
        stored = min(written, lanes, sectors * figures.SECTOR_BYTES)  # generic stores may be local
        once = min(read, loaded) if max(read, loaded) <= BEYOND_ROOF * min(read, loaded) else 0.0
        needed = stored / (read + written), (stored + once) / (read + written)
    stalls, floor = figures.stall_shares(profile), (0.0, 0.0)
    if cycles and hertz:
        floor = _launch_cycles(profile, hertz)
    clock, access = hertz if cycles else None, _access_cycles(profile)
    return TimeModel(total, clock, loads, stalls, active, activity, peaks, access, floor, needed)


def _launch_cycles(profile: Profile, hertz: float) -> tuple[float, float]:
    """Cycles that this launch takes without any work, as `launch_floor`: as the same kernel did in
    the same report (`Launch.idle_us`), else by the GPU and the grid. Where the report has no clock,
    at the highest that the GPU has (`hertz` is then the model's own)."""
    launch = profile.launch
    moved = profile.value("l1_fill_sectors") or profile.value("global_load_sectors")
    first, starts = launch_floor(profile.device.cc, launch.blocks or 0, bool(moved))
    if not (profile.value("sm_cycles") or profile.value("sm_clock")):
        clock = profile.device.max_sm_hz
        first, starts = (first / clock * hertz, starts / clock * hertz) if clock else (0.0, 0.0)
    idle = launch.idle_us * 1e-6 * hertz - starts
    return idle if idle > 0 else max(FLOOR_US * 1e-6 * hertz, first), starts


def _access_cycles(profile: Profile) -> float:
    """Cycles that a warp waits for each access to global and local memory, by the stall stack over
    the number of accesses: at least, since accesses under way share their waiting. 0 where unknown,
    and with atomic updates, which have their own queue."""
    accesses = figures.executed(profile, ("global", "local", "texture"))
    if not accesses or profile.stalls is None or figures.executed(profile, ("atomic", "copy")):
        return 0.0
    waited = dict(profile.stalls.reasons)
    cycles = sum(waited.get(reason, 0.0) for reason in ("long_scoreboard", "lg_throttle", "drain"))
    return cycles * profile.mix.total / accesses


#: Bands are this much wider than the quantiles say. Most cases are kernels with one planted cause;
#: fixes of real programs change more. Of the field benchmark's first 31 pairs, each left out in
#: turn, intervals hold 61% of the gains without this and 77% with it, and their interval score
#: falls from 2.18 to 1.89; 1.25 and 1.75 score 1.94 and 1.85.
STRETCH: Final = 1.5
#: How far beyond the next roof a gain may lie: the roof is that of the work as it is, and a fix may
#: remove some of that too. Units that it relieves may be left with a fraction of the work predicted.
#: With 1.25 and 4, each pair left out in turn, intervals hold 80% of the field benchmark's 115 gains
#: and 87% of all 256; with 1 and 1, 59% and 69%; with 1 and no bound by relieved units, 70% and 82%.
BEYOND_ROOF: Final = 1.25
BEYOND_FIX: Final = 4.0
#: Rules predict the bytes that lanes ask for. With 2 or 4, 16 of 114 measured gains are beyond; with 1, 20.
BEYOND_BYTES: Final = 2.0


@dataclass(frozen=True)
class Band:
    """Two quantiles of residuals, and how many cases are the rule's own. A case that was recorded
    several times counts once."""

    low: float
    high: float
    cases: float


@dataclass(frozen=True)
class Intervals:
    """What was fitted: the band of all cases, for rules without any, and those of single rules."""

    pooled: Band
    rules: Mapping[str, Band]

    def around(self, rule: str, speedup: float, most: float | None) -> tuple[float, float]:
        """The interval of a gain, as factors: never below 1, never above `most` (the headroom), and
        never without the figure itself."""
        band = self.rules.get(rule, self.pooled)
        scale = STRETCH * (1 + math.log(speedup))
        low = speedup * math.exp(band.low * scale)
        high = speedup * math.exp(band.high * scale)
        return max(1.0, min(low, speedup)), max(speedup, min(high, most or math.inf))


@cache
def shipped() -> Intervals:
    """The quantiles in the package."""
    file = resources.files("ncu_toolkit").joinpath("data", "intervals.json")
    found = json.loads(file.read_text(encoding="utf-8"))
    rules = {rule: Band(**band) for rule, band in found["rules"].items()}
    return Intervals(Band(**found["pooled"]), rules)


def around(finding: Finding, most: float | None) -> tuple[float, float] | None:
    """The interval of a gain; None without a figure, under a condition, or at a roof."""
    speedup = finding.speedup
    if (
        finding.good
        or finding.provided
        or speedup is None
        or not math.isfinite(speedup)
        or speedup <= 1
    ):
        return None
    return shipped().around(finding.bottleneck, speedup, most)
