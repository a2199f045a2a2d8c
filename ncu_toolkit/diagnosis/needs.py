"""What a launch must move and compute at the least: no report holds that, so its user says it.

Each input read once and each output written once are the compulsory bytes; the operations of the
problem, not those of this kernel, are the FLOPs. With them "near the roof" is right or wrong;
without them it is assumed that the work done is the work needed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.core import patterns, units
from ncu_toolkit.core.errors import InputProblem, UsageProblem
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import load_rules
from ncu_toolkit.ladder import expressions
from ncu_toolkit.model import Finding, Profile
from ncu_toolkit.model.profile import positive

#: What --needs takes, for messages.
SYNTAX: Final = "[KERNEL:]bytes=N,flops=N"
_NEEDS: Final = re.compile(r"(?:(?P<kernel>.*?):\s*)?(?P<figures>(?:bytes|flops)\s*=.*)", re.DOTALL)
_NEXT: Final = re.compile(r",(?=\s*(?:bytes|flops)\s*=)")
#: Every byte that a kernel needs passes between L2 and an SM once at least; what is counted there
#: was never less than the compulsory bytes in 255 recorded launches. Twentieth for rounding.
LEAST: Final = 0.95


@dataclass(frozen=True)
class Needs:
    """The compulsory bytes and FLOPs of one launch (None where not said), for launches whose
    demangled name the regular expression `kernel` is found in (empty: all)."""

    bytes: float | None = None
    flops: float | None = None
    kernel: str = ""

    def covers(self, kernel: str) -> bool:
        """Whether they are of a kernel with this demangled name; UsageProblem where the search takes
        too long."""
        return not self.kernel or patterns.found(self.kernel, kernel, "--needs")

    def __str__(self) -> str:
        """As --needs takes it."""
        given = [
            f"{name}={value:.12g}"
            for name, value in (("bytes", self.bytes), ("flops", self.flops))
            if value is not None
        ]
        return (f"{self.kernel}:" if self.kernel else "") + ",".join(given)


def parse(text: str) -> Needs:
    """What --needs says: `bytes=2*256MiB,flops=17.2G`, or `KERNEL:bytes=…`, KERNEL a regular
    expression.

    Raises:
        UsageProblem: it says neither, says one twice, or a figure is no positive number.
    """
    found = _NEEDS.fullmatch(text.strip())
    if found is None:
        raise UsageProblem(
            f"--needs '{text}' names neither bytes nor flops",
            f"Write --needs '{SYNTAX}', such as --needs 'bytes=2*256MiB'",
        )
    given: dict[str, float] = {}
    for part in _NEXT.split(found["figures"]):
        name, _, expression = (word.strip() for word in part.partition("="))
        if name in given:
            raise UsageProblem(f"--needs '{text}' gives {name} twice", "Leave one of them out")
        given[name] = _figure(name, expression)
    kernel = found["kernel"] or ""
    patterns.compiled(kernel, "--needs")
    return Needs(given.get("bytes"), given.get("flops"), kernel)


def _figure(name: str, expression: str) -> float:
    try:
        value = expressions.quantity(expression, f"--needs {name}")
    except InputProblem as error:
        remedy = "Write numbers and units, such as 2*4096*4096*4 or 128MiB"
        raise UsageProblem(error.message, remedy) from None
    try:
        return positive(name, value)
    except ValueError as error:
        raise UsageProblem(
            f"--needs: {error}",
            "Give the bytes or operations that one launch needs at the least, or leave it out",
        ) from None


def apply(profile: Profile, needs: Iterable[Needs]) -> Profile:
    """The profile with what `needs` say of its kernel. Where several do, the last one that gives a
    figure counts."""
    for each in needs:
        if each.covers(profile.launch.kernel):
            profile = profile.needs(bytes=each.bytes, flops=each.flops)
    return profile


def believed(profile: Profile) -> Profile:
    """The profile without compulsory bytes that it cannot need: more than its SMs exchanged with
    L2. A ladder's are known."""
    context, moved = profile.context, figures.value(profile, "l2_bytes")
    needed = context.compulsory_bytes if context and not profile.rung else None
    if context is None or needed is None or moved is None or moved >= LEAST * needed:
        return profile
    return replace(profile, context=replace(context, compulsory_bytes=None))


def notes(given: Profile, used: Profile) -> list[str]:
    """What the bytes that were given mean for a launch that is no ladder's. `used` is what
    `believed` made of it."""
    needed = given.context.compulsory_bytes if given.context else None
    if needed is None or given.rung:
        return []
    if used is not given:
        moved = units.si(figures.value(given, "l2_bytes") or 0.0, "B")
        return [
            (
                f"--needs is ignored: it says {units.si(needed, 'B')}, but this launch moved only {moved} between L2 and the SMs. "
                "Correct --needs."
            )
        ]
    moved_by_dram = figures.value(given, "dram_bytes")
    if moved_by_dram is None:
        return []
    ratio = units.ratio(moved_by_dram / needed)
    return [
        (
            f"This launch needs {units.si(needed, 'B')} (--needs). Device memory moved {units.si(moved_by_dram, 'B')}, {ratio} as "
            "much."
        )
    ]


def assumed(profile: Profile, finding: Finding) -> Finding:
    """A good verdict at a roof with what it takes for granted: where nobody said what the kernel
    needs, that the work which fills the roof is needed."""
    roof, context = load_rules()[finding.bottleneck].ROOF, profile.context
    if not finding.good or roof is None or profile.rung:
        return finding
    rests_on = roof.rests_on
    if context and (context.compulsory_bytes if rests_on == "bytes" else context.flops):
        return finding
    what = "bytes" if rests_on == "bytes" else "operations"
    return replace(
        finding,
        summary=f"{finding.summary} This assumes that all these {what} are needed; --needs {rests_on}=… sets the true number.",
    )
