"""The same few small kernels are launched again and again, once for each item of a loop.

What it is
A loop over items, heads, time steps or small matrices launches the same kernels with the same small
grid each time. Each launch fills a part of the GPU.

Why it costs time
A grid of fewer blocks than the GPU has SMs leaves the others idle, and the next launch waits for its
end.

How to confirm
The same sequence of at most four kernels, with the same grids, repeats without anything between. The
grids have fewer blocks than the GPU has SMs. Or a longer sequence of short kernels repeats 16 times or
more with other grids each time, as items of different size need, or about a hundred times with the same.

What to change
Process all items in one launch: one more dimension, vmap, a batched routine for products. Where each
iteration needs the one before (a recurrence, a solver): loop inside one kernel, or use a CUDA graph.

When the advice is wrong
Iterations that read something from the host in between cannot be one launch.

Source
CUDA C++ Best Practices Guide, "Thread and Block Heuristics"; cuBLAS documentation, batched routines.
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import authored
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.program.rules._host import dispatching
from ncu_toolkit.program.rules._tables import tables

TITLE: Final = "Loop of small launches"
PERIOD: Final = Threshold(
    4.0, "a layer of a network has more kernels than that, and layers cannot be batched"
)
TIMES: Final = Threshold(16.0, "fewer passes are often the layers of a small network")
_ITEMS: Final = (
    "Items of different size in one launch: put them one after another in one tensor, with an index of the item for each row "
    "(as torch_geometric's Batch does), or pad them to one size and mask.",
)
#: What multiplies many matrices in one call.
_BATCHED: Final = {"torch": "torch.bmm", "xla": "jax.numpy.einsum", "cupy": "cupy.matmul"}


def find(s: StepFacts) -> StepOutcome:
    sms = s.device.sm_count if s.device else 0
    if not sms:
        return s.abstain("The number of the GPU's SMs is not known.", "device")
    few, loops = _patterns.small(s), list[tuple[int, ...]]()
    for queue in s.queues:
        shapes = [s.ops[at].shape if at in few else None for at in queue]
        found = _patterns.repeats(shapes, PERIOD.value, TIMES.value)
        loops += [queue[begin:end] for begin, end, _ in found]
    alike = {at for loop in loops for at in loop}
    items = [(run, period) for run, period in _patterns.items(s) if not alike.intersection(run)]
    items = [(run, period) for run, period in items if run not in _patterns.parameters(s)]
    loops += [run for run, _ in items]
    handed = sorted(_patterns.arguments(s, (run for run, _ in items)))  # goes with the passes
    copies = [handed] * bool(handed)
    places = [at for run in (*loops, handed) for at in run]
    gaps = _patterns.gaps_within(s, *loops, [-1, *handed])
    us, idle = s.us(places), s.idle_us(gaps)
    periods = [1] * (len(loops) - len(items)) + [period for _, period in items]
    times = map(s.alongside, loops, periods)
    evidence = (
        s.part("small_loops", "In such loops", us + idle, "in loops of small launches, with the gaps between them."),
        fact("loop_passes", "Longest loop", max(map(len, loops), default=0), "count", "Launches of the longest loop.", TIMES),
    )  # fmt: skip
    if not loops:
        return s.ruled_out_by_grids("No small launches repeat back to back.", *evidence)
    first = max(loops, key=len)
    launch, period = s.launches[first[0]], dict(items).get(first, 0)
    batched = _BATCHED.get(s.framework, "cublasGemmStridedBatched")
    text = f"They are matrix products: one batched call does them ({batched})."
    products = (text,) * all(s.classes[at] == "product" for loop in loops for at in loop)
    name, blocks = (launch.function, launch.blocks or 0) if launch else ("", 0)
    own = all(authored(s.kernel(at)) for at in first)
    native = tables().frameworks["small-ops-loop"][""]
    varied = s.framework == "torch" and period > 0 and _patterns.sizes(s, first, period) > 1
    kinds = f"{name} with {units.counted(blocks, 'block')} on {sms} SMs"
    if period:
        kinds = f"{units.counted(len(first) // period, 'iteration')} of {units.counted(period, 'launch')}"
        more = len(first) % period
        kinds += f", and {units.counted(more, 'launch')} of one more" * (more > 0)
    # what JAX itself takes between them, for however long, goes with its calls
    merged = s.merged([*loops, *copies], [*times, *map(s.alongside, copies)])
    return s.finding(
        f"{units.count(sum(map(len, loops)))} small launches in {units.counted(len(loops), 'loop')} ({kinds}) "
        f"take {s.of_step(us + idle)} with the gaps between them; the GPU works for {units.duration(us)} of that. "
        f"One {'batched call' if period else 'launch'} could do all iterations{' of a loop' * (len(loops) > 1)}.",
        "low",
        Edit.joined((merged, Edit(moved=merged.drops if dispatching(s) else frozenset()))),
        ops=places,
        gaps=gaps,
        evidence=evidence,
        arithmetic=f"Side by side on all SMs, with a block each, they leave no gaps ({units.duration(idle)}).",
        advice=(*_ITEMS * varied, *products, *s.advice("small-ops-loop", native if own else None)),
    )
