"""The optimizer updates each parameter by its own launches.

What it is
Adam written as its formula is ten to fourteen elementwise launches for each parameter tensor, a thousand
for a small model. The "foreach" form takes all parameters in each launch, and still passes over them
ten times; the "fused" form passes over them once.

Why it costs time
Small parameters cost a launch each time; large ones are read and written by each of the launches.

How to confirm
Launches with addcmul, sqrt and addcdiv (Adam) in their names follow each other at the end of the step,
a few for each parameter. An average of the parameters (EMA) is the same with lerp, or mul and add.

What to change
Construct the optimizer with fused=True. Write your own over lists of parameters
(torch._foreach_*), or compile it; if it is Adam, PyTorch's fused form is faster still.

When the advice is wrong
An optimizer that has no fused form, or that a wrapper (sharding, offloading) replaces.

Source
PyTorch documentation, "torch.optim": fused is faster than foreach, and foreach than the loop.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import StepFinding
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "Optimizer in many launches"
#: Optimizers of PyTorch that have a fused form.
_FORMS: Final = ("Adam", "AdamW", "SGD", "Adagrad")
_LOOPS: Final = "Loop over parameters in many launches"
ALSO_CALLED: Final = (_LOOPS,)
#: Words that Adam reads and writes for each parameter in one pass (the parameter, its gradient and two
#: moments read, all but the gradient written), and in the launches of its formula: multiply, lerp,
#: multiply, addcmul, sqrt, divide, add, addcdiv.
_FUSED, _FORMULA = 7, 20
MANY: Final = Threshold(
    24.0, "a fused optimizer takes a launch for a few dozen tensors of one type"
)


def find(s: StepFacts) -> StepOutcome:
    update = _patterns.optimizer(s)
    loops = _patterns.parameters(s)
    outcomes: list[StepOutcome] = [_of_update(s, update)] if update else []
    outcomes += [_of_loops(s, loops)] if loops else []
    if not outcomes:
        return s.ruled_out(f"No launches of an optimizer are in the {s.word}.")
    found = [each for each in outcomes if isinstance(each, StepFinding)]
    return max(found, key=lambda each: each.ceiling_us) if found else outcomes[0]


def _of_loops(s: StepFacts, loops: Sequence[tuple[int, ...]]) -> StepFinding:
    """A pass over the parameters that is not the optimizer's: an average of them, or an update as its
    formula has it."""
    # with copies from tensor to tensor between its launches
    loops = [tuple(sorted({*loop, *_patterns.arguments(s, [loop])})) for loop in loops]
    ops = [at for loop in loops for at in loop]
    gaps = _patterns.gaps_within(s, *loops)
    us, idle = s.us(ops), s.idle_us(gaps)
    words = Counter(s.operations[at] or s.classes[at] for at in ops)
    evidence = (
        s.part("optimizer", "Loops over parameters", us + idle, "in such loops, with the gaps between their launches."),
        fact("optimizer_launches", "Their launches", len(ops), "count", f"Launches of such loops in the {s.word}.", MANY),
    )  # fmt: skip
    return s.finding(
        f"{units.count(len(ops))} elementwise launches ({units.listed([word for word, _ in words.most_common(3)])}) pass over one tensor "
        f"after another, as an average of the parameters (EMA) or an update of them does. "
        f"With the gaps between them they take {s.of_step(us + idle)}.",
        "medium",
        s.merged([ops], [s.moving(ops, 1 / len(words))]),
        ops=ops,
        gaps=gaps,
        evidence=evidence,
        arithmetic=f"In lists of tensors a launch takes dozens of them, and no gaps ({units.duration(idle)}) are between them.",
        advice=s.advice("optimizer-launches loops"),
        title=_LOOPS,
    )  # fmt: skip


def _of_update(s: StepFacts, update: _patterns.Update) -> StepOutcome:
    ops = update.ops
    us = s.us(ops)
    name = update.name or ("A hand-written optimizer" if update.written else "The optimizer")
    evidence = (
        s.part("optimizer", "Optimizer", us, "in launches of the optimizer."),
        fact("optimizer_launches", "Its launches", len(ops), "count", f"Launches of the optimizer in the {s.word}."),
    )  # fmt: skip
    if update.foreach:
        kernels = {launch.kernel for at in ops if (launch := s.launches[at])}
        if any("fused" in kernel.lower() for kernel in kernels) or len(kernels) < 4:
            return s.ruled_out("The optimizer is fused.", *evidence)
        gaps: list[int] = []
        text = f"The optimizer passes over the parameters in {len(kernels)} kinds of launches and takes {s.of_step(us)}."
    else:
        if len(ops) < MANY.value:
            return s.ruled_out("The optimizer takes few launches.", *evidence)
        gaps = _patterns.gaps_within(s, ops)
        roots = sum(s.operations[at] == "sqrt" for at in ops)
        each = f", about {round(len(ops) / roots)} for each of {roots} parameters" if roots else ""
        text = f"{name} updates the parameters in {units.count(len(ops))} launches{each}. With the gaps between them they take "
        text += f"{s.of_step(us + s.idle_us(gaps))}."
    form = update.name if update.name in _FORMS else "AdamW"
    return s.finding(
        text,
        "medium" if update.foreach and not update.name else "high",
        s.merged([ops], [s.moving(ops, _FUSED / _FORMULA)]),
        ops=ops,
        gaps=gaps,
        evidence=evidence,
        arithmetic=f"A fused Adam moves {_FUSED} words for each parameter in a pass, the launches of its formula {_FORMULA}.",
        advice=s.advice("optimizer-launches" + " written" * update.written, form=form),
    )
