"""How often the addresses that machine code shows (ncu_toolkit/kernel/sass/addresses.py) agree with what
was counted: sectors and wavefronts per request, predicted from code and launch shape alone, beside the
counters by instruction of all recordings and of the field pairs.

    python benchmarks/addresses.py                  both, about five minutes
    python benchmarks/addresses.py transpose gemm   recordings and pairs with these words

An instruction counts where it ran and sectors or wavefronts were counted at it; equal kernels count once.
It agrees where both figures are within 2 % of the counters. Where fewer lanes took part than predicted,
a bound that depends on a parameter cut them off: the addresses may still be right, but it is counted as
wrong."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import ncu_toolkit
from ncu_toolkit.base.model import Profile
from ncu_toolkit.kernel.runs import store
from ncu_toolkit.kernel.sass.addresses import LONGEST, Access, accesses
from ncu_toolkit.kernel.sass.branches import targets
from ncu_toolkit.kernel.sass.lanes import FOLLOWED
from ncu_toolkit.kernel.sass.opcodes import lines

PAIRS = Path(__file__).parent / "field" / "recordings"
TOLERANCE = 0.02
COLUMNS = ("instructions", "judged", "equal", "fewer lanes", "different")


def profiles(words: list[str]) -> Iterator[tuple[str, Profile]]:
    """The launches of recordings and pairs, by the name of the set."""
    for folder in store.recordings():
        if not words or any(word in folder.name for word in words):
            yield from (("rungs", p) for p in store.load_run(folder, live=False).profiles)
    for path in sorted(PAIRS.glob("*/*.ncu-rep.xz")):
        if not words or any(word in path.name for word in words):
            yield from (("field pairs", launch) for launch in ncu_toolkit.load(str(path)))


def accesses_of(profile: Profile) -> Mapping[int, Access]:
    """What a launch's code shows of its accesses, by the index of the instruction; nothing where the
    report lacks the code, its branches or the block. The parameters are not in a report."""
    code, launch = lines(profile.instructions), profile.launch
    ends = targets(profile.instructions) if len(code) <= LONGEST else None
    if ends is None or launch.block is None:
        return {}
    return accesses(code, ends, profile.device.cc, launch.block, launch.grid)


def compare(profile: Profile, reasons: Counter[str]) -> Iterator[tuple[str, str]]:
    """The opcode of each instruction that counts, and the columns that it is in."""
    found = accesses_of(profile)
    for row in profile.instructions:
        sectors = row.counters.get("l2_sectors", 0.0)
        passes = row.counters.get("shared_wavefronts", 0.0)
        if row.base not in FOLLOWED or not row.executed or not (sectors or passes):
            continue
        yield row.base, "instructions"
        access = found.get(row.index)
        if access is None or access.stopped:
            reason = access.stopped if access else "not reached"
            reasons[re.sub(r"\d+", "#", reason)] += 1
            continue
        yield row.base, "judged"
        pairs = (
            ((access.sectors or 0.0) * access.active, sectors / row.executed),
            ((access.wavefronts or 0.0) * access.active, passes / row.executed),
        )
        lanes = access.active * sum(lane >= 0 for lane in access.lanes)
        if all(abs(predicted - counted) <= TOLERANCE * counted for predicted, counted in pairs):
            yield row.base, "equal"
        elif (row.threads or 0) / row.executed < (1 - TOLERANCE) * lanes:
            yield row.base, "fewer lanes"
        else:
            yield row.base, "different"


def main(words: list[str]) -> None:
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    seen = set()
    for name, profile in profiles(words):
        code = tuple(re.sub("0x7[0-9a-f]{8,}", "", row.sass) for row in profile.instructions)
        key = (profile.launch.function, code, profile.launch.block, profile.launch.grid)
        if key in seen or profile.launch.block is None:
            continue
        seen.add(key)
        for opcode, column in compare(profile, reasons):
            for row in (name, opcode, "all"):
                table[row][column] += 1
    print(f"{'':12}" + "".join(f"{column:>14}" for column in COLUMNS))
    for row in sorted(table, key=lambda row: (row == "all", row.isupper(), row)):
        print(f"{row:12}" + "".join(f"{table[row][column]:14}" for column in COLUMNS))
    total = table["all"]
    judged = total["judged"] / max(1, total["instructions"])
    equal = total["equal"] / max(1, total["judged"])
    print(f"{len(seen)} kernels: {judged:.1%} judged, {equal:.1%} of these equal")
    print("Not judged:", ", ".join(f"{why} {n}" for why, n in reasons.most_common(12)))


if __name__ == "__main__":
    main(sys.argv[1:])
