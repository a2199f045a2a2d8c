"""Launching the kernel, or its blocks, costs as much as its work.

What it is
Starting a kernel takes a few microseconds on the host and one to four on the GPU: fetching its code and parameters,
distributing blocks, waiting for the last store. For a kernel with microseconds of work this doubles the time; a chain
of small kernels pays it each time, and writes to memory what the next one reads back.

Why it costs time
The GPU is idle, or starting up, between pieces of work. A grid of very many short blocks has the same problem inside:
the GPU starts less than one block per cycle, and SMs whose blocks end faster than new ones start stay half empty.

How to confirm
The duration is a few microseconds, while every resource would need only a fraction of it; or the problem is solved by
many launches; or 0.3 blocks or more start per cycle, no unit is busy, and the SMs always have a block but hold less
than half of their warps.

What to change
Fuse kernels; batch small problems into one launch; use a CUDA graph, or use a persistent kernel.

When the advice is wrong
A single launch per request cannot be merged with anything. Look at the timeline (Nsight Systems) for what happens
between launches: ncu profiles one launch at a time.

Source
CUDA C++ Programming Guide, "CUDA Graphs"; launch cost: the NVIDIA developer blog "Getting Started with CUDA Graphs"
measures at least 2.2 µs per kernel without graphs.
"""

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.model import Evidence, Finding
from ncu_toolkit.kernel.diagnosis.kernel import (
    Kernel,
    Outcome,
    Removal,
    capital,
    keep,
    may_be_cupys,
    percent,
)
from ncu_toolkit.kernel.diagnosis.rules._launch import shared_wavefront_part
from ncu_toolkit.kernel.diagnosis.thresholds import BUSY, CHAIN, FILLED, STARTING, Threshold
from ncu_toolkit.kernel.diagnosis.time_model import FLOOR_US, LAUNCH, RESOURCES

TITLE: Final = "Kernel or block launch overhead"
REQUIRES: Final = ("duration",)
OPTIONAL: Final = ("waves",)
NCU: Final = (("SOLBottleneck", "small grid"),)
UNITS: Final = ("blocks",)
FROM_SHAPE: Final = True
CONFIRMED_BY: Final = ()
WHOLE_JOB: Final = True
#: Microseconds between back-to-back small kernels that the profiler does not see (source above).
BETWEEN_US: Final = 2.2
SHORT: Final = Threshold(10.0, "where the 2.2 us between launches and the 1.2 us of start and end are a third of the time")  # fmt: skip
REFILLED: Final = Threshold(2.0, "from two waves on an SM's blocks are replaced as they end, so that the pace of starting them matters")  # fmt: skip
MANY: Final = Threshold(0.35, "public launches of short blocks start 0.37 to 0.50 of 0.84 per cycle, and hold 15 to 46% of their warps")  # fmt: skip
HALF_FULL: Final = Threshold(0.6, "above the 0.15 to 0.46 of those launches")
#: Times the work of a block that the advice asks for: four elements per thread where there was one.
MORE_WORK: Final = 4
SHARE: Final = Threshold(0.3, "overhead is then the largest single part of a short kernel's time")
LOOK_FOR: Final = "Fewer and longer launches for the same result."
FUSE: Final = (
    "Fuse it with the launches before and after it, so that intermediate results stay in registers. "
    "If it is launched again and again, loop inside one kernel.",
    "Or capture the sequence in a CUDA graph.",
)
_CUPY: Final = (
    "CuPy: call an ElementwiseKernel with block_size=512. Several elements per thread need a RawKernel.",
)


CALL: Final = {
    "torch": ("Let torch.compile fuse the operators around it, so that intermediate results stay in registers.",
              'Batch many small problems into one call, or capture the calls in a CUDA graph (mode="reduce-overhead").'),
    "xla": ("Put the whole computation into one jax.jit function, so that XLA can fuse it.",
            "Batch many small problems into one call (jax.vmap)."),
    "cupy": ("Replace a loop of small calls by one call over the whole array.",
             "Fuse neighbouring calls by cupy.fuse or an ElementwiseKernel."),
    "library": ("Use a batched or grouped routine for many small problems.",
                "Capture the sequence of calls in a CUDA graph."),
}  # fmt: skip


def find(k: Kernel) -> Outcome:
    duration = k.profile.duration_us or 0.0
    launches, chain = k.context.launch_count - 1 + k.context.repeat, k.is_chain
    measured = k.fact("duration", "<", SHORT)
    counted = k.stated("launches", launches, ">=", CHAIN) if launches > 1 else None
    if duration >= SHORT.value and not chain:
        if (k["waves"] or 0.0) >= REFILLED.value and _starts_late(k):
            return _short_blocks(k)
        reason = f"It runs for {units.duration(duration)}, much longer than a launch costs."
        return k.ruled_out(reason, measured, counted)
    useful = useful_us(k, dict.fromkeys(RESOURCES, 1.0))
    useful = min(duration, useful) if useful is not None else max(0.0, duration - FLOOR_US)
    # A single launch that becomes part of another sheds what launching costs; what it does with the
    # GPU in between is not the launch's fault.
    alone = duration - min(FLOOR_US, duration - useful)
    fused = max(_fused_us(k, useful, launches)) if chain else alone
    saved = max(0.0, 1 - fused / (duration + BETWEEN_US))
    if saved < SHARE.value:
        reason = f"Useful work takes {percent(1 - saved)} of the time from launch to launch."
        return k.ruled_out(reason, measured, counted)
    shown = k.facts(measured, counted, "waves")
    if chain:
        return _one_of_many(k, useful, launches, shown)
    # What another kernel would take with this one's work in it, this one's profile does not show.
    time = units.duration
    summary = "Starting and ending this kernel costs as much as its computation."
    if idle := k.launch.idle_us:
        summary = f"This kernel takes {time(duration)}. With nothing to load or store, it would still take {time(idle)}."
    return Finding(
        k.rule,
        summary,
        "low",
        shown,
        None,
        (
            f"Start and end take {time(duration - fused)} of {time(duration)}.",
            "No estimate, because the gain depends on the launches before and after it.",
        ),
        FUSE,
        LOOK_FOR,
        relieves=dict.fromkeys((*k.model.loads, LAUNCH), 0.0),
        weight=saved,
    )


def _fused_us(k: Kernel, useful: float, launches: int) -> tuple[float, float]:
    """What each launch of a chain is left with when one kernel takes its place, and its own work in
    that. One kernel starts once and passes over the data once, so each launch has its share of
    that, and all that has nothing to do with passing over it (kept)."""
    shared_out = (FLOOR_US + BETWEEN_US + useful) / launches
    return shared_out, min(k.profile.duration_us or 0.0, useful_us(k, kept(k)) or 0.0)


def _one_of_many(k: Kernel, useful: float, launches: int, shown: tuple[Evidence, ...]) -> Finding:
    """One of several launches of one job, which one fused kernel could do."""
    duration, time = k.profile.duration_us or 0.0, units.duration
    floor, between, now = time(FLOOR_US), time(BETWEEN_US), duration + BETWEEN_US
    shared_out, stays = _fused_us(k, useful, launches)
    fused = max(shared_out, stays)
    saved = max(0.0, 1 - fused / now)
    arithmetic = [
        f"The busiest unit needs {time(useful)} for the work of this launch. One fused kernel does it with one start and "
        f"end ({floor}) and one pause ({between}). Each launch then costs ({time(useful)} + {floor} + {between}) / {launches} = {time(shared_out)}."
    ]
    if stays > shared_out:
        arithmetic.append(
            f"Its arithmetic, shared memory and what L1 serves again take {time(stays)}, and stay."
        )
    speedup = 1 / (1 - saved)
    ratio = f"{time(now)} / {time(fused)} = {units.ratio(speedup)}"
    return Finding(
        k.rule,
        f"This kernel is one of {launches} launches of one job: each has launch overhead, and reads and writes the data again.",
        "high",
        shown,
        speedup,
        (
            f"Time now: {time(duration)} in the kernel and about {between} between launches: {time(now)}.",
            *arithmetic,
            f"{ratio} if only this is fixed, {percent(saved)} of the time saved.",
        ),
        FUSE,
        LOOK_FOR,
        # What the launch itself costs is the cause, so it bounds no gain.
        relieves=dict.fromkeys((*k.model.loads, LAUNCH), 0.0),
    )


def _starts_late(k: Kernel) -> bool:
    """Whether the SMs wait for blocks to start: as many start as can (STARTING), or many do (MANY), the SMs
    work without being full, and nothing else is BUSY. The most that start in a cycle is known of few
    GPUs, and others may start fewer."""
    starts = k.model.busy("blocks")
    return _at_most(k) or (
        starts >= MANY.value
        and (k["occupancy_fill"] or 1.0) <= HALF_FULL.value
        and k.model.working >= FILLED.value
        and k.model.busiest(*(name for name in RESOURCES if name != "blocks"))[1] < BUSY.value
    )


def _at_most(k: Kernel) -> bool:
    """Whether as many blocks start as can, between the start and the end of the launch."""
    ends = min(0.9, FLOOR_US / (k.profile.duration_us or FLOOR_US))
    return k.model.busy("blocks") / (1 - ends) >= STARTING.value


def _short_blocks(k: Kernel) -> Outcome:
    """Blocks that end as fast as they can be started: the SMs wait for new ones."""
    fill = k["occupancy_fill"] or 1.0
    evidence = (
        k.fact("block_start_active", ">=", MANY),
        "block_rate occupancy_fill waves active_warps",
    )
    if fill > FILLED.value:
        return k.ruled_out("Blocks are short, but the SMs stay full.", evidence)
    # Several elements per thread are as many loads under way at a time; what is spent in queues stays.
    late = k.blame("long_scoreboard", "global") if k.model.stalls else 0.0
    waits = keep(late, keep(1 - k.model.queued("long_scoreboard"), 1 / MORE_WORK))
    at_least = "at least " if k["sm_cycles"] is None else ""
    starts = f"{at_least}{units.significant(k['block_rate'] or 0.0)}"
    most = percent(k.model.busy("blocks"))
    idle = "No unit is busy, and " * ("dram" in k.model.loads)
    blocks = f"{units.counted(k.blocks, 'block')} of {units.counted(k.threads, 'thread')}"
    pace = f"The {blocks} are so short that the SMs wait for new ones. {capital(starts)} start per cycle, {most} of the maximum rate. {idle}SMs"
    if _at_most(k):
        pace = f"The GPU starts blocks as fast as it can, {starts} per cycle. The {blocks} are so short that SMs"
    return k.finding(
        f"{pace} hold only {percent(fill)} of the warps they could.",
        Removal(
            f"with {MORE_WORK} times the work per block",
            stalls={"long_scoreboard": waits},
            loads={"blocks": 1 / MORE_WORK},
            parallelism=1 / fill,
        ),
        evidence,
        k.advice(
            "Give each thread several elements (a grid-stride loop, launched with as many blocks as fit on the GPU at once), or make blocks larger.",
            *(_CUPY if may_be_cupys(k.profile) else ()),
            triton=(
                "Let each program take a larger block, or several blocks in a loop. That makes fewer, longer programs.",
                "Size the grid by what the GPU holds at once, not by one small block per program.",
            ),
        ),
        "Far fewer blocks, and achieved occupancy near the theoretical one.",
        confidence="medium",
    )


def kept(k: Kernel) -> dict[str, float]:
    """The parts (0-1) of the resources' work that one launch instead of a chain does as well.

    What passes from launch to launch comes from the L2 and goes to it. Arithmetic on floats, shared
    memory, and loads that L1 serves again are not part of that; indices and loads are."""
    shared = 0.0 if k["shared_wavefronts"] is None else shared_wavefront_part(k)
    again = (k["l1_hit_rate"] or 0.0) * (1 - shared)
    return {
        **dict.fromkeys(("fma", "fp16", "fp64", "xu", "tensor"), 1.0),
        **dict.fromkeys(("l1_data", "l1_writeback"), min(1.0, shared + again)),
    }


def useful_us(k: Kernel, parts: Mapping[str, float]) -> float | None:
    """The time that the busiest resource needs for these parts of its work in this launch."""
    times = [
        k.model.microseconds(load * parts[name] / k.model.reach(name))
        for name, load in k.model.loads.items()
        if name in parts
    ]
    return max((time for time in times if time is not None), default=None)
