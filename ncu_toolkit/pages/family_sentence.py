"""A family in a sentence for each ladder in it: where it starts, where it ends, against its library
and its roof."""

from __future__ import annotations

import statistics

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis.time_model import NOISE
from ncu_toolkit.document.views import shown_size
from ncu_toolkit.ladder.problems import Problem
from ncu_toolkit.pages.book import Book, Entry, Variant
from ncu_toolkit.pages.columns import achieved, rate_of, rate_unit
from ncu_toolkit.pages.roofs import Roof, RoofName, best


def roof_name(problem: Problem | None, kind: str) -> RoofName:
    """The roof that a family's rates are compared with."""
    if problem is None:
        return "fp32" if kind == "flop" else "dram"
    return "dram" if problem.roof == "copy" else problem.roof


def sentence(
    book: Book,
    variants: dict[Variant, list[Entry]],
    variant: Variant,
    kind: str,
    problem: Problem | None,
    known: tuple[Roof, ...],
) -> str:
    """What the family shows at a size: of each ladder in it where it starts and where it ends,
    against its library and its roof."""
    entries = variants[variant]
    mended = pairs(book, entries)
    if mended:
        return _pairs_sentence(mended, variant)
    ladders = _ladders(book, entries)
    said = [
        _climb(book, steps, variant, kind, problem, known)
        for steps in ladders.values()
        if len(steps) > 1 or len(ladders) == 1
    ]
    if not said:
        return f"{len(entries)} kernels profiled at {shown_size(variant.size)}; none timed in this run."
    for larger, others in variants.items():
        if (
            larger.volume > variant.volume
            and larger.dtype == variant.dtype
            and larger == _largest(book, variants, variant)
        ):
            said += [
                _top(book, steps, larger, kind)
                for root, steps in _ladders(book, others).items()
                if len(steps) >= len(ladders.get(root, ())) > 1
            ]
    return " ".join(said)


def short_sentence(book: Book, entries: list[Entry], variant: Variant, kind: str) -> str:
    """What the family shows at a size, in at most 20 words."""
    mended = pairs(book, entries)
    size = shown_size(variant.size)
    if mended:
        most, best = max(mended, key=lambda pair: pair[0])
        name = visible((book.before(best) or best).label)
        return f"{len(mended)} defects, each with its repair. Repairing {name} gains most: {units.ratio(most)}."
    steps = _longest(book, entries)
    if len(steps) < 2:
        return f"{len(entries)} kernels profiled at size {size}."
    first, top = steps[0], max(steps, key=lambda entry: rate_of(entry, kind) or 0.0)
    gain = (rate_of(top, kind) or 0.0) / (rate_of(first, kind) or 1.0)
    return f"{visible(top.label)} is {units.ratio(gain)} faster than {visible(first.label)} at size {size}."


def _longest(book: Book, entries: list[Entry]) -> list[Entry]:
    """The timed steps of the family's longest ladder; empty where none was timed."""
    return max(_ladders(book, entries).values(), key=len, default=[])


def against_library(book: Book, entries: list[Entry], kind: str) -> str:
    """The fastest step's rate, and its share of the library's; of several ladders the rate of each
    one's, by name. Empty where none was timed."""
    found = tops(book, entries, kind)
    if not found or pairs(book, entries):
        return ""
    rates = [units.si(rate_of(top, kind) or 0.0, rate_unit(kind)) for top in found]
    if len(found) == 1:
        return f"Best: {', '.join([*rates, *_of_library(book, found[0])])}"
    named = (f"{visible(top.label)} {rate}" for top, rate in zip(found, rates, strict=True))
    return f"Best: {', '.join(named)}"


def tops(book: Book, entries: list[Entry], kind: str) -> list[Entry]:
    """The fastest step of each ladder of several steps, else of the longest."""
    ladders = _ladders(book, entries).values()
    climbed = [steps for steps in ladders if len(steps) > 1] or [*ladders][:1]
    return [max(steps, key=lambda entry: rate_of(entry, kind) or 0.0) for steps in climbed]


def _ladders(book: Book, entries: list[Entry]) -> dict[str, list[Entry]]:
    """The timed steps by the rung that their comparisons lead back to: a family may hold several
    problems, each with a ladder of its own."""
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        if entry.kind != "step" or entry.timing is None:
            continue
        found.setdefault(_root(book, entry), []).append(entry)
    return found


def _root(book: Book, entry: Entry) -> str:
    """Where the headers' comparisons within the family begin: also where rungs between were not
    run."""
    name, info = entry.rung, entry.info
    while info and info.compared_with and "/" not in info.compared_with:
        name = info.compared_with
        info = book.rungs.get((entry.family, name))
    return name


def _largest(book: Book, variants: dict[Variant, list[Entry]], variant: Variant) -> Variant:
    """The largest size at which as many steps were timed as at `variant`."""
    timed = {
        v: sum(len(steps) for steps in _ladders(book, entries).values())
        for v, entries in variants.items()
        if v.dtype == variant.dtype
    }
    return max((v for v in timed if timed[v] >= timed[variant]), key=lambda v: v.volume)


def _climb(
    book: Book,
    steps: list[Entry],
    variant: Variant,
    kind: str,
    problem: Problem | None,
    known: tuple[Roof, ...],
) -> str:
    """From the first of these timed steps to the fastest."""
    rates = {entry.label: rate_of(entry, kind) or 0.0 for entry in steps}
    first, top = steps[0], max(steps, key=lambda entry: rates[entry.label])
    start, end, unit = rates[first.label], rates[top.label], rate_unit(kind)
    reach = f"From {visible(first.label)} at {units.si(start, unit)} to {visible(top.label)} at {units.si(end, unit)}"
    words = (
        f"{reach}, {units.ratio(end / start)} faster, at size {shown_size(variant.size)}"
        if start
        else f"{reach}, at size {shown_size(variant.size)}"
    )
    against = [*_of_library(book, top), *_of_roof(end, known, roof_name(problem, kind))]
    return (
        f"{words}: {', '.join(against[:-1])}{' and ' if against[:-1] else ''}{against[-1]}."
        if against
        else f"{words}."
    )


def _top(book: Book, steps: list[Entry], variant: Variant, kind: str) -> str:
    top = max(steps, key=lambda entry: rate_of(entry, kind) or 0.0)
    said = [
        f"{visible(top.label)} at {units.si(rate_of(top, kind) or 0.0, rate_unit(kind))}",
        *_of_library(book, top),
    ]
    return f"At size {shown_size(variant.size)}: {', '.join(said)}."


def _of_library(book: Book, top: Entry) -> list[str]:
    baseline = book.baseline_us(top)
    if not baseline or not top.timing:
        return []
    name = book.baseline(top)
    return [
        f"{units.percent(baseline / top.timing.median_us)} of {visible(name.label) if name else 'the library'}"
    ]


def _of_roof(rate: float, known: tuple[Roof, ...], name: RoofName) -> list[str]:
    """A rate as shares of a roof. What memory copies, or a library's product reaches, is none for
    every kernel: one that goes beyond it is compared with the device's peak as well."""
    roof = best(known, name)
    if roof is None:
        return []
    share = rate / roof.rate
    measured = {
        "dram": "the measured rate of a device-to-device copy",
        "tensor": "the measured rate of the library's largest 16-bit product",
    }
    if name not in measured or not roof.measured:
        return [f"{units.percent(share)} of {roof.words}"]
    said = f"{units.percent(share)} of {measured[name]}"
    if share <= 1 + NOISE:
        return [said]
    peak = next((other for other in known if other.name == name and not other.measured), None)
    return [
        f"{said} (which is no upper bound)",
        *([f"{units.percent(rate / peak.rate)} of {peak.words}"] if peak else []),
    ]


def pairs(book: Book, entries: list[Entry]) -> list[tuple[float, Entry]]:
    """(speedup, mended kernel) where the steps mend planted defects one by one and do not climb;
    empty for a ladder."""
    steps = [entry for entry in entries if entry.kind == "step"]
    mended = [
        (before, entry)
        for entry in steps
        if (before := book.before(entry)) and before.kind == "planted"
    ]
    if 2 * len(mended) <= len(steps):
        return []
    return [(gain, entry) for before, entry in mended if (gain := achieved(before, entry))]


def _pairs_sentence(pairs: list[tuple[float, Entry]], variant: Variant) -> str:
    gains = sorted(gain for gain, _ in pairs)
    most, best = max(pairs, key=lambda pair: pair[0])
    middle, top = units.ratio(statistics.median(gains)), units.ratio(most)
    found = f"{middle} faster in the median, {top} at most ({visible(best.label)})"
    count = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
    return f"{count} at size {shown_size(variant.size)}: mending the one planted defect makes a kernel {found}."
