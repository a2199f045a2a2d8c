"""Timing without a profiler: CUDA events, warm-up, many repeats, the baseline interleaved, a known
cache state, sampled clocks."""

import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import numpy

from ncu_toolkit.base.model import Timing
from ncu_toolkit.base.model.run import Ceilings
from ncu_toolkit.kernel.build import nvcc
from ncu_toolkit.kernel.gpu import cuda
from ncu_toolkit.kernel.gpu.launch import Runnable, Workspace, bind_verified
from ncu_toolkit.kernel.ladder.catalogue import find_rung, kernels_root
from ncu_toolkit.kernel.ladder.problems import Size, problem_for
from ncu_toolkit.kernel.ladder.turns import in_turns

Cache = Literal["flushed", "warm"]

#: Repeats of one rung, bounded so that a slow rung does not take most of the ladder's time.
_MIN_REPEATS: Final = 5
_MAX_REPEATS: Final = 100
#: Repeats of a rung so slow that _MIN_REPEATS would exceed its time: three give a median, and the
#: spread says how good it is.
SLOW_REPEATS: Final = 3
SECONDS_PER_RUNG: Final = 0.4
_WARM_UPS: Final = 3
#: Samples of clocks, power and temperature of one rung, spread over its rounds.
_STATES_PER_RUNG: Final = 5
#: Seconds of rest before rungs are timed again with rests between them; the driver averages power
#: over less than this.
BREATHER: Final = 0.25
#: Longest rest in seconds: power is averaged over no more.
LONGEST_REST: Final = 0.05
#: Cycles the GPU spins before each timed run, so that the CPU has enqueued all of it (about 50 µs
#: at 2 GHz), and the most that they grow to. They are too few for a library's call on a CPU that
#: has just slept (docs/decisions/09-rests.md).
_SPIN_CYCLES: Final = 100_000
_LONGEST_SPIN: Final = 3_200_000
#: Bytes up to which transfers between host and device are timed.
_TRANSFER_LIMIT: Final = 2**30
#: Sizes of the copy; the best rate is the copy roof. The place of the buffers in device memory
#: changes the rate by up to a tenth (seen on an H200).
_COPY_SIZES: Final = (2**29, 2**30, 3 * 2**29, 2**31)
#: Bytes that the probe of a GPU reads: several times the L2 of any GPU so far.
PROBE_BYTES: Final = 2**29
#: Runs of each part of the probe, after warm-up; about 20 ms on an H200 by its rates.
_PROBE_RUNS: Final = 15
#: Size of the flush buffer over the L2: more than 1, since the L2 is not quite LRU.
_FLUSH_FACTOR: Final = 2
#: Seconds of an energy measurement between the first and the last step of the counter, and until it
#: is given up.
_ENERGY_WINDOW: Final = 0.1
_ENERGY_LIMIT: Final = 1.0
#: Seconds of work in one block; two blocks are enqueued at any time.
_ENERGY_BLOCK: Final = 0.005
#: Least share of the time that the host must wait for the GPU. Below it the GPU waited for
#: launches.
_WAITED: Final = 0.05


@lru_cache(maxsize=1)
def _tools() -> Any:
    source = kernels_root() / "common" / "tools.cu"
    cubin = nvcc.compile_file(source, cuda.device().arch, {"CHAINS": "16"})
    module = cuda.cupy().cuda.function.Module()
    module.load(cubin.path.read_bytes())
    return module


class Stopwatch:
    """Times enqueued work on the current stream with events; `flushed` reads a buffer of twice the
    L2 before each run. `spin_cycles` is how long the GPU spins meanwhile; after a run that the CPU
    enqueued too late, twice as long."""

    def __init__(self, cache: Cache, spin_cycles: int = _SPIN_CYCLES) -> None:
        self._cp, self.spin_cycles = cuda.cupy(), spin_cycles
        self._spin, self._read = map(_tools().get_function, ("spin", "read_all"))
        self._blocks = cuda.device().sm_count * 8
        self._flush: tuple[Any, ...] = ()
        if cache == "flushed":
            quads = cuda.device().l2_bytes * _FLUSH_FACTOR // 16
            words = self._cp.zeros(4 * quads + 4, dtype="uint32")
            self._flush = words, numpy.int64(quads), words[-4:]

    def _before(self) -> None:
        if self._flush:
            self._read((self._blocks, 1, 1), (256, 1, 1), self._flush)
        self._spin((1, 1, 1), (1, 1, 1), (numpy.int64(self.spin_cycles),))

    def enqueue(
        self,
        run: Callable[[], None],
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> tuple[Any, Any]:
        """Enqueue one timed run; returns its events. What `before` and `after` enqueue around the
        run is not timed."""
        start, end = self._cp.cuda.Event(), self._cp.cuda.Event()
        self._before()
        if before is not None:
            before()
        start.record()
        run()
        end.record()
        if start.done:  # The GPU did not wait for the CPU: part of this time may be the CPU's.
            self.spin_cycles = min(2 * self.spin_cycles, _LONGEST_SPIN)
        if after is not None:
            after()
        return start, end

    @property
    def stream(self) -> int:
        """The current stream's handle, on which runs are enqueued."""
        return int(self._cp.cuda.get_current_stream().ptr)

    def elapsed_us(self, events: tuple[Any, Any]) -> float:
        events[1].synchronize()
        return float(self._cp.cuda.get_elapsed_time(*events)) * 1e3


def promising_timed(name: str, size: Size, dtype: str) -> list[tuple[float, dict[str, int]]]:
    """The settings that a rung's model names for a size, verified and timed in turns on this GPU, with
    their median microseconds, the fastest first. Raises as `bind_verified`."""
    rung, device, build = find_rung(name), cuda.device(), nvcc.BuildRequest
    macros = problem_for(rung.family).macros(dtype, size)
    settings = [each for _, each in rung.promising(size.as_dict(), device.sm_count)]
    nvcc.build_many([build(rung, device.arch, each, macros) for each in settings])
    space = Workspace(rung, size, dtype)
    bound = [bind_verified(rung, space, each) for each in settings]
    times = in_turns(cuda.cupy(), [each.run for each in bound])
    return sorted(zip(times, settings, strict=True), key=lambda each: each[0])


def measure_ladder(
    runnables: Sequence[Runnable],
    baseline: Runnable | None,
    cache: Cache,
    seconds: float = SECONDS_PER_RUNG,
    tick: Callable[[str], None] = lambda name: None,
) -> dict[str, Timing]:
    """Time verified runnables of one workspace against each other.

    Every round times each rung once, in a newly shuffled order, with the baseline run alongside it, so
    that drift of clocks and temperature falls on all alike. The rung comes first in one round and
    the baseline in the next, and the GPU is idle before every run: neither gains by its place. The
    number of rounds follows from the time a rung takes (`seconds` of GPU time a rung,
    _MIN_REPEATS.._MAX_REPEATS). Clocks and power are sampled while the GPU works. Where it is seen to
    slow itself down, a run's clock depends on what ran before it: all rounds are then repeated, the
    GPU resting after each run as long as it worked (docs/decisions/09-rests.md). Energy is
    measured afterwards, rung by rung (measure_energy).

    Returns:
        Timing by rung name. Whatever was not verified yet is verified first.
    """
    watch = Stopwatch(cache)
    verified = {r.rung.name: r.verify() if r.worst is None else r.worst for r in runnables}
    runs = [(r, _repeats(watch, r, seconds)) for r in runnables]
    waiting = set(verified)

    def done(name: str) -> None:
        if name in waiting:
            waiting.remove(name)
            tick(name)

    rested = False
    while (rounds := _rounds(watch, runs, baseline, random.Random(1), done, rested)) is None:
        time.sleep(BREATHER)
        rested = True
    used: dict[str, float | None] = {}
    if cuda.energy_mj() is not None:
        for r in runnables:
            middle = statistics.median_high(rounds.times[r.rung.name])
            used[r.rung.name] = measure_energy(r.run, middle)
    return {
        (name := r.rung.name): _timing(r, rounds, cache, verified[name], used.get(name), rested)
        for r in runnables
    }


@dataclass(frozen=True)
class _Rounds:
    """Times of each rung and of the baseline beside it, in microseconds, and states of the GPU
    meanwhile."""

    times: dict[str, list[float]]
    beside: dict[str, list[float]]
    states: dict[str, list[cuda.GpuState]]


def _rounds(
    watch: Stopwatch, runs: Sequence[tuple[Runnable, int]], baseline: Runnable | None,
    shuffler: random.Random, done: Callable[[str], None], rest: bool,
) -> _Rounds | None:  # fmt: skip
    """Run every rung as often as the number beside it. With `rest` the GPU rests after each run as
    long as the run took, at most LONGEST_REST; without, returns None when the GPU slows itself
    down."""
    names = [runnable.rung.name for runnable, _ in runs]
    found = _Rounds({n: [] for n in names}, {n: [] for n in names}, {n: [] for n in names})
    for round_index in range(max((repeats for _, repeats in runs), default=0)):
        due = [run for run in runs if round_index < run[1]]
        shuffler.shuffle(due)
        for runnable, repeats in due:
            name = runnable.rung.name
            pair = [(runnable, found.times[name])]
            if baseline is not None and baseline is not runnable:
                pair.append((baseline, found.beside[name]))
            for one, times in pair[:: -1 if round_index % 2 else 1]:
                events = watch.enqueue(one.run)
                if one is runnable and round_index % max(1, repeats // _STATES_PER_RUNG) == 0:
                    found.states[name].append(cuda.sample())  # the GPU is at work
                times.append(watch.elapsed_us(events))
                if rest:
                    time.sleep(min(times[-1] * 1e-6, LONGEST_REST))
            if not rest and found.states[name][-1].throttle:
                return None
            if round_index == repeats - 1:
                done(name)
    return found


def _repeats(watch: Stopwatch, runnable: Runnable, seconds: float) -> int:
    """Rounds for a rung, from one timed run (verification ran it before); short rungs get their
    remaining warm-ups here."""
    estimate = watch.elapsed_us(watch.enqueue(runnable.run)) * 1e-6
    if estimate > seconds / _MIN_REPEATS:
        return SLOW_REPEATS
    for _ in range(_WARM_UPS - 1):
        estimate = watch.elapsed_us(watch.enqueue(runnable.run)) * 1e-6
    return max(_MIN_REPEATS, min(_MAX_REPEATS, int(seconds / max(estimate, 1e-6))))


def measure_energy(
    run: Callable[[], None],
    work_us: float,
    *,
    counter: Callable[[], float | None] = cuda.energy_mj,
    fence: Callable[[], Callable[[], bool]] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> float | None:
    """Energy in joules of one `run`, which takes about `work_us` microseconds on the GPU and only
    enqueues: launches follow each other without a gap meanwhile.

    The GPU's counter moves in steps of some 20 to 100 ms, so what counts is the power between two
    steps: it is exact however long a step is. That power times the time of one launch is the energy
    of a launch, with all that the GPU draws meanwhile, its share at rest included.

    Args:
        counter: the energy used so far in millijoules; None where the GPU does not say.
        fence: marks the end of what is enqueued, and returns a question whether that is done.

    Returns:
        None where the GPU does not count energy, where its counter did not move in time, and where
        the launches are so short that the host could not keep the GPU busy.
    """
    last = counter()
    if last is None:
        return None
    mark = fence or _fence
    block = max(1, round(_ENERGY_BLOCK * 1e6 / max(work_us, 1e-3)))
    steps: list[tuple[float, float]] = []
    pending: deque[Callable[[], bool]] = deque()
    launched, waited, start = 0, 0.0, clock()
    while True:
        for _ in range(block):
            run()
        launched += block
        pending.append(mark())
        while True:
            before, value = clock(), counter()
            if value is not None and value != last:
                last = value
                steps.append((clock(), value))
            if len(pending) < 2 or pending[0]():
                break
            waited += clock() - before
        if len(pending) > 1:
            pending.popleft()
        enough = len(steps) > 1 and steps[-1][0] - steps[0][0] >= _ENERGY_WINDOW
        if enough or clock() - start > _ENERGY_LIMIT:
            break
    cuda.synchronize("measuring energy")
    took = clock() - start
    if len(steps) < 2 or waited < _WAITED * took:
        return None
    watts = (steps[-1][1] - steps[0][1]) * 1e-3 / (steps[-1][0] - steps[0][0])
    return watts * took / launched


def _fence() -> Callable[[], bool]:
    event = cuda.cupy().cuda.Event(disable_timing=True)
    event.record()
    return lambda: bool(event.done)


def _timing(
    runnable: Runnable, rounds: _Rounds, cache: Cache, worst: float, joules: float | None, rested: bool
) -> Timing:  # fmt: skip
    name, problem, case = runnable.rung.name, runnable.workspace.problem, runnable.workspace.case
    beside, state = rounds.beside[name], cuda.combined(rounds.states[name])
    return Timing(
        family=runnable.rung.family, rung=name, size=case.size.label, dtype=case.dtype, dims=case.size.as_dict(),
        parameters=dict(runnable.parameters), times_us=tuple(round(value, 4) for value in rounds.times[name]),
        cache=cache, flops=problem.flops(case), compulsory_bytes=problem.compulsory_bytes(case), verified_worst=worst,
        baseline_us=statistics.median_high(beside) if beside else None, sm_clock_mhz=state.sm_mhz,
        memory_clock_mhz=state.memory_mhz, power_w=state.power_w, temperature_c=state.temperature_c,
        throttle=state.throttle, energy_mj=joules * 1e3 if joules is not None else None, rested=rested,
    )  # fmt: skip


def measure_ceilings() -> Ceilings:
    """What this device reaches: a large copy (bytes read + written a second), independent FFMAs,
    and a bf16 product by the library.

    Each is the best of several runs of at least a few milliseconds, with events, after warm-up.
    """
    watch = Stopwatch("warm")

    def best(run: Callable[[], None], tries: int = 8) -> float:
        run()
        return min(watch.elapsed_us(watch.enqueue(run)) for _ in range(tries)) * 1e-6

    copy = max(_copy_rate(min(size, cuda.free_bytes() // 8), best) for size in _COPY_SIZES)
    run, operations = _ffmas()
    fp32 = operations / best(run)
    return Ceilings(copy=copy, fp32=fp32, tensor=_tensor_ceiling(best))


def _ffmas() -> tuple[Callable[[], None], float]:
    """A launch of independent FFMAs on every multiprocessor, and its floating-point operations."""
    target = cuda.cupy().empty(32, dtype="float32")
    blocks, steps = cuda.device().sm_count * 8, 8192
    peak = _tools().get_function("ffma_peak")
    arguments = (target, numpy.float32(0.999), numpy.float32(1e-3), numpy.int32(steps))
    return lambda: peak((blocks, 1, 1), (256, 1, 1), arguments), 2.0 * 16 * steps * blocks * 256


def probe() -> tuple[float, float, str]:
    """Time work that never changes, to compare GPUs of one model: the loop of FFMAs of
    `measure_ceilings`, and reading a buffer of PROBE_BYTES. Median times in microseconds, and what
    slowed the GPU down meanwhile."""
    cp, watch = cuda.cupy(), Stopwatch("warm")
    blocks, buffer = cuda.device().sm_count * 8, cp.zeros(PROBE_BYTES // 4, dtype="uint32")
    words = (buffer, numpy.int64(PROBE_BYTES // 16 - 1), buffer[-4:])
    read = _tools().get_function("read_all")
    states = []

    def middle(run: Callable[[], None]) -> float:
        times = []
        for index in range(_WARM_UPS + _PROBE_RUNS):
            events = watch.enqueue(run)
            states.append(cuda.sample())
            times += [watch.elapsed_us(events)] if index >= _WARM_UPS else []
        return statistics.median(times)

    compute = middle(_ffmas()[0])
    memory = middle(lambda: read((blocks, 1, 1), (256, 1, 1), words))
    return compute, memory, cuda.combined(states).throttle


def _copy_rate(nbytes: int, best: Callable[[Callable[[], None]], float]) -> float:
    """Bytes read and written a second by a device-to-device copy of `nbytes`."""
    cp = cuda.cupy()
    source, target = cp.ones(nbytes // 4, dtype="float32"), cp.empty(nbytes // 4, dtype="float32")
    device_to_device = 3  # cudaMemcpyDeviceToDevice
    places = target.data.ptr, source.data.ptr, nbytes, device_to_device
    stream = cp.cuda.get_current_stream().ptr
    return 2 * nbytes / best(lambda: cp.cuda.runtime.memcpyAsync(*places, stream))


def _tensor_ceiling(best: Callable[[Callable[[], None]], float]) -> float | None:
    """FLOP/s of the library's 8192-cubed bf16 product on random data; None where the GPU has no
    bf16 tensor cores."""
    if cuda.device().cc < (8, 0):
        return None
    problem = problem_for("gemm_tensor")
    case = problem.case("8192", "bfloat16", xp=cuda.cupy())
    arrays = problem.make_inputs(case, 1, ["A", "B"])
    arrays["C"] = case.xp.empty((8192, 8192), dtype="uint16")
    return problem.flops(case) / best(problem.library(case, "cublas", arrays))


def measure_costs(runnable: Runnable) -> dict[str, float]:
    """Allocation, initialisation and transfer of a workspace's arrays, in seconds, each timed on
    its own with the device idle around it, as the source document's log has them.

    Empty for more than _TRANSFER_LIMIT bytes, whose pageable copies would take longer than everything
    else."""
    cp = cuda.cupy()
    space = runnable.workspace
    names = [name for name in space.arrays if space.arrays[name].nbytes]
    inputs = [name for name in names if space.specs[name].role != "output"]

    def timed(action: Callable[[], Any]) -> tuple[float, Any]:
        cp.cuda.Device().synchronize()
        start = time.perf_counter()
        result = action()
        cp.cuda.Device().synchronize()
        return time.perf_counter() - start, result

    total = sum(space.arrays[name].nbytes for name in names)
    if total > _TRANSFER_LIMIT:
        return {}
    allocation, memory = timed(lambda: cp.cuda.memory.Memory(total))
    del memory
    initialisation, _ = timed(lambda: space.problem.make_inputs(space.case, space.seed, inputs))
    to_host, host = timed(lambda: [cp.asnumpy(space.arrays[name]) for name in names])
    to_device, _ = timed(lambda: [cp.asarray(array) for array in host])
    return {
        "allocation": allocation,
        "initialisation": initialisation,
        "transfer_to_device": to_device,
        "transfer_to_host": to_host,
    }
