"""Values of a warp's 32 lanes and the integer instructions that compute addresses from them.

Each value says how much of it is known (`Known`). Values that depend on data or on a kernel's parameters
have a sample, so that every instruction can be run. What is not integer arithmetic is not followed: its
result is unknown, or the same for all lanes where all that it reads is."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.kernel.sass.branches import backward, successors
from ncu_toolkit.kernel.sass.opcodes import ATOMICS, BULK, LOCAL, SHARED, CodeRow, split, width

LANES: Final = 32
WORD: Final = 4
MASK: Final = 0xFFFFFFFF
#: Indices of the instructions that each branch names, by its own.
Ends = Mapping[int, Sequence[int]]


class Known(IntEnum):
    """How much of a value is known."""

    ALL = 0
    OFFSET = 1
    """All but a part that is the same for all lanes, and a multiple of a sector: a pointer or a pitch."""
    LOADED = 2
    """All but a part that is the same for all lanes."""
    STRIDE = 3
    """Lanes are a multiple of something unknown apart."""
    NOTHING = 4


class Lanes(NamedTuple):
    """32 bits for each lane: one int where all lanes have the same; `why` names what is unknown."""

    v: Any
    known: Any = 0
    why: str = ""

    @property
    def uniform(self) -> bool:
        return not isinstance(self.v, np.ndarray)


class Decoded(NamedTuple):
    """A line of code, taken apart."""

    base: str
    mods: tuple[str, ...]
    guard: str
    """Its predicate without `!`; "" where it always runs."""
    negated: bool
    to: tuple[str, ...]
    """Registers and predicates written: general ones first."""
    operands: tuple[str, ...]
    """What is read."""
    row: CodeRow
    assumed: bool | None
    """Whether it is taken to run where a parameter decides: as an access below does that has its
    predicate."""
    run: Callable[[Registers, Decoded], Sequence[Lanes]]
    reads: tuple[str, ...] = ()
    """The registers that decide its result, or the address that it accesses, without its guard."""

    @property
    def acts(self) -> bool:
        """Whether it does more than write registers."""
        return self.base in FOLLOWED or self.base in CONTROL or self.base == "STL"


_REGISTER: Final = re.compile(
    r"(?P<sign>[-~!]?)\|?(?P<name>U?R(?:\d+|Z)|U?P(?:\d|T))\|?(?P<rest>(?:\.\w+)*)$"
)
_CONSTANT: Final = re.compile(
    r"(?P<sign>[-~]?)\|?c\[(0x[0-9a-f]+)\]\[(?:(U?R\w+)\+?)?(-?0x[0-9a-f]+)?\]"
)
NUMBER: Final = re.compile(r"-?0x[0-9a-f]+$|-?\d+$")
CONDITION: Final = re.compile(r"!?U?P(?:\d|T)$")


def _parsed(row: CodeRow) -> Decoded:
    name, *mods = row.opcode.split(".")
    guard = row.guard.lstrip("@")
    parts = split(row.operands)
    to: list[str] = []
    if name.startswith(("VOTE", "ELECT")):
        to = [parts.pop(0)]
    elif name == "R2P":
        to = [f"P{n}" for n in range(7)]
    elif name not in _NO_RESULT and parts:
        conditions: list[str] = []
        while parts and CONDITION.match(parts[0]) and len(conditions) < 2:
            conditions.append(parts.pop(0))
        if name in _SETS_CONDITIONS:
            to = conditions
        elif parts and not parts[0].startswith(("[", "desc")):
            to = [parts.pop(0).partition(".")[0]]
            while parts and CONDITION.match(parts[0]) and name in _CARRIES and len(to) < 3:
                to.append(parts.pop(0))
            several = max(1, len(row.registers[0])) if to[0][0] == "R" else _uniform(name, mods)
            to[:1] = [following(to[0], n) for n in range(several)]
            to += conditions
    plain = name[1:] if name[:1] == "U" and name[1:] in _RUN else name
    bare, negated, run = guard.lstrip("!"), guard.startswith("!"), _RUN.get(plain, _unfollowed)
    i = Decoded(plain, tuple(mods), bare, negated, tuple(to), tuple(parts), row, None, run)
    return i._replace(reads=tuple(_reads(i)))


def _reads(i: Decoded) -> list[str]:
    """`Decoded.reads`."""
    memory, places = i.base in FOLLOWED or i.base in LOCAL, PLACES.findall(",".join(i.operands))
    wide = i.base not in SHARED and i.base not in LOCAL
    used = [(name, both) for at in places for name, _, both, _ in terms(at, wide) if memory]
    some = memory or i.base in CONTROL
    for n, x in enumerate(i.operands):
        if not some or CONDITION.match(x):
            high = i.base == "IMAD" and n == 2 and not {"WIDE", "HI"}.isdisjoint(i.mods)
            used.append((x, high or "64" in i.mods))
    if i.base == "STL":
        used += [(following(i.operands[-1], n), False) for n in range(width(i.row.opcode) // WORD)]
    used += [(f"P{n}", False) for n in range(7 * (i.base in ("P2R", "R2P")))]
    names = [(name, both) for part, both in used for name in _OPERANDS.findall(part)]
    return [following(name, n) for name, both in names for n in range(1 + both)]


def _uniform(name: str, mods: Sequence[str]) -> int:
    """Uniform registers that an instruction writes."""
    if size := width(".".join((name.replace("ULDC", "LDC").replace("LDCU", "LDC"), *mods))):
        return max(1, size // WORD)
    wide = "WIDE" in mods or (name == "CS2R" and "32" not in mods)
    return 2 if wide or (name in ("UIADD3", "IADD", "MOV", "UMOV") and "64" in mods) else 1


@lru_cache(maxsize=1 << 14)
def _operand(name: str) -> tuple[str, str, str, Any]:
    """Kind, sign and name of an operand; of a number its value, of a constant its bank and place."""
    if found := _REGISTER.match(name):
        lanes = [m for m in found["rest"].split(".") if m and m not in ("reuse", "64", "U32")]
        return ("other" if lanes else "register", found["sign"], found["name"], None)
    if found := _CONSTANT.match(name):
        where = int(found[2], 16), found[3], int(found[4] or "0", 16)
        return "constant", found["sign"], "", where
    if NUMBER.match(name):
        return "number", "", "", Lanes(int(name, 0) & MASK)
    return "other", "", "", None


def _signed(v: Any) -> Any:
    return (v ^ 0x80000000) - 0x80000000


def _wrapped(v: int) -> int:
    """As a signed number of 64 bits, which NumPy's are."""
    return (v + (1 << 63)) % (1 << 64) - (1 << 63)


def worst(*values: Lanes) -> tuple[Any, str]:
    known: Any = 0
    why = ""
    for _, other, reason in values:
        if isinstance(other, np.ndarray) or isinstance(known, np.ndarray):
            known = other if other is known else np.maximum(known, other)
        elif other > known:
            known = other
        why = why or reason
    return known, why


def _product(a: Lanes, b: Lanes) -> tuple[Any, str]:
    """What is known of a product."""
    known, why = worst(a, b)
    if isinstance(known, int) and (not known or known == Known.NOTHING):
        return known, why
    if a.uniform and b.uniform:
        return known, why
    if not a.uniform and not b.uniform:
        return _at_least(known, Known.NOTHING), why
    lanes, one = (b, a) if a.uniform else (a, b)
    return (_at_least(known, Known.STRIDE) if unsure(one.known) else lanes.known), why


def _at_least(known: Any, level: int) -> Any:
    """`known` where it is nothing but known, else at least `level`."""
    if isinstance(known, np.ndarray):
        return np.where(known > 0, np.maximum(known, level), 0)
    return max(known, level) if known else 0


def unsure(known: Any) -> bool:
    return bool(known.any()) if isinstance(known, np.ndarray) else bool(known)


def _bits(result: Any, *values: Lanes) -> Lanes:
    """The result of an operation that takes bits apart: of lanes a stride apart nothing is known then,
    nor where lanes meet something unknown that is the same for all of them."""
    known, why = worst(*values)
    if unsure(known) and isinstance(result, np.ndarray):
        mixed = any(value.uniform and unsure(value.known) for value in values)
        strided = any(np.any(np.asarray(value.known) >= Known.STRIDE) for value in values)
        if mixed or strided:
            known = _at_least(known, Known.NOTHING)
    return Lanes(result, known, why)


@lru_cache(maxsize=1 << 14)
def unknown(why: str, v: int = 0, known: int = int(Known.NOTHING)) -> Lanes:
    return Lanes(v, known, why)


def _chosen(condition: Lanes, yes: Lanes, no: Lanes) -> Lanes:
    """`yes` for the lanes of a condition."""
    if not unsure(condition.known):
        if condition.uniform:
            return yes if condition.v else no
        known = np.where(condition.v, yes.known, no.known)
        why = yes.why or no.why
        return Lanes(np.where(condition.v, yes.v, no.v), known if known.any() else 0, why)
    if not (unsure(yes.known) or unsure(no.known)) and np.all(yes.v == no.v):
        return yes
    if not followed(condition):
        return unknown(condition.why)
    kept = yes if np.mean(condition.v) >= 0.5 else no  # a bound: all lanes are taken to be within
    return Lanes(kept.v, kept.known if unsure(kept.known) else int(Known.OFFSET), condition.why)


def followed(value: Lanes) -> bool:
    return isinstance(value.known, int) and value.known < Known.NOTHING


# ---- operations: each gives the values of `to`, in order


def _iadd3(w: Registers, i: Decoded) -> Sequence[Lanes]:
    if "64" in i.mods:
        return _halves(_total(*(w.pair(name) for name in i.operands[:3])))
    values = []
    for name in i.operands[:3]:
        value = w.get(name)
        if name.startswith("-"):  # the hardware adds the complement and 1, which carries for a 0
            value = Lanes(value.v + (value.v == 0) * (1 << 32), value.known, value.why)
        values.append(value)
    if "X" in i.mods:
        values += [w.condition(name) for name in i.operands[3:]]
    v, known, why = _total(*values)
    carries = [Lanes(plain(v >> 32 > n), known, why) for n in range(len(i.to) - 1)]
    return [Lanes(v & MASK, known, why), *carries]


def _total(*values: Lanes) -> Lanes:
    """The sum in 64 bits."""
    total: Any = 0
    for value in values:
        total = total + value.v
    return Lanes(total if isinstance(total, np.ndarray) else _wrapped(total), *worst(*values))


def _low(*values: Lanes) -> Lanes:
    """The sum in 32 bits."""
    total = _total(*values)
    return Lanes(total.v & MASK, total.known, total.why)


def _halves(value: Lanes) -> list[Lanes]:
    """64 bits in two registers."""
    v, known, why = value
    return [Lanes(v & MASK, known, why), Lanes(v >> 32 & MASK, known, why)]


def _imad(w: Registers, i: Decoded) -> Sequence[Lanes]:
    a, b = w.get(i.operands[0]), w.get(i.operands[1])
    x, y = (a.v, b.v) if "U32" in i.mods else (_signed(a.v), _signed(b.v))
    v = x * y
    product = Lanes(v if isinstance(v, np.ndarray) else _wrapped(v), *_product(a, b))
    if "WIDE" in i.mods:
        return _halves(_total(product, w.pair(i.operands[2])))
    if "HI" in i.mods:
        c = w.pair(i.operands[2])
        high = _bits((product.v + c.v) >> 32 & MASK, a, b)
        return [Lanes(high.v, *worst(high, c))]
    carries = [w.condition(name) for name in i.operands[3:]] if "X" in i.mods else []
    return [_low(product, w.get(i.operands[2]), *carries)]


def _lea(w: Registers, i: Decoded) -> Sequence[Lanes]:
    a, b = w.get(i.operands[0]), w.get(i.operands[1])
    rest = list(i.operands[2:])
    carry = w.condition(rest.pop()) if "X" in i.mods else Lanes(0)
    shift = w.get(rest.pop()).v if rest else 0
    if "HI" in i.mods:
        third = w.get(rest[0]) if rest else Lanes(_signed(a.v) >> 31 & MASK, a.known, a.why)
        v = (a.v | third.v << 32) >> (32 - shift) & MASK
        # a few bits are the high half of an address; more are a division
        shifted = Lanes(v, *worst(a, third)) if "X" in i.mods and shift <= 8 else _bits(v, a, third)
    else:
        shifted = a._replace(v=a.v << shift & MASK)
    total, known, why = _total(shifted, b, carry)
    return [Lanes(total & MASK, known, why), Lanes(plain(total >> 32 > 0), known, why)]


def _lop3(w: Registers, i: Decoded) -> Sequence[Lanes]:
    if i.base == "LOP":
        values = [w.get(i.operands[0]), w.get(i.operands[1]), Lanes(0)]
        table = 0xC0 if "AND" in i.mods else 0xFC if "OR" in i.mods else 0x3C
    else:
        values, table = [w.get(name) for name in i.operands[:3]], w.get(i.operands[3]).v
    result = _looked_up(table, values, MASK)
    used = [value for place, value in enumerate(values) if _depends(table, place)]
    apart = table in _ADDS and not np.any(result != _low(*used).v)
    value = Lanes(result, *worst(*used)) if apart else _bits(result, *used)
    return [value, value._replace(v=plain(result != 0))]


#: A bit of a truth table by the place of its operand.
_STEPS: Final = (4, 2, 1)
#: Truth tables of OR and XOR, which add where no bit is set twice.
_ADDS: Final = frozenset({0xFC, 0xFE, 0x3C, 0x96, 0xEE, 0xFA, 0x5A, 0x66})


def _looked_up(table: int, values: Sequence[Lanes], ones: int) -> Any:
    """What a truth table gives for the bits of three values; `ones`: all bits that one has."""
    result: Any = 0
    for bit in range(8):
        if table >> bit & 1:
            term: Any = ones
            for step, value in zip(_STEPS, values, strict=True):
                term = term & (value.v if bit & step else value.v ^ ones)
            result = result | term
    return result


def _depends(table: int, place: int) -> bool:
    step = _STEPS[place]
    return any((table >> bit & 1) != (table >> (bit ^ step) & 1) for bit in range(8))


def _shf(w: Registers, i: Decoded) -> Sequence[Lanes]:
    low, by, high = (w.get(name) for name in (*i.operands, "RZ")[:3])
    shift = by.v & (63 if {"U64", "S64"} & {*i.mods} else 31) if "W" in i.mods else by.v
    shift = min(shift, 63) if by.uniform else np.minimum(shift, 63)
    top = _signed(high.v) if {"S32", "S64"} & {*i.mods} else high.v
    if i.base == "SHR":
        v = low.v if "U32" in i.mods else _signed(low.v)
        return [_bits(v >> shift & MASK, low, by)]
    if i.base == "SHL" or ("L" in i.mods and "HI" not in i.mods):
        v = low.v << shift & MASK
        keeps = low.uniform or not unsure(by.known)
        return [Lanes(v, *worst(low, by)) if keeps else _bits(v, low, by)]
    whole = top << 32 | low.v
    if "L" in i.mods:
        v = whole << shift >> 32 & MASK
        return [_bits(v, low, high, by) if unsure(by.known) else Lanes(v, *worst(low, high))]
    if "HI" not in i.mods:
        return [_bits(whole >> shift & MASK, low, high, by)]
    v = top >> shift & MASK
    sign = np.all(shift >= _SIGN) and not unsure(by.known)
    return [Lanes(v, high.known, high.why) if sign else _bits(v, high, by)]


#: Shifts from here on leave the sign of a number, or the high half of an address.
_SIGN: Final = 29


_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b, "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b, "T": lambda a, b: True, "F": lambda a, b: False,
}  # fmt: skip


def _isetp(w: Registers, i: Decoded) -> Sequence[Lanes]:
    a, b = w.get(i.operands[0]), w.get(i.operands[1])
    x, y = (a.v, b.v) if "U32" in i.mods else (_signed(a.v), _signed(b.v))
    name = i.mods[0]
    conditions = [w.condition(other) for other in i.operands[2:]] or [Lanes(True)]
    result = _COMPARE[name](x, y)
    if "EX" in i.mods and len(conditions) > 1:  # the high halves decide, else the low ones
        strictly = _COMPARE[{"NE": "NE", "EQ": "F"}.get(name, f"{name[:1]}T")](x, y)
        result = strictly | ((x == y) & conditions[1].v)
    known, why = worst(a, b, *conditions)
    joined = conditions[0].v
    both = [
        v & joined if "AND" in i.mods else v | joined if "OR" in i.mods else v ^ joined
        for v in (result, result ^ True)
    ]
    return [Lanes(plain(v), known, why) for v in both]


def plain(v: Any) -> Any:
    """A condition's lanes as they are, or one bool."""
    return v if isinstance(v, np.ndarray) else bool(v)


def _plop3(w: Registers, i: Decoded) -> Sequence[Lanes]:
    conditions = [w.condition(name) for name in i.operands[:3]]
    results = []
    for table in (w.get(i.operands[3]).v, w.get(i.operands[4]).v if len(i.operands) > 4 else 0):
        used = [c if _depends(table, n) else Lanes(True) for n, c in enumerate(conditions)]
        results.append(Lanes(plain(_looked_up(table, used, True)), *worst(*used)))
    return results


def _minmax(w: Registers, i: Decoded) -> Sequence[Lanes]:
    *operands, condition = i.operands
    a, b = w.get(operands[0]), w.get(operands[1])
    if i.base == "VIADDMNMX":
        a, b = _low(a, b), w.get(operands[2])
    x, y = (a.v, b.v) if "U32" in i.mods else (_signed(a.v), _signed(b.v))
    least = w.condition(condition)
    smaller = Lanes(plain(x < y), *worst(a, b))
    if unsure(smaller.known) and not smaller.uniform:
        # lanes clamped to a size: they are taken to lie within
        lanes = a if not a.uniform else b
        return [Lanes(lanes.v, smaller.known, smaller.why)]
    return [_chosen(smaller, a, b) if least.v else _chosen(smaller, b, a)]


def _sel(w: Registers, i: Decoded) -> Sequence[Lanes]:
    return [_chosen(w.condition(i.operands[2]), w.get(i.operands[0]), w.get(i.operands[1]))]


def _mov(w: Registers, i: Decoded) -> Sequence[Lanes]:
    if "64" in i.mods:
        return _halves(w.pair(i.operands[0]))
    return [w.get(i.operands[0])]


def _ldc(w: Registers, i: Decoded) -> Sequence[Lanes]:
    wide = max(1, width(f"LDC.{'.'.join(i.mods)}") // WORD)
    found = _CONSTANT.match(i.operands[0])
    if not found:
        return [w.given(i.operands[0])] * wide
    at = w.get(found[3]) if found[3] else Lanes(0)
    if not at.uniform or unsure(at.known):
        return [w.given(i.operands[0]) if at.uniform else unknown(i.operands[0])] * wide
    first = int(found[4] or "0", 16) + at.v
    return [w.constant(int(found[2], 16), first + WORD * n) for n in range(wide)]


def _s2r(w: Registers, i: Decoded) -> Sequence[Lanes]:
    name = i.operands[0]
    return [w.special.get(name) or w.given(name), Lanes(0)]  # CS2R writes the latter, S2R one


def _r2ur(w: Registers, i: Decoded) -> Sequence[Lanes]:
    value = w.get(next(name for name in i.operands if name.startswith(("R", "-R", "~R"))))
    if value.uniform and followed(value):
        return [value]
    first = int(np.argmax(w.mask))
    known = int(value.known[first]) if isinstance(value.known, np.ndarray) else int(value.known)
    v = value.v if value.uniform else int(value.v[first])
    return [
        Lanes(w.data if known == Known.NOTHING else v, min(known, int(Known.LOADED)), value.why)
    ]


def _vote(w: Registers, i: Decoded) -> Sequence[Lanes]:
    condition = w.condition(i.operands[-1])
    on = np.broadcast_to(np.asarray(condition.v, dtype=bool), (LANES,)) & w.mask
    ballot = int(sum(1 << n for n in range(LANES) if on[n]))
    whole = bool((on == w.mask).all())
    known = Known.OFFSET if unsure(condition.known) else 0
    answer = Lanes(whole if "ALL" in i.mods else bool(on.any()), int(known), condition.why)
    return [
        Lanes(ballot, int(known), condition.why) if name.lstrip("U").startswith("R") else answer
        for name in i.to
    ]


def _shfl(w: Registers, i: Decoded) -> Sequence[Lanes]:
    value, lane, clamp = (w.get(name) for name in i.operands[:3])
    if unsure(lane.known) or unsure(clamp.known):
        return [unknown(value.why or lane.why), unknown(lane.why)]
    if value.uniform and followed(value):
        return [value, unknown("SHFL")]
    places = np.arange(LANES)
    by = lane.v & 31
    mode = i.mods[0]
    segment = clamp.v >> 8 & 31
    low = places & segment
    high = low | (clamp.v & 31 & ~segment)
    to = {
        "UP": places - by,
        "DOWN": places + by,
        "BFLY": places ^ by,
        "IDX": low | (by & ~segment),
    }[mode]
    good = to >= high if mode == "UP" else to <= high
    to = np.where(good, to, places) & 31
    if mode == "IDX" and lane.uniform and segment == 0 and unsure(value.known):
        return [Lanes(w.data, int(Known.LOADED), value.why), Lanes(good)]
    v = value.v if value.uniform else value.v[to]
    known = value.known[to] if isinstance(value.known, np.ndarray) else value.known
    return [Lanes(v, known, value.why), Lanes(good)]


def _unary(
    operation: Callable[[Any, tuple[str, ...]], Any],
) -> Callable[[Registers, Decoded], Sequence[Lanes]]:
    """An operation lane by lane of one operand's bits."""

    def run(w: Registers, i: Decoded) -> Sequence[Lanes]:
        a = w.get(i.operands[0])
        if a.uniform:
            return [Lanes(operation(a.v, i.mods) & MASK, a.known, a.why)]
        result = np.array([operation(int(v), i.mods) & MASK for v in a.v], dtype=np.int64)
        return [_bits(result, a)]

    return run


def _to_float(v: int, mods: tuple[str, ...]) -> int:
    x = v if "U32" in mods else _signed(v)
    rounded = np.float32(x)
    if "RP" in mods and float(rounded) < x:
        rounded = np.nextafter(rounded, np.float32(np.inf))
    return int(rounded.view(np.uint32))


def _from_float(v: int, mods: tuple[str, ...]) -> int:
    x = float(np.uint32(v).view(np.float32))
    if not math.isfinite(x):
        return 0
    x = math.floor(x) if "FLOOR" in mods else math.ceil(x) if "CEIL" in mods else math.trunc(x)
    return min(max(x, 0), MASK) if "U32" in mods else min(max(x, -(1 << 31)), (1 << 31) - 1)


def _mufu(v: int, mods: tuple[str, ...]) -> int:
    x = float(np.uint32(v).view(np.float32))
    result = 1 / x if "RCP" in mods and x and math.isfinite(x) and abs(x) > 1e-37 else 0.0
    return int(np.float32(result).view(np.uint32))


def _sgxt(w: Registers, i: Decoded) -> Sequence[Lanes]:
    a, bits = w.get(i.operands[0]), w.get(i.operands[1])
    n = min(32, int(np.max(bits.v)))
    low = a.v & ((1 << n) - 1)
    if "U32" not in i.mods and n:
        low = ((low ^ (1 << (n - 1))) - (1 << (n - 1))) & MASK
    return [_bits(low, a, bits)]


def _bmsk(w: Registers, i: Decoded) -> Sequence[Lanes]:
    a, b = w.get(i.operands[0]), w.get(i.operands[1])
    v = ((1 << np.minimum(b.v, 32)) - 1) << np.minimum(a.v, 31) & MASK
    return [_bits(v if isinstance(v, np.ndarray) else int(v), a, b)]


def _prmt(w: Registers, i: Decoded) -> Sequence[Lanes]:
    a, how, b = (w.get(name) for name in i.operands[:3])
    if not how.uniform or unsure(how.known) or i.mods:
        return [unknown("PRMT")]
    both = a.v | (b.v << 32)
    result: Any = 0
    for n in range(4):
        picked = how.v >> (4 * n) & 15
        byte = both >> (8 * (picked & 7)) & 255
        if picked & 8:
            byte = (byte >> 7) * 255
        result = result | (byte << (8 * n))
    picked = {how.v >> (4 * n) & 4 for n in range(4)}
    used = [value for value, bit in ((a, 0), (b, 4)) if bit in picked]
    if how.v == 0x3210:
        return [a]
    return [_bits(result, *used)]


def _p2r(w: Registers, i: Decoded) -> Sequence[Lanes]:
    taken = w.get(i.operands[-1]).v
    old = w.get(i.operands[1]) if len(i.operands) > 2 else Lanes(0)
    values = [(n, w.condition(f"P{n}")) for n in range(7) if taken >> n & 1]
    known, why = worst(old, *(value for _, value in values))
    result: Any = old.v & ~taken & MASK
    for n, value in values:
        result = result | (value.v << n)
    return [Lanes(result, known, why)]


def _r2p(w: Registers, i: Decoded) -> Sequence[Lanes]:
    name, _, byte = i.operands[1].partition(".B")
    value, taken = w.get(name), w.get(i.operands[2]).v
    shift = 8 * int(byte or 0)
    bits = [value._replace(v=plain(value.v >> (n + shift) & 1 != 0)) for n in range(7)]
    return [bit if taken >> n & 1 else w.condition(f"P{n}") for n, bit in enumerate(bits)]


def _elect(w: Registers, i: Decoded) -> Sequence[Lanes]:
    first = int(np.argmax(w.mask))
    return [Lanes(np.arange(LANES) == first) if "P" in name else Lanes(first) for name in i.to]


def _constant(w: Registers, i: Decoded) -> Sequence[Lanes]:
    """HFMA2 of zeros, with which compilers set a register to two halves."""
    if [name.lstrip("-") for name in i.operands[:2]] != ["RZ", "RZ"]:
        return [unknown(f"{i.to[0]} ({i.row.opcode})")]
    halves = [name.replace("QNAN", "nan").replace("SNAN", "nan") for name in i.operands[2:4]]
    high, low = (int(np.float16(float(name)).view(np.uint16)) for name in halves)
    return [Lanes(high << 16 | low)]


def _true(w: Registers, i: Decoded) -> Sequence[Lanes]:
    return [Lanes(True) for _ in i.to]


def _unfollowed(w: Registers, i: Decoded) -> Sequence[Lanes]:
    """Unknown, but the same for all lanes where all that is read is."""
    read = (w.held(found[0]) for x in i.operands if (found := _OPERANDS.search(x)))
    same = all(each.uniform and followed(each) for each in read)
    names = (f"{name} ({i.row.opcode})" for name in i.to)
    return [w.given(name) if same else unknown(name) for name in names]


_RUN: Final[Mapping[str, Callable[[Registers, Decoded], Sequence[Lanes]]]] = {
    **dict.fromkeys(("IADD3", "IADD", "VIADD", "IADD32I"), _iadd3),
    **dict.fromkeys(("LOP3", "LOP"), _lop3),
    **dict.fromkeys(("SHF", "SHL", "SHR"), _shf),
    **dict.fromkeys(("IMNMX", "VIMNMX", "VIADDMNMX"), _minmax),
    **dict.fromkeys(("MOV", "MOV32I"), _mov),
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), _ldc),
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), _s2r),
    **dict.fromkeys(("VOTE", "VOTEU"), _vote),
    **dict.fromkeys(("SYNCS", "USETMAXREG"), _true),
    **dict.fromkeys(("I2F", "I2FP"), _unary(_to_float)),
    "IMAD": _imad, "LEA": _lea, "ISETP": _isetp, "PLOP3": _plop3, "SEL": _sel, "R2UR": _r2ur, "SHFL": _shfl, "F2I": _unary(_from_float),
    "MUFU": _unary(_mufu), "SGXT": _sgxt, "BMSK": _bmsk, "PRMT": _prmt, "P2R": _p2r, "R2P": _r2p, "ELECT": _elect, "HFMA2": _constant,
    "IABS": _unary(lambda v, _: abs(_signed(v))),
    "POPC": _unary(lambda v, _: v.bit_count()),
    "BREV": _unary(lambda v, _: int(f"{v:032b}"[::-1], 2)),
    "FLO": _unary(lambda v, mods: 32 - v.bit_length() if "SH" in mods else v.bit_length() - 1),
}  # fmt: skip
_OPERANDS: Final = re.compile(r"\bU?[RP]\d+")
#: What writes no register that is followed.
_NO_RESULT: Final = frozenset({
    "STG", "ST", "STS", "STSM", "STL", "RED", "REDG", "REDS", "LDGSTS", "BRA", "EXIT", "BAR", "BSSY", "BSYNC", "BREAK", "RET", "CALL", "BRX",
    "WARPSYNC", "NANOSLEEP", "DEPBAR", "MEMBAR", "CCTL", "JMP", "NOP", "YIELD", "STAS", *BULK,
})  # fmt: skip
_SETS_CONDITIONS: Final = frozenset({
    "ISETP", "UISETP", "PLOP3", "UPLOP3", "FSETP", "DSETP", "HSETP2", "FCHK", "SYNCS", "USETMAXREG",
})  # fmt: skip
_CARRIES: Final = frozenset({"IADD3", "UIADD3", "LEA", "ULEA", "IMAD", "UIMAD", "IADD"})
#: What decides where lanes go on.
CONTROL: Final = frozenset(
    {"BRA", "JMP", "EXIT", "KILL", "RET", "CALL", "BSSY", "BSYNC", "BREAK", "BRX", "JMX"}
)
#: Accesses whose addresses are followed.
FOLLOWED: Final = frozenset(
    {"LDG", "STG", "LD", "ST", "LDS", "STS", "LDSM", "STSM", "LDGSTS", *ATOMICS}
)


#: Addresses among operands, of which some disassemblers write two without a comma between them.
PLACES: Final = re.compile(r"(?<!desc)\[[^\[\]]*\]")


@lru_cache(maxsize=1 << 12)
def following(register: str, n: int) -> str:
    """The name of the n-th register after one."""
    return re.sub(r"\d+", lambda found: str(int(found[0]) + n), register)  # RZ has none


@lru_cache(maxsize=1 << 12)
def terms(place: str, wide: bool) -> list[tuple[str, Lanes | None, bool, int]]:
    """What an address is the sum of: a register, or a number; whether with the register after it;
    and its factor or 0."""
    tokens = [token.partition(".") for token in place.strip("[]").split("+")]
    marks = {mark for _, _, rest in tokens for mark in rest.split(".")}
    summed = []
    for name, _, rest in tokens:
        both = "64" in rest or not {"64", "U32"} & marks or (name[0] == "U" and "U32" in marks)
        scale = re.search(r"X(\d+)", rest)
        number = Lanes(int(name, 0)) if NUMBER.match(name) else None
        summed.append((name, number, wide and both, int(scale[1]) if scale else 0))
    return summed


def as_bits(mask: np.ndarray) -> int:
    return int.from_bytes(np.packbits(mask).tobytes(), "big")


class Registers:
    """A warp's registers. A register that was never written holds nothing known."""

    def __init__(self, special: Mapping[str, Lanes], run: Any, mask: np.ndarray) -> None:
        """`run`: constants by their place, what stands for unknown parameters and data, and what was
        made of values, by their identity: it is made again, in other warps too."""
        self.words: Mapping[int, int] = run.words
        self.sample, self.data, self.made, self.special = run.sample, run.data, run.made, special
        self.run_on(mask)
        self.latest: dict[str, tuple[int, Lanes]] = {}
        """What some lanes wrote last, and which ones: they may have the same where all do not."""
        self.registers: dict[str, Lanes] = {
            "RZ": Lanes(0), "URZ": Lanes(0), "PT": Lanes(True), "UPT": Lanes(True)
        }  # fmt: skip

    def run_on(self, mask: np.ndarray) -> None:
        """Go on with these lanes."""
        self.mask, self.running = mask, as_bits(mask)

    def held(self, key: str) -> Lanes:
        """A register's value for the lanes that are running."""
        if key in self.latest and not self.running & ~self.latest[key][0]:
            return self.latest[key][1]
        return self.registers.get(key) or unknown(key)

    def constant(self, bank: int, at: int) -> Lanes:
        word = self.words.get(at) if bank == 0 else None
        why = f"c[{bank:#x}][{at:#x}]"
        return self.given(why) if word is None else Lanes(word & MASK)

    def given(self, why: str) -> Lanes:
        """What stands for something unknown that is the same for all lanes."""
        return unknown(why, self.sample, int(Known.OFFSET))

    def get(self, name: str) -> Lanes:
        kind_of, sign, key, extra = _operand(name)
        if kind_of == "register":
            value = self.held(key)
        elif kind_of == "number":
            number: Lanes = extra
            return number
        elif kind_of == "constant":
            bank, register, offset = extra
            value = self.given(name) if register else self.constant(bank, offset)
        else:
            return unknown(name)
        if sign:
            v = value.v
            return Lanes((-v if sign == "-" else ~v) & MASK, value.known, value.why)
        return value

    def pair(self, name: str) -> Lanes:
        """64 bits."""
        kind_of, sign, key, extra = _operand(name)
        if kind_of == "register":
            low = self.held(key)
            high = self.held(following(key, 1))
        elif kind_of == "constant":
            bank, _, offset = extra
            low, high = self.constant(bank, offset), self.constant(bank, offset + WORD)
        else:
            value = self.get(name)
            return Lanes(_signed(value.v), value.known, value.why)
        known, why = worst(low, high)
        v = low.v | (high.v << 32)
        v = v if isinstance(v, np.ndarray) else _wrapped(v)
        return Lanes(-v if sign == "-" else v, known, why)

    def condition(self, name: str) -> Lanes:
        kind_of, sign, key, _ = _operand(name)
        if kind_of != "register":
            return unknown(name)
        value = self.held(key)
        v = value.v.astype(bool) if isinstance(value.v, np.ndarray) else bool(value.v)
        return Lanes(v ^ True if sign else v, value.known, value.why)

    def put(self, name: str, value: Lanes, on: np.ndarray | None) -> None:
        """Set a register for some lanes; of all where `on` is None."""
        if name.endswith(("Z", "T")):
            return
        old = self.registers.get(name)
        self.latest.pop(name, None)
        if on is not None and old is not None and name[0] != "U":
            bits = self.running if on is self.mask else as_bits(on)
            self.latest[name] = bits, value
            key = "joined", bits, id(value), id(old)
            if (joined := self.made.get(key)) is None:
                joined = self.made[key] = _chosen(Lanes(on), value, old), value, old
            value = joined[0]
        self.registers[name] = value


@remembered(16)
def decoded(rows: tuple[CodeRow, ...], targets: Ends) -> list[Decoded]:
    """The code, without results on which no address and no branch after them depends: most of a
    kernel's work."""
    code = [_parsed(row) for row in rows]
    accessed: dict[str, bool] = {}
    for at in range(len(code) - 1, -1, -1):
        i = code[at]
        for name in i.to:
            accessed.pop(name, None)
        if i.base in FOLLOWED and i.guard:
            accessed[i.guard] = i.negated
        if i.guard in accessed:
            code[at] = i._replace(assumed=accessed[i.guard] == i.negated)
    bits: defaultdict[str, int] = defaultdict(lambda: 1 << len(bits))
    uses = [sum({bits[name] for name in (*i.reads, i.guard)}) for i in code]
    made = [sum({bits[name] for name in i.to}) for i in code]
    for at in range(len(code)):
        for n in made_up(code, at):
            uses[at] |= uses[n]
    back = [n + 1 for n in targets if code[n].base == "CALL" and n + 1 < len(code)]
    ends = [
        (*after, *targets.get(at, ()), *(back if code[at].base == "RET" else ()))
        for at, after in enumerate(successors(rows, targets))
    ]

    def entering(at: int, leaving: int) -> int:
        if not (code[at].acts or leaving & made[at]):
            return leaving
        return (leaving if code[at].guard else leaving & ~made[at]) | uses[at]

    leaving = backward(ends, entering)
    return [i if leaving[at] & made[at] else i._replace(to=()) for at, i in enumerate(code)]


def made_up(code: Sequence[Decoded], at: int) -> Iterator[int]:
    """Instructions with the guard of a branch, right before it."""
    start, guard = at, code[at].guard
    if guard and code[at].base in ("BRA", "JMP"):
        while start and code[start - 1].base not in CONTROL and guard not in code[start - 1].to:
            start -= 1
        yield from (n for n in range(start, at) if code[n].guard == guard)
