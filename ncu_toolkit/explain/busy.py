"""How busy each unit of the GPU was, as the report's counters have it: the one figure of it that the
card, the memory picture, the tables and JSON show, with the least that the unit's work needs.

Units in an SM are counted over the cycles in which SMs had work, as Nsight Compute shows them, and
what lies behind the SMs over the whole launch.

Imported by the rule inside Nsight Compute, so it may import nothing that needs a compiled module
(tests/report/test_ncu_rule.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ncu_toolkit.core import units
from ncu_toolkit.core.safe import visible
from ncu_toolkit.diagnosis import time_model
from ncu_toolkit.diagnosis.time_model import BLOCK_STARTS, MEMORY, ON_CHIP, RESOURCES, SLICE
from ncu_toolkit.document.card import CLOSE, NAME, whole_percent
from ncu_toolkit.model import Profile, finite

#: Unit -> its name on a bar: resources of the time model, and what only a counter shows.
LABELS: Final[Mapping[str, str]] = {
    "issue": "issue", "fma": "FP32", "fmaheavy": "FMA heavy", "alu": "ALU", "fp64": "FP64",
    "fp16": "FP16", "xu": "XU", "tensor": "tensor", "uniform": "uniform", "lsu": "LSU",
    "l1_tag": "L1 tag", "l1_data": "L1 data", "l1_writeback": "L1 return", "l1": "L1",
    "blocks": "block start", "constant": "constant", "fill": "L2 to SM", "l2": "L2",
    "atomic": "L2 atomics", "dram": "DRAM",
    "texture": "TEX", "adu": "ADU", "mio": "MIO", "memory": "memory", "sm": "SM",
}  # fmt: skip
#: Units that are no resource of the time model, with their counters: all of them in SMs.
_COUNTED: Final[Mapping[str, str]] = {
    "texture": "tex_pipe_active", "adu": "adu_pipe_active", "mio": "mio_active",
}  # fmt: skip
#: Roll-ups of Nsight Compute: the busiest of a group, whether SMs' active cycles are counted, and
#: the group as far as we know its parts. A roll-up is shown where no part explains it.
_ROLL_UPS: Final[Mapping[str, tuple[str, bool, tuple[str, ...]]]] = {
    "l1": ("l1_throughput", True, (*ON_CHIP, "texture")),
    "memory": ("memory_throughput", False, (*MEMORY, "l1", "texture", "atomic", "constant")),
    "sm": ("sm_throughput", False, tuple(LABELS)),
}
#: Shares that differ by less are one figure, rounded.
ROUNDING: Final = 0.005
#: A counter above its peak by more than this was counted in a launch too short for it: values of
#: one counter come from several cycles of several units, so up to 2 % more is rounding.
_OVER: Final = 1.02


@dataclass(frozen=True)
class Use:
    """How busy a unit was (0-1). `least` is the part of the launch's time that its work needs at the
    unit's peak, as the time model has it; 0 where that has none."""

    busy: float
    least: float = 0.0
    of_all: float = 1.0
    """The part (0-1) of the launch's time that `busy` is of: that in which SMs had work, for units in
    them."""


def resource_name(resource: str) -> str:
    """A unit as its bar names it: `L1 return`, `block start`."""
    return LABELS.get(resource, visible(resource.replace("_", " "), NAME))


def uses(profile: Profile, bounds: Mapping[str, float]) -> dict[str, Use]:
    """How busy each unit was; `bounds` are those of the launch's diagnosis, in microseconds. A unit
    that the report does not count is left out."""
    model = time_model.build(profile)
    found = {}
    duration = profile.duration_us or 0.0
    for name in RESOURCES:
        bound = finite(bounds.get(name))
        least = min(1.0, bound / duration) if bound is not None and duration > 0 else None
        measured = None
        if (
            name in model.loads
        ):  # of blocks a GPU starts BLOCK_STARTS a cycle, so that is their peak
            peak = BLOCK_STARTS if name == "blocks" else 1.0
            measured = min(1.0, model.counted(name) / peak)
        elif least is not None:
            measured = least  # measured by pressure, without counters
        if measured is not None:
            found[name] = Use(measured, min(measured, least or 0.0))
    for name, counter in _COUNTED.items():
        if (value := profile.value(counter)) is not None and value <= _OVER:
            found[name] = Use(min(1.0, value))
    for name, (counter, _, parts) in _ROLL_UPS.items():
        value = profile.value(counter)
        known = max((found[part].busy for part in parts if part in found), default=0.0)
        if value is not None and value > _OVER:
            found.pop(name, None)
        elif value is not None and value > known + CLOSE:
            found[name] = Use(min(1.0, value), found[name].least if name in found else 0.0)
    return {
        name: replace(use, of_all=model.active) if _in_sm(name) else use
        for name, use in found.items()
    }


def basis(profile: Profile, shown: Mapping[str, Use]) -> str:
    """What the busy figures of `shown` are of, where that is not the whole of the launch's time;
    empty where it is."""
    said = []
    active = time_model.build(profile).active
    if active < 1 - CLOSE and any(_in_sm(name) for name in shown):
        said.append(
            f"Units in SMs: of the {whole_percent(active)} of the time in which SMs had work."
        )
    busiest = max(shown, key=lambda name: shown[name].busy, default="")
    if busiest == "blocks":
        said.append(f"Block start: of {units.significant(BLOCK_STARTS)} blocks a cycle.")
    slice_ = profile.value(SLICE) or 0.0
    if "atomic" in shown and 0 < slice_ <= shown["atomic"].busy + ROUNDING:
        said.append("L2 atomics: of the busiest slice of L2.")
    for name, (counter, _, _) in _ROLL_UPS.items():
        value = profile.value(counter)
        if value is not None and value > _OVER:
            said.append(
                f"Nsight's {LABELS[name]} figure, {units.percent(value)}, is left out: the launch is too short for it."
            )
    return " ".join(said)


def _in_sm(name: str) -> bool:
    if name in RESOURCES:
        return RESOURCES[name][1]
    return name in _COUNTED or (name in _ROLL_UPS and _ROLL_UPS[name][1])
