"""Attention is computed by separate launches, with the whole score matrix in memory.

What it is
Queries times keys, scale, mask, softmax, dropout and the product with the values are separate
launches. Each writes the scores, one number for each pair of positions, and the next reads them back.

Why it costs time
The scores are far larger than what goes in and comes out. Reading and writing them takes longer than
the products on tensor cores, and their memory limits the batch.

How to confirm
Between two products there is a softmax and nothing but passes over its data. The time grows with the
square of the sequence's length.

What to change
Call a fused attention, which keeps the scores of a tile on chip:
torch.nn.functional.scaled_dot_product_attention, FlashAttention, cuDNN's attention.

When the advice is wrong
The scores themselves are a result. A mask or bias that the fused kernels do not take: then compile the
written form (FlexAttention). Short sequences (a few dozen positions) gain little.

Source
Dao et al., "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness".
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "Unfused attention"


def find(s: StepFacts) -> StepOutcome:
    found = _patterns.attention(s)
    if not found:
        whole = s.us(s.of_class("attention"))
        if whole:
            return s.ruled_out(f"Attention is one fused kernel ({s.of_step(whole)}).")
        return s.ruled_out("No two products have a softmax between them.")
    between = {at for each in found for at in each.between}
    products = {at for each in found for at in (each.first, each.last)}
    inner, soft = s.us(between), s.us({at for each in found for at in each.softmax})
    # A softmax reads the scores and writes them. Of the products one writes and one reads them.
    handed = min(s.us(products), soft)
    evidence = (
        s.part("attention_between", "Between the products", inner,
               "in launches between the two products of an attention: scale, mask, softmax, dropout, copies."),
        fact("attentions", "Attentions", len(found), "count", "Pairs of products with a softmax between them, forward and backward."),
    )  # fmt: skip
    batched = all(_patterns.batched(s, each) for each in found)
    launches = len(between) + len(products)
    part = 1 - handed / (s.us(products) or 1.0)
    fused = Edit(drops=frozenset(between), keeps=dict.fromkeys(products, part))
    return s.finding(
        f"{units.counted(len(found), 'attention pass')}, forward or backward, run as {launches} kernels. Reading and writing "
        f"the score matrix takes {s.of_step(inner)}, and the products around it spend another {units.duration(handed)} writing and reading it.",
        "high" if batched else "medium",
        fused,
        ops=sorted(between | products),
        evidence=evidence,
        arithmetic=(
            f"A fused kernel needs none of the {units.counted(len(between), 'launch')} between the products: {units.duration(inner)}.",
            f"The products also write and read the scores, as the softmax does in {units.duration(soft)}: at most {units.duration(handed)} "
            f"of their time goes.",
        ),
        advice=s.advice("unfused-attention"),
    )
