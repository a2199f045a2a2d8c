"""One launch as NVIDIA's report module shows it -> Profile: in a file, and inside Nsight Compute
while it applies its rules.

Imported by the rule that runs inside Nsight Compute, whose Python lacks many of the standard
library's compiled modules (tests/report/test_ncu_rule.py)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

from ncu_toolkit.core import units
from ncu_toolkit.metrics import registry
from ncu_toolkit.model import (
    Device,
    Launch,
    Origin,
    Presence,
    Profile,
    Reading,
    RuleMessage,
    Series,
    StallStack,
)
from ncu_toolkit.report import integrity, ncu_source
from ncu_toolkit.report.integrity import Check
from ncu_toolkit.report.ncu_source import CodeTexts

#: Identifiers of rules that come with this package (sections/NcuToolkitRule.py).
OWN_RULES: Final = "NcuToolkit"
#: A link as the GUI follows it: @section:id:words@ and its like, but @url:words:address@.
_LINK = re.compile(r"@(section|url|source|metric|sourcecounter):([^@:]*)(?::([^@]*))?@")
_RULE_KINDS: dict[int, Literal["ok", "optimization", "warning", "error", "none"]] = {
    0: "none",
    1: "ok",
    2: "optimization",
    3: "warning",
    4: "error",
}
_SCOPES = {0: "", 1: "local", 2: "global"}
#: What a launch is called that has no name, as one that is damaged.
UNNAMED: Final = "unnamed"
#: Samples below which there is no course of time to show.
_FEWEST_SAMPLES: Final = 8
#: Load of a unit that has no work of the launch.
_IDLE: Final = 0.01
#: Kernels that the name of a range or graph holds.
_NAMED: Final = 4


class Value(NamedTuple):
    """A metric as the profiler has it: its number, and its unit, empty where the module names
    none."""

    number: float
    unit: str


#: The values of a launch by the profiler's own names; None for a name that it does not have, or
#: that is no number.
Values = Callable[[str], Value | None]


def kernel_name(action: Any) -> str:
    """Demangled, else the function's; of a range or graph, what was launched in it. Empty where the
    report has none of these."""
    kind = _workload(action)
    if kind:
        return _together(kind, _inside(action))
    return str(
        action.name(action.NameBase_DEMANGLED) or action.name(action.NameBase_FUNCTION) or ""
    )


def _together(kind: str, inside: Sequence[str]) -> str:
    """`range of produce, consume ×3`; the kind alone where the launches are not known."""
    parts = [name if count == 1 else f"{name} ×{count}" for name, count in Counter(inside).items()]
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return f"{kind} of {', '.join(parts[:_NAMED])}{more}" if parts else kind


def _inside(action: Any) -> tuple[str, ...]:
    """The function of each launch in a range or graph, in order."""
    found = action.metric_by_name(registry.LAUNCH_FACTS["function"])
    return tuple(map(found.as_string, range(found.num_instances()))) if found is not None else ()


def profile_of(
    action: Any,
    origin: Origin,
    code: CodeTexts | None,
    contradictions: Mapping[str, tuple[str, ...]],
) -> Profile:
    """A launch as a Profile. `contradictions` are those of integrity.py; those of its instruction
    table are added."""
    names = frozenset(action.metric_names())
    device = _device(action, names)
    readings = _readings(_values(action, names), device.cc, _workload(action))
    launch = _launch(action, names, readings)
    if launch.workload:
        code = None  # its addresses are of several kernels, and asked for their source files the module crashes
    table, checks = (
        ncu_source.instructions(
            action, names, code, origin.action_index, decodes=device.cc >= ncu_source.DECODED_SINCE
        )
        if code is not None
        else ((), [])
    )
    return Profile(
        origin=origin,
        device=device,
        launch=launch,
        readings=readings,
        stalls=_stalls(readings),
        mix=ncu_source.mix(action, names, table),
        instructions=table,
        sources=code.sources(action, origin.action_index) if code is not None else {},
        rules=tuple(messages_of(action)),
        contradictions={
            **contradictions,
            **integrity.contradictions([*checks, *clock_check(readings)]),
        },
        timeline=tuple(_timeline(action, names, readings["duration"].value)),
    )


def numbers(action: Any) -> dict[str, Value]:
    """Every number that the launch has, by the profiler's own names."""
    names = frozenset(action.metric_names())
    get = _values(action, names)
    return {name: value for name in sorted(names) if (value := get(name)) is not None}


def measured(profile: Profile, values: Values) -> Profile:
    """The profile with what the registry makes of its values: its readings and stalls."""
    readings = _readings(values, profile.device.cc, profile.launch.workload)
    return replace(profile, readings=readings, stalls=_stalls(readings))


def _values(action: Any, names: frozenset[str]) -> Values:
    """The values of an action, each read when it is asked for."""

    def get(name: str) -> Value | None:
        if name not in names:
            return None
        found = action.metric_by_name(name)
        raw = found.value()
        return Value(raw, found.unit()) if isinstance(raw, int | float) else None

    return get


def _number(action: Any, names: frozenset[str], name: str) -> float | None:
    if name not in names:
        return None
    value = action.metric_by_name(name).value()
    return float(value) if isinstance(value, int | float) else None


def _integer(action: Any, names: frozenset[str], name: str) -> int:
    value = _number(action, names, name)
    return int(value) if value is not None and math.isfinite(value) else 0


def _text(action: Any, names: frozenset[str], name: str) -> str:
    return str(action.metric_by_name(name).value()) if name in names else ""


def _device(action: Any, names: frozenset[str]) -> Device:
    def number(fact: str) -> int:
        return _integer(action, names, registry.DEVICE_FACTS[fact])

    return Device(
        name=_text(action, names, registry.DEVICE_FACTS["name"]),
        cc=(number("cc_major"), number("cc_minor")),
        sm_count=number("sm_count") or _integer(action, names, registry.LAUNCH_FACTS["sm_count"]),
        l2_bytes=number("l2_bytes"),
        memory_bytes=number("memory_bytes"),
        max_sm_hz=number("sm_khz") * 1e3,
        max_memory_hz=number("memory_khz") * 1e3,
        memory_bus_bits=number("bus_bits") or number("fb_bus_bits"),
        max_warps_per_sm=number("max_warps"),
        schedulers_per_sm=number("schedulers") or 4,
        index=number("index"),
    )


def _readings(values: Values, cc: tuple[int, int], workload: str) -> dict[str, Reading]:
    """A reading of each entry of the registry."""

    def of_a_workload(name: str) -> Value | None:
        # What a launch was given differs from launch to launch.
        return None if name.startswith(registry.OF_A_LAUNCH) else values(name)

    get = of_a_workload if workload else values
    return {entry.name: _reading(get, entry, cc) for entry in registry.REGISTRY.values()}


def _reading(values: Values, entry: registry.Metric, cc: tuple[int, int]) -> Reading:
    for name in entry.ncu:
        found = values(name)
        if found is None:
            continue
        if not math.isfinite(found.number):
            return Reading(entry.name, None, entry.unit, Presence.UNDEFINED)
        value = float(found.number) * _factor(entry, name, found.unit)
        if registry.over_elapsed(entry, name):
            part = _active_part(values)
            if not part:
                continue
            value /= part
        return Reading(entry.name, value, entry.unit, Presence.PRESENT)
    presence = (
        Presence.NOT_COLLECTED if cc == (0, 0) or entry.available_on(cc) else Presence.NOT_AVAILABLE
    )
    return Reading(entry.name, None, entry.unit, presence)


def _active_part(values: Values) -> float | None:
    """Mean part of the time in which an SM had work; None where the report does not say."""
    active, elapsed = (
        next(
            (
                found.number
                for name in registry.REGISTRY[short].ncu
                if (found := values(name)) is not None and found.number
            ),
            None,
        )
        for short in ("sm_active_cycles", "sm_cycles")
    )
    return min(1.0, active / elapsed) if active and elapsed else None


def _factor(entry: registry.Metric, name: str, unit: str) -> float:
    if entry.unit == "fraction":
        return 0.01 if unit == "%" or "pct" in name else 1.0
    # The module names no unit where it does not know the chip.
    converted = registry.CONVERSIONS.get(unit or registry.STORED.get(entry.unit, ""))
    return converted[1] if converted is not None and converted[0] == entry.unit else 1.0


def _timeline(action: Any, names: frozenset[str], time: float | None) -> Iterator[Series]:
    """What PM sampling recorded of a launch of `time` microseconds, without the idle time around it.

    The first sample stands for all that came before and has no instant; those of the others are in
    nanoseconds."""
    for name, label in registry.TIMELINE.items():
        if name not in names or not time:
            continue
        found = action.metric_by_name(name)
        count = found.num_instances()
        if count < _FEWEST_SAMPLES or not found.has_correlation_ids():
            continue
        times = found.correlation_ids()
        step = (times.as_uint64(count - 1) - times.as_uint64(1)) / (count - 2) / 1e3
        if step <= 0 or time < _FEWEST_SAMPLES * step:
            continue
        values = [found.as_double(at) / 100 for at in range(1, count)]
        busy = [at for at, value in enumerate(values) if value >= _IDLE]
        if busy and all(map(math.isfinite, values)):
            yield Series(label, step, tuple(values[busy[0] : busy[-1] + 1]))


def clock_check(readings: Mapping[str, Reading]) -> Iterator[Check]:
    """Whether the time is what the cycles take at their clock, so that its unit is right. It is, to
    0.86-1.04, in 1,068 launches of 102 reports."""
    time, cycles, clock = (readings[name].value for name in ("duration", "sm_cycles", "sm_clock"))
    if time and cycles and clock:
        expected = cycles / clock * 1e6
        fits = 0.5 < time / expected < 2
        yield Check(
            "time = cycles / clock",
            ("duration",),
            ""
            if fits
            else f"the time is {units.duration(time)}, and {cycles:.4g} cycles at {clock / 1e9:.3g} GHz take {units.duration(expected)}",
        )


def _launch(action: Any, names: frozenset[str], readings: Mapping[str, Reading]) -> Launch:
    def number(fact: str) -> int:
        return _integer(action, names, registry.LAUNCH_FACTS[fact])

    grid = (number("grid_x"), number("grid_y"), number("grid_z"))
    block = (number("block_x"), number("block_y"), number("block_z"))
    if not any(grid):
        grid = (number("grid_size"), 1, 1)
    if not any(block):
        block = (number("block_size"), 1, 1)
    kernel, workload = kernel_name(action), _workload(action)
    if workload:  # Its launches may differ in all else.
        return Launch(
            kernel=kernel,
            function=kernel,
            grid=(0, 0, 0),
            block=(0, 0, 0),
            nvtx=_nvtx(action),
            status=_status(names, readings, grid, workload),
            workload=workload,
            inside=_inside(action),
        )
    function = str(action.name(action.NameBase_FUNCTION) or "") or kernel or UNNAMED
    return Launch(
        kernel=kernel,
        function=function,
        grid=grid,
        block=block,
        registers=number("registers"),
        shared_static=number("shared_static"),
        shared_dynamic=number("shared_dynamic"),
        shared_config=number("shared_config"),
        cluster=number("cluster"),
        stream=number("stream"),
        nvtx=_nvtx(action),
        status=_status(names, readings, grid, workload),
    )


def _status(
    names: frozenset[str],
    readings: Mapping[str, Reading],
    grid: tuple[int, int, int],
    workload: str,
) -> str:
    if not names:
        return "incomplete: the report has no metrics for this launch, since it is damaged or profiling was stopped"
    if workload:
        if readings["duration"].value:
            return "complete"
        return (
            f"incomplete: this {workload} was profiled as one, and the report has no time of it. Profile it again with a section that "
            "has one (--section SpeedOfLight)"
        )
    if registry.LAUNCH_FACTS["grid_size"] not in names or not all(grid):
        return (
            "incomplete: profiling ended before this launch did (no grid size, no duration), after a crash, a time-out or an "
            "interrupt"
        )
    if readings["duration"].presence is Presence.UNDEFINED:
        return "incomplete: its duration is not a number, which happens after a launch that failed under the profiler"
    if readings["duration"].value == 0:
        return "incomplete: its duration is 0"
    return "complete"


def _workload(action: Any) -> str:
    """The kind of thing that was profiled, such as a graph; empty for kernels, and for modules that
    do not say."""
    kinds = {
        "WorkloadType_RANGE": "range",
        "WorkloadType_GRAPH": "graph",
        "WorkloadType_CMDLIST": "command list",
    }
    asked = getattr(action, "workload_type", None)
    kind = asked() if asked is not None else None
    return next(
        (
            words
            for name, words in kinds.items()
            if kind is not None and kind == getattr(action, name, ...)
        ),
        "",
    )


def _nvtx(action: Any) -> tuple[str, ...]:
    state = action.nvtx_state()
    if state is None:
        return ()
    ranges: list[str] = []
    for identifier in state.domains():
        domain = state.domain_by_id(identifier)
        ranges.extend(str(name) for name in domain.push_pop_ranges())
    return tuple(ranges)


def _stalls(readings: Mapping[str, Reading]) -> StallStack | None:
    reasons = [(reason, readings[f"stall_{reason}"].value) for reason in registry.STALL_REASONS]
    present = [(reason, value) for reason, value in reasons if value is not None]
    if not present:
        return None
    present.sort(key=lambda item: -item[1])
    return StallStack(tuple(present), readings["warp_latency"].value)


def profile_from_action(action: Any, *, instructions: bool = True) -> Profile:
    """One launch inside Nsight Compute, without messages of rules."""
    return profile_of(action, Origin("", 0, 0), CodeTexts() if instructions else None, {})


def messages_of(action: Any) -> Iterable[RuleMessage]:
    """Nsight Compute's own messages; none where rules are being applied. What our rule in sections/
    posted is not read back."""
    results = action.rule_results_as_dicts() if hasattr(action, "rule_results_as_dicts") else ()
    for entry in results:
        if str(entry.get("rule_identifier", "")).startswith(OWN_RULES):
            continue
        message = entry.get("rule_message") or {}
        estimate = entry.get("speedup_estimation") or {}
        speedup = estimate.get("speedup")
        yield RuleMessage(
            rule=str(entry.get("rule_identifier", "")),
            title=str(message.get("title", "")),
            text=_LINK.sub(_words, str(message.get("message", ""))),
            kind=_RULE_KINDS.get(int(message.get("type", 0)), "none"),
            speedup=float(speedup) if speedup is not None else None,
            scope=_SCOPES.get(int(estimate.get("type", 0)), ""),
        )


def _words(link: re.Match[str]) -> str:
    """What a link shows: addresses stand behind their words, everything else before them."""
    kind, first, rest = link.groups()
    return str(first if kind == "url" else rest or first)
