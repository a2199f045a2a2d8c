"""The answer on one screen as a value: what limits a launch, how much faster it could be, where, and
what to do next. And pictures with the figures of cards: each answers the question that is its title.

Times are in microseconds. Text is safe to show (base/core/safe.py `visible`); writers escape for their own
markup. verdict.py computes a card."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.core.units import LEAST_GAIN

State = Literal["slow", "roof", "unknown", "incomplete", "together"]
#: Longest kernel name shown.
NAME: Final = 60
#: Marks of the ABI in a name: Numba puts a hash of its compiler's flags there.
_ABI: Final = re.compile(r"\[abi:[^\[\]]*\]")
#: A name before marks of the ABI, and what tells that Numba wrote them.
_TAGGED: Final = re.compile(r"(?:^|[:\s])(\w+)\[abi:")
_NUMBA: Final = re.compile(r"\bcudapy::|\[abi:(?:[^\]]*,)?c[a-z]\d\d|, [ACF], (?:mutable|readonly)")
_BYTES: Final = re.compile(r"(?:_[c-f][0-9a-f](?:_[89ab][0-9a-f]){1,3})+")
#: Functions of which each instance does something else, which the name of a functor tells.
_GENERIC: Final = re.compile(
    r"(?:elementwise|reduce|apply|for|scan|index)\w*_kernel|_kernel_agent$|^DeviceFor"
)
_FUNCTOR: Final = re.compile(
    r"\bCUDAFunctor(?:On\w+?)?_(\w+)(?=<)|\b(\w+?)(?:_?[Ff]unctor(?=<)|Ops(?=<)|_?(?:cuda_)?kernel(?:_cuda|_impl)?(?=[<(]))"
)
#: A function around the lambda that a template runs, and which lambda of it.
_LAMBDA: Final = re.compile(
    r"[<>:\s](\w+)\([^()]*\)::[\[{]lambda(?:\([^()]*\) \(instance ([2-9]|\d\d+)\))?"
)
#: The length of a mangled name's next part, and of the first part of its first type.
_PART: Final = re.compile(r"(\d+)")
_INSIDE: Final = re.compile(r"IN(?:S\d*_)?(\d+)")
#: CUTLASS's functions that run the kernel that their template names.
_WRAPPERS: Final = ("Kernel", "Kernel2", "device_kernel")
_NO_FUNCTOR: Final = re.compile(
    r"(?:A?B?Unary|Binary|gpu|reduce|.*elementwise|multi_tensor_apply)$"
)
#: A cause's confidence in words.
CAUSE: Final = {"high": "clear cause", "medium": "likely cause", "low": "possible cause"}
#: What stands for a cause's id where a card names none.
_NO_CAUSE: Final = ("", "none", "ranks")
#: Two figures of one quantity that differ by less say the same.
CLOSE: Final = 0.05
#: The upper over the lower end of an interval, above which the figure within is no estimate: it may
#: be off by more than two either way. And the gain below which there is nothing to promise.
WIDE: Final = 4.0
_LITTLE: Final = 1.1
#: What follows a gain in parentheses: the interval, or that the range is one.
COVERAGE: Final = "80 % interval"
#: A gain or a headroom above this is no figure that anybody could plan with.
MOST: Final = 100.0
_OVER: Final = f"over {MOST:.0f}×"
_WORD: Final = re.compile(r"[A-Za-z0-9]+")
#: Between the names of a pair; and the least characters in which two names can be distinguished.
_ARROW: Final = " → "
_APART: Final = 8


@dataclass(frozen=True)
class UnitBar:
    """How busy a unit was, and how much of the launch's time its work needs at least.

    Both are 0-1. `busy` is measured (kernel/explain/sections.py); `share` is the time model's bound over
    the time that `busy` is of, None where one of them is not known."""

    resource: str
    label: str
    share: float | None
    limit: bool = False
    busy: float = 0.0

    @property
    def beyond(self) -> bool:
        """Whether the unit was busy for clearly longer than its work needs: writers show both."""
        return 0 < (self.share or 0.0) < self.busy - CLOSE


@dataclass(frozen=True)
class Wait:
    """A share (0-1) of a warp's time. The waits of a card add up to 1."""

    label: str
    share: float


@dataclass(frozen=True)
class CodeLine:
    """A line of code, or an instruction where lines are not known. `share` is its part (0-1) of
    `of`."""

    path: str
    line: int
    text: str
    """Source text; empty where the report does not hold it."""
    sass: str
    """The instruction, or the opcode of several, that the verdict names on the line, else that the
    whole share is of; empty where there is none beside a known line."""
    share: float
    of: str

    @property
    def place(self) -> str:
        """`matmul.py:14`; empty where the line is not known."""
        name = re.split(r"[/\\]", self.path)[-1]
        return f"{name}:{self.line}" if name else ""

    @property
    def short(self) -> str:
        """The line's place, else its instruction."""
        return self.place or self.sass

    @property
    def cost(self) -> str:
        """`31 % of the samples`; empty where its share is not known."""
        return f"{whole_percent(self.share)} of {self.of}" if self.of else ""


@dataclass(frozen=True)
class StripRow:
    """A stream, or a thread of the `host`, before a change and after it: of equal parts of the axis
    the kind of work that takes most of each, and how many eighths of it are busy."""

    name: str
    host: bool
    before: tuple[tuple[str, int], ...]
    after: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Strip:
    """A step in time before a change and after it, on one axis, which is as long as the longer one."""

    words: str
    """What it shows, in a sentence."""
    us: tuple[float, float]
    idle: tuple[float, float]
    """The part (0-1) of each in which the GPU is idle."""
    rows: tuple[StripRow, ...]
    kinds: Mapping[str, str]
    """The kinds with most time, with their words."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a report says of one launch, on one screen. Times are in microseconds."""

    kernel: str = ""
    time_us: float | None = None
    gpu: str = ""
    shape: str = ""
    """Grid, block, registers and occupancy."""
    state: State
    bottleneck: str
    """Id of the verdict's rule."""
    title: str
    gain: str
    """What removing the cause is worth, in words; never empty."""
    factor: float | None = None
    """The gain as a factor; None where the report gives no figure."""
    provided: str = ""
    """What has to hold for that gain: `TF32 is accurate enough`; empty where nothing has to."""
    confidence: str
    summary: str
    bars: tuple[UnitBar, ...] = ()
    """The busiest units, and DRAM where it was measured."""
    basis: str = ""
    """What the bars are of, in a sentence or two; empty where that is the launch's time."""
    waits: tuple[Wait, ...] = ()
    roof: str = ""
    """The resource of `headroom`, and what that assumes of it."""
    assumed: str = ""
    headroom: float | None = None
    """The most that fixing the cause can gain, where that roof is met."""
    where: tuple[CodeLine, ...] = ()
    """The line that costs most; then the one that the verdict points at, where it is another."""
    do: tuple[str, ...] = ()
    tested: str = ""
    """In how many test programs that advice helped; empty where too few are known."""
    expect: str = ""
    also: str = ""
    """The next cause and its gain: `Grid too small, about 2.2× faster`; empty where none is worth a word."""
    next: str = ""
    """The command to run next."""
    missing: str = ""
    """What the report lacks or contradicts, in one sentence; empty where nothing is."""
    pressure: str = ""
    """Whether experiments confirm the verdict; empty where none were made."""
    interval: tuple[float, float] | None = None
    """Factors between which the gain lay in 80% of the cases on record; None without a figure and at
    a roof."""
    file: str = ""
    """Its report, where several are shown."""
    called: str = ""
    """The line of the user's code that launched it, and the calls above; empty where the report has
    no call stack."""
    then: tuple[tuple[str, ...], ...] = ()
    """Of a program: the next causes, each with its saving and its line; last what all save."""
    of: str = "busy"
    """What the bars show, in a word or two."""
    untimed: bool = False
    """Whether it is of a launch whose report has no time."""
    strip: Strip | None = None
    """Of a program: its step, and the step with the first cause fixed."""

    @property
    def time(self) -> str:
        return units.total(self.time_us)

    @property
    def head(self) -> tuple[str, ...]:
        """Kernel, time, GPU, shape and file; what is not known is left out, but for a launch's time."""
        time = self.time if self.time_us is not None or self.untimed else ""
        return tuple(filter(None, (self.kernel, time, self.gpu, self.shape, self.file)))

    @property
    def gain_known(self) -> bool:
        """Whether what the fix saves is known: not of a cause without a figure, nor without a cause."""
        return self.state == "roof" or (self.state == "slow" and self.factor is not None)

    @property
    def point(self) -> str:
        """The gain in words without its interval, for narrow places."""
        return self.gain.replace(between(self.interval), "") if self.interval else self.gain

    @property
    def sureness(self) -> str:
        """How sure the cause is, not the gain: `clear cause`; of a roof `high confidence`, or what it
        assumes. Empty where no cause was looked for, or code shows none."""
        if self.state == "together":
            return ""
        if self.state == "roof" and self.confidence == "medium":
            memory = self.bottleneck.endswith("-bandwidth")
            return f"unless it {'moves data it does not need' if memory else 'does unneeded work'}"
        sure = CAUSE.get(self.confidence) if self.state == "slow" else None
        return sure or (self.confidence and f"{self.confidence} confidence")

    @property
    def busy(self) -> str:
        """The bars and the headroom in words; empty where there are none."""
        bars = (
            f"{bar.label} {whole_percent(bar.busy)}{' (the limit)' if bar.limit else ''}"
            for bar in self.bars
        )
        return "; ".join(filter(None, (", ".join(bars), self.room)))

    @property
    def remarks(self) -> tuple[tuple[str, str], ...]:
        """What comes after the advice, each with its label."""
        remarks = (
            ("expect", self.expect), ("also", self.also), ("probe", self.pressure), ("note", self.missing),
        )  # fmt: skip
        return tuple((label, text) for label, text in remarks if text)

    @property
    def explained(self) -> str:
        """The command that explains the verdict; empty where it names no cause."""
        if self.state in ("incomplete", "together") or self.bottleneck in _NO_CAUSE:
            return ""
        return f"ncu-toolkit explain {self.bottleneck}"

    @property
    def waiting(self) -> str:
        """The waits in words."""
        return ", ".join(f"{wait.label} {whole_percent(wait.share)}" for wait in self.waits)

    @property
    def room(self) -> str:
        """The headroom in words; empty where there is none to state."""
        if self.headroom is None or self.headroom > MOST:
            return ""
        limit = ("issue slots" if self.roof == "issue" else self.roof) + self.assumed
        if self.roof == "empty launch" and self.time_us:
            limit = f"starting and ending this grid (at least {units.duration(self.time_us / self.headroom)})"
        return f"best case: {factor_text(self.headroom)}, then limited by {limit}"


def kernel_name(name: str, longest: int = NAME) -> str:
    """A kernel's name, safe to show: short (`short_name`), and with an ellipsis for its middle where
    it has more than `longest` characters, since names of variants differ at their ends."""
    return in_the_middle(visible(in_the_middle(short_name(name), longest)), longest)


def kernel_label(function: str, kernel: str, longest: int = NAME) -> str:
    """A kernel's name as a user would say it, from its function and its whole demangled name: of a
    template that runs others, what this one runs (`tanh: vectorized_elementwise_kernel`,
    `cutlass_80_simt_sgemm_256x128_8x4_nn_align1`), and of Numba's the Python function."""
    if tagged := _TAGGED.search(kernel):
        return in_the_middle(visible(_python_name(tagged[1], kernel)), longest)
    name = visible(_ABI.sub("", function) or kernel, 400)
    if name.startswith("_ZN"):  # no demangler reads it
        name = _mangled(name)
    short = re.sub(r"\(anonymous namespace\)::|<.*>", "", name).removeprefix("void ")
    short = short.partition("(")[0].rpartition("::")[2] or name
    if short == "kernel" and (inside := re.search(r"\w+::kernel\b|(?<=\bkernel<)\w+(?=<)", kernel)):
        return in_the_middle(inside[0], longest)
    if short in _WRAPPERS and (inside := re.search(r"<(?:[\w:]*::)?(\w+)", kernel)):
        return in_the_middle(visible(inside[1]), longest)
    body = ""
    if _GENERIC.search(short):
        found = (match[1] or match[2] for match in _FUNCTOR.finditer(kernel))
        body = next((x for x in found if not short.startswith(x) and not _NO_FUNCTOR.match(x)), "")
    if not body and (around := _LAMBDA.search(kernel)):
        body = f"{around[1]} (lambda {around[2]})" if around[2] else around[1]
    short = f"{visible(body)}: {short}" if body else short
    return in_the_middle(short, longest)


def _python_name(name: str, kernel: str) -> str:
    """Numba writes what C++ has no letter for as its bytes (`_c3_b6`), and a number that tells
    specializations apart after a dollar (`_241`)."""
    if not _NUMBA.search(kernel):
        return name
    name = re.sub(r"_24\d+$", "", name)
    return _BYTES.sub(
        lambda each: bytes.fromhex(each[0].replace("_", "")).decode(errors="replace"), name
    )


def _mangled(name: str) -> str:
    """`Gemm` for `_ZN7cutlass6KernelINS_4conv4GemmI...`: a wrapper is called by what it runs."""
    at, last = len("_ZN"), ""
    while found := (_INSIDE if last in _WRAPPERS else _PART).match(name, at):
        at = found.end() + int(found[1])
        last = name[found.end() : at]
    return last or name


def in_the_middle(text: str, longest: int) -> str:
    """`text` with an ellipsis for its middle where it has more than `longest` characters."""
    tail = longest // 3
    return text if len(text) <= longest else f"{text[: longest - tail - 1]}…{text[-tail:]}"


def cut_apart(names: Sequence[str], longest: int) -> list[str]:
    """Names cut to `longest` characters so that different ones differ: in the middle, and where that
    makes two the same, around what tells them apart. Of `old → new` each is cut by itself."""
    shown = {name: _halves(name, longest) for name in names}
    for _ in range(3 * (longest >= _APART)):  # what tells all apart may not tell two of them apart
        same = [x for x in grouped(shown, shown.__getitem__).values() if len(x) > 1]
        shown |= {name: _around(name, group, longest) for group in same for name in group}
    return [shown[name] for name in names]


def _halves(name: str, longest: int) -> str:
    old, arrow, new = name.partition(_ARROW)
    if len(name) <= longest or not arrow or longest < _APART:
        return in_the_middle(name, longest)
    room = longest - len(_ARROW)
    least = min(room // 2, len(old), len(new))
    first = min(len(old), room - max(least, min(len(new), room // 2)))
    return in_the_middle(old, first) + _ARROW + in_the_middle(new, room - first)


def _around(name: str, alike: Sequence[str], longest: int) -> str:
    """A name's head, and the words of it that not all of those like it have."""
    common = set.intersection(*({*_WORD.findall(each)} for each in alike))
    head = longest // 3
    own = [m for m in _WORD.finditer(name) if m.end() > head and m[0] not in common]
    if not own:  # the others have more words
        return in_the_middle(name, longest)
    cut = "…".join([name[:head], *(name[max(m.start(), head) : m.end()] for m in own)])
    return cut if len(cut) <= longest else f"{cut[: longest - 1]}…"


def short_name(name: str) -> str:
    """A kernel's name without marks of the ABI (`[abi:v1]`), and with what is in angle brackets
    elided: `gemm<float, 4>` is `gemm<…>`."""
    name = _ABI.sub("", name) or name
    shown, depth = [], 0
    for character in name:
        if character == "<":
            if not depth:
                shown.append("<…")
            depth += 1
        if not depth:
            shown.append(character)
        if character == ">" and depth:
            depth -= 1
            if not depth:
                shown.append(">")
    return name if depth else "".join(shown)


def factor_text(factor: float) -> str:
    """Two digits, and three where two would round a gain away: `1.6×`, `1.04×`, `13×`, `over 100×`."""
    return _OVER if factor > MOST else units.ratio(factor, 3 if factor < 1.095 else 2)


def about(factor: float) -> str:
    """`about 1.6×`, `over 100×`."""
    return f"{'' if factor > MOST else 'about '}{factor_text(factor)}"


def gain_text(factor: float, interval: tuple[float, float] | None) -> str:
    """A gain as the reader may count on it: `about 1.6×` inside a narrow interval; the ends of a WIDE
    one or of one that the figure is an end of, `2.1–11×`, or `up to 20×` where it starts at next to
    nothing."""
    if interval is None or (
        interval[1] <= WIDE * interval[0] and factor_text(factor) not in map(factor_text, interval)
    ):
        return about(factor)
    if interval[0] >= _LITTLE or interval[1] > MOST:
        return range_text(interval)
    return f"up to {factor_text(interval[1])}"


def range_text(interval: tuple[float, float]) -> str:
    """`1.4–2.1×`; `1–1.3×` where there may be nothing to gain; `9.4 to over 100×`."""
    low, high = map(factor_text, interval)
    if interval[0] < LEAST_GAIN:
        low = "1"
    to = " to " if interval[1] > MOST else "–"
    return high if low == high else f"{low.removesuffix('×')}{to}{high}"


def between(interval: tuple[float, float]) -> str:
    """The interval as it follows a gain in words."""
    return f" ({COVERAGE} {range_text(interval)})"


def short_gain(shown: Card) -> str:
    """The gain in a table's cell: `1.6×`."""
    if shown.state == "roof":
        return "at its roof"
    if shown.factor is None:
        return "–"
    return gain_text(shown.factor, shown.interval).removeprefix("about ")


def whole_percent(share: float) -> str:
    """A share (0-1) as a whole number of percent: `66 %`."""
    if 0 < share < 0.005:
        return "< 1 %"
    return f"{round(share * 100)} %"


#: What kind of cause holds a kernel up: the one map of colours (card.css `.k-…`), with its words.
KINDS: Final[Mapping[str, str]] = {
    "memory": "memory traffic",
    "compute": "arithmetic and instructions",
    "latency": "waiting",
    "shape": "size and balance of the launch",
    "none": "at its roof, or cause not known",
}


@dataclass(frozen=True)
class Saving:
    """The launches of one kind: their time, and the part of it that the fix would save."""

    name: str
    href: str
    """The page of the launch that stands for them; empty where it has none."""
    kind: str
    """A key of KINDS."""
    us: float
    saved_us: float | None
    """None where it is not known."""
    cause: str
    gain: str
    """The card's gain, short: `3.1×`, `at its roof`, `–`."""
    words: str
    """All of it in a sentence, shown on hover."""


@dataclass(frozen=True)
class Savings:
    """Where time would be saved: a bar for each kind of launches, those that can save most first: all
    of their time where the gain is not known."""

    sentence: str
    bars: tuple[Saving, ...]
    rest: str
    """What the bars leave out, in words; empty for nothing."""

    @property
    def longest(self) -> float:
        return max(bar.us for bar in self.bars)

    @property
    def unknown(self) -> bool:
        """Whether a bar's gain is not known."""
        return any(bar.saved_us is None for bar in self.bars)

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of causes among the bars, with their words."""
        return {
            kind: words for kind, words in KINDS.items() if kind in {bar.kind for bar in self.bars}
        }


@dataclass(frozen=True)
class Reach:
    """How far a launch is from one roof. `intensity` is its work per byte that the level moved; None
    for a roof of work itself."""

    level: str
    """`dram`, `l2` or `l1`; `work` for a roof of work."""
    unit: str
    """As the unit's bar names it."""
    busy: float
    """0-1, as on the card."""
    limit: bool
    intensity: float | None = None
    moved: str = ""


@dataclass(frozen=True)
class RoofPicture:
    """A launch under its roofs: its work per second, and each roof at work over how busy its unit
    is, so that a point is as far below its roof as the card's bar is from full."""

    work: str
    """`FLOP` or `instructions`."""
    rate: float
    """Per second, under the profiler."""
    reaches: tuple[Reach, ...]

    @property
    def points(self) -> tuple[Reach, ...]:
        return tuple(reach for reach in self.reaches if reach.intensity)


@dataclass(frozen=True)
class Course:
    """Values in their order, for a line in a table's cell. The line's axis has `places` places and
    goes from `low` to `high`, or as far as its values do."""

    values: tuple[float, ...]
    words: str
    """Shown on hover, and read out."""
    low: float = math.inf
    high: float = -math.inf
    places: int = 0
    band: tuple[float, float] | None = None
    """Where the last value may lie by chance."""
    changes: tuple[int, ...] = ()
    """Values at which something changed."""


@dataclass(frozen=True)
class Segment:
    """A part of a bar, in percent of the axis: `sizes` has one for each of the chart's views."""

    kind: str
    """A key of the chart's kinds; empty for a gap before what follows."""
    sizes: tuple[float, ...]
    words: str = ""


@dataclass(frozen=True)
class BarRow:
    """A row of bars, or of points on an axis."""

    name: str
    figures: tuple[str, ...]
    """What follows the bar, under the chart's heads."""
    segments: tuple[Segment, ...] = ()
    points: tuple[Segment, ...] = ()
    """Each at the place of its size."""
    note: str = ""
    """What it is, in words, before the bar."""
    words: str = ""
    """Shown on hover."""
    href: str = ""
    minor: bool = False


@dataclass(frozen=True)
class BarKind:
    """What a colour of a chart means; `colour` is one of CSS, `pattern` one of the palette's."""

    words: str
    colour: str
    pattern: str = ""


@dataclass(frozen=True)
class BarMark:
    """A line across all bars, at a percentage of the axis."""

    at: float
    words: str
    dashed: bool = False


@dataclass(frozen=True)
class Tile:
    """A block of an icicle: a part of the whole, which has the parts of that below it. `start` and
    `part` are of the whole (0-1)."""

    name: str
    figure: str
    """Its time, after the name."""
    level: int
    """0 for the whole."""
    start: float
    part: float
    words: str
    """Shown on hover."""
    kind: str = ""
    """A key of `Icicle.kinds`; empty for what holds several kinds."""
    saved: tuple[float, ...] = ()
    """The part of it (0-1) that each of `Icicle.causes` would save; empty for none."""
    href: str = ""


@dataclass(frozen=True)
class Icicle:
    """Where a step's time goes: tiles by depth, each before those within it."""

    tiles: tuple[Tile, ...]
    kinds: Mapping[str, BarKind]
    causes: tuple[str, ...]
    """What would save time; the first is shown first."""

    @property
    def levels(self) -> int:
        return 1 + max(tile.level for tile in self.tiles)
