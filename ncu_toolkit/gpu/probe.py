"""Experiments on a kernel without counters: change one thing, and see how much longer it takes.

Each condition runs a few times, shuffled among the others, so that drift of clocks falls on all
alike. diagnosis/regime.py reads the times."""

from __future__ import annotations

import contextlib
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.gpu import cuda, selection
from ncu_toolkit.gpu.launch import Runnable, Workspace
from ncu_toolkit.gpu.pressure import NO_STREAMS, Pressure, compiled
from ncu_toolkit.gpu.selection import Cases
from ncu_toolkit.gpu.session import Reporter, cache_of
from ncu_toolkit.gpu.timing import Stopwatch
from ncu_toolkit.ladder.problems import problem_for
from ncu_toolkit.model.profile import Launch
from ncu_toolkit.model.run import RunCase
from ncu_toolkit.model.trace import AGAIN, HALF, KINDS, OTHER_CACHE, PLAIN, KernelTrace

#: GPU seconds that the experiments on one kernel may take, and how often each condition runs.
SECONDS: Final = 1.0
_LEAST_RUNS: Final = 5
_MOST_RUNS: Final = 15
#: Least share of its blocks that pressure must have on multiprocessors of their own.
_SPREAD: Final = 0.9
#: Extents of a launch that is not known.
_NONE: Final = (0, 0, 0)
#: Cycles that the GPU spins before a run, so that the run and its pressure are enqueued by then
#: (about 200 µs at 2 GHz).
_SPIN: Final = 400_000


@dataclass(frozen=True)
class Measured:
    """Runs under one condition: their times in microseconds, the pressure's rounds a nanosecond
    beside each, and how many were left out because the pressure did not last as long as the run."""

    times_us: tuple[float, ...]
    rates: tuple[float, ...] = ()
    left_out: int = 0


def experiment(
    runnable: Runnable,
    pressure: Pressure,
    watches: Mapping[str, Stopwatch],
    cache: str,
    seconds: float = SECONDS,
    kinds: Sequence[str] = tuple(KINDS),
    seed: int = 1,
) -> dict[str, Measured]:
    """Times of a verified rung under every condition.

    Args:
        watches: a stopwatch for each state of the L2, "warm" and "flushed".
        cache: the state that conditions run in, but OTHER_CACHE.

    Raises:
        KernelProblem: the rung or the pressure failed on the GPU.
    """
    cp = cuda.cupy()
    other = "flushed" if cache == "warm" else "warm"
    once = [watches[cache].elapsed_us(watches[cache].enqueue(runnable.run)) for _ in range(3)]
    estimate = min(once)
    conditions = [PLAIN, AGAIN, OTHER_CACHE, HALF, *kinds]
    each = (estimate + 350) * 1e-6 * len(conditions)
    runs = max(_LEAST_RUNS, min(_MOST_RUNS, int(seconds / each)))
    most_ns = int(5e6 + 20e3 * estimate)
    found: dict[str, tuple[list[float], list[float], list[int]]] = {
        name: ([], [], []) for name in conditions
    }
    shuffler = random.Random(seed)
    with runnable.padded() as halved:
        pass
    if not halved:
        del found[HALF]
        conditions.remove(HALF)
    stream = int(cp.cuda.get_current_stream().ptr)
    for _ in range(runs):
        shuffler.shuffle(conditions)
        for name in conditions:
            kind = name if name in KINDS else ""
            watch = watches[other if name == OTHER_CACHE else cache]
            with runnable.padded() if name == HALF else contextlib.nullcontext():
                events = watch.enqueue(
                    runnable.run,
                    partial(pressure.start, kind, stream, most_ns),
                    partial(pressure.stop, stream),
                )
            time_us = watch.elapsed_us(events)
            seen = pressure.seen(stream)
            times, rates, left_out = found[name]
            spread = seen.multiprocessors >= _SPREAD * pressure.blocks(kind)
            if seen.whole and spread:
                times.append(time_us)
                rates.append(seen.rate)
            else:
                left_out.append(1)
    return {
        name: Measured(tuple(times), tuple(rates) if name in KINDS else (), len(left_out))
        for name, (times, rates, left_out) in found.items()
    }


def calibrate(
    pressure: Pressure, runs: int = 5, span_cycles: int = 400_000
) -> dict[str, tuple[float, ...]]:
    """Rounds a nanosecond of each kind of pressure with nothing else on the GPU."""
    cp, watch = cuda.cupy(), Stopwatch("warm", _SPIN)
    stream = int(cp.cuda.get_current_stream().ptr)
    found: dict[str, tuple[float, ...]] = {}
    for name in KINDS:
        rates = []
        for _ in range(runs):
            events = watch.enqueue(
                lambda: watch.spin(span_cycles),
                partial(pressure.start, name, stream, 50_000_000),
                partial(pressure.stop, stream),
            )
            watch.elapsed_us(events)
            seen = pressure.seen(stream)
            if seen.whole:
                rates.append(seen.rate)
        found[name] = tuple(rates)
    return found


def stopwatches() -> dict[str, Stopwatch]:
    """A stopwatch for each state of the L2 whose delay covers the enqueuing of pressure."""
    return {"warm": Stopwatch("warm", _SPIN), "flushed": Stopwatch("flushed", _SPIN)}


def traced(
    runnable: Runnable, measured: Mapping[str, Measured], alone: Mapping[str, tuple[float, ...]]
) -> KernelTrace:
    """A rung's experiments as a traced kernel: its largest launch stands for it, and its time is of
    all launches of a run. `alone` is from `calibrate`."""
    full = {kind: statistics.median(rates) for kind, rates in alone.items() if rates}
    launches = runnable.launched
    name = runnable.rung.name
    largest = max(launches, key=lambda each: each.blocks, default=Launch(name, name, _NONE, _NONE))
    plain = sorted(time for each in (PLAIN, AGAIN) for time in measured[each].times_us)
    middle = statistics.median(plain)
    return KernelTrace(
        launch=replace(largest, function=name),
        launches=max(1, runnable.launch_count),
        total_us=middle,
        median_us=middle / max(1, runnable.launch_count),
        low_us=plain[len(plain) // 10],
        high_us=plain[-1 - len(plain) // 10],
        conditions={name: each.times_us for name, each in measured.items() if each.times_us},
        rates={
            name: tuple(rate / full[name] for rate in each.rates)
            for name, each in measured.items()
            if each.rates and full.get(name)
        },
    )


def rungs(
    cases: Cases, reporter: Reporter, seconds: float = SECONDS
) -> Iterator[tuple[RunCase, KernelTrace, Path | None]]:
    """Build and verify each case, and put it under pressure: the case, what was measured, its
    cubin. A case that cannot run is left out with a note.

    Raises:
        ToolkitError: no GPU, no compiler, no cuda-bindings, no memory for the pressure; a build
            that failed; a kernel that broke the GPU's context.
    """
    cuda.disable_tf32()
    cuda.cupy()
    device = cuda.device()
    pressure, watches = Pressure(compiled(device.arch), device.sm_count), stopwatches()
    kinds = pressure.usable(KINDS)
    if len(kinds) < len(KINDS):
        reporter.note(NO_STREAMS)
    alone = calibrate(pressure)
    reporter.stage("Probe", len(cases))
    try:
        for group in selection.groups_of(cases):
            first = group[0]
            problem, options = problem_for(first.family), selection.rung_of(first).problem
            space = Workspace(problem, selection.size_of(first), first.dtype, options)
            for case in group:
                reporter.doing(f"{case.rung} {case.size}")
                try:
                    runnable = Runnable(selection.rung_of(case), space, case.parameters)
                    runnable.verify()
                    measured = experiment(
                        runnable, pressure, watches, cache_of(problem, None), seconds, kinds
                    )
                    runnable.verify()
                except ToolkitError as error:
                    if not cuda.context_works():
                        raise
                    reporter.note(f"{case.rung} {case.size}: {error}")
                else:
                    cubin = runnable.cubin.path if runnable.cubin else None
                    yield case, traced(runnable, measured, alone), cubin
                reporter.step(f"{case.rung} {case.size}")
    finally:
        if cuda.context_works():
            pressure.close()
