"""What several rules ask about global memory accesses."""

from __future__ import annotations

from typing import Final

from ncu_toolkit import attribution, derived
from ncu_toolkit.model import Profile
from ncu_toolkit.rules._support import blame
from ncu_toolkit.time_model import TimeModel

#: Excess of sectors below which accesses count as coalesced: a third, i.e. 1.5 times the sectors needed. Misaligned rows (5 sectors for 4)
#: and edge tiles stay below it.
COALESCED: Final = 1 / 3


def is_coalesced(profile: Profile) -> bool:
    """Whether global accesses touch at most 1.5 times the sectors they need; true where it cannot be told."""
    excess = derived.value(profile, "global_sector_excess")
    return excess is None or excess <= COALESCED


#: Bytes of distinct sectors over bytes asked for by lanes, below which loads are mostly broadcasts of one value to all lanes: one sector of four is
#: a pure broadcast of 4-byte values, two and more are a matrix product's mix of a broadcast and a distinct operand; this is half way between.
BROADCAST: Final = 1.5 / 4


def is_broadcast(profile: Profile) -> bool:
    """Whether global loads mostly give one value to all lanes, so that their number matters and not their bytes; false where it cannot be told."""
    sectors, asked = derived.value(profile, "global_load_sectors"), derived.value(profile, "lane_load_bytes")
    return sectors is not None and bool(asked) and sectors * derived.SECTOR_BYTES / (asked or 1.0) < BROADCAST


def global_waiting(profile: Profile, model: TimeModel) -> float:
    """Share of a warp's time spent waiting on or queueing for global memory (not local, not asynchronous copies, not atomics)."""
    return sum(model.waiting(reason) * blame(profile, reason, ("global", "texture")) for reason in ("long_scoreboard", "lg_throttle", "mio_throttle"))


def dependent_loads(profile: Profile) -> float:
    """Part of the long-scoreboard waiting that is for loads whose address comes from another load. 0 where it cannot be told."""
    weights = attribution.weights_by_culprit(profile, "long_scoreboard")
    total = sum(weights.values())
    if not total:
        return 0.0
    flow = attribution.Flow(profile.instructions)
    loads = {i: w for i, w in weights.items() if attribution.kind(profile.instructions[i].opcode) == "global"}
    return sum(w for i, w in loads.items() if flow.address_depends_on_load(i)) / total


def shared_wavefront_part(profile: Profile) -> float:
    """Part of the data stage's wavefronts that shared memory causes; all of them where the total is not known."""
    wavefronts, busy, cycles = profile.value("shared_wavefronts"), profile.value("l1_data_pipe_active"), profile.value("sm_active_cycles")
    if wavefronts is None or not busy or not cycles or not profile.device.sm_count:
        return 1.0
    return min(1.0, wavefronts / (busy * cycles * profile.device.sm_count))
