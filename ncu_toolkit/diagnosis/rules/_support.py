"""What rules not yet ported to `Kernel` import."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal

from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.kernel import (  # noqa: F401
    COLLECT,
    SECTIONS,
    WORTH,
    Kernel,
    at,
    by_cause,
    capital,
    keep,
    missing,
    sections_to_collect,
)
from ncu_toolkit.diagnosis.thresholds import Threshold
from ncu_toolkit.diagnosis.time_model import MEMORY, Prediction, TimeModel
from ncu_toolkit.model import (
    Comparison,
    Evidence,
    Finding,
    Instruction,
    Location,
    NoFinding,
    Profile,
)

_NONE: Final = TimeModel(1.0, None, {}, {}, 1.0)


def _kernel(profile: Profile, bottleneck: str = "", model: TimeModel = _NONE) -> Kernel:
    return Kernel(profile, model, bottleneck)


def fact(
    profile: Profile,
    name: str,
    meaning: str = "",
    threshold: Threshold | None = None,
    comparison: Comparison = "",
) -> Evidence | None:
    return _kernel(profile).fact(name, comparison, threshold, meaning)


def load_fact(model: TimeModel, resource: str, threshold: Threshold) -> Evidence | None:
    return Kernel(None, model).load(resource, threshold)  # type: ignore[arg-type]


def facts(*found: Evidence | None) -> tuple[Evidence, ...]:
    return tuple(evidence for evidence in found if evidence is not None)


def stall_fact(
    profile: Profile, reason: str, threshold: Threshold | None = None
) -> Evidence | None:
    return _kernel(profile).stall(reason, threshold)


def largest_stalls(profile: Profile) -> tuple[Evidence, ...]:
    """The three stall reasons that take most of a warp's time, apart from issuing."""
    ranked = figures.ranked_stalls(profile, "selected")
    return facts(*(stall_fact(profile, reason) for reason, share in ranked[:3] if share >= 0.05))


def abstain(bottleneck: str, absent: Iterable[str]) -> NoFinding:
    return _kernel(None, bottleneck).abstain(*absent)  # type: ignore[arg-type]


def ruled_out(bottleneck: str, reason: str, *evidence: Evidence | None) -> NoFinding:
    return NoFinding(bottleneck, "ruled out", reason, facts(*evidence))


def finding(
    bottleneck: str,
    summary: str,
    prediction: Prediction,
    evidence: Sequence[Evidence | None],
    advice: Sequence[str],
    look_for: str,
    *,
    confidence: Literal["high", "medium", "low"] = "high",
    locations: tuple[Location, ...] = (),
) -> Finding | NoFinding:
    return Kernel(None, _NONE, bottleneck).finding(  # type: ignore[arg-type]
        summary,
        prediction,
        evidence,
        advice,
        look_for,
        confidence=confidence,
        locations=locations,
    )


def blame(profile: Profile, reason: str, kinds: Sequence[str]) -> float:
    return _kernel(profile).blame(reason, *kinds)


def memory_load(model: TimeModel) -> float:
    """Utilisation of the busiest resource on the way of a global access."""
    return model.busiest(*MEMORY)[1]


def queueing(model: TimeModel) -> float:
    """The part of a memory access's time that is spent in queues, and so shrinks with the traffic
    (TimeModel.queue)."""
    return model.queue(memory_load(model))


def locate(
    profile: Profile, weight: Callable[[Instruction], float], what: str, count: int = 3
) -> tuple[Location, ...]:
    return _kernel(profile).locate(weight, what, count)


def locate_executed(
    profile: Profile, wanted: str | Callable[[str], bool], what: str, count: int = 3
) -> tuple[Location, ...]:
    return _kernel(profile).locate_executed(wanted, what, count)


def pipe_part(profile: Profile, kind: str, unknown: float) -> float:
    return _kernel(profile).pipe_part(kind, unknown)


def lines_have(profile: Profile, places: Sequence[Location], pattern: re.Pattern[str]) -> bool:
    """Whether each source line at `places` has what a pattern finds: advice to write that has been
    followed. False where the report holds no text of them."""
    texts = []
    for place in places:
        lines = profile.sources.get(place.file, "").splitlines()
        if 0 < place.line <= len(lines):
            texts.append(lines[place.line - 1])
    return bool(texts) and all(pattern.search(text) for text in texts)


def locate_stall(
    profile: Profile,
    reason: str,
    kinds: Sequence[str] = (),
    wanted: Callable[[Instruction], bool] = lambda _: True,
) -> tuple[Location, ...]:
    return _kernel(profile).locate_stall(reason, kinds, wanted)


def by_grid(profile: Profile) -> float:
    return _kernel(profile).by_grid


def is_chain(profile: Profile) -> bool:
    return _kernel(profile).is_chain


#: Waiting that more warps would overlap; barriers and full queues are not among it.
HIDDEN_BY_WARPS: Final = (
    "long_scoreboard", "short_scoreboard", "wait", "branch_resolving", "no_instruction",
    "imc_miss", "selected", "dispatch_stall",
)  # fmt: skip


#: Registers of a thread at most: CUDA C++ Programming Guide, "Compute Capabilities".
MOST_REGISTERS: Final = 255


def sentence(words: str) -> str:
    """Words as a sentence of their own; empty where there are none."""
    return f"{capital(words).rstrip('.')}." if words else ""
