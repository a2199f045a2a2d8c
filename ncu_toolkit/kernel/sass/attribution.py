"""Which instruction a warp waits for: a light data flow over SASS text, to attribute stall samples.

PC sampling puts a throttle stall on the instruction that cannot issue, and a scoreboard stall on
the *consumer* of a late result. Its source registers are traced to the nearest earlier writer."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.model import Instruction, Profile
from ncu_toolkit.kernel.sass.branches import JUMPS, Graph, Targets, closure, targets
from ncu_toolkit.kernel.sass.opcodes import (
    KINDS,
    LONG_PRODUCERS,
    READS_ONLY,
    SHORT_PRODUCERS,
    CodeRow,
    addresses,
    base,
    kind,
    lines,
    split,
    width,
)

__all__ = ["KINDS", "LONG_PRODUCERS", "SHORT_PRODUCERS", "Flow", "base", "kind", "width"]

#: Barriers of a block at which warps wait, which those that only arrive do not.
_BLOCKS: Final = re.compile(r"BAR\.(?!ARV)|BAR$")
#: Instructions searched back for an mbarrier's test; compilers put about ten before the branch.
_GUARD_REACH: Final = 64
#: Most instructions of a loop that asks until it may go on; longer ones do more than that.
_POLL: Final = 32
#: What asks memory each time: an atomic, and a load that no L1 answers.
_ASKS: Final = re.compile(r"ATOM[GS]?\b|LD[GS]?\..*\b(?:STRONG|VOLATILE)\b")
#: The report module disassembles code of GPUs from here on: not Volta's.
DECODED_SINCE: Final = (7, 5)
#: Kinds whose results a scoreboard guards.
_LATE: Final = frozenset((*LONG_PRODUCERS, *SHORT_PRODUCERS))
#: Stall reasons of waiting for a result -> kinds of instructions that bring it late.
SCOREBOARDS: Final[Mapping[str, tuple[str, ...]]] = {
    "long_scoreboard": LONG_PRODUCERS,
    "short_scoreboard": SHORT_PRODUCERS,
}
#: Instructions searched back for a producer: as many as the largest unrolled loop bodies have.
_REACH: Final = 4096


class Flow:
    """Register writers of one kernel's code, for tracing consumers to producers."""

    def __init__(self, code: tuple[CodeRow, ...], named: Targets | None) -> None:
        self.code = code
        self.reads: list[frozenset[int]] = []
        self.writes: list[frozenset[int]] = []
        self._writers: dict[int, list[int]] = {}
        self._memory_readers: dict[int, list[int]] = {}
        for index, line in enumerate(self.code):
            written, read = line.registers
            self.reads.append(read)
            self.writes.append(written)
            for register in written:
                self._writers.setdefault(register, []).append(index)
            if kind(line.opcode) in _LATE:
                for register in read:
                    self._memory_readers.setdefault(register, []).append(index)
        self.graph = Graph(self.code, self._writers, named or {})
        # launches of a kernel share its flow and ask the same
        self._producers: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        self._on_load: dict[int, bool] = {}

    def sources(self, index: int, register: int) -> frozenset[int]:
        """Indices of the writers whose value of `register` may be what `index` reads. Where branch
        targets are unknown: the nearest before, or the last after it for a loop cut out of its code."""
        found = self.graph.reaching(index, register)
        if found or self.graph.known:
            return found
        nearest = _nearest_before(self._writers.get(register), index)
        return found if nearest is None else frozenset((nearest,))

    def producers(self, index: int, kinds: Iterable[str]) -> list[int]:
        """The instructions of one of `kinds` that `index` waits for: writers of its source
        registers; else earlier writers or readers of its destination, which the scoreboard also
        guards; else, at or right behind a wait on a copy group, the nearest asynchronous copy."""
        key = index, tuple(kinds)
        if key not in self._producers:
            self._producers[key] = self._find_producers(index, set(key[1]))
        return self._producers[key]

    def _find_producers(self, index: int, wanted: set[str]) -> list[int]:
        found = self._of_kind(self.made_from(index), wanted)
        if not found and "copy" in wanted and self._behind_copy_wait(index):
            found = self._of_kind([_nearest_before(self._of("copy"), index)], wanted)
        if not found:
            guarded = [
                _nearest_before(table.get(register), index)
                for register in self.writes[index]
                for table in (self._writers, self._memory_readers)
            ]
            found = self._of_kind(guarded, wanted)
        return found

    def _behind_copy_wait(self, index: int) -> bool:
        """Whether this instruction waits for asynchronous copies: it is a wait, comes right after
        one (sampled first among the blocked), or its predicate is the answer of an mbarrier. A warp
        that tests an mbarrier and then reads no shared memory waits for a free buffer instead."""
        near = [i for i in (index, index - 1) if i >= 0]
        test = next((i for i in near if self._is_test(i)), None)
        if test is None:
            test = self._writer_of_guard(index)
            if test is None or not self._is_test(test):
                return any(kind(self.code[i].opcode) == "barrier" for i in near)
        return not self.graph.known or self.graph.reaches(index, self._reads_tile, self._is_test)

    def copies_at_the_last_moment(self, wait: int, rows: Sequence[Instruction]) -> bool:
        """Whether each copy that `wait` may be for is issued in its loop right before it, so that
        none runs while a tile is read. False where branches cannot be followed. `rows`: what was
        counted; a copy that never ran is none."""
        graph = self.graph
        copies = [i for i in self._of("copy") if _times(rows[i]) != 0]
        return bool(graph.known and copies) and all(
            graph.reaches(i, wait.__eq__, self._reads_tile)
            and graph.reaches(wait, i.__eq__, lambda _: False)
            for i in copies
        )

    def _of(self, *kinds: str) -> list[int]:
        """The instructions of some kinds."""
        return [i for i, row in enumerate(self.code) if kind(row.opcode) in kinds]

    def _is_test(self, index: int) -> bool:
        return self.code[index].opcode.startswith("SYNCS.PHASECHK")

    def _reads_tile(self, index: int) -> bool:
        return kind(self.code[index].opcode) in ("shared", "tensor")

    def _writer_of_guard(self, index: int) -> int | None:
        """The nearest instruction before that writes the predicate under which this one runs."""
        guard = self.code[index].guard.lstrip("@!")
        near = range(index - 1, max(-1, index - 1 - _GUARD_REACH), -1) if guard else ()
        return next((i for i in near if guard in split(self.code[i].operands)[:2]), None)

    def _of_kind(self, indices: Iterable[int | None], wanted: set[str]) -> list[int]:
        return sorted({i for i in indices if i is not None and kind(self.code[i].opcode) in wanted})

    def address_depends_on_load(self, index: int) -> bool:
        """Whether a load's address comes from another load's result, through integer instructions and
        shuffles, in this iteration or the one before. An index kept in shared memory is one, too."""
        if index not in self._on_load:
            made = self._address(index, "integer", "shuffle", "other")
            self._on_load[index] = any(
                kind(self.code[i].opcode) in ("global", "shared") for i in made
            )
        return self._on_load[index]

    def is_chained(self, index: int) -> bool:
        """Whether a load's address comes from what the same load brought before, as along a list."""
        return index in self._address(index, "global", "shared", "integer", "shuffle", "other")

    def _address(self, index: int, *through: str) -> frozenset[int]:
        """What an address is made from, directly and through instructions of some kinds."""
        code, made = self.code, self.made_from
        return closure(made(index), lambda i: made(i) if kind(code[i].opcode) in through else ())

    def on_loaded_values(self) -> frozenset[int]:
        """Instructions whose operands come, through registers, from memory or other lanes: work on data.
        Others depend on indices and parameters only. Results in predicates are not followed."""
        users: dict[int, set[int]] = {}
        for i in range(len(self.code)):
            for j in self.made_from(i):
                users.setdefault(j, set()).add(i)
        brought = [i for i in self._of(*_BRINGS_DATA) if self.writes[i]]
        return closure(brought, lambda i: users.get(i, ()))

    def into_stored_values(self) -> frozenset[int]:
        """Instructions whose results end, through registers, in a value that is stored or passed to
        other lanes: what a kernel computes, without what only addresses are made of. Results in
        predicates are not followed."""
        stores = self._of("global", "shared", "atomic", "shuffle")
        return closure(stores, lambda i: self.made_from(i, values=True))

    def into_addresses(self, accesses: Iterable[int]) -> frozenset[int]:
        """Instructions whose results end, through registers, in the address of one of `accesses`."""
        made = [self.made_from(i) - self.made_from(i, values=True) for i in accesses]
        return closure(set[int]().union(*made), self.made_from)

    def made_from(self, index: int, values: bool = False) -> set[int]:
        """Writers of what an instruction reads; of its `values`, without its addresses."""
        row, read = self.code[index], self.reads[index]
        read = read - addresses(row.opcode, row.operands) if values else read
        return {j for register in read for j in self.sources(index, register)}

    def only_for_addresses_of(self, accesses: Set[int], without: Set[int]) -> frozenset[int]:
        """Instructions whose results serve only the addresses of `accesses`, or those `without` which the code
        does, found as dead code: what has an effect is needed, and what needed instructions read. An access
        needs the value that it stores. Writers of predicates and uniform registers count as needed."""
        effects = {i for i, row in enumerate(self.code) if i in accesses or not _is_pure(row)}
        needed = closure(effects - without, lambda i: self.made_from(i, values=i in accesses))
        return frozenset(range(len(self.code))) - needed

    def gone_if_unrolled(self, accesses: Iterable[int]) -> tuple[frozenset[int], frozenset[int]]:
        """Where loops step through the addresses of `accesses`: their jumps and tests that no data decides, and
        their loads of constants. With constant indices there are none: constants are then operands."""
        loops = [range(i, j + 1) for j, to in self.graph.targets.items() for i in to if i <= j]
        steps = [j for j in self.into_addresses(accesses) if j in self.made_from(j)]
        through = {min((x for x in loops if j in x), key=len, default=range(0)) for j in steps}
        inside, data = frozenset[int]().union(*through), {*self._of(*_BRINGS_DATA)}
        jumps = [i for i in inside if base(self.code[i].opcode) in JUMPS]
        tests = ((i, self._writer_of_guard(i)) for i in jumps)
        known = [(i, j) for i, j in tests if j is not None]
        control = [{*pair} for pair in known if not data & closure(pair[1:], self.made_from)]
        return frozenset[int]().union(*control), inside.intersection(self._of("constant"))


#: Kinds of instructions whose result is data.
_BRINGS_DATA: Final = ("global", "shared", "local", "atomic", "texture", "shuffle")
#: Kinds that compute a register from registers or memory.
_PURE: Final = frozenset(("integer", "fp32", "fp64", "fp16", "special", "other", "constant"))


def _is_pure(row: CodeRow) -> bool:
    """Whether an instruction does nothing but write general registers."""
    first, *rest = split(row.operands) or [""]
    return (
        kind(row.opcode) in _PURE
        and base(row.opcode) not in READS_ONLY
        and re.match(r"R\d|RZ", first) is not None
        and not (rest and re.fullmatch(r"U?P\d", rest[0]))
    )


def _nearest_before(indices: Sequence[int] | None, index: int) -> int | None:
    if not indices:
        return None
    at = bisect_left(indices, index)
    if at > 0 and index - indices[at - 1] <= _REACH:
        return indices[at - 1]
    return indices[-1] if indices[-1] >= index else None


@remembered(64)
def waits(profile: Profile, reason: str) -> dict[str, float]:
    """Shares (summing to 1) of a stall reason's samples by the kind of instruction waited for; empty
    without samples or disassembly. Scoreboard reasons are traced to producers, others are not."""
    totals: dict[str, float] = {}
    for index, weight in weights_by_culprit(profile, reason).items():
        opcode = profile.instructions[index].opcode
        if opcode or profile.device.cc >= DECODED_SINCE:
            totals[kind(opcode)] = totals.get(kind(opcode), 0.0) + weight
    total = sum(totals.values())
    return {group: weight / total for group, weight in totals.items()} if total > 0 else {}


def flow_of(instructions: Sequence[Instruction]) -> Flow:
    """The flow of an instruction table: each rule asks for that of the same few, and launches of
    one kernel share it."""
    return _flow(lines(instructions), targets(instructions))


_flow = remembered(16)(Flow)


@remembered(16)
def polls(rows: Sequence[Instruction]) -> tuple[range, ...]:
    """Loops that only ask memory until the answer lets them go on: an atomic or a load past L1 decides a
    branch, and nothing is stored. How often they go round depends on how long others take."""
    flow, found = flow_of(rows), []
    for end, starts in flow.graph.targets.items():
        for loop in (range(start, end + 1) for start in starts if end - _POLL < start <= end):
            asks = {i for i in loop if _ASKS.match(rows[i].opcode)}
            tests = (flow._writer_of_guard(i) for i in loop if base(rows[i].opcode) in JUMPS)
            behind = closure((i for i in tests if i is not None and i in loop), flow.made_from)
            works = any(kind(rows[i].opcode) in ("global", "tensor") for i in {*loop} - asks)
            if asks & behind and not works:
                found.append(loop)
    return tuple(found)


def weights_by_culprit(profile: Profile, reason: str) -> Mapping[int, float]:
    """Samples of `reason` by index of the instruction responsible: the producer of a late result,
    the matrix product that a warpgroup waits for (counted as barrier), the BAR before the instruction
    that waits (BAR blocks later: of 3.3 million samples on an H200 none is at one, 92 % are up to 26
    instructions after one, the others at products or clusters), or the throttled one itself."""
    return _weights_by_culprit(profile.instructions, reason)


@remembered(4)
def _sampled(rows: Sequence[Instruction]) -> Mapping[str, Sequence[tuple[int, int]]]:
    """Samples by stall reason and index of the instruction, zeros left out."""
    found: dict[str, list[tuple[int, int]]] = {}
    for i, row in enumerate(rows):
        for reason, n in row.samples.items():
            if n:
                found.setdefault(reason, []).append((i, n))
    return found


@remembered(64)
def _weights_by_culprit(rows: Sequence[Instruction], reason: str) -> Mapping[int, float]:
    sampled = _sampled(rows).get(reason)
    if not sampled:
        return {}
    kinds = SCOREBOARDS.get(reason)
    weights: dict[int, float] = {}
    flow = flow_of(rows) if kinds else None
    barrier = reason == "barrier"
    products = [i for i, row in enumerate(rows) if kind(row.opcode) == "tensor"] if barrier else []
    blocking = [i for i, row in enumerate(rows) if _BLOCKS.match(row.opcode)] if barrier else []
    for index, n in sampled:
        found = flow.producers(index, kinds) if flow is not None and kinds is not None else []
        if barrier and not rows[index].opcode.startswith("UCGABAR"):
            group = base(rows[index].opcode) == "WARPGROUP"
            nearest = _nearest_before(products if group else blocking, index)
            found = [] if nearest is None else [nearest]
        culprits = _that_run(rows, found)
        for culprit, part in (culprits or {index: 1.0}).items():
            weights[culprit] = weights.get(culprit, 0.0) + n * part
    return weights


def _that_run(instructions: Sequence[Instruction], found: Sequence[int]) -> dict[int, float]:
    """Shares (summing to 1) of possible producers by how often each ran; equal where executions
    were not counted, or none is known to have run."""
    counts = [_times(instructions[i]) for i in found]
    known = [float(count) for count in counts if count is not None]
    if len(known) < len(found) or not any(known):
        known = [1.0] * len(found)
    total = sum(known)
    return {i: count / total for i, count in zip(found, known, strict=True) if count}


def _times(row: Instruction) -> int | None:
    """Executions in which a lane took part: none where every lane was predicated off."""
    return 0 if row.threads == 0 else row.executed


def consumers(profile: Profile, wanted: Iterable[str]) -> dict[int, int]:
    """Index -> long-scoreboard samples of waits for one of the kinds: the other end of `weights_by_culprit`."""
    flow, chosen = flow_of(profile.instructions), set(wanted)
    return {
        i: n
        for i, n in _sampled(profile.instructions).get("long_scoreboard", ())
        if any(
            kind(profile.instructions[j].opcode) in chosen
            for j in flow.producers(i, LONG_PRODUCERS)
        )
    }
