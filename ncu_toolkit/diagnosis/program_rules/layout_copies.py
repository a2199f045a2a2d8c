"""Kernels that only copy, transpose, concatenate or convert take a part of the step.

What it is
`.contiguous()`, `.to(dtype)`, `cat`, transposes before a library's kernel, and conversions between the
layouts of images (NCHW, NHWC) compute nothing: they bring data into another form.

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

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.kernel import authored
from ncu_toolkit.diagnosis.program_rules import _patterns
from ncu_toolkit.diagnosis.program_rules._facts import StepFacts, StepOutcome

TITLE: Final = "Copies and conversions on the GPU"
#: The operator by which PyTorch converts a dtype.
_CAST: Final = "aten::_to_copy"
#: Parts of names of kernels that change an image's layout for a convolution.
_IMAGES: Final = ("nchwtonhwc", "nhwctonchw")


def find(s: StepFacts) -> StepOutcome:
    if s.framework == "xla":
        return s.abstain(
            "XLA places copies and conversions itself. The trace does not show which the program asked for.",
            "the program's operations",
        )
    taken = {at for each in _patterns.attention(s) for at in each.between}
    taken |= set(_meant(s))
    places = [at for at in s.of_class("layout") if at not in taken]
    places += [at for at in range(len(s.ops)) if _patterns.moves(s, at) and at not in taken]
    us = s.us(places)
    images = [
        at
        for at in places
        if any(p in getattr(s.launches[at], "kernel", "").lower() for p in _IMAGES)
    ]
    evidence = (
        s.part(
            "layout",
            "Copies and conversions",
            us,
            f"Part of the {s.word} in kernels and copies that only move data within the GPU's memory.",
        ),
    )
    if not s.worth(us):
        return s.ruled_out(
            f"Copies and conversions on the GPU take little of the {s.word}.", *evidence
        )
    by: Counter[str] = Counter()
    for at in places:
        by[next((n for n in s.operators[at] if n.startswith("aten::")), "").partition(" ")[0]] += 1
    named = [name for name, _ in by.most_common(3) if name]
    said = f", called by {units.listed(named)}" if named else ""
    advice = (
        "Keep tensors in the layout and type that the next kernel reads, so that they need no copy.",
    )
    torch: tuple[str, ...] = (
        "Keep one dtype through a part of the model, and avoid .contiguous(), .to() and torch.cat in the step.",
    )
    cast = [at for at in places if any(n.startswith(_CAST) for n in s.operators[at])]
    if s.us(cast) > us / 2:
        torch = (
            "Most convert a dtype. Under torch.autocast each operator does that: convert the model once (model.to(torch.bfloat16)), or "
            "compile it (torch.compile), which fuses conversions.",
        )
    if images:
        torch = (
            "model.to(memory_format=torch.channels_last), and the input as well: convolutions on tensor cores want NHWC.",
            *torch,
        )
    return s.finding(
        f"{units.counted(len(places), 'launch', 'launches')} to copy or convert data{said}: {s.of_step(us)}.",
        "medium" if images and s.us(images) > us / 2 else "low",
        us,
        ops=places,
        evidence=evidence,
        arithmetic=(
            f"Without them {units.duration(us)} of the {s.word} goes, if no other kernel gets slower.",
        ),
        advice=s.advice(*advice, torch=torch),
    )


def _meant(s: StepFacts) -> Iterator[int]:
    """Copies that the step needs: what the program's author wrote as a kernel of its own, and the
    copy before a sort, which works in place."""
    for queue in s.queues:
        work = [at for at in queue if s.classes[at] != "set"]
        for at, after in pairwise((*work, -1)):
            launch = s.launches[at]
            if (launch is not None and authored(launch.kernel)) or (
                after >= 0 and s.classes[after] == "sort" and s.classes[at] != "sort"
            ):
                yield at
