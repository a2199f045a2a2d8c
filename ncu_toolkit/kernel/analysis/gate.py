"""Old against new: launches paired by kernel, differences with their noise, and expressions that
say which difference is a regression.

A gate is an expression over figures by name: `time>5%` is true when the median time grew by more
than 5%, and that much is certain: it exceeds the noise of the repeats, and a permutation test over
them finds the two sides different. `registers_per_thread>128` and `time>5us` are true of the new
value itself. Any registry or derived figure can be named."""

import difflib
import math
import random
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Final

from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.core.units import shortlist
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.metrics.registry import REGISTRY
from ncu_toolkit.base.model import Profile, Timing
from ncu_toolkit.kernel.analysis.analyze import Analysis, typical, with_tables
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.ladder import expressions

TIME: Final = "time"
#: The time of a program's step, which kernels have not.
STEP: Final = "step"
_PERCENT: Final = re.compile(r"([A-Za-z_]\w*)\s*(<=|>=|<|>)\s*([-+]?\d+(?:\.\d+)?)\s*%")
#: A figure compared with a number that is no percentage, from both sides, with a unit of time or without.
_NUMBER: Final = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_UNIT: Final = r"(?:\s*((?!(?:and|or|if|else|not|in|is)\b)[A-Za-zµ]+)\b)?"
_ORDER: Final = "<=|>=|<|>|==|!="
_PLAIN: Final = re.compile(rf"\b([A-Za-z_]\w*)\s*({_ORDER})\s*({_NUMBER}){_UNIT}(?!\s*%)(?![\w.])")
_TURNED: Final = re.compile(
    rf"(?<![\w.'])({_NUMBER}){_UNIT}\s*({_ORDER})\s*([A-Za-z_]\w*)\b(?!\s*\()"
)
_FUNCTIONS: Final = ("change", "min", "max", "abs")
#: Microseconds of each unit that a gate may name.
_TIMES: Final = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}
#: Standard deviation of a normal distribution by its median absolute deviation, and of a median by
#: that of the values.
_BY_DEVIATION: Final = 1.4826
_OF_MEDIAN: Final = 1.2533
#: A difference of medians counts from this many standard errors on: about 95%.
_CERTAIN: Final = 2.0
#: A difference counts where chance alone makes one as large less often than this.
SIGNIFICANT: Final = 0.01
#: Repeats of both sides up to which the permutation test counts all divisions; of more it draws a
#: sample, as many as resolve a p of 0.01 to about a third of it.
_COUNTED: Final = 80
_SAMPLED: Final = 1000
#: Part (0-1) by which two runs of a program differ anyway: clocks and allocations differ from start to
#: start by 1 to 2 % of a step; and where there are too few steps for a test.
RUNS_DIFFER: Final = 0.02
FEW_DIFFER: Final = 0.05
#: What compilers put at the end of a kernel's name: a number, a hash, Triton's marks (0d1d2).
_GENERATED: Final = re.compile(r"(?:[_.](?:\d+|(?=[a-f]*\d)[0-9a-f]{8,}|0(?:[cde]+\d*)+))+$")
#: Names from this on are alike, as those of two versions of a kernel; and kernels of a side that are
#: looked at for such names.
_ALIKE: Final = 0.5
_LIKENED: Final = 40
#: Kernels that an error names.
_NAMES_SHOWN: Final = 8
#: Part of a side's time in kernels without a partner from which no single pair tells the change.
SUBSTANTIAL: Final = 0.1


@dataclass(frozen=True)
class Side:
    """The repeats of one kernel: profiled launches, or unprofiled times in microseconds."""

    name: str
    device: str
    times_us: tuple[float, ...]
    profiles: tuple[Profile, ...] = ()
    bottleneck: str = ""
    status: str = "complete"
    card: Card | None = None
    """Of the typical launch (`analyze.typical`)."""
    tables: tuple[bytes, ...] = ()
    """What each profile lacks where they were read with `Options.packed`."""
    place: tuple[int, ...] = ()
    """Of the first launch in its report."""
    what: str = "kernel"
    """What was timed, in a word."""
    shown: str = ""
    """The kernel as its card names it, where that is not `name`."""
    traced: bool = False
    """Whether the times are of the steps of one run, in order (`step_difference`)."""

    @property
    def label(self) -> str:
        """As tables name it."""
        return self.shown or self.name

    @cached_property
    def contradictions(self) -> tuple[str, ...]:
        """The first pair of figures that do not fit together in each repeat that has one."""
        found = (next(iter(profile.contradictions), "") for profile in self.profiles)
        return tuple(dict.fromkeys(filter(None, found)))

    @cached_property
    def representative(self) -> Profile | None:
        """The whole profile of the typical launch."""
        times = [profile.duration_us for profile in self.profiles]
        return self._whole(typical(times)) if times else None

    def _whole(self, at: int) -> Profile:
        profile = self.profiles[at]
        return with_tables(profile, self.tables[at]) if self.tables else profile

    def values(self, figure: str) -> tuple[float, ...]:
        """A figure's value in each repeat that has it."""
        if figure == STEP and self.what == "kernel":
            return ()
        if figure in (TIME, STEP, "duration"):
            return self.times_us
        if figure in REGISTRY:
            found = [profile.value(figure) for profile in self.profiles]
        else:
            found = [figures.value(self._whole(at), figure) for at in range(len(self.profiles))]
        return tuple(value for value in found if value is not None and math.isfinite(value))


#: What launches are paired by, and sides by that.
Key = tuple[object, ...]
Sides = dict[Key, Side]


@dataclass(frozen=True)
class Difference:
    """A metric's old and new median, and the noise that the repeats show."""

    figure: str
    old: float
    new: float
    noise: float
    p: float | None = None
    """How often chance alone makes the two sides differ as much (`chance`); None where the
    difference does not exceed its noise, or there are too few repeats to tell."""

    @property
    def unit(self) -> str:
        """The figure's unit, of the registry's."""
        return "us" if self.figure in (TIME, STEP) else figures.describe(self.figure)[0]

    @property
    def change(self) -> float | None:
        """(new - old) / old; None where old is 0."""
        return (self.new - self.old) / self.old if self.old else None

    @property
    def certain_change(self) -> float:
        """The change less its noise, not beyond 0: what is certain. Infinite where something came
        out of nothing; 0 where the permutation test calls it chance."""
        if self.p is not None and self.p >= SIGNIFICANT:
            return 0.0
        moved = self.new - self.old
        certain = math.copysign(max(0.0, abs(moved) - self.noise), moved)
        if self.old:
            return certain / abs(self.old)
        return math.copysign(math.inf, certain) if certain else 0.0


@dataclass(frozen=True)
class ComparedPair:
    """A kernel on both sides. `problem` says why the two cannot be compared; empty where they
    can. `gpus` names two different GPUs: then shares and ratios are compared, and no gate holds."""

    name: str
    old: Side
    new: Side
    problem: str = ""
    gpus: str = ""

    @property
    def time(self) -> Difference | None:
        """The difference of the times; None where the two cannot be compared."""
        return None if self.problem else self.difference(TIME)

    @property
    def against_itself(self) -> float | None:
        """How far the old side's odd repeats lie from its even ones, as a fraction (0-1) of the
        median: an A/A comparison. None with fewer than four repeats."""
        times = self.old.times_us
        if self.problem or len(times) < 4 or not (middle := statistics.median(times)):
            return None
        return abs(statistics.median(times[::2]) - statistics.median(times[1::2])) / middle

    @property
    def profiled(self) -> bool:
        """Whether both sides have a profile and its card."""
        return all(side.profiles and side.card for side in (self.old, self.new))

    def difference(self, figure: str) -> Difference | None:
        """A figure's difference; None where a side has no value of it."""
        old, new = self.old.values(figure), self.new.values(figure)
        if not old or not new:
            return None
        traced = self.old.traced and self.new.traced
        return (step_difference if traced else difference)(figure, old, new)


@dataclass(frozen=True)
class Failure:
    """A gate that a pair fails, with the differences it names, where both sides have the figure."""

    gate: str
    pair: ComparedPair
    differences: tuple[Difference, ...]


@dataclass(frozen=True)
class Total:
    """All launches of both reports, each as (old, new): the sum of their times in microseconds, how
    many there are, and the part of that time (0-1) in kernels without a partner."""

    times_us: tuple[float, float]
    launches: tuple[int, int]
    alone: tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """Everything compared. `alone_old` and `alone_new` are kernels without a partner. `undecided`
    are gates that could not be evaluated, each with the reason; `filtered`: by --kernel."""

    pairs: tuple[ComparedPair, ...]
    alone_old: tuple[Side, ...]
    alone_new: tuple[Side, ...]
    failures: tuple[Failure, ...] = ()
    undecided: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    remarks: tuple[str, ...] = field(default=())
    unmatched: str = ""
    """What a filter of kernels did not find, where nothing is left to pair because of that."""
    filtered: bool = False

    @property
    def what(self) -> str:
        """What is compared, in a word: `kernel`, or `step` of programs."""
        sides = (*(pair.old for pair in self.pairs), *self.alone_old, *self.alone_new)
        return next((side.what for side in sides), "kernel")

    @cached_property
    def likely(self) -> tuple[str, str] | None:
        """The two kernels without a partner that are most alike in name, if any are."""
        found = [
            (_likeness(old.name, new.name), old.name, new.name)
            for old in self.alone_old[:_LIKENED]
            for new in self.alone_new[:_LIKENED]
        ]
        best = max(found, default=(0.0, "", ""))
        alone = len(self.alone_old) == len(self.alone_new) == 1
        return best[1:] if best[0] >= _ALIKE or alone else None

    @cached_property
    def total(self) -> Total | None:
        """Both reports as a whole. None where their sum says nothing: a side has no kernel, a launch no
        time, GPUs differ, or times are unprofiled or of a ladder's rungs, which do the same work."""
        alone = (self.alone_old, self.alone_new)
        sides = [
            (*(getattr(pair, side) for pair in self.pairs), *more)
            for side, more in zip(("old", "new"), alone, strict=True)
        ]
        both = (*sides[0], *sides[1])
        if not all(sides) or len({side.device for side in both}) > 1:
            return None
        if not all(map(_summable, both)):
            return None
        old, new = (sum(sum(side.times_us) for side in held) for held in sides)
        if not (old and new):
            return None
        counts = [sum(len(side.times_us) for side in held) for held in sides]
        apart = [sum(sum(side.times_us) for side in held) for held in alone]
        return Total((old, new), (counts[0], counts[1]), (apart[0] / old, apart[1] / new))

    @property
    def unpaired(self) -> bool:
        """Whether so much of a side's time has no partner that only the total tells the change."""
        return self.total is not None and max(self.total.alone) >= SUBSTANTIAL

    @cached_property
    def ordered(self) -> tuple[ComparedPair, ...]:
        """The pairs, the one whose time moved most first; those that cannot be compared last."""

        def moved(pair: ComparedPair) -> float:
            return abs(pair.time.new - pair.time.old) if pair.time else -1.0

        return tuple(sorted(self.pairs, key=lambda pair: -moved(pair)))

    @property
    def compared(self) -> int:
        """Pairs that could be compared."""
        return sum(not pair.problem for pair in self.pairs)

    @property
    def comparable(self) -> bool:
        """Whether there was anything to compare, and nothing prevented it."""
        return (
            bool(self.pairs) and not self.undecided and not any(pair.problem for pair in self.pairs)
        )


def _likeness(one: str, other: str) -> float:
    """How alike two names are, from 0 to 1: by their letters, or by their words (`x_bad`, `x_good`)."""
    words = [set(re.findall(r"[A-Za-z][a-z]*|\d+", name)) for name in (one, other)]
    count = len(words[0]) + len(words[1])
    shared = 2 * len(words[0] & words[1]) / count if count else 0.0
    return max(shared, difflib.SequenceMatcher(None, one, other).ratio())


def _summable(side: Side) -> bool:
    """Whether a kernel's times add to a program's."""
    return (
        side.status == "complete"
        and bool(side.profiles)
        and len(side.times_us) == len(side.profiles)
        and all(profile.rung is None for profile in side.profiles)
    )


def difference(figure: str, old: tuple[float, ...], new: tuple[float, ...]) -> Difference:
    """The difference of two sides' repeats, none of them empty."""
    errors = [_standard_error(values) for values in (old, new)]
    # one launch has no spread; use the other side's
    other = max((error for error in errors if error is not None), default=0.0)
    noise = _CERTAIN * math.hypot(*(other if error is None else error for error in errors))
    before, after = statistics.median(old), statistics.median(new)
    beyond = abs(after - before) > noise
    return Difference(figure, before, after, noise, chance(old, new) if beyond else None)


def step_difference(figure: str, old: tuple[float, ...], new: tuple[float, ...]) -> Difference:
    """The difference of two runs' steps, in the order in which they ran: of means, since time is lost
    in steps that are not typical. Steps of a run depend on each other: the noise is no less than what
    the halves of a run, or its odd and even steps, differ by, nor than what runs differ by anyway."""
    before, after, p = statistics.fmean(old), statistics.fmean(new), chance(old, new)
    noise = _CERTAIN * math.hypot(*map(_error_of_mean, (old, new)))
    noise = max(noise, RUNS_DIFFER * before)
    if p is None:  # too few for a test: they must lie apart
        noise = max(noise, FEW_DIFFER * before, *(max(each) - min(each) for each in (old, new)))
    return Difference(figure, before, after, noise, p if abs(after - before) > noise else None)


def _error_of_mean(values: Sequence[float]) -> float:
    """Of steps in order; 0 for a single one, where `FEW_DIFFER` is the noise."""
    if len(values) < 2:
        return 0.0
    half, mean = len(values) // 2, statistics.fmean
    apart = (
        abs(mean(values[:half]) - mean(values[half:])),
        abs(mean(values[::2]) - mean(values[1::2])),
    )
    return max(statistics.stdev(values) / math.sqrt(len(values)), *(each / 2 for each in apart))


def _standard_error(values: Sequence[float]) -> float | None:
    """Of the median; None for a single value."""
    if len(values) < 2:
        return None
    middle = statistics.median(values)
    deviation = _BY_DEVIATION * statistics.median([abs(value - middle) for value in values])
    if len(values) == 2:
        deviation = abs(values[0] - values[1]) / math.sqrt(2)
    return _OF_MEDIAN * deviation / math.sqrt(len(values))


def _extreme_divisions(ranks: Sequence[int], size: int, middle: int, least: int) -> int:
    """How many choices of `size` ranks have a sum at least `least` away from `middle`.

    `counts[k]` holds how many choices of k ranks have each sum: packed into one number, `width` bytes
    a sum, so that a shift adds a rank to all of them.
    """
    width = math.comb(len(ranks), len(ranks) // 2).bit_length() // 8 + 1
    counts = [1] + [0] * size
    for rank in ranks:
        for chosen in range(size, 0, -1):
            counts[chosen] += counts[chosen - 1] << (8 * width * rank)
    packed = counts[size].to_bytes(width * (sum(ranks) + 1), "little")
    return sum(
        int.from_bytes(packed[at * width : (at + 1) * width], "little")
        for at in range(sum(ranks) + 1)
        if abs(at - middle) >= least
    )


@lru_cache(maxsize=4096)
def chance(old: tuple[float, ...], new: tuple[float, ...]) -> float | None:
    """The p-value of a two-sided permutation test: the part of all divisions of the repeats into two
    sides of these sizes in which the sum of one side's ranks is as far from the middle as here. Ranks
    keep a single slow repeat from deciding it. None where even the most extreme division is no rarer
    than SIGNIFICANT, as with four repeats per side.

    Source: Fisher, The Design of Experiments (1935), section 21; on ranks it is Wilcoxon's rank-sum
    test (1945). A sample of divisions counts the observed one too (Phipson and Smyth 2010), so that
    p is never 0.
    """
    pooled = sorted((*old, *new))
    divisions = math.comb(len(pooled), len(old))
    if 2 / divisions >= SIGNIFICANT:
        return None
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for at, value in enumerate(pooled, 1):
        first.setdefault(value, at)
        last[value] = at
    # twice the rank, and thus whole: equal values share the mean of their ranks
    ranks = [first[value] + last[value] for value in pooled]
    middle = len(old) * (len(pooled) + 1)
    least = abs(sum(first[value] + last[value] for value in old) - middle)
    if len(pooled) <= _COUNTED:
        return _extreme_divisions(ranks, len(old), middle, least) / divisions
    draw = random.Random(0)
    extreme = sum(abs(sum(draw.sample(ranks, len(old))) - middle) >= least for _ in range(_SAMPLED))
    return (extreme + 1) / (_SAMPLED + 1)


def sides_of(analysis: Analysis) -> Sides:
    """Groups of launches by kernel, grid and block, with what was kept of them (`Options`)."""
    sides: Sides = {}
    for group in analysis.groups:
        launch = group.typical
        key: Key = (launch.kernel, launch.grid, launch.block)
        while key in sides:  # the same kernel in another file, or incomplete beside complete
            key = (*key, "")
        sides[key] = Side(
            launch.function,
            launch.gpu,
            # as they ran: `against_itself` takes every second one
            group.durations_us,
            tuple(each.profile for each in group.launches if each.profile is not None),
            launch.diagnosis.primary.bottleneck,
            launch.status,
            launch.card,
            tuple(each.tables for each in group.launches if each.tables),
            min(each.place for each in group.launches),
            shown=launch.card.kernel,
        )
    return sides


def sides_of_timings(timings: Sequence[Timing], device: str) -> Sides:
    """Unprofiled timings by rung, size, type and parameters."""
    return {
        (t.family, t.rung, t.size, t.dtype, t.cache, tuple(sorted(t.parameters.items()))): Side(
            f"{t.family}/{t.rung} at {t.size} {t.dtype}, {t.cache} L2", device, t.times_us
        )
        for t in timings
    }


def pair_up(
    old: Sides, new: Sides, renamed: bool = False, named: Sequence[tuple[str, str]] = ()
) -> tuple[list[ComparedPair], list[Side], list[Side]]:
    """Pairs of launches, and the kernels that are on one side only.

    First what `named` pairs, as (old, new); then the same kernel, grid and block; then the same
    name, by grid or block, else in the order of the reports where as many are left on both sides;
    then names that differ in a hash or a number at the end, where there is one of each. `renamed`
    pairs two kernels of different names where they are all that the two sides hold.

    Raises:
        InputProblem: a side has no kernel of a name in `named`.
    """
    mine, theirs = dict(old), dict(new)
    pairs: list[ComparedPair] = []

    def join(ones: Sequence[Key], others: Sequence[Key]) -> None:
        for one, other in zip(ones, others, strict=True):
            pairs.append(_pair(mine.pop(one), theirs.pop(other)))

    for one, other in named:
        found = [_named(*each) for each in ((one, mine, "old"), (other, theirs, "new"))]
        join(*_matched(found[0], found[1], mine, theirs))
    both = [key for key in mine if key in theirs]
    join(both, both)
    for label in (str, _stem):
        others = _by_name(theirs, label)
        for name, here in _by_name(mine, label).items():
            there = others.get(name, [])
            if label is str or len(here) == len(there) == 1:
                join(*_matched(here, there, mine, theirs))
    if renamed and not pairs and len(mine) == len(theirs) == 1:
        join([*mine], [*theirs])
    return pairs, [*mine.values()], [*theirs.values()]


def _by_name(sides: Sides, label: Callable[[str], str]) -> dict[str, list[Key]]:
    return grouped(sides, lambda key: label(sides[key].name))


def _named(name: str, sides: Sides, which: str) -> list[Key]:
    """The keys of a kernel, by its name with or without arguments."""
    found = [key for key, side in sides.items() if name in (side.name, key[0])]
    if not found:
        there = list(dict.fromkeys(visible(side.name, 60) for side in sides.values()))
        raise InputProblem(
            f"there is no kernel '{visible(name, 200)}' left to pair in the {which} report",
            f"It has {shortlist(there, _NAMES_SHOWN) or 'no kernel left'}",
        )
    return found


def _matched(
    here: list[Key], there: list[Key], old: Sides, new: Sides
) -> tuple[list[Key], list[Key]]:
    """Launches of a kernel in pairs: of the same grid and block, of one of them where that leaves no
    doubt, then in the order of the reports where as many are left."""
    found: tuple[list[Key], list[Key]] = ([], [])
    here, there = list(here), list(there)
    for part in (slice(1, 3), slice(1, 2), slice(2, 3)):
        for one in tuple(here):
            same = [[key for key in keys if key[part] == one[part]] for keys in (here, there)]
            if one[part] and len(same[0]) == len(same[1]) == 1:
                for keys, key, taken in zip((here, there), (one, same[1][0]), found, strict=True):
                    keys.remove(key)
                    taken.append(key)
    if len(here) == len(there):
        found[0].extend(sorted(here, key=lambda key: old[key].place))
        found[1].extend(sorted(there, key=lambda key: new[key].place))
    return found


def _stem(name: str) -> str:
    """A name without the hash, number or marks that Triton, XLA and compilers add."""
    return _GENERATED.sub("", name) or name


def _pair(old: Side, new: Side) -> ComparedPair:
    same = old.device == new.device
    gpus = "" if same else f"different GPUs: {old.device} and {new.device}"
    sides = (("old", old), ("new", new))
    cut = [f"the {which} launch is {x.status}" for which, x in sides if x.status != "complete"]
    untimed = [f"the {which} launch has no time" for which, side in sides if not side.times_us]
    problem = next(iter((*cut, *untimed)), "")
    name = new.name if old.name == new.name else f"{old.name} → {new.name}"
    return ComparedPair(name, old, new, problem, gpus)


@cache
def gate_figures() -> frozenset[str]:
    """Names that a gate may use."""
    return frozenset(
        {TIME, STEP, *REGISTRY, *(name for name in figures.DERIVED if name.isidentifier())}
    )


@dataclass(frozen=True)
class Gate:
    """A parsed gate: `expression` is over `change('x')` and plain names."""

    text: str
    expression: str
    names: frozenset[str]


def parse_gate(text: str) -> Gate:
    """A gate from its text.

    Raises:
        UsageProblem: it is no comparison over known figures.
    """
    example = "Write it like 'time>5%', 'registers_per_thread>128' or 'time>5% or dram_bytes>10%'"
    changed: set[str] = set()

    def wrong(what: str, remedy: str = example) -> UsageProblem:
        return UsageProblem(f"--fail-on '{text}'{what}", remedy)

    def limit(figure: str, number: str, unit: str | None) -> str:
        """The number in the metric's own unit. A time must have one: most mean a percentage."""
        timed = figure in (TIME, STEP) or (
            figure in gate_figures() and figures.describe(figure)[0] == "us"
        )
        if timed and not unit and float(number):
            time = f"'{figure}>{number}us' for the time itself (ns, us, ms, s)"
            raise wrong(
                f": {number} of what?", f"Write '{figure}>{number}%' for a change, or {time}"
            )
        if not unit:
            return number
        if not timed or unit not in _TIMES:
            what = f"'{unit}' is not a unit of time" if timed else f"'{figure}' is not a time"
            raise wrong(f": {what}", "Units are %, and for times ns, us, ms and s")
        return repr(float(number) * _TIMES[unit])

    def change(found: re.Match[str]) -> str:
        changed.add(found[1])
        return f"change('{found[1]}') {found[2]} {float(found[3]) / 100!r}"

    expression = _PERCENT.sub(change, text)
    expression = _PLAIN.sub(
        lambda found: f"{found[1]} {found[2]} {limit(found[1], found[3], found[4])}", expression
    )
    expression = _TURNED.sub(
        lambda found: f"{limit(found[4], found[1], found[2])} {found[3]} {found[4]}", expression
    )
    if re.search(r"\bchange\s*\(", text):
        raise wrong(": there is no function 'change'")
    if "%" in expression:
        raise wrong(": '%' goes after the number of a comparison")
    try:
        names = expressions.check_syntax(expression, _FUNCTIONS, "--fail-on") | changed
    except InputProblem as error:
        raise UsageProblem(error.message, error.remedy or example) from None
    if unknown := sorted(names - gate_figures()):
        near = difflib.get_close_matches(unknown[0], gate_figures(), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise wrong(f": there is no figure '{unknown[0]}'{hint}")
    if not names or not re.search(r"[<>=]", text):
        raise wrong(" has no comparison")
    return Gate(text, expression, frozenset(names))


class _Missing(expressions.Abstains):
    """A pair lacks a figure that a gate names; the argument is its name."""


class _NewValues(dict[str, float]):
    """The new side's medians by figure, computed where the gate needs them."""

    def __init__(self, pair: ComparedPair) -> None:
        super().__init__(dict.fromkeys(gate_figures(), math.nan))
        self._pair = pair

    def __getitem__(self, name: str) -> float:
        return _difference(self._pair, name).new


def _difference(pair: ComparedPair, figure: str) -> Difference:
    found = pair.difference(figure)
    if found is None:
        raise _Missing(figure)
    return found


def fails(gate: Gate, pair: ComparedPair) -> bool:
    """Whether the gate is true of a pair. Raises _Missing for a metric that the pair lacks."""
    functions: dict[str, expressions.Function] = {
        "change": lambda name: _difference(pair, str(name)).certain_change, "min": min, "max": max, "abs": abs,
    }  # fmt: skip
    return bool(expressions.evaluate(gate.expression, _NewValues(pair), functions, "--fail-on"))


def compare(
    old: Sides,
    new: Sides,
    timings: tuple[Sides, Sides] = ({}, {}),
    gates: Sequence[Gate] = (),
    named: Sequence[tuple[str, str]] = (),
) -> Comparison:
    """Pair everything (`pair_up`), and evaluate every gate for each pair that can be compared.

    Where both sides hold unprofiled timings, gates that name the time use those alone:
    a time under the profiler is no time.

    Raises:
        InputProblem: as `pair_up`.
    """
    pairs, only_old, only_new = pair_up(old, new, renamed=not gates, named=named)
    timed, lost, found = pair_up(*timings)
    failures: list[Failure] = []
    undecided: list[str] = []
    for gate in gates:
        of_time = gate.names <= {TIME, STEP, "duration"}
        for pair in timed if of_time and timed else pairs:
            if pair.problem:
                continue
            if pair.gpus:
                undecided.append(f"'{gate.text}' for {pair.name}: {pair.gpus}")
                continue
            try:
                if fails(gate, pair):
                    differences = map(pair.difference, sorted(gate.names))
                    failures.append(Failure(gate.text, pair, tuple(filter(None, differences))))
            except (_Missing, InputProblem) as error:
                why = f"a side has no {error}" if isinstance(error, _Missing) else error.message
                undecided.append(f"'{gate.text}' for {pair.name}: {why}")
    return Comparison(
        (*timed, *pairs),
        (*lost, *only_old),
        (*found, *only_new),
        tuple(failures),
        tuple(undecided),
        tuple(gate.text for gate in gates),
        tuple(
            f"contradictory: {side.name} in the {which}: {sentence}. Its figures are less certain"
            for pair in pairs
            for which, side in (("old", pair.old), ("new", pair.new))
            for sentence in side.contradictions
        ),
    )
