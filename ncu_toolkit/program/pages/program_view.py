"""The page of a program's step: where its time goes as one picture, what would save some of it, and
every kernel. Times are in microseconds."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.cache import without_collector
from ncu_toolkit.base.core.files import make_folder, write_atomic
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.shares import summed
from ncu_toolkit.base.core.units import counted
from ncu_toolkit.base.document.card import (
    BarKind,
    BarRow,
    Icicle,
    Segment,
    Tile,
    in_the_middle,
    whole_percent,
)
from ncu_toolkit.base.document.tables import Cell, Spec, Table, number, table, text, without_empty
from ncu_toolkit.base.document.views import BarChart, Fact, FindingView, Fold, ProgramView
from ncu_toolkit.base.model.run import Run
from ncu_toolkit.base.render.html import program_page
from ncu_toolkit.kernel.diagnosis.engine import diagnose
from ncu_toolkit.kernel.diagnosis.glossary import definitions
from ncu_toolkit.kernel.explain.sections import spec, verdict_cell
from ncu_toolkit.kernel.pages.book import Book, open_book
from ncu_toolkit.kernel.pages.page_view import (
    NOT_FOUND,
    considered_table,
    evidence_table,
    page_view,
)
from ncu_toolkit.kernel.pages.run_view import GROUPS_SHOWN
from ncu_toolkit.program.explain import program
from ncu_toolkit.program.explain.ranks import job_answer
from ncu_toolkit.program.explain.strip import strip_of
from ncu_toolkit.program.model import (
    AccountPart,
    MarkKind,
    Op,
    ProgramDiagnosis,
    StepFinding,
    Trace,
)
from ncu_toolkit.program.traces.choice import LaunchGroup, groups
from ncu_toolkit.program.traces.classes import kernel_class
from ncu_toolkit.program.traces.marks import marks_around, range_name
from ncu_toolkit.program.traces.ranks import Job

#: Tiles narrower than this part of the step are shown as one: a pixel of a wide screen.
_LEAST: Final = 1e-3
#: Tiles of a picture: of more, those that are narrower are shown as one.
_TILES: Final = 220
#: Launches that the page can list one by one.
_ORDERED: Final = 20_000
#: A level of ranges, lines or operators is shown where it names this part of the busy time.
_NAMED: Final = 0.2
#: A mark that holds this part of a step's work is the step.
_WHOLE: Final = 0.95
#: Characters of a name on a tile.
_NAME: Final = 60
_IDLE: Final = "idle"
#: One colour for each class of kernels.
COLOURS: Final = {
    "product": "#0072b2", "convolution": "#4b63c4", "attention": "#56b4e9", "fused": "#3f9fa8",
    "elementwise": "#009e73", "norm": "#7fb03c", "softmax": "#c9a800", "loss": "#b59a3c",
    "reduction": "#e69f00", "layout": "#cc79a7", "optimizer": "#d55e00", "random": "#8f7bc2",
    "fill": "#8f7bc2", "index": "#a8719e", "sort": "#a8719e", "fft": "#56b4e9", "pool": "#e69f00", "collective": "#a6761d",
    "resample": "#e69f00", "solver": "#4b63c4",
    "copy": "#7c5a3c", "set": "#7c5a3c",
}  # fmt: skip
_GREY: Final = "#8a8f98"
#: What PyTorch writes before the name of an operator's gradient.
_BACKWARD: Final = "autograd::engine::evaluate_function: "
#: What is counted of a kind.
_NOUNS: Final = {
    _IDLE: ("gap",), "copy": ("copy", "copies"), "set": ("set of memory", "sets of memory"),
    "": ("operation",),
}  # fmt: skip


def write_program_page(
    found: ProgramDiagnosis,
    output: Path,
    known: program.Known | None = None,
    name: str = "",
    job: Job | None = None,
) -> Path:
    """Write the page of a program's step as one file that needs nothing else; returns `output`.

    Args:
        known: the verdicts that reports give of its kernels, by place in `Trace.shapes`: the page
            holds a page of each.
        name: the trace's file, by which the page is called where the program is not known.
        job: the job of which the step is one rank's.

    Raises:
        EnvironmentProblem: the disk cannot be written.
    """
    make_folder(output.parent)
    with without_collector():
        view = program_view(found, known, name)
        page = program_page(view if job is None else _of_job(view, job), definitions())
    write_atomic(output, page.encode("utf-8", "backslashreplace"))
    return output


def _of_job(view: ProgramView, job: Job) -> ProgramView:
    """The page of one rank's step as that of its job: the job's answer first, then that rank."""
    answer = job_answer(job)
    title, *facts = answer.headline.split(" · ")
    others = (f"{card.title}: {card.gain}. {card.summary}" for card in answer.cards[1:])
    whose = f"Below is the step of rank {job.shown[0][0]}."
    tables = tuple(("table", each) for each in answer.tables)
    ranks = Fold("ranks", "Ranks of the job", whose, tables, open=True)
    return replace(
        view, title=title, facts=tuple(facts), whole=f"{view.whole} of rank {job.shown[0][0]}", card=answer.cards[0], folds=(ranks, *view.folds),
        remarks=(*others, *answer.points, *view.remarks),
    )  # fmt: skip


def program_view(
    found: ProgramDiagnosis, known: program.Known | None = None, name: str = ""
) -> ProgramView:
    """What the page of a program's step shows. It is called by the program, else by the trace's file
    `name`."""
    step, account, trace = found.step, found.account, found.step.trace
    book = _book(found, known or {})
    linked = {at: book.page(profile) for at, (profile, _) in (known or {}).items()}
    costly = found.costly
    saved = _savings(found)
    good = [each for each in found.findings if each.good]
    parts = {part.key: part for part in account.parts}
    kinds = {}
    for key, part in parts.items():
        label = "idle" if key.startswith(_IDLE) else visible(part.label)
        kinds[_kind(key)] = BarKind(label, COLOURS.get(key, _GREY))
    first, *facts = program.headline(found).split(" · ")
    rows = groups(step, account)
    launches = _launches(found, rows, known or {}, linked, book, saved[0])
    titles = tuple(program.title_of(found, each) for each in costly)
    # each finding has its own strip
    answer = program.program_answer(msgspec.structs.replace(found, times=None), known)
    card = answer.cards[0]
    whom, saves = card.then[-1][:2] if len(costly) > 1 and found.together_us > 0 else ("", "")
    if name and not trace.program:
        first, facts = visible(name), [first, *facts]
    return ProgramView(
        first[:1].upper() + first[1:] if not (name or trace.program) else first,
        tuple([*facts, visible(name)] if name and trace.program else facts),
        found.step.word,
        card,
        Icicle(_tiles(found, saved, parts, linked), kinds, titles),
        tuple(_finding(found, each) for each in (*costly, *good)),
        f"{whom[:1].upper()}{whom[1:]}: {saves}" if saves else "",
        strip_of(found, costly, "all fixes") if saves else None,
        _account(found, kinds),
        launches,
        _order(found, rows, linked),
        tuple(_folds(found)),
        (*program.of_run(found), *answer.points, program.lacking(trace)),
        tuple(map(visible, trace.notes)),
        tuple(page_view(book, profile) for profile in book.run.profiles),
    )


def _book(found: ProgramDiagnosis, known: program.Known) -> Book:
    """The launches that reports tell of."""
    profiles = tuple({id(profile): profile for profile, _ in known.values()}.values())
    trace = found.step.trace
    run = Run(
        "program", visible(trace.program) or "program", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), live=False,
        device=trace.devices[0], profiles=profiles,
    )  # fmt: skip
    return open_book(run, diagnose, verdicts=known.values())


# ---- the picture ---------------------------------------------------------------------------------


#: A step of the way from the whole to an operation: a name, a kind, and what it is, where its name
#: does not tell.
_Part = tuple[str, str, str]
#: By place, the part (0-1) that each finding saves of it at most, by its place among the costly ones.
_Saved = dict[int, dict[int, float]]


@dataclass
class _Node:
    """A part of the step: its time, and what each cause would save of it."""

    kind: str = ""
    us: float = 0.0
    count: int = 0
    saved: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    within: dict[str, _Node] = field(default_factory=dict)
    pages: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    what: str = ""
    name: str = ""

    def take(self, us: float, count: int, saved: Iterable[tuple[int, float]]) -> None:
        self.us += us
        self.count += count
        for cause, part in saved:
            self.saved[cause] += us * part


def _tiles(
    found: ProgramDiagnosis,
    saved_of: tuple[_Saved, _Saved],
    parts: Mapping[str, AccountPart],
    linked: Mapping[int, str],
) -> tuple[Tile, ...]:
    step, account, trace = found.step, found.account, found.step.trace
    of_op, of_gap = saved_of
    # what has one path and one saving is added up first: a run may have 100,000 launches
    sums: dict[tuple[Any, ...], list[float]] = {}

    def add(path: tuple[_Part, ...], us: float, saved: Mapping[int, float], page: str = "") -> None:
        held = sums.setdefault((path, tuple(saved.items()), page), [0.0, 0])
        held[0] += us
        held[1] += 1

    places = _places(found)
    works: dict[tuple[Any, ...], tuple[_Part, _Part]] = {}
    for at, op in enumerate(step.ops):
        alike = (op.kind, op.shape, op.path, op.pinned)
        if alike not in works:
            works[alike] = _work(op, trace, parts)
        path = (*places[at], *works[alike])
        add(path, account.exclusive_us[at], of_op.get(at, {}), linked.get(op.shape, ""))
    for at, gap in enumerate(account.gaps):
        label = visible(parts[gap.key].label) if gap.key in parts else gap.cause
        label = label.removeprefix("Idle: ")
        called = trace.names[trace.calls[gap.call].name] if gap.call >= 0 else ""
        place = program.line_of(trace, gap.call) or called
        idle: list[_Part] = [("GPU idle", _IDLE, ""), (label[:1].upper() + label[1:], _IDLE, "")]
        idle += [(visible(place, _NAME), _IDLE, "")] if place else []
        add(tuple(idle), gap.us, of_gap.get(at, {}))
    root = _Node(name=found.step.word)
    for (path, saved, page), (us, count) in sums.items():
        node = root
        node.take(us, int(count), saved)
        for name, kind, what in path:
            node = node.within.setdefault(name, _Node(kind, what=what, name=name))
            node.take(us, int(count), saved)
        if page:
            node.pages[page] += us
    least = _LEAST
    while len(tiles := tuple(_laid(root, root.us, found.costly, least))) > _TILES:
        least *= 1.5
    return tiles


def _laid(
    node: _Node,
    whole: float,
    costly: Sequence[StepFinding],
    least: float,
    level: int = 0,
    start: float = 0.0,
) -> Iterator[Tile]:
    """The tile of a node, then those within it, most time first and idle time last."""
    part = node.us / whole if whole else 0.0
    time_, share = units.duration(node.us), units.percent(part, 2)
    parts = [node.name, *([node.what] if node.what else [])]
    figures = f"{time_}, {share}" if level else time_
    figures += f", {counted(node.count, *_NOUNS.get(node.kind, ('launch',)))}"
    best = [(us, cause) for cause, us in node.saved.items() if us > 0]
    for us, cause in sorted(best, reverse=True)[:2]:
        figures += f". {visible(costly[cause].title)}: at most {units.duration(us)} of it"
    yield Tile(
        node.name, f"{time_} · {share}" if level else time_, level, start, part, f"{' · '.join(parts)}: {figures}",
        node.kind, tuple(min(1.0, node.saved[at] / node.us) for at in range(len(costly))) if best else (),
        max(node.pages, key=node.pages.__getitem__, default="") if not node.within else "",
    )  # fmt: skip
    last = _IDLE if not level else None
    within = sorted(node.within.values(), key=lambda each: (each.kind == last, -each.us))
    small = [each for each in within if each.us < least * whole]
    if len(small) > 1:
        within = [each for each in within if each.us >= least * whole]
        rest = _Node(small[0].kind if len({each.kind for each in small}) == 1 else "")
        rest.name, rest.count = f"{len(small)} more", sum(each.count for each in small)
        rest.us = sum(each.us for each in small)
        rest.saved = summed(pair for each in small for pair in each.saved.items())
        rest.what = units.shortlist([each.name for each in small], 3)
        within.append(rest)
    for each in within:
        yield from _laid(each, whole, costly, least, level + 1, start)
        start += each.us / whole if whole else 0.0


def _savings(found: ProgramDiagnosis) -> tuple[_Saved, _Saved]:
    """What each finding saves of operations, and of gaps."""
    of_op, of_gap, account = _Saved(), _Saved(), found.account
    for at, each in enumerate(found.costly):
        whole = sum(account.exclusive_us[op] for op in each.ops)
        whole += sum(account.gaps[gap].us for gap in each.gaps)
        part = min(1.0, each.ceiling_us / whole) if whole else 0.0
        for op in each.ops:
            of_op.setdefault(op, {})[at] = part
        for gap in each.gaps:
            of_gap.setdefault(gap, {})[at] = part
    return of_op, of_gap


def _kind(key: str) -> str:
    return _IDLE if key.startswith(_IDLE) else re.sub(r"\W", "-", key)


def _work(op: Op, trace: Trace, parts: Mapping[str, AccountPart]) -> tuple[_Part, _Part]:
    """The tiles of an operation's class and of itself."""
    key = kernel_class(trace.shapes[op.shape]).id if op.kind == "kernel" else op.kind
    label = visible(parts[key].label) if key in parts else key
    if op.kind == "kernel":
        name = program.label_of(trace.shapes[op.shape])
    else:
        memory = {True: ", pinned", False: ", pageable", None: ""}[op.pinned]
        name = f"{visible(op.path) or op.kind}{memory}"
    return (label, _kind(key), ""), (name, _kind(key), "")


def _places(found: ProgramDiagnosis) -> list[tuple[_Part, ...]]:
    """Of each operation of the step the ranges and the lines that launched it."""
    step, trace = found.step, found.step.trace
    lines = [visible(program.line_of(trace, op.call), _NAME) for op in step.ops]
    levels = [("NVTX range", "no range", _marked(found, "range")), ("", "no line", lines)]
    if not any(lines):
        levels.append(("operator", "no operator", _marked(found, "operator")))
    busy = sum(found.account.exclusive_us)
    kept = []
    for what, none, names in levels:
        named = sum(us for us, name in zip(found.account.exclusive_us, names, strict=True) if name)
        if named and named >= _NAMED * busy:
            kept.append([(name or none, "", what if name else "") for name in names])
    return list(zip(*kept, strict=True)) if kept else [()] * len(lines)


def _marked(found: ProgramDiagnosis, kind: MarkKind) -> list[str]:
    """The outermost mark of a kind in which the host queued each operation, without marks that hold
    the whole step; empty where there is none."""
    step, trace = found.step, found.step.trace
    calls = [trace.calls[op.call] if op.call >= 0 else None for op in step.ops]
    marks = sorted((x for x in trace.marks if x.kind == kind), key=lambda x: (x.start, -x.end))
    chains = marks_around(calls, marks)
    held = Counter(mark for chain in chains for mark in chain)
    outer = (next((x for x in chain if held[x] < _WHOLE * len(calls)), None) for chain in chains)
    names = [range_name(trace.names[mark.name]) if mark else "" for mark in outer]
    if kind == "operator":  # without the shapes of its inputs
        names = [name.removeprefix(_BACKWARD).partition(" [")[0] for name in names]
    return [visible(name, _NAME) for name in names]


# ---- what would save time ------------------------------------------------------------------------


def _finding(found: ProgramDiagnosis, each: StepFinding) -> FindingView:
    wall, times = found.account.wall_us, program.line_times(found, each)
    part = each.ceiling_us / wall if wall and not each.good else None

    def share(line: str) -> Cell:
        return number(times[line] / wall if wall and line in times else None, "fraction", none)

    none = "it launches nothing of this, or the cost is idle time"
    specs: list[Spec[str]] = [
        spec("Line", lambda line: text(line, code=True), words=True),
        spec("Time", lambda line: number(times.get(line), "us", none)),
        spec("Share", share, f"of the {found.step.word}"),
    ]
    return FindingView(
        program.title_of(found, each), visible(each.summary), each.confidence, each.good,
        Cell(program.saving(each, found), each.ceiling_us, bar=part), tuple(map(visible, each.arithmetic)),
        program.steps_of(each), "", evidence_table(each.evidence, "Evidence"),
        table("Where", specs, each.where, key="where") if each.where else None, each.rule,
        None if each.good else strip_of(found, [each], "this fix"), program.tested_text(found, each),
    )  # fmt: skip


def _account(found: ProgramDiagnosis, kinds: Mapping[str, BarKind]) -> BarChart:
    """The parts of the step's time, which add up to it, as a bar and as a table."""
    account = found.account
    wall = account.wall_us

    def label(part: AccountPart) -> str:
        part_of = units.percent(account.share(part.us), 2)
        return f"{visible(part.label)}: {units.duration(part.us)}, {part_of}"

    shares = summed((_kind(part.key), account.share(part.us)) for part in account.parts)
    ranked = sorted(account.parts, key=lambda part: (part.key.startswith(_IDLE), -part.us))
    busy = [part for part in account.parts if not part.key.startswith(_IDLE)]
    idle = wall - sum(part.us for part in busy)
    summary = f"{units.duration(wall)}: the GPU works for {units.duration(wall - idle)} and idles for {units.duration(idle)}."
    total = AccountPart("", f"The {found.step.word}", sum(part.us for part in account.parts), 0)
    specs: list[Spec[AccountPart]] = [
        spec("Part", lambda part: text(part.label, tone="" if part.key else "strong"), words=True),
        spec("Time", lambda part: number(part.us, "us")),
        spec("Share", lambda part: number(account.share(part.us), "fraction", bar=account.share(part.us))),
        spec("Count", lambda part: Cell(units.count(part.count) if part.key else "", part.count), "launches, copies or gaps"),
    ]  # fmt: skip
    word, asked = found.step.word, f"What does the {found.step.word}'s time add up to?"
    shown = {
        key: replace(kinds[key], words=f"{kinds[key].words} {whole_percent(shares[key])}")
        for key in sorted(shares, key=lambda key: (key == _IDLE, -shares[key]))
    }
    bars = (
        Segment(_kind(part.key), (account.share(part.us) * 100,), label(part)) for part in ranked
    )
    row = BarRow(word, (units.duration(wall),), tuple(bars))
    listed = table(f"Parts of the {word}", specs, (*account.parts, total), key="parts")
    return BarChart("account", asked, "", summary, shown, ("", "", "", ""), (row,), listed)


# ---- every kernel --------------------------------------------------------------------------------


def _launches(
    found: ProgramDiagnosis,
    rows: Sequence[LaunchGroup],
    known: program.Known,
    linked: Mapping[int, str],
    book: Book,
    of_op: _Saved,
) -> Table | None:
    if not rows:
        return None
    trace, shapes, share = found.step.trace, found.step.trace.shapes, found.account.share

    def name(group: LaunchGroup) -> Cell:
        kernel = shapes[group.shape]
        shown = program.label_of(kernel)
        return Cell(shown, shown, in_the_middle(visible(kernel.kernel), 160), linked.get(group.shape, ""), code=True)  # fmt: skip

    lines = [program.line_of(trace, op.call) for op in found.step.ops]
    by = "line" if any(lines) else "operator"
    callers = lines if by == "line" else _marked(found, "operator")

    def verdict(group: LaunchGroup) -> Cell:
        seen = known.get(group.shape)
        return verdict_cell(book.card(seen[0])) if seen else Cell("not profiled", tone="muted")

    causes = {id(group): _cause(found, of_op, group) for group in rows[:GROUPS_SHOWN]}

    def us(group: LaunchGroup) -> Cell:
        us, why = causes[id(group)][1], "nothing found that would save some of it"
        return number(us, "us") if us else Cell("–", None, why, tone="muted")

    specs: list[Spec[LaunchGroup]] = [
        Spec("kernel", "Kernel", numeric=False, cell=name),
        Spec("time", "Time", "which it alone accounts for", cell=lambda group: number(group.us, "us")),
        Spec("share", "Share", f"of the {found.step.word}", cell=lambda group: number(share(group.us), "fraction", bar=share(group.us))),
        Spec("launches", "Launches", f"in one {found.step.word}, with the same grid and block", cell=lambda group: number(len(group.ops), "count")),
        Spec("class", "Class", numeric=False, cell=lambda group: text(kernel_class(shapes[group.shape]).label)),
        Spec(by, by.capitalize(), "that launches most of them", numeric=False, cell=lambda group: _caller(found, callers, group)),
        Spec("bottleneck", "Verdict", "by the counters of a report", numeric=False, cell=verdict),
        Spec("saves", "To save", "of its time, at most, by that finding alone", cell=us),
        Spec("cause", "What would save time", "the finding that saves most of it", numeric=False, cell=lambda group: text(causes[id(group)][0])),
        Spec("grid", "Grid", numeric=False, cell=lambda group: text(" × ".join(map(str, shapes[group.shape].grid or ())))),
        Spec("block", "Block", numeric=False, cell=lambda group: text(" × ".join(map(str, shapes[group.shape].block or ())))),
    ]  # fmt: skip

    left, title = len(rows) - GROUPS_SHOWN, f"Kernels of the {found.step.word}"
    note = f"{left} more kinds of launches are not listed." if left > 0 else ""
    made = table(title, specs, rows[:GROUPS_SHOWN], note, key="launches")
    lacks = {"grid", "block"} if "shapes" in trace.lacks else set()
    lacks |= set() if any(group.shape in known for group in rows) else {"bottleneck"}
    shown = without_empty(made).only(lambda _, column: column.key not in lacks)
    return replace(shown, sortable=True)


def _caller(found: ProgramDiagnosis, callers: Sequence[str], group: LaunchGroup) -> Cell:
    """The line or operator that launches most of them, by time."""
    times = summed((callers[at], found.account.exclusive_us[at]) for at in group.ops)
    most, others = max(times, key=times.__getitem__), len(times) - 1
    return text(f"{most} and {others} more" if others else most, code=True)


def _cause(found: ProgramDiagnosis, of_op: _Saved, group: LaunchGroup) -> tuple[str, float]:
    """The finding that saves most of a kind of launch, and how much."""
    own = ((at, *each) for at in group.ops for each in of_op.get(at, {}).items())
    times = summed((each, part * found.account.exclusive_us[at]) for at, each, part in own)
    which, us = max(times.items(), key=lambda item: item[1], default=(-1, 0.0))
    return (program.title_of(found, found.costly[which]), us) if us else ("", 0.0)


def _order(
    found: ProgramDiagnosis, rows: Sequence[LaunchGroup], linked: Mapping[int, str]
) -> dict[str, Any]:
    """Each launch of the step in its order, as `in_order` has those of a report; none of more than
    _ORDERED."""
    ops, account = found.step.ops, found.account
    row_of = {at: row for row, group in enumerate(rows[:GROUPS_SHOWN]) for at in group.ops}
    shown = sorted(row_of) if len(row_of) <= _ORDERED else []
    ranges = _marked(found, "range")
    names = {name: at for at, name in enumerate(dict.fromkeys(ranges[at] for at in shown))}
    streams = [ops[at].stream for at in shown]
    return {
        "row": [row_of[at] for at in shown],
        "place": list(range(len(shown))),
        "us": [float(f"{account.exclusive_us[at]:.4g}") for at in shown],
        "page": [linked.get(ops[at].shape, "").removesuffix(".html") for at in shown],
        "range": [names[ranges[at]] for at in shown],
        "ranges": list(names) if any(names) else [],
        "stream": streams if len(set(streams)) > 1 else [],
    }


# ---- what else is known --------------------------------------------------------------------------


def _folds(found: ProgramDiagnosis) -> Iterable[Fold]:
    step, trace = found.step, found.step.trace
    ruled = found.considered
    if ruled:
        skipped = sum(each.outcome == "abstained" for each in ruled)
        line = f"{counted(len(ruled) - skipped, 'cause')} ruled out"
        line += f", {skipped} not judged for lack of data" if skipped else ""
        shown = considered_table("Cause", lambda rule: text(rule.replace("-", " ")), ruled)
        yield Fold("ruled-out", NOT_FOUND, line, (("bare", shown),))
    times = sorted(window.us for window in step.windows)
    facts = [
        Fact("Recorded by", text(trace.source)),
        Fact("How the step was found", text(step.description)),
        Fact("Steps seen", text(f"{len(times)}, {units.duration(times[0])} to {units.duration(times[-1])}")),
        Fact("Devices", text(", ".join(dict.fromkeys(device.name for device in trace.devices)))),
        Fact("Not recorded", text(", ".join(trace.lacks))),
    ]  # fmt: skip
    line = "what recorded it, and how its step was found"
    known = ("facts", [fact for fact in facts if fact.cell.text])
    yield Fold("how", "How this was made", line, (known,))
