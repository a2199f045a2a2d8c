"""The kernel reads the host's memory, over PCIe, instead of the GPU's own.

What it is
A kernel can reach the host's memory: pinned memory that is mapped, and managed memory that still
lies there. Each access that the GPU's caches do not have crosses PCIe.

Why it costs time
PCIe 3.0 to 5.0 move 16 to 64 GB/s at most, device memory 300 to 8000 GB/s, and an access over
PCIe takes a microsecond and more. Warps then wait for it while every unit of the GPU idles.

How to confirm
Sectors with system memory as their aperture, or L2 fills from system memory, near all that L2
fetches, with device memory idle. Or as many atomics on system memory as there are microseconds.

What to change
Copy the data to the GPU once (cudaMemcpy into cudaMalloc memory) before the kernel. For managed
memory prefetch it (cudaMemPrefetchAsync). Keep counters and results that are updated often in
device memory, and copy them back at the end.

When the advice is wrong
Where each byte is read once and never again, a copy takes as long as the kernel does: overlap the
two in pieces. Grace Hopper and Grace Blackwell reach the host over NVLink-C2C at up to 450 GB/s;
there it is a cause only where that link is full. On Jetson and DGX Spark both memories are one.

Source
CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device" and "Zero Copy"; CUDA C++
Programming Guide, "Unified Memory Programming", data prefetching.
"""

import math
from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.hardware.specs import host_link
from ncu_toolkit.base.model import Finding
from ncu_toolkit.kernel.diagnosis.kernel import Kernel, Outcome, Removal, percent
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, STALL, Threshold

TITLE: Final = "Host memory"
LIMIT: Final = "memory"
REQUIRES: Final = ("host_part", "host_rate")
OPTIONAL: Final = ("stalls", "host_sectors", "host_atomic_sectors", "dram_utilization")
NCU: Final = (("CPIStall", "long scoreboard"), ("SOLBottleneck", "latency"))
PART: Final = Threshold(
    0.5,
    "half of what L2 fetches: launches that work on host memory have 0.99 and more, all others on record 0.38 at most",
)
#: A mebibyte takes PCIe 5.0 16 us: less is parameters and code, which every launch fetches.
LEAST: Final = Threshold(2.0**20, "every launch fetches some KiB of parameters and code")
#: An access over PCIe takes one to two microseconds (Pearson et al., "Evaluating Characteristics of
#: CUDA Communication Primitives"), one of device memory 0.3 to 0.5, one that L2 answers 0.15: what
#: of the waiting stays.
LEFT: Final = 0.25
LOOKUPS: Final = Threshold(
    0.1,
    "an access over PCIe takes about 10 times as long as one that L2 answers, so a tenth of them take half of the waiting",
)
#: Such an access at least, in microseconds. L2 updates an address of device memory once a clock.
ACCESS_US: Final = 1.0
UPDATE: Final = 1e-3
IN_TURN: Final = Threshold(0.5, "most of the time, for atomics that are done one after another over PCIe, a microsecond each")  # fmt: skip
#: Stall reasons of warps that wait for memory outside the SM.
WAITING: Final = ("long_scoreboard", "lg_throttle", "drain", "membar")
_ADVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "cuda": ("Managed memory: prefetch it before the launch (cudaMemPrefetchAsync). Mapped pinned memory: copy the data into cudaMalloc memory "
             "first (cudaMemcpy).",
             "Keep results and counters that are updated often in device memory, also those of atomics. Copy them back once at the end."),
    "numba": ("Copy the arrays once before the launch (cuda.to_device), and pass the device arrays. Do not pass mapped or managed arrays that the "
              "host wrote last.",
              "Keep results that are updated often in a device array, and copy them back once (copy_to_host)."),
    "triton": ("Pass tensors that are on the GPU (x.cuda()), not pinned tensors of the host.",
               "Keep results on the GPU until the end."),
    "warp": ('Make the arrays with device="cuda", and copy those of the host once (wp.copy).',
             "Keep results on the GPU until the end."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    part, rate = k["host_part"], k["host_rate"]
    link = host_link(k.device.name, k.device.cc)
    moved, updates = k["host_bytes"] or 0.0, k["host_atomic_sectors"] or 0.0
    in_turn = updates * ACCESS_US / (k.profile.duration_us or math.inf)
    evidence = (
        k.fact("host_part", ">=", PART),
        k.fact("host_bytes", ">=", LEAST),
        k.fact("host_lookups", ">=", LOOKUPS),
        k.stated("host_updates", in_turn, ">=", IN_TURN) if updates else None,
        "host_rate dram_utilization stall_share:long_scoreboard stall_share:lg_throttle",
    )
    if link is None:
        return k.ruled_out("This GPU and the host share one memory.", evidence)
    lookups = k["host_lookups"]
    few = lookups is not None and lookups < LOOKUPS.value
    little = part is None or part < PART.value or moved < LEAST.value or few
    if rate is None or (little and in_turn < IN_TURN.value):
        return k.ruled_out("The kernel works on data in device memory or L2.", evidence)
    busiest, why = k.model.busiest()[1], ""
    if link.name != "PCIe" and rate < BUSY.value * link.bandwidth:
        why = f"Host memory is fast here: {_rate(rate)} of the {_rate(link.bandwidth)} that {link.name} can move."
    elif k.model.stalls and k.model.waiting(*WAITING) < STALL.value:
        why = "Warps wait little for memory."
    elif not k.model.stalls and busiest >= BUSY.value:
        why = "Other units are busy enough to be the limit."
    if why:
        return k.ruled_out(why, evidence)
    summary = f"{percent(part or 0.0)} of what the kernel fetches lies in the host's memory and comes over {link.name}, at {_rate(rate)}."
    summary += f" The link moves {_rate(link.bandwidth)} at most."
    left, basis = LEFT, "Device memory answers in a quarter of the time that the host takes."
    if little:
        left, basis = UPDATE, "L2 updates an address once a clock, the host's memory once a microsecond."  # fmt: skip
        summary = f"{units.count(updates)} atomics are on the host's memory. Each takes a microsecond over {link.name}, and those on one "
        summary += "address are done one after another, while the link idles."
    stalls = k.shrink(left, ("global", "atomic", "copy", "texture"), *WAITING)
    prediction = k.model.without(
        Removal("with the data in device memory", stalls=stalls, basis=basis)
    )
    predicted = prediction if k.model.stalls and prediction.quantified else None
    return Finding(
        k.rule,
        summary,
        "high",
        k.facts(*evidence),
        predicted.speedup if predicted else None,
        predicted.arithmetic
        if predicted
        else ("No estimate. The report does not show how much of the waiting is for the host.",),
        k.advice(**_ADVICE),
        "No sectors of system memory, and device memory busy instead.",
        k.locate_stall("long_scoreboard", ("global", "atomic")),
        # Without stall reasons only busy units tell what is left.
        weight=prediction.saved if k.model.stalls else max(0.0, 1 - busiest),
    )


def _rate(bytes_a_second: float) -> str:
    return f"{units.significant(bytes_a_second / 1e9)} GB/s"
