"""The dynamic signature of a rung: the checks of its header, evaluated on what was measured. Tests
and the report use this and nothing else.

`executed` sums over the launches of a rung; `stall`, `stall_share` and `metric` read its longest
launch, since ratios do not add up."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.ladder.expressions import FUNCTIONS, Function, Value, evaluate
from ncu_toolkit.ladder.rung import Rung
from ncu_toolkit.model import Profile, Timing

_CALL = re.compile(
    r"\b(?:prev_)?(?:executed|stall_share|stall|metric)\('[^']*'\)|\b(?:prev_)?time_us\b"
)


@dataclass(frozen=True)
class Subject:
    """One rung at one size and type, as measured: every profiled launch in order, and the
    unprofiled timing where there is one."""

    profiles: tuple[Profile, ...] = ()
    timing: Timing | None = None

    @property
    def main(self) -> Profile | None:
        """The longest launch; None where nothing was profiled."""
        return max(self.profiles, key=lambda profile: profile.duration_us or 0.0, default=None)

    @property
    def names(self) -> dict[str, Value]:
        """Dimensions, parameters and `sm_count`: what a check may read besides what was
        measured."""
        main = self.main
        names: dict[str, Value] = {"sm_count": main.device.sm_count} if main else {}
        known = main.context if main and main.context else self.timing
        return {**names, **(known.dims if known else {}), **(known.parameters if known else {})}


@dataclass(frozen=True)
class Outcome:
    """One check and how it came out. `passed` is None where it cannot be told, `reason` says why;
    `numbers` are the measured figures in it."""

    says: str
    check: str
    passed: bool | None
    reason: str = ""
    numbers: Mapping[str, Value] = field(default_factory=dict)

    @property
    def measured(self) -> str:
        """The figures as text: `executed('STS') = 8192, prev_executed('STS') = 32768`."""
        return ", ".join(
            f"{name} = {value:.6g}" if isinstance(value, float) else f"{name} = {value}"
            for name, value in self.numbers.items()
        )


class _Abstain(Exception):
    """A figure that the check needs is not there."""


def check(
    says: str,
    expression: str,
    subject: Subject,
    before: Subject | None,
    *,
    where: str = "",
) -> Outcome:
    """Evaluate one check.

    Args:
        says: what the check means, in words. expression: as in a kernel's header
            (kernels/README.md).
        subject: the rung as measured. before: the rung it is compared with, None where it was not
            measured.

    Never raises for what was not measured, nor for a wrong expression: both give an outcome whose
    `passed` is None.
    """
    numbers: dict[str, Value] = {}
    functions = {**FUNCTIONS, **_functions("", subject), **_functions("prev_", before)}
    try:
        names = {**subject.names, **(_times(subject, before) if "time_us" in expression else {})}
        for part in dict.fromkeys(_CALL.findall(expression)):
            numbers[part] = evaluate(part, names, functions, where)
        passed = bool(evaluate(expression, names, functions, where))
    except _Abstain as missing:
        return Outcome(says, expression, None, str(missing), numbers)
    except ToolkitError as error:
        return Outcome(says, expression, None, error.message, numbers)
    return Outcome(says, expression, passed, "", numbers)


def checks_of(
    rung: Rung, size: str, subject: Subject, before: Subject | None
) -> tuple[Outcome, ...]:
    """Every check that a rung's header makes at `size`, its `ratio_at_least` included, in the
    header's order."""
    outcomes = [
        check(expected.says, expected.check, subject, before, where=rung.label)
        for expected in rung.expect.profile
        if not expected.sizes or size in expected.sizes
    ]
    ratio = rung.expect.ratio_at_least
    if ratio is not None:
        outcomes.append(
            check(
                f"at least {ratio:g} times as fast as {rung.compared_with}",
                f"prev_time_us >= {ratio:g} * time_us",
                subject,
                before,
            )
        )
    return tuple(outcomes)


def _times(subject: Subject, before: Subject | None) -> dict[str, Value]:
    """Both times by one clock: unprofiled medians where both were timed, else the sums of the
    profiled launches, in microseconds."""
    if subject.timing and before and before.timing:
        return {"time_us": subject.timing.median_us, "prev_time_us": before.timing.median_us}
    profiled = _profiled_us(subject), _profiled_us(before)
    if profiled[0] is None or profiled[1] is None:
        raise _Abstain("this rung and the one it is compared with were not both measured")
    return {"time_us": profiled[0], "prev_time_us": profiled[1]}


def _profiled_us(subject: Subject | None) -> float | None:
    times = [profile.duration_us for profile in subject.profiles] if subject else []
    present = [time for time in times if time is not None]
    return sum(present) if present and len(present) == len(times) else None


def _functions(prefix: str, subject: Subject | None) -> Mapping[str, Function]:
    profiles: Sequence[Profile] = subject.profiles if subject else ()
    who = "the rung it is compared with" if prefix else "this rung"

    def main() -> Profile:
        found = subject.main if subject else None
        if found is None:
            raise _Abstain(f"{who} was not profiled at this size")
        return found

    def executed(pattern: str) -> Value:
        main()
        if not all(profile.mix.collected for profile in profiles):
            raise _Abstain(f"instructions by opcode of {who} were not collected")
        return sum(profile.mix.executed(pattern) for profile in profiles)

    def stall(reason: str) -> Value:
        found = main()
        if found.stalls is None:
            raise _Abstain(f"the stall stack of {who} was not collected")
        if reason not in dict(found.stalls.reasons):
            raise _Abstain(f"there is no stall reason '{reason}' in the profile of {who}")
        return found.stalls.cycles(reason)

    def stall_share(reason: str) -> Value:
        shares = figures.stall_shares(main())
        if not shares:
            raise _Abstain(f"the stall stack of {who} was not collected")
        if reason not in shares:
            raise _Abstain(f"there is no stall reason '{reason}' in the profile of {who}")
        return shares[reason]

    def metric(name: str) -> Value:
        found = main()
        try:
            value = figures.value(found, name)
        except KeyError:
            raise _Abstain(f"there is no figure '{name}'") from None
        if value is None:
            raise _Abstain(f"{name} of {who} was not collected")
        return value

    calls: dict[str, Callable[..., Value]] = {
        "executed": executed,
        "stall": stall,
        "stall_share": stall_share,
        "metric": metric,
    }
    return {prefix + name: call for name, call in calls.items()}
