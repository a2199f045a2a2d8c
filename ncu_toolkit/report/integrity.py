"""Integrity of a report: which parts of the file are missing, and which two figures of one launch
contradict each other.

The format carries no checksum. Each relation here was seen to hold on every real launch there is
(docs/integrity.md counts them); a relation that one intact report breaks is removed, not excused.
What a file says only once can be changed without a trace: a checksum beside the file is the only
proof there (checksums.py)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from ncu_toolkit.metrics import registry
from ncu_toolkit.report import cubin, framing, messages
from ncu_toolkit.report.cubin import Cubin
from ncu_toolkit.report.framing import Framing, Malformed

#: Largest relative deviation of a relation that holds. Real launches stay below 5e-16.
_EXACT: Final = 1e-9
#: Newest ncu (year, number) whose messages are known. A message of a newer one that cannot be read
#: may be a change of the format.
KNOWN: Final = (2026, 3)

_AVG, _SUM, _MIN, _MAX, _RATE = b".avg", b".sum", b".min", b".max", b".per_second"
_TIME: Final = b"gpu__time_duration.sum"
_NANOSECONDS: Final = 1e9
#: Counters of the link between CPU and GPU (C2C): their rates are of another time.
_LINK: Final = b"ctc__"
_LAUNCH: Final = {fact: name.encode() for fact, name in registry.LAUNCH_FACTS.items()}
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


class Check(NamedTuple):
    """A relation checked in one launch: the metrics in it, and the sentence that names two that
    contradict each other, empty where the relation holds."""

    relation: str
    metrics: tuple[str, ...]
    problem: str = ""


def contradictions(checks: Iterable[Check]) -> dict[str, tuple[str, ...]]:
    """The sentences of the relations that do not hold, with the metrics involved: by short name
    where the registry has one. No metrics: the launch as a whole."""
    return {
        check.problem: tuple(dict.fromkeys(_SHORT.get(name, name) for name in check.metrics))
        for check in checks
        if check.problem
    }


@dataclass(frozen=True)
class Inspection:
    """The findings. `damage` names bytes that cannot be read; `missing` the parts that every whole
    file has and this one lacks; `contradictions` are by launch in file order, as in `Profile`."""

    damage: str = ""
    missing: str = ""
    contradictions: Mapping[int, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


def inspect(data: bytes, frame: Framing, version: str = "") -> Inspection:
    """Inspect the blocks of a report. `frame` must be of `data`.

    Args:
        version: the ncu that wrote the file, "2025.3.1", empty where it does not say. Messages of
            one newer than KNOWN that cannot be read are no damage.
    """
    newer = version[:1].isdigit() and tuple(map(int, version.split(".")[:2])) > KNOWN
    damage: list[str] = []
    present: dict[int, Cubin | None] = {}
    named: set[int] = set()
    found: dict[int, Mapping[str, tuple[str, ...]]] = {}
    try:
        names = messages.metric_names(frame)
        devices = messages.devices(frame)
        order = None if messages.merged(frame) else _Order()
    except Malformed as error:
        return Inspection("" if newer else f"in the header of a block: {error}")
    for block in frame.blocks:
        for offset, length in block.sources:
            try:
                source = messages.read_source(data[offset : offset + length], code=True)
            except Malformed as error:
                damage.append(f"at offset {offset}, in the source of a kernel: {error}")
                continue
            code = cubin.read(source.elf) if source.elf else None
            same = present.get(source.identifier, code) == code
            present[source.identifier] = code if same else None
    places = ((block, place) for block in frame.blocks for place in block.results)
    for index, (block, (offset, length)) in enumerate(places):
        message = data[offset : offset + length]
        try:
            who, values = messages.scalars(message, names)
        except Malformed as error:
            damage.append(f"at offset {offset}, in launch {index}: {error}")
            continue
        named.update(who.sources)
        figures = {name: value for name, value in values.items() if isinstance(value, float)}
        checks = [
            *_code(who, present),
            *_kernel(who, present, figures),
            *_geometry(who, figures),
            *_device(devices, values),
            *_figures(figures),
        ]
        if order is not None:
            checks += order.checks(index, _process(block), who)
        broken = contradictions(checks)
        if broken:
            found[index] = broken
    return Inspection(
        "" if newer else "; ".join(damage[:1]),
        _missing(frame, version, bool(named and present.keys() - named)),
        found,
    )


def _missing(frame: Framing, version: str, unused: bool) -> str:
    """Parts that every whole file has. ncu writes its version after the first launch, and the code
    of a kernel before its first launch."""
    if frame.problem:
        return ""  # The damage is reported as such.
    if not version:
        return "it names no ncu version, as every whole report does: it was cut off between two launches"
    if unused:
        return "it ends with the code of a kernel that no launch ran: it was cut off between two launches"
    return ""


def _code(who: messages.Identity, present: Collection[int]) -> Iterator[Check]:
    """Check that the file has the code that a launch names. Most rules read it, so the
    contradiction is of the whole launch."""
    if who.sources:
        lost = any(source not in present for source in who.sources)
        yield Check(
            "code is in the file",
            (),
            "it names machine code that the file does not contain" if lost else "",
        )
    elif who.mangled:
        yield Check("code is in the file", (), "it names no machine code")


def _kernel(
    who: messages.Identity, present: Mapping[int, Cubin | None], figures: Mapping[bytes, float]
) -> Iterator[Check]:
    """Check the launch against the headers of the code that it ran."""
    code = present.get(who.sources[0]) if len(who.sources) == 1 else None
    if code is None or not who.mangled:
        return
    yield Check(
        "the code's headers fit together",
        (),
        f"the headers of its machine code do not fit together: {code.problem}"
        if code.problem
        else "",
    )
    if code.problem:
        return
    there = who.mangled in code.kernels
    yield Check(
        "the kernel is in its code",
        (),
        "" if there else "its machine code has no kernel of its name",
    )
    major, minor = (figures.get(_DEVICE[name]) for name in ("cc_major", "cc_minor"))
    if major is not None and minor is not None:
        fits = code.compute // 10 == major and code.compute % 10 <= minor
        yield Check(
            "the code is for the GPU",
            (),
            "" if fits else f"its machine code is for sm_{code.compute}, and its GPU is sm_{major:.0f}{minor:.0f}",
        )  # fmt: skip
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
    """Check grid and block, which a launch states twice. ncu 2020.2 states the grid in threads
    once."""
    for what, stated in (("grid", who.grid), ("block", who.block)):
        names = tuple(_LAUNCH[f"{what}_{axis}"] for axis in "xyz")
        sizes = tuple(figures.get(name) for name in names)
        if stated is None or None in sizes:
            continue
        fits = stated == sizes
        if not fits and what == "grid" and who.block is not None:
            fits = stated == tuple(
                blocks * threads
                for blocks, threads in zip(sizes, who.block, strict=True)
                if blocks is not None
            )
        shown = ", ".join(f"{size:.10g}" for size in sizes if size is not None)
        yield Check(
            "grid and block are the launch's",
            tuple(name.decode() for name in names),
            "" if fits else f"its {what} is {', '.join(map(str, stated))} in one place and {shown} in another",
        )  # fmt: skip


def _device(
    devices: Sequence[Mapping[bytes, float | bytes | None]],
    values: Mapping[bytes, float | bytes | None],
) -> Iterator[Check]:
    """Check that the launch's GPU is one of the session's."""
    differing = [
        [name for name, value in device.items() if name in values and values[name] != value]
        for device in devices
        if device
    ]
    if not differing or not any(name in values for device in devices for name in device):
        return
    nearest = min(differing, key=len)
    names = tuple(name.decode(errors="replace") for name in nearest[:1])
    yield Check(
        "the GPU is one of the session's",
        names,
        f"{names[0]} is another than that of any GPU of the session" if names else "",
    )


def _process(block: framing.Block) -> int:
    try:
        return messages.process(block)
    except Malformed:
        return 0


class _Order:
    """The launches of a report in the order in which they stand. ncu writes each when it is
    finished, and a thread waits for its launch, so the calls of a thread are numbered upwards.
    Threads and processes come in any order."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], dict[int, int]] = {}
        self._last: dict[tuple[int, int], int] = {}
        self._latest: dict[tuple[int, int], tuple[int, int]] = {}

    def checks(self, index: int, process: int, who: messages.Identity) -> Iterator[Check]:
        if not who.mangled or who.call is None:
            return
        key = process, who.thread
        first = self._calls.setdefault(key, {}).setdefault(who.call, index)
        yield Check(
            "a call is there once",
            (),
            "" if first == index else f"it is there twice: launch {first} is the same call of the same thread",
        )  # fmt: skip
        last = self._last.get(key)
        if first != index:
            return
        late = last is not None and who.call < last
        yield Check(
            "calls are in order",
            (),
            f"it stands after launch {self._calls[key][last]}, which the same thread called later"
            if late and last is not None
            else "",
        )
        self._last[key] = max(who.call, last or 0)
        time, of = self._latest.get(key, (0, 0))
        yield Check(
            "times are in order",
            (),
            f"it stands after launch {of}, which was profiled later" if who.created < time else "",
        )
        self._latest[key] = max((time, of), (who.created, index))


def _figures(values: Mapping[bytes, float]) -> Iterator[Check]:
    yield from _rollups(values)
    yield from _time(values)
    yield from _products(values)


def _rollups(values: Mapping[bytes, float]) -> Iterator[Check]:
    """Sums are averages times a number of units that is the same for all figures of a kind (`sm`,
    `lts`); for percentages the two are the same."""
    pairs: dict[bytes, list[tuple[tuple[bytes, float], tuple[bytes, float]]]] = {}
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
        relation = "minimum ≤ average ≤ maximum"
        slack = _EXACT * max(abs(low), abs(high))
        if average < low - slack:
            yield _check(relation, False, (name, average), (low_name, low))
        else:
            yield _check(relation, average <= high + slack, (name, average), (high_name, high))
    for kind, found in pairs.items():
        units = 1 if kind == b"pct" else _units((average[1], total[1]) for average, total in found)
        for average_of, total_of in found:
            fits = _agree(average_of[1], total_of[1], units)
            yield _check("sum = average × units", fits, average_of, total_of)


@lru_cache(maxsize=16)
def _averages(names: tuple[bytes, ...]) -> tuple[tuple[bytes, bytes, bytes, bytes, bytes], ...]:
    """The averages among the names of a launch's figures, each with its sum, its kind, and its
    minimum and maximum, empty where it is one of a rate or a share. Launches of a file have the
    same names."""
    found = []
    for name in names:
        stem, average, suffix = name.partition(_AVG)
        if average:
            kind = b"pct" if b"pct" in suffix else name.partition(b"__")[0]
            ends = (b"", b"") if suffix else (stem + _MIN, stem + _MAX)
            found.append((name, stem + _SUM + suffix, kind, *ends))
    return tuple(found)


def _units(pairs: Iterable[tuple[float, float]]) -> int:
    """The number of units by which most averages of a kind become their sums; 0 where none is that
    of more than half."""
    found = Counter(round(total / average) for average, total in pairs if average and total)
    units, count = found.most_common(1)[0] if found else (0, 0)
    return units if 2 * count > found.total() else 0


def _agree(average: float, total: float, units: int) -> bool:
    """Whether a sum is its average times the units; 1 for percentages."""
    return abs(total - average * units) <= _EXACT * max(1.0 if units == 1 else 0.0, abs(total))


def _check(
    relation: str, holds: bool, first: tuple[bytes, float], second: tuple[bytes, float]
) -> Check:
    names = (first[0].decode(errors="replace"), second[0].decode(errors="replace"))
    if holds:
        return Check(relation, names)
    return Check(
        relation,
        names,
        f"{names[0]} is {first[1]:.10g} and {names[1]} is {second[1]:.10g}, which do not fit together",
    )


def _time(values: Mapping[bytes, float]) -> Iterator[Check]:
    """Check that every rate is its figure over the kernel's time. Where most rates disagree the
    time is wrong, and one sentence says so."""
    time = values.get(_TIME)
    if time is None or not math.isfinite(time):
        return
    fitting: list[tuple[bytes, float, float]] = []
    others: list[tuple[bytes, float, float]] = []
    for name, rate in values.items():
        amount = values.get(name.removesuffix(_RATE)) if name.endswith(_RATE) else None
        if amount is None or not (math.isfinite(rate) and math.isfinite(amount)):
            continue
        if amount == rate == 0 or name.startswith(_LINK):
            continue  # fits any time; is of the link's own clock
        fits = _same(amount * _NANOSECONDS, rate * time)
        (fitting if fits else others).append((name, amount, rate))
    relation = "X / X.per_second = duration"
    for name, _, _ in fitting:
        yield Check(relation, (_TIME.decode(), name.decode(errors="replace")))
    rates = [(name, amount, rate) for name, amount, rate in others if rate]
    if rates and len(others) > len(fitting):
        name, amount, rate = rates[0]
        figure = name.decode(errors="replace")
        yield Check(
            relation,
            (_TIME.decode(),),
            f"{_TIME.decode()} is {time:.10g} ns, and {figure.removesuffix(_RATE.decode())} / {figure} gives {amount / rate * _NANOSECONDS:.10g} ns",
        )
        return
    for name, amount, rate in others:
        yield _check(relation, False, (name.removesuffix(_RATE), amount), (name, rate))


def _same(left: float, right: float) -> bool:
    return abs(left - right) <= _EXACT * max(abs(left), abs(right))


def _products(values: Mapping[bytes, float]) -> Iterator[Check]:
    """Figures that ncu computes from others in the file."""
    for relation, name, parts, expected in _equations(values):
        stated = values.get(name)
        if stated is None or expected is None or not math.isfinite(stated + expected):
            continue
        names = tuple(part.decode() for part in (name, *parts))
        problem = (
            ""
            if _same(stated, expected)
            else f"{names[0]} is {stated:.10g}, and {' and '.join(names[1:])} give {expected:.10g}"
        )
        yield Check(relation, names, problem)


_Equation = tuple[str, bytes, tuple[bytes, ...], float | None]


def _equations(values: Mapping[bytes, float]) -> Iterator[_Equation]:
    """(relation, figure, the figures it is made of, what they give or None where one is not
    there)."""
    raw = {short: name.encode() for short, name in registry.AGREEMENTS.items()}

    def product(*names: bytes) -> float | None:
        found = [values.get(name) for name in names]
        return None if None in found else math.prod(value for value in found if value is not None)

    read, written = values.get(raw["dram_read"]), values.get(raw["dram_written"])
    both = read + written if read is not None and written is not None else None
    yield (
        "DRAM bytes = read + written",
        raw["dram_total"],
        (raw["dram_read"], raw["dram_written"]),
        both,
    )
    warps, issued = values.get(raw["warps_active"]), values.get(raw["issue_active"])
    cycles = warps / issued if warps and issued else None
    yield (
        "latency = warps / issue rate",
        raw["warp_latency"],
        (raw["warps_active"], raw["issue_active"]),
        cycles,
    )
    geometry = "grid and block = their products"
    for what in ("grid", "block"):
        axes = tuple(f"launch__{what}_dim_{axis}".encode() for axis in "xyz")
        yield geometry, raw[what], axes, product(*axes)
    yield (
        geometry,
        raw["threads"],
        (raw["grid"], raw["block"]),
        product(raw["grid"], raw["block"]),
    )
    limits = {values[name]: name for name in _LIMITS if name in values}
    sms = raw["launch_sms"] if values.get(raw["launch_sms"]) else raw["device_sms"]
    grid, resident = values.get(raw["grid"]), min(limits, default=0.0) * values.get(sms, 0.0)
    yield (
        "waves = grid / (limit × SMs)",
        raw["waves"],
        (raw["grid"], *([limits[min(limits)]] if limits else []), sms),
        grid / resident if grid is not None and resident else None,
    )
