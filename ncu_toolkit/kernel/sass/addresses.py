"""The addresses that a warp's lanes access, from the machine code: how many 32-byte sectors of global
memory, and how many passes through the banks of shared memory (wavefronts), a request takes.

The integer part of the code is run for a few warps: threadIdx, blockIdx and blockDim are those of a
thread of the launch, a kernel's parameters are samples (`SAMPLES`), and loaded
data are unknown. Each value says how much of it is known (`Known`), so that an address whose lanes
depend on data or on a parameter is reported as not known, with what stops it. Where two samples of
the parameters give different figures, the figure depends on them and is not known either.

A branch that depends on something unknown takes both ways in turn; loops end after a few passes.

Recordings keep the answers for their launches (`keep`), which are used while this code is the same."""

from __future__ import annotations

import hashlib
import json
import math
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.model.profile import Extents
from ncu_toolkit.kernel.sass.lanes import (
    CONDITION,
    CONTROL,
    FOLLOWED,
    LANES,
    MASK,
    PLACES,
    WORD,
    Decoded,
    Ends,
    Known,
    Lanes,
    Registers,
    as_bits,
    decoded,
    followed,
    following,
    made_up,
    plain,
    terms,
    unknown,
    worst,
)  # fmt: skip
from ncu_toolkit.kernel.sass.opcodes import ATOMICS, LOCAL, SHARED, CodeRow, base, width

#: Bytes of a sector, and of the banks of shared memory (CUDA C++ Programming Guide).
SECTOR: Final = 32
BANKS: Final = 128
#: Values that stand for a kernel's unknown parameters: sizes, and multiples of what cudaMalloc aligns to
#: (256 bytes); large enough that a lane's stride of one reaches another line.
SAMPLES: Final = (1 << 20, (1 << 20) + 37 * 256)
#: Values for uniform data, whose alignment nothing promises.
_DATA: Final = (4096, 9219)
#: Longest code that is run.
LONGEST: Final = 20_000
#: Passes of a loop that are run, fewer in long code, and instructions in all.
_PASSES: Final = 12
_STEPS: Final = 30_000
#: Blocks that are run: above the diagonal of a grid, below, and on it.
_PLACED: Final = ((1, 2, 1), (4, 1, 2), (3, 3, 3), (2, 7, 4))
#: No block further out is run: larger grids are alike to code that does not read gridDim.
_FAR: Final = 16
#: Warps that look for what the others did not reach.
_TRIES: Final = 8
#: Where blockDim and gridDim are from CC 10.0 on; before at its start.
_SIZES: Final = 0x360
_TARGET: Final = re.compile(r"\b0x[0-9a-f]+\s*$")
#: Constants that hold a part of gridDim, or are loaded together with one.
_GRID: Final = {0: re.compile(r"c\[0x0\]\[0x(?:8|c|10|14)\]"), _SIZES: re.compile(r"c\[0x0\]\[0x3(?:6|7[04])")}  # fmt: skip
#: Modules beside this one that an answer follows from.
MODULES: Final = ("addresses", "branches", "lanes", "opcodes")
#: Code as if it began at address 0, since where it was loaded differs from launch to launch; where its
#: branches go; and where blockDim is among the constants, its extents, and those of gridDim if it is known.
Question = tuple[tuple[CodeRow, ...], tuple[tuple[int, Sequence[int]], ...], tuple[int, ...]]
#: What recordings keep: answers by `key`, each unpacked when it is asked for.
KEPT: Final[dict[str, msgspec.Raw]] = {}


@dataclass(frozen=True)
class Access:
    """What one instruction accesses, an average of the requests that were followed."""

    index: int
    """Its place in the code."""
    sectors: float | None = None
    """32-byte sectors of global memory for each request in which a lane takes part; None where it
    accesses none, or unknown ones."""
    least_sectors: float = 0.0
    """The fewest that its bytes need, as `least_wavefronts`."""
    wavefronts: float | None = None
    """Passes through the banks of shared memory a request."""
    least_wavefronts: float = 0.0
    active: float = 1.0
    """The part of the requests in which a lane takes part."""
    requests: int = 0
    """How many of these the warps made that were followed on the usual path; 0 off it."""
    stopped: str = ""
    """What keeps it from being known: a register and where it comes from."""
    lanes: tuple[int, ...] = ()
    """A request's byte address by lane, from that of the first lane that takes part; -1 for one that
    does not."""


class _Request(NamedTuple):
    """What a request takes, or the mean of some; of one without a lane all is 0."""

    active: float = 0.0
    sectors: float = 0.0
    wavefronts: float = 0.0
    least_sectors: float = 0.0
    least_wavefronts: float = 0.0


@dataclass
class _Tally:
    """What was seen of one instruction."""

    requests: Counter[_Request] = field(default_factory=Counter)
    usual: int = 0
    """Requests on the usual path in which a lane took part."""
    unknown: Counter[str] = field(default_factory=Counter)
    lanes: tuple[int, ...] = ()
    blocks: list[_Request] = field(default_factory=list)
    """The mean request of each block."""

    def add(self, other: _Tally) -> None:
        """What was seen of it in another block."""
        self.requests += other.requests
        self.usual += other.usual
        self.unknown += other.unknown
        self.lanes = max(self.lanes, other.lanes, key=_taking)
        self.blocks.append(_mean(other.requests))


def _taking(lanes: tuple[int, ...]) -> int:
    return len(lanes) - lanes.count(-1)


@remembered(16)
def accesses(
    rows: tuple[CodeRow, ...],
    targets: Mapping[int, Sequence[int]],
    cc: tuple[int, int],
    block: Extents,
    grid: Extents | None = None,
) -> Mapping[int, Access]:
    """What each load, store and atomic of global and shared memory accesses, by its index. Code that no
    followed path reaches is left out.

    Args:
        rows: the code of a kernel.
        targets: indices of the instructions that each branch names, by its own.
        cc: the GPU's compute capability.
        block, grid: sizes by axis; a grid of some blocks where None.
    """
    start = _SIZES if cc >= (10, 0) else 0
    if grid is not None and not any(_GRID[start].search(row.sass) for row in rows):
        grid = min(grid[0], _FAR), min(grid[1], _FAR), min(grid[2], _FAR)
    code = tuple(
        CodeRow(r.address - rows[0].address, r.opcode, _TARGET.sub("0x0", r.sass) if base(r.opcode) in CONTROL else r.sass) for r in rows
    )  # fmt: skip
    return answer((code, tuple(targets.items()), (start, *block, *(grid or ()))))


@lru_cache(maxsize=64)
def answer(asked: Question) -> Mapping[int, Access]:
    """As `accesses`: what is kept, or else computed."""
    kept = KEPT.get(key(asked)) if KEPT else None
    return msgspec.msgpack.decode(kept, type=dict[int, Access]) if kept else _computed(asked)


def key(asked: Question) -> str:
    """The name of an answer that is kept."""
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


@lru_cache(maxsize=1)
def source() -> str:
    """A digest of the code that computes an answer."""
    paths = (Path(__file__).with_name(f"{name}.py") for name in MODULES)
    there = (path.read_bytes() for path in paths if path.is_file())  # else compiled alone
    return hashlib.sha256(b"".join(there)).hexdigest()


def keep(packed: bytes) -> None:
    """Take what a recording keeps: `source` and answers. Those of other code are left."""
    made_by, answers = msgspec.msgpack.decode(packed, type=tuple[str, dict[str, msgspec.Raw]])
    if made_by == source():
        KEPT.update(answers)


def _computed(asked: Question) -> Mapping[int, Access]:
    code, ends, shape = asked
    grid, targets = shape[4:], dict(ends)
    runs: list[_Sampled] = []
    for sample in range(len(SAMPLES)):
        if not runs or runs[0].depends:
            runs.append(_Sampled(decoded(code, targets), targets, shape, sample))
            runs[-1].all()
    whole = bool(grid) and runs[0].blocks >= math.prod(grid)
    cut = {i for start, end in runs[0].cut for i in range(start, end + 1)}
    return {
        i: _access(i, [run.seen.get(i) or _Tally() for run in runs], whole, i in cut)
        for i in sorted({*runs[0].seen, *runs[-1].seen})
    }


def _access(index: int, seen: Sequence[_Tally], whole: bool, cut: bool) -> Access:
    """`whole`: all blocks of the launch were run; `cut`: but not to the end of a loop around it."""
    why = next((each.unknown.most_common(1)[0][0] for each in seen if each.unknown), "")
    means = [mean for each in seen if (mean := _mean(each.requests)).active]
    if why or not means:
        return Access(index, stopped=why or "no lane was seen to take part")
    first, lanes = means[0], next((each.lanes for each in seen if each.lanes), ())
    if not all(_alike(first, other) for other in means):
        return Access(index, stopped="the size of a parameter", lanes=lanes)
    if any(len(each.requests) > 1 for each in seen):
        blocks = [mean for each in seen for mean in each.blocks]
        alike = len(blocks) > 1 and all(_alike(mean, first) for mean in blocks)
        if cut or not (whole or alike):
            why = "the length of a loop" if cut else "the place of the block"
            return Access(index, stopped=why, lanes=lanes)
    return Access(
        index,
        first.sectors / first.active or None,
        first.least_sectors / first.active,
        first.wavefronts / first.active or None,
        first.least_wavefronts / first.active,
        first.active,
        sum(each.usual for each in seen),
        "",
        lanes,
    )


def _mean(requests: Counter[_Request]) -> _Request:
    total = max(1, requests.total())
    return _Request(*(sum(n * r[k] for r, n in requests.items()) / total for k in range(5)))


def _alike(a: _Request, b: _Request) -> bool:
    return all(math.isclose(x, y, rel_tol=0.02) for x, y in zip(a[:3], b[:3], strict=True))


def sectors_of(addresses: np.ndarray, size: int) -> int:
    """32-byte sectors that lanes touch with `size` bytes each."""
    return _sectors((addresses - addresses[0] + addresses[0] % SECTOR).tobytes(), size)


@lru_cache(maxsize=1 << 14)
def _sectors(addresses: bytes, size: int) -> int:
    lanes = np.frombuffer(addresses, dtype=np.int64)
    return len(np.unique([(lanes + at) // SECTOR for at in (0, size // 2, size - 1)]))


def wavefronts_of(addresses: np.ndarray, size: int, lanes: np.ndarray) -> int:
    """Passes through the banks of shared memory: the most different words of one bank. Accesses of 8
    and 16 bytes per lane are done for 16 and 8 `lanes` at a time, two such groups at once where pairs of
    lanes share their words."""
    return _wavefronts((addresses - addresses[0]).tobytes(), size, lanes.tobytes())


@lru_cache(maxsize=1 << 14)
def _wavefronts(addresses: bytes, size: int, lanes: bytes) -> int:
    words = np.frombuffer(addresses, dtype=np.int64)
    words, places = (words - words.min()) >> 2, np.frombuffer(lanes, dtype=np.int64)
    several = max(1, size // WORD)
    if several == 1:
        return _deepest(words, 1)
    of = np.full(LANES, -1, dtype=np.int64)
    of[places] = words
    groups: list[np.ndarray] = []
    for both in of.reshape(several // 2, -1):
        groups += [both] if _in_pairs(both) else np.split(both, 2)
    taking = (group[group >= 0] for group in groups)
    return sum(_deepest(each, several) for each in taking if len(each))


def _copied(lanes: np.ndarray, source: Lanes, taking: np.ndarray, size: int, bypass: bool) -> int:
    """Wavefronts of a copy to shared memory. Each line of global memory is written by itself; what
    bypasses L1 one row of the banks at a time."""
    lines = np.broadcast_to(np.asarray(source.v) // BANKS, (LANES,))
    if bypass:
        return len({*zip(lines[taking].tolist(), (lanes[taking] // BANKS).tolist(), strict=True)})
    parts = [taking & (lines == line) for line in np.unique(lines[taking])]
    return sum(_deepest(lanes[part] // WORD, max(1, size // WORD)) for part in parts)


def _in_pairs(words: np.ndarray) -> bool:
    """Whether each lane's word is that of its neighbour, or of the next but one."""
    places = np.arange(len(words))
    return any(
        bool(((words == words[places ^ step]) | (words == -1) | (words[places ^ step] == -1)).all())
        for step in (1, 2)
    )


def _deepest(words: np.ndarray, several: int) -> int:
    """The most different words of one bank, where lanes take `several` from their `words` on."""
    different = np.unique(words[:, np.newaxis] + np.arange(several))
    return int(np.bincount(different % LANES).max())


class _Sampled:
    """A few warps of a launch with one sample of its parameters."""

    def __init__(
        self, code: Sequence[Decoded], targets: Ends, shape: tuple[int, ...], sample: int
    ) -> None:
        self.code, self.targets = code, targets
        self.words = {shape[0] + WORD * n: size for n, size in enumerate(shape[1:])}
        self.active = [n for n, i in enumerate(code) if i.to or i.acts]
        """The instructions that are run; all others do nothing here."""
        self.made: dict[tuple[object, ...], Any] = {}
        self.block, self.grid = shape[1:4], shape[4:]
        self.sample, self.data = SAMPLES[sample], _DATA[sample]
        self.seen: defaultdict[int, _Tally] = defaultdict(_Tally)
        self.ways: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        """How often each branch that depends on something unknown was not taken, and taken."""
        self.passes = max(3, min(_PASSES, _STEPS // (4 * max(1, len(code)))))
        self.left = _STEPS
        self.exploring = False
        self.cut: set[tuple[int, int]] = set()
        """Loops that are longer than they are run."""
        self.blocks = 0
        """How many blocks were run to their end."""
        self.depends = False
        """Whether something was accessed whose place depends on the sample."""

    def all(self) -> None:
        """Run warps of one block, then of another."""
        warps = -(-math.prod(self.block) // LANES)
        # far ones first, for code so long that not all are run
        chosen = sorted(range(warps), key=lambda n: f"{n:05b}"[::-1])
        sizes = self.grid or (MASK,) * 3
        usual: defaultdict[int, _Tally] = defaultdict(_Tally)
        places = (map(min, place, (size // 2 for size in sizes)) for place in _PLACED)
        for block in dict.fromkeys(map(tuple, places)):
            before, ended, self.seen = self.left, True, defaultdict(_Tally)
            for warp in chosen:
                steps = max(len(self.code), self.left // 2)
                ended &= self.left > 0 and _Warp(self, warp, block).go(steps)
            self.blocks += ended
            for at, tally in self.seen.items():
                usual[at].add(tally)
            if before - self.left > self.left:
                break
        # and what those did not reach, by the other ways of branches on something unknown
        self.exploring = True
        rest = {n for n, i in enumerate(self.code) if i.base in FOLLOWED} - usual.keys()
        for n in range(_TRIES if rest else 0):
            if rest:
                self.seen = defaultdict(_Tally)
                edge = [n % 2 * (size - 1) for size in sizes]
                _Warp(self, chosen[n % len(chosen)], edge).go(2 * len(self.code) + 1000)
                usual.update((at, self.seen[at]) for at in rest & self.seen.keys())
                rest -= self.seen.keys()
        self.seen = usual


class _Warp(Registers):
    """A warp's registers, and where its lanes are."""

    def __init__(self, run: _Sampled, warp: int, block: Sequence[int]) -> None:
        self.of = run
        thread, bits = warp * LANES + np.arange(LANES), 1 << np.arange(LANES)
        x, y, _ = run.block
        special = {
            "SR_LANEID": Lanes(np.arange(LANES)), "SR_CgaCtaId": Lanes(0), "SRZ": Lanes(0), "SR_EQMASK": Lanes(bits), "SR_LTMASK": Lanes(bits - 1),
            "SR_LEMASK": Lanes(2 * bits - 1), "SR_GTMASK": Lanes(MASK ^ (2 * bits - 1)), "SR_GEMASK": Lanes(MASK ^ (bits - 1)),
        }  # fmt: skip
        places = (thread % x, thread // x % y, thread // (x * y))
        for axis, place, number, size in zip("XYZ", places, block, run.block, strict=True):
            special[f"SR_TID.{axis}"] = Lanes(int(place[0]) if np.ptp(place) == 0 else place)
            special[f"SR_CTAID.{axis}"], special[f"SR_NTID.{axis}"] = Lanes(number), Lanes(size)
        for name, value in special.items():
            key = value.v if value.uniform else value.v.tobytes()
            special[name] = run.made.setdefault(("special", key), value)
        mask = thread < math.prod(run.block)
        super().__init__(special, run, mask)
        self.local: dict[int, Lanes] = {}
        self.groups: list[tuple[int, np.ndarray]] = [(0, mask)]
        self.calls: list[int] = []
        self.barriers: dict[str, np.ndarray] = {}
        self.waiting: dict[str, list[tuple[int, np.ndarray]]] = {}
        self.unsure: dict[str, str] = {}
        """Barriers at which lanes meet again that a branch on unknown data parted."""
        self.aside: set[str] = set()
        """Barriers at which lanes come back from a way that a bound or a parameter rules out."""
        self.alive = mask.copy()
        self.ways: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])

    # ---- control

    def go(self, steps: int) -> bool:
        """Run until all lanes have left, or for some instructions; whether they have left."""
        code, active = self.of.code, self.of.active
        while self.groups and steps > 0:
            self.groups.sort(key=lambda group: group[0])
            pc, mask = self.groups.pop(0)
            while self.groups and self.groups[0][0] == pc:
                mask = mask | self.groups.pop(0)[1]
            until = min(pc + steps, self.groups[0][0] if self.groups else len(code))
            if pc >= len(code) or not mask.any():
                continue
            self.run_on(mask)
            full = bool(mask.all())
            here: int | None = until
            for k in range(bisect_left(active, pc), bisect_left(active, until)):
                at = active[k]
                if code[at].base in CONTROL:
                    until = at + 1
                    here = self._jump(at, code[at])
                    break
                self._step(at, code[at], full)
            steps -= until - pc
            self.of.left -= until - pc
            if here is not None:
                self.groups.append((here, self.mask))
            if not self.groups:
                self.groups = [group for groups in self.waiting.values() for group in groups]
                self.waiting = {}
        return not self.groups

    def _taken(self, condition: Lanes) -> tuple[Any, bool, str]:
        """For which lanes a condition holds, whether this is known, and what keeps it from being known where
        that is data. Of one that depends on a parameter, as bounds mostly do: what holds for most
        lanes."""
        v, known = condition.v, condition.known
        if isinstance(known, int) and not known:
            return v, True, ""
        least = _most(known, self.mask)
        if not least:
            return v, True, ""
        on = np.count_nonzero
        most: Any = bool(v) if condition.uniform else bool(2 * on(v & self.mask) >= on(self.mask))
        return most, False, condition.why if least == Known.NOTHING else ""

    def _guard(self, i: Decoded) -> Lanes:
        return self.condition("!" * i.negated + (i.guard or "PT"))

    def _jump(self, pc: int, i: Decoded) -> int | None:
        """Where the lanes go on together; None where they were put into groups."""
        condition = self._guard(i)
        if i.base in ("BRA", "JMP"):
            return self._branch(pc, i, condition)
        on, certain, why = self._taken(condition)
        if i.base in ("EXIT", "KILL", "RET", "BREAK") and not certain:
            on = False  # a bound: the lanes are taken to be within
            if why and i.base != "BREAK":
                self.unsure[_END] = why
        mask = self.mask & on
        rest = self.mask & ~mask
        name = next((part for part in i.operands if re.fullmatch(r"B\d+", part)), "")
        if not mask.any():
            return pc + 1
        if i.base == "RET" and self.calls:
            self.groups.append((self.calls.pop(), mask))
        elif i.base in ("EXIT", "KILL", "RET"):
            self.alive &= ~mask
        elif i.base == "CALL":
            target = self.of.targets.get(pc)
            if target:
                self.calls.append(pc + 1)
            else:
                self.registers = {
                    register: value
                    for register, value in self.registers.items()
                    if register[-1] in "ZT" or register[0] == "U" or register == "R1"
                }
                self.latest.clear()
            self.groups.append((target[0] if target else pc + 1, mask))
        elif i.base == "BSSY":
            self.barriers.pop(name, None)  # the last one is the innermost
            self.barriers[name] = mask
            self.unsure.pop(name, None)
            self.aside.discard(name)
            return pc + 1
        elif i.base == "BREAK":
            if name in self.barriers:
                self.barriers[name] = self.barriers[name] & ~mask
            self._release()
            return pc + 1
        elif i.base == "BSYNC":
            self.waiting.setdefault(name, []).append((pc + 1, mask))
        elif i.base == "BRX":
            ends = self.of.targets.get(pc) or (pc + 1,)
            end = min(ends, key=lambda at: sum(self.of.ways[at]))
            self.of.ways[end][0] += 1
            self.groups.append((end, mask))
        if rest.any():
            self.groups.append((pc + 1, rest))
        self._release()
        return None

    def _release(self) -> None:
        """Let go on those who wait at a barrier that all of its lanes have reached."""
        for name, groups in list(self.waiting.items()):
            there = np.zeros(LANES, dtype=bool)
            for _, mask in groups:
                there |= mask
            if not (self.barriers.get(name, there) & self.alive & ~there).any():
                self.groups += groups
                del self.waiting[name]
                self.barriers.pop(name, None)
                self.unsure.pop(name, None)
                self.aside.discard(name)

    def _branch(self, pc: int, i: Decoded, condition: Lanes) -> int | None:
        target = next(iter(self.of.targets.get(pc, ())), pc + 1)
        if "DIV" in i.mods or "CONV" in i.mods:
            return pc + 1
        for name in i.operands[:-1]:
            if CONDITION.match(name):
                other = self.condition(name)
                condition = Lanes(plain(condition.v & other.v), *worst(condition, other))
        if target == pc:
            return self._leave(pc, pc)
        on, certain, why = self._taken(condition)
        back = target <= pc
        ways = self.ways[pc]
        if not i.guard and len(i.operands) < 2:
            ways[1] += 1
            if back and ways[1] > self.of.passes:
                return self._leave(target, pc)
            return target
        if not certain:
            tried = self.of.ways[pc]
            rarely = 1 if self.of.exploring else 3  # as often as the other way, or a third as often
            if tried[bool(on)] > rarely * (tried[not on] + 1) - self.of.exploring:
                on = not on
                self._make_up(pc, i, on)
                if target > pc:
                    self.aside.add(next(reversed(self.barriers), _END))
            tried[bool(on)] += 1
            if why:
                self.unsure[next(reversed(self.barriers), _END)] = why
        if back and ways[1] >= self.of.passes:
            if certain:
                self.of.cut.add((target, pc))
            on = False
        taken = self.mask & on
        rest = self.mask & ~taken
        ways[1] += bool(taken.any())
        if not rest.any():
            return target
        if not taken.any():
            return pc + 1
        self.groups += [(target, taken), (pc + 1, rest)]
        return None

    def _make_up(self, pc: int, i: Decoded, on: Any) -> None:
        """Run what a way that is tried against its condition would have run before its branch."""
        code = self.of.code
        for n in made_up(code, pc):
            if (code[n].negated == i.negated) is bool(on) and code[n].base not in FOLLOWED:
                self._step(n, code[n]._replace(guard=""), bool(self.mask.all()))

    def _leave(self, start: int, end: int) -> int | None:
        """Where a loop goes on that ends in an unconditional branch: at the first branch out of it."""
        for at in range(start, end):
            if self.of.code[at].base == "BRA":
                target = next(iter(self.of.targets.get(at, ())), at)
                if not start <= target <= end:
                    return target
        self.alive &= ~self.mask
        self._release()
        return None

    # ---- instructions

    def _step(self, at: int, i: Decoded, full: bool) -> None:
        accesses = i.base in FOLLOWED
        on = None if full else self.mask
        if i.guard:
            held, certain, why = self._taken(self._guard(i))
            if why:  # data decides for which lanes it runs
                if not accesses:
                    return self._forget(i, why, on)
                self.of.seen[at].unknown[f"{i.guard}: {why}"] += 1
            if not certain:
                held = accesses or (held if i.assumed is None else i.assumed)
            if held is not True:
                on = self.mask & held
                if not on.any():
                    if accesses:
                        self.of.seen[at].requests[_Request()] += 1
                    return None
        if accesses:
            return self._access(at, i, self.mask if on is None else on)
        if i.base in LOCAL:
            return self._spill(i, on)
        held = [*map(self.held, i.reads)]
        key = (at, *map(id, held))
        try:
            if (found := self.made.get(key)) is None or i.base in _OWN:
                found = self.made[key] = held, i.run(self, i)
        except (IndexError, KeyError, StopIteration, ValueError):  # operands of an unknown form
            return self._forget(i, i.row.sass, on)
        for name, value in zip(i.to, found[1], strict=False):
            self.put(name, value, on)
        return None

    def _forget(self, i: Decoded, why: str, on: np.ndarray | None) -> None:
        for name in i.to:
            self.put(name, unknown(why), on)

    def _spill(self, i: Decoded, on: np.ndarray | None) -> None:
        """Local memory: what is stored at addresses that are the same for all lanes is known."""
        place = self._address(next(part for part in i.operands if "[" in part), wide=False)
        there = place.uniform and followed(place) and width(i.row.opcode) >= WORD
        if i.base == "STL":
            source = i.operands[-1].partition(".")[0]
            for n in range(width(i.row.opcode) // WORD if there else 0):
                self.local[place.v + WORD * n] = self.get(following(source, n))
        for n, name in enumerate(i.to):
            value = self.local.get(place.v + WORD * n) if there else None
            self.put(name, value or unknown(f"{name} ({i.row.opcode})"), on)

    def _address(self, place: str, *, wide: bool) -> Lanes:
        """What `[R2.64+UR4+0x10]` points to; `wide`: by a register pair unless it says otherwise."""
        total = Lanes(0)
        for name, number, paired, scale in terms(place, wide):
            part = number or (self.pair(name) if paired else self.get(name))
            if scale:
                part = part._replace(v=part.v * scale)
            total = Lanes(total.v + part.v, *worst(total, part))
        return total

    def _access(self, at: int, i: Decoded, on: np.ndarray) -> None:
        seen = self.of.seen[at]
        seen.unknown.update([*self.unsure.values()])
        seen.usual += not (self.of.exploring or self.aside)
        places, form = _form(i.row.opcode, i.operands)
        if len(places) < 1 + (i.base == "LDGSTS"):
            seen.unknown[i.row.sass] += 1
            return
        held = [*map(self.held, i.reads)]
        lanes = self.running if on is self.mask else as_bits(on)
        key = (form, lanes, *map(id, held))
        if (found := self.made.get(key)) is None:
            address, alone = self._address(places[0], wide=i.base not in SHARED), _Tally()
            same = i.base not in (*ATOMICS, "LDSM") and address.uniform and followed(address)
            request = self._request(alone, i, address, places, on)
            found = self.made[key] = held, request, same, alone
        _, request, same, alone = found
        seen.requests[request] += 1
        seen.unknown += alone.unknown
        seen.lanes = max(seen.lanes, alone.lanes, key=_taking)
        for name in i.to:
            loaded = (self.data, int(Known.LOADED)) if same and name[0] == "R" else ()
            value = unknown(f"{name} ({i.row.opcode})", *loaded)
            self.put(name, value, None if lanes == MASK else on)

    def _request(
        self, seen: _Tally, i: Decoded, address: Lanes, places: Sequence[str], on: np.ndarray
    ) -> _Request:
        """What a request of some lanes takes."""
        size = width(i.row.opcode)
        if i.base == "LDGSTS":
            copied, sectors, passes = on, 0, 0
            if CONDITION.match(i.operands[-1]):
                held, certain, why = self._taken(self.condition(i.operands[-1]))
                copied = on & held if certain else on
                seen.unknown.update([why] * bool(why))
            address = self._address(places[1], wide=True)
            if (lanes := self._followed_lanes(seen, address, copied, shared=False)) is not None:
                sectors = sectors_of(lanes[copied], size)
            to = self._followed_lanes(seen, self._address(places[0], wide=False), on, shared=True)
            if to is not None:
                passes = _copied(to, address, copied, size, "BYPASS" in i.mods)
                passes = passes or wavefronts_of(to[on], size, np.nonzero(on)[0])
            least = -(-int(copied.sum()) * size // SECTOR)
            return _Request(1, sectors, passes, least, size // WORD)
        shared = i.base in SHARED
        lanes = self._followed_lanes(seen, address, on, shared=shared)
        if lanes is None:
            return _Request(1)
        if i.base in ("LDSM", "STSM"):
            # each matrix is eight rows of 16 bytes
            rows = lanes[: 8 * size // WORD].reshape(-1, 8)
            passes = sum(_deepest(row // WORD, 4) for row in rows)
            return _Request(1, 0, passes, 0, len(rows))
        if shared:
            # a compare-and-swap is a load and a store
            times = 1 + ("CAST" in i.mods)
            passes = times * wavefronts_of(lanes[on], size, np.nonzero(on)[0])
            return _Request(1, 0, passes, 0, times * max(1, size // WORD))
        return _Request(1, sectors_of(lanes[on], size), 0, -(-int(on.sum()) * size // SECTOR))

    def _followed_lanes(
        self, seen: _Tally, address: Lanes, on: np.ndarray, *, shared: bool
    ) -> np.ndarray | None:
        """The address of each lane; None, with the reason noted, where lanes are not known."""
        known = _most(address.known, on)
        lanes = address.v if isinstance(address.v, np.ndarray) else np.full(LANES, address.v)
        lanes = lanes.astype(np.int64, copy=False)
        taking = lanes[on]
        if known == Known.NOTHING or not len(taking):
            seen.unknown.update([address.why] * bool(len(taking)))
            return None
        self.of.depends |= known >= Known.LOADED
        if known == Known.STRIDE and not shared and len(taking) > 1:
            steps = np.abs(np.diff(taking)) // self.sample
            if (steps == 1).mean() >= 0.5:
                # bytes from one lane to the next, which may be as few as an element has
                seen.unknown[address.why] += 1
                return None
        if len(taking) > _taking(seen.lanes):
            seen.lanes = tuple(np.where(on, lanes - taking.min(), -1).tolist())
        return lanes


@lru_cache(maxsize=1 << 14)
def _form(opcode: str, operands: tuple[str, ...]) -> tuple[list[str], tuple[str, ...]]:
    """The addresses of an access, and what its requests depend on beside registers: whole rows of the
    banks, and of sectors, make no difference."""
    places = PLACES.findall(",".join(operands))
    rows = [re.sub(r"-?0x[0-9a-f]+", lambda n: hex(int(n[0], 0) % BANKS), at) for at in places]
    return places, (opcode, *rows, operands[-1] if "LDGSTS" in opcode else "")


def _most(known: Any, on: np.ndarray) -> int:
    """How much is unknown of any of some lanes."""
    if isinstance(known, np.ndarray):
        return int(np.max(known, initial=0, where=on))
    return int(known) if on.any() else 0


#: For `unsure`: to the end.
_END: Final = "end"
#: What depends on the warp, or on the lanes that run, beside registers.
_OWN: Final = frozenset({"S2R", "S2UR", "R2UR", "VOTE", "VOTEU", "ELECT"})
