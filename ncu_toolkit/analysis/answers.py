"""An analysis and a comparison as answers: the values that every writer shows."""

from __future__ import annotations

import ntpath
import os
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ncu_toolkit.analysis.analyze import Analysis, FileResult, Group, LaunchResult
from ncu_toolkit.core import units
from ncu_toolkit.core.errors import partly
from ncu_toolkit.core.safe import shell_word, visible
from ncu_toolkit.core.units import counted
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import title
from ncu_toolkit.document.answer import CARDS, TOP, Kind, answer
from ncu_toolkit.document.card import NAME, Card, factor_text, kernel_name
from ncu_toolkit.document.views import Answer, Cell, Spec, Table, Tone, table
from ncu_toolkit.explain.verdict import extents
from ncu_toolkit.model import Finding, Location

if TYPE_CHECKING:
    from ncu_toolkit.analysis.gate import Comparison, Pair, Side
    from ncu_toolkit.diagnosis.chain import Chain
    from ncu_toolkit.explain.differences import Prediction

#: Kinds of launches, and of incomplete ones, in a digest: more would not fit a page.
DIGEST_TOP: Final = 5
#: What to do about a file that is incomplete.
COPY_AGAIN: Final = "Copy or record it again"
_NAME: Final = 60
_SHARES_ONLY: Final = "Times depend on the GPU, so only shares and ratios are compared."
#: Longest name of a kernel in a command that is to be copied.
_LONGEST_WORD: Final = 200
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Part of a chain's bytes that is handed on from which that is what fusing saves; below it, launches.
_HANDED: Final = 0.1
#: Pairs of one problem that are named.
_NAMED: Final = 3
#: What names in a comparison's table may be cut to: two of them, so that both can be told.
_SHORTEST: Final = 20
#: Kernels that are named where a filter matches none.
_EXISTING: Final = 8
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
) -> Answer:
    """Kinds of launches by time, then what is wrong with the input. Incomplete launches are among
    the latter. `flags`: as `answer`."""
    groups = [group for group in analysis.groups if group.typical.complete]
    names = told_apart([file.path for file in analysis.files])
    kinds = [
        Kind(
            replace(group.typical.card, file=names.get(group.typical.file, "")),
            len(group.launches),
            group.total_us if group.times_us else None,
            group.agreeing,
        )
        for group in groups
    ]
    notes = list(remarks(analysis))
    if len(notes) > most_notes:
        more = f"{len(notes) - most_notes} more like these{'; --format json lists all' if flags else ''}."
        notes = [*notes[:most_notes], more]
    shown = answer(kinds, notes, top or TOP, cards, next_command(analysis), flags=flags)
    if nothing := unmatched(analysis):
        return replace(shown, headline=nothing)
    several = [group.typical for group in groups if len(set(group.typical.inside)) > 1]
    inside = map(_inside, several[: len(shown.cards)])
    return replace(shown, points=tuple(_chained(analysis))[:CARDS], tables=tuple(inside))


def _inside(launch: LaunchResult) -> Table:
    """The kernels of a range or graph that was profiled as one, as they were launched first."""
    columns: tuple[Spec[tuple[str, int]], ...] = (
        Spec("kernel", cell=lambda row: kernel_name(row[0]), numeric=False, code=True),
        Spec("launches", cell=lambda row: units.count(row[1])),
    )
    found = list(Counter(launch.inside).items())
    left = len(found) - TOP
    note = f"{left} more; --format json lists all." if left > 0 else ""
    return table(f"Launches in the {kernel_name(launch.function)}", columns, found[:TOP], note)


def told_apart(paths: Sequence[str]) -> dict[str, str]:
    """What each of several files is called, safe to show: its path below the folder that holds them
    all. Nothing for a single one."""
    places = {path: os.path.abspath(path) for path in paths}
    above = os.path.commonpath([os.path.dirname(place) for place in places.values()] or ["/"])
    return {
        path: visible(os.path.relpath(place, above)) if len(places) > 1 else ""
        for path, place in places.items()
    }


def unmatched(analysis: Analysis, which: str = "") -> str:
    """A line with the kernels that there are, where --kernel matches none of them; else empty."""
    names = [kernel_name(name) for file in analysis.files for name in file.kernels]
    if analysis.launches or not names:
        return ""
    there, more = list(dict.fromkeys(names)), ""
    if len(there) > _EXISTING:
        more = f" and {len(there) - _EXISTING} more"
    which = which or ("the report has" if len(analysis.files) == 1 else "the reports have")
    pattern = visible(analysis.options.kernel, 80)
    return f"no kernel matches '{pattern}'; {which}: {', '.join(there[:_EXISTING])}{more}"


def _chained(analysis: Analysis) -> Iterable[str]:
    """A sentence for each chain of launches in whose place one would do, the one that saves most
    time first."""
    return chained(
        (found, (launches[0].function, launches[-1].function))
        for file in analysis.files
        for found, launches in file.chains
    )


def chained(found: Iterable[tuple[Chain, tuple[str, str]]]) -> Iterable[str]:
    """As `_chained`, of chains with the names of their first and last kernel."""
    for chain, names in sorted(found, key=lambda each: each[0].fused_us - each[0].now_us):
        now, fused = units.duration(chain.now_us), units.duration(chain.fused_us)
        factor = factor_text(chain.now_us / chain.fused_us)
        ends = dict.fromkeys(map(kernel_name, names))
        what = f"{chain.launches} launches of one NVTX range ({' to '.join(ends)}) take {now} with the pauses between them"
        if chain.handed >= _HANDED:
            yield (
                f"{what}. If each reads what the one before wrote, {units.percent(chain.handed, 2)} of their bytes need not move, and one fused "
                f"launch would take about {fused} ({factor}): torch.compile, jax.jit, cupy.fuse, or a kernel for all steps."
            )
        else:
            yield (
                f"{what}, most of which is starting and ending. A single launch for all of it would take about "
                f"{fused} ({factor}). A CUDA graph saves the pauses alone."
            )


def digest(analysis: Analysis, top: int | None = None) -> Answer:
    """As `of_analysis`, of as many kernels and notes as fit a page."""
    most = min(top or DIGEST_TOP, DIGEST_TOP)
    return of_analysis(analysis, top, most, DIGEST_TOP)


def of_finding(launch: LaunchResult, finding: Finding) -> Answer:
    """One finding of a launch: its card, how its gain is predicted, and the figures it rests on."""
    from ncu_toolkit.explain import code, verdict  # `analyze` should not wait for them

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
    """What is not as it should be, with its state: unreadable files, incomplete files and launches,
    contradictory launches; and what a filter left out."""
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
    for group in (group for group in analysis.groups if not group.typical.complete):
        launch = group.typical
        times = f", {len(group.launches)} launches" if len(group.launches) > 1 else ""
        yield f"{visible(launch.status)}: {kernel_name(launch.function)} (launch {launch.key} of {visible(launch.file)}{times})"
    for group in analysis.groups:
        yield from _contradictory(group)
    yield from map(visible, analysis.missed)
    for each in analysis.unused_needs:
        yield f"no launch matches --needs '{visible(str(each), 80)}'"
    filtered = sum(file.filtered_out for file in analysis.files)
    if filtered and not unmatched(analysis):
        others = "1 other launch does" if filtered == 1 else f"{filtered} other launches do"
        yield f"{others} not match --kernel {visible(analysis.options.kernel, 80)}"


def _contradictory(group: Group) -> Iterable[str]:
    """A line for the launches of a kind that hold figures which do not fit together."""
    found = [launch for launch in group.launches if launch.contradictions]
    if found:
        launch = found[0]
        first, *others = launch.contradictions
        more = f" (and {len(others)} more)" if others else ""
        times = f", and {len(found) - 1} more like it" if len(found) > 1 else ""
        which = (
            f"{kernel_name(launch.function)} (launch {launch.key} of {visible(launch.file)}{times})"
        )
        yield f"contradictory: {which}: {visible(first)}{more}. The verdict is less certain"


def next_command(analysis: Analysis) -> str:
    """The command to run next: look closer at the first kernel, or read what could not be
    read. Fit for a shell whatever the names hold."""
    groups = [group for group in analysis.groups if group.typical.complete]
    if not groups:
        broken = next(filter(_readable_in_part, analysis.files), None)
        if broken is None or analysis.options.allow_partial:
            return "ncu-toolkit profile -- <your program>"
        return f"ncu-toolkit analyze --allow-partial {shell_word(broken.path)}"
    launch = groups[0].typical
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
    from ncu_toolkit.explain import differences  # `analyze` should not wait for it

    pairs = comparison.ordered
    shown = next((pair for pair in pairs if not pair.problem and pair.profiled), None)
    headline = _first_line(comparison)
    kernels, rest = _kernels(comparison, shown)
    found = Answer(
        headline=headline,
        kernels=kernels,
        rest=rest,
        notes=tuple(_remarks(comparison, alone=short)),
        verdict=_verdict(comparison),
    )
    if shown is None:
        return found
    before, after = shown.old.representative, shown.new.representative
    assert before is not None
    assert after is not None
    assert shown.old.card is not None
    assert shown.new.card is not None
    cards = (shown.old.card, shown.new.card)
    changed = differences.between(before, after, differences.SHORT if short else None)
    assert shown.time is not None
    times = (shown.time.old, shown.time.new)
    apart = _apart([(pair.old, pair.new) for pair in pairs])
    name = pair_name(shown) + next(
        words for pair, words in zip(pairs, apart, strict=True) if pair is shown
    )
    of_pair = differences.headline(name, *times)
    came = prediction(shown)
    said = differences.told(came, cards[0], cards[1]) if came else ()
    if short:
        noise, verdict = _noise(shown), _bottlenecks(shown)
        spread = f", noise {noise}" if noise.startswith("±") else ""
        label = "Bottleneck" if "→" in verdict else "Bottleneck as before"
        unprofiled = [
            f"Without the profiler: {_time(pair, 0)} → {_time(pair, 1)} ({_change(pair)}, noise {_noise(pair)})."
            for pair in pairs
            if pair.time and not pair.profiled
        ]
        of_pair += spread
        return Answer(
            headline or of_pair,
            points=(
                *([of_pair] if headline else []),
                f"{label}: {verdict} ({cards[1].gain}).",
                *said[:1],  # the line above names the limit that is left
                *unprofiled,
                *changed.points,
            ),
            tables=changed.tables,
            notes=found.notes,
        )
    return replace(
        found,
        headline=headline or of_pair,
        # the command of the old card would compare it with the very report beside it
        cards=(replace(cards[0], next=""), cards[1]),
        labels=("old", "new"),
        points=(*_between(times, cards), *said, *changed.points),
        tables=changed.tables,
        code=changed.code,
    )


def _between(times: Iterable[float], cards: Iterable[Card]) -> Iterable[str]:
    """That a card's time is not the median above it, where that shows."""
    if list(map(units.duration, times)) != [card.time for card in cards]:
        yield "Times are medians of all launches; a card shows one typical launch."


def _first_line(comparison: Comparison) -> str:
    """What has to be known before any pair: that times are of different GPUs, or what became of the
    whole where much of it has no partner. Empty where the pairs say it."""
    from ncu_toolkit.explain import differences

    gpus = [pair.gpus for pair in comparison.pairs if not pair.problem]
    if gpus and all(gpus):
        first = visible(gpus[0])
        return f"{first[:1].upper()}{first[1:]}. {_SHARES_ONLY}"
    if comparison.unpaired and comparison.total:
        return differences.total(comparison.total.times_us, comparison.total.launches)
    return ""


def pair_name(pair: Pair, longest: int = NAME) -> str:
    """The kernel of a pair, safe to show; both names, each shortened by itself, where they
    differ."""
    sides = (pair.old, pair.new)
    names = dict.fromkeys(kernel_name(side.name, longest) for side in sides)
    if len(names) == 1 and longest < NAME:  # one name has the room of both
        return kernel_name(pair.new.name)
    return " → ".join(names)


def _apart(rows: Sequence[tuple[Side, ...]]) -> list[str]:
    """What to add to the name of each row, a side or two, where another has the same: its grid, or
    the block where grids are the same too."""
    names = [tuple(side.name for side in row) for row in rows]
    alike: dict[tuple[str, ...], list[tuple[Side, ...]]] = {}
    for name, row in zip(names, rows, strict=True):
        alike.setdefault(name, []).append(row)
    differs = {name: _differs(held) for name, held in alike.items()}
    return [
        f", {what} {_sizes(row, what)}" if (what := differs[name]) else ""
        for name, row in zip(names, rows, strict=True)
    ]


def _differs(rows: Iterable[tuple[Side, ...]]) -> str:
    """What differs between rows of the same name: "grid", else "block"; empty where neither does."""
    for what in ("grid", "block"):
        sizes = {_sizes(row, what) for row in rows}
        if len(sizes) > 1 and "" not in sizes:
            return what
    return ""


def _sizes(row: tuple[Side, ...], what: str) -> str:
    """`64×64`, `64×64 → 32×32`; empty where a side has no profile."""
    if not all(side.profiles for side in row):
        return ""
    held = (extents(getattr(side.profiles[0].launch, what)) for side in row)
    return " → ".join(dict.fromkeys(held))


def prediction(pair: Pair) -> Prediction | None:
    """What the old side's card predicted, with what the new side achieved; None where the two say
    nothing of each other (`differences.outcome`)."""
    from ncu_toolkit.explain import differences

    if pair.gpus or pair.old.card is None or pair.new.card is None or pair.time is None:
        return None
    return (
        differences.outcome(
            replace(pair.old.card, time_us=pair.time.old),
            replace(pair.new.card, time_us=pair.time.new),
        )
        if pair.time.certain_change < 0
        else None
    )


def comment(comparison: Comparison) -> Answer:
    """A comparison for a pull request: only the kernels that moved, and last a row with what the
    old side differs from itself by, where it has repeats. A kernel moved where its time did beyond
    chance, its bottleneck changed, it fails a gate, or it cannot be compared."""
    failed = {id(failure.pair) for failure in comparison.failures}
    moved = [pair for pair in comparison.ordered if id(pair) in failed or _moved(pair)]
    shown = _pairs(moved) if moved else None
    same = len(comparison.pairs) - len(moved)
    itself = [each for pair in comparison.pairs if (each := pair.against_itself) is not None]
    noise = max(itself, default=None)
    if shown is not None and noise is not None:
        cells = {"kernel": "A/A: old against itself", "change": f"up to {units.percent(noise, 2)}"}
        row = tuple(Cell(cells.get(column.label, "")) for column in shown.columns)
        shown = replace(shown, rows=(*shown.rows, row))
    return Answer(
        headline=_first_line(comparison) or ("" if moved else "No kernel moved."),
        kernels=shown,
        rest=f"{counted(same, 'kernel')} did not move." if moved and same else "",
        notes=tuple(_remarks(comparison)),
        verdict=_verdict(comparison),
    )


def _moved(pair: Pair) -> bool:
    found = pair.time
    if found is None or pair.old.bottleneck != pair.new.bottleneck:
        return True
    return not pair.gpus and bool(found.certain_change)


class _Row(NamedTuple):
    """A row of a comparison's table."""

    kernel: str
    launches: str
    old: str
    new: str
    change: str
    tone: Tone = ""
    noise: str = ""
    bottleneck: str = ""


def _kernels(comparison: Comparison, shown: Pair | None) -> tuple[Table | None, str]:
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
        return _pairs(comparison.ordered, rows), rest
    note = "" if shown is None else f"What follows is of {pair_name(shown)} alone"
    if note and comparison.alone_old:
        note += ", which may now do the work of kernels that are gone"
    many = any(len(side.times_us) > 1 for side, _ in alone) or any(
        len(side.times_us) > 1 for pair in comparison.pairs for side in (pair.old, pair.new)
    )
    notes = ["Times are medians."] if many else []
    notes += [f"{note}."] if note else []
    made = _pairs(comparison.ordered, rows, launches=many)
    return replace(made, note=" ".join(notes)), rest


def _pairs(pairs: Iterable[Pair], more: Iterable[_Row] = (), launches: bool = False) -> Table:
    columns: tuple[Spec[_Row], ...] = (
        Spec(
            "kernel",
            cell=lambda row: row.kernel,
            numeric=False,
            code=True,
            shortest=_SHORTEST,
            name=True,
        ),
        Spec("launches", cell=lambda row: row.launches if launches else "", gives_way=2),
        Spec("old", cell=lambda row: row.old),
        Spec("new", cell=lambda row: row.new),
        Spec("change", cell=lambda row: Cell(row.change, tone=row.tone)),
        Spec("noise", cell=lambda row: row.noise, gives_way=1),
        Spec(
            "bottleneck", cell=lambda row: row.bottleneck, numeric=False, gives_way=3, shortest=12
        ),
    )
    pairs = list(pairs)
    apart = _apart([(pair.old, pair.new) for pair in pairs])
    rows = [_row(pair, words) for pair, words in zip(pairs, apart, strict=True)]
    return table("", columns, [*rows, *more])


def _row(pair: Pair, apart: str) -> _Row:
    counts = dict.fromkeys(str(len(side.times_us)) for side in (pair.old, pair.new))
    return _Row(
        pair_name(pair, _HALF) + apart,
        " → ".join(counts),
        _time(pair, 0),
        _time(pair, 1),
        _change(pair),
        _tone(pair),
        _noise(pair),
        _bottlenecks(pair),
    )


def _alone(side: Side, new: bool, apart: str) -> _Row:
    """The row of a kernel without a partner."""
    time = units.duration(statistics.median(side.times_us)) if side.times_us else ""
    return _Row(
        kernel_name(side.name) + apart,
        str(len(side.times_us)),
        "–" if new else time,
        time if new else "–",
        "new" if new else "gone",
        "strong",
        bottleneck=_titled(side) if side.times_us and side.profiles else "",
    )


def _time(pair: Pair, side: int) -> str:
    found = pair.time
    return units.duration((found.old, found.new)[side]) if found else ""


def _change(pair: Pair) -> str:
    """The change of the time; times of two GPUs have none. Why is in the headline or a note."""
    found = pair.time
    if found is None:
        return "not comparable"
    if pair.gpus:
        return "other GPU"
    return percent(found.change) if found.change != 0 else "="


def _tone(pair: Pair) -> Tone:
    """Whether the time got better or worse, where that is certain."""
    found = pair.time
    if found is None or pair.gpus or not found.certain_change:
        return "strong"
    return "bad" if found.certain_change > 0 else "good"


def percent(change: float | None) -> str:
    """A relative change with its sign; from ten times as much on as a factor, since a percentage would
    have more digits than are known."""
    if change is None:
        return units.NOT_AVAILABLE
    if change >= _FACTOR:
        return units.ratio(1 + change)
    return f"{'+' if change > 0 else ''}{units.percent(change)}"


def _noise(pair: Pair) -> str:
    found = pair.time
    if found is None or pair.gpus:
        return ""
    if not found.noise:
        return "not known"
    return f"± {units.percent(found.noise / found.old, 2)}" if found.old else ""


def _bottlenecks(pair: Pair) -> str:
    old, new = _titled(pair.old), _titled(pair.new)
    return "" if pair.time is None else old if old == new else f"{old} → {new}"


def _titled(side: Side) -> str:
    return side.card.title if side.card else title(side.bottleneck)


def _remarks(comparison: Comparison, alone: bool = True) -> Iterable[str]:
    """What stands in the way, and with `alone` the kernels without a partner, which else are rows
    of the table."""
    for failure in comparison.failures:
        parts = "; ".join(
            f"{visible(_label(d.figure))} {units.quantity(d.old, d.unit)} → {units.quantity(d.new, d.unit)} ({percent(d.change)})"
            for d in failure.differences
        )
        yield f"regression: {pair_name(failure.pair)}: {visible(failure.gate)}: {parts}"
    for reason in comparison.undecided:
        yield f"not decided: {visible(reason)}"
    headline = _first_line(comparison)
    for gpus in dict.fromkeys(visible(pair.gpus) for pair in comparison.pairs if pair.gpus):
        if gpus[1:] not in headline:
            yield f"{gpus}. {_SHARES_ONLY}"
    for problem in dict.fromkeys(pair.problem for pair in comparison.pairs if pair.problem):
        names = [pair_name(pair) for pair in comparison.pairs if pair.problem == problem]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"not comparable: {', '.join(names[:_NAMED])}{more}: {visible(problem)}"
    for which, found in (("old", comparison.only_old), ("new", comparison.only_new)):
        if found and alone:
            shown = ", ".join(kernel_name(name, 40) for name in found[:5])
            yield f"only in the {which}: {shown}{f' and {len(found) - 5} more' if len(found) > 5 else ''}"
    yield from (visible(remark) for remark in comparison.remarks)


def by_hand(comparison: Comparison) -> str:
    """What to give --pair: two kernels that are likely meant, fit for a shell."""
    return shell_word("=".join(comparison.likely)) if comparison.likely else "OLD=NEW"


def _label(figure: str) -> str:
    return "time" if figure == "time" else figures.describe(figure)[1].lower()


def _verdict(comparison: Comparison) -> str:
    """One line: whether the gates hold; without gates, whether there was anything to compare."""
    if not comparison.pairs and comparison.unmatched:
        return f"Nothing to compare: {comparison.unmatched}."
    if not comparison.pairs and comparison.unpaired:
        return f"No kernel is in both reports; --pair {by_hand(comparison)} compares two by hand."
    if not comparison.pairs:
        return "Nothing to compare: the reports have no kernel in common."
    if comparison.failures:
        return f"{counted(len(comparison.failures), 'regression')}."
    if comparison.compared < len(comparison.pairs):
        found = (
            f"{comparison.compared} of {counted(len(comparison.pairs), 'kernel')} could be compared"
        )
    else:
        found = f"{counted(len(comparison.pairs), 'kernel')} compared"
    if not comparison.gates:
        return "" if comparison.compared == len(comparison.pairs) else f"{found}."
    return f"{found}: {'no regression' if comparison.comparable else 'no regression in what could be compared'}."
