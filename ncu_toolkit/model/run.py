"""A run: what one collection left behind, as a value. Storage on disk is in `store.py`; rendering
takes a `Run` and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ncu_toolkit.model import Device, Profile, Timing


@dataclass(frozen=True)
class Ceilings:
    """What the device was measured to reach, in one run with everything else. None where not
    measured.

    Rates in B/s and FLOP/s: `copy` is a large device-to-device copy (bytes read + written), `fp32`
    a loop of independent FFMAs, `tensor` the library's largest bf16 matrix product."""

    copy: float | None = None
    fp32: float | None = None
    tensor: float | None = None


@dataclass(frozen=True)
class Skipped:
    """Something that was asked for and not done, with the reason; shown, never dropped."""

    what: str
    reason: str


@dataclass(frozen=True)
class Run:
    """One run's data. `live` tells a run of this machine from a shipped recording."""

    id: str
    title: str
    created: str
    """ISO 8601, UTC."""
    live: bool
    device: Device
    environment: Mapping[str, str]
    """Labels and values in display order: driver, CUDA, ncu, clocks, tool version, …"""
    commands: tuple[str, ...]
    profiles: tuple[Profile, ...]
    timings: tuple[Timing, ...] = ()
    ceilings: Ceilings = field(default_factory=Ceilings)
    skipped: tuple[Skipped, ...] = ()
    report_files: tuple[str, ...] = ()
    """Raw report files beside the pages, relative to the run's folder (may be compressed)."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent outside kernels: build, allocation, initialisation, transfer, profiling."""
    curve: tuple[Timing, ...] = ()
    """Timings of a few rungs over many sizes, made in a run of their own; they take part in the
    curve over sizes and nowhere else."""


def marker(family: str, rung: str, size: str, dtype: str) -> str:
    """The NVTX range that a case's launches are found by."""
    return f"ncu-toolkit:{family}/{rung}:{size}:{dtype}"
