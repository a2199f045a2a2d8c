"""Copies between host and device hold up the step.

What it is
Memory that `malloc` or NumPy gives is pageable. The driver copies it to a buffer of its own first, and
the call waits for that. Pinned memory is copied by the GPU directly, while the host goes on.

Why it costs time
Nothing runs beside a pageable copy of the same thread, and it has a third to a half of the link's
rate. The GPU computes nothing meanwhile.

How to confirm
The trace says pageable, or the rate is far below the link's. No kernel runs while the copy does.

What to change
Pin the memory, copy asynchronously on a stream of its own, and copy the next batch while this one is
computed. Copy less: narrower types (uint8 images, converted on the GPU), or data that stay on the GPU.

When the advice is wrong
Pinned memory cannot be swapped out: gigabytes of it starve the host. Grace Hopper's link is another.

Source
CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device"; PCI Express rates:
hardware/specs.py.
"""

from __future__ import annotations

from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis.program_rules._facts import StepFacts, StepOutcome, fact
from ncu_toolkit.hardware.specs import host_link

ID: Final = "host-copy"
TITLE: Final = "Copies between host and device"
SWITCH: Final = ""


def find(s: StepFacts) -> StepOutcome:
    copies = [
        at for at, op in enumerate(s.ops) if op.kind == "copy" and op.path in ("HtoD", "DtoH")
    ]
    if not copies:
        return s.ruled_out("The step copies nothing between host and device.")
    link = host_link(s.device.name, s.device.cc) if s.device else None
    # Of a copy whose memory is not known, only one that is slow as well is taken for pageable.
    slow = [
        at
        for at in copies
        if s.ops[at].pinned is False
        or (s.ops[at].pinned is None and link and _rate(s, at) < link.bandwidth / 4)
    ]
    gaps = [
        s.gap_before[at]
        for at in copies
        if at in s.gap_before and s.gaps[s.gap_before[at]].cause == "copy"
    ]
    gaps += [at for at in s.idle("copy") if at not in set(gaps)]
    held = s.us(slow) + s.idle_us(gaps)
    size = sum(s.ops[at].size for at in slow)
    evidence = (
        s.part(
            "copies_exposed",
            "Copies that nothing hides",
            held,
            "Part of the step in which the GPU copied from or to pageable memory, or waited for such a copy, and computed nothing.",
        ),
        fact(
            "pageable_copies",
            "Pageable copies",
            len(slow),
            "count",
            "Copies from or to memory that is not pinned, or too slow to be.",
        ),
        fact("copied_bytes", "Bytes", size, "B", "Bytes that they moved."),
    )
    if not s.worth(held):
        return s.ruled_out("Copies between host and device are pinned, hidden or short.", *evidence)
    proven = all(s.ops[at].pinned is False for at in slow)
    took = sum(s.ops[at].us for at in slow)
    rate = f", at {units.si(size / took * 1e6, 'B/s')}" if took and size else ""
    beside = (
        f" ({link.name} of this GPU: {units.si(link.bandwidth, 'B/s')})" if link and rate else ""
    )
    return s.finding(
        f"{units.counted(len(slow), 'copy', 'copies')} {'from or to pageable memory' if proven else 'from or to memory that seems to be pageable'} "
        f"and waiting for them take {s.of_step(held)}: {units.si(size, 'B')}{rate}{beside}.",
        "high" if proven else "medium",
        held,
        ops=slow,
        gaps=gaps,
        evidence=evidence,
        arithmetic=(
            f"The copies alone take {units.duration(s.us(slow))} of the step, waiting for them {units.duration(s.idle_us(gaps))}. All of it "
            f"goes if they run beside kernels.",
        ),
        advice=s.advice(
            "Allocate the host's side by cudaMallocHost, and copy by cudaMemcpyAsync on a stream of its own, one step ahead.",
            torch=(
                'DataLoader(pin_memory=True) and batch.to("cuda", non_blocking=True), one batch ahead on a side stream.',
                "Copy narrow types (uint8, float16) and convert them on the GPU.",
            ),
            cupy=("Use cupyx.empty_pinned for the host's side, and copy on a stream of its own.",),
        ),
    )


def _rate(s: StepFacts, at: int) -> float:
    """Bytes a second of a copy; without bound for one too small to tell."""
    op = s.ops[at]
    return op.size / op.us * 1e6 if op.size >= 1 << 20 and op.us else float("inf")
