"""The dynamic signature of a rung: the checks of its header, evaluated on what was measured. Tests
and the report use this and nothing else.

`executed` sums over the launches of a rung; `stall`, `stall_share` and `metric` read its longest
launch, since ratios do not add up."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.compare import Launches
from ncu_toolkit.kernel.ladder.expressions import FUNCTIONS, Function, Value, evaluate
from ncu_toolkit.kernel.ladder.rung import Rung

_CALL = re.compile(
    r"\b(?:prev_)?(?:executed|stall_share|stall|metric)\('[^']*'\)|\b(?:prev_)?time_us\b"
)


@dataclass(frozen=True)
class Outcome:
    """One check and how it came out. `passed` is None where it cannot be checked, for `reason`;
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
    subject: Launches,
    before: Launches | None,
    *,
    where: str = "",
    defaults: Mapping[str, int] | None = None,
) -> Outcome:
    """Evaluate one check.

    Args:
        says: what the check means, in words. expression: as in a kernel's header
            (kernels/README.md).
        subject: the rung as measured. before: the rung it is compared with, None where it was not
            measured.
        defaults: parameters of the rung, for those that the measurement has not.

    Never raises for what was not measured, nor for a wrong expression: both give an outcome whose
    `passed` is None.
    """
    numbers: dict[str, Value] = {}
    functions = {**FUNCTIONS, **_functions("", subject), **_functions("prev_", before)}
    try:
        names = {
            **(defaults or {}),
            **_names(subject),
            **(_times(subject, before) if "time_us" in expression else {}),
        }
        for part in dict.fromkeys(_CALL.findall(expression)):
            numbers[part] = evaluate(part, names, functions, where)
        passed = bool(evaluate(expression, names, functions, where))
    except _Abstain as missing:
        return Outcome(says, expression, None, str(missing), numbers)
    except ToolkitError as error:
        return Outcome(says, expression, None, error.message, numbers)
    return Outcome(says, expression, passed, "", numbers)


def checks_of(
    rung: Rung, size: str, subject: Launches, before: Launches | None
) -> tuple[Outcome, ...]:
    """Every check that a rung's header makes at `size`, its `ratio_at_least` included, in the
    header's order."""
    outcomes = [
        # a recording may be older than a parameter, whose default is the kernel as it was
        check(
            expected.says,
            expected.check,
            subject,
            before,
            where=rung.label,
            defaults=rung.parameters,
        )
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


def _names(subject: Launches) -> dict[str, Value]:
    """Dimensions, parameters and `sm_count`: what a check may read besides what was measured."""
    main = subject.main if subject.profiles else None
    names: dict[str, Value] = {"sm_count": main.device.sm_count} if main else {}
    known = main.context if main and main.context else subject.timing
    return {**names, **known.dims, **known.parameters} if known else names


def _times(subject: Launches, before: Launches | None) -> dict[str, Value]:
    """Both times by one clock: unprofiled medians where both were timed, else the sums of the
    profiled launches, in microseconds."""
    if before is not None:
        clocks = ((before.timed_us, subject.timed_us), (_summed(before), _summed(subject)))
        for old, new in clocks:
            if old and new:
                return {"time_us": new, "prev_time_us": old}
    raise _Abstain("this rung and the one it is compared with were not both measured")


def _summed(side: Launches) -> float:
    times = [profile.duration_us or math.inf for profile in side.profiles]
    return sum(times) if math.inf not in times else 0.0


def _functions(prefix: str, subject: Launches | None) -> Mapping[str, Function]:
    who = "the rung it is compared with" if prefix else "this rung"

    def main() -> Profile:
        if subject is None or not subject.profiles:
            raise _Abstain(f"{who} was not profiled at this size")
        return subject.main

    def executed(pattern: str) -> Value:
        main()
        profiles = subject.profiles if subject else ()
        if not all(profile.mix.collected for profile in profiles):
            raise _Abstain(f"instructions by opcode of {who} were not collected")
        return sum(profile.mix.executed(pattern) for profile in profiles)

    def of_stalls(values: Mapping[str, float], reason: str) -> Value:
        if not values:
            raise _Abstain(f"the stall stack of {who} was not collected")
        if reason not in values:
            raise _Abstain(f"there is no stall reason '{reason}' in the profile of {who}")
        return values[reason]

    def stall(reason: str) -> Value:
        stack = main().stalls
        return of_stalls(dict(stack.reasons) if stack else {}, reason)

    def stall_share(reason: str) -> Value:
        return of_stalls(figures.stall_shares(main()), reason)

    def metric(name: str) -> Value:
        found = main()
        try:
            value = figures.value(found, name)
        except KeyError:
            raise _Abstain(f"there is no figure '{name}'") from None
        if value is None:
            raise _Abstain(f"{name} of {who} was not collected")
        return value

    return {prefix + call.__name__: call for call in (executed, stall, stall_share, metric)}
