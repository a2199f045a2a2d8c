"""What addresses show of a kernel's accesses, for the rules: how far apart lanes are, what is beyond the
need of their bytes, and a layout of shared memory without conflicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ncu_toolkit.base.core.units import count, counted
from ncu_toolkit.kernel.diagnosis.rules import KernelFacts
from ncu_toolkit.kernel.sass.cost import Region, weight
from ncu_toolkit.kernel.sass.opcodes import SassInstruction

if TYPE_CHECKING:  # both need NumPy, which the Python inside ncu has not
    from ncu_toolkit.kernel.sass.addresses import Access

#: Blocks that are assumed where none is given: of code that asks for threadIdx.y, and of other code.
_BLOCKS: Final = ((32, 8, 1), (256, 1, 1))


class Wasteful(NamedTuple):
    """Accesses of one kind that take more than their bytes need, the worst first."""

    rows: tuple[SassInstruction, ...]
    accesses: tuple[Access, ...]
    excess: float
    """Part (0-1) beyond the need of all that is known of the kind, by the requests that were followed."""


def in_code(facts: KernelFacts) -> Mapping[int, Access]:
    """What the code's accesses are, by index; nothing of code that is too long to run."""
    from ncu_toolkit.kernel.sass.addresses import LONGEST, accesses

    function = facts.function
    if len(function.lines) > LONGEST:
        return {}
    two = any("SR_TID.Y" in i.operands for i in function.instructions)
    block = facts.block or _BLOCKS[not two]
    return accesses(function.lines, function.targets, facts.cc, block, facts.grid)


def wasteful(facts: KernelFacts, *, shared: bool, tolerated: float) -> Wasteful | None:
    """The accesses of shared or global memory that take more than `tolerated` times their need; None
    without any, and where all of them are outside of the loops of code that has loops."""
    looped = {i.address for region in facts.regions if region.depth for i in region.code}
    beyond = total = 0.0
    worst = []
    for index, access in in_code(facts).items():
        takes = (access.wavefronts if shared else access.sectors) or 0.0
        least = access.least_wavefronts if shared else access.least_sectors
        total += access.requests * takes
        if access.requests and takes > tolerated * least:
            more = access.requests * (takes - least)
            beyond += more
            worst.append((-more, index, facts.function.instructions[index], access))
    worst.sort(key=lambda each: each[:2])
    rows, found = tuple(each[2] for each in worst), tuple(each[3] for each in worst)
    if not worst or (looped and not any(row.address in looped for row in rows)):
        return None
    return Wasteful(rows, found, beyond / total)


def with_conflicts(facts: KernelFacts) -> Iterator[Region]:
    """The regions, with the cycles that bank conflicts add where addresses are known."""
    code, found = facts.function.instructions, in_code(facts).items()
    more = {code[n].address: (x.wavefronts or 0.0) - x.least_wavefronts for n, x in found}
    for region in facts.regions:
        beyond = sum(
            max(0.0, more.get(i.address, 0.0)) * weight(i, region.conditional) for i in region.code
        )
        shared = {"shared": region.cycles.get("shared", 0.0) + beyond} if beyond else {}
        yield replace(region, cycles={**region.cycles, **shared})


def apart(access: Access) -> str:
    """How far lanes are apart, in words; "" where they follow no simple pattern."""
    import numpy as np

    lanes = np.array([lane for lane in access.lanes if lane >= 0])
    steps = np.diff(lanes)
    if not len(steps):
        return ""
    run = int(np.argmax(steps != steps[0])) + 1 if (steps != steps[0]).any() else 1
    if run == 1 and (steps == steps[0]).all():
        return f"stride between neighbouring lanes: {_distance(int(steps[0]))}"
    first = np.diff(lanes[::run])
    if run > 1 and (first == first[0]).all():
        return f"stride between groups of {run} lanes: {_distance(int(first[0]))}"
    return ""


def _distance(step: int) -> str:
    """A distance in bytes, except of one that holds the sample of a parameter."""
    from ncu_toolkit.kernel.sass.addresses import SAMPLES

    argument = "a multiple of a kernel argument"
    return argument if abs(step) >= SAMPLES[0] else f"{count(abs(step))} bytes"


def layout(found: Mapping[int, Access], sizes: Mapping[int, int], conflicting: Access) -> str:
    """The padding of a tile's rows, or the swizzle by XOR, after which none of the shared accesses has a
    conflict; "" where the lanes of `conflicting` are not in a column, or nothing fits.

    Args:
        found: all accesses of the kernel by index.
        sizes: bytes per lane by index.
    """
    import numpy as np

    from ncu_toolkit.kernel.sass.addresses import BANKS, wavefronts_of
    from ncu_toolkit.kernel.sass.lanes import WORD

    tile = {i: access for i, access in found.items() if access.wavefronts}
    lanes = np.array([lane for lane in conflicting.lanes if lane >= 0])
    steps = np.unique(np.diff(lanes))
    pitch = int(abs(steps[0])) if len(steps) == 1 else 0
    if pitch < 2 * WORD or not tile:
        return ""
    widest = max(WORD, *(sizes[i] for i in tile))

    def fits(by: int, *, swizzled: bool) -> bool:
        for i, access in tile.items():
            each = np.array(access.lanes)
            places = np.nonzero(each >= 0)[0]
            row = each[places] // pitch
            moved = each[places] ^ row % (BANKS // by) * by if swizzled else each[places] + row * by
            if wavefronts_of(moved, sizes[i], places) > access.least_wavefronts:
                return False
        return True

    ways = []
    if pad := next((by for by in (widest, 4 * WORD) if fits(by, swizzled=False)), 0):
        ways.append(f"pad each row of {pitch} bytes by {pad} bytes")
    if pitch % BANKS == 0 and fits(widest, swizzled=True):
        columns, rows = BANKS // widest, pitch // widest
        bits, shift = columns.bit_length() - 1, rows.bit_length() - 1
        swizzle = f"an XOR swizzle; in CuTe, Swizzle<{bits}, 0, {shift}>"
        at = f"store column c of row r at column c ^ (r % {columns}), in elements of {widest} bytes"
        ways.append(f"{at} ({swizzle})")
    # padding by a vector costs an eighth of such a row and more, a swizzle nothing
    if widest > WORD:
        ways.reverse()
    of = counted(len(tile), "shared access")
    return f"{', or '.join(ways)}: all {of} are then free of conflicts" if ways else ""
