"""A rung's expected dynamic signature held against what was measured: holds, does not, or cannot be told and why."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from ncu_toolkit import derived
from ncu_toolkit.errors import ToolkitError
from ncu_toolkit.expressions import FUNCTIONS, Function, Value, evaluate
from ncu_toolkit.model import Profile
from ncu_toolkit.render.book import Book, Entry
from ncu_toolkit.render.safe import visible
from ncu_toolkit.render.views import Cell, Table, number, plain_table, text

Outcome = Literal["holds", "does not hold", "cannot be told"]
_CALL = re.compile(r"(?:prev_)?(?:executed|stall_share|stall|metric)\('[^']*'\)|\b(?:prev_)?time_us\b")


class _Abstain(Exception):
    """A figure that the check needs is not there."""


def outcome(check: str, entry: Entry, before: Entry | None) -> tuple[Outcome, str]:
    """Whether a check of a header holds, with the reason where it cannot be told or the measured figures in it."""
    functions: dict[str, Function] = {**FUNCTIONS, **_functions("", entry), **_functions("prev_", before)}
    try:
        names = _names(check, entry, before)
        holds = bool(evaluate(check, names, functions, where=entry.info.label if entry.info else entry.rung))
    except _Abstain as reason:
        return "cannot be told", str(reason)
    except ToolkitError as error:
        return "cannot be told", error.message
    measured = []
    for part in dict.fromkeys(_CALL.findall(check)):
        value = evaluate(part, names, functions)
        measured.append(f"{part} = {value:.6g}" if isinstance(value, float) else f"{part} = {value}")
    return ("holds" if holds else "does not hold"), ", ".join(measured)


def _names(check: str, entry: Entry, before: Entry | None) -> Mapping[str, Value]:
    main = entry.main
    names: dict[str, Value] = {**dict(entry.parameters), "sm_count": main.device.sm_count if main else 0}
    if main and main.context:
        names |= main.context.dims
    elif entry.timing:
        names |= entry.timing.dims
    if "time_us" in check:
        names["time_us"], names["prev_time_us"] = _times(entry, before)
    return names


def _times(entry: Entry, before: Entry | None) -> tuple[float, float]:
    """Times of both by one clock: unprofiled where both were timed, else as profiled."""
    if entry.timing and before and before.timing:
        return entry.timing.median_us, before.timing.median_us
    both = [[p.duration_us for p in e.profiles] if e else [] for e in (entry, before)]
    if not all(both) or any(value is None for values in both for value in values):
        raise _Abstain("one of the two was not timed")
    return sum(v for v in both[0] if v is not None), sum(v for v in both[1] if v is not None)


def _functions(prefix: str, entry: Entry | None) -> Mapping[str, Function]:
    profiles: Sequence[Profile] = entry.profiles if entry else ()
    who = "the rung it is compared with" if prefix else "this rung"

    def main() -> Profile:
        found = entry.main if entry else None
        if found is None:
            raise _Abstain(f"{who} was not profiled at this size")
        return found

    def executed(pattern: str) -> Value:
        main()
        if not all(profile.mix.collected for profile in profiles):
            raise _Abstain(f"instructions by opcode of {who} were not collected")
        return sum(profile.mix.executed(pattern) for profile in profiles)

    def stall(reason: str) -> Value:
        stalls = main().stalls
        if stalls is None:
            raise _Abstain(f"the stall stack of {who} was not collected")
        return stalls.cycles(reason)

    def stall_share(reason: str) -> Value:
        shares = derived.stall_shares(main())
        if not shares:
            raise _Abstain(f"the stall stack of {who} was not collected")
        return shares.get(reason, 0.0)

    def metric(name: str) -> Value:
        try:
            value = derived.value(main(), name)
        except KeyError:
            raise _Abstain(f"there is no figure '{name}'") from None
        if value is None:
            raise _Abstain(f"{name} of {who} was not collected")
        return value

    calls: dict[str, Callable[..., Value]] = {"executed": executed, "stall": stall, "stall_share": stall_share, "metric": metric}
    return {prefix + name: call for name, call in calls.items()}


def checks_table(book: Book, entry: Entry) -> Table | None:
    """Expected against measured for one rung, and what its header says where the two disagree. None where the header expects nothing."""
    if entry.info is None:
        return None
    before = book.before(entry)
    rows: list[list[Cell]] = []
    for expectation in entry.info.expect.profile:
        if expectation.sizes and entry.variant.size not in expectation.sizes:
            continue
        verdict, detail = outcome(expectation.check, entry, before)
        tone: Literal["good", "bad", "muted"] = "good" if verdict == "holds" else "bad" if verdict == "does not hold" else "muted"
        rows.append([text(expectation.says), text(expectation.check, code=True), text(verdict, tone=tone), text(detail or "–")])
    ratio = entry.info.expect.ratio_at_least
    if ratio is not None and before and before.timing and entry.timing:
        got = before.timing.median_us / entry.timing.median_us
        rows.append([text(f"at least {ratio:g} times as fast as {before.label}"), text("–"), text("holds", tone="good") if got >= ratio else text("does not hold", tone="bad"), number(got, "ratio")])
    if not rows and not entry.info.measured:
        return None
    note = " ".join(f"Measured on {visible(found.gpu)}: {visible(found.says)}" for found in entry.info.measured)
    return plain_table("checks", "Expected against measured", ["Expected", "Check", "Outcome", "Measured"], rows, note=note)
