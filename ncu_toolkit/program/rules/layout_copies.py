"""Kernels that only copy, transpose, concatenate or convert take a part of the step.

What it is
`.contiguous()`, `.to(dtype)`, `cat`, transposes before a library's kernel, and conversions between the
layouts of images (NCHW, NHWC) compute nothing: they only rearrange data.

Why it costs time
Each reads its data and writes them again.

How to confirm
The kernels' names say copy, transpose, cat or a layout.

What to change
Keep data in the form that the next kernel wants: channels_last for convolutions, one type for a whole
part of the model, products that take transposed inputs, outputs written into slices of one buffer.

When the advice is wrong
A conversion to a narrower type before large products pays. Some layouts only move the copy elsewhere.
The copy before a sort is needed, and so may be a kernel that the program's author wrote: these two are
left out.

Source
PyTorch documentation, "Channels Last Memory Format in PyTorch" and "Automatic Mixed Precision".
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.kernel.diagnosis.kernel import authored
from ncu_toolkit.kernel.diagnosis.thresholds import Threshold
from ncu_toolkit.program.rules import _patterns
from ncu_toolkit.program.rules._facts import StepFacts, StepOutcome

TITLE: Final = "Copies and conversions on the GPU"
_IMAGES: Final = "conversions between NCHW and NHWC"
_ORDER: Final = "layout changes"
#: What copies are by their kernels' names, in the order in which they are tried, and advice. PyTorch converts by a kernel named after
#: a narrow type, or with its "unrolled" kernel or one that is not "nocast". A plain copy in its elementwise kernel has strides.
_KINDS: Final = {
    _IMAGES: (r"(?i)nchwtonhwc|nhwctonchw", "Convolutions on tensor cores prefer NHWC: model.to(memory_format=torch.channels_last), "
        "and x = x.to(memory_format=torch.channels_last) for its input."),
    "type conversions": (r"float\d+\w*_copy_kernel|(?:unrolled_elementwise_kernel|gpu_kernel_impl)<\S*direct_copy|(?i:convert)",
        "Type conversions come from torch.autocast, at each operator, and from .to(): torch.compile fuses them. For inference convert "
        "the model once (model.to(torch.bfloat16)), if it stays accurate enough; in training that loses small updates of weights."),
    "concatenations": (r"CatArray", "Concatenations come from torch.cat and torch.stack, or the gradients of split, chunk and unbind: "
        "write the parts into slices of one tensor."),
    _ORDER: (r"elementwise_kernel<\d+, ?\d+.*direct_copy|(?i:transpose|permut)", "After a transpose or permute, "
        "contiguous(), reshape() and many operators copy the tensor: keep tensors in the memory layout that the next operator reads."),
}  # fmt: skip
_FFT: Final = (
    "Layout changes come from torch.fft where its axis is not the last (one call over several axes, fftn, makes fewer), and from "
    "contiguous(), or operators after a transpose or permute."
)
MOST: Final = Threshold(0.5, "moving data takes longer than all that is done with it")
#: A kind of copies with less of their time is not named.
_NAMED: Final = 0.2


def find(s: StepFacts) -> StepOutcome:
    if s.framework == "xla":
        return s.abstain(
            "XLA places copies and conversions itself. The trace does not show which the program asked for.",
            "the program's operations",
        )
    within = {at for each in _patterns.attention(s) for at in each.between}
    apart = " outside of attention" * any(s.classes[at] == "layout" for at in within)
    taken = within.union(_meant(s))
    places = [at for at in s.of_class("layout") if at not in taken]
    places += [at for at in range(len(s.ops)) if _patterns.moves(s, at) and at not in taken]
    us = s.us(places)
    kinds: dict[str, float] = defaultdict(float)
    for at in places:
        name, other = s.kernel(at), getattr(s.launches[at], "function", "")
        matching = (kind for kind, (pattern, _) in _KINDS.items() if re.search(pattern, name))
        kind = next(matching, "" if "elementwise" in other else other)
        kinds[kind] += s.account.exclusive_us[at]
    large = sorted((x for x in kinds if x and kinds[x] >= _NAMED * us), key=lambda x: -kinds[x])
    evidence = (
        s.part("layout", "Copies and conversions", us, "in kernels and copies that only move data within the GPU's memory."),
    )  # fmt: skip
    if not s.worth(us):
        reason = f"Copies and conversions on the GPU take little of the {s.word}."
        return s.ruled_out(reason, *evidence)
    parts = [f"{kind} ({units.duration(kinds[kind])})" for kind in large]
    mostly = "mostly" if sum(kinds[kind] for kind in large) > us / 2 else "of them"
    text = f", {mostly} {units.listed(parts)}" if large else ""
    if large and kinds[large[0]] > 0.999 * us:
        text = f", all of them {large[0]}"
    if _IMAGES not in large:
        s.useless.add("channels-last")
    order = _FFT if "fft" in s.classes else _KINDS[_ORDER][1]
    fixes = (order if kind == _ORDER else _KINDS[kind][1] for kind in large if kind in _KINDS)
    images = _IMAGES in large and kinds[_IMAGES] + kinds[_ORDER] > us / 2
    return s.finding(
        f"{units.counted(len(places), 'launch')} to copy or convert data{apart}{text}: {s.of_step(us)}.",
        "medium" if images or s.worth(us, MOST) else "low",
        s.faster(places),
        ops=places,
        evidence=evidence,
        advice=s.advice("layout-copies", torch=[*fixes] or None),
    )


def _meant(s: StepFacts) -> Iterator[int]:
    """Copies that the step needs: what the program's author wrote as its own kernel, and the
    copy before a sort, which works in place."""
    for queue in s.queues:
        work = [at for at in queue if s.classes[at] != "set"]
        for at, after in pairwise((*work, -1)):
            sorts = after >= 0 and s.classes[after] == "sort" and s.classes[at] != "sort"
            if sorts or authored(s.kernel(at)):
                yield at
