"""A family in a sentence for each ladder in it: where it starts, where it ends, against its library
and its roof."""

import statistics
from collections.abc import Sequence

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.explain.sections import cause
from ncu_toolkit.kernel.pages.book import Entry, Ladder, problem_of
from ncu_toolkit.kernel.pages.roofline import DeviceRoof, RoofName, best

#: Measured rates that a kernel may go beyond: what memory copies, or a library's product reaches.
_MEASURED = {
    "dram": "the measured rate of a device-to-device copy",
    "tensor": "the measured rate of the library's largest 16-bit product",
}


def roof_name(ladder: Ladder) -> RoofName:
    """The roof that a family's rates are compared with."""
    problem = problem_of(ladder.family)
    if problem is None:
        return "fp32" if ladder.book.by_flops[ladder.family] else "dram"
    return "dram" if problem.roof == "copy" else problem.roof


def sentence(ladder: Ladder) -> str:
    """What the family shows at a size: of each ladder in it where it starts and where it ends,
    against its library and its roof."""
    if ladder.pairs:
        return _pairs_sentence(ladder)
    climbs = ladder.climbs
    parts = [
        _climb(ladder, steps) for steps in climbs.values() if len(steps) > 1 or len(climbs) == 1
    ]
    if not parts:
        return f"{len(ladder.entries)} kernels profiled at {ladder.size}; none timed in this run."
    larger = _largest(ladder)
    if larger.variant.volume > ladder.variant.volume:
        parts += [
            _top(larger, steps)
            for root, steps in larger.climbs.items()
            if len(steps) >= len(climbs.get(root, ())) > 1
        ]
    return " ".join(parts)


def short_sentence(ladder: Ladder) -> str:
    """What the family shows at a size, in at most 20 words."""
    if ladder.pairs:
        most, defect, _ = max(ladder.pairs, key=lambda pair: pair[0])
        name = visible(defect.label)
        return f"{len(ladder.pairs)} defects, each with its repair. Repairing {name} gains most: {units.ratio(most)}."
    steps: list[Entry] = max(ladder.climbs.values(), key=len, default=[])
    if len(steps) < 2:
        return f"{len(ladder.entries)} kernels profiled at size {ladder.size}."
    first, top = steps[0].label, ladder.top(steps).label
    gain = ladder.rates.get(top, 0.0) / (ladder.rates.get(first) or 1.0)
    return (
        f"{visible(top)} is {units.ratio(gain)} faster than {visible(first)} at size {ladder.size}."
    )


def against_library(ladder: Ladder) -> str:
    """The fastest step's rate, and its share of the library's; of several ladders the rate of each
    one's, by name. Empty where none was timed."""
    tops = ladder.tops
    if not tops or ladder.pairs:
        return ""
    if len(tops) == 1:
        return f"Best: {', '.join([rate_text(ladder, tops[0]), *_of_library(ladder, tops[0])])}"
    named = (f"{visible(top.label)} {rate_text(ladder, top)}" for top in tops)
    return f"Best: {', '.join(named)}"


def rate_text(ladder: Ladder, entry: Entry) -> str:
    return units.si(ladder.rates.get(entry.label, 0.0), entry.unit)


def _largest(ladder: Ladder) -> Ladder:
    """The largest size at which as many steps were timed as at this one."""
    least = sum(map(len, ladder.climbs.values()))
    enough = [
        other
        for variant, other in ladder.book.families[ladder.family].items()
        if variant.dtype == ladder.variant.dtype and sum(map(len, other.climbs.values())) >= least
    ]
    return max(enough, key=lambda other: other.variant.volume)


def _climb(ladder: Ladder, steps: Sequence[Entry]) -> str:
    """From the first of these timed steps to the fastest."""
    first, top = steps[0], ladder.top(steps)
    start, end = (ladder.rates.get(entry.label, 0.0) for entry in (first, top))
    words = f"From {visible(first.label)} at {rate_text(ladder, first)} to {visible(top.label)} at {rate_text(ladder, top)}"
    if start:
        words += f", {units.ratio(end / start)} faster"
    words += f", at size {ladder.size}"
    against = [*_of_library(ladder, top), *_of_roof(end, ladder.book.roofs, roof_name(ladder))]
    if against:
        words += f": {units.listed(against)}"
    return f"{words}."


def _top(ladder: Ladder, steps: Sequence[Entry]) -> str:
    top = ladder.top(steps)
    parts = [f"{visible(top.label)} at {rate_text(ladder, top)}", *_of_library(ladder, top)]
    return f"At size {ladder.size}: {', '.join(parts)}."


def _of_library(ladder: Ladder, top: Entry) -> list[str]:
    baseline, name = top.baseline_us, top.baseline
    if not baseline or not top.timing:
        return []
    share = units.percent(baseline / top.timing.median_us)
    return [f"{share} of {visible(name.label) if name else 'the library'}"]


def _of_roof(rate: float, known: tuple[DeviceRoof, ...], name: RoofName) -> list[str]:
    """A rate as shares of a roof. One that goes beyond a rate of _MEASURED is compared with the
    device's peak as well."""
    roof = best(known, name)
    if roof is None:
        return []
    share = rate / roof.rate
    if name not in _MEASURED or not roof.measured:
        return [f"{units.percent(share)} of {roof.words}"]
    text = f"{units.percent(share)} of {_MEASURED[name]}"
    if share <= 1 + NOISE:
        return [text]
    peaks = (other for other in known if other.name == name and not other.measured)
    return [
        f"{text} (not an upper bound)",
        *(f"{units.percent(rate / peak.rate)} of {peak.words}" for peak in [*peaks][:1]),
    ]


def _pairs_sentence(ladder: Ladder) -> str:
    most, _, best = max(ladder.pairs, key=lambda pair: pair[0])
    middle = units.ratio(statistics.median(gain for gain, *_ in ladder.pairs))
    found = f"{middle} faster in the median, {units.ratio(most)} at most ({visible(best.label)})"
    count = units.counted(len(ladder.pairs), "kernel")
    named = [
        ladder.book.card(defect.main).title == cause(repair.info.removes)
        for _, defect, repair in ladder.pairs
        if defect.main and repair.info
    ]
    text = f" The verdict names the defect in {sum(named)} of {len(named)}." if named else ""
    return f"{count} with one planted defect and repaired, at size {ladder.size}: a repaired kernel is {found}.{text}"
