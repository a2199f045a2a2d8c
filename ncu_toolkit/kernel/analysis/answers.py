"""An analysis and a comparison as answers: the values that every writer shows."""

from __future__ import annotations

import ntpath
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import shell_word, visible
from ncu_toolkit.base.core.shares import grouped
from ncu_toolkit.base.core.units import counted, shortlist
from ncu_toolkit.base.document.card import NAME, kernel_name, whole_percent
from ncu_toolkit.base.document.tables import Cell, Spec, Table, Tone, table
from ncu_toolkit.base.document.views import CARDS, MANY, TOP, Answer, Kind, answer, distinct_names
from ncu_toolkit.base.model import Finding, Location
from ncu_toolkit.kernel.analysis.analyze import Analysis, FileResult, LaunchResult
from ncu_toolkit.kernel.diagnosis import figures
from ncu_toolkit.kernel.diagnosis.chain import chained
from ncu_toolkit.kernel.diagnosis.rules import title
from ncu_toolkit.kernel.diagnosis.time_model import NOISE
from ncu_toolkit.kernel.report.reader import partly

if TYPE_CHECKING:
    from ncu_toolkit.kernel.analysis.gate import ComparedPair, Comparison, Difference, Failure, Side
    from ncu_toolkit.kernel.explain.differences import PredictedGain

Across = Callable[[Analysis, Answer], Answer]
#: Kinds of launches, and of incomplete ones, in a digest: more would not fit a page.
DIGEST_TOP: Final = 5
#: What to do about a file that is incomplete.
COPY_AGAIN: Final = "Copy or record it again"
_NAME: Final = 60
_SHARES_ONLY: Final = "Times depend on the GPU, so their change is not given."
#: Longest name of a kernel in a command that is to be copied.
_LONGEST_WORD: Final = 200
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Pairs of one problem that are named.
_NAMED: Final = 3
#: What names in a comparison's table may be cut to: two of them, so that both are shown.
_SHORTEST: Final = 20
#: A change (new over old, less 1) from which on it is shown as a factor.
_FACTOR: Final = 9.0
#: Longest name of each of two kernels in one cell.
_HALF: Final = 28


def of_analysis(
    analysis: Analysis,
    top: int | None = None,
    cards: int = CARDS,
    most_notes: int = TOP,
    flags: bool = True,
    across: Across | None = None,
) -> Answer:
    """Kinds of launches by time, then what is wrong with the input. `flags`: as `answer`. `across`
    adds what costs time across the kernels of many launches, or answers with that."""
    groups = analysis.judged
    names = distinct_names([file.path for file in analysis.files])
    kinds = [
        Kind(
            replace(group.typical.card, file=names.get(group.typical.file, "")),
            len(group.launches),
            group.total_us,
            len(group.launches) - len(group.times_us),
            group.agreeing,
        )
        for group in groups
    ]
    notes = list(remarks(analysis))
    if len(notes) > most_notes:
        more = f"{len(notes) - most_notes} more like these{'; --format json lists all' if flags else ''}."
        notes = [*notes[:most_notes], more]
    shown = answer(kinds, notes, top or TOP, cards, flags=flags)
    shown = replace(shown, next=next_command(analysis))
    if nothing := analysis.unmatched():
        return replace(shown, headline=nothing)
    several = [group.typical for group in groups if len(set(group.typical.inside)) > 1]
    inside = map(_inside, several[: len(shown.cards)])
    chains = (each for file in analysis.files for each in file.chains)
    points = tuple(chained((one, (of[0].function, of[-1].function)) for one, of in chains))[:CARDS]
    shown = replace(shown, points=points, tables=tuple(inside))
    return across(analysis, shown) if across and len(analysis.launches) >= MANY else shown


def digest(analysis: Analysis, top: int | None = None, across: Across | None = None) -> Answer:
    """As `of_analysis`, of as many kernels and notes as fit a page."""
    most = min(top or DIGEST_TOP, DIGEST_TOP)
    return of_analysis(analysis, top, most, DIGEST_TOP, across=across)


def _inside(launch: LaunchResult) -> Table:
    """The kernels of a range or graph that was profiled as one, as they were launched first."""
    columns: tuple[Spec[tuple[str, int]], ...] = (
        Spec("kernel", cell=lambda row: kernel_name(row[0]), numeric=False, code=True),
        Spec("launches", cell=lambda row: units.count(row[1])),
    )
    found = list(Counter(launch.inside).items())
    note = f"{len(found) - TOP} more; --format json lists all." if len(found) > TOP else ""
    return table(f"Launches in the {kernel_name(launch.function)}", columns, found[:TOP], note)


def of_finding(launch: LaunchResult, finding: Finding) -> Answer:
    """One finding of a launch: its card, how its gain is predicted, and the figures it rests on."""
    from ncu_toolkit.kernel.explain import code, verdict  # `analyze` should not wait for them

    return Answer(
        "",
        cards=(verdict.of_finding(launch.card, finding),),
        points=tuple(map(visible, finding.arithmetic)),
        tables=(code.evidence("Evidence", finding.evidence),),
    )


def of_places(launch: LaunchResult) -> Answer:
    """A launch's card, and every place that one of its findings names."""
    columns: tuple[Spec[tuple[Finding, Location]], ...] = (
        Spec("finding", cell=lambda row: title(row[0].bottleneck), numeric=False),
        Spec("line", cell=lambda row: _place(row[1]), numeric=False, code=True),
        Spec("instruction", cell=lambda row: visible(row[1].sass, _NAME), numeric=False, code=True),
        Spec("share", cell=lambda row: units.percent(row[1].share, 2)),
        Spec("of", cell=lambda row: row[1].what, numeric=False),
    )
    rows = [(each, place) for each in launch.diagnosis.findings for place in each.locations]
    places = table("Places", columns, rows)
    return Answer("", cards=(launch.card,), tables=(places,) if rows else ())


def _place(place: Location) -> str:
    name = ntpath.basename(place.file)
    return f"{name}:{place.line}" if name else f"{place.address:#x}"


def remarks(analysis: Analysis) -> Iterable[str]:
    """Faults of files and launches, and what a filter left out."""
    for file in analysis.files:
        if file.error is not None:
            yield f"unreadable: {visible(file.error.message)}. {visible(file.error.remedy)}".strip()
        elif file.damage:
            read = f"{file.read or 'no'} launch{'es' if file.read > 1 else ''}"
            if file.read < file.declared:
                read += f" of at least {file.declared}"
            yield f"unreadable in part: {visible(file.path)}: {read} could be read: {visible(file.damage)}"
        if file.missing:
            yield f"incomplete: {visible(file.path)}: {visible(file.missing)}. {COPY_AGAIN}"
    for group in analysis.groups:
        if not (launch := group.typical).complete:
            times = f", {len(group.launches)} launches" if len(group.launches) > 1 else ""
            yield f"{visible(launch.status)}: {_which(launch, times)}"
    for group in analysis.groups:
        if found := [launch for launch in group.launches if launch.contradictions]:
            first, *others = found[0].contradictions
            more = f" (and {len(others)} more)" if others else ""
            times = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
            yield f"contradictory: {_which(found[0], times)}: {visible(first)}{more}. What depends on it is less certain"
    yield from map(visible, analysis.missed)
    for each in analysis.unused_needs:
        yield f"no launch matches --needs '{visible(str(each), 80)}'"
    filtered = sum(file.filtered_out for file in analysis.files)
    if filtered and not analysis.unmatched():
        do = "1 other launch does" if filtered == 1 else f"{filtered} other launches do"
        yield f"{do} not match --kernel {visible(analysis.options.kernel, 80)}"


def _which(launch: LaunchResult, more: str) -> str:
    return f"{kernel_name(launch.function)} (launch {launch.key} of {visible(launch.file)}{more})"


def next_command(analysis: Analysis) -> str:
    """The command to run next, safe for a shell."""
    if not analysis.judged:
        broken = next(filter(_readable_in_part, analysis.files), None)
        if broken is None or analysis.options.allow_partial:
            return "ncu-toolkit profile -- <your program>"
        return f"ncu-toolkit analyze --allow-partial {shell_word(broken.path)}"
    launch = analysis.judged[0].typical
    plain = len(launch.function) <= _LONGEST_WORD and _PLAIN_NAME.fullmatch(launch.function)
    name = f" --kernel {launch.function}" if plain else " --top 1"
    return f"ncu-toolkit analyze {shell_word(launch.file)}{name} --format html"


def _readable_in_part(file: FileResult) -> bool:
    """Whether --allow-partial would show launches of a file."""
    if file.error is not None:
        return partly(file.path) in file.error.remedy
    return bool(file.lacking) and any(launch.complete for launch in file.launches)


def of_comparison(comparison: Comparison, short: bool = False) -> Answer:
    """Every pair in a table, then the cards of the pair whose time moved most and what changed
    between them. The short form has only that pair's times, verdicts, and the causes, stalls,
    figures and lines that moved most."""
    from ncu_toolkit.kernel.explain import differences, sections

    pairs = comparison.ordered
    shown = next((pair for pair in pairs if not pair.problem and pair.profiled), None)
    if _unchanged(comparison):
        return _of_unchanged(comparison)
    headline = _first_line(comparison)
    kernels, rest = _kernels(comparison, shown)
    notes, verdict = tuple(_remarks(comparison, alone=short)), _verdict(comparison)
    found = Answer(headline, kernels=kernels, rest=rest, notes=notes, verdict=verdict)
    if shown is None or shown.time is None:
        return found
    before, after = shown.old.representative, shown.new.representative
    old, new = shown.old.card, shown.new.card
    if before is None or after is None or old is None or new is None:
        return found
    changed = differences.between(before, after, differences.SHORT if short else None)
    times = (shown.time.old, shown.time.new)
    apart = _apart([(pair.old, pair.new) for pair in pairs])
    words = next(each for pair, each in zip(pairs, apart, strict=True) if pair is shown)
    of_pair = differences.headline(f"{pair_name(shown)}{words}", *times)
    came = prediction(shown)
    parts = differences.against_prediction(came, old, new) if came else ()
    if not short:
        if [*map(units.duration, times)] != [old.time, new.time]:
            parts = ("Times are medians of all launches; a card shows the median launch.", *parts)
        roofs = sections.roof_plot((before, old, {}), (after, new, {}))
        return replace(
            found,
            headline=headline or of_pair,
            # the command of the old card would compare it with the very report next to it
            cards=(replace(old, next=""), new),
            labels=("old", "new"),
            points=(*parts, *changed.points),
            tables=changed.tables,
            code=changed.code,
            charts=tuple(each for each in (changed.waterfall, roofs) if each),
        )
    row = _row(shown)
    of_pair += f", noise {row.noise}" if row.noise.startswith("±") else ""
    label = "Bottleneck" if "→" in row.bottleneck else "Bottleneck as before"
    points = (
        *([of_pair] if headline else []),
        f"{label}: {row.bottleneck} ({new.gain}).",
        *parts[:1],  # the line above names the limit that is left
        *(
            f"Without the profiler: {row.old} → {row.new} ({row.change.text}, noise {row.noise})."
            for row in (_row(pair) for pair in pairs if pair.time and not pair.profiled)
        ),
        *changed.points,
    )
    return Answer(headline or of_pair, points=points, tables=changed.tables, notes=found.notes)


def _unchanged(comparison: Comparison) -> bool:
    """Whether several kernels were compared, all of them, and each has its time, within its noise, and
    its bottleneck as before; not where --kernel asks for one of them, without a gate."""
    pairs = comparison.pairs
    if (
        len(pairs) < 2
        or comparison.alone_old
        or comparison.alone_new
        or comparison.what != "kernel"
        or (comparison.filtered and not comparison.gates)
    ):
        return False
    return all(
        pair.profiled and not (pair.problem or pair.gpus) and pair.time is not None
        and not pair.time.certain_change and pair.old.bottleneck == pair.new.bottleneck
        for pair in pairs
    )  # fmt: skip


def _of_unchanged(comparison: Comparison) -> Answer:
    """Where nothing changed: how many were compared, their time, and how to see one of them."""
    total = comparison.total
    times = "" if total is None else f": {' → '.join(map(units.duration, total.times_us))} in all"
    kernel = comparison.ordered[0].old.name
    name = kernel if _PLAIN_NAME.fullmatch(kernel) else "NAME"
    near = " or within its noise" * any(pair.time and pair.time.noise for pair in comparison.pairs)
    same = f"Every time is the same{near}, every bottleneck the same{times}."
    one = f"To compare the counters of one kernel, add --kernel {name}"
    return Answer(
        f"{_compared(comparison)}, none changed",
        points=(same,) if comparison.filtered else (same, one),
        notes=tuple(_remarks(comparison)),
        verdict=_verdict(comparison) if comparison.gates else "",
    )


def _first_line(comparison: Comparison) -> str:
    """What has to be known before any pair: that times are of different GPUs, or what became of the
    whole where much of it has no partner. Empty where the pairs say it."""
    from ncu_toolkit.kernel.analysis.gate import SUBSTANTIAL
    from ncu_toolkit.kernel.explain import differences

    gpus = [pair.gpus for pair in comparison.pairs if not pair.problem]
    if gpus and all(gpus):
        first = visible(gpus[0])
        return f"{first[:1].upper()}{first[1:]}. {_SHARES_ONLY}"
    if comparison.unpaired and comparison.total:
        side = "old" if comparison.alone_old else "new"
        how = f"because of kernels only in the {side} report" if _only_missing(comparison) else ""
        both = 1 - min(comparison.total.alone)
        same = f", if both do the same work: kernels of both take {whole_percent(both)} of the time"
        line = differences.total(comparison.total.times_us, comparison.total.launches, how)
        return line + same * (both < SUBSTANTIAL)
    return ""


def _only_missing(comparison: Comparison) -> bool:
    """Whether the two sides differ only in kernels that one of them lacks, and no pair changed."""
    same = all(x.time and abs(x.time.change or 0.0) < NOISE for x in comparison.pairs)
    return same and not (comparison.alone_old and comparison.alone_new)


def pair_name(pair: ComparedPair, longest: int = NAME) -> str:
    """The kernel of a pair, safe to show; both names where they differ."""
    sides = (pair.old, pair.new)
    names = dict.fromkeys(kernel_name(side.label, longest) for side in sides)
    if len(names) == 1 and longest < NAME:  # one name has the room of both
        return kernel_name(pair.new.label)
    return " → ".join(names)


def _apart(rows: Sequence[tuple[Side, ...]]) -> list[str]:
    """The grid, else the block, of each row whose name another row has with a different one."""
    names = [tuple(side.name for side in row) for row in rows]
    words = dict.fromkeys(range(len(rows)), "")
    for held in grouped(range(len(names)), names.__getitem__).values():
        for what in ("block", "grid"):
            sizes = {at: _sizes(rows[at], what) for at in held}
            if len({*sizes.values()}) > 1 and all(sizes.values()):
                words |= {at: f", {what} {size}" for at, size in sizes.items()}
    return [*words.values()]


def _sizes(row: tuple[Side, ...], what: str) -> str:
    """`64×64`, `64×64 → 32×32`; empty where a side has no profile."""
    if not all(side.profiles for side in row):
        return ""
    held = (units.extents(getattr(side.profiles[0].launch, what)) for side in row)
    return " → ".join(dict.fromkeys(held))


def prediction(pair: ComparedPair) -> PredictedGain | None:
    """What the old card predicted and the new side achieved; None without a certain gain."""
    from ncu_toolkit.kernel.explain import differences

    old, new, time = pair.old.card, pair.new.card, pair.time
    if pair.gpus or old is None or new is None or time is None or time.certain_change >= 0:
        return None
    return differences.outcome(replace(old, time_us=time.old), replace(new, time_us=time.new))


def comment(comparison: Comparison) -> Answer:
    """A comparison for a pull request: only the kernels that moved, and last a row with what the
    old side differs from itself by, where it has repeats. A kernel moved where its time did beyond
    chance, its bottleneck changed, it fails a gate, or it cannot be compared."""
    failed = {id(failure.pair) for failure in comparison.failures}

    def has_moved(pair: ComparedPair) -> bool:
        time = pair.time
        if id(pair) in failed or time is None or pair.old.bottleneck != pair.new.bottleneck:
            return True
        return not pair.gpus and bool(time.certain_change)

    moved = [pair for pair in comparison.ordered if has_moved(pair)]
    shown = _pairs(moved) if moved else None
    same = len(comparison.pairs) - len(moved)
    itself = [each for pair in comparison.pairs if (each := pair.against_itself) is not None]
    noise = max(itself, default=None)
    if shown is not None and noise is not None:
        cells = {
            comparison.what: "A/A: old against itself",
            "change": f"up to {units.percent(noise, 2)}",
        }
        row = tuple(Cell(cells.get(column.label, "")) for column in shown.columns)
        shown = replace(shown, rows=(*shown.rows, row))
    return Answer(
        headline=_first_line(comparison) or ("" if moved else f"No {comparison.what} moved."),
        kernels=shown,
        rest=f"{counted(same, comparison.what)} did not move." if moved and same else "",
        notes=tuple(_remarks(comparison)),
        verdict=_verdict(comparison),
    )


class _Row(NamedTuple):
    """A row of a comparison's table."""

    kernel: str
    launches: str = ""
    old: str = ""
    new: str = ""
    change: Cell = Cell("")
    noise: str = ""
    bottleneck: str = ""


_COLUMNS: Final[tuple[Spec[_Row], ...]] = (
    Spec("kernel", cell=lambda row: row.kernel, numeric=False, code=True, shortest=_SHORTEST, name=True),
    Spec("launches", cell=lambda row: row.launches),
    Spec("old", cell=lambda row: row.old),
    Spec("new", cell=lambda row: row.new),
    Spec("change", cell=lambda row: row.change),
    Spec("noise", cell=lambda row: row.noise, gives_way=1),
    Spec("bottleneck", cell=lambda row: row.bottleneck, numeric=False, gives_way=3, shortest=12),
)  # fmt: skip


def _kernels(comparison: Comparison, shown: ComparedPair | None) -> tuple[Table | None, str]:
    """The table of all kernels, the pairs first, and what it leaves out. Where much has no partner
    it counts launches, and its note names the pair that is shown."""
    alone = [(side, False) for side in comparison.alone_old]
    alone += [(side, True) for side in comparison.alone_new]
    alone.sort(key=lambda each: -sum(each[0].times_us))
    names = _apart([(side,) for side, _ in alone])
    rows = [_alone(*each, words) for each, words in zip(alone[:TOP], names, strict=False)]
    if not (comparison.pairs or rows):
        return None, ""
    left = sum(sum(side.times_us) for side, _ in alone[TOP:])
    more = counted(len(alone) - TOP, "more kernel")
    rest = f"{more} without a partner: {units.duration(left)}." if alone[TOP:] else ""
    if not comparison.unpaired:
        renamed = [pair.old.name != pair.new.name for pair in comparison.pairs]
        single = not alone and renamed == [True]
        why = "These two are compared because each report has only one kernel." * single
        return replace(_pairs(comparison.ordered, rows), note=why), rest
    sides = [side for pair in comparison.pairs for side in (pair.old, pair.new)]
    many = any(len(side.times_us) > 1 for side in (*sides, *(each for each, _ in alone)))
    notes = ["Times are medians."] if many else []
    if shown is not None:
        gone = ", which may now do the work of kernels that are gone" * (
            bool(comparison.alone_old) and not _only_missing(comparison)
        )
        notes.append(f"What follows is about {pair_name(shown)} only{gone}.")
    made = _pairs(comparison.ordered, rows, launches=many)
    return replace(made, note=" ".join(notes)), rest


def _pairs(
    pairs: Sequence[ComparedPair], more: Iterable[_Row] = (), launches: bool = False
) -> Table:
    apart = _apart([(pair.old, pair.new) for pair in pairs])
    rows = [*(_row(pair, words) for pair, words in zip(pairs, apart, strict=True)), *more]
    first = replace(_COLUMNS[0], label=pairs[0].old.what if pairs else "")
    shown = rows if launches else [row._replace(launches="") for row in rows]
    return table("", (first, *_COLUMNS[1:]), shown)


def _row(pair: ComparedPair, apart: str = "") -> _Row:
    """The row of a pair. Times of two GPUs have no change; only a certain one is coloured."""
    counts = dict.fromkeys(str(len(side.times_us)) for side in (pair.old, pair.new))
    found, certain = pair.time, 0.0
    row = _Row(pair_name(pair, _HALF) + apart, " → ".join(counts))
    if found is None:
        return row._replace(change=Cell("not comparable", tone="strong"))
    change, noise = "other GPU", ""
    if not pair.gpus:
        certain = found.certain_change
        change = percent(found.change) if found.change != 0 else "="
        share = f"± {units.percent(found.noise / found.old, 2)}" if found.old else ""
        noise = share if found.noise else "not known"
    tone: Tone = "bad" if certain > 0 else "good" if certain < 0 else "strong"
    return row._replace(
        old=units.duration(found.old),
        new=units.duration(found.new),
        change=Cell(change, tone=tone),
        noise=noise,
        bottleneck=" → ".join(dict.fromkeys(map(_titled, (pair.old, pair.new)))),
    )


def _alone(side: Side, new: bool, apart: str) -> _Row:
    """The row of a kernel without a partner."""
    time = units.duration(statistics.median(side.times_us)) if side.times_us else ""
    old, after = ("–", time) if new else (time, "–")
    change = Cell("new" if new else "gone", tone="strong")
    bottleneck = _titled(side) if side.times_us and side.profiles else ""
    name, launches = kernel_name(side.label) + apart, str(len(side.times_us))
    return _Row(name, launches, old, after, change, bottleneck=bottleneck)


def percent(change: float | None) -> str:
    """A relative change with its sign; a factor where it is ten times as much or more."""
    if change is None:
        return units.NOT_AVAILABLE
    if change >= _FACTOR:
        return units.ratio(1 + change)
    return f"{'+' if change > 0 else ''}{units.percent(change)}"


def _titled(side: Side) -> str:
    return side.card.title if side.card else title(side.bottleneck)


def _remarks(comparison: Comparison, alone: bool = True) -> Iterable[str]:
    """What failed or could not be compared, and with `alone` the kernels without a partner."""
    apart = _apart([(each.pair.old, each.pair.new) for each in comparison.failures])
    for failure, grid in zip(comparison.failures, apart, strict=True):
        parts = "; ".join(map(_moved, failure.differences))
        kind = "limit exceeded" if _only_limit(failure) else "regression"
        yield f"{kind}: {pair_name(failure.pair)}{grid}: {parts} ({visible(failure.gate)})"
    for reason in comparison.undecided:
        yield f"not decided: {visible(reason)}"
    headline = _first_line(comparison)
    for gpus in dict.fromkeys(visible(pair.gpus) for pair in comparison.pairs if pair.gpus):
        if gpus[1:] not in headline:
            yield f"{gpus}. {_SHARES_ONLY}"
    for problem in dict.fromkeys(pair.problem for pair in comparison.pairs if pair.problem):
        names = [pair_name(pair) for pair in comparison.pairs if pair.problem == problem]
        yield f"not comparable: {shortlist(names, _NAMED)}: {visible(problem)}"
    for which, found in (("old", comparison.alone_old), ("new", comparison.alone_new)):
        if found and alone:
            shown = shortlist([kernel_name(side.label, 40) for side in found], 5)
            yield f"only in the {which}: {shown}"
    yield from (visible(remark) for remark in comparison.remarks)


def failed_gates(failures: Sequence[Failure]) -> str:
    """`1 regression, 2 limits exceeded`."""
    limits = sum(map(_only_limit, failures))
    worse = [counted(len(failures) - limits, "regression")] * (limits < len(failures))
    exceeded = [counted(limits, "limit exceeded", "limits exceeded")] * (limits > 0)
    return ", ".join(worse + exceeded)


def _only_limit(failure: Failure) -> bool:
    return all(each.old == each.new for each in failure.differences)


def _moved(d: Difference) -> str:
    """`registers per thread 64 → 80 (+25 %)`, with as many digits as tell the two apart."""
    name = d.figure if d.figure in ("time", "step") else figures.describe(d.figure)[1].lower()
    old, new = (units.quantity(each, d.unit) for each in (d.old, d.new))
    if old == new and d.old != d.new:
        old, new = f"{d.old:.9g}", f"{d.new:.9g}"
    change = f" → {new} ({percent(d.change)})" if old != new else ", as before"
    return f"{visible(name)} {old}{change}"


def by_hand(comparison: Comparison) -> str:
    """What to give --pair: two kernels that are likely meant, fit for a shell."""
    return shell_word("=".join(comparison.likely)) if comparison.likely else "OLD=NEW"


def _compared(comparison: Comparison) -> str:
    """`3 kernels`; of pairs that share a name `3 variants of 1 kernel`: sizes, template arguments."""
    pairs, names = len(comparison.pairs), len({pair.old.name for pair in comparison.pairs})
    of = counted(names, comparison.what)
    return of if names == pairs else f"{counted(pairs, 'variant')} of {of}"


def _verdict(comparison: Comparison) -> str:
    """One line: whether the gates hold; without gates, whether there was anything to compare."""
    pairs, compared = len(comparison.pairs), comparison.compared
    if not pairs:
        if comparison.unmatched:
            return f"Nothing to compare: {comparison.unmatched}."
        if comparison.unpaired:
            shell = by_hand(comparison)
            return f"No kernel is in both reports. If one was renamed: --pair {shell}."
        return f"Nothing to compare: both have no {comparison.what} in common."
    if comparison.failures:
        return f"{failed_gates(comparison.failures)}."
    whole, some = compared == pairs, f"{compared} of {counted(pairs, comparison.what)} could be"
    found = f"{_compared(comparison) if whole else some} compared"
    if not comparison.gates:
        return "" if whole else f"{found}."
    part = "" if comparison.comparable else " in what could be compared"
    return f"{found}: no regression{part}."
