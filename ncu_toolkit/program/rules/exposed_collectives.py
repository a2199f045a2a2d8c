"""GPUs exchange data while they compute nothing.

What it is
All-reduce, all-gather and the like run as kernels of NCCL. Work on other streams can overlap with them.

Why it costs time
Exposed communication adds to the step. The kernel of a collective also waits for the slowest GPU, so not
all of its time is data transfer.

How to confirm
No other kernel runs while the collective does. The time of the same collective differs between GPUs:
the GPU with the shortest one is the slowest in the rest of the step.

What to change
Overlap communication with the backward pass (buckets that are ready early), communicate less often (accumulate
gradients) or less (narrower types), and even out the work of the GPUs.

When the advice is wrong
Tensor parallelism needs the result at once. If one slow GPU makes the others wait, fix that GPU's part.

Source
PyTorch documentation, "Distributed Data Parallel": buckets and overlap; NCCL documentation.
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.core.shares import summed
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._tables import tables
from ncu_toolkit.program.traces.classes import EXCHANGES, collectives

TITLE: Final = "Exposed communication"
#: The same, of one kind of exchange between the ranks of a job (`_ranks`).
ALSO_CALLED: Final = tuple(f"exposed-{kind}" for kind, _ in EXCHANGES)


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time"):
        return s.abstain("What ran side by side is not known.", *missing)
    places = s.of_class("collective")
    if not places:
        return s.ruled_out(f"The {s.word} has no collective.")
    us, took = s.us(places), sum(s.ops[at].us for at in places)
    evidence = (
        s.part("collectives", "Collectives alone", us, "in which collectives ran alone."),
        fact("collectives_hidden", "Hidden", 1 - us / took if took else 0.0, "fraction", "Part of the collectives' time that other work hides."),
    )  # fmt: skip
    if not s.worth(us):
        return s.ruled_out("Other work hides the collectives.", *evidence)
    kinds, ops = collectives(s.trace), map(s.ops.__getitem__, places)
    times = summed((kinds[op.shape], op.end - op.start) for op in ops)
    kind = max(times, key=times.__getitem__)
    return s.finding(
        f"{units.counted(len(places), 'collective')}: {s.of_step(us)} not overlapped with compute.",
        "medium",
        Edit(beside=frozenset(places)),
        ops=places,
        evidence=evidence,
        arithmetic=f"They take {units.duration(took)}, of which other work hides {units.duration(max(0.0, took - us))}.",
        advice=s.advice(
            "exposed-collectives",
            torch=(
                *tables().collectives.get(kind, tables().collectives["all-reduce"]),
                "Compare the ranks: where one is slower, the others wait in the collective.",
            ),
        ),
    )
