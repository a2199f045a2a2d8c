"""Layers compute on padding, whose results nobody uses.

What it is
Sequences of a batch have one length in a tensor: short ones are padded, and a mask says which elements
count. Attention leaves the others out of its sums, but products, norms and activations compute them.

Why it costs time
Time grows with rows times columns, padding included, and that of attention with the square of the
columns.

How to confirm
Print `attention_mask.float().mean()`, or the mean of the lengths over the width, for some batches, and
the longest row beside the width.

What to change
Pad each batch to its longest row, not to a fixed length. Then sort or bucket samples by length, so that
rows of a batch are about as long. Or pack samples one after another (FlashAttention with `cu_seqlens`,
nested tensors), which needs no padding.

When the advice is wrong
A compiled program or a CUDA graph needs few shapes: pad to multiples of 64, say. The masks are those of
the first batches: warm-up with others says nothing about the rest.

Source
Hugging Face Transformers documentation, "Data collators" and "Padding and truncation"; PyTorch
documentation, `torch.nested`.
"""

from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.model import Edit
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome, fact

TITLE: Final = "Work on padding"
RAGGED: Final = Threshold(0.5, "of the longest row of a batch is what its mean row fills: from uniform lengths on, sorting gains little")  # fmt: skip
WIDE: Final = Threshold(0.75, "of the width is what the longest row fills: padding to it gains little, so rows are packed")  # fmt: skip
#: What takes as long however long the rows are.
_ALIKE: Final = ("optimizer", "collective")
#: What grows with the square of the columns.
_SQUARE: Final = ("attention", "softmax")


def find(s: StepFacts) -> StepOutcome:
    seen = s.trace.padding
    if seen is None or not seen.elements:
        return s.abstain(
            "No mask and no lengths of a padded batch were seen; recordings have them.", "masks"
        )
    used, kept = seen.longest / seen.elements, seen.kept / seen.elements
    padding = f"{units.percent(1 - kept, 2)} of the elements"
    evidence = (
        fact("padding", "Padding", 1 - kept, "fraction", f"Part of the elements of the first batches that are padding, by {seen.mask}."),
        fact("empty_columns", "Empty columns", 1 - used, "fraction", "Part of the width of these batches in which no row has an element."),
    )  # fmt: skip
    ragged = kept < RAGGED.value * used
    part, how = (used + kept) / 2 if ragged else used, "Batches are as wide as their longest row"
    how += ", and sorting by length halves the padding that is left" * ragged
    if ragged and used >= WIDE.value:
        part, how = kept, "Rows are packed, without padding"
    text = "attention" in seen.mask
    tokens = ': padding="longest" of a tokenizer, DataCollatorWithPadding' * text
    trainer = " (group_by_length=True of Trainer)" * text
    kernels = [at for at, x in enumerate(s.classes) if s.launches[at] and x not in _ALIKE]
    if not s.worth(s.us(kernels) * (1 - part)):
        return s.ruled_out(f"{padding} of the first batches are padding.", *evidence)
    return s.finding(
        f"{padding} are padding: rows have {units.counted(seen.width, 'column')}, "
        f"of which the longest row of a batch fills {units.percent(used, 2)} and the mean one {units.percent(kept, 2)} "
        f"(first batches, {seen.mask}).",
        "medium",
        Edit(keeps={at: part * part if s.classes[at] in _SQUARE else part for at in kernels}),
        ops=kernels,
        where=(seen.line,) if seen.line else (),
        evidence=evidence,
        arithmetic=f"{how}: kernels other than the optimizer's take {units.percent(part, 2)} of their time, those of attention the square of that.",
        advice=(
            *("Pad each batch to its longest row, not to a fixed length" + tokens + ".",) * (used < 1),
            *(f"Put rows of about the same length into a batch: sort or bucket by length{trainer}.",) * ragged,
            "Without any padding: nested tensors (torch.nested), or FlashAttention with cu_seqlens.",
        ),
    )  # fmt: skip
