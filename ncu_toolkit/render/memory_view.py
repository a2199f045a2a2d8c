"""The memory system of one launch as a picture: DRAM, L2, L1 and registers with the bytes between
them, hit rates, and how busy the busiest unit of each link is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.diagnosis import figures
from ncu_toolkit.explain.card import Card, whole_percent
from ncu_toolkit.explain.verdict import resource_name, shares_of
from ncu_toolkit.model import Profile
from ncu_toolkit.render.columns import compact
from ncu_toolkit.render.views import Box, Memory, Wire

#: Figure of the bytes on a link, and the resources of the time model that carry them.
_WIRES: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("dram_bytes", frozenset({"dram"})),
    ("l2_bytes", frozenset({"l2", "fill"})),
    ("l1_global_bytes", frozenset({"l1", "l1_tag", "l1_data", "l1_writeback", "lsu"})),
)
#: Name of a level, and the figure of its hit rate.
_BOXES: Final = (
    ("DRAM", ""),
    ("L2", "l2_hit_rate"),
    ("L1 / shared", "l1_hit_rate"),
    ("Registers", ""),
)
_NAMES: Final = ("DRAM to L2", "L2 to L1", "L1 to registers")
#: Pixels of a link that is idle, and of one that is always busy.
_THIN, _THICK = 2.0, 16.0


def memory_view(profile: Profile, shown: Card, bounds: Mapping[str, float]) -> Memory | None:
    """None where the report has neither bytes nor use of any link. A link is as busy as the busiest
    of its resources, by the `bounds` that the card's bars are of."""
    limits = {bar.resource for bar in shown.bars if bar.limit}
    shares = shares_of(bounds, profile.duration_us)
    wires = tuple(_wire(profile, moved, parts, shares, limits) for moved, parts in _WIRES)
    if not any(wire.known for wire in wires):
        return None
    own = {"L2": _atomics(profile, shares, limits), "L1 / shared": (_shared(profile), False)}
    boxes = tuple(Box(name, _hits(profile, hits), *own.get(name, ())) for name, hits in _BOXES)
    said = [
        f"{name}: {wire.moved}, {wire.busy}{' busy' if wire.mark else ''}"
        for name, wire in zip(_NAMES, wires, strict=True)
        if wire.known
    ]
    said += [f"{box.name}: {box.unit}" for box in boxes if box.unit]
    return Memory(boxes, wires, "; ".join(said) + ".")


def _wire(
    profile: Profile,
    moved: str,
    resources: frozenset[str],
    shares: Mapping[str, float],
    limits: set[str],
) -> Wire:
    carried = figures.value(profile, moved)
    limit = bool(resources & limits)
    known = {name: shares[name] for name in (resources & limits or resources) if name in shares}
    busiest = max(sorted(known), key=known.__getitem__, default="")
    used = known.get(busiest)
    words = units.NOT_AVAILABLE
    if used is not None:
        words = f"{resource_name(busiest)} {whole_percent(used)}"
    kind = " global" if moved == "l1_global_bytes" else ""
    return Wire(
        units.NOT_AVAILABLE if carried is None else f"{units.quantity(carried, 'B')}{kind}",
        words,
        ", limit" if limit else "" if used is None else " busy",
        _THIN + (_THICK - _THIN) * min(1.0, max(0.0, used or 0.0)),
        limit,
        carried is not None or used is not None,
    )


#: The atomic units are shown from this part of the time on.
_SHOWN: Final = 0.01


def _atomics(profile: Profile, shares: Mapping[str, float], limits: set[str]) -> tuple[str, bool]:
    """How busy L2's atomic units are, and whether they limit. They sit in the slices of L2 and use
    no link: one can be busy all the time while next to nothing moves."""
    used = shares.get("atomic", 0.0)
    if used < _SHOWN:
        return "", False
    # the bound is of the busiest unit where that is nearly all of the time, else of their mean
    busiest = used >= 0.99 * (profile.value("l2_atomic_unit_busiest") or 1.0)
    name = "busiest atomic unit" if busiest else "atomic units"
    return f"{name} {whole_percent(used)}", "atomic" in limits


def _shared(profile: Profile) -> str:
    """The passes through the banks of shared memory, of a kernel that has some. They use the same
    units as global accesses, and their bytes are not counted."""
    passes = figures.value(profile, "shared_wavefronts")
    if not passes or not profile.launch.shared_static + profile.launch.shared_dynamic:
        return ""
    return f"{compact(passes)} shared wavefronts"


def _hits(profile: Profile, name: str) -> str:
    rate = figures.value(profile, name) if name else None
    return "" if rate is None else f"{units.percent(rate, 2)} hits"
