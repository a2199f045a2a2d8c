"""The host waits for the GPU inside the step, and the GPU then waits for the host.

What it is
A call that returns only when the GPU is done: a value read back (`.item()`, `print(loss)`, a test on
a tensor's values), a copy to pageable memory, `cudaDeviceSynchronize`, sizes that depend on data
(`nonzero`, boolean indexing).

Why it costs time
The queue runs empty. After it, the GPU is idle until the host has returned from the call and
launched the next work.

How to confirm
Idle time follows the end of a synchronising call. Without the call the host would launch the
following work earlier, by the time that the call blocked it.

What to change
Keep the value on the GPU and read it back every hundredth step; use functions whose result's size is
known (`where` instead of a boolean index); wait for an event instead of the whole device.

When the advice is wrong
The value decides what is launched next, and no form of it can stay on the GPU. A benchmark
synchronises to take the time, which costs its own loop only.

Source
PyTorch documentation, "Performance Tuning Guide": avoid unnecessary CPU-GPU synchronization; CUDA C++
Best Practices Guide, "Asynchronous and Overlapping Transfers with Computation".
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from ncu_toolkit.base.core import units
from ncu_toolkit.program.model import Call, Edit
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import OTHER_WORK, copied, launched_late, waits
from ncu_toolkit.program.rules._tables import tables

TITLE: Final = "Synchronisation inside the step"
#: Kernels of a step that waits for an event to measure them.
TIMED: Final = 2
#: Operators in which cuDNN may time its algorithms.
_TRIED: Final = "convolution"
#: Part of the late launches' time from which they are late because of the waits.
_EARLIER: Final = 1 / 3
#: What to do instead of a PyTorch operator that waits, by a part of its name.
_INSTEAD: Final = (
    (("item", "_local_scalar_dense", "is_nonzero"),
     "Do not read values back in each step (.item(), float(), print, if): keep what the next lines need as tensors on the GPU, "
     "such as x.addcmul_(p, alpha); sum what is printed on the GPU, and read it every hundred steps."),
    (("nonzero", "index", "masked_select", "unique"),
     "Replace boolean indexing and nonzero, whose size the host must know, by torch.where or a multiplication with the mask."),
    (("cudnn_convolution", "cudnn_convolution_backward_weight", "cudnn_convolution_backward_input", "convolution_backward"),
     "cuDNN times its algorithms again for each new shape: keep shapes the same, or set torch.backends.cudnn.benchmark = False."),
    (("copy_", "to", "_to_copy", "cpu"),
     "Copy results to pinned memory with non_blocking=True, and wait for an event where they are used."),
)  # fmt: skip
_LESS_OFTEN: Final = (
    "Read values back less often (every 20 iterations, for example), or let a kernel make the decision.",
)


def find(s: StepFacts) -> StepOutcome:
    if missing := s.lacks("wall time", "host calls"):
        return s.abstain("The trace does not show when the host waited.", *missing)
    gaps = sorted({*s.idle("sync"), *waits(s, "read")} - s.claimed)
    gaps = gaps if s.steady else _without_trials(s, gaps)
    waiting = _patterns.waiting(s)
    reads = [at for at, op in enumerate(s.ops) if copied(op) == "read"]
    us = s.idle_us(gaps) + s.us(reads)
    looped = frozenset(range(len(s.ops) * (s.framework == "xla" and len(reads) > 1)))  # one jit
    edit = Edit(drops=frozenset(reads), waits=s.made("sync") | s.queuing(reads), graphed=looped)
    saved, masks = s.replay.saved_us(edit), _patterns.masks(s)
    late = s.idle("host late") if looped else launched_late(s, OTHER_WORK)
    earlier = max(0.0, saved - us)
    if earlier < _EARLIER * s.idle_us(late):
        late, earlier = [], 0.0
    calls = sum(call.kind == "sync" for call in s.calls) or int(bool(s.idle("sync")))
    evidence = (
        s.part("idle_sync", "Idle after synchronising", us, "in which the GPU had nothing to do because the host had waited for it."),
        fact("sync_calls", "Synchronising calls", calls, "count", f"Calls in the {s.word} that wait for the GPU."),
    )  # fmt: skip
    if not s.worth(saved) or not (gaps or late):
        none = f"No call waits for the GPU in the {s.word}."
        hardly = "The GPU is hardly ever idle after the host waited."
        return s.ruled_out(hardly if calls else none, *evidence)
    causes = [s.trace.calls[s.gaps[at].call] for at in gaps if s.gaps[at].call >= 0]
    if s.idle_us(gaps) < earlier:  # what few of them left idle is not what most of the time is
        causes = [*waiting]
    if s.step.launches <= TIMED and all(s.name(c).endswith("EventSynchronize") for c in causes):
        reason = f"The {s.word} waits for an event after {units.counted(s.step.launches, 'kernel')}, as programs do that measure them."
        return s.ruled_out(reason, *evidence)
    by_text, instead = _callers(s, causes)
    instead = instead or tables().frameworks["host-sync"]["torch"]
    instead = (*[_INSTEAD[1][1]] * bool(masks), *instead)
    then = f", and for {units.duration(earlier)} more as launches come late" * bool(late)
    few = f"{units.counted(len(reads), 'copy reads', 'copies read')} a few bytes back: the wait costs, not the bytes."
    if masks:
        few += f" Counting the entries of boolean masks takes {units.counted(len(masks), 'launch')}, which go with the waits."
    times = sum(s.gaps[at].cause == "sync" for at in gaps) or len(gaps)
    times = max(times, len(waiting)) if late else times
    where = s.waited(gaps)
    if s.idle_us(gaps) < earlier:
        where = s.lines((call, call.end - call.start) for call in waiting)
    return s.finding(
        f"The host waits for the GPU {units.counted(times, 'time')} in the {s.word}{by_text}. The GPU computes nothing for {s.of_step(us)} "
        f"because of that{then}.{f' {few}' * bool(reads)}",
        "high" if s.steady else "medium",
        msgspec.structs.replace(edit, drops=edit.drops.union(masks)),
        ops=sorted({*reads, *masks}),
        gaps=sorted({*gaps, *late}),
        evidence=evidence,
        arithmetic=f"{units.counted(len(gaps), 'gap')} of {units.duration(s.idle_us(gaps) / max(1, len(gaps)))} on average: "
        f"{units.duration(s.idle_us(gaps))}. None is left if work is queued before the host waits.",
        advice=(
            *_LESS_OFTEN * (bool(reads) and not s.framework),
            *s.advice("host-sync", torch=[*dict.fromkeys(instead)]),
        ),
        where=where,
    )


def _without_trials(s: StepFacts, gaps: list[int]) -> list[int]:
    """Gaps without those of cuDNN, which tries its algorithms at the first call of each shape."""
    by_call = [s.trace.calls[s.gaps[at].call] if s.gaps[at].call >= 0 else None for at in gaps]
    chains = zip(gaps, s.within(by_call), strict=True)
    return [at for at, chain in chains if not any(_TRIED in name for name in chain)]


def _callers(s: StepFacts, causes: Sequence[Call]) -> tuple[str, tuple[str, ...]]:
    """What waits, in words, and what to do instead of it."""
    named = Counter(chain[-1].partition(" ")[0] for chain in s.within(causes) if chain)
    names = Counter(s.name(call) for call in causes)
    most = [name for name, _ in (named or names).most_common(3) if name]
    words = {name.partition("::")[2] for name in named}
    instead = tuple(text for parts, text in _INSTEAD if words & set(parts))
    return f", by {units.listed(most)}" if most else "", instead
