"""The GPU waits because the host launches kernels more slowly than they run.

What it is
A launch takes the host 2 to 10 microseconds, and 10 to 50 where a framework prepares it. Kernels that
take less time than that leave the queue empty: each ends before the next is launched.

Why it costs time
The GPU is idle from the end of a kernel until the next launch reaches it. A faster kernel changes
nothing then.

How to confirm
The launches after idle time began after the previous work had ended. The time between launches is
longer than the kernels. Half the batch takes the same time. Late launches that belong to a more
specific cause (a loop over items or parameters, read-backs, tiny copies) are counted there.

What to change
Launch less often: compile or fuse the operators, capture the step in a CUDA graph, or do more work
in each launch by a larger batch.

When the advice is wrong
Recording slows the host: 1 to 3 microseconds per launch, more with stacks and shapes. Time the
program without it. A step whose shapes change each time cannot be captured as it is.

Source
NVIDIA developer blog "Getting Started with CUDA Graphs": 2.2 microseconds of a launch and more
without graphs; PyTorch documentation, "CUDA Graphs".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import OTHER_WORK, dispatching, eager, launched_late
from ncu_toolkit.program.traces.replay import RECORDED

TITLE: Final = "Launch-bound (the GPU waits for kernel launches)"
MANY: Final = Threshold(8.0, "a step that starts after a synchronisation has a few late launches until the queue fills")  # fmt: skip
WAITING: Final = Threshold(0.05, "below it the queue is full nearly always; recording alone makes 1 to 3 us per launch")  # fmt: skip
_EAGER: Final = "JAX launches operator by operator, outside of jax.jit"
ALSO_CALLED: Final = (_EAGER,)


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not show when the host launched.", *missing)
    of_jax = {at for each in dispatching(s) for at in each.gaps}
    of_jax = set() if of_jax <= s.claimed else of_jax  # by what compiles
    late = sorted({*launched_late(s, OTHER_WORK), *of_jax})
    times, typical = s.idle_times(late), s.step.window
    one = s.idle_times(at for at in late if typical.start <= s.gaps[at].start < typical.end)
    us, copies = s.idle_us(late), s.idle_us(sorted({*late}.intersection(s.idle("copy"))))
    gaps = f" in {units.counted(one, 'gap')}" * bool(one)
    differs = units.percent(s.share(us), 2) != units.percent(s.share(us - copies), 2)
    small = f" ({units.duration(copies)} in copy calls)" * differs
    evidence = (
        s.part("idle_late", "Idle, launched late", us, "in which the GPU had nothing queued while the host prepared the next launch.", WAITING),
        fact("late_launches", "Late launches", times, "count", "Launches that began after the work before them had ended.", MANY),
        fact("gpu_busy", "GPU busy", s.account.busy, "fraction", f"Part of the {s.word} in which the GPU worked."),
    )  # fmt: skip
    few = min(MANY.value, s.step.launches / 2)  # in a step of few launches, half of them
    if times < few or not s.worth(us, WAITING):
        return s.ruled_out(f"The queue is full for nearly all of the {s.word}.", *evidence)
    if waits := _patterns.cut(s):
        s.useless.add("cuda-graphs")
    return s.finding(
        f"The GPU is idle for {s.of_step(us)}{gaps}{small}, because the next work was not launched yet: "
        "the host takes longer to launch it than the GPU takes to run it.",
        "high" if s.worth(us - times * RECORDED[0] / 1e3, WAITING) else "low",
        Edit(graphed=frozenset(range(len(s.ops))), moved=s.ending(sorted(of_jax))),
        gaps=late,
        evidence=evidence,
        arithmetic=f"{times} gaps of {units.duration(us / times)} on average: {units.duration(us)}.",
        advice=(*s.advice("launch-bound with waits") * waits, *s.advice("launch-bound")),
        title=_EAGER * eager(s),
    )
