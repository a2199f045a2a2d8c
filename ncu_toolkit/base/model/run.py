"""A run, from the first case chosen to its pages. `kernel/runs/store.py` keeps it on disk."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ncu_toolkit.base.model import Device, Profile, Timing


@dataclass(frozen=True)
class Ceilings:
    """Rates that the device was measured to reach in the run, in B/s and FLOP/s; None if not
    measured: `copy` a large device-to-device copy (bytes read + written), `fp32` a loop of
    independent FFMAs, `tensor` the library's largest bf16 matrix product."""

    copy: float | None = None
    fp32: float | None = None
    tensor: float | None = None


@dataclass(frozen=True)
class Skipped:
    """Something that was asked for and not done, with the reason; shown, never dropped."""

    what: str
    reason: str


@dataclass(frozen=True)
class RunCase:
    """One rung at one size and element type, and how far it came. `state`: planned, timed,
    profiled, failed (the kernel is wrong or crashed), skipped (it cannot run here), not run (the
    run ended first); `message` gives the reason."""

    family: str
    rung: str
    size: str
    """Label of the size; `dims` holds its extents by dimension."""
    dtype: str
    dims: Mapping[str, int] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)
    state: str = "planned"
    message: str = ""
    flops: float | None = None
    compulsory_bytes: float | None = None
    report: str = ""
    """The report that holds its launches; empty where any of the run's may."""
    source: str = ""
    """Digest of the kernel's code (build.source_digest)."""
    pressure_us: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Times of the run under each kind of pressure, where they were measured (`--probe`)."""
    pressure_kept: Mapping[str, float] = field(default_factory=dict)
    """The part of its speed that each pressure left it."""

    @property
    def marker(self) -> str:
        """The NVTX range that its launches are found by."""
        return f"ncu-toolkit:{self.family}/{self.rung}:{self.size}:{self.dtype}"

    @property
    def label(self) -> str:
        return f"{self.family}/{self.rung} at {self.size}" + (
            "" if self.dtype in ("float32", "") else f" {self.dtype}"
        )

    @property
    def open(self) -> bool:
        """Whether it is still to be profiled."""
        return self.state in ("planned", "timed", "not run")

    @property
    def final(self) -> bool:
        """Whether running it again would change nothing."""
        return self.state in ("failed", "skipped")


@dataclass(frozen=True)
class LadderOptions:
    """Options of `profile` on a ladder, which `profile --resume` keeps."""

    timing: bool = True
    cache_control: str = "all"
    redact: bool = False
    redact_source: bool = False


@dataclass(frozen=True)
class Run:
    """One run. Timings, profiles and the curve have their own files; all else is run.json."""

    id: str
    title: str
    created: str
    """ISO 8601, UTC."""
    tool_version: str = ""
    device: Device = Device("unknown", (0, 0))  # noqa: RUF009  Device is frozen
    environment: Mapping[str, str] = field(default_factory=dict)
    """Labels and values in display order: driver, CUDA, ncu, clocks, tool version."""
    commands: tuple[str, ...] = ()
    cases: tuple[RunCase, ...] = ()
    ceilings: Ceilings = field(default_factory=Ceilings)
    skipped: tuple[Skipped, ...] = ()
    report_files: tuple[str, ...] = ()
    """Raw report files, relative to the run's folder (may be compressed)."""
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent outside kernels: build, allocation, initialisation, transfer, profiling."""
    checksums: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each raw report by its name, as hexadecimal digits."""
    asked: LadderOptions | None = None
    """None for a program, a recording and a bench: they cannot be resumed."""
    needs: tuple[str, ...] = ()
    """What a program's launches must move and compute, as --needs gave it."""
    step: bool = False
    """Whether it is of the kernels of a program's step, which has a page next to the run's."""
    live: bool = True
    """Of this machine, not a shipped recording."""
    timings: tuple[Timing, ...] = ()
    profiles: tuple[Profile, ...] = ()
    curve: tuple[Timing, ...] = ()
    """Timings of a few rungs over many sizes, of another run, for the curve over sizes only."""

    @property
    def tried(self) -> frozenset[tuple[str, str]]:
        """Rungs, by ladder and name, that the run was to measure, whatever became of them."""
        left_out = (item.what.split()[0].partition("/") for item in self.skipped if item.what)
        return frozenset(
            [
                *((case.family, case.rung) for case in self.cases),
                *((family, rung) for family, slash, rung in left_out if slash),
            ]
        )

    def case(self, marker: str) -> RunCase | None:
        """The case of an NVTX range."""
        return next((case for case in self.cases if case.marker == marker), None)
