"""The per-instruction part of a launch: counters and samples at each SASS instruction, its text, source lines and the instruction mix.

Most of the time of a load goes here, so each thing is read once: correlation ids that several tables share, and the text of machine code
that several launches run.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ncu_toolkit import metrics
from ncu_toolkit.messages import Code
from ncu_toolkit.model import Instruction, InstructionMix

#: Not a count, so a total of 0 does not say that every instance is 0.
_NOT_ADDITIVE: Final = frozenset({"live_registers"})
#: Bytes of an instruction from Volta on.
_INSTRUCTION: Final = 16
_LANES: Final = 32
#: What the module says of code that it cannot read.
_NO_TEXT: Final = ("", "N/A")
#: An operand that may be an absolute code address, as branches have: the text then belongs to one load of the code.
_ABSOLUTE: Final = re.compile(r"0x[0-9a-f]{6,}")


@dataclass
class CodeTexts:
    """SASS text by machine code and place in it. Disassembling is what costs most, and launches of one kernel share it.

    `codes` has each launch's code in file order; None where that is not known.
    """

    codes: tuple[Code | None, ...] = ()
    texts: dict[tuple[bytes, int], str] = field(default_factory=dict)

    def of(self, index: int) -> Code | None:
        """The code of the launch at a place in the file."""
        return self.codes[index] if index < len(self.codes) else None

    def sass(self, action: Any, code: Code | None, addresses: Iterable[int]) -> list[str]:
        """The text at each address."""
        if code is None or code.base is None:
            return [str(action.sass_by_pc(address) or "").strip() for address in addresses]
        found = []
        for address in addresses:
            place = (code.digest, address - code.base)
            text = self.texts.get(place)
            if text is None:
                text = str(action.sass_by_pc(address) or "").strip()
                if not _ABSOLUTE.search(text):
                    self.texts[place] = text
            found.append(text)
        return found


class _Tables:
    """Instance tables of one launch by address."""

    def __init__(self, action: Any, names: frozenset[str]) -> None:
        self._action, self._names = action, names
        self._ids: dict[tuple[int, int, int], list[int]] = {}
        self.doubts: list[str] = []

    def read(self, name: str, *, additive: bool = True) -> tuple[list[int], list[float]]:
        """Addresses and values of a metric's instances; both empty where it has none. Values are empty where all of them are 0."""
        if name not in self._names:
            return [], []
        found = self._action.metric_by_name(name)
        count = found.num_instances()
        if count == 0 or not found.has_correlation_ids():
            return [], []
        ids = self._addresses(found.correlation_ids(), count)
        if additive and found.has_value() and found.as_double() == 0:
            return ids, []
        values = list(map(found.as_double, range(count)))
        if additive and found.has_value() and sum(values) != found.as_double():
            self.doubts.append(f"{name} is {found.as_double():.0f}, and {sum(values):.0f} summed over its instructions")
        return ids, values

    def _addresses(self, ids: Any, count: int) -> list[int]:
        # the profiler writes the tables of one pass for the same instructions, in ascending order: same ends and count, same table
        key = (count, ids.as_uint64(0), ids.as_uint64(count - 1))
        if key not in self._ids:
            self._ids[key] = addresses = list(map(ids.as_uint64, range(count)))
            if any(second <= first or (second - first) % _INSTRUCTION for first, second in itertools.pairwise(addresses)):
                self.doubts.append("its instructions are not in order")
        return self._ids[key]

    def by_address(self, name: str, *, additive: bool = True) -> dict[int, float]:
        ids, values = self.read(name, additive=additive)
        return dict(zip(ids, values, strict=True)) if values else dict.fromkeys(ids, 0.0)


def opcode_of(sass: str) -> str:
    """Mnemonic with modifiers of a SASS line: `@!P0 LDG.E.128 R4, [R2]` gives `LDG.E.128`."""
    words = sass.split()
    while words and (words[0].startswith("@") or words[0] == "{"):
        words = words[1:]
    return words[0].rstrip(";") if words else ""


def instructions(action: Any, names: frozenset[str], texts: CodeTexts, index: int) -> tuple[tuple[Instruction, ...], list[str]]:
    """The instruction table of a launch in address order, empty where nothing was counted by instruction; and what in it does not fit together.

    Addresses are relative to the first instruction: absolute ones differ between runs and say nothing.
    """
    tables = _Tables(action, names)
    executed = tables.by_address(metrics.SOURCE_METRICS["executed"])
    addresses = set(executed)
    samples = _samples(tables, not_issued=False, addresses=addresses)
    if not addresses:
        return (), tables.doubts
    not_issued = _samples(tables, not_issued=True)
    threads = tables.by_address(metrics.SOURCE_METRICS["threads_on"]) or tables.by_address(metrics.SOURCE_METRICS["threads"])
    extras: dict[int, dict[str, float]] = {}
    for short, name in metrics.SOURCE_METRICS.items():
        if short not in ("executed", "threads", "threads_on", "samples"):
            for address, value in tables.by_address(name, additive=short not in _NOT_ADDITIVE).items():
                extras.setdefault(address, {})[short] = value
    ordered = sorted(addresses)
    code = texts.of(index)
    if code is not None and code.base is not None and executed and ordered[0] != code.base:
        tables.doubts.append("its instructions do not start where its function does")
    rows = []
    for row, (address, sass) in enumerate(zip(ordered, texts.sass(action, code, ordered), strict=True)):
        info = action.source_info(address)
        rows.append(
            Instruction(
                index=row,
                address=address - ordered[0],
                sass=sass,
                opcode=opcode_of(sass),
                file=str(info.file_name()) if info is not None else "",
                line=int(info.line()) if info is not None else 0,
                executed=int(executed[address]) if address in executed else None,
                threads=int(threads[address]) if address in threads else None,
                samples=samples.get(address, {}),
                samples_not_issued=not_issued.get(address, {}),
                counters=extras.get(address, {}),
            )
        )
    if code is not None and code.embedded and any(row.sass in _NO_TEXT for row in rows):
        tables.doubts.append("its machine code cannot be disassembled")
    return tuple(rows), tables.doubts + _doubts(action, names, rows)


def _doubts(action: Any, names: frozenset[str], rows: Sequence[Instruction]) -> list[str]:
    """Counts of one instruction that contradict each other."""
    found = []
    total = metrics.SOURCE_METRICS["samples"]
    if total in names and (metric := action.metric_by_name(total)).has_value():
        stored, summed = metric.as_double(), sum(row.sample_count for row in rows)
        if stored != summed and summed:
            found.append(f"{total} is {stored:.0f}, and {summed} summed over the stall reasons")
    if any(row.executed is not None and row.threads is not None and row.threads > _LANES * row.executed for row in rows):
        found.append("an instruction was executed by more lanes than its warps have")
    if any(n > row.samples.get(reason, 0) for row in rows for reason, n in row.samples_not_issued.items()):
        found.append("an instruction has more samples without issue than samples")
    return found


def _samples(tables: _Tables, *, not_issued: bool, addresses: set[int] | None = None) -> dict[int, dict[str, int]]:
    """Samples by address and stall reason, zeros left out; every address that was sampled at is added to `addresses`."""
    found: dict[int, dict[str, int]] = {}
    for reason in metrics.STALL_REASONS:
        ids, values = tables.read(metrics.sample_metric(reason, not_issued=not_issued))
        if addresses is not None:
            addresses.update(ids)
        for address, value in zip(ids, values, strict=False):  # no values: all of them are 0
            if value:
                found.setdefault(address, {})[reason] = int(value)
    return found


def mix(action: Any, names: frozenset[str], table: tuple[Instruction, ...]) -> InstructionMix:
    """Executed instructions by opcode: joined from the per-instruction counts where they are there, else the profiler's own table."""
    opcodes: dict[str, int] = {}
    threads: dict[str, int] = {}
    for row in table:
        if row.executed is not None and row.opcode:
            opcodes[row.opcode] = opcodes.get(row.opcode, 0) + row.executed
        if row.threads is not None and row.opcode:
            threads[row.opcode] = threads.get(row.opcode, 0) + row.threads
    if not opcodes:
        opcodes = _opcode_table(action, names, metrics.OPCODE_METRIC)
        threads = _opcode_table(action, names, metrics.OPCODE_THREADS_METRIC)
    return InstructionMix(opcodes, threads)


def _opcode_table(action: Any, names: frozenset[str], name: str) -> dict[str, int]:
    if name not in names:
        return {}
    found = action.metric_by_name(name)
    if not found.num_instances() or not found.has_correlation_ids():
        return {}
    ids = found.correlation_ids()
    return {str(ids.value(i)): int(found.value(i)) for i in range(found.num_instances())}


def sources(action: Any) -> Mapping[str, str]:
    """Source text by file name as embedded in the report."""
    return {str(name): str(text) for name, text in action.source_files().items() if text}
