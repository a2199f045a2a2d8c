"""What a launch must move and compute at the least: no report holds that, so its user says it.

Each input read once and each output written once are the compulsory bytes; the operations of the
problem, not those of this kernel, are the FLOPs. With them "near the roof" is right or wrong;
without them it is assumed that the work done is the work needed."""

import re
from dataclasses import dataclass
from typing import Final

from ncu_toolkit.base.core import patterns
from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.base.model import Profile
from ncu_toolkit.base.model.profile import positive
from ncu_toolkit.kernel.ladder import expressions

#: What --needs takes, for messages.
SYNTAX: Final = "[KERNEL:]bytes=N,flops=N"
_NEEDS: Final = re.compile(r"(?:(?P<kernel>.*?):\s*)?(?P<figures>(?:bytes|flops)\s*=.*)", re.DOTALL)
_NEXT: Final = re.compile(r",(?=\s*(?:bytes|flops)\s*=)")


@dataclass(frozen=True)
class Needs:
    """The compulsory bytes and FLOPs of one launch (None where not given), for launches whose
    demangled name the regular expression `kernel` is found in (empty: all)."""

    bytes: float | None = None
    flops: float | None = None
    kernel: str = ""

    def covers(self, kernel: str) -> bool:
        """Whether they are of a kernel with this demangled name; UsageProblem where the search takes
        too long."""
        return not self.kernel or patterns.found(self.kernel, kernel, "--needs")

    def applied(self, profile: Profile) -> Profile:
        """The profile with the needs given for its kernel; the last that gives a figure counts."""
        if not self.covers(profile.launch.kernel):
            return profile
        return profile.needs(bytes=self.bytes, flops=self.flops)

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
