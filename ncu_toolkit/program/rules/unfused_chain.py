"""Elementwise kernels of one size follow each other, each passing over the data again.

What it is
Bias, activation, residual, dropout, scale: each an operator, each a launch that reads a tensor and
writes it.

Why it costs time
Such a kernel computes a few operations on each number that it moves. Memory limits it, and one kernel
for all of them would move the data once.

How to confirm
Three launches or more follow each other on one stream, none does more than a few operations on each
element, and their sizes agree.

What to change
Compile the model (torch.compile, jax.jit, cupy.fuse), or write one kernel for the chain.

When the advice is wrong
That a launch reads what the one before wrote is not in a trace. Launches on unrelated data save no
bytes in one kernel. Results that the backward pass needs are written anyway.

Source
PyTorch documentation, "Performance Tuning Guide": fuse pointwise operations.
"""

from collections.abc import Iterator
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import authored
from ncu_toolkit.kernel.diagnosis.thresholds import CHAIN
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

_OWN: Final = "Or fold them into your own kernel, if one runs before or after them."
TITLE: Final = "Unfused elementwise kernels"
_PASSES: Final = ("elementwise", "layout", "random")


def find(s: StepFacts) -> StepOutcome:
    chains = list(_chains(s))
    places = [at for chain in chains for at in chain]
    us = s.us(places)
    evidence = (
        s.part("chains", "In chains", us, "in elementwise launches that follow each other on one stream with sizes that agree."),
        fact("longest_chain", "Longest chain", max(map(len, chains), default=0), "count", "Launches one after another.", CHAIN),
    )  # fmt: skip
    if not chains:
        return s.ruled_out_by_grids(
            "Few elementwise launches of one size follow each other.", *evidence
        )
    copies = any(s.classes[at] == "layout" for at in places)
    own = bool(s.framework) and any(launch and authored(launch.kernel) for launch in s.launches)
    return s.finding(
        f"{len(places)} {'launches of elementwise kernels and copies' if copies else 'elementwise launches'} in "
        f"{units.counted(len(chains), 'chain')} take {s.of_step(us)}. If each reads what the one before wrote, "
        f"one fused kernel can replace {'the' if len(chains) == 1 else 'a'} chain.",
        "low",
        s.merged(chains, most=False),
        ops=places,
        evidence=evidence,
        arithmetic="One launch for each chain takes at least as long as its longest launch.",
        advice=(*s.advice("unfused-chain"), *[_OWN] * own),
    )


def _chains(s: StepFacts) -> Iterator[tuple[int, ...]]:
    """CHAIN elementwise launches or more in a row, of sizes that agree, that no known composition
    has."""
    taken = {at for group in _patterns.composed(s).values() for each in group for at in each}
    taken |= {at for each in _patterns.attention(s) for at in each.between}
    if update := _patterns.optimizer(s):
        taken.update(update.ops)
    for queue in s.queues:
        chain: list[int] = []
        for at in (*queue, -1):
            fits = at >= 0 and s.classes[at] in _PASSES and at not in taken
            if chain and not (fits and _patterns.agree(s.launches[chain[-1]], s.launches[at])):
                if len(chain) >= CHAIN.value:
                    yield tuple(chain)
                chain = []
            if fits:
                chain.append(at)
