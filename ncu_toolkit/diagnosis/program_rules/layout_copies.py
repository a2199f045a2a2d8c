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

import re
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
_IMAGES: Final = "layouts of images for convolutions"
_ORDER: Final = "copies into another order"
#: What copies are, by their kernels' names, in the order in which they are tried. PyTorch converts by a
#: kernel named after a narrow type, or by one that loads or stores with a cast: its "unrolled" kernel, or
#: one that is not "nocast". A plain copy in its elementwise kernel has strides: the data are put into
#: another order.
_KINDS: Final = {
    _IMAGES: re.compile(r"(?i)nchwtonhwc|nhwctonchw"),
    "conversions of type": re.compile(
        r"float\d+\w*_copy_kernel|unrolled_elementwise_kernel<\S*direct_copy|gpu_kernel_impl<\S*direct_copy|(?i:convert)"
    ),
    "concatenations": re.compile(r"CatArray"),
    _ORDER: re.compile(r"elementwise_kernel<\d+, ?\d+.*direct_copy|(?i:transpose|permut)"),
}
#: What makes them in PyTorch, and what to do.
_TORCH: Final = {
    _IMAGES: "Convolutions on tensor cores want NHWC: model.to(memory_format=torch.channels_last), and the same of "
    "the input. There permute(0, 2, 3, 1) is contiguous as it is.",
    "conversions of type": "Conversions: torch.autocast converts inputs and weights at each operator, and so does .to(). Convert the model once "
    "(model.to(torch.bfloat16)), or compile it (torch.compile), which fuses conversions.",
    "concatenations": "Concatenations are torch.cat and torch.stack, or the gradients of split, chunk and unbind: write the parts into slices "
    "of one tensor.",
    _ORDER: "Copies into another order are contiguous(), or reshape() and operators after a transpose or permute: keep "
    "the order that the next operator reads.",
}
#: A kind of copies with less of their time is not named.
_NAMED: Final = 0.2


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
    kinds: dict[str, list[int]] = {}
    for at in places:
        kinds.setdefault(_kind(s, at), []).append(at)
    large = sorted(
        (kind for kind in kinds if kind and s.us(kinds[kind]) >= _NAMED * us),
        key=lambda kind: (kind != _IMAGES, -s.us(kinds[kind])),
    )
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
    if large:
        parts = [f"{len(kinds[kind])} {kind} ({units.duration(s.us(kinds[kind]))})" for kind in large]
        said = f"{said}, among them {units.listed(parts)}"
    advice = (
        "Keep tensors in the layout and type that the next kernel reads, so that they need no copy.",
    )
    turned = s.us([at for kind in (_IMAGES, _ORDER) for at in kinds.get(kind, ())])
    return s.finding(
        f"{units.counted(len(places), 'launch', 'launches')} to copy or convert data{said}: {s.of_step(us)}.",
        "medium" if _IMAGES in large and turned > us / 2 else "low",
        us,
        ops=places,
        evidence=evidence,
        arithmetic=(
            f"Without them {units.duration(us)} of the {s.word} goes, if no other kernel gets slower.",
        ),
        advice=s.advice(*advice, torch=tuple(_TORCH[kind] for kind in large) or advice),
    )


def _kind(s: StepFacts, at: int) -> str:
    """What a copy is, of `_KINDS`; "" where nothing tells."""
    name = getattr(s.launches[at], "kernel", "")
    found = next((kind for kind, pattern in _KINDS.items() if pattern.search(name)), "")
    cast = any(n.startswith(_CAST) for n in s.operators[at])
    return "conversions of type" if cast and found != "concatenations" else found


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
