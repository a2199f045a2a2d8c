"""What a probe reads of a program's recording (program/recording/recorder.py) beside its `Trace`: kernels by shape
and pressure, the gaps between two kernels, and their code."""

import contextlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core.errors import InputProblem, UsageProblem
from ncu_toolkit.base.model.profile import Device, Launch
from ncu_toolkit.base.model.trace import KINDS, Gap, KernelTimes, KernelTrace
from ncu_toolkit.guests.probe import pressure
from ncu_toolkit.kernel.diagnosis.static import KernelAnalysis, analyse_cubin
from ncu_toolkit.kernel.sass.disassembly import readable
from ncu_toolkit.program.recording import recorder
from ncu_toolkit.program.recording.recorder import KERNEL, RecordedProcess, RecordOptions

#: Gaps that are reported.
_GAPS: Final = 5
#: What the pressure's kernels are called (kernels/common/pressure.cu).
_OURS: Final = "pressure_"
#: Bytes of the largest module whose code is read: a library's module holds hundreds of kernels, all
#: of which nvdisasm writes out.
_LARGEST: Final = 1 << 20
#: Least part of its multiprocessors that a slice must have reached.
_SPREAD: Final = 0.9
#: Slices of each stressor by which it is calibrated before a program.
_CALIBRATIONS: Final = 5
#: Of a stream's slice, largest part until its last block has a multiprocessor for itself.
_RAMP: Final = 0.1
#: Slices that a kernel fills, taken together, from which on what a stressor lost to it is reported.
_FILLS: Final = 0.5
#: Error of the part that one slice loses (of 26 kernels, FP32 work kept in a program what it kept in
#: `probe --kernel` to within that in the median), and largest error of what is reported.
_NOISE: Final = 0.02
_BLUR: Final = 0.1


def run(command: Sequence[str], folder: Path, plan: Mapping[str, Any] | None = None) -> int:
    """Record a program's kernels and its code, its input and output as they are.

    Args:
        folder: where the recorder writes.
        plan: the experiments (pressure.run_slices), which need Python; none where None.

    Returns:
        The program's exit code, as `recorder.record`, whose errors it raises.
    """
    environment = {}
    if plan is not None:
        place = folder / "plan"
        place.write_text(json.dumps(dict(plan)), encoding="utf-8")
        environment["NCU_TOOLKIT_PROBE_PLAN"] = str(place)
    asked = RecordOptions(calls=(), ranges=False, code=True, environment=environment)
    return recorder.record(command, folder, asked)


def plan(folder: Path) -> dict[str, Any]:
    """The experiments on a program, for `run`; "alone" is the speed of each pressure with nothing
    beside it, in rounds a nanosecond. Raises EnvironmentProblem: no cuda-bindings, compiler, GPU,
    or memory on it."""
    arch, sm_count = pressure.first_device()
    place = folder / "pressure"
    place.write_bytes(pressure.compiled(arch))
    press = pressure.Pressure(place.read_bytes(), sm_count)
    try:
        alone = press.speeds(press.usable(KINDS), _CALIBRATIONS)
    finally:
        press.close()
    root = str(PACKAGE.parent)
    asked = {
        "cubin": str(place),
        "kinds": [*KINDS],
        "sm_count": sm_count,
        "seed": 1,
        "module": pressure.__name__,
        "root": root,
    }
    return {"alone": alone, **asked}


def read(folder: Path) -> KernelTimes:
    """What the programs of a probe launched; of several processes or GPUs the one with most kernel
    time, which a note says.

    Raises:
        EnvironmentProblem: CUPTI could not record; why.
        UsageProblem: nothing was launched, or CUDA was not used.
        InputProblem: the records cannot be read.
    """
    processes = recorder.processes(folder)
    traces = [trace for each in processes for trace in _of_process(each, folder)]
    if not traces:
        raise recorder.nothing(processes)
    first, *others = sorted(traces, key=lambda trace: -trace.busy_us)
    notes = first.notes
    if others:
        left_out = sum(trace.launches for trace in others)
        shown = "shown is the one with most kernel time"
        notes += (
            f"the program used {len(traces)} GPUs or processes: {shown}, {left_out} launches of the others are left out",
        )
    return replace(first, notes=notes, cubins=tuple(sorted(folder.glob("*.cubin"))))


def code_of(trace: KernelTimes, launch: Launch) -> KernelAnalysis | None:
    """The code of a traced kernel; None where none of the modules on disk holds it, or only one so
    large that reading it would take longer than the program. Raises EnvironmentProblem: no
    disassembler."""
    small = (path for path in trace.cubins if path.stat().st_size <= _LARGEST)
    named = (path for path in small if launch.kernel.encode() in path.read_bytes())
    return next(filter(None, (code_in(path, launch) for path in named)), None)


def code_in(cubin: Path, launch: Launch) -> KernelAnalysis | None:
    """The code of a launch's kernel; None where the module does not hold it, or holds none that the
    disassembler knows. Raises EnvironmentProblem: no disassembler."""
    threads, shared = launch.threads_per_block, launch.shared_dynamic or 0
    try:
        found = analyse_cubin(cubin, block=threads, shared=shared, only=launch.kernel)
    except (InputProblem, UsageProblem):
        return None
    return next(iter(found.kernels), None)


def _of_process(process: RecordedProcess, folder: Path) -> list[KernelTimes]:
    """The traces of one process, one a GPU."""
    rows, notes = process.rows(KERNEL), [*process.notes]
    written, alone = _slices(process.stem.with_suffix(".pressure")), _alone(folder)
    slices = [line for line in written if "kind" in line]
    notes += [str(line["note"]) for line in written if "note" in line]
    devices = process.devices()
    found = []
    for number in sorted(set(rows["deviceId"].tolist())):
        device = devices[number][1] if number in devices else Device("GPU", (0, 0))
        mine = rows[rows["deviceId"] == number]
        found.append(_trace(mine, process.names, device, notes, slices, alone))
    return found


def _alone(folder: Path) -> dict[str, float]:
    try:
        found: dict[str, float] = json.loads((folder / "plan").read_text(encoding="utf-8"))["alone"]
        return found
    except (OSError, ValueError, KeyError):
        return {}


def _slices(path: Path) -> list[dict[str, Any]]:
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError):  # the last line of a program that was killed
                found.append(json.loads(line))
    return found


def _trace(
    rows: Any,
    names: Mapping[int, str],
    device: Device,
    notes: list[str],
    slices: Sequence[Mapping[str, Any]],
    alone: Mapping[str, float],
) -> KernelTimes:
    rows = rows[rows["end"] > rows["start"]]  # without a time: lost by CUPTI
    rows = rows[numpy.argsort(rows["start"], kind="stable")]
    ours = {address for address, name in names.items() if name.startswith(_OURS)}
    mine = numpy.isin(rows["name"], list(ours))
    pressure, rows = rows[mine], rows[~mine]
    if not len(rows):
        return KernelTimes(device, (), 0, 0.0, 0.0, notes=tuple(notes))
    windows = _windows(pressure, slices, alone)
    start, end = rows["start"].astype("i8"), rows["end"].astype("i8")
    until = numpy.maximum.accumulate(end)
    idle = start[1:] - until[:-1]
    gaps, times = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for at in numpy.flatnonzero(idle > 0).tolist():
        pair = (int(rows["name"][at]), int(rows["name"][at + 1]))
        gaps[pair] += int(idle[at])
        times[pair] += 1
    busy = int(until[-1] - start[0] - idle[idle > 0].sum())
    shown = {address: readable(name) for address, name in names.items()}
    return KernelTimes(
        device=device,
        kernels=_kernels(rows, names, shown, device, windows),
        launches=len(rows),
        span_us=float(until[-1] - start[0]) / 1e3,
        busy_us=busy / 1e3,
        gaps=tuple(
            Gap(shown.get(after, ""), shown.get(before, ""), times[after, before], total / 1e3)
            for (after, before), total in gaps.most_common(_GAPS)
        ),
        gap_us=float(numpy.median(idle)) / 1e3 if len(idle) else None,
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class _Slice:
    """A slice of a stressor on the clock of the records, in nanoseconds: all of its blocks ran from
    `full` to `ending`, some from `start` to `end`."""

    kind: str
    start: int
    full: int
    ending: int
    end: int
    kept: float | None
    """The part of its speed alone that it had; None where that is not known."""


def _windows(
    pressure: Any, slices: Sequence[Mapping[str, Any]], alone: Mapping[str, float]
) -> list[_Slice]:
    """The slices in order. A stressor's record starts with its first block, which gives the two
    clocks' difference."""
    found = []
    for row, each in zip(pressure, slices, strict=False):
        spread = each["multiprocessors"] >= _SPREAD * each["blocks"]
        start, end = int(row["start"]), int(row["end"])
        shift = start - each["first"]
        span = max(1, each["finished"] - each["first"])
        full, ending = each["last"] + shift, min(end, each["finished"] + shift)
        speed = alone.get(each["kind"], 0.0)
        kept = each["rounds"] / span / speed if speed else None
        # A stressor on too few multiprocessors is none, but disturbs.
        found.append(_Slice(each["kind"] if spread else "", start, full, ending, end, kept))
    return found


def _kernels(
    rows: Any,
    names: Mapping[int, str],
    shown: Mapping[int, str],
    device: Device,
    windows: Sequence[_Slice],
) -> tuple[KernelTrace, ...]:
    keys = [
        "name", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
        "registersPerThread", "staticSharedMemory", "dynamicSharedMemory",
    ]  # fmt: skip
    table = numpy.zeros(len(rows), [(key, "<i8") for key in keys])
    for key in keys:
        table[key] = rows[key]
    kinds, which = numpy.unique(table, return_inverse=True)
    spans = (rows["end"].astype("i8") - rows["start"].astype("i8")) / 1e3
    under = _under(rows, windows)
    kept = _kept(rows, which.ravel(), windows)
    found = []
    for number, kind in enumerate(kinds):
        mine = which.ravel() == number
        own = numpy.sort(spans[mine])
        conditions: dict[str, list[float]] = defaultdict(list)
        for time_us, name in zip(spans[mine].tolist(), under[mine].tolist(), strict=True):
            if name:
                conditions[name].append(time_us)
        address, x, y, z, *block, registers, static, dynamic = kind.tolist()
        called = names.get(address, ""), shown.get(address, "")
        found.append(
            KernelTrace(
                Launch(
                    *called, (x, y, z), (block[0], block[1], block[2]), registers, static, dynamic
                ),
                launches=int(mine.sum()),
                total_us=float(own.sum()),
                median_us=float(numpy.median(own)),
                low_us=float(numpy.quantile(own, 0.1)),
                high_us=float(numpy.quantile(own, 0.9)),
                conditions={name: tuple(times) for name, times in conditions.items()},
                rates={name: (part,) for name, part in kept.get(number, {}).items()},
            )
        )
    return tuple(sorted(found, key=lambda each: -each.total_us))


def _kept(rows: Any, which: Any, windows: Sequence[_Slice]) -> dict[int, dict[str, float]]:
    """The part of its speed that each kernel left each stressor.

    A slice loses what each kernel in it takes, times the part of the slice that this kernel runs:
    least squares over the slices of a kind. Kernels that share all slices in fixed parts cannot be
    told apart; what has a standard error above _BLUR is left out."""
    found: defaultdict[int, dict[str, float]] = defaultdict(dict)
    shared: defaultdict[str, list[tuple[Any, float]]] = defaultdict(list)
    start, end = rows["start"].astype("i8"), rows["end"].astype("i8")
    until, count = numpy.maximum.accumulate(end), int(which.max()) + 1
    for each in windows:
        span = each.ending - each.full
        late = each.full - each.start > _RAMP * (each.end - each.start)
        if each.kept is None or span <= 0 or not each.kind or (late and KINDS[each.kind].alone):
            continue
        first = numpy.searchsorted(until, each.full, "right")
        mine = slice(first, numpy.searchsorted(start, each.ending))
        beside = numpy.minimum(end[mine], each.ending) - numpy.maximum(start[mine], each.full)
        times = numpy.bincount(which[mine], numpy.maximum(beside, 0), count)
        shared[each.kind].append((times / span, 1 - each.kept))
    for kind, pairs in shared.items():
        parts, lost = (numpy.array(each) for each in zip(*pairs, strict=True))
        most = numpy.flatnonzero(parts.sum(0) >= _FILLS)
        others = parts.sum(1) - parts[:, most].sum(1)
        table = numpy.column_stack([parts[:, most], others])
        inverse = numpy.linalg.inv(table.T @ table + 1e-6 * numpy.eye(len(most) + 1))
        taken = inverse @ table.T @ lost
        left = ((lost - table @ taken) ** 2).sum() / max(1, len(pairs) - len(most))
        error = max(_NOISE, math.sqrt(left)) * numpy.sqrt(numpy.diag(inverse))
        for at, number in enumerate(most.tolist()):
            if error[at] <= _BLUR:
                found[number][kind] = 1 - float(taken[at])
    return found


def _under(rows: Any, windows: Sequence[_Slice]) -> Any:
    """The stressor that each launch ran alongside from start to end, "plain" where none overlapped it,
    "" where one did for a part of it."""
    if not windows:
        return numpy.full(len(rows), "", dtype="U20")
    kinds = numpy.array([each.kind for each in windows], dtype="U20")
    times = numpy.array([(each.start, each.full, each.ending, each.end) for each in windows])
    begins, start, end = times[:, 0], rows["start"].astype("i8"), rows["end"].astype("i8")
    at = numpy.searchsorted(begins, start, side="right") - 1
    before = numpy.maximum(at, 0)
    _, full, ending, over = times[before].T
    inside = (at >= 0) & (start >= full) & (end <= ending)
    following = numpy.append(begins, numpy.iinfo("i8").max)[at + 1]
    free = ((at < 0) | (start >= over)) & (end <= following)
    return numpy.where(inside, kinds[before], numpy.where(free, "plain", ""))
