"""What a step from one kernel to the next changed, which waiting fell, and what was predicted of it held against what it brought."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ncu_toolkit import derived, time_model, units
from ncu_toolkit.diagnose import diagnose
from ncu_toolkit.model import Diagnosis, Finding, Profile
from ncu_toolkit.rules import load_rules


@dataclass(frozen=True)
class Change:
    """One figure before and after. `before` or `after` is None where that profile does not hold it."""

    name: str
    label: str
    unit: str
    before: float | None
    after: float | None

    @property
    def ratio(self) -> float | None:
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class StepExplanation:
    """What a step from one kernel to the next changed, and what that did."""

    speedup: float | None
    """Time before over time after, both under the profiler; None where either has no time."""
    was: Finding
    became: Finding
    predicted: Finding | None
    """What the diagnosis of the earlier kernel predicted for the cause that the step removes (its first finding where none is declared)."""
    changes: tuple[Change, ...]
    stalls: tuple[Change, ...]
    """Cycles of waiting for one unit of the same work, by reason, largest change first: stall cycles an instruction times instructions."""
    text: tuple[str, ...]
    """Sentences in plain English, in reading order."""


#: What a step is described by, in the order it is told. The opcode patterns are those of `InstructionMix.executed`.
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
#: A figure that moved by less than this is not worth a sentence.
MOVED: Final = 0.1


def explain_step(before: Profile, after: Profile, removes: str = "", diagnosed: Callable[[Profile], Diagnosis] = diagnose) -> StepExplanation:
    """What changed between two rungs, which stall or traffic fell, what the bottleneck became, and predicted against achieved.

    `removes` is the bottleneck that the step is meant to remove. Times are those under the profiler, for both.
    """
    first, second = diagnosed(before), diagnosed(after)
    predicted = next((f for f in first.findings if f.bottleneck == removes), None) if removes else first.primary
    moved = changes(before, after)
    stalls = tuple(_stall_changes(before, after))
    t0, t1 = before.duration_us, after.duration_us
    speedup = t0 / t1 if t0 and t1 else None
    return StepExplanation(
        speedup, first.primary, second.primary, predicted, moved, stalls, tuple(_sentences(speedup, first, second, predicted, removes, moved, stalls))
    )


def changes(before: Profile, after: Profile) -> tuple[Change, ...]:
    """The figures of FIGURES and the counts of OPCODES in both profiles, those that neither holds left out."""
    found = []
    for name in FIGURES:
        unit, label, _ = derived.describe(name)
        pair = derived.value(before, name), derived.value(after, name)
        if pair != (None, None):
            found.append(Change(name, label, unit, *pair))
    for opcode in OPCODES:
        counts = [float(p.mix.executed(opcode)) if p.mix.collected else None for p in (before, after)]
        if any(counts):
            found.append(Change(opcode, f"{opcode} instructions", "count", counts[0], counts[1]))
    return tuple(found)


def _moved(figures: tuple[Change, ...], *, opcodes: bool) -> list[Change]:
    """Figures that moved or appeared, utilisations aside: they are a consequence. Counts by opcode come with the largest factor first."""
    found = [c for c in figures if (c.name in OPCODES) == opcodes and not c.name.endswith("active")]
    found = [c for c in found if (not c.before and c.after) or ((ratio := c.ratio) is not None and abs(ratio - 1) > MOVED)]
    return sorted(found, key=lambda c: -_factor(c)) if opcodes else found


def _factor(change: Change) -> float:
    """How many times a count grew or shrank; infinite where it appeared or vanished."""
    if not change.before or not change.after:
        return float("inf")
    return max(change.after / change.before, change.before / change.after)


def _told(change: Change) -> str:
    return f"{change.label} {units.quantity(change.before, change.unit)} → {units.quantity(change.after, change.unit)}"


def _stall_changes(before: Profile, after: Profile) -> list[Change]:
    rows = []
    for reason in derived.stall_shares(before) | derived.stall_shares(after):
        pair = _waited(before, reason), _waited(after, reason)
        if None not in pair and any(pair):
            rows.append(Change(f"stall_{reason}", reason.replace("_", " "), "us", *pair))
    rows.sort(key=lambda change: -abs((change.after or 0.0) - (change.before or 0.0)))
    return rows


def _waited(profile: Profile, reason: str) -> float | None:
    """Microseconds of the launch in which an average warp was in `reason`."""
    shares = derived.stall_shares(profile)
    return shares.get(reason, 0.0) * profile.duration_us if shares and profile.duration_us else None


def _sentences(
    speedup: float | None,
    first: Diagnosis,
    second: Diagnosis,
    predicted: Finding | None,
    removes: str,
    figures: tuple[Change, ...],
    stalls: tuple[Change, ...],
) -> list[str]:
    titles = {name: rule.TITLE for name, rule in load_rules().items()}
    lines = []
    if speedup is None:
        lines.append("Times are missing, so the step cannot be judged.")
    elif abs(speedup - 1) < time_model.NOISE:
        lines.append("The step did not change the time.")
    else:
        lines.append(f"The step is {units.ratio(speedup)} faster." if speedup > 1 else f"The step is {units.ratio(1 / speedup)} slower.")
    told = [_told(change) for change in [*_moved(figures, opcodes=False)[:6], *_moved(figures, opcodes=True)[:4]]]
    if told:
        lines.append("What changed: " + "; ".join(told) + ".")
    falling = [change for change in stalls if (change.after or 0) < (change.before or 0) and not change.name.endswith("selected")][:2]
    if falling:
        fell = [f"{change.label} ({units.duration(change.before or 0)} → {units.duration(change.after or 0)} of a warp's time)" for change in falling]
        lines.append("The waiting that fell most: " + " and ".join(fell) + ".")
    was, became = first.primary, second.primary
    if was.bottleneck == became.bottleneck:
        lines.append(f"The bottleneck is still: {titles[became.bottleneck].lower()}.")
    else:
        lines.append(f"The bottleneck was {titles[was.bottleneck].lower()} and became {titles[became.bottleneck].lower()}.")
    if speedup is not None and predicted is not None:
        achieved = 1 - 1 / speedup if speedup > 0 else 0.0
        lines.append(
            f"Removing {titles[predicted.bottleneck].lower()} was predicted to bring at most {units.ratio(predicted.speedup)} "
            f"({units.percent(predicted.saved)} of the time); "
            f"the step brought {units.ratio(speedup)} ({units.percent(achieved)})."
        )
    elif removes and predicted is None and removes in titles:
        lines.append(f"The diagnosis of the earlier kernel did not name {titles[removes].lower()}, which this step removes.")
    return lines
