"""NVIDIA's report module, and one of its launches -> Profile: of a file, or inside Nsight Compute's
rules. The only importer of `ncu_report`.

The Python inside Nsight Compute lacks many compiled modules (tests/report/test_ncu_rule.py).

Modules up to at least 2025 export symbols of a C++ library of their own. Loaded after CuPy or
PyTorch, which load the system's library, such a module crashes the process (CuPy 14.2 and
ncu-report 2025.3.1, in the first `IMetric.unit()`). Loaded first, it does no harm. 2026.3.1 exports
none."""

import importlib.util
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from ncu_toolkit.base import model
from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import EnvironmentProblem
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model.profile import Extents
from ncu_toolkit.kernel.report import integrity, ncu_source
from ncu_toolkit.kernel.report.integrity import Check
from ncu_toolkit.kernel.report.ncu_source import CodeTexts, Metrics, Value
from ncu_toolkit.kernel.sass import attribution

_MAPS: Final = Path("/proc/self/maps")
_LIBRARY: Final = "libstdc++"


def module() -> Any:
    """NVIDIA's report module: from PyPI (`ncu-report`), else from an installed Nsight Compute.

    Raises:
        EnvironmentProblem: neither is there.
    """
    return _loaded()[0]


def made_by() -> Path:
    """The file of the module that would be loaded, which differs between its editions."""
    found = importlib.util.find_spec("ncu_report")
    folders = [Path(found.origin).parent] if found and found.origin else bundled()
    made = (each for folder in folders for each in sorted(folder.glob("*ncu_report*.so")))
    return next(made, None) or Path(module().__file__)


def fits_here() -> bool:
    """Whether this process can use the module: no other C++ code was loaded before it."""
    return _loaded()[1] if "ncu_report" in sys.modules else not _others()


def bundled() -> list[Path]:
    """Folders of installed Nsight Computes in which the module may lie, the newest first."""
    return sorted(Path("/opt/nvidia/nsight-compute").glob("*/extras/python"), reverse=True)


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, bool]:
    """The module, and whether it came first."""
    first = not _others()
    try:
        return importlib.import_module("ncu_report"), first
    except ImportError as missing:
        for folder in bundled():
            sys.path.append(str(folder))
            try:
                return importlib.import_module("ncu_report"), first
            except ImportError:
                sys.path.remove(str(folder))
        raise EnvironmentProblem(
            f"the ncu_report module cannot be imported ({missing})", "Run `pip install ncu-report`"
        ) from None


def _others() -> bool:
    """Whether the system's C++ library is loaded in this process. False where that is unknown."""
    try:
        return _LIBRARY in _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


#: Identifiers of rules that come with this package (sections/NcuToolkitRule.py).
OWN_RULES: Final = "NcuToolkit"
#: A link as the GUI follows it: @section:id:words@ and its like, but @url:words:address@.
_LINK = re.compile(r"@(section|url|source|metric|sourcecounter):([^@:]*)(?::([^@]*))?@")
_RULE_KINDS: dict[int, Literal["ok", "optimization", "warning", "error", "none"]] = {
    0: "none", 1: "ok", 2: "optimization", 3: "warning", 4: "error",
}  # fmt: skip
_SCOPES = {0: "", 1: "local", 2: "global"}
#: What a launch is called that has no name, as one that is damaged.
UNNAMED: Final = "unnamed"
#: Samples below which there is no course of time to show.
_FEWEST_SAMPLES: Final = 8
#: Load of a unit that has no work of the launch.
_IDLE: Final = 0.01
#: Kernels that the name of a range or graph holds.
_NAMED: Final = 4


#: A launch's numbers by the profiler's own names; None for an absent one.
Values = Callable[[str], Value | None]


def kernel_name(action: Any) -> str:
    """Demangled, else the function's; for a range or graph, what was launched in it; or empty."""
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
    origin: model.Origin,
    code: CodeTexts | None,
    contradictions: Mapping[str, tuple[str, ...]],
    tables: Mapping[str, bytes] | None = None,
) -> model.Profile:
    """A launch as a Profile. Contradictions of its instruction table and its figures are added to
    those given; where its counters are not its own, it has none. `tables` as in `Metrics`."""
    metrics = Metrics(action, tables)
    device = _device(metrics)
    readings = _readings(metrics.value, device.cc, _workload(action))
    launch = _launch(metrics, readings)
    if launch.workload:
        # Its addresses are of several kernels, and the module crashes when asked for their files.
        code = None
    table: tuple[model.Instruction, ...] = ()
    checks: list[Check] = []
    sources: Mapping[str, str] = {}
    if code is not None:
        decodes = device.cc >= attribution.DECODED_SINCE
        table, checks = ncu_source.instructions(metrics, code, origin.action_index, decodes=decodes)
        sources = code.sources(action, origin.action_index)
    mix = ncu_source.mix(metrics, table)
    checks = [*checks, *metrics.checks, *clock_check(readings)]
    own = integrity.contradictions(checks)
    if launch.complete:
        own |= _impossible(readings, metrics, origin.ncu_version)
    profile = model.Profile(
        origin=origin,
        device=device,
        launch=launch,
        readings=readings,
        stalls=_stalls(readings),
        mix=mix,
        instructions=table,
        sources=sources,
        rules=tuple(messages_of(action)),
        contradictions={**contradictions, **own},
        timeline=tuple(_timeline(metrics, readings["duration"].value)),
    )
    foreign = next(iter(integrity.contradictions(own_check(metrics.value, profile))), "")
    return not_measured(profile, foreign) if foreign else profile


def own_check(values: Values, profile: model.Profile) -> Iterator[Check]:
    """Check that counters of the hardware are of this launch.

    Nsight Compute gave some launches the counters of an earlier one, beside counts by instruction of
    their own: 3 kernels of 0.03, 1.2 and 390 ms all with 1.22 ms. It then ran no replay pass for
    them. In 2,059 launches of 567 other reports the counts of patched code are 0.94 to 1.48 of the
    hardware's, and each warp executes 2 instructions or more. A warp that polls asks more often while
    patched code slows the others down, 9 times as often in one kernel: the rest must fit."""
    launch, passes = profile.launch, profile.value("passes")
    if not launch.single:
        return
    if passes is not None:
        name = registry.REGISTRY["passes"].ncu[0]
        yield Check(integrity.OWN, (), "" if passes else f"ncu counted in no pass ({name} is 0)")
    total, counted = values(registry.SOURCE_METRICS["executed"][0]), profile.value("instructions")
    if total is not None and math.isfinite(total.number) and counted:
        rows, fits = profile.instructions, counted <= total.number * integrity.TWICE
        if total.number > (most := counted * integrity.TWICE):
            asked = {i for loop in attribution.polls(rows) for i in loop}
            fits = total.number - sum(rows[i].executed or 0 for i in asked) <= most
        problem = (
            f"patched code counted {total.number:.4g} instructions, and the hardware {counted:.4g}"
        )
        yield Check(integrity.OWN, (), "" if fits else problem)
    if counted and launch.blocks and launch.threads_per_block:
        warps = launch.blocks * math.ceil(launch.threads_per_block / 32)
        problem = f"{counted:.4g} instructions are less than one for each of its {warps} warps"
        yield Check(integrity.OWN, (), "" if counted >= warps else problem)


def not_measured(profile: model.Profile, why: str) -> model.Profile:
    """The launch without its counters, which are not its own."""
    status = f"{model.NOT_MEASURED}: its counters are not its own, as {why}"
    readings = {
        name: replace(reading, value=None, presence=model.Presence.UNDEFINED)
        if reading.value is not None
        and not registry.REGISTRY[name].ncu[0].startswith(registry.OF_A_LAUNCH)
        else reading
        for name, reading in profile.readings.items()
    }
    launch = replace(profile.launch, status=status)
    return replace(profile, launch=launch, readings=readings, stalls=None, rules=(), timeline=(), contradictions={})  # fmt: skip


def numbers(action: Any) -> dict[str, Value]:
    """Every number that the launch has, by the profiler's own names."""
    metrics = Metrics(action)
    names = (n for n in sorted(metrics.names) if not isinstance(metrics.get(n).value(), str))
    return {name: value for name in names if (value := metrics.value(name)) is not None}


def measured(profile: model.Profile, values: Values) -> model.Profile:
    """The profile with what the registry makes of its values: its readings and stalls."""
    readings = _readings(values, profile.device.cc, profile.launch.workload)
    return replace(profile, readings=readings, stalls=_stalls(readings))


def _device(metrics: Metrics) -> model.Device:
    facts = {fact: metrics.integer(name) or 0 for fact, name in registry.DEVICE_FACTS.items()}
    return model.Device(
        name=metrics.text(registry.DEVICE_FACTS["name"]),
        cc=(facts["cc_major"], facts["cc_minor"]),
        sm_count=facts["sm_count"] or metrics.integer(registry.LAUNCH_FACTS["sm_count"]) or 0,
        l2_bytes=facts["l2_bytes"],
        memory_bytes=facts["memory_bytes"],
        max_sm_hz=facts["sm_khz"] * 1e3,
        max_memory_hz=facts["memory_khz"] * 1e3,
        memory_bus_bits=facts["bus_bits"] or facts["fb_bus_bits"],
        max_warps_per_sm=facts["max_warps"],
        schedulers_per_sm=facts["schedulers"] or 4,
        index=facts["index"],
    )


def _readings(values: Values, cc: tuple[int, int], workload: str) -> dict[str, model.Reading]:
    """A reading of each entry of the registry; of a workload without what differs from launch to launch."""
    left_out = registry.OF_A_LAUNCH if workload else ()
    return {
        entry.name: _reading(
            lambda name: None if name.startswith(left_out) else values(name), entry, cc
        )
        for entry in registry.REGISTRY.values()
    }


def _reading(values: Values, entry: registry.Metric, cc: tuple[int, int]) -> model.Reading:
    for name in entry.ncu:
        found = values(name)
        if found is None:
            continue
        value = float(found.number) * _factor(entry, name, found.unit)
        if registry.over_elapsed(entry, name):
            part = _active_part(values)
            if not part:
                continue
            value /= part
        most = registry.MOST.get(entry.unit, integrity.LARGEST)
        if not 0 <= value <= most or (not value and entry.name in registry.NEVER_ZERO):
            return model.Reading(entry.name, None, entry.unit, model.Presence.UNDEFINED)
        return model.Reading(entry.name, value, entry.unit, model.Presence.PRESENT)
    had = cc == (0, 0) or entry.available_on(cc)
    presence = model.Presence.NOT_COLLECTED if had else model.Presence.NOT_AVAILABLE
    return model.Reading(entry.name, None, entry.unit, presence)


def _active_part(values: Values) -> float | None:
    """Mean part of the time in which an SM had work; None where the report does not say."""

    def first(short: str) -> float | None:
        found = map(values, registry.REGISTRY[short].ncu)
        numbers = (value.number for value in found if value is not None)
        return next((n for n in numbers if 0 < n < integrity.LARGEST), None)

    active, elapsed = first("sm_active_cycles"), first("sm_cycles")
    return min(1.0, active / elapsed) if active and elapsed else None


def _factor(entry: registry.Metric, name: str, unit: str) -> float:
    if entry.unit == "fraction":
        return 0.01 if unit == "%" or "pct" in name else 1.0
    # The module names no unit where it does not know the chip.
    converted = registry.CONVERSIONS.get(unit or registry.STORED.get(entry.unit, ""))
    return converted[1] if converted is not None and converted[0] == entry.unit else 1.0


def _timeline(metrics: Metrics, time: float | None) -> Iterator[model.Series]:
    """What PM sampling recorded of a launch of `time` microseconds, without the idle time around it.

    The first sample stands for all before it and has no instant; others have one in nanoseconds."""
    for name, label in registry.TIMELINE.items() if time else ():
        found, times, count = metrics.instances(name, _FEWEST_SAMPLES)
        if not count:
            continue
        step = (times.as_uint64(count - 1) - times.as_uint64(1)) / (count - 2) / 1e3
        if step <= 0 or time < _FEWEST_SAMPLES * step:
            continue
        values = [found.as_double(at) / 100 for at in range(1, count)]
        busy = [at for at, value in enumerate(values) if value >= _IDLE]
        if busy and all(map(math.isfinite, values)):
            yield model.Series(label, step, tuple(values[busy[0] : busy[-1] + 1]))


def clock_check(readings: Mapping[str, model.Reading]) -> Iterator[Check]:
    """Check the time's unit: it is the cycles at their clock, to 0.86-1.04 in 1,068 launches."""
    time, cycles, clock = (readings[name].value for name in ("duration", "sm_cycles", "sm_clock"))
    if time and cycles and clock:
        expected = cycles / clock * 1e6
        takes = f"{cycles:.4g} cycles at {clock / 1e9:.3g} GHz take {units.duration(expected)}"
        problem = f"the time is {units.duration(time)}, and {takes}"
        fits = 0.5 < time / expected < 2
        yield Check("time = cycles / clock", ("duration",), "" if fits else problem)


def _impossible(
    readings: Mapping[str, model.Reading], metrics: Metrics, version: str
) -> dict[str, tuple[str, ...]]:
    """One sentence that counts the figures with values that cannot be (`_reading`), with their
    names; nothing without such."""
    kept = sum(reading.value is not None for reading in readings.values())
    wrong = [n for n, each in readings.items() if each.presence is model.Presence.UNDEFINED]
    if not wrong:
        return {}
    entry = registry.REGISTRY[wrong[0]]
    name, found = next((n, v) for n in entry.ncu if (v := metrics.value(n)) is not None)
    raw = metrics.get(name).value()
    shown = f"'{raw}'" if isinstance(raw, str) else f"{raw:.6g}{'%' if found.unit == '%' else ''}"
    have = "counters have" if len(wrong) > 1 else "counters has"
    by = f" (ncu {version})" if version else ""
    text = (
        f"{len(wrong)} of {kept + len(wrong)} {have} no possible value, as {name} with {shown}{by}"
    )
    return {text: tuple(wrong)}


def _launch(metrics: Metrics, readings: Mapping[str, model.Reading]) -> model.Launch:
    action = metrics.action
    facts = {fact: metrics.integer(name) for fact, name in registry.LAUNCH_FACTS.items()}
    grid, block = (_extents(facts, what) for what in ("grid", "block"))
    kernel, workload = kernel_name(action), _workload(action)
    nvtx, status = _nvtx(action), _status(metrics.names, readings, grid, workload)
    if workload:  # Its launches may differ in all else.
        inside = _inside(action)
        return model.Launch(
            kernel, kernel, None, None, nvtx=nvtx, status=status, workload=workload, inside=inside
        )
    return model.Launch(
        kernel, str(action.name(action.NameBase_FUNCTION) or "") or kernel or UNNAMED, grid, block, facts["registers"],
        facts["shared_static"], facts["shared_dynamic"], facts["shared_config"] or 0, facts["cluster"] or 0, facts["stream"] or 0,
        nvtx, status,
    )  # fmt: skip


def _extents(facts: Mapping[str, int | None], what: str) -> Extents | None:
    """A grid or block by axis, or all of it along x; None where neither is there."""
    x, y, z = (facts[f"{what}_{axis}"] or 0 for axis in "xyz")
    sizes = (x, y, z) if x or y or z else (facts[f"{what}_size"] or 0, 1, 1)
    return sizes if all(sizes) else None


def _status(
    names: frozenset[str],
    readings: Mapping[str, model.Reading],
    grid: Extents | None,
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
    if registry.LAUNCH_FACTS["grid_size"] not in names or grid is None:
        return "incomplete: profiling ended before this launch did (no grid size, no duration), after a crash, a time-out or an interrupt"
    if readings["duration"].presence is model.Presence.UNDEFINED:
        return "incomplete: its duration is not a number, which happens after a launch that failed under the profiler"
    if readings["duration"].value == 0:
        return "incomplete: its duration is 0"
    return "complete"


def _workload(action: Any) -> str:
    """The kind of thing that was profiled, such as a graph; "" for kernels and old modules."""
    if not hasattr(action, "workload_type"):
        return ""
    kinds = {"RANGE": "range", "GRAPH": "graph", "CMDLIST": "command list"}
    known = {getattr(action, f"WorkloadType_{name}", None): words for name, words in kinds.items()}
    kind = action.workload_type()
    return known.get(kind, "") if kind is not None else ""


def _nvtx(action: Any) -> tuple[str, ...]:
    state = action.nvtx_state()
    if state is None:
        return ()
    ranges: list[str] = []
    for identifier in state.domains():
        domain = state.domain_by_id(identifier)
        ranges.extend(str(name) for name in domain.push_pop_ranges())
    return tuple(ranges)


def _stalls(readings: Mapping[str, model.Reading]) -> model.StallStack | None:
    reasons = [(reason, readings[f"stall_{reason}"].value) for reason in registry.STALL_REASONS]
    present = [(reason, value) for reason, value in reasons if value is not None]
    if not present:
        return None
    present.sort(key=lambda item: -item[1])
    return model.StallStack(tuple(present), readings["warp_latency"].value)


def profile_from_action(action: Any, *, instructions: bool = True) -> model.Profile:
    """One launch inside Nsight Compute, without messages of rules."""
    return profile_of(action, model.Origin("", 0, 0), CodeTexts() if instructions else None, {})


def messages_of(action: Any) -> Iterable[model.RuleMessage]:
    """Nsight Compute's own messages, without those of our rule; none while rules are applied."""
    results = action.rule_results_as_dicts() if hasattr(action, "rule_results_as_dicts") else ()
    for entry in results:
        if str(entry.get("rule_identifier", "")).startswith(OWN_RULES):
            continue
        message = entry.get("rule_message") or {}
        estimate = entry.get("speedup_estimation") or {}
        speedup = estimate.get("speedup")
        yield model.RuleMessage(
            rule=str(entry.get("rule_identifier", "")),
            title=str(message.get("title", "")),
            text=_LINK.sub(_words, str(message.get("message", ""))),
            kind=_RULE_KINDS.get(int(message.get("type", 0)), "none"),
            speedup=float(speedup) if speedup is not None else None,
            scope=_SCOPES.get(int(estimate.get("type", 0)), ""),
        )


def _words(link: re.Match[str]) -> str:
    """What a link shows: addresses follow their words, everything else before them."""
    kind, first, rest = link.groups()
    return str(first if kind == "url" else rest or first)
