"""The columns of a ladder's table: one entry each, from a rung at one size to a cell. Counters
speak of the rung's longest launch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.units import LEAST_GAIN, compact
from ncu_toolkit.base.document.tables import (
    Cell,
    Spec,
    Table,
    missing,
    number,
    table,
    text,
    without_empty,
)
from ncu_toolkit.base.metrics.registry import STALL_REASONS
from ncu_toolkit.base.model import Timing, matches_opcode
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.compare import of_all
from ncu_toolkit.kernel.diagnosis.figures import reason_name
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.explain.sections import cause, fact_cell, verdict_cell
from ncu_toolkit.kernel.pages import charts
from ncu_toolkit.kernel.pages.book import Entry, Ladder, achieved
from ncu_toolkit.kernel.pages.unit_folds import limiter_words

NOT_PROFILED: Final = "this rung was not profiled at this size"
NOT_TIMED: Final = "this rung was not timed at this size"


def _name(entry: Entry) -> Cell:
    badges = []
    if entry.kind != "step":
        badges.append((entry.kind, charts.KINDS.get(entry.kind, ("", entry.kind))[1]))
    if entry.shown_kind == "slower":
        why = "slower than the rung it is compared with; its page shows the reason, as far as the profiles do"
        badges.append(("slower", why))
    if len(entry.profiles) > 1:
        several = "the rung takes several launches; counters are those of the longest"
        badges.append((f"{len(entry.profiles)} launches", several))
    return replace(rung_link(entry), badges=tuple(badges))


def rung_link(entry: Entry) -> Cell:
    """A rung's label, linked to its page, with its title on hover."""
    label, title = visible(entry.label), visible(entry.info.title) if entry.info else ""
    return Cell(label, label, title, entry.page)


def _time(entry: Entry) -> Cell:
    timing = entry.timing
    if timing is None:
        return missing(NOT_TIMED)
    spread = (
        f"{units.duration(timing.quantile_us(0.1))} to {units.duration(timing.quantile_us(0.9))}"
    )
    title = f"median of {len(timing.times_us)} unprofiled runs, L2 {timing.cache}; 10th to 90th percentile {spread}"
    return number(timing.median_us, "us", title=title)


def rate_cell(entry: Entry) -> Cell:
    return number(entry.rate, entry.unit, NOT_TIMED)


def interleaved(timing: Timing) -> str:
    """How the baseline of a timing was timed."""
    return "interleaved with these repeats" if timing.baseline_us else "timed separately"


def _baseline(entry: Entry) -> Cell:
    if entry.timing is None:
        return missing(NOT_TIMED)
    if entry.baseline_us is None:
        return missing("the baseline was not timed at this size")
    how = f"baseline {units.duration(entry.baseline_us)}, {interleaved(entry.timing)}"
    share = entry.baseline_us / entry.timing.median_us
    return number(share, "fraction", title=how, bar=share)


def energy_cell(entry: Entry) -> Cell:
    """Energy of one run, with that of its useful work on hover."""
    timing = entry.timing
    if timing is None:
        return missing(NOT_TIMED)
    if timing.energy_mj is None:
        return missing(
            "not available: the GPU has no energy counter, or the launches are too short"
        )
    work = timing.pj_per_flop if entry.by_flops else timing.pj_per_byte
    each = (
        f"; {units.significant(work)} pJ for each useful {'operation' if entry.by_flops else 'byte'}"
        if work is not None
        else ""
    )
    return number(timing.energy_mj, "mJ", title=f"whole board, launches back to back{each}")


def _figure(name: str, *, bar: bool = False) -> Callable[[Entry], Cell]:
    return lambda entry: fact_cell(entry.main, name, bar=bar, absent=NOT_PROFILED)


def _limiter(entry: Entry) -> Cell:
    if entry.main is None:
        return missing(NOT_PROFILED)
    words = limiter_words(entry.main)
    return (
        text(words, "the resource that an SM runs out of first")
        if words
        else missing("the report has no block limits")
    )


def _opcodes(pattern: str, without: str = "") -> Callable[[Entry], Cell]:
    def cell(entry: Entry) -> Cell:
        if entry.main is None:
            return missing(NOT_PROFILED)
        if not entry.main.mix.collected:
            return missing("instructions by opcode were not collected")
        opcodes = entry.main.mix.opcodes
        found = {
            name: n
            for name, n in opcodes.items()
            if matches_opcode(name, pattern) and not (without and matches_opcode(name, without))
        }
        detail = ", ".join(
            f"{visible(name)} {units.count(n)}"
            for name, n in sorted(found.items(), key=lambda item: -item[1])[:6]
        )
        total, detail = sum(found.values()), detail or "none executed"
        return Cell(compact(total), total, detail, tone="" if found else "muted")

    return cell


def _top_stall(entry: Entry) -> Cell:
    if entry.main is None:
        return missing(NOT_PROFILED)
    waits = figures.ranked_stalls(entry.main, "selected", "not_selected")
    if not waits:
        return missing("neither the stall stack nor enough PC samples were collected")
    reason, share = waits[0]
    return Cell(
        f"{reason_name(reason)} {units.percent(share, 2)}", reason, STALL_REASONS.get(reason, "")
    )


def _bottleneck(entry: Entry) -> Cell:
    return verdict_cell(entry.book.card(entry.main)) if entry.main else missing(NOT_PROFILED)


def next_step(entry: Entry) -> Entry | None:
    """The rung that is compared with this one and removes a bottleneck of it (the first such in the
    ladder)."""
    return next(
        (
            other
            for other in entry.ladder
            if other.info and other.info.removes and (of := other.before) and of.rung == entry.rung
        ),
        None,
    )


def predicted(before: Entry, removes: str) -> tuple[float, int] | None:
    """Speedup of the whole rung, predicted from the slow rung's longest launch for removing that
    bottleneck alone, and its rank (1 is the verdict).

    None where it was not found, or without a figure.
    """
    if before.main is None:
        return None
    for rank, finding in enumerate(before.book.diagnosis(before.main).findings, 1):
        if finding.bottleneck == removes:
            if finding.speedup is None:
                return None
            return 1 / (1 - of_all(removes, finding.saved, before.launches.part)), rank
    return None


def _prediction(entry: Entry) -> Cell:
    after = next_step(entry)
    if after is None or after.info is None:
        return missing("no rung removes a bottleneck of this one")
    if entry.main is None:
        return missing(NOT_PROFILED)
    guess, got = predicted(entry, after.info.removes), achieved(entry, after)
    left = (
        (units.ratio(guess[0]) if guess[0] >= LEAST_GAIN else units.NOT_AVAILABLE)
        if guess
        else "not found"
    )
    right = "not timed" if not got else units.ratio(got) if got >= 1 - NOISE else units.faster(got)
    words = f"{cause(after.info.removes)} alone, predicted from this profile → what {after.label} achieved, timed"
    if guess and got and got > guess[0] * (1 + NOISE):
        words += "; it changed more than this cause, see its page"
    return Cell(f"{left} → {right}", got, visible(words))


#: What a reader looks for first comes first: a phone shows the time and the verdict, a screen also
#: what the prediction was worth, without scrolling.
COLUMNS: Final[tuple[Spec[Entry], ...]] = (
    Spec("rung", "Rung", "The kernel, linked to its page", numeric=False, cell=_name),
    Spec("time", "Time", "Median of unprofiled runs, CUDA events", "us", cell=_time),
    Spec("bottleneck", "Bottleneck", "The verdict on this profile", numeric=False, shortest=16, cell=_bottleneck),
    Spec(
        "predicted", "Predicted → achieved",
        "Speedup predicted for removing one bottleneck alone, and achieved by the rung that removes it. That rung may change more",
        "ratio", cell=_prediction,
    ),
    Spec("rate", "Rate", "Useful work over that time", gives_way=5, cell=rate_cell),
    Spec("baseline", "% of baseline", "The baseline's time over this rung's", "fraction", gives_way=4, cell=_baseline),
    Spec("stall", "Top stall", "Largest stall reason, as a share of the warps' time", numeric=False, gives_way=3, cell=_top_stall),
    Spec("registers", "Registers", "Registers per thread", "count", gives_way=1, cell=_figure("registers_per_thread")),
    Spec(
        "theoretical_occupancy", "Theoretical occupancy", "Most warps that an SM could hold of the kernel", "fraction",
        cell=_figure("theoretical_occupancy"),
    ),
    Spec(
        "achieved_occupancy", "Achieved occupancy", "Warps that an SM held on average, while profiled", "fraction",
        gives_way=2, cell=_figure("achieved_occupancy"),
    ),
    Spec("limiter", "Limited by", "The resource that limits occupancy: an SM runs out of it first", numeric=False, cell=_limiter),
    Spec("dram", "DRAM", "Device-memory throughput over its peak, while profiled", "fraction", cell=_figure("dram_utilization", bar=True)),
    Spec("l2", "L2", "L2 tag throughput over its peak, while profiled", "fraction", cell=_figure("l2_utilization", bar=True)),
    Spec("l1", "L1", "L1 data stage (global, shared) over its peak, while profiled", "fraction", cell=_figure("l1_data_pipe_active", bar=True)),
    Spec("conflicts", "Bank conflicts", "Shared wavefronts beyond the ideal", "fraction", cell=_figure("shared_conflict_excess")),
    Spec("lds", "LDS", "Warp-level shared loads narrower than 128 bits per lane", "count", cell=_opcodes("LDS", "LDS.128")),
    Spec("lds128", "LDS.128", "Warp-level shared loads of 128 bits per lane", "count", cell=_opcodes("LDS.128")),
    Spec("sts", "STS", "Warp-level shared stores narrower than 128 bits per lane", "count", cell=_opcodes("STS", "STS.128")),
    Spec("sts128", "STS.128", "Warp-level shared stores of 128 bits per lane", "count", cell=_opcodes("STS.128")),
    Spec("ldgsts", "LDGSTS", "Asynchronous copies from global to shared memory", "count", cell=_opcodes("LDGSTS|UTMALDG")),
    Spec("hmma", "HMMA", "Matrix instructions (HMMA and HGMMA)", "count", cell=_opcodes("HMMA|HGMMA|UTCHMMA")),
    Spec("energy", "Energy", "Energy of one launch, run back to back, from the GPU's counter", "mJ", cell=energy_cell),
)  # fmt: skip


def ladder_table(ladder: Ladder) -> Table:
    """The sortable table of a ladder, without columns that no rung has a value in."""
    unit = ladder.entries[0].unit
    specs = [replace(spec, unit=unit) if spec.key == "rate" else spec for spec in COLUMNS]
    beside = (
        at
        for at, entry in enumerate(ladder)
        if ladder.trunk
        and entry.label not in ladder.trunk
        and entry.kind not in ("baseline", "roof")
    )
    note = ""
    if not any(entry.profiles for entry in ladder):
        note = "No rung was profiled at this size, so the columns of a profile are left out."
    caption = f"{ladder.title}, size {ladder.label}"
    whole = table(caption, specs, ladder, note, f"{ladder.key}-table")
    return replace(without_empty(whole), sortable=True, variants=frozenset(beside))
