"""Sequences of launches on one stream that compute something known: attention, norm, GELU, softmax,
a loss, an optimizer's update. Each group is places in `Step.ops`, in order.

What a launch computes follows from names. That one takes up what the launch before wrote is not known:
it is likely where they follow each other as the composition has them."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice, takewhile
from typing import Final

from ncu_toolkit.base.core.cache import remembered
from ncu_toolkit.base.model import Launch
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Call
from ncu_toolkit.program.rules._facts import StepFacts
from ncu_toolkit.program.rules._host import copied, dispatching

#: Classes of kernels that pass over their data once, and do little with it.
PASSES: Final = ("elementwise", "layout", "random", "fill", "reduction")
#: Most launches between the two products of an attention: scale, bias, mask, softmax in five, dropout
#: in two, a cast and a copy.
_BETWEEN: Final = 12
#: Operators of products of many small matrices, as heads are.
_BATCHED: Final = ("aten::bmm", "aten::baddbmm", "aten::einsum")
#: A letter for each operation, for the expressions below; "." is a kernel that passes over its data
#: and says nothing, "|" anything else.
_LETTERS: Final = {
    "mean": "m", "var": "v", "add": "a", "sub": "a", "neg": "a", "mul": "u", "div": "d", "pow": "p", "sqrt": "q",
    "rsqrt": "r", "tanh": "t", "erf": "e", "exp": "x", "log": "g", "sum": "S", "max": "M", "copy": "c",
    "where": "w", "gather": "i", "fill": "f", "random": "f", "dropout": "o", "addcmul": "A", "addcdiv": "D", "lerp": "L",
}  # fmt: skip
#: Norms of the differences of all pairs of points, sums of products, and COORDINATES from which on such terms take most of the memory.
PAIRS: Final = "pairwise distance"
PRODUCT: Final = "matrix product"
BACKWARD: Final = " backward pass"
COORDINATES: Final = 16
#: In the order in which they are looked for. Subtraction is addition with a factor in PyTorch, and division
#: by a number a multiplication.
_COMPOSED: Final = {
    "cross-entropy": re.compile(r"(?:M[ac]{0,2})?xSg[aui]{0,3}[mS]?"),
    "softmax": re.compile(r"M[ac]{0,2}xc?Sc?[du]"),
    "norm": re.compile(r"c?p?[mv][aupdmvc]{0,5}[qr][ac]?[ud][uac]{0,2}"),
    "GELU": re.compile(r"(?:u?pu?|u{2,4})autau{1,2}|[ud]eau{1,2}"),
    PAIRS + BACKWARD: re.compile(r"cuua?\|?S{1,2}"),
    "norm" + BACKWARD: re.compile(
        r"S?[|c]?uu[|c]{,2}S[|c]?[uda]{2,5}Sa?[pud][udc]{2,7}a+(?:Sa?ua)?"
    ),
}
#: A loss over scores and its gradient: a softmax's exponentials and sum, their logarithm, the sum of all.
_LOSS: Final = re.compile(r"M[ac]{0,2}xc?S[^|]*?g[^|]*[mS][^|]*")
SEQUENCE: Final = Threshold(
    96.0,
    "launches for an item: a small network's forward pass; what is longer is a separate step",
)
ITEMS: Final = Threshold(
    16.0, "passes of other sizes: layers of a network have the same, and are fewer than items"
)
MORE: Final = Threshold(
    96.0, "passes of the same sizes: no network has as many layers that are alike"
)
UNLAYERED: Final = Threshold(
    32.0, "the same without products of matrices, which layers have, or kernels not known"
)
ALIKE: Final = Threshold(
    32.0, "launches of such a pass: an item's few operations; a simulated environment has more"
)
READS: Final = Threshold(
    4.0, "waits for each pass: one that decides by what it reads; an item's result is read once"
)
#: Sizes that items, or parameters, have at least.
_SIZES: Final = 3
BRIEF: Final = Threshold(
    10.0, "us: an operator takes the host 10 to 50, and longer kernels are not what a loop costs"
)
#: What updates of parameters compute, and what else they launch; "": not known.
_ARITHMETIC: Final = ("add", "sub", "mul", "div", "lerp", "addcmul", "addcdiv", "sqrt", "rsqrt", "pow")  # fmt: skip
_UPDATES: Final = (*_ARITHMETIC, "neg", "copy", "fill", "sum", "")
#: Launches for a parameter, of an update that is not Adam's: LAMB has 19.
_UPDATE: Final = 24
CUT: Final = Threshold(0.02, "waits for each launch: passes that read back have tens of launches")
#: Kernels that count and number the entries of a boolean mask, of PyTorch (by CUB) and of CuPy; and of those the last.
_COUNTS: Final = re.compile(
    r"\bDevice(?:Reduce|Compact|Select)|^cupy_(?:bsum|scan|copy__bool_bool)"
)
_NUMBERS: Final = re.compile(r"\bDeviceSelect|^cupy_scan")
#: Threads of PyTorch's elementwise kernels take several elements: by their template, or four.
_TEMPLATE: Final = re.compile(r"\belementwise_kernel<(\d+), ?(\d+)")
_FOUR: Final = re.compile(r"(?:vectorized|unrolled)_elementwise_kernel")


@dataclass(frozen=True)
class AttentionParts:
    """An unfused attention: two products and what is between them."""

    first: int
    last: int
    between: tuple[int, ...]
    softmax: tuple[int, ...]
    """Of those, the launches of the softmax."""


def letters(s: StepFacts, queue: tuple[int, ...]) -> str:
    """A stream's work, a letter each."""

    def letter(at: int) -> str:
        kind, operation = s.classes[at], s.operations[at]
        if moves(s, at):
            return "c"
        known = kind in (*PASSES, "index", "optimizer") or operation == "fill"
        return _LETTERS.get(operation, "." if kind in PASSES else "|") if known else "|"

    return "".join(map(letter, queue))


def moves(s: StepFacts, at: int) -> bool:
    """Whether it is a copy within the GPU's memory."""
    return s.ops[at].kind == "copy" and s.ops[at].path == "DtoD"


@remembered(4)
def attention(s: StepFacts) -> tuple[AttentionParts, ...]:
    """Two products with a softmax, or its parts, between them, and nothing that is no pass over the
    scores. The loss at the end of a classifier has no second product before its backward pass, and
    a router sorts after its softmax. The products are of many matrices, one for each head, or the same
    sequence is there for another layer: once alone it may be chance."""
    found: list[AttentionParts] = []
    inside = {*PASSES, "softmax", "set", "index"}
    for queue in s.queues:
        before = -1
        for at, place in enumerate(queue):
            if s.classes[place] == "product":
                between = queue[before + 1 : at] if before >= 0 else ()
                if 0 < len(between) <= _BETWEEN and (soft := _softmax(s, between)):
                    bias = _bias(s, queue[:before], between)
                    parts = AttentionParts(queue[before], place, (*bias, *between), soft)
                    found.append(parts)
                before = at
            elif s.classes[place] not in inside and not moves(s, place):
                before = -1

    def shapes(each: AttentionParts) -> tuple[int, ...]:
        return tuple(s.ops[at].shape for at in (each.first, *each.between, each.last))

    times = Counter(map(shapes, found))
    return tuple(e for e in found if times[shapes(e)] > 1 or batched(s, e))


def batched(s: StepFacts, parts: AttentionParts) -> bool:
    """Whether both products are of many matrices: their operators or their grids say so."""

    def many(at: int) -> bool:
        grid = getattr(s.launches[at], "grid", None)
        return (grid and grid[2] > 1) or any(name.startswith(_BATCHED) for name in s.operators[at])

    return many(parts.first) and many(parts.last)


def _bias(s: StepFacts, queue: tuple[int, ...], between: tuple[int, ...]) -> tuple[int, ...]:
    """Passes over data as large as the scores right before the first product: a mask or bias that the
    product adds to. Its copy within memory ends at the product."""
    sized = [at for at in between if s.classes[at] in PASSES and s.launches[at]]
    found: list[int] = []
    for at in reversed(queue[-_BETWEEN:]):
        if s.classes[at] not in PASSES and not moves(s, at):
            break
        large = any(agree(s.launches[at], s.launches[other]) for other in sized)
        if large or (moves(s, at) and at == queue[-1]):
            found.append(at)
    alone = all(moves(s, at) for at in found)
    return () if alone else tuple(reversed(found))


def _softmax(s: StepFacts, between: tuple[int, ...]) -> tuple[int, ...]:
    whole = (at for at in between if s.classes[at] == "softmax")
    if found := tuple(at for at in whole if "LogSoft" not in s.kernel(at)):
        return found
    match = _COMPOSED["softmax"].search(letters(s, between))
    return between[match.start() : match.end()] if match else ()


@remembered(4)
def composed(s: StepFacts) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Unfused norms, GELUs, softmaxes, pairwise distances and losses, by name. No launch is in two."""
    found: dict[str, list[tuple[int, ...]]] = {}
    taken = {at for each in attention(s) for at in each.between}
    for queue in s.queues:
        text = letters(s, queue)
        matches = ((name, x) for name, form in _COMPOSED.items() for x in form.finditer(text))
        others = ((name, queue[match.start() : match.end()]) for name, match in matches)
        for name, places in (*_losses(s, queue, text), *_terms(s, queue, text), *others):
            fits = True
            if name in _COMPOSED and name.endswith(BACKWARD):
                ours = {at for each in found.get(name.removesuffix(BACKWARD), ()) for at in each}
                fits = any(agree(s.launches[at], s.launches[places[1]]) for at in ours)
            if places and fits and not taken.intersection(places):
                taken.update(places)
                found.setdefault(name, []).append(tuple(places))
    return {name: tuple(groups) for name, groups in found.items()}


def _terms(s: StepFacts, queue: tuple[int, ...], text: str) -> Iterator[tuple[str, list[int]]]:
    """Sums of at least COORDINATES terms each, all kept in memory: of squares of the differences of all pairs of
    points, or of products. An operand is repeated: PyTorch's kernel says so, or nothing else is as large. A
    tensor of more than 2^31 elements takes several launches."""
    passes = [at for at, x in enumerate(s.classes) if x in PASSES and x != "reduction"]
    both = zip(text, queue, strict=True)
    text = "".join("S" if x == "." and s.classes[at] == "reduction" else x for x, at in both)
    for match in re.finditer(r"(?<![mvapu])[apu]+(S+)(q?)", text):
        whole, ends = (s.launches[queue[i - 1]] for i in (match.start(1), match.end(1)))
        places = range(match.start(), match.end(1))
        large = [i for i in places if agree(whole, s.launches[queue[i]])]
        if not (whole and ends and large):
            continue
        run, shapes = queue[large[0] : match.end(2)], {s.ops[queue[i]].shape for i in large}
        others = (s.launches[at] for at in passes if s.ops[at].shape not in shapes)
        kinds = "".join(letter for letter, _ in groupby(text[large[0] : match.end(1)]))
        mean = text[match.start() - 1 : match.start()] == "S"  # of a variance
        repeats = kinds != "uS" and not mean and "nocast" in s.kernel(run[0])
        repeats = repeats or not any(agree(whole, x) for x in others)
        sums = (ends.blocks or 0) * (ends.block[1] if ends.block else 1)
        sums = elements(root) if match[2] and (root := s.launches[run[-1]]) else sums
        name = {"apS": PAIRS, "auS": PAIRS, "uS": PRODUCT}.get(kinds)
        if name and repeats and elements(whole) >= COORDINATES * sums:
            yield name, [*run]


def _losses(s: StepFacts, queue: tuple[int, ...], text: str) -> Iterator[tuple[str, list[int]]]:
    """Losses down to a single number, and their gradients up to the next product: reductions, and passes over as many numbers
    as the exponentials."""
    for match in _LOSS.finditer(text):
        whole = s.launches[queue[text.index("x", match.start())]]
        run = queue[match.start() : match.end()]
        sums = [at for at in run if s.classes[at] == "reduction"]
        large = [at for at in run if at in sums or agree(whole, s.launches[at])]
        one = next((at for at in sums if _single(s.launches[at])), None)
        if one is not None:
            yield "cross-entropy", [at for at in large if at <= one]
            yield "cross-entropy" + BACKWARD, [at for at in large if at > one]


@dataclass(frozen=True)
class Update:
    """An optimizer's launches: `each` holds those of one parameter, or all in one group where they
    are not told apart. `foreach` if they take lists of parameters."""

    each: tuple[tuple[int, ...], ...]
    foreach: bool
    name: str = ""
    written: bool = False  #: by several lines of the program, not by `optimizer.step()`

    @property
    def ops(self) -> tuple[int, ...]:
        return tuple(at for group in self.each for at in group)


#: What Adam and its like do for each parameter, by PyTorch and written by hand.
_ADAM: Final = (("addcdiv",), ("sqrt", "addcmul"))


@remembered(4)
def optimizer(s: StepFacts) -> Update | None:
    """The optimizer's update: launches in the range that PyTorch names "Optimizer.step", else those
    like Adam's: elementwise launches of which every few are those of _ADAM. None where there is neither."""
    kernels = ((at, chain) for at, chain in enumerate(s.operators) if s.launches[at])
    every = ((at, name) for at, chain in kernels for name in chain)
    named = [(at, name) for at, name in every if name.startswith("Optimizer.step")]
    if named:
        places = tuple(at for at, _ in named)
        label = named[0][1].partition("#")[2].removesuffix(".step")
        if any(s.operations[at] == "multi" or s.classes[at] == "optimizer" for at in places):
            return Update((places,), True, label)
        return Update(tuple(_parameters(s, places)), False, label)
    lists = [at for at in s.of_class("optimizer") if s.operations[at] == "multi"]
    if lists:
        return Update((tuple(lists),), True)
    for queue in s.queues:
        text = letters(s, queue)
        for match in re.finditer(r"[^|]+", text):
            run = queue[match.start() : match.end()]
            words = Counter(s.operations[at] for at in run)
            for marks in _ADAM:
                if min(words[mark] for mark in marks) >= 3:
                    groups = _parameters(s, run)
                    each = [x for x in groups if any(s.operations[at] == marks[0] for at in x)]
                    lines = {call.line for group in each for at in group if (call := s.call(at))}
                    return Update(tuple(each), False, written=len(lines - {-1}) > 1)
    return None


def _parameters(s: StepFacts, run: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Neighbours with the same grid: the launches of one parameter, or of several of one size. What
    computes on single numbers (the step's count) goes with what follows."""
    group: list[int] = []
    for at in run:
        launch = s.launches[at]
        before = next((s.launches[b] for b in reversed(group) if not _single(s.launches[b])), None)
        known = before and launch and before.blocks and launch.blocks
        if group and known and not _single(launch) and not agree(before, launch):
            yield tuple(group)
            group = []
        group.append(at)
    if group:
        yield tuple(group)


def gaps_within(s: StepFacts, *runs: Iterable[int]) -> list[int]:
    """The gaps before launches, after the first of each run, that go where one launch takes the place
    of a run: long ones where JAX itself takes as long."""
    rest = {at for run in runs for at in islice(run, 1, None)}
    causes = ("idle: host late", "idle: between", *["idle: host work"] * bool(dispatching(s)))
    return [at for at, gap in enumerate(s.gaps) if gap.before in rest and gap.key in causes]


def _single(launch: Launch | None) -> bool:
    return launch is None or launch.blocks == 1


def elements(launch: Launch) -> int:
    """Elements that an elementwise kernel of PyTorch takes at most; of others, its threads. 0 where
    grid or block are not recorded."""
    block, each = _per_block(launch.kernel)
    return (launch.blocks or 0) * (block or (launch.threads_per_block or 0) * each)


@lru_cache(maxsize=4096)
def _per_block(kernel: str) -> tuple[int, int]:
    """Elements of a block by its template (0 for none), else elements of a thread."""
    if template := _TEMPLATE.search(kernel):
        return int(template[1]) * int(template[2]), 0
    return 0, 4 if _FOUR.search(kernel) else 1


def agree(one: Launch | None, other: Launch | None) -> bool:
    """Whether two elementwise launches can be of as many elements: their sizes differ by a block at
    most, as the last block need not be full. Not known, they agree with none. PyTorch's vectorized kernels
    take eight elements per thread since 2.7."""
    if one is None or other is None or not (one.blocks and other.blocks):
        return False
    size, others = elements(one), elements(other)
    block = max(size // one.blocks, others // other.blocks)
    a, b = (2 if _FOUR.search(each.kernel) else 1 for each in (one, other))
    return abs(size - others) <= block or abs(size * a - others * b) <= 2 * block


# ---- loops over items ----------------------------------------------------------------------------


@remembered(4)
def items(s: StepFacts) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Runs of launches that are the same short sequence again and again, as a loop over items launches
    them: their places, and the length of the sequence. Fewer than MORE have other sizes each time; a native program's
    are steps in time, more often. What a kernel computes counts, not its name, since libraries choose
    kernels by size. Takes 0.1 s for 10 000 operations."""
    update = optimizer(s)
    taken = {*update.ops} if update else set[int]()
    found: list[tuple[tuple[int, ...], int]] = []
    for queue in s.queues:
        # a copy of a few bytes comes and goes with what the host has cached
        run = [at for at in queue if s.ops[at].kind == "kernel"]
        named = ((at, s.launches[at] if s.classes[at] == "other" else None) for at in run)
        kinds = [
            None if at in taken else (s.classes[at], s.operations[at] or (x.function if x else ""))
            for at, x in named
        ]
        for begin, end, period in repeats(kinds, SEQUENCE.value, ITEMS.value):
            if _of_items(s, places := tuple(run[begin:end]), period):
                found.append((places, period))
    return tuple(found)


def repeats(keys: Sequence[object], longest: float, least: float) -> Iterator[tuple[int, int, int]]:
    """Where up to `longest` keys follow each other again and again, `least` times or more: begin, end,
    and how many keys repeat. What has the key None repeats nothing."""
    at = 0
    while at < len(keys):
        end = at + 1
        for period in range(1, int(min(longest, (len(keys) - at) / least)) + 1):
            stop = at
            while stop < len(keys) and keys[stop] is not None:
                if stop >= at + period and keys[stop] != keys[stop - period]:
                    break
                stop += 1
            if stop - at >= least * period:
                yield at, stop, period
                end = stop
                break
        at = end


def small(s: StepFacts, part: float = 1.0) -> dict[int, Launch]:
    """Launches of fewer blocks than this part of the SMs, but for the optimizer's and collectives."""
    sms = s.device.sm_count if s.device else 0
    update = optimizer(s)
    taken = {*(update.ops if update else ()), *s.of_class("collective")}
    known = ((at, each) for at, each in enumerate(s.launches) if each and at not in taken)
    return {at: each for at, each in known if 0 < (each.blocks or 0) < part * sms}


def arguments(s: StepFacts, loops: Iterable[tuple[int, ...]]) -> frozenset[int]:
    """Copies of a few bytes between the launches of `loops` over items: numbers that passes get."""
    spans = [range(run[0], run[-1]) for run in loops]
    copies = (at for span in spans for at in span if s.ops[at].kind == "copy")
    return frozenset(at for at in copies if copied(s.ops[at]) == "launch")


def sizes(s: StepFacts, run: tuple[int, ...], period: int) -> int:
    """How many sizes the launches at one place of a pass of `period` have, at the one with most."""
    blocks = [getattr(s.launches[at], "blocks", None) for at in run]
    return max(len({*blocks[first::period]}) for first in range(period))


def _of_items(s: StepFacts, run: tuple[int, ...], period: int) -> bool:
    """Whether passes of `period` launches are those of items: short, and of other sizes each time, or
    so many that they are no layers. Launches of one item have sizes in common. Passes that read back,
    of one size, or READS times each, decide by what they read, and do not fit into one call."""
    if s.us(run) > BRIEF.value * len(run):
        return False
    blocks = [getattr(s.launches[at], "blocks", None) for at in run]
    passes = [blocks[at : at + period] for at in range(0, len(run) - period + 1, period)]
    common = sum(len({*each}) < period for each in passes)
    if period > 1 and common < len(passes) / 2:
        return False
    start, end = s.ops[run[0]].start, s.ops[run[-1]].end
    reads = sum(start <= call.start < end for call in waiting(s))
    if sizes(s, run, period) >= _SIZES:
        return reads < READS.value * len(passes)
    layers = any(s.classes[at] in ("product", "solver", "fused", "other") for at in run[:period])
    many = len(passes) >= (MORE.value if layers else UNLAYERED.value)
    alike = period <= ALIKE.value or not layers
    return many and alike and bool(s.framework) and reads < len(passes) / 2


def parameters(s: StepFacts) -> tuple[tuple[int, ...], ...]:
    """Loops that pass over a tensor after another by a few elementwise launches for each, as averages
    of parameters do, and updates as their formula has them."""

    def updates(places: tuple[int, ...]) -> bool:
        words, kinds = [s.operations[at] for at in places], {s.classes[at] for at in places}
        plain = kinds.issubset((*PASSES, "optimizer")) and set(words).issubset(_UPDATES)
        # crops that are resized one by one, or copies, are no arithmetic
        return plain and 2 * sum(word in _ARITHMETIC for word in words) >= len(words)

    return tuple(places for places, period in items(s) if period <= _UPDATE and updates(places))


# ---- what waits ----------------------------------------------------------------------------------


@remembered(4)
def waiting(s: StepFacts) -> tuple[Call, ...]:
    """Calls of the step that return when the GPU is done, by start: synchronisations, and copies that
    read a few bytes back."""
    reads = {op.call for op in s.ops if copied(op) == "read" and op.kind == "copy"}
    calls = {s.trace.calls[at] for at in reads if at >= 0}
    calls.update(call for call in s.calls if call.kind == "sync")
    return tuple(sorted(calls, key=lambda call: (call.start, call.end)))


@remembered(4)
def masks(s: StepFacts) -> tuple[int, ...]:
    """Launches that count and number the entries of boolean masks, around the copies that read how many
    there are: PyTorch and CuPy index by a mask so, and do without where the result has the mask's size."""
    found: list[int] = []

    def counts(at: int) -> bool:
        return _COUNTS.search(s.kernel(at)) is not None

    for queue in s.queues if s.framework in ("torch", "cupy") else ():
        for i in (i for i, at in enumerate(queue) if copied(s.ops[at]) == "read"):
            before = takewhile(counts, (queue[j] for j in range(i - 1, -1, -1)))
            after = takewhile(counts, (queue[j] for j in range(i + 1, len(queue))))
            around = [*before, *after]
            if any(_NUMBERS.search(s.kernel(at)) for at in around):
                found += around
    return tuple(sorted({*found}))


def cut(s: StepFacts, least: int = 2) -> bool:
    """Whether `least` waits or more cut the step into pieces, so that no CUDA graph holds it. A copy
    that reads back and the synchronisation after it are one wait."""
    syncs = sum(call.kind == "sync" for call in s.calls)
    waits = max(syncs, len(waiting(s)) - syncs)
    return waits >= max(least, CUT.value * s.step.launches)
