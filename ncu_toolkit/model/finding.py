"""What a diagnosis says: evidence, findings, and the verdict on one profile."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self

Comparison = Literal[">", ">=", "<", "<=", "==", ""]
_COMPARED: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq,
}  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """One measured fact of a finding; it only informs without `threshold` and `comparison`."""

    metric: str
    label: str
    value: float
    unit: str
    meaning: str
    threshold: float | None = None
    comparison: Comparison = ""
    source: str = ""
    """Where the threshold comes from."""

    @property
    def holds(self) -> bool:
        """Whether the value compares with the threshold as claimed; True where there is none."""
        return (
            self.threshold is None
            or not self.comparison
            or _COMPARED[self.comparison](self.value, self.threshold)
        )


class Advice(str):
    """A step of advice that ends in a command: `text`, then `command`."""

    text: str
    command: str

    def __new__(cls, text: str, command: str) -> Self:
        made = super().__new__(cls, f"{text}: {command}")
        made.text, made.command = text, command
        return made

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # pickle makes it of these
        return self.text, self.command


def shown_step(step: str, show: Callable[[str], str]) -> str:
    """A step of advice with its words as `show` makes them; a command stays one."""
    return Advice(show(step.text), step.command) if isinstance(step, Advice) else show(step)


@dataclass(frozen=True)
class Location:
    """An instruction or source line with part of the problem, by its `share` (0-1) of `what`."""

    file: str
    line: int
    address: int
    sass: str
    share: float
    what: str


@dataclass(frozen=True)
class Finding:
    """One bottleneck found in one profile.

    `speedup` is the predicted factor without this cause alone (>= 1, a bound), derived in
    `arithmetic`; None where only the direction is known. `saved` = 1 - 1/speedup is the fraction of
    time that would go, 0 without a figure. `good` marks a roof reached with useful work."""

    bottleneck: str
    summary: str
    confidence: Literal["high", "medium", "low"]
    evidence: tuple[Evidence, ...]
    speedup: float | None
    arithmetic: tuple[str, ...]
    advice: tuple[str, ...]
    """Steps, of which those with a command are `Advice`."""
    look_for: str = ""
    locations: tuple[Location, ...] = ()
    good: bool = False
    relieves: Mapping[str, float] = field(default_factory=dict)
    """Resources with less work once the cause is gone, and the part (0-1) of it that stays."""
    weight: float = 0.0
    """Its rank without a figure: the most time saved (0-1) that nothing rules out. Not shown."""
    interval: tuple[float, float] | None = None
    """Factors (>= 1) around `speedup` that hold 80% of the gains on record
    (diagnosis/time_model.py); None without a figure, and at a roof."""
    statement: str = ""
    """At a roof: the summary without how near it is; empty elsewhere."""
    left: float | None = None
    """At a roof: what the best kernels reach over what this one does (>= 1), if known."""

    @property
    def saved(self) -> float:
        if self.speedup is None or self.speedup <= 0 or not math.isfinite(self.speedup):
            return 0.0
        return 1 - 1 / self.speedup


@dataclass(frozen=True)
class NoFinding:
    """A bottleneck that was considered and ruled out by evidence, or abstained without inputs."""

    bottleneck: str
    outcome: Literal["ruled out", "abstained"]
    reason: str
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    """Short names of the metrics that an abstaining rule would need."""


@dataclass(frozen=True)
class Headroom:
    """How far a launch is from the nearest roof that its verdict leaves.

    `factor` (>= 1) is the time now over the least time that `resource` needs at its peak rate for
    the work that stays once the cause is gone. `resource` is a key of `Diagnosis.bounds`, `label`
    its words ("device memory")."""

    factor: float
    resource: str
    label: str


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on one profile: `findings`, never empty, by predicted time saved."""

    findings: tuple[Finding, ...]
    considered: tuple[NoFinding, ...] = ()
    bounds: Mapping[str, float] = field(default_factory=dict)
    """The time model's lower bounds in microseconds by resource (issue, fma, shared, dram, …)."""
    notes: tuple[str, ...] = ()
    headroom: Headroom | None = None
    """The next roof for the first finding; None where no unit's load was collected."""

    def __repr__(self) -> str:
        """The verdict in one line: all of its evidence would be pages."""
        first, others = self.findings[0], len(self.findings) - 1
        return f"<Diagnosis {first.bottleneck}, {first.confidence} confidence, {others} runners-up>"

    @property
    def primary(self) -> Finding:
        return self.findings[0]

    @property
    def runners_up(self) -> tuple[Finding, ...]:
        return self.findings[1:]
