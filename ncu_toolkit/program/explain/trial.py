"""What came of settings that were tried in a program, as an answer: the best on a card, and a table of
all. Times are in microseconds."""

import statistics
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.safe import visible
from ncu_toolkit.base.document.card import Card
from ncu_toolkit.base.document.tables import Cell, Spec, Table, Tone, table
from ncu_toolkit.base.document.views import Answer
from ncu_toolkit.program.model import ProgramTrial, Results, Tried, TryOutcome
from ncu_toolkit.program.switches import Switch, switches

_OUTCOMES: Final[dict[TryOutcome, tuple[str, Tone]]] = {
    "faster": ("faster", "good"), "slower": ("slower", "bad"), "same": ("no difference", "muted"),
    "broke": ("fails", "bad"), "not applied": ("changes nothing", "muted"), "other step": ("not comparable", "warn"),
}  # fmt: skip
_RESULTS: Final[dict[Results, tuple[str, Tone]]] = {
    "equal": ("the same", "good"), "within": ("close", "good"), "differ": ("differ", "bad"),
    "not compared": ("–", "muted"),
}  # fmt: skip
#: Outcomes that the table's figures do not explain.
_MENTIONED: Final = ("broke", "not applied", "other step")


def trial_answer(trial: ProgramTrial, *, trace: str = "") -> Answer:
    """The answer to a trial. `trace`: a command that shows its program's step."""
    runs = min((len(each.after_us) for each in trial.tried if each.after_us), default=0)
    step = units.duration(statistics.median(trial.before_us)) if trial.before_us else "unknown time"
    whole = f"{'step' if trial.word == 'step' else 'whole run'} of {step}"
    sides = f"{units.counted(runs, 'run')} per side" if runs else ""
    parts = filter(None, (visible(trial.program), whole, visible(trial.gpu), sides))
    points = [
        f"{_name(x)}: {visible(x.description)}" for x in trial.tried if x.outcome in _MENTIONED
    ]
    points += [f"{_name(x)}: {visible(x.compared)}" for x in trial.tried if x.results == "differ"]
    return Answer(
        " · ".join(parts),
        cards=(_card(trial),),
        points=tuple(points),
        tables=(_table(trial),),
        notes=tuple(map(visible, trial.notes)),
        next=trace,
    )


def tried_lines(trial: ProgramTrial) -> list[str]:
    """What was tried in a program, for the answer to its trace: the best setting, and those without a gain."""
    lines = []
    if best := trial.best:
        lines.append(
            f"Tried: {_name(best)} took the {trial.word} from {' to '.join(measured(best).split(' → '))}."
        )
    idle = [_name(each) for each in trial.tried if not each.good]
    if idle:
        lines.append(f"Tried without gain: {units.listed(idle)}.")
    return lines


def _name(tried: Tried) -> str:
    return visible(" + ".join(tried.switches))


def measured(tried: Tried) -> str:
    """`46.6 → 17.9 ms`; empty where it was not timed."""
    if not tried.after_us:
        return ""
    before, after = units.duration(tried.before), units.duration(tried.after)
    figure, _, unit = before.rpartition(" ")
    return f"{figure if unit == after.rpartition(' ')[2] else before} → {after}"


def _card(trial: ProgramTrial) -> Card:
    best = trial.best
    if best is None:
        title, gain, summary = "No setting makes it faster", "nothing to keep", ""
        many = [each for each in trial.tried if each.outcome == "faster"]
        if many:
            summary = f"{_name(many[0])} is faster, but the program prints other results."
    else:
        title = best.title
        gain = f"measured {measured(best)} ({units.ratio(1 / best.left)})"
        summary = " ".join(filter(None, (best.description.partition(". ")[2], best.compared)))
    names = [name.partition(":")[0] for name in best.switches] if best else []
    differing = (switches()[name].differs for name in names if name in switches())
    return Card(
        state="together",
        bottleneck="none",
        title=visible(title),
        gain=gain,
        confidence="medium",
        summary=visible(summary),
        do=tuple(map(visible, best.keep)) if best else (),
        expect=visible(" ".join(differing)),
    )


def came_of(tried: Tried) -> str:
    """`2.60× as fast`, or why there is no gain."""
    if tried.outcome in ("faster", "slower"):
        return f"{units.ratio(1 / tried.left)} as fast"
    return _OUTCOMES[tried.outcome][0]


def _table(trial: ProgramTrial) -> Table:
    def outcome(tried: Tried) -> Cell:
        value = 1 / tried.left if tried.after_us and tried.left else None
        return Cell(came_of(tried), value, tone=_OUTCOMES[tried.outcome][1])

    def results(tried: Tried) -> Cell:
        text, tone = _RESULTS[tried.results]
        return Cell(text, tried.results, title=tried.compared, tone=tone)

    def chance(tried: Tried) -> Cell:
        if tried.p is not None:
            return Cell(f"{tried.p:.2g}", tried.p)
        few = "The runs are too few, or differ by less than their noise."
        return Cell("–" if tried.after_us else "", title=few)

    def most(tried: Tried) -> Cell:
        if tried.ceiling_us is None:
            return Cell("")
        return Cell(units.duration(tried.ceiling_us), tried.ceiling_us)

    columns: tuple[Spec[Tried], ...] = (
        Spec("setting", cell=_name, numeric=False, code=True),
        Spec("outcome", cell=outcome, title="The step with the setting, as fast as without it."),
        Spec("step", trial.word, cell=lambda tried: Cell(measured(tried), tried.after or None), unit="us"),
        Spec("most", "simulated saving", "By the findings that it is for.", "us", cell=most, gives_way=1),
        Spec("chance", "chance", "How often chance alone makes the two differ as much.", cell=chance, gives_way=2),
        Spec("results", cell=results, title="What the program prints.", numeric=False),
    )  # fmt: skip
    return table("Settings", columns, trial.tried)


def list_answer() -> Answer:
    """All settings."""
    columns: tuple[Spec[Switch], ...] = (
        Spec("setting", cell=lambda each: each.id, numeric=False, code=True),
        Spec("does", cell=lambda each: each.title, numeric=False),
        Spec("for", cell=lambda each: ", ".join((*each.causes[:2], *each.classes[:1])), numeric=False, gives_way=1),
        Spec("in", cell=lambda each: ", ".join(name or "native" for name in each.modules), numeric=False, gives_way=2),
    )  # fmt: skip
    return Answer("", tables=(table("Settings", columns, switches().values()),))
