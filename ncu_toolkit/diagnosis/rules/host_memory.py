"""The kernel reads the host's memory, over PCIe, in place of the GPU's own.

What it is
A kernel can reach the host's memory: pinned memory that is mapped, and managed memory that still
lies there. Each access that the GPU's caches do not have crosses PCIe.

Why it costs time
PCIe 3.0 to 5.0 move 16 to 64 GB/s at most, device memory 300 to 8000 GB/s, and an access over
PCIe takes a microsecond and more. Warps then wait for it while every unit of the GPU idles.

How to confirm
Sectors with system memory as their aperture, or L2 fills from system memory, near all that L2
fetches, with device memory idle.

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

from __future__ import annotations

from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    STALL,
    Threshold,
    blame,
    fact,
    facts,
    keep,
    locate_stall,
    ruled_out,
    stall_fact,
)
from ncu_toolkit.diagnosis.time_model import Removal, TimeModel
from ncu_toolkit.hardware.specs import Link, host_link
from ncu_toolkit.model import Finding, NoFinding, Profile

ID: Final = "host-memory"
TITLE: Final = "Host memory"
LIMIT: Final = "memory"
REQUIRES: Final = ("host_part", "host_rate")
OPTIONAL: Final = ("stalls", "host_sectors", "dram_utilization")
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
#: Stall reasons of warps that wait for memory outside the SM.
WAITING: Final = ("long_scoreboard", "lg_throttle", "drain", "membar")


class Words:
    shared = "This GPU and the host share one memory."
    little = "The kernel works on data in device memory or L2."
    busy = "Other units are busy enough to be the limit."
    elsewhere = "Warps wait little for memory."
    fast = "Host memory is fast here: {rate} of the {most} that {link} can move."
    found = (
        "{part} of what the kernel fetches lies in the host's memory and comes over {link}, at {rate}. "
        "The link moves {most} at most."
    )
    basis = "Device memory answers in a quarter of the time that the host takes."
    no_figure = "No estimate. The report does not show how much of the waiting is for the host."
    advice = (
        (
            "Managed memory: prefetch it before the launch (cudaMemPrefetchAsync). Mapped pinned memory: copy the data into "
            "cudaMalloc memory first (cudaMemcpy)."
        ),
        "Keep results and counters that are updated often in device memory, also those of atomics. Copy them back once at the end.",
    )
    elsewhere_advice: ClassVar[language.Elsewhere] = {
        "numba": (
            (
                "Copy the arrays once before the launch (cuda.to_device), and pass the device arrays. Do not pass mapped or "
                "managed arrays that the host wrote last."
            ),
            "Keep results that are updated often in a device array, and copy them back once (copy_to_host).",
        ),
        "triton": (
            "Pass tensors that are on the GPU (x.cuda()), not pinned tensors of the host.",
            "Keep results on the GPU until the end.",
        ),
        "warp": (
            'Make the arrays with device="cuda", and copy those of the host once (wp.copy).',
            "Keep results on the GPU until the end.",
        ),
    }
    look_for = "No sectors of system memory, and device memory busy instead."


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    part, rate = figures.value(profile, "host_part"), figures.value(profile, "host_rate")
    link = host_link(profile.device.name, profile.device.cc)
    moved = figures.value(profile, "host_bytes") or 0.0
    evidence = (
        fact(profile, "host_part", "", PART, ">="),
        fact(profile, "host_bytes", "", LEAST, ">="),
        fact(profile, "host_lookups", "", LOOKUPS, ">="),
        fact(profile, "host_rate"),
        fact(profile, "dram_utilization"),
        *(stall_fact(profile, reason) for reason in WAITING[:2]),
    )
    if link is None:
        return ruled_out(ID, Words.shared, *evidence)
    lookups = figures.value(profile, "host_lookups")
    few = lookups is not None and lookups < LOOKUPS.value
    if part is None or rate is None or part < PART.value or moved < LEAST.value or few:
        return ruled_out(ID, Words.little, *evidence)
    if why := _not_the_limit(rate, link, model):
        return ruled_out(ID, why, *evidence)
    prediction = model.without(
        Removal(
            "with the data in device memory",
            stalls={
                reason: keep(blame(profile, reason, ("global", "atomic", "copy", "texture")), LEFT)
                for reason in WAITING
            },
            basis=Words.basis,
        )
    )
    told = prediction if model.stalls and prediction.quantified else None
    busiest = model.busiest()[1]
    return Finding(
        ID,
        Words.found.format(
            part=units.percent(part),
            link=link.name,
            rate=_rate(rate),
            most=_rate(link.bandwidth),
        ),
        "high",
        facts(*evidence),
        told.speedup if told else None,
        told.arithmetic if told else (Words.no_figure,),
        language.advice(profile, Words.advice, Words.elsewhere_advice),
        Words.look_for,
        locate_stall(profile, "long_scoreboard", ("global", "atomic")),
        # Without stall reasons only busy units tell what is left.
        weight=prediction.saved if model.stalls else max(0.0, 1 - busiest),
    )


def _not_the_limit(rate: float, link: Link, model: TimeModel) -> str:
    """Why host memory is no cause although most comes from there; empty where it is one."""
    if link.name != "PCIe" and rate < BUSY.value * link.bandwidth:
        return Words.fast.format(rate=_rate(rate), most=_rate(link.bandwidth), link=link.name)
    if model.stalls:
        return "" if model.waiting(*WAITING) >= STALL.value else Words.elsewhere
    return Words.busy if model.busiest()[1] >= BUSY.value else ""


def _rate(bytes_a_second: float) -> str:
    return f"{units.significant(bytes_a_second / 1e9)} GB/s"
