"""Consecutive launches that a single launch could replace, and how long that would take.

A launch that takes up what the one before wrote could have it in registers, so those bytes need not
move. A launch of a few microseconds costs as much to start and end as it works, whatever passes
between it and its neighbours. What is neither stays: arithmetic on floats, shared memory, loads that
L1 serves again, and bytes from elsewhere (rules/launch_overhead.py).

That launches belong together is what the program says: only those of one outermost NVTX range are
asked (`ncu_toolkit.profile` opens one, XLA one for each module). A report does not hold addresses.
That a launch takes up what the one before wrote is likely where it reads between half of that and
READS times as much, and is a condition to be stated with the gain."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Final

from ncu_toolkit.base.core import units
from ncu_toolkit.base.document.card import factor_text, kernel_name
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.diagnosis.figures import SECTOR_BYTES
from ncu_toolkit.kernel.diagnosis.kernel import Kernel
from ncu_toolkit.kernel.diagnosis.rules import launch_overhead
from ncu_toolkit.kernel.diagnosis.thresholds import CHAIN
from ncu_toolkit.kernel.diagnosis.time_model import FLOOR_US, RESOURCES

#: Most inputs of a step, each as large as its output: a select has three. A launch that reads more
#: than that brings data of its own, such as weights.
READS: Final = 3.0
#: The least of what a launch wrote that the next one reads.
TAKEN: Final = 0.5
#: Part of a chain's bytes that is handed on from which that is what fusing saves; below it, launches.
_HANDED: Final = 0.1


@dataclass(frozen=True)
class ChainLink:
    """A launch as a step of a chain. Times are in microseconds, `read` and `written` bytes between
    L2 and the SMs; `useful_us` is what its busiest unit needs for its work, `own_us` for the part
    that fusing does not remove. `place` is its process, stream and outermost NVTX range."""

    kernel: str
    place: tuple[object, ...]
    duration_us: float
    read: float
    written: float
    useful_us: float
    own_us: float

    @property
    def short(self) -> bool:
        return self.duration_us < launch_overhead.SHORT.value


@dataclass(frozen=True)
class Chain:
    """Launches number `first` to `last` of a file (from 0). `now_us` is their time with a pause
    behind each, `fused_us` that of one launch in their place, and `handed` the part (0-1) of their
    bytes that passes from one to the next."""

    first: int
    last: int
    now_us: float
    fused_us: float
    handed: float

    @property
    def launches(self) -> int:
        return self.last - self.first + 1

    @property
    def saved(self) -> float:
        """The part (0-1) of the time that goes."""
        return 1 - self.fused_us / self.now_us


def link(profile: Profile) -> ChainLink | None:
    """What a profile tells of the launch as part of a chain; None where it holds no time, outside of
    NVTX ranges, and for a rung's launch, of which more is known."""
    duration, launch = profile.duration_us, profile.launch
    if not launch.single or not duration or not launch.nvtx or profile.rung is not None:
        return None
    k = Kernel.of(profile)
    useful = launch_overhead.useful_us(k, dict.fromkeys(RESOURCES, 1.0))
    own = launch_overhead.useful_us(k, launch_overhead.kept(k))
    read, moved = profile.value("l1_fill_sectors"), profile.value("l2_sectors_from_sm")
    if read is None or moved is None:
        read = moved = 0.0
    return ChainLink(
        f"{launch.kernel} {launch.grid} {launch.block}",
        (profile.origin.range_index, launch.stream, launch.nvtx[0]),
        duration,
        read * SECTOR_BYTES,
        max(0.0, moved - read) * SECTOR_BYTES,
        min(duration, max(0.0, duration - FLOOR_US) if useful is None else useful),
        min(duration, own or 0.0),
    )


def chains(links: Sequence[ChainLink | None]) -> list[Chain]:
    """The chains among launches in file order: CHAIN launches or more in one place, each short or
    taking up what the one before wrote, that would save launch_overhead.SHARE of their time or more
    as one. None stands for a launch of which too little is known."""
    given = _handed(links)
    found, first = [], 0
    for at in range(1, len(links) + 1):
        if at < len(links) and _linked(links[at - 1], links[at], given[at - 1]):
            continue
        run = [each for each in links[first:at] if each is not None]
        if len(run) == at - first >= CHAIN.value:
            made = _fused(first, run, given[first : at - 1])
            if made.saved >= launch_overhead.SHARE.value:
                found.append(made)
        first = at
    return found


def _handed(links: Sequence[ChainLink | None]) -> list[float]:
    """Bytes that each launch but the first takes up of what the one before wrote; 0 where its size
    is another, and in CHAIN launches or more of the same kernel in a row, as a benchmark has."""
    kernels = [each.kernel if each is not None else at for at, each in enumerate(links)]
    runs = [len(list(same)) for _, same in groupby(kernels)]
    looped = [run >= CHAIN.value for run in runs for _ in range(run)]
    found = []
    for at, (before, after) in enumerate(pairwise(links)):
        taken = 0.0
        if before is not None and after is not None and before.written:
            again = looped[at] and before.kernel == after.kernel
            if not again and TAKEN <= after.read / before.written <= READS:
                taken = min(before.written, after.read)
        found.append(taken)
    return found


def _linked(before: ChainLink | None, after: ChainLink | None, taken: float) -> bool:
    if before is None or after is None or before.place != after.place:
        return False
    return (before.short and after.short) or taken > 0


def _fused(first: int, run: Sequence[ChainLink], given: Sequence[float]) -> Chain:
    """One launch instead of `run`: it starts and ends once, and each step is left with the larger
    of its own work and what is left of its passing over the data. `given` is what each hands on."""
    between = launch_overhead.BETWEEN_US
    fused = FLOOR_US + between
    for step, taken, passed in zip(run, [0.0, *given], [*given, 0.0], strict=True):
        moved = step.read + step.written
        stays = 1 - (taken + passed) / moved if moved else 1.0
        fused += max(step.own_us, step.useful_us * stays)
    now = sum(step.duration_us + between for step in run)
    moved = sum(step.read + step.written for step in run)
    return Chain(
        first, first + len(run) - 1, now, min(now, fused), 2 * sum(given) / moved if moved else 0.0
    )


def chained(found: Iterable[tuple[Chain, tuple[str, str]]]) -> Iterable[str]:
    """A sentence for each chain, given with the names of its first and last kernel; the largest saving first."""
    for chain, names in sorted(found, key=lambda each: each[0].fused_us - each[0].now_us):
        now, fused = units.duration(chain.now_us), units.duration(chain.fused_us)
        factor = factor_text(chain.now_us / chain.fused_us)
        ends = dict.fromkeys(map(kernel_name, names))
        what = f"{chain.launches} launches of one NVTX range ({' to '.join(ends)}) take {now} with the pauses between them"
        if chain.handed >= _HANDED:
            yield (
                f"{what}. If each reads what the one before wrote, {units.percent(chain.handed, 2)} of their bytes need not move, and one fused "
                f"launch would take about {fused} ({factor}): torch.compile, jax.jit, cupy.fuse, or a kernel for all steps."
            )
        else:
            yield (
                f"{what}, most of which is starting and ending. A single launch for all of it would take about "
                f"{fused} ({factor}). A CUDA graph saves the pauses alone."
            )
