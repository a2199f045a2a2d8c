"""Does a report agree with itself? The format carries no checksum, but it says many things twice;
where the two differ, something was changed.

Every relation here holds to the last digits in real files of ncu 2020.3 to 2025.3 (worst deviation
4e-16). What a file says only once, text above all, can be changed without a trace: a checksum
beside the file is the only proof there (see checksums.py and docs/integrity.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ncu_toolkit.metrics import registry
from ncu_toolkit.report import messages
from ncu_toolkit.report.framing import Framing, Malformed
from ncu_toolkit.report.messages import Identity

#: Largest relative deviation of a relation that is exact but for the rounding of three operations
#: on doubles.
ROUNDING: Final = 4e-15
#: A longer list of problems of one launch says no more.
_SHOWN: Final = 2
_AVG, _SUM, _MIN, _MAX = b".avg", b".sum", b".min", b".max"
_LIMITS: Final = tuple(
    registry.REGISTRY[f"block_limit_{what}"].ncu[0].encode()
    for what in ("blocks", "registers", "shared", "warps", "barriers")
)


@dataclass(frozen=True)
class Inspection:
    """What does not fit: of the file as a whole, and by launch in file order."""

    problems: tuple[str, ...] = ()
    launches: Mapping[int, str] = field(default_factory=dict)


#: Newest ncu (year, number) whose messages are known; what cannot be read in a newer file may be a
#: change of the format.
KNOWN: Final = (2026, 3)


def inspect(data: bytes, frame: Framing, version: str = "") -> Inspection:
    """Hold a report's messages against each other. `frame` must be of `data`; launches are numbered
    in file order.

    Args:
        version: the ncu that wrote the file, "2025.3.1"; for one newer than KNOWN, messages that
            cannot be read are not held against it.
    """
    newer = version[:1].isdigit() and tuple(map(int, version.split(".")[:2])) > KNOWN
    found = _inspect(data, frame)
    return (
        Inspection(
            problems=tuple(p for p in found.problems if _UNREADABLE not in p),
            launches={k: v for k, v in found.launches.items() if _UNREADABLE not in v},
        )
        if newer
        else found
    )


_UNREADABLE: Final = "cannot be read"


def _inspect(data: bytes, frame: Framing) -> Inspection:
    problems: list[str] = []
    try:
        names = messages.metric_names(frame)
        problems += _name_table(names)
    except Malformed as error:
        return Inspection((f"the table of metric names cannot be read: {error}",))
    problems += _processes(frame)
    try:
        sources = [
            messages.read_source(data[offset : offset + length])
            for block in frame.blocks
            for offset, length in block.sources
        ]
        devices = messages.device_attributes(frame)
    except Malformed as error:
        return Inspection((*problems, f"a source or the session's data cannot be read: {error}"))
    functions: dict[int, set[bytes]] = {}
    for source in sources:
        functions.setdefault(source.identifier, set()).update(source.functions)
    launches: dict[int, str] = {}
    seen: set[Identity] = set()
    previous: Identity | None = None
    for index, (block, message) in enumerate(messages.results(data, frame)):
        try:
            who = messages.identity(message)
            values = {
                name: value
                for name, value in messages.scalars(message, names).items()
                if isinstance(value, float)
            }
        except Malformed as error:
            launches[index] = f"its data cannot be read: {error}"
            continue
        found = [*_launch(who, values), *_references(who, functions), *_device(values, devices)]
        if who.process != messages.process(block)[0]:
            found.append("it is of another process than its block")
        if who in seen:
            found.append("it is in the file twice")
        if previous is not None and who.process == previous.process and who.time < previous.time:
            found.append("it was launched before the one that precedes it in the file")
        seen.add(who)
        previous = who
        if found:
            launches[index] = "; ".join(found[:_SHOWN]) + (
                f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            )
    orphans = functions.keys() - {identifier for who in seen for identifier in who.sources}
    if orphans and any(who.sources for who in seen) and not launches and not frame.problem:
        problems.append(f"{len(orphans)} of its sources belong to no launch: launches are missing")
    return Inspection(tuple(problems), launches)


def _processes(frame: Framing) -> Iterator[str]:
    """Every block says which process it is of, and all blocks of one process say the same of it."""
    said: dict[int, bytes] = {}
    for block in frame.blocks:
        try:
            number, description = messages.process(block)
        except Malformed as error:
            yield f"the block at offset {block.offset} cannot be read: {error}"
            continue
        if said.setdefault(number, description) != description:
            yield f"the block at offset {block.offset} describes process {number} differently from those before"
            return


def _references(who: Identity, functions: Mapping[int, set[bytes]]) -> Iterator[str]:
    """A launch names the source of its code, and that source knows the function."""
    if not functions or not who.mangled:
        return
    if not who.sources:
        yield "it refers to no code"
    elif any(identifier not in functions for identifier in who.sources):
        yield "the code it refers to is not in the file"
    else:
        known = set().union(*(functions[identifier] for identifier in who.sources))
        if known and who.mangled not in known:
            yield "the code it refers to has no function of its name"


def _device(
    values: Mapping[bytes, float], devices: Sequence[Mapping[bytes, float]]
) -> Iterator[str]:
    """The device's attributes stand at the launch and in the session's data; with several devices a
    launch is of one of them."""
    mine = {name: value for name, value in values.items() if name.startswith(b"device__attribute_")}
    if not mine or not devices:
        return
    differing = [
        [name for name in mine.keys() & device.keys() if mine[name] != device[name]]
        for device in devices
    ]
    if all(differing):
        yield f"{min(differing, key=len)[0].decode()} is not what the session's data say"


def _name_table(names: list[bytes]) -> Iterator[str]:
    known = {name.encode() for name in registry.raw_names()} | {
        name.encode() for name in (*registry.LAUNCH_FACTS.values(), *registry.DEVICE_FACTS.values())
    }
    known |= {name.encode() for name in registry.SOURCE_METRICS.values()}
    table = set(names)
    if len(table) != len(names):
        yield "a metric's name is in its table twice"
    absent: dict[int, list[bytes]] = {}
    for name in known - table:
        absent.setdefault(len(name), []).append(name)
    for name in table - known:
        if not name or any(byte <= 32 or byte >= 127 for byte in name):
            yield f"a metric has the name {name[:60].decode('utf-8', 'backslashreplace')!r}"
            continue
        for other in absent.get(len(name), ()):
            if sum(a != b for a, b in zip(name, other, strict=True)) == 1:
                yield from _one_letter_off(name, other)


def _one_letter_off(name: bytes, other: bytes) -> Iterator[str]:
    """A name one character away from a metric of ours that is not there. Digits differ between real
    names (fp16, fp64), and types of matrices (dmma, hmma); others do not."""
    at, wrong, right = next(
        (at, a, b) for at, (a, b) in enumerate(zip(name, other, strict=True)) if a != b
    )
    if not (chr(wrong).isdigit() and chr(right).isdigit()) and name[at + 1 : at + 4] != b"mma":
        yield f"there is a metric '{name.decode()}', and none '{other.decode()}'"


def _launch(who: Identity, values: Mapping[bytes, float]) -> Iterator[str]:
    yield from _names(who)
    yield from _shape(who, values)
    yield from _rollups(values)
    yield from _products(values)


def _names(who: Identity) -> Iterator[str]:
    if not who.mangled or not who.function:
        if who.mangled or who.function:  # a profiled range has neither
            yield "one of its names is missing"
    elif who.mangled.startswith(b"_Z"):
        if b"%d%s" % (len(who.function), who.function) not in who.mangled:
            yield "its mangled name is of another function"
    elif who.mangled != who.function:
        yield "its two names differ"


def _shape(who: Identity, values: Mapping[bytes, float]) -> Iterator[str]:
    for what, stored in (("grid", who.grid), ("block", who.block)):
        listed = [values.get(f"launch__{what}_dim_{axis}".encode()) for axis in "xyz"]
        if None in listed:
            continue  # an incomplete launch has none
        if stored and tuple(listed) != stored:
            yield f"its {what} is stored as {' x '.join(map(str, stored))} and as {' x '.join(f'{value:g}' for value in listed if value is not None)}"
        size = values.get(f"launch__{what}_size".encode())
        product = math.prod(value for value in listed if value is not None)
        if size is not None and size != product:
            yield f"its {what} has {product:g} elements, and a size of {size:g}"


def _rollups(values: Mapping[bytes, float]) -> Iterator[str]:
    """Sums are averages times a whole number of units; for percentages the two are the same.
    Minimum, average and maximum are in order."""
    for name, average in values.items():
        at = name.find(_AVG)
        if at < 0:
            continue
        stem, suffix = name[:at], name[at + len(_AVG) :]
        total = values.get(stem + _SUM + suffix)
        if total is not None and not _agree(average, total, b"pct" in suffix):
            yield f"{name.decode()} = {average:g} and its sum {total:g} do not fit"
        if not suffix:
            low, high = values.get(stem + _MIN), values.get(stem + _MAX)
            if (
                low is not None
                and high is not None
                and not (_at_most(low, average) and _at_most(average, high))
            ):
                yield f"{name.decode()} = {average:g} is not between {low:g} and {high:g}"


def _agree(average: float, total: float, percentage: bool) -> bool:
    if not (math.isfinite(average) and math.isfinite(total)):
        return math.isnan(average) == math.isnan(total)
    if average == 0 or total == 0:
        return average == total
    if percentage:  # it may be what is left of 100, whose rounding a small rest keeps: idle issue slots of a busy kernel
        return abs(total - average) <= ROUNDING * max(100.0, abs(average))
    units = round(total / average)
    return units >= 1 and abs(total / average / units - 1) <= ROUNDING


def _at_most(low: float, high: float) -> bool:
    return not (low > high * (1 + ROUNDING)) or math.isnan(low + high)


def _products(values: Mapping[bytes, float]) -> Iterator[str]:
    """Figures that ncu computes from others in the file."""
    for what, left, right in _equations(values):
        if left is None or right is None or not (math.isfinite(left) and math.isfinite(right)):
            continue
        if abs(left - right) > ROUNDING * max(abs(left), abs(right)):
            yield f"{what} = {left:g} should be {right:g} by the figures it is made of"


def _equations(values: Mapping[bytes, float]) -> Iterable[tuple[str, float | None, float | None]]:
    named = registry.AGREEMENTS

    def get(short: str) -> float | None:
        return values.get(named[short].encode())

    def told(short: str, expected: float | None) -> tuple[str, float | None, float | None]:
        return named[short], get(short), expected

    read, written = get("dram_read"), get("dram_written")
    yield told("dram_total", read + written if read is not None and written is not None else None)
    warps, issued = get("warps_active"), get("issue_active")
    yield told("warp_latency", warps / issued if warps and issued else None)
    grid, block = get("grid"), get("block")
    yield told("threads", grid * block if grid is not None and block is not None else None)
    limits = [value for name in _LIMITS if (value := values.get(name)) is not None]
    processors = get("launch_sms") or get("device_sms")
    yield told(
        "waves",
        grid / (min(limits) * processors)
        if grid and limits and min(limits) and processors
        else None,
    )
