"""Copies from pinned memory queue behind kernels that they could overlap with.

What it is
Copies have their own engines. On the kernels' stream, each runs only after the kernel before it, and the
next kernel waits for it.

Why it costs time
The step takes the sum of copying and computing, where it could take the larger of both.

How to confirm
The copies are asynchronous and from pinned memory, and no kernel overlaps with them.

What to change
Copy one batch ahead into a second buffer, on a stream for each direction, ordered by events. The host
waits only for the event of the buffer that it is about to reuse.

When the advice is wrong
The first kernel needs what was just computed on the host, so that nothing can be copied ahead.

Source
CUDA C++ Best Practices Guide, "Asynchronous and Overlapping Transfers with Computation".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "Copies not overlapped with compute"
BOTH_WAYS: Final = Threshold(0.2, "longer while a link copies both ways: 0.1 to 0.3 in 5 programs")
_WAIT: Final = (
    "Let the host wait only for the event of the buffer that it is about to reuse, not for all work of the step.",
)


def find(s: StepFacts) -> StepOutcome:
    pinned = [at for at, op in enumerate(s.ops) if op.pinned and op.path in ("HtoD", "DtoH")]
    if not pinned:
        if missing := s.lacks("wall time"):
            return s.abstain("A report has no copies.", *missing)
        if s.lacks("memory kinds"):
            return s.abstain(
                "The trace does not show which copies are from pinned memory.", "memory kinds"
            )
        return s.ruled_out(f"The {s.word} copies nothing from or to pinned memory.")
    kernels = {op.queue for op in s.ops if op.kind == "kernel"}
    inline = [at for at in pinned if s.ops[at].queue in kernels]
    us = s.us(inline)
    size = s.moved(inline)
    evidence = tuple(filter(None, (
        s.part("copies_inline", "Copies not overlapped", us,
               "in which the GPU copied pinned memory and computed nothing, on a stream that has kernels."),
        None if size is None else fact("inline_bytes", "Bytes", size, "B", "Bytes that they moved."),
    )))  # fmt: skip
    if not s.worth(us):
        reason = "Copies from or to pinned memory overlap with kernels, or are short."
        return s.ruled_out(reason, *evidence)
    paths = [[at for at in inline if s.ops[at].path == path] for path in ("HtoD", "DtoH")]
    longer = BOTH_WAYS.value * min(map(s.us, paths))
    keeps = {at: 1 + longer / s.us(path) for path in paths for at in path if longer}
    ways = "each direction" if all(paths) else "the copies"
    waits = _WAIT if any(call.kind == "sync" for call in s.calls) else ()
    return s.finding(
        f"{units.counted(len(inline), 'copy', 'copies')} of pinned memory on the kernels' stream, not overlapped with anything: {s.of_step(us)}.",
        "medium",
        Edit(beside=frozenset(inline), keeps=keeps, waits=s.made("sync") | s.queuing(inline)),
        ops=inline,
        evidence=evidence,
        arithmetic=f"Copies both ways at once take {units.duration(longer)} longer." * (longer > 0),
        advice=(*s.advice("serial-copies", ways=ways), *waits),
    )
