"""A norm, an activation, a softmax, distances of points or a loss are computed step by step, with one launch for each.

What it is
Mean, difference, square, mean, root, product: a layer norm written as its formula is eight launches.
The same is true of GELU by its tanh, softmax by exp and sum, cross-entropy by log and gather. Distances of all
pairs of points as (x[:, None] - y[None]).pow(2).sum(-1).sqrt() also keep every difference in memory.

Why it costs time
Each launch reads the whole tensor from memory and writes it again, where one kernel reads it once.

How to confirm
Launches run in the order of the formula. Their names show what each computes.

What to change
Call the framework's function, which is one kernel forward and one or two backward: layer_norm,
rms_norm, gelu, softmax, cdist, cross_entropy. Or compile the model.

When the advice is wrong
The formula differs from the function's (another epsilon's place, another axis). Small tensors gain
launches, not bytes. torch.cdist of many points uses a matrix product, which is less exact for points that
are close together (compute_mode="donot_use_mm_for_euclid_dist" is exact).

Source
PyTorch documentation, "Performance Tuning Guide": fuse pointwise operations; torch.cdist.
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome
from ncu_toolkit.program.rules._patterns import BACKWARD, COORDINATES, PAIRS, PRODUCT, composed

TITLE: Final = "Unfused norm, activation, softmax, distance or loss"
_CALLS: Final = {
    "norm": "torch.nn.functional.layer_norm or rms_norm",
    "GELU": 'torch.nn.functional.gelu(x, approximate="tanh")',
    "softmax": "torch.softmax",
    PAIRS: "torch.cdist",
    PRODUCT: "matmul or einsum",
    "cross-entropy": "torch.nn.functional.cross_entropy(logits, target, label_smoothing=...)",
}  # fmt: skip


def find(s: StepFacts) -> StepOutcome:
    found = composed(s)
    named = [(name, group) for name, each in found.items() for group in each]
    places = [at for _, group in named for at in group]
    us = s.us(places)
    # PyTorch's layer_norm has a kernel for the gradient of its input, and one for those of weight and bias.
    left = {"norm" + BACKWARD: 2} | dict.fromkeys(
        (PAIRS, PAIRS + BACKWARD, PRODUCT), 1 / COORDINATES
    )
    times = [s.longest(x) * left.get(name, 1) for name, x in named]
    evidence = (
        s.part("written_out", "Unfused", us, "in launches that compute a known function step by step."),
    )  # fmt: skip
    if not named:
        return s.ruled_out("No norm, GELU, softmax, distance or loss is unfused.", *evidence)
    what = [*dict.fromkeys(name.removesuffix(BACKWARD) for name in found)]
    kinds = [units.counted(len(each), name) for name, each in found.items()]
    return s.finding(
        f"{units.listed(kinds)} {'take' if len(named) > 1 else 'takes'} {units.counted(len(places), 'launch')} and "
        f"{s.of_step(us)} as they are.",
        "medium",
        s.merged([group for _, group in named], times, most=False),
        ops=places,
        evidence=evidence,
        arithmetic="One kernel passes over the data once, as the longest launch of each does; over distances, not differences.",
        advice=s.advice("spelled-out", calls=units.listed([_CALLS[each] for each in what])),
        title=f"Unfused {units.listed(what)}",
    )
