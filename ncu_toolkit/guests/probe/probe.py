"""Experiments on a kernel without counters: change one thing, and see how much longer it takes.

Each condition runs a few times, shuffled among the others, so that drift of clocks falls on all
alike. kernel/diagnosis/regime.py reads the times."""

import contextlib
import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ncu_toolkit.base.core.errors import ToolkitError
from ncu_toolkit.base.model.profile import Launch
from ncu_toolkit.base.model.run import RunCase
from ncu_toolkit.base.model.trace import HALF, KINDS, PLAIN, KernelTrace
from ncu_toolkit.guests.probe.pressure import CARVEOUTS, NO_STREAMS, Pressure, compiled
from ncu_toolkit.kernel.diagnosis import regime
from ncu_toolkit.kernel.gpu import cuda, selection
from ncu_toolkit.kernel.gpu.executor import Reporter
from ncu_toolkit.kernel.gpu.launch import Runnable, Workspace
from ncu_toolkit.kernel.gpu.runner import Session, cache_of
from ncu_toolkit.kernel.gpu.selection import Cases
from ncu_toolkit.kernel.gpu.timing import Cache, Stopwatch

#: GPU seconds that the experiments on one kernel may take, and how often each condition runs.
SECONDS: Final = 1.0
_LEAST_RUNS: Final = 5
_MOST_RUNS: Final = 15
#: Microseconds that a run costs beside the kernel's own time: the delay, and starting the stressor.
_EACH_US: Final = 350
#: How long a stressor lasts at most, in nanoseconds, and in times of the kernel alone.
_LEAST_NS: Final = 5e6
_TIMES: Final = 20
#: Least share of its blocks that a stressor must have on their own multiprocessors.
_SPREAD: Final = 0.9
#: The control of the stressors that run alongside a kernel.
_BESIDE: Final = "beside"
#: Runs alongside it with each split of the L1 that is tried, and the part of the time with the first
#: one that the next one has to stay below to be taken.
_TRIES: Final = 3
_FASTER: Final = 0.8
_CACHES: Final[tuple[Cache, ...]] = ("warm", "flushed")
#: Extents of a launch that is not known.
#: Cycles that the GPU spins before a run, so that the run and its stressor are enqueued by then
#: (about 200 µs at 2 GHz).
_SPIN: Final = 400_000
#: Why a run does not count.
NO_ROOM: Final = "the pressure kernel found no room next to the kernel"
WAITED: Final = "the kernel found no room next to the pressure kernel, and waited for its end"


class Bench:
    """Runs stressors alongside kernels of this process. `kinds` are those that can be had: without
    memory for the streams not all. Raises ToolkitError: no GPU, no compiler, no cuda-bindings, no
    memory for the stressors."""

    def __init__(self, spin_cycles: int = _SPIN) -> None:
        device = cuda.device()
        self.pressure = Pressure(compiled(device.arch), device.sm_count)
        self.kinds = self.pressure.usable(KINDS)
        self.alone = self.pressure.speeds(self.kinds)
        self._watches: dict[str, Stopwatch] = {c: Stopwatch(c, spin_cycles) for c in _CACHES}

    def measure(
        self, runnable: Runnable, cache: str, seconds: float = SECONDS, seed: int = 1
    ) -> KernelTrace:
        """Time a verified rung under every condition, in this state of the L2. Its largest launch
        stands for it, and its time is of all launches of a run. Raises KernelProblem where the rung
        or a stressor failed on the GPU."""
        watch = self._watches[cache]
        estimate = min(watch.elapsed_us(watch.enqueue(runnable.run)) for _ in range(3))
        once = partial(self._once, runnable, watch, int(_LEAST_NS + 1e3 * _TIMES * estimate))
        with runnable.padded() as halved:
            conditions = [PLAIN, *([HALF] if halved else []), *self.kinds]
        missing = self._make_room(once)
        if missing:  # Try none of it again.
            conditions = [c for c in conditions if c not in KINDS or KINDS[c].alone]
        runs = int(seconds / ((estimate + _EACH_US) * 1e-6 * len(conditions)))
        shuffler, left_out = random.Random(seed), Counter[str]()
        times: defaultdict[str, list[float]] = defaultdict(list)
        rates: defaultdict[str, list[float]] = defaultdict(list)
        for _ in range(max(_LEAST_RUNS, min(_MOST_RUNS, runs))):
            for name in shuffler.sample(conditions, len(conditions)):
                time_us, rate, problem = once(name)
                if problem:
                    left_out[problem] += 1
                    continue
                times[name].append(time_us)
                if self.alone.get(name):
                    rates[name].append(rate / self.alone[name])
        missing = missing or next((problem for problem, _ in left_out.most_common(1)), "")
        plain, launches = sorted(times[PLAIN]), max(1, runnable.launch_count)
        name = runnable.rung.name
        unknown = Launch(name, name, None, None)
        largest = max(runnable.launched, key=lambda each: each.blocks or 0, default=unknown)
        return KernelTrace(
            launch=replace(largest, function=name),
            launches=launches,
            total_us=statistics.median(plain),
            median_us=statistics.median(plain) / launches,
            low_us=plain[len(plain) // 10],
            high_us=plain[-1 - len(plain) // 10],
            conditions={name: tuple(each) for name, each in times.items()},
            rates={name: tuple(each) for name, each in rates.items()},
            missing=missing,
        )

    def _once(
        self, runnable: Runnable, watch: Stopwatch, most_ns: int, name: str
    ) -> tuple[float, float, str]:
        """Time of one run, rate of the stressor, and why the run does not count."""
        stream, kind = watch.stream, name if name in KINDS else ""
        start = partial(self.pressure.start, kind, stream, most_ns)
        with runnable.padded() if name == HALF else contextlib.nullcontext():
            events = watch.enqueue(runnable.run, start, partial(self.pressure.stop, stream))
        time_us, seen = watch.elapsed_us(events), self.pressure.seen(stream)
        if not kind:
            return time_us, 0.0, ""
        room = seen.started and seen.multiprocessors >= _SPREAD * self.pressure.blocks(kind)
        return time_us, seen.rate, "" if room and seen.lasted else WAITED if room else NO_ROOM

    def _make_room(self, once: partial[tuple[float, float, str]]) -> str:
        """Have stressors leave the kernel its shared memory; why that cannot be done, or ""."""
        fastest, best, problem = math.inf, CARVEOUTS[-1], ""
        for carveout in CARVEOUTS:
            self.pressure.carve(carveout)
            for _ in range(_TRIES):
                time_us, _, problem = once(_BESIDE)
                if problem:
                    break
            if not problem and time_us < _FASTER * fastest:
                fastest, best = time_us, carveout
        self.pressure.carve(best)
        return problem if fastest == math.inf else ""


def press_all(session: Session, reporter: Reporter) -> None:
    """Run stressors alongside the profiled cases of a run, for the line of their cards that says whether
    that confirms the verdict (regime.confirmation). Raises as `rungs`."""
    cases = tuple(case for case in session.run.cases if case.state == "profiled")
    for case, kernel, _ in rungs(cases, reporter):
        kept = regime.kept(kernel)
        session.record(replace(case, pressure_us=kernel.conditions, pressure_kept=kept))
        session.save()


def rungs(
    cases: Cases, reporter: Reporter, seconds: float = SECONDS
) -> Iterator[tuple[RunCase, KernelTrace, Path | None]]:
    """Build and verify each case, and run stressors alongside it: the case, what was measured, its
    cubin. A case that cannot run is left out with a note. Raises ToolkitError: no GPU, no compiler,
    no cuda-bindings, no memory for the stressors; a build that failed; a kernel that broke the
    GPU's context."""
    cuda.disable_tf32()
    cuda.cupy()
    bench = Bench()
    if len(bench.kinds) < len(KINDS):
        reporter.note(NO_STREAMS)
    reporter.stage("Probe", len(cases))
    try:
        for group in selection.groups_of(cases):
            first = group[0]
            space = Workspace(selection.rung_of(first), selection.size_of(first), first.dtype)
            for case in group:
                name = f"{case.rung} {case.size}"
                reporter.doing(name)
                try:
                    runnable = Runnable(selection.rung_of(case), space, case.parameters)
                    runnable.verify()
                    found = bench.measure(runnable, cache_of(space.problem, None), seconds)
                    runnable.verify()
                except ToolkitError as error:
                    if not cuda.context_works():
                        raise
                    reporter.note(f"{name}: {error}")
                else:
                    if found.missing:
                        reporter.note(f"{name}: {found.missing}")
                    yield case, found, runnable.cubin.path if runnable.cubin else None
                reporter.step(name)
    finally:
        if cuda.context_works():
            bench.pressure.close()
