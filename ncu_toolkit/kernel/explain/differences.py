"""What changed between two launches: time, waiting, bytes, instructions, launch and source.

Two launches on different GPUs are compared in shares and ratios alone: the difference in time is not
split among causes, since part of it is the GPU's."""

import difflib
import itertools
import math
import operator
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document import card
from ncu_toolkit.base.document.tables import Cell, Spec, Table, Tone, table
from ncu_toolkit.base.document.views import BarChart, Listing
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis import compare, figures
from ncu_toolkit.kernel.diagnosis.compare import Change, TimeCause, changes
from ncu_toolkit.kernel.diagnosis.figures import reason_name
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.explain.verdict import CODE
from ncu_toolkit.kernel.ladder.catalogue import split

#: Where the definition of a kernel begins, in CUDA C++ and in Python.
_KERNEL: Final = re.compile(r"__global__|^\s*@|^def ")
#: Rows of a table. Of time, parts of less than a hundredth of the difference are summed.
_ROWS: Final = 8
#: Rows of each table in the short form.
SHORT: Final = 3
_PART: Final = 0.01
#: Stall reasons of less than this on both sides are left out.
_SHARE: Final = 0.01
#: Changes below this are within what two profiles of one kernel differ by.
_UNCHANGED: Final = 0.02
#: What a column of changes shows where nothing changed.
SAME: Final = "="
#: Counts from here on get a prefix.
_LARGE: Final = 1e6
#: Room on both ends of the axis of times, as a factor.
_MARGIN: Final = 1.1
_CONTEXT: Final = 3
_LONGEST_DIFF: Final = 600
_BYTES: Final = (
    "dram_bytes", "l2_bytes", "l1_global_bytes", "local_sectors", "shared_wavefronts",
    "ld_sectors_per_request", "st_sectors_per_request", "l1_hit_rate", "l2_hit_rate",
    "dram_utilization", "l2_utilization", "l1_data_pipe_active",
)  # fmt: skip
_LAUNCH: Final = (
    "registers_per_thread", "theoretical_occupancy", "achieved_occupancy", "issue_active",
    "fma_pipe_active", "tensor_pipe_active", "lanes_predicated_on",
)  # fmt: skip


@dataclass(frozen=True)
class Differences:
    """What changed, for an answer: sentences, tables, the difference of the source, and its time by
    cause as a picture."""

    points: tuple[str, ...]
    tables: tuple[Table, ...]
    code: tuple[Listing, ...]
    waterfall: BarChart | None = None


def headline(name: str, old: float | None, new: float | None) -> str:
    """The two times in one line: `matmul: 3.1× faster (51.9 ms → 16.7 ms)`."""
    if not old or not new:
        return f"{name}: a time is missing"
    if _alike(old, new):
        return f"{name}: no difference ({units.duration(new)})"
    return f"{name}: {units.faster(old / new)} ({units.duration(old)} → {units.duration(new)})"


def total(times_us: tuple[float, float], launches: tuple[int, int], how: str = "") -> str:
    """Two sums of times: `Total: 1.05 ms → 182 µs, 5.77× faster (7 launches → 1)`, or `how`."""
    old, new = times_us
    how = how or ("no difference" if _alike(old, new) else units.faster(old / new))
    counts = f"{units.counted(launches[0], 'launch')} → {launches[1]}"
    return f"Total: {units.duration(old)} → {units.duration(new)}, {how} ({counts})"


def _alike(old: float, new: float) -> bool:
    return units.ratio(max(old, new) / min(old, new)) == units.ratio(1.0)


@dataclass(frozen=True)
class PredictedGain:
    """What was predicted of fixing the old kernel's first cause alone, and what the new kernel
    achieved, as factors; `interval` is the prediction's."""

    bottleneck: str
    predicted: float
    interval: tuple[float, float] | None
    achieved: float

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds what was achieved; None without an interval. One that ends
        beyond MOST is open there, as it is shown."""
        return self.interval and self.interval[0] <= self.achieved <= self._end

    @property
    def side(self) -> str:
        """Where what was achieved lies: below, above or inside the interval; empty without one."""
        if self.interval is None:
            return ""
        if self.inside:
            return "inside"
        return "below" if self.achieved < self.interval[0] else "above"

    @property
    def _end(self) -> float:
        high = self.interval[1] if self.interval else math.inf
        return math.inf if high > card.MOST else high


def outcome(old: card.Card, new: card.Card) -> PredictedGain | None:
    """The prediction of the old card and what came of it; None without one, where it holds on a
    condition, and where the new kernel is not faster by more than NOISE, or ran on another GPU."""
    if not (old.factor and old.state == "slow" and old.time_us and new.time_us) or old.provided:
        return None
    achieved = old.time_us / new.time_us
    if old.gpu != new.gpu or achieved < 1 + NOISE:
        return None
    return PredictedGain(old.bottleneck, old.factor, old.interval, achieved)


def against_prediction(found: PredictedGain, old: card.Card, new: card.Card) -> tuple[str, ...]:
    """A prediction compared with what was achieved, then the limit that the new kernel has."""
    predicted = f"{old.title}, predicted: {old.gain}. Achieved: {units.ratio(found.achieved)}"
    if found.side:
        predicted += f", which lies {found.side} that interval"
    if new.state == "roof":
        left = f"The new kernel is {new.title[:1].lower()}{new.title[1:]}, {new.gain}."
    elif new.state != "slow":
        return (f"{predicted}.",)
    elif new.bottleneck == old.bottleneck:
        left = f"The same limit remains: {new.gain}."
    else:
        left = f"Another limit remains: {new.title}, {new.gain}."
    return f"{predicted}.", left


def between(before: Profile, after: Profile, most: int | None = None) -> Differences:
    """What changed from one launch to another. `most` asks for the short form: this many rows of each
    table, those that moved most, and no listing."""
    same_gpu = before.device.name == after.device.name
    points = [visible(text) for text in compare.comparability(before, after)]
    # All instructions, then the opcodes whose counts moved most.
    opcodes = filter(_moved, changes(before, after, compare.OPCODES))
    instructions = changes(before, after, ("instructions",))
    instructions += sorted(opcodes, key=lambda each: -abs(each.moved))[:_ROWS]
    moved = changes(before, after, _BYTES)
    if most:
        moved += [*instructions[:1], *changes(before, after, _LAUNCH)]
        moved = sorted(filter(_moved, moved), key=_by_ratio)[:most]
    causes = _causes(before, after, most or _ROWS) if same_gpu else []
    time = _time(before, after, causes) if causes else None
    found = [
        time,
        _waiting(before, after, most),
        _figures("Figures that moved most" if most else "Memory", moved),
        *([] if most else [_figures("Instructions", instructions), _launch(before, after)]),
        _lines(before, after, most),
    ]
    difference = _difference(before, after)
    if difference is None and not (before.sources and after.sources):
        points.append(
            "The source cannot be compared, because a report has none (collect it with --import-source yes)."
        )
    elif difference is None and before.launch.function == after.launch.function:
        points.append(f"The source of {_label(after)} is the same.")
    elif difference is None:
        points.append("Both kernels come from the same lines of source.")
    return Differences(
        tuple(points),
        tuple(each for each in found if each is not None and each.rows),
        (difference,) if difference and not most else (),
        _waterfall(before, after, causes, time) if time else None,
    )


def _causes(before: Profile, after: Profile, most: int) -> list[TimeCause]:
    """The causes of the difference in time as factors that multiply to it, those beyond `most` as
    one, and what none explains; empty without a difference. Parts in milliseconds could exceed the
    time itself where two causes offset each other."""
    old, new = before.duration_us, after.duration_us
    if not old or not new or abs(new / old - 1) < _UNCHANGED:
        return []
    *causes, residual = compare.attribute(before, after)
    named = [each for each in causes if abs(each.microseconds) >= _PART * abs(new - old)][:most]
    rest = [each for each in causes if each not in named]
    product = math.prod(each.factor for each in rest)
    smaller = [TimeCause("rest", "smaller causes", 0.0, factor=product)] if rest else []
    return [*named, *smaller, residual]


def _time(before: Profile, after: Profile, causes: Sequence[TimeCause]) -> Table:
    columns: tuple[Spec[TimeCause], ...] = (
        Spec("cause", cell=_cause, numeric=False, shortest=16),
        Spec("time", cell=_factor),
        Spec("old", cell=lambda each: _quantity(each.before, each.unit)),
        Spec("new", cell=lambda each: _quantity(each.after, each.unit)),
    )
    note = "Each cause multiplies (×) or divides (÷) the time; all of them together give the whole. Cycles are per instruction of a warp."
    old, new = before.duration_us or 0.0, after.duration_us or 0.0
    title = f"Time: {units.duration(old)} → {units.duration(new)} ({_times(new / old)}), by cause"
    return replace(table(title, columns, causes, note), key="time-by-cause")


def _waterfall(
    before: Profile, after: Profile, causes: Sequence[TimeCause], listed: Table
) -> BarChart:
    """The old time, what each cause makes of it, and the new time, on a logarithmic axis: there a
    factor has one length wherever it starts."""
    old, new = before.duration_us or 0.0, after.duration_us or 0.0
    times = [*itertools.accumulate((each.factor for each in causes), operator.mul, initial=old)]
    low, high = min(times) / _MARGIN, max(times) * _MARGIN

    def at(us: float) -> float:
        return 100 * math.log(us / low) / math.log(high / low)

    rows = [
        (name := _cause(each), _times(each.factor), start, end,
         f"{name}: {units.duration(start)} {_times(each.factor)} = {units.duration(end)}")
        for each, start, end in zip(causes, times, times[1:], strict=False)
    ]  # fmt: skip
    summary = (
        f"From {units.duration(old)} to {units.duration(new)}. Each bar starts at the time that the "
        "causes above it leave; the axis is logarithmic."
    )
    heads = ("Cause", "", "", "Time, factor")
    return waterfall((old, new), rows, at, summary, heads, listed)


def waterfall(
    times_us: tuple[float, float],
    changes: Iterable[tuple[str, str, float, float, str]],
    at: Callable[[float], float],
    summary: str,
    heads: tuple[str, ...],
    listed: Table,
) -> BarChart:
    """The old time, what changes make of it one after another, and the new time.

    Args:
        changes: of each its name, its figure, the times (µs) before and after it, and words on hover.
        at: the place of a time on the axis, in percent.
    """

    def whole(name: str, us: float) -> card.BarRow:
        return card.BarRow(name, (units.duration(us),), points=(card.Segment("time", (at(us),)),))

    old, new = times_us
    rows = [whole("old", old)]
    for name, figure, start, end, words in changes:
        left, right = sorted((at(start), at(end)))
        bar = card.Segment("slower" if end > start else "faster", (max(right - left, 0.3),))
        rows.append(card.BarRow(name, (figure,), (card.Segment("", (left,)), bar), words=words))
    rows.append(whole("new", new))
    kinds = {
        "time": card.BarKind("time", "var(--library)"),
        "faster": card.BarKind("makes it faster", "var(--ours)"),
        "slower": card.BarKind("makes it slower", "var(--worse)"),
    }
    return BarChart(
        "waterfall",
        "What made the difference?",
        "",
        summary,
        kinds,
        heads,
        tuple(rows),
        listed,
        (card.BarMark(at(old), "", dashed=True),),
    )


def _cause(cause: TimeCause) -> str:
    reason = cause.name.removeprefix("stall_")
    return cause.label if reason == cause.name else f"waiting: {reason_name(reason)}"


def _times(factor: float) -> str:
    """What a time is multiplied by: `× 1.24`, `÷ 74.5`; SAME where it rounds to 1."""
    if _alike(factor, 1.0):
        return SAME
    number = units.ratio(max(factor, 1 / factor)).removesuffix("×")
    return f"{'×' if factor > 1 else '÷'} {number}"


def _factor(cause: TimeCause) -> Cell:
    unknown = cause.name in ("residual", "rest")
    tone: Tone = "muted" if unknown else "bad" if cause.microseconds > 0 else "good"
    return Cell(_times(cause.factor), tone=tone)


def _waiting(before: Profile, after: Profile, most: int | None = None) -> Table | None:
    """Shares of a warp's time by what it waits for; with `most` those that changed most."""
    sides = figures.stall_shares(before), figures.stall_shares(after)
    if not all(sides):
        return None

    def larger(each: Change) -> float:
        return max(each.before or 0.0, each.after or 0.0)

    found = [x for x in compare.by_reason(*sides, "fraction") if larger(x) >= _SHARE]
    found.sort(key=lambda x: (-abs(x.moved) if most else -larger(x), x.name))
    return _figures(
        "Stalls: shares of a warp's time",
        found[: most or _ROWS],
        Spec("warp state", cell=lambda each: each.label, numeric=False),
        lambda value, _: card.whole_percent(value or 0.0),
    )


def _points(old: float, new: float, whole: bool) -> str:
    """How far a share (0-1) moved, in points of a percent; or by how many `whole` ones shown."""
    moved = round(100 * new) - round(100 * old) if whole else round(100 * (new - old))
    return f"{moved:+d} point{'' if abs(moved) == 1 else 's'}" if moved else SAME


def _moved(change: Change) -> bool:
    return change.ratio is None or abs(change.ratio - 1) >= _UNCHANGED


def _by_ratio(change: Change) -> float:
    """Sorts by how much a figure changed, the most first."""
    if not change.before or not change.after:
        return -math.inf
    return -abs(math.log(abs(change.after / change.before)))


def _quantity(value: float | None, unit: str) -> str:
    """A figure, with a prefix where it is a large count; empty where there is none."""
    if value is None:
        return ""
    if unit == "cycles/inst":
        return units.quantity(value, "cycles")
    if unit == "count" and abs(value) >= _LARGE:
        return units.si(value, "").rstrip()
    return units.quantity(value, unit)


_LABEL: Final[Spec[Change]] = Spec(
    "figure", cell=lambda each: each.label, numeric=False, shortest=16
)


def _figures(
    title: str,
    found: Iterable[Change],
    first: Spec[Change] = _LABEL,
    shown: Callable[[float | None, str], str] = _quantity,
) -> Table:
    """What either launch has, zero on both sides left out."""
    columns: tuple[Spec[Change], ...] = (
        first,
        Spec("old", cell=lambda each: shown(each.before, each.unit)),
        Spec("new", cell=lambda each: shown(each.after, each.unit)),
        Spec("change", cell=lambda each: _change(each, whole=shown is not _quantity), gives_way=1),
    )
    return table(title, columns, [each for each in found if each.before or each.after])


def _change(change: Change, whole: bool) -> str:
    """New over old; of shares their difference."""
    if change.before is None or change.after is None:
        return units.NOT_AVAILABLE
    if change.unit == "fraction":
        return _points(change.before, change.after, whole)
    if change.before == change.after:
        return SAME
    if not change.before or not change.after:
        return "new" if change.after else "gone"
    shown = units.ratio(change.after / change.before)
    return SAME if shown == units.ratio(1.0) else shown


def _launch(before: Profile, after: Profile) -> Table:
    """What the two launches asked of the GPU, and how busy that kept it; only what differs."""
    sides = before.launch, after.launch
    rows = [
        ("grid", *(units.extents(each.grid) for each in sides)),
        ("block", *(units.extents(each.block) for each in sides)),
        ("shared memory", *("" if each.shared is None else units.si(each.shared, "B") for each in sides)),
    ]  # fmt: skip
    rows += [
        (each.label, units.quantity(each.before, each.unit), units.quantity(each.after, each.unit))
        for each in changes(before, after, _LAUNCH)
        if each.before != each.after and _moved(each)
    ]
    columns: tuple[Spec[tuple[str, ...]], ...] = (
        Spec("launch", cell=lambda row: row[0], numeric=False, shortest=16),
        Spec("old", cell=lambda row: row[1]),
        Spec("new", cell=lambda row: row[2]),
    )
    return table("Launch", columns, [row for row in rows if row[1] != row[2]])


@dataclass
class _Hot:
    """A source line on both sides: samples as shares (0-1), and where it is."""

    text: str
    shares: list[float]
    places: list[str]


def _lines(before: Profile, after: Profile, most: int | None = None) -> Table | None:
    """The lines with most samples on either side, matched by their text, since lines move; with
    `most` those whose share changed most."""
    found: dict[str, _Hot] = {}
    for side, profile in enumerate((before, after)):
        total = sum(row.sample_count for row in profile.instructions)
        if total < figures.MINIMUM_SAMPLES:
            return None
        texts = {path: text.splitlines() for path, text in profile.sources.items()}
        for row in profile.instructions:
            held = texts.get(row.file, [])
            if not row.sample_count or not 0 < row.line <= len(held):
                continue
            hot = found.setdefault(
                held[row.line - 1].strip(), _Hot(held[row.line - 1], [0.0, 0.0], ["", ""])
            )
            hot.shares[side] += row.sample_count / total
            hot.places[side] = str(row.line)

    def weight(hot: _Hot) -> float:
        return max(hot.shares) - min(hot.shares) if most else max(hot.shares)

    hottest = sorted(found.values(), key=lambda hot: -weight(hot))[: most or _ROWS]
    if most:
        hottest = [hot for hot in hottest if weight(hot) >= _SHARE]
    columns: tuple[Spec[_Hot], ...] = (
        Spec("source line", cell=lambda hot: visible(hot.text.strip(), CODE, keep="\t").replace("\t", " "), numeric=False, code=True),
        Spec("line in old", cell=lambda hot: hot.places[0] or "–", gives_way=1),
        Spec("old", cell=lambda hot: card.whole_percent(hot.shares[0])),
        Spec("line in new", cell=lambda hot: hot.places[1] or "–", gives_way=2),
        Spec("new", cell=lambda hot: card.whole_percent(hot.shares[1])),
    )  # fmt: skip
    return table("Source: shares of the samples by line", columns, hottest)


def _difference(before: Profile, after: Profile) -> Listing | None:
    """The difference of the file that holds most samples; None where the two are equal or a report
    holds no source."""
    sides = (before, after)
    names = [_main_file(profile) for profile in sides]
    if not all(names):
        return None
    old, new = (
        split(profile.sources[name])[1].splitlines()
        for profile, name in zip(sides, names, strict=True)
    )
    lines = diff(old, new)
    last = [visible(name.replace("\\", "/").rsplit("/", 1)[-1]) for name in names]
    title = last[0] if last[0] == last[1] else " → ".join(last)
    if not lines and before.launch.function != after.launch.function:
        own = [_own_lines(*each) for each in zip(sides, names, strict=True)]
        lines = diff(*own) if all(own) else ()
        title = f"{' → '.join(map(_label, sides))} in {title}"
    return Listing(f"Source: the difference of {title}", lines) if lines else None


def _label(profile: Profile) -> str:
    return card.kernel_label(profile.launch.function, profile.launch.kernel)


def _own_lines(profile: Profile, name: str) -> list[str]:
    """A kernel's own lines of a file that holds several: from the line that names it to its last one
    with an instruction. Nothing where it is not found."""
    text = profile.sources[name].splitlines()
    word = re.escape(_short(profile.launch.function))
    at = [x.line for x in profile.instructions if x.file == name and 0 < x.line <= len(text)]
    named = [i for i, line in enumerate(text, 1) if re.search(rf"\b{word}\s*\(", line)]
    first = max((i for i in named if at and i <= statistics.median_low(at)), default=0)
    last = max((line for line in at if line >= first), default=0)
    others = [i for i, line in enumerate(text, 1) if i > first and _KERNEL.search(line)]
    end = min([last, *(i - 1 for i in others)])
    return text[first - 1 : end] if first else []


def _short(function: str) -> str:
    """A function's name as its definition has it: without template arguments and namespaces."""
    return re.sub(r"<.*", "", function).rsplit("::", 1)[-1]


def _main_file(profile: Profile) -> str:
    """The file with most samples, or most instructions, whose text the report holds."""
    weights: dict[str, int] = {}
    for row in profile.instructions:
        if row.file in profile.sources:
            weights[row.file] = weights.get(row.file, 0) + row.sample_count * 1000 + 1
    return max(weights, key=lambda name: weights[name], default="")


def diff(old: Sequence[str], new: Sequence[str]) -> tuple[tuple[str, str, str], ...]:
    """The difference of two texts as lines of a listing, with a few lines of context."""
    found = [
        (line[:1].strip(), "", visible(line if line[:1] == "@" else line[1:], 400, keep="\t").expandtabs(4))
        for line in difflib.unified_diff(old, new, n=_CONTEXT, lineterm="")
        if not line.startswith(("---", "+++"))
    ]  # fmt: skip
    if len(found) > _LONGEST_DIFF:
        left = len(found) - _LONGEST_DIFF
        found = [*found[:_LONGEST_DIFF], ("@", "", f"… {left} more lines")]
    return tuple(found)
