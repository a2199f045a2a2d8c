"""Integrity of a report: which parts are missing, and which metrics of a launch contradict others.

The format carries no checksum. Each relation here holds on every real launch there is
(docs/integrity.md counts them); a relation that one intact report breaks is removed, not excused.
What a file says only once can be changed without a trace, unless there is a SHA-256 next to it: in
`<report>.sha256` as `sha256sum` writes it, or in the `checksums` of a run's `run.json`."""

import hashlib
import math
import operator
import os
import re
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.kernel.report import cubin, messages
from ncu_toolkit.kernel.report.cubin import Cubin
from ncu_toolkit.kernel.report.framing import FileBlock, Framing, Malformed, Place
from ncu_toolkit.kernel.report.messages import SourceMessage

SUFFIX: Final = ".sha256"
_SUM_LINE: Final = re.compile(r"^\\?([0-9a-fA-F]{64}) [ *](.+)$")
_CHUNK: Final = 1 << 20
#: Largest file of sums in bytes: ten thousand sums.
_LIST_BYTES: Final = 1 << 20
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")
#: How a run.json of this package starts.
_OURS: Final = b'{\n "schema": "ncu-toolkit/run"'


@dataclass(frozen=True)
class SumCheck:
    """`source` names the file with a matching sum, `problem` the mismatch; both "" without sums."""

    source: str = ""
    problem: str = ""


def digest(path: Path) -> str:
    """The file's SHA-256 as hexadecimal digits."""
    state = hashlib.sha256()
    with files.opened(path) as stream:
        while chunk := stream.read(_CHUNK):
            state.update(chunk)
    return state.hexdigest()


def verify(path: Path) -> SumCheck:
    """Compare a file with the checksums next to it. A checksum that cannot be read is a problem."""
    expected: list[tuple[str, str]] = []
    try:
        for found in (_side_file(path), _manifest(path)):
            if found is not None:
                expected.append(found)
    except ValueError as error:
        return SumCheck(problem=str(error))
    if not expected:
        return SumCheck()
    actual = digest(path)
    for source, value in expected:
        if value.lower() != actual:
            return SumCheck(
                problem=f"differs from what was recorded: its SHA-256 is not the one in {source}"
            )
    return SumCheck(" and ".join(source for source, _ in expected))


def _side_file(path: Path) -> tuple[str, str] | None:
    side = path.with_name(path.name + SUFFIX)
    try:
        text = os.fsdecode(files.read_bytes(side, _LIST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, InputProblem) as error:
        raise ValueError(f"has a checksum file that cannot be read: {_reason(error)}") from None
    for line in text.splitlines():
        found = _SUM_LINE.match(line)
        if found and Path(found.group(2)).name == path.name:
            return side.name, found.group(1)
    raise ValueError(f"has a checksum file, {side.name}, that does not name it")


def _manifest(path: Path) -> tuple[str, str] | None:
    manifest = path.with_name("run.json")
    data = b""
    try:
        data = files.read_bytes(manifest, files.json_limit())
        found = files.parse_json(data, manifest)
    except (FileNotFoundError, IsADirectoryError):
        return None
    except (OSError, InputProblem) as error:
        if data and not data.startswith(_OURS) and not _OURS.startswith(data):
            return None  # another program's
        raise ValueError(
            f"may have a checksum in run.json, which cannot be read: {_reason(error)}"
        ) from None
    if not isinstance(found, dict) or found.get("schema") != "ncu-toolkit/run":
        return None
    payload = found.get("data")
    sums = payload.get("checksums", {}) if isinstance(payload, dict) else None
    if isinstance(sums, dict) and path.name not in sums:
        return None
    value = sums.get(path.name) if isinstance(sums, dict) else None
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ValueError("has a checksum in run.json that is not a SHA-256")
    return "run.json", value


def _reason(error: OSError | InputProblem) -> str:
    return error.message if isinstance(error, InputProblem) else f"{error.strerror or error}"


#: Launches of a report that are worth a process: it inspects 600 in a second.
_WORTH: Final = 50
#: Largest relative deviation of a relation that holds. Real launches stay below 5e-16.
_EXACT: Final = 1e-9
#: The relation of counters to the launch that they are given for; without it there is no verdict.
OWN: Final = "the counters are the launch's own"
#: How far two ways to count a launch's instructions may differ (ncu_action.own_check).
TWICE: Final = 2.0
#: Fewest counters of the hardware by which two launches are compared: 8 equal ones, times and cycles
#: among them, are no chance. Of 2,222 launches no two have all alike.
ALIKE: Final = 8
#: Counts are 64-bit: a larger one is a negative one that overflowed.
LARGEST: Final = 2.0**63
#: Newest ncu (year, number) whose messages are known: the format may change after it.
KNOWN: Final = (2026, 3)

_AVG, _SUM, _MIN, _MAX, _RATE = b".avg", b".sum", b".min", b".max", b".per_second"
_TIME: Final = b"gpu__time_duration.sum"
_NANOSECONDS: Final = 1e9
#: Counters of the link between CPU and GPU (C2C): their rates are of another time.
_LINK: Final = b"ctc__"
_LAUNCH: Final = {fact: name.encode() for fact, name in registry.LAUNCH_FACTS.items()}
_RAW: Final = {
    **{short: name.encode() for short, name in registry.AGREEMENTS.items()},
    **{f"{what}_{axis}": _LAUNCH[f"{what}_{axis}"] for what in ("grid", "block") for axis in "xyz"},
}
_DEVICE: Final = {fact: name.encode() for fact, name in registry.DEVICE_FACTS.items()}
#: Bytes of shared memory that newer compilers declare for the system in each block.
_RESERVED_SHARED: Final = 1024
_LIMITS: Final = tuple(
    registry.REGISTRY[f"block_limit_{what}"].ncu[0].encode()
    for what in ("blocks", "registers", "shared", "warps", "barriers")
)
_SHORT: Final[Mapping[str, str]] = {
    **{name: entry.name for entry in registry.REGISTRY.values() for name in entry.ncu},
    **{name: short for short, names in registry.SOURCE_METRICS.items() for name in names},
}


_TRAFFIC: Final = tuple(
    tuple(name.encode() for name in registry.REGISTRY[entry].ncu)
    for entry in ("l1_fill_sectors", "l2_write_sectors")
)

#: A metric's name and value.
Named = tuple[bytes, float]


class Check(NamedTuple):
    """A relation checked in one launch. `problem` names two metrics that contradict each other."""

    relation: str
    metrics: tuple[str, ...]
    problem: str = ""


def contradictions(checks: Iterable[Check]) -> dict[str, tuple[str, ...]]:
    """The problems of the checks, with the metrics involved by short name where the registry has
    one; without metrics it is the launch as a whole."""
    return {
        check.problem: tuple(dict.fromkeys(_SHORT.get(name, name) for name in check.metrics))
        for check in checks
        if check.problem
    }


@dataclass(frozen=True)
class Inspection:
    """`damage`: bytes that cannot be read; `missing`: parts that every whole file has;
    `contradictions`: by launch in file order, as in `Profile`."""

    damage: str = ""
    missing: str = ""
    contradictions: Mapping[int, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    copies: Mapping[int, str] = field(default_factory=dict)
    """By launch in file order, whose counters it has instead of its own."""
    idle: Mapping[int, float] = field(default_factory=dict)
    """As `Launch.idle_us`, by launch in file order."""


class _Inspected(NamedTuple):
    """What a launch's message alone says: its process, its contradictions, a digest of its counters
    (`_counters`), its time and what it moved (`_moved`). `problem` says why it cannot be read."""

    process: int
    problem: str = ""
    who: messages.Identity = messages.Identity()
    broken: Mapping[str, tuple[str, ...]] = {}
    counters: bytes = b""
    time: float = 0.0
    moved: float | None = None


def inspect(
    frame: Framing, sources: Sequence[SourceMessage], version: str = "", jobs: int = 1
) -> Inspection:
    """Inspect the blocks of a report.

    Args:
        sources: all of its sources.
        version: of the ncu that wrote it, "" where unknown. Unreadable messages of one newer than
            KNOWN are no damage.
        jobs: forks of this process that share the launches.
    """
    newer = version[:1].isdigit() and tuple(map(int, version.split(".")[:2])) > KNOWN
    modules = messages.Modules(sources)
    named, copies = set[int](), dict[int, str]()
    found: dict[int, Mapping[str, tuple[str, ...]]] = {}
    counted: dict[bytes, tuple[int, messages.Identity]] = {}
    alike: dict[tuple[object, ...], list[tuple[int, float, float]]] = {}
    places = [(block, place) for block in frame.blocks for place in block.results]
    try:
        names = messages.metric_names(frame)
        look = _looking(frame, places, names, modules)
        order = None if messages.merged(frame) else _Order()
    except Malformed as error:
        return Inspection("" if newer else f"in the header of a block: {error}")
    damage = [
        f"at offset {source.offset}, in the source of a kernel: {source.problem}"
        for source in sources
        if source.problem
    ]
    if jobs < 2:
        inspected = [*map(look, range(len(places)))]
    else:
        from ncu_toolkit.base.core.workers import shared  # not for the Python in Nsight Compute

        inspected = shared(look, len(places), jobs=jobs, least=_WORTH)
    for index, seen in enumerate(inspected):
        who = seen.who
        if seen.problem:
            damage.append(f"at offset {places[index][1][0]}, in launch {index}: {seen.problem}")
            continue
        named.update(who.sources)
        ordered = () if order is None else order.checks(index, seen.process, who)
        if broken := {**seen.broken, **contradictions(ordered)}:
            found[index] = broken
        if seen.counters:
            first, other = counted.setdefault(seen.counters, (index, who))
            if (other.mangled, other.grid, other.block) != (who.mangled, who.grid, who.block):
                same = f"they are those of launch {first}"
                copies[index] = f"{same}, another kernel or grid, to the last digit"
        if seen.moved is not None:
            of = who.mangled, who.grid, who.block
            alike.setdefault(of, []).append((index, seen.time, seen.moved))
    missing = _missing(frame, version, bool(named and modules.ids - named))
    first_damage = "" if newer else "; ".join(damage[:1])
    return Inspection(first_damage, missing, found, copies, _idle(alike))


def _looking(
    frame: Framing, places: Sequence[tuple[FileBlock, Place]], names: Sequence[bytes],
    modules: messages.Modules,
) -> Callable[[int], _Inspected]:  # fmt: skip
    """What inspects the launch at one of the places."""
    devices = messages.devices(frame)
    read = lru_cache(maxsize=None)(cubin.read)

    def look(at: int) -> _Inspected:
        block, (offset, length) = places[at]
        of = messages.process(block)
        try:
            who, values = messages.scalars(frame.data[offset : offset + length], names)
        except Malformed as error:
            return _Inspected(of, str(error))
        code = modules.of(of, who.sources[0]) if len(who.sources) == 1 else ()
        figures = {name: value for name, value in values.items() if isinstance(value, float)}
        checks = [
            *_code(who, modules.ids),
            *_kernel(who, [read(each.code) for each in code if each.code], figures),
            *_geometry(who, figures),
            *_device(devices, values),
            *_rollups(figures),
            *_time(figures),
            *_products(figures),
        ]
        counters, time = _counters(figures), figures.get(_TIME, 0.0)
        return _Inspected(of, "", who, contradictions(checks), counters, time, _moved(figures))

    return look


def _counters(figures: Mapping[bytes, float]) -> bytes:
    """A digest of a launch's counters of the hardware; empty where it has fewer than ALIKE that
    differ."""
    names = _by_hardware(tuple(figures))
    values = [figures[name] for name in names]
    if len({value for value in values if value}) < ALIKE:
        return b""
    return hashlib.blake2b(struct.pack(f"<{len(values)}d", *values), digest_size=16).digest()


@lru_cache(maxsize=16)
def _by_hardware(names: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Those of some names that are counters of the hardware, in order."""
    texts = sorted(name.decode(errors="replace") for name in names)
    return tuple(
        name.encode()
        for name in texts
        if name.startswith(registry.BY_HARDWARE)
        and not any(part in name for part in registry.NOT_BY_HARDWARE)
    )


def _moved(figures: Mapping[bytes, float]) -> float | None:
    """Sectors between the SMs and L2; None where the report does not say."""
    known = [[v for n in names if (v := figures.get(n)) is not None] for names in _TRAFFIC]
    return sum(values[0] for values in known) if all(known) else None


def _idle(alike: Mapping[Any, Sequence[tuple[int, float, float]]]) -> dict[int, float]:
    """The least microseconds of launches of the same kernel and shape that moved nothing between the
    SMs and L2, for those that did: what neither loads nor stores has no work."""
    found: dict[int, float] = {}
    for launches in alike.values():
        times = [time for _, time, moved in launches if moved == 0 and time > 0]
        if times:
            found |= {at: min(times) / _NANOSECONDS * 1e6 for at, _, moved in launches if moved}
    return found


def _missing(frame: Framing, version: str, unused: bool) -> str:
    """Missing parts: ncu writes its version after the first launch, and code before its first."""
    if frame.problem:
        return ""  # The damage is reported as such.
    if not version:
        return "it names no ncu version, as every whole report does: it was cut off between two launches"
    if unused:
        return "it ends with the code of a kernel that no launch ran: it was cut off between two launches"
    return ""


def _code(who: messages.Identity, present: Collection[int]) -> Iterator[Check]:
    """Check that the file has the code that a launch names. Most rules read it."""
    relation = "code is in the file"
    if who.sources:
        lost = any(source not in present for source in who.sources)
        problem = "it names machine code that the file does not contain"
        yield Check(relation, (), problem if lost else "")
    elif who.mangled:
        yield Check(relation, (), "it names no machine code")


def _kernel(
    who: messages.Identity, codes: Sequence[Cubin], figures: Mapping[bytes, float]
) -> Iterator[Check]:
    """Check the launch against the headers of the code that it ran: of several, the one that has
    the kernel, or whose headers do not fit together."""
    fitting = [code for code in codes if code.problem or who.mangled in code.kernels] or codes[:1]
    if not who.mangled or not fitting or (len(fitting) > 1 and not fitting[0].problem):
        return
    code = fitting[0]
    problem = f"the headers of its machine code do not fit together: {code.problem}"
    yield Check("the code's headers fit together", (), problem if code.problem else "")
    if code.problem:
        return
    there = who.mangled in code.kernels
    problem = "its machine code has no kernel of its name"
    yield Check("the kernel is in its code", (), "" if there else problem)
    major, minor = (figures.get(_DEVICE[name]) for name in ("cc_major", "cc_minor"))
    if major is not None and minor is not None:
        fits = code.compute // 10 == major and code.compute % 10 <= minor
        problem = (
            f"its machine code is for sm_{code.compute}, and its GPU is sm_{major:.0f}{minor:.0f}"
        )
        yield Check("the code is for the GPU", (), "" if fits else problem)
    if not there:
        return
    needed, declared = code.kernels[who.mangled], code.shared.get(who.mangled, 0)
    for relation, fact, does, number, most in (
        ("registers ≥ those of the code", "registers", "needs", needed, math.inf),
        ("static shared memory = that of the code", "shared_static", "declares", declared, declared),
    ):  # fmt: skip
        stated = figures.get(_LAUNCH[fact])
        if stated is not None:
            name = _LAUNCH[fact].decode()
            fits = number <= stated <= most or (most == number == stated + _RESERVED_SHARED)
            problem = f"{name} is {stated:.10g}, and its machine code {does} {number}"
            yield Check(relation, (name,), "" if fits else problem)


def _geometry(who: messages.Identity, figures: Mapping[bytes, float]) -> Iterator[Check]:
    """Check grid and block, which are stated twice; ncu 2020.2 states the grid in threads once."""
    for what, stated in (("grid", who.grid), ("block", who.block)):
        names = tuple(_LAUNCH[f"{what}_{axis}"] for axis in "xyz")
        sizes = [figures[name] for name in names if name in figures]
        if stated is None or len(sizes) < len(names):
            continue
        fits = stated == tuple(sizes)
        if not fits and what == "grid" and who.block is not None:
            fits = stated == tuple(map(operator.mul, sizes, who.block))
        shown = ", ".join(f"{size:.10g}" for size in sizes)
        problem = f"its {what} is {', '.join(map(str, stated))} in one place and {shown} in another"
        of = tuple(name.decode() for name in names)
        yield Check("grid and block are the launch's", of, "" if fits else problem)


def _device(
    devices: Sequence[Mapping[bytes, float | bytes | None]],
    values: Mapping[bytes, float | bytes | None],
) -> Iterator[Check]:
    """Check that the launch's GPU is one of the session's."""
    if not any(name in values for device in devices for name in device):
        return
    differing = [
        [name for name, value in device.items() if name in values and values[name] != value]
        for device in devices
        if device
    ]
    names = tuple(name.decode(errors="replace") for name in min(differing, key=len)[:1])
    problem = f"{names[0]} is another than that of any GPU of the session" if names else ""
    yield Check("the GPU is one of the session's", names, problem)


class _Order:
    """The launches of a report in file order. ncu writes each when it is finished, and a thread waits
    for its launch, so that its calls are numbered upwards; threads and processes interleave."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], dict[int, int]] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._latest: dict[tuple[int, int], tuple[int, int]] = {}

    def checks(self, index: int, process: int, who: messages.Identity) -> Iterator[Check]:
        if not who.mangled or who.call is None:
            return
        key = process, who.thread
        calls = self._calls.setdefault(key, {})
        last = self._last.get(key, who.call)
        first = calls.setdefault(who.call, index)
        problem = f"it is there twice: launch {first} is the same call of the same thread"
        yield Check("a call is there once", (), "" if first == index else problem)
        if first != index:
            return
        problem = f"it comes after launch {calls[last]}, which the same thread called later"
        yield Check("calls are in order", (), problem if who.call < last else "")
        self._last[key] = max(who.call, last)
        time, of = self._latest.get(key, (0, 0))
        problem = f"it comes after launch {of}, which was profiled later"
        yield Check("times are in order", (), problem if who.created < time else "")
        self._latest[key] = max((time, of), (who.created, index))


def _rollups(values: Mapping[bytes, float]) -> Iterator[Check]:
    """A sum is the average times the number of units, one number for all metrics of a kind (`sm`,
    `lts`); for percentages the two are equal."""
    pairs: dict[bytes, list[tuple[Named, Named]]] = {}
    for name, average_of_total, kind, low_name, high_name in _averages(tuple(values)):
        average = values[name]
        if not math.isfinite(average):
            continue
        total = values.get(average_of_total)
        if total is not None and math.isfinite(total):
            pairs.setdefault(kind, []).append(((name, average), (average_of_total, total)))
        low, high = values.get(low_name), values.get(high_name)
        if low is None or high is None or not math.isfinite(low + high):
            continue
        slack = _EXACT * max(abs(low), abs(high))
        under, over = average < low - slack, average > high + slack
        end = (low_name, low) if under else (high_name, high)
        yield _pair("minimum ≤ average ≤ maximum", not (under or over), (name, average), end)
    for kind, found in pairs.items():
        units = 1 if kind == b"pct" else _units((average[1], total[1]) for average, total in found)
        for average_of, total_of in found:
            slack = _EXACT * max(1.0 if units == 1 else 0.0, abs(total_of[1]))
            fits = abs(total_of[1] - average_of[1] * units) <= slack
            yield _pair("sum = average × units", fits, average_of, total_of)


@lru_cache(maxsize=16)
def _averages(names: tuple[bytes, ...]) -> tuple[tuple[bytes, bytes, bytes, bytes, bytes], ...]:
    """The averages among some names, each with its sum, its kind, and its minimum and maximum,
    which are empty for rates and shares. Launches of a file have the same names."""
    found = []
    for name in names:
        stem, average, suffix = name.partition(_AVG)
        if average:
            kind = b"pct" if b"pct" in suffix else name.partition(b"__")[0]
            ends = (b"", b"") if suffix else (stem + _MIN, stem + _MAX)
            found.append((name, stem + _SUM + suffix, kind, *ends))
    return tuple(found)


def _units(pairs: Iterable[tuple[float, float]]) -> int:
    """The units by which more than half of the averages become their sums; 0 without such."""
    found = Counter(round(total / average) for average, total in pairs if average and total)
    units, count = found.most_common(1)[0] if found else (0, 0)
    return units if 2 * count > found.total() else 0


def _pair(relation: str, holds: bool, first: Named, second: Named) -> Check:
    held = _held(relation, first[0], second[0])
    if holds:
        return held
    one, other = held.metrics
    problem = f"{one} is {first[1]:.10g} and {other} is {second[1]:.10g}, which do not fit together"
    return Check(relation, held.metrics, problem)


@lru_cache(maxsize=1 << 14)
def _held(relation: str, *names: bytes) -> Check:
    """A relation that holds. Launches of a file have the same metrics, thousands of them."""
    return Check(relation, tuple(name.decode(errors="replace") for name in names))


def _time(values: Mapping[bytes, float]) -> Iterator[Check]:
    """Check each rate against its metric and the time; the time is wrong where most disagree."""
    time = values.get(_TIME)
    if time is None or not math.isfinite(time):
        return
    relation, of = "X / X.per_second = duration", _TIME.decode()
    fitting = 0
    others: list[tuple[bytes, float, float]] = []
    for name, rate in values.items():
        amount = values.get(name.removesuffix(_RATE)) if name.endswith(_RATE) else None
        if amount is None or not (math.isfinite(rate) and math.isfinite(amount)):
            continue
        if amount == rate == 0 or name.startswith(_LINK):
            continue  # it fits any time; it is of the link's own clock
        if _same(amount * _NANOSECONDS, rate * time):
            fitting += 1
            yield _held(relation, _TIME, name)
        else:
            others.append((name, amount, rate))
    rates = [each for each in others if each[2]]
    if rates and len(others) > fitting:
        name, amount, rate = rates[0]
        shown = name.decode(errors="replace")
        gives = f"{shown.removesuffix(_RATE.decode())} / {shown} gives {amount / rate * _NANOSECONDS:.10g} ns"
        yield Check(relation, (of,), f"{of} is {time:.10g} ns, and {gives}")
        return
    for name, amount, rate in others:
        yield _pair(relation, False, (name.removesuffix(_RATE), amount), (name, rate))


def _same(left: float, right: float) -> bool:
    return abs(left - right) <= _EXACT * max(abs(left), abs(right))


_GEOMETRY: Final = "grid and block = their products"
#: Metrics that ncu computes from others: the relation, the metric, its parts, and how.
_PRODUCTS: Final[tuple[tuple[str, str, tuple[str, ...], Callable[..., float | None]], ...]] = (
    ("DRAM bytes = read + written", "dram_total", ("dram_read", "dram_written"), operator.add),
    (
        "latency = warps / issue rate", "warp_latency", ("warps_active", "issue_active"),
        lambda warps, issued: warps / issued if warps and issued else None,
    ),
    (_GEOMETRY, "grid", ("grid_x", "grid_y", "grid_z"), lambda *axes: math.prod(axes)),
    (_GEOMETRY, "block", ("block_x", "block_y", "block_z"), lambda *axes: math.prod(axes)),
    (_GEOMETRY, "threads", ("grid", "block"), operator.mul),
)  # fmt: skip


def _products(values: Mapping[bytes, float]) -> Iterator[Check]:
    """Check metrics that ncu computes from others in the file."""
    for relation, name, parts, made in _PRODUCTS:
        given = [values[_RAW[part]] for part in parts if _RAW[part] in values]
        expected = made(*given) if len(given) == len(parts) else None
        yield from _product(values, relation, _RAW[name], [_RAW[part] for part in parts], expected)
    limits = {values[name]: name for name in _LIMITS if name in values}
    least = min(limits, default=0.0)
    sms = _RAW["launch_sms" if values.get(_RAW["launch_sms"]) else "device_sms"]
    grid, resident = values.get(_RAW["grid"]), least * values.get(sms, 0.0)
    of = (_RAW["grid"], *([limits[least]] if limits else []), sms)
    waves = grid / resident if grid is not None and resident else None
    yield from _product(values, "waves = grid / (limit × SMs)", _RAW["waves"], of, waves)


def _product(
    values: Mapping[bytes, float],
    relation: str,
    name: bytes,
    parts: Sequence[bytes],
    expected: float | None,
) -> Iterator[Check]:
    stated = values.get(name)
    if stated is None or expected is None or not math.isfinite(stated + expected):
        return
    names = tuple(part.decode() for part in (name, *parts))
    problem = f"{names[0]} is {stated:.10g}, and {' and '.join(names[1:])} give {expected:.10g}"
    yield Check(relation, names, "" if _same(stated, expected) else problem)
