"""Two traces of a program, before and after a change: how its step differs, where that time went, and
what was predicted of it. Steps are the samples by which `gate` tells a change from chance."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.errors import InputProblem
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.core.shares import summed
from ncu_toolkit.base.document.card import whole_percent
from ncu_toolkit.base.document.tables import Cell, Spec, Table, Tone, table
from ncu_toolkit.base.document.views import Answer, BarChart
from ncu_toolkit.kernel.analysis import answers, gate
from ncu_toolkit.kernel.diagnosis.rules import load_rules
from ncu_toolkit.kernel.explain import differences
from ncu_toolkit.program.analysis.program import Programs, TraceResult
from ncu_toolkit.program.explain import program
from ncu_toolkit.program.model import Op, ProgramDiagnosis, Step, StepFinding

#: Changes of the account of less than this part (0-1) of the longer step are summed; those from _MOVED
#: on are shown although the step takes as long as before.
_SMALL: Final = 0.01
_MOVED: Final = 0.1
#: Part (0-1) of the GPU's time in kernels that both traces have, below which traces with two names are
#: of two programs.
_SHARED: Final = 0.5
#: From this part (0-1) on a step that does all the same work n times is n steps.
_ALL: Final = 0.9
#: A cause is gone where it can save this part (0-1) of what it could, or less.
_GONE: Final = 0.5
#: Where one trace has this many times the other's steps, what repeats may be an inner loop in one. Of six
#: programs recorded on an H200 before and after their fix, two had 18 and 62 times as many, and were
#: reported as 142 and 1.9 times faster; they are 9.6 and 31 times. The others had up to 3.8 times.
_OTHER_LOOP: Final = 10

_Work = tuple[object, ...]


@dataclass(frozen=True)
class PartChange:
    """A part of the account of both steps, in microseconds."""

    key: str
    label: str
    old_us: float
    new_us: float

    @property
    def us(self) -> float:
        return self.new_us - self.old_us


@dataclass(frozen=True)
class StepChange:
    """A program's step on both sides. `scales`: the part of each side's step that does what one step
    of the other does at most; 1 where both do the same."""

    pair: gate.ComparedPair
    old: ProgramDiagnosis
    new: ProgramDiagnosis
    scales: tuple[float, float] = (1.0, 1.0)

    @cached_property
    def walls_us(self) -> tuple[float, float]:
        sides = (self.old, self.new)
        old, new = (x.account.wall_us * by for x, by in zip(sides, self.scales, strict=True))
        return old, new

    @cached_property
    def parts(self) -> tuple[PartChange, ...]:
        """All parts of the account, what changed most first. They add up to the change of the step."""
        both = [found.account.parts for found in (self.old, self.new)]
        labels = {part.key: part.label for side in both for part in side}
        times = [
            summed((part.key, part.us * by) for part in side)
            for side, by in zip(both, self.scales, strict=True)
        ]
        changes = (PartChange(x, label, *(us[x] for us in times)) for x, label in labels.items())
        return tuple(sorted(changes, key=lambda each: (-abs(each.us), each.key)))

    @property
    def changed(self) -> bool:
        """Whether the step's time changed beyond chance, or what it goes to did by much."""
        time = self.pair.time
        if time is None or time.certain_change:
            return True
        moved = max((abs(each.us) for each in self.parts), default=0.0)
        return moved > max(_MOVED * max(self.walls_us), time.noise)

    @property
    def doubtful(self) -> bool:
        """Whether the two steps may be of different loops of the program."""
        steps = self.old.step, self.new.step
        counts = [len(step.windows) for step in steps]
        sizes = [len(step.ops) for step in steps]
        repeats = all(step.how == "repeats" for step in steps) and self.scales == (1.0, 1.0)
        other = max(counts) >= _OTHER_LOOP * min(counts)
        return repeats and other and min(sizes) < _ALL * max(sizes)

    @property
    def host_alone(self) -> bool:
        """Whether both steps do the same work on the GPU, and what changed is how long it idles."""
        moved = sum(abs(each.us) for each in self.parts)
        idle = sum(abs(each.us) for each in self.parts if each.key.startswith("idle"))
        same = self.scales == (1.0, 1.0) and _work(self.old.step) == _work(self.new.step)
        return same and idle >= _ALL * moved

    @cached_property
    def findings(self) -> tuple[tuple[StepFinding | None, StepFinding | None], ...]:
        """Causes as (old, new), None on the side that has it not: what went, what came, what stayed."""
        old, new = ({_cause(x): x for x in found.costly} for found in (self.old, self.new))
        both = [(x, new.get(key)) for key, x in old.items()]
        came = [(None, x) for key, x in new.items() if key not in old]
        return *(x for x in both if not x[1]), *came, *(x for x in both if x[1])

    @cached_property
    def prediction(self) -> tuple[StepFinding, float, str] | None:
        """The old step's first cause, the time (µs) that went with it, and how that lies to what was
        predicted: below, inside or above. None where the step is not faster beyond chance, or the
        change is of something else: the cause is still there."""
        first, time = next(iter(self.old.costly), None), self.pair.time
        other = self.pair.gpus or self.doubtful
        if first is None or time is None or time.certain_change >= 0 or other:
            return None
        left = next((x for x in self.new.costly if _cause(x) == _cause(first)), None)
        if left and left.ceiling_us * self.scales[1] > _GONE * first.ceiling_us * self.scales[0]:
            return None
        saved = (self.walls_us[0] - self.walls_us[1]) / self.scales[0]
        low, _, high = first.expected_us or (0.0, 0.0, first.ceiling_us)
        return first, saved, "below" if saved < low else "above" if saved > high else "inside"


def _cause(finding: StepFinding) -> tuple[str, str]:
    """What a finding is of: a rule of the step, or a kernel's with the kernel."""
    kernels = finding.title.rpartition(" in ")[2] if finding.rule in load_rules() else ""
    return finding.rule, kernels


# ---- pairs -----------------------------------------------------------------------------------------


def compare_programs(
    old: Programs, new: Programs, gates: Sequence[gate.Gate] = ()
) -> tuple[gate.Comparison, tuple[StepChange, ...]]:
    """Compare the steps of traces: of one trace with another's, of several by the names of their files.

    Raises:
        InputProblem: a trace cannot be read, or two are of different programs.
    """
    sides: list[dict[gate.Key, TraceResult]] = []
    for programs in (old, new):
        for error in programs.errors:
            raise error
        many = len(programs.found) > 1
        sides.append({(Path(x.path).name * many, "", ""): x for x, _ in programs.found})
    scales = {key: _alike(x, sides[1][key]) for key, x in sides[0].items() if key in sides[1]}
    made = [
        {key: _side(x, scales.get(key, (1.0, 1.0))[at]) for key, x in held.items()}
        for at, held in enumerate(sides)
    ]
    comparison = gate.compare(made[0], made[1], gates=gates)
    whose = {id(side): key for held in made for key, side in held.items()}
    changes = []
    for pair in comparison.ordered:
        one, other = whose[id(pair.old)], whose[id(pair.new)]
        before, after = sides[0][one].found, sides[1][other].found
        if before and after:
            changes.append(StepChange(pair, before, after, scales.get(one, (1.0, 1.0))))
    return comparison, tuple(changes)


def _side(result: TraceResult, scale: float) -> gate.Side:
    found = result.found
    assert found is not None
    step = found.step
    card = program.program_answer(found, result.known).cards[0]
    times = tuple(window.us * scale for window in step.windows)
    names = dict.fromkeys(device.name for device in step.trace.devices)
    name = step.trace.program or Path(result.path).name
    return gate.Side(
        name, units.listed([*names]), times, bottleneck=card.bottleneck, card=card, what=step.word,
        traced=True,
    )  # fmt: skip


def _alike(old: TraceResult, new: TraceResult) -> tuple[float, float]:
    """The part of each side's step that does what both do. Steps are matched by their marks, else by
    their work: the same kernels with the same grids n times as often are n steps. Raises InputProblem
    where the two are of different programs."""
    assert old.found is not None
    assert new.found is not None
    one, other = old.found.step, new.found.step
    names = {one.trace.program, other.trace.program}
    here, there = _names(old.found), _names(new.found)
    shared = max(_part_in(here, there), _part_in(there, here))
    if (len(names) > 1 and shared < _SHARED) or not ("" not in names or shared):
        titles = (visible(x.trace.program) or "a program without a name" for x in (one, other))
        paths = zip((old.path, new.path), titles, strict=True)
        shown = " and ".join(f"'{path}' ({title})" for path, title in paths)
        raise InputProblem(
            f"{shown} are different programs: only {whole_percent(shared)} of the GPU's time is in kernels of both",
            "Compare two traces of one program",
        )
    if one.word != other.word:
        lacking = old.path if one.word == "run" else new.path
        raise InputProblem(
            f"no step was found in '{lacking}', and one was in the other trace",
            "Mark the steps of both with ncu_toolkit.step or NVTX, or record more of them",
        )
    if "marked" in (one.how, other.how) and one.description == other.description:
        return 1.0, 1.0
    work, again = _work(one), _work(other)
    times = Counter(
        (again[key] / count) for key, count in work.items() for _ in range(count) if key in again
    )
    ratio, same = max(times.items(), key=lambda each: each[1], default=(1.0, 0))
    alike = same >= _ALL * work.total() and same * ratio >= _ALL * again.total()
    if not alike or max(ratio, 1 / ratio) != round(max(ratio, 1 / ratio)):
        return 1.0, 1.0
    return (1.0, 1 / ratio) if ratio > 1 else (ratio, 1.0)


def _names(found: ProgramDiagnosis) -> Mapping[str, float]:
    """The GPU's time by kernel."""
    shapes = found.step.trace.shapes
    timed = zip(found.step.ops, found.account.exclusive_us, strict=True)
    return summed((shapes[op.shape].kernel, us) for op, us in timed if op.kind == "kernel")


def _part_in(times: Mapping[str, float], others: Mapping[str, float]) -> float:
    return sum(us for name, us in times.items() if name in others) / (sum(times.values()) or 1.0)


def _work(step: Step) -> Counter[_Work]:
    """How often the typical step does what: kernels with grid and block, copies with direction."""

    def key(op: Op) -> _Work:
        if op.kind != "kernel":
            return op.kind, op.path, op.size
        launch = step.trace.shapes[op.shape]
        return launch.kernel, launch.grid, launch.block

    return Counter(map(key, step.ops))


# ---- the answer --------------------------------------------------------------------------------------


def answer_of(comparison: gate.Comparison, changes: Sequence[StepChange]) -> Answer:
    """What became of the step, and of several that whose time changed most; three lines where nothing
    changed."""
    whole = answers.of_comparison(comparison)
    first = next((each for each in changes if each.pair.time), None)
    if first is None:
        return whole
    time, what = first.pair.time, first.pair.new.what
    assert time is not None
    name = f"{what[:1].upper()}{what[1:]} of {visible(first.pair.name)}"
    headline = differences.headline(name, time.old, time.new)
    if not time.certain_change and units.duration(time.old) != units.duration(time.new):
        headline = f"{name}: no difference beyond chance ({units.duration(time.old)} → {units.duration(time.new)})"
    elif first.doubtful:
        headline = f"{name}: {units.duration(time.old)} → {units.duration(time.new)}, perhaps of two different loops"
    times = first.pair.old.times_us, first.pair.new.times_us
    many = " and ".join(str(len(side)) for side in times)
    noise = units.percent(time.noise / (time.old or 1.0), 2)
    sure = f"The mean {what} changed by {answers.percent(time.change)} ({many} {what}s, noise ±{noise})."
    if gate.chance(*times) is None:
        sure += f" So few {what}s cannot rule out chance; 5 on each side can."
    kernels = whole.kernels if len(changes) > 1 else None
    whole = replace(whole, headline=whole.headline or headline, kernels=kernels)
    if not first.changed:
        cause = "nothing to gain"
        if costly := first.new.costly:
            cause = f"{program.title_of(first.new, costly[0])}, {program.saving(costly[0], first.new).partition(' (')[0]}"
        return replace(whole, points=(sure, f"First cause: {cause}."))
    account, found = _account(first), _findings(first)
    tables = (account, found) if found.rows else (account,)
    charts = () if first.pair.gpus else (_waterfall(first, account),)
    points = (sure, *map(visible, _points(first)))
    return replace(whole, points=points, tables=tables, charts=charts)


def _points(change: StepChange) -> Iterator[str]:
    """What was predicted beside what came of it, and which steps were matched."""
    if change.doubtful:
        yield "One trace has many more steps: what repeats may be an inner loop in one. Mark the steps of both (ncu_toolkit.step, NVTX)."
    if change.host_alone:
        yield (
            "The GPU does the same work; only the host's time differs. It also differs between recordings of one program"
            " (1.6 times, of two on an H200 host with other programs beside them): record both several times."
        )
    if change.prediction:
        first, saved, where = change.prediction
        also = sum(new is None for _, new in change.findings) - 1
        known = ""
        if also > 0:  # what they saved is not known apart
            known = f", together with {units.counted(also, 'other cause')} that {'is' if also == 1 else 'are'} gone"
        elif first.expected_us:
            known = f", which lies {where} that interval"
        elif where == "above":
            known = ", more than that"
        part = units.percent(saved / (change.old.account.wall_us or 1.0), 2)
        yield (
            f"{program.title_of(change.old, first)}, predicted: {program.saving(first, change.old)}. "
            f"Achieved: {units.duration(saved)} ({part}){known}."
        )
    elif change.old.costly and (left := change.findings) and left[0][0] is not change.old.costly[0]:
        first = change.old.costly[0]
        yield f"The first cause remains: {program.title_of(change.old, first)}."
    for which, scale in zip(("old", "new"), change.scales, strict=True):
        if scale != 1:
            yield f"A step of the {which} trace does {round(1 / scale)} times the work of the other: a part of it is compared."
    for which, found in (("old", change.old), ("new", change.new)):
        yield from (f"{which}: {sentence}" for sentence in program.of_run(found))


def _listed(change: StepChange) -> list[PartChange]:
    """Parts that changed, what they leave as one."""
    least = _SMALL * max(change.walls_us)
    shown = [each for each in change.parts if abs(each.us) >= least]
    rest = [each for each in change.parts if each not in shown]
    old, new = (math.fsum(getattr(each, side) for each in rest) for side in ("old_us", "new_us"))
    return [*shown, PartChange("rest", "All else", old, new)] if old or new else shown


def _account(change: StepChange) -> Table:
    shares = bool(change.pair.gpus)
    old, new = change.walls_us

    def time(us: float, of: float) -> Cell:
        shown = units.duration(us) if us else "–"
        return Cell(units.percent(us / (of or 1.0), 2) if shares else shown, us)

    def moved(part: PartChange) -> Cell:
        tone: Tone = "muted" if part.key == "rest" else "bad" if part.us > 0 else "good"
        return Cell(_signed(part.us), part.us, tone=tone)

    columns: list[Spec[PartChange]] = [
        Spec("part", "the step goes to", cell=lambda part: visible(part.label), numeric=False, shortest=16),
        Spec("old", cell=lambda part: time(part.old_us, old)),
        Spec("new", cell=lambda part: time(part.new_us, new)),
    ]  # fmt: skip
    if not shares:
        columns.append(Spec("change", cell=moved))
    what, times = change.pair.new.what, f": {units.duration(old)} → {units.duration(new)}"
    title = f"{what[:1].upper()}{what[1:]}{times * (not shares)}"
    return table(title, columns, _listed(change), key="step-account")


def _signed(us: float) -> str:
    return f"{'+' if us > 0 else '−'}{units.duration(abs(us))}" if abs(us) >= 1e-3 else "="


def _waterfall(change: StepChange, listed: Table) -> BarChart:
    """The old step, what each part of the account adds or takes, and the new step."""
    old, new = change.walls_us
    rows, level = [], old
    for part in _listed(change):
        then = level + part.us
        words = f"{part.label}: {units.duration(part.old_us)} → {units.duration(part.new_us)}"
        rows.append((visible(part.label), _signed(part.us), level, then, words))
        level = then
    most = max(old, new, *(each[3] for each in rows)) or 1.0
    summary = f"From {units.duration(old)} to {units.duration(new)}. Each bar starts at the time that the parts above it leave."
    drawn = differences.waterfall(
        (old, new), rows, lambda us: 100 * max(us, 0.0) / (1.02 * most), summary, ("Part of the step", "", "", "Change"), listed
    )  # fmt: skip
    return replace(drawn, wide=True)


def _findings(change: StepChange) -> Table:
    """Causes that went, that came, and that stayed."""
    Row = tuple[StepFinding | None, StepFinding | None]

    def title(row: Row) -> str:
        sides = zip((change.old, change.new), row, strict=True)
        return [program.title_of(found, each) for found, each in sides if each][-1]

    def what(row: Row) -> Cell:
        went = "gone" if row[1] is None else "new" if row[0] is None else "stays"
        return Cell(went, tone={"gone": "good", "new": "bad", "stays": "muted"}[went])  # type: ignore[arg-type]

    def gain(finding: StepFinding | None, found: ProgramDiagnosis) -> str:
        return program.saving(finding, found, whole=False) if finding else "–"

    columns: tuple[Spec[Any], ...] = (
        Spec("cause", cell=title, numeric=False, shortest=16),
        Spec("now", "", cell=what, numeric=False),
        Spec("old", cell=lambda row: gain(row[0], change.old), numeric=False, gives_way=1),
        Spec("new", cell=lambda row: gain(row[1], change.new), numeric=False),
    )
    return table("Findings", columns, change.findings)
