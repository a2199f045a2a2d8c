"""Starting the launch, or its blocks, costs as much as the work in it.

What it is
Starting a kernel takes a few microseconds on the host and one or two on the GPU: fetching its code
and parameters, spreading blocks, waiting for the last store. A kernel that does microseconds of
work pays as much again; a chain of small kernels pays it each time, and writes to memory what the
next one reads back.

Why it costs time
The GPU is idle, or starting up, between pieces of work. A grid of very many short blocks has the
same trouble inside: the GPU starts fewer than one block a cycle, and SMs whose blocks end sooner
stay half empty.

How to confirm
The duration is a few microseconds, while every resource would need only a fraction of it; or the
problem is solved by many launches; or blocks start at 0.3 a cycle and more, and SMs that work all
the time are half empty with no unit busy.

What to change
Fuse neighbouring kernels; batch many small problems into one launch; capture the sequence in a CUDA
graph; use a persistent kernel.

When the advice is wrong
A single launch per request cannot be merged with anything. Look at the timeline (Nsight Systems)
for what happens between launches: this profile sees one kernel.

Source
CUDA C++ Programming Guide, "CUDA Graphs"; launch cost: the NVIDIA developer blog "Getting Started
with CUDA Graphs" measures 2.2 us a kernel and more without graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures, language
from ncu_toolkit.diagnosis.rules._access import shared_wavefront_part
from ncu_toolkit.diagnosis.rules._support import (
    BUSY,
    CHAIN,
    FILLED,
    SATURATED,
    Threshold,
    blame,
    fact,
    facts,
    finding,
    is_chain,
    keep,
    ruled_out,
)
from ncu_toolkit.diagnosis.time_model import (
    BLOCK_STARTS,
    FLOOR_US,
    RESOURCES,
    Removal,
    TimeModel,
)
from ncu_toolkit.model import Evidence, Finding, NoFinding, Profile

ID: Final = "launch-overhead"
TITLE: Final = "Launch or block overhead"
REQUIRES: Final = ("duration",)
OPTIONAL: Final = ("waves",)
NCU: Final = (("SOLBottleneck", "small grid"),)
UNITS: Final = ("blocks",)
FROM_SHAPE: Final = True
CONFIRMED_BY: Final = ()
WHOLE_JOB: Final = True
#: Microseconds between back-to-back small kernels that the profiler does not see (source above).
BETWEEN_US: Final = 2.2
SHORT: Final = Threshold(
    10.0,
    "where the 2.2 us between launches and the 1.2 us of start and end are a third of the time",
)
REFILLED: Final = Threshold(
    2.0,
    "from two waves on an SM's blocks are replaced as they end, so that the pace of starting them matters",
)
MANY: Final = Threshold(
    0.3,
    "public launches of short blocks start 0.37 to 0.50 a cycle, and hold 15 to 46% of the warps they could",
)
HALF_FULL: Final = Threshold(0.6, "above the 0.15 to 0.46 of those launches")
#: Times the work of a block that the advice asks for: four elements a thread where there was one.
MORE_WORK: Final = 4
SHARE: Final = Threshold(0.3, "overhead is then the largest single part of a short kernel's time")


class Words:
    long = "It runs for {duration}, much longer than a launch costs."
    filled = "Useful work takes {part} of the time from launch to launch."
    now = "Time now: {duration} in the kernel and about {between_us} between launches: {now}."
    once = (
        "The busiest unit needs {useful} for the work of this launch. One fused kernel does it with one start and end "
        "({floor_us}) and one pause ({between_us}). Each launch then costs ({useful} + {floor_us} + {between_us}) / {launches} "
        "= {fused}."
    )
    kept = "Its arithmetic, shared memory and what L1 serves again take {own}, and stay."
    ends = "Start and end take {gone} of the time in the kernel, which leaves {fused}."
    ratio = "{now} / {fused} = {speedup} if only this is fixed, {saved} of the time saved."
    one_of = "one of {launches} launches of one job"
    each = "each has launch overhead and passes over the data again."
    starting = "starting and ending it costs as much as its computation."
    advice = (
        "Fuse it with its neighbouring kernels, so that intermediate results stay in registers.",
        "Batch many small problems into one launch, or capture the sequence in a CUDA graph.",
    )
    call: ClassVar[language.Elsewhere] = {
        "torch": (
            "Let torch.compile fuse the operators around it, so that intermediate results stay in registers.",
            'Batch many small problems into one call, or capture the calls in a CUDA graph (mode="reduce-overhead").',
        ),
        "xla": (
            "Put the whole computation into one jax.jit function, so that XLA can fuse it.",
            "Batch many small problems into one call (jax.vmap).",
        ),
        "cupy": (
            "Replace a loop of small calls by one call over the whole array.",
            "Fuse neighbouring calls by cupy.fuse or an ElementwiseKernel.",
        ),
        "library": (
            "Use a batched or grouped routine for many small problems.",
            "Capture the sequence of calls in a CUDA graph.",
        ),
    }
    look_for = "Fewer and longer launches for the same result."
    full = "Blocks are short, but the SMs stay full."
    short = (
        "Blocks are so short that the GPU cannot start them fast enough: {rate} a cycle, of at most {block_starts:g}. SMs hold "
        "only {fill} of the warps they could."
    )
    short_here = (
        "Blocks are so short that the SMs wait for new ones: {rate} start in a cycle. No unit is busy, and SMs hold only {fill} of the "
        "warps they could."
    )
    short_advice = (
        "Give each thread several elements (a grid-stride loop, or a few elements per thread). That makes fewer, longer blocks.",
        "Size the grid by what the GPU holds at once, not by one element per thread.",
    )
    short_elsewhere: ClassVar[language.Elsewhere] = {
        "triton": (
            "Let each program take a larger block, or several blocks in a loop. That makes fewer, longer programs.",
            "Size the grid by what the GPU holds at once, not by one small block per program.",
        ),
    }
    short_look_for = "Far fewer blocks, and achieved occupancy near the theoretical one."


CALL: Final = Words.call


def find(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    duration = profile.duration_us or 0.0
    launches = (
        1 if profile.context is None else profile.context.launch_count - 1 + profile.context.repeat
    )
    chain = is_chain(profile)
    measured = fact(profile, "duration", "", SHORT, "<")
    counted = (
        Evidence(
            "launches",
            "Launches",
            float(launches),
            "count",
            "Kernel launches of one job.",
            CHAIN.value,
            ">=",
            CHAIN.source,
        )
        if launches > 1
        else None
    )
    if duration >= SHORT.value and not chain:
        if (profile.value("waves") or 0.0) >= REFILLED.value and _starts_late(profile, model):
            return _short_blocks(profile, model)
        return ruled_out(
            ID, Words.long.format(duration=units.duration(duration)), measured, counted
        )
    useful = useful_us(model, dict.fromkeys(RESOURCES, 1.0))
    useful = min(duration, useful) if useful is not None else max(0.0, duration - FLOOR_US)
    # One kernel in place of a chain starts once and passes over the data once, so each launch is
    # left with its share of that, and with all that has nothing to do with passing over it (kept).
    # A single launch that becomes part of another sheds what launching costs; what it does with the
    # GPU in between is not the launch's fault.
    now = duration + BETWEEN_US
    shared_out = (FLOOR_US + BETWEEN_US + useful) / launches
    own = min(duration, useful_us(model, kept(profile)) or 0.0)
    fused = max(shared_out, own) if chain else duration - min(FLOOR_US, duration - useful)
    saved = max(0.0, 1 - fused / now)
    if saved < SHARE.value:
        return ruled_out(ID, Words.filled.format(part=units.percent(1 - saved)), measured, counted)
    speedup = 1 / (1 - saved)
    arithmetic = (
        Words.now.format(
            duration=units.duration(duration),
            between_us=units.duration(BETWEEN_US),
            now=units.duration(now),
        ),
        Words.once.format(
            useful=units.duration(useful),
            launches=launches,
            floor_us=units.duration(FLOOR_US),
            between_us=units.duration(BETWEEN_US),
            fused=units.duration(shared_out),
        )
        if chain
        else Words.ends.format(gone=units.duration(duration - fused), fused=units.duration(fused)),
        *((Words.kept.format(own=units.duration(own)),) if chain and own > shared_out else ()),
        Words.ratio.format(
            now=units.duration(now),
            fused=units.duration(fused),
            speedup=units.ratio(speedup),
            saved=units.percent(saved),
        ),
    )
    many = Words.one_of.format(launches=launches) if chain else "a few microseconds of work"
    return Finding(
        ID,
        f"This kernel is {many}: " + (Words.each if chain else Words.starting),
        "high" if chain else "low",
        facts(measured, counted, fact(profile, "waves")),
        speedup,
        arithmetic,
        Words.advice,
        Words.look_for,
        relieves=dict.fromkeys(model.loads, 0.0) if chain else {},
    )


def _starts_late(profile: Profile, model: TimeModel) -> bool:
    """Whether the SMs wait for blocks to start: as many start as can (SATURATED), or many do (MANY),
    the SMs work without being full, and nothing else is BUSY. The most that start in a cycle is known
    of one GPU alone, and others start fewer."""
    starts = model.busy("blocks")
    others = (name for name in RESOURCES if name != "blocks")
    return starts >= SATURATED.value or (
        starts >= MANY.value
        and (figures.value(profile, "occupancy_fill") or 1.0) <= HALF_FULL.value
        and model.working >= FILLED.value
        and model.busiest(*others)[1] < BUSY.value
    )


def _short_blocks(profile: Profile, model: TimeModel) -> Finding | NoFinding:
    """Blocks that end as fast as they can be started: the SMs wait for new ones."""
    fill = figures.value(profile, "occupancy_fill") or 1.0
    measured = fact(profile, "block_rate", "", MANY, ">=")
    evidence = (
        measured,
        fact(profile, "occupancy_fill"),
        fact(profile, "waves"),
        fact(profile, "active_warps"),
    )
    if fill > FILLED.value:
        return ruled_out(ID, Words.full, *evidence)
    # Several elements a thread are as many loads under way at a time; what is spent in queues
    # stays.
    late = blame(profile, "long_scoreboard", ("global",)) if model.stalls else 0.0
    removal = Removal(
        f"with {MORE_WORK} times the work per block",
        stalls={
            "long_scoreboard": keep(late, keep(1 - model.queued("long_scoreboard"), 1 / MORE_WORK))
        },
        loads={"blocks": 1 / MORE_WORK},
        parallelism=1 / fill,
    )
    return finding(
        ID,
        Words.short.format(
            rate=units.significant(model.busy("blocks")),
            block_starts=BLOCK_STARTS,
            fill=units.percent(fill),
        )
        if model.busy("blocks") >= SATURATED.value
        else Words.short_here.format(
            rate=units.significant(model.busy("blocks")), fill=units.percent(fill)
        ),
        model.without(removal),
        evidence,
        language.advice(profile, Words.short_advice, Words.short_elsewhere),
        Words.short_look_for,
        confidence="medium",
    )


def kept(profile: Profile) -> dict[str, float]:
    """The parts (0-1) of the resources' work that one launch in place of a chain does as well.

    What passes from launch to launch comes from the L2 and goes to it. Arithmetic on floats, shared
    memory, and loads that L1 serves again are not part of that; indices and loads are."""
    known = profile.value("shared_wavefronts") is not None
    shared = shared_wavefront_part(profile) if known else 0.0
    again = (profile.value("l1_hit_rate") or 0.0) * (1 - shared)
    return {
        **dict.fromkeys(("fma", "fp16", "fp64", "xu", "tensor"), 1.0),
        **dict.fromkeys(("l1_data", "l1_writeback"), min(1.0, shared + again)),
    }


def useful_us(model: TimeModel, parts: Mapping[str, float]) -> float | None:
    """The time that the busiest resource needs for these parts of its work in this launch."""
    times = [
        model.microseconds(load * parts[name] / model.reach(name))
        for name, load in model.loads.items()
        if name in parts
    ]
    known = [time for time in times if time is not None]
    return max(known) if known else None
