"""A function computes the same arrays in each step.

What it is
Something that depends on nothing that changes is computed within the loop: a kernel matrix of fixed
points and its factors, a filter's transform, a normalised adjacency, embeddings of fixed texts by a
frozen model.

Why it costs time
Its kernels run again in each step, for values that are there already.

How to confirm
Compare what the function returns in two steps: `torch.allclose(a, b)`. The recorder compares some elements
of it at the calls 1, 2, 4 and 8.

What to change
Call it once before the loop and keep what it returns, or cache it by its inputs (`cached=True` of
PyTorch Geometric's GCNConv, `functools.cache` for plain arguments).

When the advice is wrong
The inputs change later than at the eighth call: then compute it when they do. The loop runs the same
batch again and again, as a benchmark does: a real run has others. Arrays may be too large to keep.

Source
The loop-invariant code motion of compilers; PyTorch Geometric documentation, `GCNConv` (cached).
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.program.model import Edit, Result
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "The same computed in each step"
#: Calls from which on results are known to be the same: compared at 1, 2 and 4.
_CALLS: Final = 4


def find(s: StepFacts) -> StepOutcome:
    results = s.trace.results
    if not results:
        return s.abstain(
            "No function with arrays of a GPU was compared; recordings of Python programs have them.",
            "function results",
        )
    same = {at for at, each in enumerate(results) if each.same and each.calls >= _CALLS}
    outermost = same - {at for at in same if same & {*results[at].within}}
    run: dict[int, list[int]] = {at: [] for at in outermost}
    functions, changing = [_function(results, line) for line in s.trace.lines], []
    for at in range(len(s.ops)):
        call = s.call(at)
        inner = functions[call.line] if call and call.line >= 0 else None
        if inner is not None:
            above = outermost & {inner, *results[inner].within}
            for each in above:
                run[each].append(at)
            changing += [at] * (not above and not results[inner].same)
    ops = sorted({at for places in run.values() for at in places})
    evidence = (
        s.part("same_results", "Same results", s.us(ops), "in functions that returned the same arrays again."),
        s.part("changing_results", "Other results", s.us(changing), "in functions whose arrays changed from call to call."),
        fact("compared", "Functions compared", len(results), "count", "Own functions, and lines that call a package's, whose arrays were compared."),
    )  # fmt: skip
    edit = Edit(drops=frozenset(ops))
    if not ops or not s.worth(s.replay.saved_us(edit)):
        return s.ruled_out("No function that takes time returned the same arrays again.", *evidence)
    if not s.worth(s.us(changing)):
        return s.ruled_out(
            "No function of the step is known to return others: the loop may repeat one batch.",
            *evidence,
        )
    named = [results[at] for at in sorted(run, key=lambda at: -s.us(run[at])) if run[at]][:3]
    names = units.listed([each.function for each in named])
    return s.finding(
        f"{names} returned the same arrays in each of the first {max(each.calls for each in named)} calls: {s.of_step(s.us(ops))}.",
        "medium",
        edit,
        ops=ops,
        where=tuple(f"{each.file}:{each.first}" for each in named),
        evidence=evidence,
        arithmetic="What is computed once before the loop is not launched in a step.",
        advice=(
            f"Call {names} once before the loop, and keep the result as long as its inputs are the same.",
            "Some elements of the arrays were compared, of calls 1, 2, 4 and 8: confirm with torch.allclose or numpy.allclose.",
        ),
    )  # fmt: skip


def _function(results: tuple[Result, ...], line: str) -> int | None:
    """The function that a line is of, the innermost by its lines."""
    file, _, number = line.rpartition(":")
    own = (at for at, each in enumerate(results) if each.file == file)
    fits = (at for at in own if results[at].first <= int(number) <= results[at].last)
    return min(fits, key=lambda at: results[at].last - results[at].first, default=None)
