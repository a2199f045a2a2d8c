"""Facts × launches: facts are found by name, and launches are the columns of a table of them. A name
is one of the registry, a derived figure, `stall_share:x` or `kind_share:x` (`figures.describe`).

How busy each unit of the GPU was (`uses`), as the report's counters have it: the one figure of it
that the card, the memory picture, the tables and JSON show, with the least that the unit's work
needs. Units in an SM are counted over the cycles in which SMs had work, as Nsight Compute shows them,
and what lies behind the SMs over the whole launch.

And what pictures of launches show: the card's figures, laid out for one question each.

Imported by the rule inside Nsight Compute, so it may import nothing that needs a compiled module
(tests/report/test_ncu_rule.py)."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Final, TypeVar

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import LEAST_GAIN
from ncu_toolkit.base.document.card import (
    CLOSE,
    NAME,
    Card,
    Course,
    Reach,
    RoofPicture,
    Saving,
    Savings,
    gain_text,
    kernel_name,
    short_gain,
    whole_percent,
)
from ncu_toolkit.base.document.tables import Cell, Spec, Table, missing, number, table, text
from ncu_toolkit.base.document.views import Kind, RoofPlot, apart, no_gain
from ncu_toolkit.base.model import Finding, Profile, Series, finite
from ncu_toolkit.kernel.diagnosis import figures, time_model
from ncu_toolkit.kernel.diagnosis.rules import bottleneck_ids, load_rules, title
from ncu_toolkit.kernel.diagnosis.time_model import LAUNCH, MEMORY, ON_CHIP, RESOURCES, SLICE

#: Unit -> its name on a bar: resources of the time model, and what only a counter shows.
LABELS: Final[Mapping[str, str]] = {
    "issue": "issue", "fma": "FP32", "fmaheavy": "FMA heavy", "alu": "ALU", "fp64": "FP64",
    "fp16": "FP16", "xu": "XU", "tensor": "tensor", "uniform": "uniform", "lsu": "LSU",
    "l1_tag": "L1 tag stage", "l1_data": "L1 data stage", "l1_writeback": "L1 writeback", "l1": "L1/TEX throughput",
    "blocks": "block launch", "constant": "constant cache", "fill": "L2-to-SM link", "l2": "L2",
    "atomic": "L2 atomics", "dram": "DRAM",
    "texture": "TEX", "adu": "ADU", "mio": "MIO", "memory": "memory", "sm": "SM",
    LAUNCH: "empty launch",
}  # fmt: skip
#: Units that are no resource of the time model, with their counters: all of them in SMs.
_COUNTED: Final[Mapping[str, str]] = {
    "texture": "tex_pipe_active", "adu": "adu_pipe_active", "mio": "mio_active",
}  # fmt: skip
#: Roll-ups of Nsight Compute: the busiest of a group, whether SMs' active cycles are counted, and
#: the group as far as we know its parts. A roll-up is shown where no part explains it.
_ROLL_UPS: Final[Mapping[str, tuple[str, bool, tuple[str, ...]]]] = {
    "l1": ("l1_throughput", True, (*ON_CHIP, "texture")),
    "memory": ("memory_throughput", False, (*MEMORY, "l1", "texture", "atomic", "constant")),
    "sm": ("sm_throughput", False, tuple(LABELS)),
}
#: Shares that differ by less are one figure, rounded.
ROUNDING: Final = 0.005
#: A counter above its peak by more than this was counted in a launch too short for it: values of
#: one counter come from several cycles of several units, so up to 2 % more is rounding.
_OVER: Final = 1.02


@dataclass(frozen=True)
class Use:
    """How busy a unit was (0-1). `least` is the part of the launch's time that its work needs at the
    unit's peak, as the time model has it; None where that has none."""

    busy: float
    least: float | None = None
    of_all: float = 1.0
    """The part (0-1) of the launch's time that `busy` is of: that in which SMs had work, for units in
    them."""


def resource_name(resource: str) -> str:
    """A unit as its bar names it: `L1 writeback`, `block launch`."""
    return LABELS.get(resource, visible(resource.replace("_", " "), NAME))


def uses(profile: Profile, bounds: Mapping[str, float]) -> dict[str, Use]:
    """How busy each unit was; `bounds` are those of the launch's diagnosis, in microseconds. A unit
    that the report does not count is left out."""
    model = time_model.build(profile)
    found = {}
    duration = profile.duration_us or 0.0
    for name in RESOURCES:
        bound = finite(bounds.get(name))
        least = min(1.0, bound / duration) if bound is not None and duration > 0 else None
        measured = None
        if name in model.loads:
            measured = min(1.0, model.counted(name))
        elif least is not None:
            measured = least  # measured by pressure, without counters
        if measured is not None:
            found[name] = Use(measured, None if least is None else min(measured, least))
    for name, counter in _COUNTED.items():
        if (value := profile.value(counter)) is not None and value <= _OVER:
            found[name] = Use(min(1.0, value))
    for name, (counter, _, parts) in _ROLL_UPS.items():
        value = profile.value(counter)
        known = max((found[part].busy for part in parts if part in found), default=0.0)
        if value is not None and value > _OVER:
            found.pop(name, None)
        elif value is not None and value > known + CLOSE:
            found[name] = Use(min(1.0, value), found[name].least if name in found else None)
    return {
        name: replace(use, of_all=model.active) if _in_sm(name) else use
        for name, use in found.items()
    }


def basis(profile: Profile, shown: Mapping[str, Use]) -> str:
    """What the busy figures of `shown` are of, where that is not the whole of the launch's time;
    empty where it is."""
    parts = []
    active = time_model.build(profile).active
    if active < 1 - CLOSE and any(_in_sm(name) for name in shown):
        parts.append(
            f"Units in SMs: % of the cycles with a block on the SM ({whole_percent(active)} of all SM cycles)."
        )
    busiest = max(shown, key=lambda name: shown[name].busy, default="")
    if busiest == "blocks" and shown[busiest].busy:
        most = (figures.value(profile, "block_rate") or 0.0) / shown[busiest].busy
        parts.append(f"Block launch: 100 % is {units.significant(most)} blocks started per cycle.")
    slice_ = profile.value(SLICE) or 0.0
    if "atomic" in shown and 0 < slice_ <= shown["atomic"].busy + ROUNDING:
        parts.append("L2 atomics: of the busiest slice of L2.")
    for name, (counter, _, _) in _ROLL_UPS.items():
        value = profile.value(counter)
        if value is not None and value > _OVER:
            parts.append(
                f"Nsight's {LABELS[name]} figure, {units.percent(value)}, is left out: the launch is too short for it."
            )
    return " ".join(parts)


def _in_sm(name: str) -> bool:
    if name in RESOURCES:
        return RESOURCES[name][1]
    return name in _COUNTED or (name in _ROLL_UPS and _ROLL_UPS[name][1])


Item = TypeVar("Item")


def spec(
    label: str, cell: Callable[[Item], Cell | str], title: str = "", *, words: bool = False
) -> Spec[Item]:
    """A column of numbers, or of `words`."""
    return Spec(label.lower(), label, title, numeric=not words, cell=cell)


def fact_cell(
    profile: Profile | None, name: str, *, bar: bool = False, meaning: bool = True, absent: str = ""
) -> Cell:
    """A fact of a launch, with its `meaning` or the reason for its absence on hover; `absent` is
    stated where there is no launch. A `bar` is drawn for fractions."""
    if profile is None:
        return missing(absent)
    found = figures.fact(profile, name)
    drawn = found.value if bar and found.unit == "fraction" else None
    title = found.meaning if meaning else ""
    return number(found.value, found.unit, found.why, title=title, bar=drawn)


def fact_label(name: str) -> Cell:
    """The label of a fact, with its meaning on hover."""
    _, shown, meaning = figures.describe(name)
    return text(shown, meaning)


def by_fact(
    key: str,
    caption: str,
    names: Iterable[str],
    launches: Mapping[str, Profile],
    *,
    unchanged: float | None = None,
) -> Table:
    """A row a fact, a column a launch by its heading; of two launches also new over old.

    `unchanged` leaves out facts that a launch lacks, and those that differ by no more than this part
    of the larger value."""
    kept = [n for n in names if unchanged is None or moved([*launches.values()], n, unchanged)]
    specs = [spec("Figure", fact_label, words=True)]
    specs += [
        spec(head, partial(fact_cell, profile, meaning=False)) for head, profile in launches.items()
    ]
    if len(launches) == 2:
        old, new = launches.values()
        specs.append(spec("Change", lambda n: change(figures.value(old, n), figures.value(new, n))))
    return table(caption, specs, kept, key=key)


def moved(launches: list[Profile], name: str, unchanged: float) -> bool:
    """Whether all launches have a fact, and differ in it by more than a part of its largest value."""
    values = [value for each in launches if (value := figures.value(each, name)) is not None]
    return len(values) == len(launches) and max(values) - min(values) > unchanged * max(
        map(abs, values)
    )


def change(old: float | None, new: float | None) -> Cell:
    """New over old."""
    if old is None or new is None:
        return missing("one of the two does not have it")
    if old == new:
        return Cell("=", 1.0, "unchanged", tone="muted")
    if not old:
        return Cell("new", None, "none before")
    return number(new / old, "ratio") if new else Cell("gone", 0.0, "none now")


#: Bars of a picture of kernels: a table below holds all.
BARS: Final = 12


def kind_of_cause(shown: Card) -> str:
    """The kind of a card's cause, a key of `document.card.KINDS`."""
    rule = load_rules().get(shown.bottleneck) if shown.state == "slow" else None
    if rule is None:
        return "none"
    return "shape" if rule.FROM_SHAPE else rule.LIMIT


def saved_us(shown: Card, total_us: float | None) -> float | None:
    """What the fix on a card would save of the time of launches like it: 0 at a roof, and where the
    gain needs a condition; None where time or gain are not known."""
    if total_us is None or not shown.gain_known:
        return None
    if shown.state != "slow" or shown.factor is None or shown.provided:
        return 0.0
    return total_us * (1 - 1 / shown.factor)


def savings(kinds: Sequence[Kind], pages: Sequence[str]) -> Savings | None:
    """Time by kind of launches, each with its page: those that save most first, where a gain that is
    not known may be all of the time. None for fewer than two."""
    names = [
        f"{kernel_name(kind.card.kernel)} {grid}".strip()
        for kind, grid in zip(kinds, apart(kinds), strict=True)
    ]
    timed = [each for each in zip(kinds, names, pages, strict=True) if each[0].total_us]
    total = sum(kind.total_us or 0.0 for kind, *_ in timed)
    if len(timed) < 2:
        return None
    bars = []
    for kind, name, page in timed:
        card, us = kind.card, kind.total_us or 0.0
        saved = saved_us(card, us)
        words = f"{name}: {units.duration(us)}, {units.percent(us / total, 2)} of the time. {card.title}, {card.gain}"
        words += f": {units.duration(saved)} to save." if saved else "."
        bars.append(
            Saving(name, page, kind_of_cause(card), us, saved, card.title, short_gain(card), words)
        )
    bars.sort(key=lambda bar: (-(bar.us if bar.saved_us is None else bar.saved_us), -bar.us))
    left = bars[BARS:]
    rest = ""
    if left:
        more = f"{units.counted(len(left), 'more kernel')}: {units.duration(sum(bar.us for bar in left))}"
        rest = f"{more}, {units.duration(_saved(left))} to save."
    unknown = sum(bar.us for bar in bars if bar.saved_us is None)
    return Savings(_of_total(_saved(bars), total, unknown), tuple(bars[:BARS]), rest)


def _saved(bars: Iterable[Saving]) -> float:
    """What is known to be saved."""
    return sum(bar.saved_us for bar in bars if bar.saved_us is not None)


def _of_total(saved: float, total: float, unknown: float) -> str:
    """`55.7 of 77.1 ms to save inside the kernels, by fixing the first cause of each.`, and for how much of it the
    gain is not known."""
    if not saved:
        return f"{units.duration(total)}, and no gain is known."
    more = f" {no_gain(unknown, total)}" if unknown else ""
    return f"{units.part(saved, total)} to save inside the kernels, by fixing the first cause of each.{more}"


#: Levels of memory: figures of the bytes that they move, with their factor, and the units that move
#: them.
_LEVELS: Final = (
    ("l1", (("l1_global_bytes", 1.0), ("shared_wavefronts", 128.0)), (*ON_CHIP, "l1")),
    ("l2", (("l2_bytes", 1.0),), ("l2", "fill")),
    ("dram", (("dram_bytes", 1.0),), ("dram",)),
)
#: Units whose work is floating-point operations, with the figure that counts them.
_FLOPS: Final = {
    "tensor": "flops_tensor", "fma": "flops_fp32", "fp64": "flops_fp64", "fp16": "flops_fp16",
}  # fmt: skip
#: Other units that instructions pass.
_OTHERS: Final = ("issue", "alu", "fmaheavy", "xu", "uniform")
#: A launch computes in floating point where such a unit is busy for this part of the time that the
#: busiest other unit is.
_COMPUTES: Final = 0.3


def roof_picture(
    profile: Profile, shown: Card, used: Mapping[str, Use], floating: bool | None = None
) -> RoofPicture | None:
    """None where the report has no time, no work or no traffic of any level. Work is floating-point
    operations where `floating` says so; where it is None, by what the launch computes."""
    seconds = (profile.duration_us or 0.0) * 1e-6
    limits = {bar.resource for bar in shown.bars if bar.limit}

    def busiest(names: Iterable[str]) -> str:
        known = [name for name in names if name in used and used[name].busy > 0]
        return max(known, key=lambda name: (name in limits, used[name].busy), default="")

    pipe, other = busiest(_FLOPS), busiest(_OTHERS)
    flops = sum(figures.value(profile, name) or 0.0 for name in _FLOPS.values())
    if floating is None:
        floating = not other or (bool(pipe) and used[pipe].busy >= _COMPUTES * used[other].busy)
    computes = bool(flops and pipe) and floating
    work, unit = (
        (flops, "FLOP") if computes else (profile.value("instructions") or 0.0, "instructions")
    )
    tops = [name for name in ([pipe, other] if computes else [other]) if name]
    if computes and other and used[other].busy <= used[pipe].busy:
        tops = [pipe]
    reaches = [Reach("work", resource_name(n), used[n].busy, n in limits) for n in tops]
    for level, parts, units_of in _LEVELS:
        moved = sum((figures.value(profile, name) or 0.0) * factor for name, factor in parts)
        name = busiest(units_of)
        if moved and name:
            unit_of = resource_name(name), used[name].busy, name in limits
            reaches.append(Reach(level, *unit_of, work / moved, units.si(moved, "B")))
    if not seconds or not work or not any(reach.intensity for reach in reaches):
        return None
    return RoofPicture(unit, work / seconds, tuple(reaches))


def roof_plot(*sides: tuple[Profile, Card, Mapping[str, float]]) -> RoofPlot | None:
    """A launch under its roofs, or an old one and a new one: each with its card and the bounds of its
    diagnosis. None where one has no such picture, or their work is not of one kind."""

    def drawn(floating: bool | None) -> list[RoofPicture]:
        made = (roof_picture(p, card, uses(p, bounds), floating) for p, card, bounds in sides)
        return [picture for picture in made if picture is not None]

    pictures = drawn(None)
    if len({picture.work for picture in pictures}) > 1:
        pictures = drawn(False)
    if len(pictures) < len(sides) or len({picture.work for picture in pictures}) > 1:
        return None
    two = len(pictures) > 1
    rows = [(at, reach) for at, each in enumerate(pictures) for reach in each.reaches]
    specs: tuple[Spec[tuple[int, Reach]], ...] = (
        Spec("side", "Launch", numeric=False, cell=lambda row: ("old", "new")[row[0]]),
        Spec("roof", "Roof", numeric=False, cell=lambda row: row[1].unit),
        Spec("busy", "Busy", cell=lambda row: whole_percent(row[1].busy)),
        Spec("moved", "Moved", cell=lambda row: row[1].moved),
        Spec(
            "intensity",
            f"{pictures[0].work} per byte",
            cell=lambda row: units.significant(row[1].intensity) if row[1].intensity else "",
        ),
    )
    rates = (units.si(picture.rate, picture.work + "/s") for picture in pictures)
    listed = table("", specs[not two :], rows, f"{' → '.join(rates)} under ncu.", "roofs")
    title = f"How close {'are both to the' if two else 'is it to its'} roofs?"
    sentence = (
        "Hollow: the old launch. The roofs are the new one's."
        if two
        else "Thick: what limits it. Dotted: how far a roof is."
    )
    return RoofPlot(title, sentence, tuple(pictures), listed)


#: Points of a load over time: each is the mean of its part of the time.
_POINTS: Final = 240


#: A tail shorter than this part of the time is not mentioned.
_TAIL: Final = 0.02


def _tail(busiest: Series) -> str:
    """How long the end of the launch has the unit that is busiest on average below half of that
    mean; empty for a short end."""
    values = busiest.values
    half = sum(values) / len(values) / 2
    end = len(values) - max(at for at, value in enumerate(values) if value >= half) - 1
    if end < _TAIL * len(values):
        return ""
    us = units.duration(end * busiest.step_us)
    return f" Tail: {busiest.label} below half of the mean for the last {us} ({units.percent(end / len(values), 2)})."


def over_time(profile: Profile) -> Table | None:
    """The loads of units over the launch's time (PM sampling), on one axis of time; None where the
    report has none with two samples."""
    sampled = [series for series in profile.timeline if len(series.values) > 1]
    if not sampled:
        return None
    longest = max(len(series.values) * series.step_us for series in sampled)
    places = min(_POINTS, max(len(series.values) for series in sampled))

    def course(series: Series) -> Cell:
        values = series.values
        count = min(len(values), max(2, round(places * len(values) * series.step_us / longest)))
        bounds = [len(values) * at // count for at in range(count + 1)]
        means = tuple(sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(bounds))
        mean, most = (units.percent(x, 2) for x in (sum(values) / len(values), max(means)))
        words = f"{series.label}: {mean} on average, up to {most}"
        return Cell("", course=Course(means, words, 0.0, 1.0, places))

    columns: tuple[Spec[Series], ...] = (
        Spec("unit", "Unit", numeric=False, cell=lambda each: each.label),
        Spec("course", f"0 to {units.duration(longest)}", "0 to 100 % of its peak", numeric=False, cell=course),
        Spec("mean", "Mean", cell=lambda each: units.percent(sum(each.values) / len(each.values), 2)),
        Spec("most", "Max", cell=lambda each: units.percent(max(each.values), 2)),
        Spec("sampled", "Sampled", "From when it is first busy", cell=lambda each: units.duration(len(each.values) * each.step_us)),
        Spec("step", "Sample every", cell=lambda each: units.duration(each.step_us)),
    )  # fmt: skip
    note = "0 to 100 % of each unit's peak. A line begins when its unit is first busy; units may be sampled in different passes."
    note += _tail(max(sampled, key=lambda each: sum(each.values) / len(each.values)))
    few = [each.label for each in profile.timeline if each not in sampled]
    note += f" Too few samples: {units.listed(few)}." if few else ""
    return table("When is it busy?", columns, sampled, note, "over-time")


def verdict_cell(shown: Card) -> Cell:
    """The verdict's title, with its sentence on hover; its value is the bottleneck's id."""
    return Cell(
        shown.title, shown.bottleneck, shown.summary, tone="good" if shown.state == "roof" else ""
    )


def cause_cell(bottleneck: str) -> Cell:
    """A bottleneck's title; its value is its id."""
    return Cell(cause(bottleneck), visible(bottleneck))


@lru_cache(maxsize=256)
def cause(bottleneck: str) -> str:
    """A bottleneck's title, or its id where this version has no such rule."""
    return title(bottleneck) if bottleneck in bottleneck_ids() else visible(bottleneck)


def gain_cell(finding: Finding) -> Cell:
    """The predicted speedup of a finding, or why there is none: 1.00 would say that nothing can be
    gained."""
    speedup = finding.speedup or 1.0
    if finding.good and speedup < LEAST_GAIN:
        return missing("at its roof, nothing to remove", "at its roof")
    if speedup < LEAST_GAIN:
        because = f" {visible(finding.arithmetic[-1])}" if finding.arithmetic else ""
        return missing(f"the report does not show the possible gain.{because}")
    of = "gap to its roof" if finding.good else "estimate, if only this is fixed"
    if finding.provided:
        of = f"estimate, if {finding.provided}"
    return Cell(gain_text(speedup, finding.interval).removeprefix("about "), speedup, of)
