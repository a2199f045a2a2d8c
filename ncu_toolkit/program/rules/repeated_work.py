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

from itertools import pairwise
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.program.model import Edit, Trace
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
    run, changing = dict[int, list[int]](), list[int]()
    known = dict[tuple[int, int], list[int]]()
    for at in range(len(s.ops)):
        call = s.call(at)
        lines = (call.callers, call.line) if call else (-1, -1)
        if lines not in known:
            known[lines] = _running(s.trace, *lines)
        running = known[lines]
        outermost = next((each for each in running if each in same), None)
        if outermost is not None:
            run.setdefault(outermost, []).append(at)
        elif running and not results[running[-1]].same:
            changing.append(at)
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
    named = [results[at] for at in sorted(run, key=lambda at: -s.us(run[at]))][:3]
    places = [(each.file, each.first) for each in results]
    several = [each for each in named if places.count((each.file, each.first)) > 1]
    names = units.listed(
        [f"{x.function} (called at {x.caller})" if x in several else x.function for x in named]
    )
    return s.finding(
        f"{names} returned the same arrays in each of the first {max(each.calls for each in named)} calls: {s.of_step(s.us(ops))}.",
        "medium",
        edit,
        ops=ops,
        where=tuple(x.caller if x in several else f"{x.file}:{x.first}" for x in named),
        evidence=evidence,
        arithmetic="What is computed once before the loop is not launched in a step.",
        advice=(
            f"Call {names} once before the loop, and keep the result as long as its inputs are the same.",
            "Some elements of the arrays were compared, of calls 1, 2, 4 and 8: confirm with torch.allclose or numpy.allclose.",
        ),
    )  # fmt: skip


def _running(trace: Trace, callers: int, line: int) -> list[int]:
    """The functions that run at a line of the user's, by their place in the results, the outermost first."""
    results, found = trace.results, list[int]()
    lines = [-1, *(trace.callers[callers] if callers >= 0 else ()), line]
    for outer, at in pairwise(lines if line >= 0 else ()):
        file, _, number = trace.lines[at].rpartition(":")
        by = ("", trace.lines[outer] if outer >= 0 else "")
        # what differs at another of its callers may do so here
        own = (
            i for i, x in enumerate(results) if x.file == file and (x.caller in by or not x.same)
        )
        fits = [at for at in own if results[at].first <= int(number) <= results[at].last]
        fits.sort(key=lambda at: results[at].first - results[at].last)
        within = results[fits[-1]].within if fits else ()
        found += [*sorted(within, key=lambda at: len(results[at].within)), *fits]
    return found
