"""The per-instruction part of a launch: counters and samples at each SASS instruction, its text,
source lines and the instruction mix.

Most of the time of a load goes here, so each thing is read once: correlation ids that several
tables share, and the text of machine code that several launches run."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.core.cache import replace_file
from ncu_toolkit.metrics import registry
from ncu_toolkit.model import Instruction, InstructionMix
from ncu_toolkit.report.integrity import Check
from ncu_toolkit.report.messages import Code

#: Not a count, so a total of 0 does not say that every instance is 0.
_NOT_ADDITIVE: Final = frozenset({"live_registers"})
_LANES: Final = 32
#: The module's text for code that it cannot read.
_NO_TEXT: Final = ("", "N/A", "???")
#: The module has no disassembler for Volta.
DECODED_SINCE: Final = (7, 5)
#: A number of more than 32 bits, which near the code is the absolute target of a branch.
_ADDRESS: Final = re.compile(r"0x[0-9a-f]{9,}")
#: Least address: a smaller one could be an ordinary operand, and such code is read anew for each
#: launch.
_LOWEST_BASE: Final = 1 << 32
#: How far from the code's start an address may be.
_REACH: Final = 1 << 28
#: Marks a relative address in a cached text; no SASS holds this character.
_MARK: Final = "\x01"
_DISTANCE: Final = re.compile(f"{_MARK}(-?[0-9]+){_MARK}")
#: Format of a cached file; change it with the content.
_FORMAT: Final = 1
#: Largest cache of texts in bytes; 25 launches take about 2 MB.
KEPT_BYTES: Final = 64 << 20


#: An instruction's text, and the source file and line that it was made from ("" and 0 where that is
#: not known).
Line = tuple[str, str, int]


@dataclass
class CodeTexts:
    """SASS text and source line by machine code and address. Disassembly takes most of the time;
    launches of one kernel share it, and so do reports.

    Both depend on the code and on nothing else but where the code was loaded: addresses in a text
    are cached as distances from there. That gave the same in all 84 573 lines that came again, at
    other addresses or in other reports (docs/decisions/07-what-reading-costs.md)."""

    codes: Mapping[int, Code | None] = field(default_factory=dict)
    """The code of each launch by its place in the file; None where that is not known."""
    folder: Path | None = None
    """Folder of cached lines for the module that makes them; None without a cache."""
    _lines: dict[bytes, dict[int, Line]] = field(default_factory=dict)
    _new: set[bytes] = field(default_factory=set)
    written: int = 0

    def lines(self, action: Any, code: Code | None, addresses: Iterable[int]) -> list[Line]:
        """Text, file and line of the instruction at each address."""
        if code is None or code.base is None or code.base < _LOWEST_BASE:
            return [_asked(action, address) for address in addresses]
        base, known = code.base, self._known(code)
        found = []
        for address in addresses:
            cached = known.get(address - base)
            if cached is not None:
                found.append(
                    (_placed(cached[0], base), cached[1], cached[2])
                    if _MARK in cached[0]
                    else cached
                )
                continue
            line = _asked(action, address)
            found.append(line)
            text = _ADDRESS.sub(
                lambda number: f"{_MARK}{int(number[0], 16) - base}{_MARK}", line[0]
            )
            if _placed(text, base) == line[0] and all(
                abs(int(far)) < _REACH for far in _DISTANCE.findall(text)
            ):
                known[address - base] = (text, *line[1:])
                self._new.add(code.digest)
        return found

    def sources(self, action: Any, place: int) -> Mapping[str, str]:
        """Source text by file name as embedded in the report."""
        code = self.codes.get(place)
        if code is not None:
            return code.files
        return {str(name): str(text) for name, text in action.source_files().items() if text}

    def _known(self, code: Code) -> dict[int, Line]:
        known = self._lines.get(code.digest)
        if known is None:
            known = self._lines[code.digest] = _read_lines(self._file(code))
        return known

    def _file(self, code: Code | None) -> Path | None:
        return (
            self.folder / f"{code.digest.hex()}.json"
            if self.folder is not None and code is not None and code.embedded
            else None
        )

    def complete(self) -> bool:
        """Whether the lines of every launch's code came from the cache."""
        return all(
            path.is_file() for code in self.codes.values() if (path := self._file(code)) is not None
        )

    def keep(self, code: Code | None) -> None:
        """Cache the lines of code without contradictions. A folder that cannot be written is
        ignored."""
        path = self._file(code)
        if code is None or path is None or code.digest not in self._new:
            return
        self._new.discard(code.digest)
        known = self._lines[code.digest]
        if not any(text in _NO_TEXT for text, _, _ in known.values()):
            with contextlib.suppress(OSError):
                path.parent.mkdir(
                    parents=True, exist_ok=True, mode=0o700
                )  # Only the user may read the cached code.
                replace_file(
                    path,
                    json.dumps(
                        {
                            "format": _FORMAT,
                            "lines": [(place, *line) for place, line in known.items()],
                        }
                    ).encode(),
                )
                self.written += 1


def _asked(action: Any, address: int) -> Line:
    info = action.source_info(address)
    text = str(action.sass_by_pc(address) or "").strip()
    return (text, str(info.file_name()), int(info.line())) if info is not None else (text, "", 0)


def _placed(cached: str, base: int) -> str:
    """A cached text with its addresses for code that is loaded at `base`."""
    return _DISTANCE.sub(lambda distance: hex(base + int(distance[1])), cached)


def _read_lines(path: Path | None) -> dict[int, Line]:
    """Cached lines by address; empty where the file is missing or damaged."""
    try:
        cached = json.loads(path.read_bytes()) if path is not None else {}
        if cached.get("format") != _FORMAT:
            return {}
        return {
            int(place): (str(text), str(file), int(line))
            for place, text, file, line in cached["lines"]
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def trim(folder: Path) -> None:
    """Delete the oldest cached files below a folder until KEPT_BYTES are left."""
    with contextlib.suppress(OSError):
        files = sorted(
            ((path.stat().st_mtime, path.stat().st_size, path) for path in folder.rglob("*.json")),
            reverse=True,
        )
        left = KEPT_BYTES
        for _, size, path in files:
            left -= size
            if left < 0:
                path.unlink(missing_ok=True)


class _Tables:
    """Instance tables of one launch by address."""

    def __init__(self, action: Any, names: frozenset[str]) -> None:
        self._action, self._names = action, names
        self._ids: dict[tuple[int, int, int], list[int]] = {}
        self.checks: list[Check] = []

    def read(self, name: str, *, additive: bool = True) -> tuple[list[int], list[float]]:
        """Addresses and values of a metric's instances; both empty where it has none. Values are
        empty where all of them are 0."""
        if name not in self._names:
            return [], []
        found = self._action.metric_by_name(name)
        count = found.num_instances()
        if count == 0 or not found.has_correlation_ids():
            return [], []
        ids = self._addresses(found.correlation_ids(), count)
        if additive and found.has_value() and found.as_double() == 0:
            return ids, []
        values = list(map(_bound(found, "as_double"), range(count)))
        if additive and found.has_value():
            self.checks.append(
                _summed(
                    "total = sum over instructions",
                    name,
                    found.as_double(),
                    sum(values),
                    "its instructions",
                )
            )
        return ids, values

    def _addresses(self, ids: Any, count: int) -> list[int]:
        # Tables of one pass have the same instructions in the same order: equal ends and count
        # mean an equal table.
        key = (count, ids.as_uint64(0), ids.as_uint64(count - 1))
        if key not in self._ids:
            self._ids[key] = list(map(_bound(ids, "as_uint64"), range(count)))
        return self._ids[key]

    def by_address(self, short: str, *, additive: bool = True) -> dict[int, float]:
        """A source metric by address, under the newest name that the launch has for it."""
        name = next((n for n in registry.SOURCE_METRICS[short] if n in self._names), "")
        ids, values = self.read(name, additive=additive)
        return dict(zip(ids, values, strict=True)) if values else dict.fromkeys(ids, 0.0)


def _bound(metric: Any, name: str) -> Callable[[int], Any]:
    """A method of a metric without the Python around the module's own function, which takes half
    of the time of a call; the method itself where the module does not show that function."""
    module = sys.modules.get(type(metric).__module__)
    inner = getattr(getattr(module, "_ncu_report", None), f"IMetric_{name}", None)
    found: Callable[[int], Any] = partial(inner, metric) if inner else getattr(metric, name)
    return found


def _summed(relation: str, name: str, total: float, parts: float, of: str) -> Check:
    """Whether a total is the sum of its parts."""
    problem = "" if total == parts else f"{name} is {total:.0f}, and {parts:.0f} summed over {of}"
    return Check(relation, (name,), problem)


def opcode_of(sass: str) -> str:
    """Mnemonic with modifiers of a SASS line: `@!P0 LDG.E.128 R4, [R2]` gives `LDG.E.128`."""
    words = sass.split()
    while words and (words[0].startswith("@") or words[0] == "{"):
        words = words[1:]
    return words[0].rstrip(";") if words else ""


def instructions(
    action: Any, names: frozenset[str], texts: CodeTexts, index: int, *, decodes: bool = True
) -> tuple[tuple[Instruction, ...], list[Check]]:
    """The instruction table of a launch in address order, empty where nothing was counted by
    instruction; and the relations looked at in it. `decodes`: the module has a disassembler for
    the GPU.

    Addresses are relative to the first instruction: absolute ones differ between runs and say
    nothing."""
    tables = _Tables(action, names)
    executed = tables.by_address("executed")
    addresses = set(executed)
    samples = _samples(tables, not_issued=False, addresses=addresses)
    if not addresses:
        return (), tables.checks
    not_issued = _samples(tables, not_issued=True)
    threads = tables.by_address("threads_on") or tables.by_address("threads")
    extras: dict[int, dict[str, float]] = {}
    for short in registry.SOURCE_METRICS:
        if short not in ("executed", "threads", "threads_on", "samples"):
            for address, value in tables.by_address(
                short, additive=short not in _NOT_ADDITIVE
            ).items():
                extras.setdefault(address, {})[short] = value
    ordered = sorted(addresses)
    code = texts.codes.get(index)
    rows = []
    for row, (address, (sass, file, line)) in enumerate(
        zip(ordered, texts.lines(action, code, ordered), strict=True)
    ):
        rows.append(
            Instruction(
                index=row,
                address=address - ordered[0],
                sass=sass,
                opcode=opcode_of(sass),
                file=file,
                line=line,
                executed=int(executed[address]) if address in executed else None,
                threads=int(threads[address]) if address in threads else None,
                samples=samples.get(address, {}),
                samples_not_issued=not_issued.get(address, {}),
                counters=extras.get(address, {}),
            )
        )
    checks = [
        *tables.checks,
        *_entry(code, executed),
        *_readable(code, rows, decodes),
        *_checks(action, names, rows),
    ]
    if not any(check.problem for check in checks):
        texts.keep(code)
    return tuple(rows), checks


def _entry(code: Code | None, executed: Mapping[int, float]) -> Iterator[Check]:
    """Every kernel runs its first instruction; its subroutines may lie below."""
    if code is not None and code.base is not None and executed:
        foreign = code.base not in executed
        yield Check(
            "the kernel's entry was executed",
            (registry.SOURCE_METRICS["executed"][0],),
            "its counts by instruction are of other machine code" if foreign else "",
        )


def _readable(code: Code | None, rows: Sequence[Instruction], decodes: bool) -> Iterator[Check]:
    """Some instruction of code that is in the file has a text. One without may be newer than the
    disassembler; all without means that a header or the table of functions leads elsewhere, and
    rules that read instructions then find nothing without a word."""
    if code is not None and code.embedded and decodes:
        none = all(row.sass in _NO_TEXT for row in rows)
        yield Check(
            "counted instructions have a text",
            (),
            "its machine code gives no text for the instructions that were counted" if none else "",
        )


def _checks(action: Any, names: frozenset[str], rows: Sequence[Instruction]) -> Iterator[Check]:
    """Relations between counts of one instruction."""
    samples = registry.SOURCE_METRICS["samples"][0]
    summed = sum(row.sample_count for row in rows)
    if summed and samples in names and (metric := action.metric_by_name(samples)).has_value():
        yield _summed(
            "samples = sum over stall reasons",
            samples,
            metric.as_double(),
            summed,
            "the stall reasons",
        )
    executed, threads = (registry.SOURCE_METRICS[short][0] for short in ("executed", "threads"))
    counted = [(row, row.executed, row.threads) for row in rows]
    both = [(row, warps, n) for row, warps, n in counted if warps is not None and n is not None]
    if both:
        yield Check(
            "lanes ≤ 32 × warps",
            (executed, threads),
            next(
                (
                    f"{threads} is {n} at +0x{row.address:x}, where {executed} is {warps}: its warps have fewer threads"
                    for row, warps, n in both
                    if n > _LANES * warps
                ),
                "",
            ),
        )
    waiting = [
        (row, reason, n) for row in rows for reason, n in row.samples_not_issued.items() if summed
    ]
    if waiting:
        yield Check(
            "not issued ≤ all samples",
            (samples,),
            next(
                (
                    f"at +0x{row.address:x} {n} samples of {reason} were taken without issue, and {row.samples.get(reason, 0)} in all"
                    for row, reason, n in waiting
                    if n > row.samples.get(reason, 0)
                ),
                "",
            ),
        )


def _samples(
    tables: _Tables, *, not_issued: bool, addresses: set[int] | None = None
) -> dict[int, dict[str, int]]:
    """Samples by address and stall reason, zeros left out; every address that was sampled at is
    added to `addresses`."""
    found: dict[int, dict[str, int]] = {}
    for reason in registry.STALL_REASONS:
        ids, values = tables.read(registry.sample_metric(reason, not_issued=not_issued))
        if addresses is not None:
            addresses.update(ids)
        for address, value in zip(ids, values, strict=False):  # no values: all of them are 0
            if value:
                found.setdefault(address, {})[reason] = int(value)
    return found


def mix(action: Any, names: frozenset[str], table: tuple[Instruction, ...]) -> InstructionMix:
    """Executed instructions by opcode: joined from the per-instruction counts where they are there
    and the text of each is known, else the profiler's own table. The report module cannot
    disassemble Volta, whose reports hold that table."""
    if any(row.executed and row.sass in _NO_TEXT for row in table):
        table = ()
    opcodes: dict[str, int] = {}
    threads: dict[str, int] = {}
    for row in table:
        if row.executed is not None and row.opcode:
            opcodes[row.opcode] = opcodes.get(row.opcode, 0) + row.executed
        if row.threads is not None and row.opcode:
            threads[row.opcode] = threads.get(row.opcode, 0) + row.threads
    if not opcodes:
        opcodes = _opcode_table(action, names, registry.OPCODE_METRIC)
        threads = _opcode_table(action, names, registry.OPCODE_THREADS_METRIC)
    return InstructionMix(opcodes, threads)


def _opcode_table(action: Any, names: frozenset[str], name: str) -> dict[str, int]:
    if name not in names:
        return {}
    found = action.metric_by_name(name)
    if not found.num_instances() or not found.has_correlation_ids():
        return {}
    ids = found.correlation_ids()
    return {str(ids.value(i)): int(found.value(i)) for i in range(found.num_instances())}
