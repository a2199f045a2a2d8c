"""Which instruction a warp waits for: a light data flow over SASS text, enough to attribute stall
samples to their producers.

PC sampling puts a throttle stall on the instruction that cannot issue, and a scoreboard stall on
the *consumer* of the late result. To name the load (or the special function) that a warp waits for,
the consumer's source registers are traced to the nearest earlier writer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ncu_toolkit.model import Instruction, Profile
from ncu_toolkit.sass.dataflow import Graph

#: Base opcodes by what they are, as the CUDA binary utilities' instruction set reference groups
#: them.
KINDS: Final[dict[str, tuple[str, ...]]] = {
    "global": ("LDG", "STG", "LD", "ST"),
    "copy": ("LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG", "UBLKRED"),
    "local": ("LDL", "STL"),
    "shared": ("LDS", "STS", "LDSM", "STSM"),
    "atomic": ("ATOM", "ATOMG", "RED", "ATOMS", "REDG"),
    "constant": ("LDC",),
    "texture": ("TEX", "TLD", "TLD4", "TXQ", "SULD", "SUST", "SUATOM", "SURED", "TMML"),
    "special": ("MUFU", "I2F", "F2I", "F2F", "FRND", "I2I", "POPC", "FLO", "BREV", "I2FP", "F2FP"),
    "shuffle": ("SHFL", "VOTE", "MATCH", "REDUX"),
    "fp64": ("DFMA", "DADD", "DMUL", "DSETP", "DMNMX"),
    "fp32": ("FFMA", "FADD", "FMUL", "FFMA2", "FADD2", "FMUL2", "FMNMX", "FSETP", "FSEL", "FCHK", "FFMA32I", "FADD32I", "FMUL32I", "FSWZADD", "FSET"),
    "fp16": ("HFMA2", "HADD2", "HMUL2", "HSETP2", "HSET2", "HMNMX2", "HFMA2_32I"),
    "tensor": ("HMMA", "IMMA", "DMMA", "BMMA", "HGMMA", "QGMMA", "IGMMA", "BGMMA", "QMMA", "OMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA"),
    "integer": (
        "IADD", "IADD3", "IMAD", "ISETP", "LEA", "LOP", "LOP3", "SHF", "SHL", "SHR", "IABS", "IMNMX", "VIMNMX", "BMSK", "SGXT", "LOP32I", "IADD32I",
        "IMUL", "IDP", "PRMT",
        "XMAD", "ISCADD", "PLOP3", "VIADD", "IADD2", "VIADDMNMX", "ISCADD32I",
    ),
    "uniform": ("UIADD3", "UIMAD", "UISETP", "ULEA", "ULOP3", "USHF", "UMOV", "USEL", "ULDC", "R2UR", "UPRMT", "UPLOP3", "UFLO", "UPOPC", "UVIADD",
    "USGXT", "UBMSK"),
    "barrier": ("BAR", "DEPBAR", "LDGDEPBAR", "SYNCS", "WARPSYNC", "ERRBAR", "MEMBAR", "ARRIVES", "WARPGROUP", "NANOSLEEP", "UCGABAR_ARV",
    "UCGABAR_WAIT", "CCTLALL"),
    "control": ("BRA", "BRX", "JMP", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "YIELD", "NOP", "KILL", "JMX", "BMOV", "WARPGROUPSET",
    "ACQBULK", "PREEXIT"),
}  # fmt: skip
_KIND_OF: Final = {opcode: kind for kind, opcodes in KINDS.items() for opcode in opcodes}

#: Kinds whose results arrive through the long scoreboard (L1TEX) and the short one (MIO), per the
#: profiler's stall documentation.
LONG_PRODUCERS: Final = ("global", "copy", "local", "atomic", "texture")
SHORT_PRODUCERS: Final = ("shared", "special", "shuffle", "constant", "atomic", "fp64")

_REGISTER: Final = re.compile(r"(?<![\w.])R(\d+)(\.64)?(?!\w)")
_WIDTHS: Final = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_NO_DESTINATION: Final = frozenset(
    (
        "STG",
        "ST",
        "STL",
        "STS",
        "STSM",
        "RED",
        "REDG",
        "LDGSTS",
        "BAR",
        "BRA",
        "EXIT",
        "DEPBAR",
        "LDGDEPBAR",
        "BSYNC",
        "BSSY",
        "UBLKCP",
        "SUST",
        "MEMBAR",
        "CCTL",
        "SYNCS",
        "CALL",
        "RET",
        "NOP",
    )
)
#: Instructions that an address is traced through at most: those of a 64-bit index computation are a
#: few tens.
LONGEST_ADDRESS: Final = 256
#: How far back a producer is looked for, in static instructions: the largest loop bodies of
#: unrolled matrix products have about this many.
REACH: Final = 4096


def base(opcode: str) -> str:
    """`LDG.E.128` gives `LDG`."""
    return opcode.split(".", 1)[0]


def kind(opcode: str) -> str:
    """The group of KINDS an opcode belongs to, `other` for the rest."""
    return _KIND_OF.get(base(opcode), "other")


def width(opcode: str) -> int:
    """Bytes a lane moves: 1, 2, 4 (default), 8, 16 or 32, from the mnemonic's modifiers."""
    for token in opcode.split(".")[1:]:
        if token in _WIDTHS:
            return _WIDTHS[token]
    return 4


def operands(instruction: Instruction) -> tuple[frozenset[int], frozenset[int]]:
    """(registers written, registers read) of one SASS line; wide operands expanded, uniform and
    predicate registers ignored."""
    text = re.sub(r"^\s*(\{|@!?U?P\w+)\s*", "", instruction.sass)
    _, _, rest = text.partition(" ")
    parts = rest.split(",")
    name = base(instruction.opcode)
    group = kind(instruction.opcode)
    span = (
        max(1, width(instruction.opcode) // 4)
        if group in ("global", "local", "shared", "constant", "texture", "copy")
        else 2
        if group == "fp64"
        else 4
        if group == "tensor"
        else 1
    )
    if ".WIDE" in instruction.opcode or name == "CS2R":
        span = 2
    written: set[int] = set()
    read: set[int] = set()
    first = 0 if name not in _NO_DESTINATION else None
    for position, part in enumerate(parts):
        for match in _REGISTER.finditer(part):
            register = int(match.group(1))
            if position == first and "[" not in part:
                written.update(range(register, register + span))
                continue
            address = "[" in part
            length = (
                2
                if match.group(2)
                else 1
                if address
                else span
                if group in ("global", "local", "shared", "fp64", "tensor")
                else 1
            )
            read.update(range(register, register + length))
    return frozenset(written), frozenset(read)


class Flow:
    """Register writers of one kernel, for tracing consumers to producers."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        self.reads: list[frozenset[int]] = []
        self.writes: list[frozenset[int]] = []
        self.writers: dict[int, list[int]] = {}
        self.memory_readers: dict[int, list[int]] = {}
        for index, instruction in enumerate(instructions):
            written, read = operands(instruction)
            self.reads.append(read)
            self.writes.append(written)
            for register in written:
                self.writers.setdefault(register, []).append(index)
            if kind(instruction.opcode) in (*LONG_PRODUCERS, *SHORT_PRODUCERS):
                for register in read:
                    self.memory_readers.setdefault(register, []).append(index)
        self.graph = Graph(instructions, self.writes)

    def sources(self, index: int, register: int) -> frozenset[int]:
        """Indices of the writers whose value of `register` may be what `index` reads.

        Where branch targets are not known, the nearest before, or, for a loop cut out of its code,
        the last after it."""
        found = self.graph.reaching(index, register)
        nearest = (
            None
            if found or self.graph.known
            else _nearest_before(self.writers.get(register), index)
        )
        return found if nearest is None else frozenset((nearest,))

    def producers(self, index: int, kinds: Iterable[str]) -> list[int]:
        """The instructions of one of `kinds` that `index` waits for.

        First the writers of its source registers; else earlier writers or readers of its
        destination, which the scoreboard also guards (write after write, write after read); else,
        at or right behind a wait on a copy group, the nearest asynchronous copy."""
        wanted = set(kinds)
        found = self._of_kind(
            (i for register in self.reads[index] for i in self.sources(index, register)), wanted
        )
        if not found and "copy" in wanted and self._behind_copy_wait(index):
            copies = [i for i, row in enumerate(self.instructions) if kind(row.opcode) == "copy"]
            found = self._of_kind([_nearest_before(copies, index)], wanted)
        if not found:
            guarded = [
                _nearest_before(table.get(register), index)
                for register in self.writes[index]
                for table in (self.writers, self.memory_readers)
            ]
            found = self._of_kind(guarded, wanted)
        return found

    def _behind_copy_wait(self, index: int) -> bool:
        """Whether this instruction, or the one before it, waits for copy groups: the sampler shows
        the first that cannot issue because of it."""
        return any(
            kind(self.instructions[i].opcode) == "barrier" for i in (index, index - 1) if i >= 0
        )

    def _of_kind(self, indices: Iterable[int | None], wanted: set[str]) -> list[int]:
        return sorted(
            {i for i in indices if i is not None and kind(self.instructions[i].opcode) in wanted}
        )

    def address_depends_on_load(self, index: int) -> bool:
        """Whether a load's address comes, through integer instructions, from the result of a global
        load (of this pass or of the one before)."""
        waiting = {i for register in self.reads[index] for i in self.sources(index, register)}
        seen: set[int] = set()
        while waiting and len(seen) <= LONGEST_ADDRESS:
            i = waiting.pop()
            if i in seen:
                continue
            seen.add(i)
            group = kind(self.instructions[i].opcode)
            if group == "global":
                return True
            if group in ("integer", "other"):
                waiting |= {j for register in self.reads[i] for j in self.sources(i, register)}
        return False

    def on_loaded_values(self) -> frozenset[int]:
        """Instructions whose operands come, through registers, from memory or from other lanes:
        work on data.

        What is left depends on nothing but indices and parameters. A result that a predicate
        carries is not followed."""
        users: dict[int, set[int]] = {}
        for i, reads in enumerate(self.reads):
            for register in reads:
                for j in self.sources(i, register):
                    users.setdefault(j, set()).add(i)
        waiting = [
            i
            for i, row in enumerate(self.instructions)
            if kind(row.opcode) in _BRINGS_DATA and self.writes[i]
        ]
        found = set(waiting)
        while waiting:
            for j in users.get(waiting.pop(), ()):
                if j not in found:
                    found.add(j)
                    waiting.append(j)
        return frozenset(found)

    def only_for_addresses_of(self, accesses: Iterable[int]) -> frozenset[int]:
        """Instructions whose results serve nothing but the addresses of `accesses`: they would go
        with them.

        Found as dead code: what has an effect is needed, and so is what any needed instruction
        reads; an access still needs the value that it stores. Writers of predicates and uniform
        registers, which are not followed, count as needed."""
        gone = set(accesses)
        waiting = [i for i, row in enumerate(self.instructions) if i in gone or not _is_pure(row)]
        needed = set(waiting)
        while waiting:
            i = waiting.pop()
            reads = (
                self.reads[i] - _address_registers(self.instructions[i])
                if i in gone
                else self.reads[i]
            )
            for register in reads:
                for j in self.sources(i, register):
                    if j not in needed:
                        needed.add(j)
                        waiting.append(j)
        return frozenset(i for i in range(len(self.instructions)) if i not in needed)


#: Kinds whose result is data of the problem.
_BRINGS_DATA: Final = ("global", "shared", "local", "atomic", "texture", "shuffle")
#: Kinds that only compute a register from registers or memory, apart from what else they write.
_PURE: Final = frozenset(("integer", "fp32", "fp64", "fp16", "special", "other", "constant"))


def _is_pure(row: Instruction) -> bool:
    """Whether an instruction does nothing but write general registers."""
    first, *rest = _operand_texts(row)
    return (
        kind(row.opcode) in _PURE
        and base(row.opcode) not in _NO_DESTINATION
        and re.match(r"R\d|RZ", first) is not None
        and not (rest and re.fullmatch(r"U?P\d", rest[0]))
    )


def _operand_texts(row: Instruction) -> list[str]:
    text = re.sub(r"^\s*(\{|@!?U?P\w+)\s*", "", row.sass)
    return [part.strip() for part in text.partition(" ")[2].split(",")] or [""]


def _address_registers(row: Instruction) -> frozenset[int]:
    found: set[int] = set()
    for part in _operand_texts(row):
        if "[" in part:
            for match in _REGISTER.finditer(part):
                found.update(
                    range(int(match.group(1)), int(match.group(1)) + (2 if match.group(2) else 1))
                )
    return frozenset(found)


def _nearest_before(indices: Sequence[int] | None, index: int) -> int | None:
    if not indices:
        return None
    at = bisect_left(indices, index)
    if at > 0 and index - indices[at - 1] <= REACH:
        return indices[at - 1]
    return indices[-1] if indices[-1] >= index else None


def waits(profile: Profile, reason: str) -> dict[str, float]:
    """Shares (summing to 1) of a stall reason's samples by the kind of instruction that is waited
    for. Empty without samples.

    Scoreboard reasons are traced to producers; every other reason belongs to the instruction it is
    sampled at."""
    totals: dict[str, float] = {}
    for index, weight in weights_by_culprit(profile, reason).items():
        group = kind(profile.instructions[index].opcode)
        totals[group] = totals.get(group, 0.0) + weight
    total = sum(totals.values())
    return {group: weight / total for group, weight in totals.items()} if total > 0 else {}


#: Results for the instruction tables asked about last, by identity: every rule asks about the same
#: few. The table is held, so its id stays its own.
_REMEMBERED: OrderedDict[tuple[int, str], tuple[Sequence[Instruction], Mapping[int, float]]] = (
    OrderedDict()
)
_REMEMBER: Final = 64
_REMEMBER_FLOWS: Final = 4


_FLOWS: OrderedDict[int, Flow] = OrderedDict()


def flow_of(instructions: Sequence[Instruction]) -> Flow:
    """The flow of an instruction table, kept for the tables asked about last: a rule asks about the
    same one as the rule before."""
    key = id(instructions)
    if key not in _FLOWS or _FLOWS[key].instructions is not instructions:
        _FLOWS[key] = Flow(instructions)
        _FLOWS.move_to_end(key)
        while len(_FLOWS) > _REMEMBER_FLOWS:
            _FLOWS.popitem(last=False)
    return _FLOWS[key]


def weights_by_culprit(profile: Profile, reason: str) -> Mapping[int, float]:
    """Samples of `reason` by index of the instruction responsible: the producer of a late result,
    or the throttled instruction itself."""
    key = (id(profile.instructions), reason)
    if key not in _REMEMBERED:
        _REMEMBERED[key] = (profile.instructions, _weights_by_culprit(profile, reason))
        while len(_REMEMBERED) > _REMEMBER:
            _REMEMBERED.popitem(last=False)
    return _REMEMBERED[key][1]


def _weights_by_culprit(profile: Profile, reason: str) -> Mapping[int, float]:
    sampled = [(i, row.samples.get(reason, 0)) for i, row in enumerate(profile.instructions)]
    sampled = [(i, n) for i, n in sampled if n]
    if not sampled:
        return {}
    kinds = {"long_scoreboard": LONG_PRODUCERS, "short_scoreboard": SHORT_PRODUCERS}.get(reason)
    weights: dict[int, float] = {}
    flow = flow_of(profile.instructions) if kinds else None
    for index, n in sampled:
        culprits = (
            _that_run(profile.instructions, flow.producers(index, kinds))
            if flow is not None and kinds is not None
            else {}
        )
        for culprit, part in (culprits or {index: 1.0}).items():
            weights[culprit] = weights.get(culprit, 0.0) + n * part
    return weights


def _that_run(instructions: Sequence[Instruction], found: Sequence[int]) -> dict[int, float]:
    """What each of several possible producers is to blame for, summing to 1: by how often it ran,
    and nothing for those that never did.

    Where executions were not counted, or none of them is known to have run, they share alike.
    """
    counts = [_times(instructions[i]) for i in found]
    known = [float(count) for count in counts if count is not None]
    if len(known) < len(found) or not any(known):
        known = [1.0] * len(found)
    total = sum(known)
    return {i: count / total for i, count in zip(found, known, strict=True) if count}


def _times(row: Instruction) -> int | None:
    """Executions in which a lane took part: none where every lane was predicated off."""
    return 0 if row.threads == 0 else row.executed


def consumers(profile: Profile, reason: str, wanted: Iterable[str]) -> dict[int, int]:
    """Index -> samples of a scoreboard reason where warps wait for a result of one of the kinds:
    the other end of `weights_by_culprit`."""
    sampled = {i: row.samples.get(reason, 0) for i, row in enumerate(profile.instructions)}
    kinds = {"long_scoreboard": LONG_PRODUCERS, "short_scoreboard": SHORT_PRODUCERS}[reason]
    flow, chosen = flow_of(profile.instructions), set(wanted)
    return {
        i: n
        for i, n in sampled.items()
        if n
        and any(kind(profile.instructions[j].opcode) in chosen for j in flow.producers(i, kinds))
    }
