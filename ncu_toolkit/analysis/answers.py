"""An analysis and a comparison as answers: the values that every writer shows."""

from __future__ import annotations

import ntpath
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ncu_toolkit.analysis.analyze import Analysis, Group, LaunchResult
from ncu_toolkit.core import units
from ncu_toolkit.core.safe import shell_word, visible
from ncu_toolkit.core.units import counted
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.diagnosis.rules import title
from ncu_toolkit.explain.answer import (
    CARDS,
    TOP,
    Answer,
    Cell,
    Column,
    Kind,
    Table,
    Tone,
    answer,
    table,
)
from ncu_toolkit.explain.card import factor_text
from ncu_toolkit.model import Finding, Location

if TYPE_CHECKING:
    from ncu_toolkit.analysis.gate import Comparison, Pair, Side

#: Kinds of launches, and of incomplete ones, in a digest: more would not fit a page.
DIGEST_TOP: Final = 5
#: What to do about a file that is incomplete.
COPY_AGAIN: Final = "Copy or record it again"
_NAME: Final = 60
#: Longest name of a kernel in a command that is to be copied.
_LONGEST_WORD: Final = 200
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Part of a chain's bytes that is handed on from which that is what fusing saves; below it, launches.
_HANDED: Final = 0.1
#: Pairs of one problem that are named.
_NAMED: Final = 3


def of_analysis(
    analysis: Analysis, top: int | None = None, cards: int = CARDS, most_notes: int = TOP
) -> Answer:
    """Kinds of launches by time, then what is wrong with the input. Incomplete launches are among
    the latter."""
    groups = [group for group in analysis.groups if group.median.complete]
    kinds = [
        Kind(
            group.median.card,
            len(group.launches),
            group.total_us if group.times_us else None,
            group.agreeing,
            group.median.file,
        )
        for group in groups
    ]
    notes = list(remarks(analysis))
    if len(notes) > most_notes:
        more = f"{len(notes) - most_notes} more like these; --format json lists all."
        notes = [*notes[:most_notes], more]
    shown = answer(kinds, notes, top or TOP, cards, next_command(analysis))
    return replace(shown, points=tuple(_chained(analysis))[:CARDS])


def _chained(analysis: Analysis) -> Iterable[str]:
    """A sentence for each chain of launches in whose place one would do, the one that saves most
    time first."""
    found = [each for file in analysis.files for each in file.chains]
    found.sort(key=lambda each: each[0].fused_us - each[0].now_us)
    for chain, launches in found:
        now, fused = units.duration(chain.now_us), units.duration(chain.fused_us)
        factor = factor_text(chain.now_us / chain.fused_us)
        ends = dict.fromkeys(visible(each.function, _NAME) for each in (launches[0], launches[-1]))
        what = f"{len(launches)} launches of one NVTX range ({' to '.join(ends)}) take {now} with the pauses between them"
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
    columns: tuple[Column[tuple[Finding, Location]], ...] = (
        Column("finding", lambda row: row[0].bottleneck, numeric=False),
        Column("line", lambda row: _place(row[1]), numeric=False, code=True),
        Column("instruction", lambda row: visible(row[1].sass, _NAME), numeric=False, code=True),
        Column("share", lambda row: units.percent(row[1].share, 2)),
        Column("of", lambda row: row[1].what, numeric=False),
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
            yield f"unreadable in part: {visible(file.path)}: {file.read} of at least {file.declared} launches could be read: {visible(file.damage)}"
        if file.missing:
            yield f"incomplete: {visible(file.path)}: {visible(file.missing)}. {COPY_AGAIN}"
    for group in (group for group in analysis.groups if not group.median.complete):
        launch = group.median
        times = f", {len(group.launches)} launches" if len(group.launches) > 1 else ""
        yield f"{visible(launch.status)}: {visible(launch.function, _NAME)} (launch {launch.key} of {visible(launch.file)}{times})"
    for group in analysis.groups:
        yield from _contradictory(group)
    yield from map(visible, analysis.missed)
    for each in analysis.unused_needs:
        yield f"no launch matches --needs '{visible(str(each), 80)}'"
    filtered = sum(file.filtered_out for file in analysis.files)
    if filtered:
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
        which = f"{visible(launch.function, _NAME)} (launch {launch.key} of {visible(launch.file)}{times})"
        yield f"contradictory: {which}: {visible(first)}{more}. The verdict is less certain"


def next_command(analysis: Analysis) -> str:
    """The command to run next: look closer at the first kernel, or read what could not be
    read. Fit for a shell whatever the names hold."""
    groups = [group for group in analysis.groups if group.median.complete]
    if not groups:
        broken = next((file for file in analysis.files if file.error or file.lacking), None)
        if broken is None:
            return "ncu-toolkit profile -- <your program>"
        return f"ncu-toolkit analyze --allow-partial {shell_word(broken.path)}"
    launch = groups[0].median
    plain = len(launch.function) <= _LONGEST_WORD and _PLAIN_NAME.fullmatch(launch.function)
    name = f" --kernel {launch.function}" if plain else " --top 1"
    return f"ncu-toolkit analyze {shell_word(launch.file)}{name} --format html"


def of_comparison(comparison: Comparison, short: bool = False) -> Answer:
    """Every pair in a table, then the cards of the pair whose time moved most and what changed
    between them. The short form has only that pair's times, verdicts, and the causes, stalls,
    figures and lines that moved most."""
    from ncu_toolkit.explain import differences  # `analyze` should not wait for it

    pairs = comparison.ordered
    shown = next((pair for pair in pairs if not pair.problem and pair.profiled), None)
    found = Answer(
        headline="",
        kernels=_pairs(pairs) if pairs else None,
        notes=tuple(_remarks(comparison)),
        verdict=_verdict(comparison),
    )
    if shown is None:
        return found
    before, after = shown.old.representative, shown.new.representative
    cards = (shown.old.card, shown.new.card)
    assert before is not None
    assert after is not None
    assert cards[0] is not None
    assert cards[1] is not None
    changed = differences.between(before, after, differences.SHORT if short else None)
    if short:
        noise, verdict = _noise(shown), _bottlenecks(shown)
        spread = f", noise {noise}" if noise.startswith("±") else ""
        label = "Bottleneck" if "→" in verdict else "Bottleneck as before"
        unprofiled = [
            f"Without the profiler: {_time(pair, 0)} → {_time(pair, 1)} ({_change(pair)}, noise {_noise(pair)})."
            for pair in pairs
            if pair.time and not pair.profiled
        ]
        return Answer(
            differences.headline(visible(shown.name, _NAME), before, after) + spread,
            points=(f"{label}: {verdict} ({cards[1].gain}).", *unprofiled, *changed.points),
            tables=changed.tables,
            notes=found.notes,
        )
    return replace(
        found,
        headline=differences.headline(visible(shown.name, _NAME), before, after),
        # the command of the old card would compare it with the very report beside it
        cards=(replace(cards[0], next=""), cards[1]),
        labels=("old", "new"),
        points=changed.points,
        tables=changed.tables,
        code=changed.code,
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
        headline="" if moved else "No kernel moved.",
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


def _pairs(pairs: Iterable[Pair]) -> Table:
    columns: tuple[Column[Pair], ...] = (
        Column("kernel", lambda pair: visible(pair.name, _NAME), numeric=False, code=True),
        Column("old", lambda pair: _time(pair, 0), gives_way=3),
        Column("new", lambda pair: _time(pair, 1)),
        Column("change", _change, tone=_tone),
        Column("noise", _noise, gives_way=2),
        Column("bottleneck", _bottlenecks, numeric=False, gives_way=1),
    )
    return table("", columns, pairs)


def _time(pair: Pair, side: int) -> str:
    found = pair.time
    return units.duration((found.old, found.new)[side]) if found else ""


def _change(pair: Pair) -> str:
    """The change of the time; of two GPUs its ratio. Why there is none is in the notes."""
    found = pair.time
    if found is None:
        return "not comparable"
    return units.ratio(found.new / found.old) if pair.gpus and found.old else percent(found.change)


def _tone(pair: Pair) -> Tone:
    """Whether the time got better or worse, where that is certain."""
    found = pair.time
    if found is None or pair.gpus or not found.certain_change:
        return "strong"
    return "bad" if found.certain_change > 0 else "good"


def percent(change: float | None) -> str:
    """A relative change with its sign."""
    if change is None:
        return units.NOT_AVAILABLE
    return f"{'+' if change > 0 else ''}{units.percent(change)}"


def _noise(pair: Pair) -> str:
    found = pair.time
    if found is None or pair.gpus:
        return ""
    if not found.noise:
        return "not known"
    return f"± {units.percent(found.noise / found.old, 2)}" if found.old else ""


def _bottlenecks(pair: Pair) -> str:
    old, new = (_titled(side) for side in (pair.old, pair.new))
    return "" if pair.time is None else old if old == new else f"{old} → {new}"


def _titled(side: Side) -> str:
    return side.card.title if side.card else title(side.bottleneck)


def _remarks(comparison: Comparison) -> Iterable[str]:
    for failure in comparison.failures:
        parts = "; ".join(
            f"{visible(_label(d.figure))} {units.quantity(d.old, d.unit)} → {units.quantity(d.new, d.unit)} ({percent(d.change)})"
            for d in failure.differences
        )
        yield f"regression: {visible(failure.pair.name, _NAME)}: {visible(failure.gate)}: {parts}"
    for reason in comparison.undecided:
        yield f"not decided: {visible(reason)}"
    for gpus in dict.fromkeys(pair.gpus for pair in comparison.pairs if pair.gpus):
        yield f"{visible(gpus)}. Only shares and ratios are compared, since times depend on the GPU."
    for problem in dict.fromkeys(pair.problem for pair in comparison.pairs if pair.problem):
        names = [visible(pair.name, _NAME) for pair in comparison.pairs if pair.problem == problem]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"not comparable: {', '.join(names[:_NAMED])}{more}: {visible(problem)}"
    for which, alone in (("old", comparison.only_old), ("new", comparison.only_new)):
        if alone:
            shown = ", ".join(visible(name, 40) for name in alone[:5])
            yield f"only in the {which}: {shown}{f' and {len(alone) - 5} more' if len(alone) > 5 else ''}"
    yield from (visible(remark) for remark in comparison.remarks)


def _label(figure: str) -> str:
    return "time" if figure == "time" else figures.describe(figure)[1].lower()


def _verdict(comparison: Comparison) -> str:
    """One line: whether the gates hold; without gates, whether there was anything to compare."""
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
