"""The per-instruction part of a launch: counters and samples at each SASS instruction, its text,
source lines and the instruction mix.

This is most of the time of a load, so shared tables and shared code are read once."""

import contextlib
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import compress, groupby, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.cache import seal, unsealed
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.metrics import registry
from ncu_toolkit.base.model import Instruction, InstructionMix
from ncu_toolkit.kernel.report import integrity, messages
from ncu_toolkit.kernel.report.integrity import Check
from ncu_toolkit.kernel.report.messages import UNKNOWN, Code

_EXECUTED, _THREADS, _SAMPLES = (
    registry.SOURCE_METRICS[short][0] for short in ("executed", "threads", "samples")
)
#: Metrics whose tables are read by `Metrics.table`, and those whose tables are read otherwise.
TABLES: Final = frozenset(
    [name for names in registry.SOURCE_METRICS.values() for name in names]
    + [registry.sample_metric(reason, not_issued=only) for reason in registry.STALL_REASONS for only in (False, True)]
)  # fmt: skip
KEPT: Final = frozenset(
    {*registry.TIMELINE, registry.OPCODE_METRIC, registry.OPCODE_THREADS_METRIC, registry.LAUNCH_FACTS["function"]}
)  # fmt: skip
#: Metrics whose numbers are read.
NUMBERS: Final = TABLES | KEPT.union(
    registry.LAUNCH_FACTS.values(), registry.DEVICE_FACTS.values(), *(each.ncu for each in registry.REGISTRY.values())
)  # fmt: skip
#: Not a count, so a total of 0 does not say that every instance is 0.
_NOT_ADDITIVE: Final = frozenset({"live_registers"})
#: Source metrics with their own fields in a row.
_COLUMNS: Final = ("executed", "threads", "threads_on", "samples")
_LANES: Final = 32
#: The module's text for code that it cannot read.
_NO_TEXT: Final = ("", "N/A", "???")
#: A number of more than 32 bits, which near the code is the absolute target of a branch.
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{9,}")
#: Least address: smaller ones could be ordinary operands, and such code is not cached.
_LOWEST_BASE: Final = 1 << 32
#: How far from the code's start an address may be.
_REACH: Final = 1 << 28
#: Marks a relative address in a cached text; no SASS holds this character.
_MARK: Final = "\x01"
_DISTANCE: Final = re.compile(f"{_MARK}(-?[0-9]+){_MARK}")
#: Format of a cached file; change it with the content.
_FORMAT: Final = 2
#: Largest cache of texts in bytes; 25 launches take about 2 MB.
KEPT_BYTES: Final = 64 << 20


#: An instruction's text, source file and line ("" and 0 where unknown).
Line = tuple[str, str, int]


@dataclass
class CodeTexts:
    """SASS text and source line by machine code and address, shared by launches and reports:
    disassembly takes most of the time.

    Both depend on the code and its load address alone, so addresses in a text are cached as
    distances from there. All 84 573 lines that came again, at other addresses or in other reports,
    were equal (docs/decisions/07-what-reading-costs.md)."""

    codes: Mapping[int, Code] = field(default_factory=dict)
    """The code of each launch by its place in the file."""
    folder: Path | None = None
    """Folder of cached lines for the module that makes them; None without a cache."""
    _lines: dict[bytes, dict[int, Line]] = field(default_factory=dict)
    """By digest of the code and distance from its start."""
    _made: dict[Code, tuple[Sequence[int], list[Line]]] = field(default_factory=dict)
    _new: set[bytes] = field(default_factory=set)
    _first: dict[tuple[int, int], Any] = field(default_factory=dict)
    """The launch that is asked for all code of a module: each takes the module apart again, in a
    sixth of a second and 30 MB."""
    written: int = 0

    def of(self, place: int) -> Code:
        """The code of a launch."""
        return self.codes.get(place, UNKNOWN)

    def lines(self, action: Any, code: Code, addresses: Sequence[int]) -> list[Line]:
        """Text, file and line of the instruction at each address."""
        base = code.base
        if base is None or base < _LOWEST_BASE:
            return [_asked(action, address) for address in addresses]
        if (made := self._made.get(code)) and made[0] == addresses:
            return made[1]
        known, found = self._known(code), list[Line]()
        if code.module is not None:
            action = self._first.setdefault(code.module, action)
        for address in addresses:
            line = known.get(address - base)
            if line is None:
                line = _asked(action, address)
                if (text := _relative(line[0], base)) is not None:
                    known[address - base] = (text, *line[1:])
                    self._new.add(code.digest)
            elif _MARK in line[0]:
                line = (_placed(line[0], base), *line[1:])
            found.append(line)
        self._made[code] = addresses, found
        return found

    def sources(self, action: Any, place: int) -> Mapping[str, str]:
        """Source text by file name as embedded in the report."""
        known = self.of(place).files
        if known is not None:
            return known
        return {str(name): str(text) for name, text in action.source_files().items() if text}

    def _known(self, code: Code) -> dict[int, Line]:
        known = self._lines.get(code.digest)
        if known is None:
            known = self._lines[code.digest] = _read_lines(self._file(code))
        return known

    def _file(self, code: Code) -> Path | None:
        """The cached file of code that is in the report."""
        return self.folder / f"{code.digest.hex()}.json" if self.folder and code.embedded else None

    def lacking(self) -> list[int]:
        """A launch of each code that is in the report and not in the cache."""
        first: dict[Path | bytes, int] = {}
        for place, code in self.codes.items():
            if code.embedded and (code.base or 0) >= _LOWEST_BASE:
                first.setdefault(self._file(code) or code.digest, place)
        return [place for of, place in first.items() if isinstance(of, bytes) or not of.is_file()]

    def made(self, metrics: "Metrics", place: int, cut: range) -> dict[int, Line]:
        """The lines of a launch's code by distance from its start, within these distances."""
        addresses, code = set(metrics.column("executed")[0]), self.of(place)
        _samples(metrics, not_issued=False, addresses=addresses)
        base = code.base or 0
        self.lines(metrics.action, code, sorted(at for at in addresses if at - base in cut))
        return self._lines.get(code.digest, {})

    def give(self, lines: Mapping[bytes, dict[int, Line]]) -> None:
        """Take lines that another process made, to be cached once their code was read."""
        self._lines |= lines
        self._new |= lines.keys()

    def keep(self, code: Code) -> None:
        """Cache the lines of code without contradictions, where the folder can be written."""
        path = self._file(code)
        if path is None or code.digest not in self._new:
            return
        self._new.discard(code.digest)
        lines = [(place, *line) for place, line in self._lines[code.digest].items()]
        if not any(text in _NO_TEXT for _, text, _, _ in lines):
            with contextlib.suppress(OSError):
                # Only the user may read the cached code.
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                seal(path, json.dumps({"format": _FORMAT, "lines": lines}).encode())
                self.written += 1


def _asked(action: Any, address: int) -> Line:
    info = action.source_info(address)
    text = str(action.sass_by_pc(address) or "").strip()
    return (text, str(info.file_name()), int(info.line())) if info is not None else (text, "", 0)


def _relative(text: str, base: int) -> str | None:
    """A text with its addresses relative to the code; None where they could be something else."""
    moved = _ADDRESS.sub(lambda number: f"{_MARK}{int(number[0], 16) - base}{_MARK}", text)
    near = all(abs(int(far)) < _REACH for far in _DISTANCE.findall(moved))
    return moved if near and _placed(moved, base) == text else None


def _placed(cached: str, base: int) -> str:
    """A cached text with its addresses for code that is loaded at `base`."""
    return _DISTANCE.sub(lambda distance: hex(base + int(distance[1])), cached)


def _read_lines(path: Path | None) -> dict[int, Line]:
    """Cached lines by address; empty where the file is missing or damaged."""
    content = unsealed(path) if path is not None else None
    try:
        cached = files.parse_json(content or b"{}", path)
        if cached.get("format") != _FORMAT:
            return {}
        return {
            int(place): (str(text), str(file), int(line))
            for place, text, file, line in cached["lines"]
        }
    except (InputProblem, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return {}


class Value(NamedTuple):
    """A metric as the profiler has it; its unit is empty where the module names none."""

    number: float
    unit: str


class Metrics:
    """The metrics of one launch, as the profiler's module gives them."""

    def __init__(self, action: Any, tables: Mapping[str, bytes] | None = None) -> None:
        """`tables` are those that were taken out of its message (`messages.lighter`)."""
        self.action, self._tables = action, tables or {}
        self.names = frozenset(action.metric_names())
        # tables of one pass have equal addresses if their ends and counts are equal
        self._ids: dict[tuple[int | bytes, ...], list[int]] = {}
        self._made: dict[bytes, tuple[list[int], messages.CountTable]] = {}
        self.checks: list[Check] = []
        """Relations of the tables that were read."""

    def get(self, name: str) -> Any:
        """The module's own metric; None where the launch does not have it."""
        return self.action.metric_by_name(name) if name in self.names else None

    def value(self, name: str) -> Value | None:
        """A metric; NaN where its value is text."""
        found = self.get(name)
        number = None if found is None else found.value()
        if number is None:
            return None
        return Value(number if isinstance(number, int | float) else math.nan, found.unit())

    def integer(self, name: str) -> int | None:
        """None where the launch does not have it as a number that a count can be."""
        found = self.value(name)
        counted = found is not None and 0 <= found.number < integrity.LARGEST
        return int(found.number) if found is not None and counted else None

    def text(self, name: str) -> str:
        found = self.get(name)
        return "" if found is None else str(found.value())

    def instances(self, name: str, least: int = 1) -> tuple[Any, Any, int]:
        """A metric, what its instances are of, and their number, which is 0 below `least`."""
        found = self.get(name)
        count = 0 if found is None else found.num_instances()
        if count < least or not found.has_correlation_ids():
            return None, None, 0
        return found, found.correlation_ids(), count

    def table(self, name: str, *, additive: bool = True) -> tuple[list[int], list[float]]:
        """Addresses and values of a metric's instances. Values are empty where all of them are 0."""
        found: Any = self.get(name)
        taken: messages.CountTable | None = None
        if found is not None and (entries := self._tables.get(name)):
            addresses, taken = self._read(entries)
        else:
            found, ids, count = self.instances(name)
            if not count:
                return [], []
            key = (count, ids.as_uint64(0), ids.as_uint64(count - 1))
            addresses = self._ids.get(key) or list(map(_bound(ids, "as_uint64"), range(count)))
            self._ids[key] = addresses
        total = found.as_double() if additive and found.has_value() else None
        if total == 0:
            return addresses, []
        values = (
            list(map(_bound(found, "as_double"), range(count))) if taken is None else taken.counts
        )
        summed = self.sum_of(name, values, total or 0.0)
        if summed is None:
            return [], []
        if total is not None:
            relation = "total = sum over instructions"
            self.checks.append(_summed(relation, name, total, summed, "its instructions"))
        return addresses, values

    def _read(self, entries: bytes) -> tuple[list[int], messages.CountTable]:
        """Addresses and counts of a table that was taken out: many of a launch are equal."""
        made = self._made.get(entries)
        if made is None:
            table = messages.CountTable(entries)
            addresses = self._ids.get(table.ends) or table.keys
            made = self._made[entries] = addresses, table
            self._ids[table.ends] = addresses
        return made

    def sum_of(self, name: str, counts: Sequence[float], total: float = 0.0) -> float | None:
        """The sum of a table's counts; None where one of them or their `total` cannot be: what is not
        finite, negative or overflown."""
        # of possible counts the sum overflows as good as never, and a loop takes ten times as long
        summed = sum(counts)
        fit = min(counts, default=0) >= 0 and 0 <= total < integrity.LARGEST > summed
        wrong = (n for n in (*counts, total) if not 0 <= n < integrity.LARGEST)
        first = None if fit else next(wrong, None)
        problem = "" if first is None else f"{name} has a count of {first:.10g}, and is left out"
        self.checks.append(Check("counts are possible", (), problem))
        return None if problem else summed

    def column(self, short: str) -> tuple[list[int], list[float]]:
        """Addresses and values of a source metric, under the newest name that the launch has for it."""
        name = next((n for n in registry.SOURCE_METRICS[short] if n in self.names), "")
        ids, values = self.table(name, additive=short not in _NOT_ADDITIVE)
        return ids, values or [0.0] * len(ids)


def _bound(metric: Any, name: str) -> Callable[[int], Any]:
    """A method of a metric without the Python around it, which takes half of the time of a call;
    the method itself where the module hides its own function."""
    module = sys.modules.get(type(metric).__module__)
    inner = getattr(getattr(module, "_ncu_report", None), f"IMetric_{name}", None)
    found: Callable[[int], Any] = partial(inner, metric) if inner else getattr(metric, name)
    return found


def _summed(relation: str, name: str, total: float, parts: float, of: str) -> Check:
    """Whether a total is the sum of its parts."""
    problem = "" if total == parts else f"{name} is {total:.0f}, and {parts:.0f} summed over {of}"
    return Check(relation, (name,), problem)


@lru_cache(maxsize=1 << 16)
def opcode_of(sass: str) -> str:
    """Mnemonic with modifiers of a SASS line: `@!P0 LDG.E.128 R4, [R2]` gives `LDG.E.128`."""
    words = sass.split()
    while words and (words[0].startswith("@") or words[0] == "{"):
        words = words[1:]
    return words[0].rstrip(";") if words else ""


def instructions(
    metrics: Metrics, texts: CodeTexts, index: int, *, decodes: bool = True
) -> tuple[tuple[Instruction, ...], list[Check]]:
    """The instruction table of a launch in address order, empty where nothing was counted by
    instruction, and the checks of it. `decodes`: the module has a disassembler for the GPU.

    Addresses are relative to the first instruction: absolute ones differ between runs."""
    executed = metrics.column("executed")
    addresses = set(executed[0])
    samples = _samples(metrics, not_issued=False, addresses=addresses)
    if not addresses:
        return (), metrics.checks
    not_issued = _samples(metrics, not_issued=True)
    threads = metrics.column("threads_on")
    if not threads[0]:
        threads = metrics.column("threads")
    counters: defaultdict[int, dict[str, float]] = defaultdict(dict)
    rest = [(n, *metrics.column(n)) for n in registry.SOURCE_METRICS if n not in _COLUMNS]
    for _, several in groupby(rest, key=lambda one: id(one[1])):  # tables of one pass share them
        shorts, (ids, *_), columns = zip(*several, strict=True)
        for address, values in zip(ids, zip(*columns, strict=True), strict=True):
            counters[address].update(zip(shorts, values, strict=True))
    ordered = sorted(addresses)
    code = texts.of(index)
    sass, files, numbers = zip(*texts.lines(metrics.action, code, ordered), strict=True)
    sass = tuple("" if text in _NO_TEXT else text for text in sass)

    def counts(ids: Sequence[int], values: Sequence[float]) -> list[int | None]:
        if ids == ordered:
            return list(map(int, values))
        found = dict(zip(ids, values, strict=True))
        return [None if n is None else int(n) for n in map(found.get, ordered)]

    def tables(found: Mapping[int, Any]) -> Iterator[Any]:
        return map(found.get, ordered, repeat({}))

    rows = tuple(map(
        Instruction, range(len(ordered)), (address - ordered[0] for address in ordered), sass, map(opcode_of, sass), files, numbers,
        counts(*executed), counts(*threads), tables(samples), tables(not_issued), tables(counters),
    ))  # fmt: skip
    checks = [
        *metrics.checks,
        *_entry(code, executed[0]),
        *_readable(code, rows, decodes),
        *_checks(metrics, rows),
    ]
    if not any(check.problem for check in checks):
        texts.keep(code)
    return rows, checks


def _entry(code: Code, executed: Sequence[int]) -> Iterator[Check]:
    """Every kernel runs its first instruction; its subroutines may lie below."""
    if code.base is not None and executed:
        foreign = (
            "" if code.base in executed else "its counts by instruction are of other machine code"
        )
        yield Check("the kernel's entry was executed", (_EXECUTED,), foreign)


def _readable(code: Code, rows: Sequence[Instruction], decodes: bool) -> Iterator[Check]:
    """Some instruction of code in the file has a text. If none has, a header or the table of
    functions is wrong, and rules that read instructions would silently find nothing."""
    if code.embedded and decodes:
        none = all(row.sass in _NO_TEXT for row in rows)
        problem = "its machine code gives no text for the instructions that were counted"
        yield Check("counted instructions have a text", (), problem if none else "")


def _checks(metrics: Metrics, rows: Sequence[Instruction]) -> Iterator[Check]:
    """Relations between counts of one instruction."""
    summed = sum([sum(row.samples.values()) for row in rows if row.samples])
    total = metrics.get(_SAMPLES) if summed else None
    if total is not None and total.has_value():
        relation = "samples = sum over stall reasons"
        yield _summed(relation, _SAMPLES, total.as_double(), summed, "the stall reasons")
    both = [row for row in rows if row.executed is not None and row.threads is not None]
    if both:
        wrong = (
            f"{_THREADS} is {n} at +0x{row.address:x}, where {_EXECUTED} is {warps}: its warps have fewer threads"
            for row in both
            if (n := row.threads or 0) > _LANES * (warps := row.executed or 0)
        )
        yield Check("lanes ≤ 32 × warps", (_EXECUTED, _THREADS), next(wrong, ""))
    late = [row for row in rows if row.samples_not_issued] if summed else []
    waiting = [(row, reason, n) for row in late for reason, n in row.samples_not_issued.items()]
    if waiting:
        wrong = (
            f"at +0x{row.address:x} {n} samples of {reason} were taken without issue, and {row.samples.get(reason, 0)} in all"
            for row, reason, n in waiting
            if n > row.samples.get(reason, 0)
        )
        yield Check("not issued ≤ all samples", (_SAMPLES,), next(wrong, ""))


def _samples(
    metrics: Metrics, *, not_issued: bool, addresses: set[int] | None = None
) -> dict[int, dict[str, int]]:
    """Samples by address and stall reason without zeros; `addresses` gets every sampled address."""
    found: defaultdict[int, dict[str, int]] = defaultdict(dict)
    seen: list[int] = []
    for reason in registry.STALL_REASONS:
        ids, values = metrics.table(registry.sample_metric(reason, not_issued=not_issued))
        if addresses is not None and ids is not seen:
            addresses.update(ids)
            seen = ids  # equal tables share their addresses
        for address, value in zip(compress(ids, values), filter(None, values), strict=True):
            found[address][reason] = int(value)
    return found


def mix(metrics: Metrics, table: Sequence[Instruction]) -> InstructionMix:
    """Executed instructions by opcode, from the per-instruction counts where all have a text, else from
    the profiler's own table, which reports of Volta have (the module cannot disassemble it)."""
    if any(row.executed and row.sass in _NO_TEXT for row in table):
        table = ()
    opcodes: dict[str, int] = {}
    threads: dict[str, int] = {}
    for name, executed, lanes in map(attrgetter("opcode", "executed", "threads"), table):
        if name and executed is not None:
            opcodes[name] = opcodes.get(name, 0) + executed
        if name and lanes is not None:
            threads[name] = threads.get(name, 0) + lanes
    if not opcodes:
        opcodes = _opcode_table(metrics, registry.OPCODE_METRIC)
        threads = _opcode_table(metrics, registry.OPCODE_THREADS_METRIC)
    return InstructionMix(opcodes, threads)


def _opcode_table(metrics: Metrics, name: str) -> dict[str, int]:
    found, ids, count = metrics.instances(name)
    counts = [found.as_double(i) for i in range(count)]
    if metrics.sum_of(name, counts) is None:
        return {}
    return {str(ids.value(i)): int(n) for i, n in enumerate(counts)}
