"""What the programs of the held-out sets share: inputs, launches, checks, times, and the range that
ncu looks at. Needs CuPy and nvcc.

A program names its cases, `Bench.main` does the rest:

    python one/app.py            check every kernel, then launch each once between cudaProfilerStart and cudaProfilerStop
    python one/app.py --time     check, then time each: timings.json, in microseconds, beside the program or in $OUT
    python one/app.py k08_a      only pair 8

It ends with 1 where a check fails. kernels.cubin is built where it is missing or older than
kernels.cu.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
from cupyx.profiler import profile

I, F, U = np.int32, np.float32, np.uint32  # noqa: E741
Shape = int | tuple[int, ...]

RNG = np.random.default_rng(7)
#: What is drawn on the host; longer arrays repeat it.
_DRAWN = 1 << 22
_SAMPLES = 9
#: Floats that are written between timed launches: more than the L2 holds, as ncu empties it before
#: each pass.
_FLUSHED = 1 << 26


def spread(block: np.ndarray, n: int) -> cp.ndarray:
    """n values on the device that repeat a block drawn on the host."""
    return cp.tile(cp.asarray(block), -(-n // block.size))[:n]


def uniform(n: int, lo: float = 0.0, hi: float = 1.0) -> cp.ndarray:
    """n floats between lo and hi."""
    return spread((RNG.random(min(n, _DRAWN), dtype=F) * F(hi - lo) + F(lo)).astype(F), n)


def whole(n: int, top: int, dtype: Any = I) -> cp.ndarray:
    """n whole numbers from 0 to below top."""
    return spread(RNG.integers(0, top, min(n, _DRAWN)).astype(dtype), n)


def small(n: int, top: int) -> cp.ndarray:
    """Small whole numbers in float: sums of them are exact."""
    return whole(n, top, F)


def two(n: Shape, dtype: Any = F) -> tuple[cp.ndarray, cp.ndarray]:
    """Two outputs of zeros."""
    return cp.zeros(n, dtype), cp.zeros(n, dtype)


@dataclass(frozen=True)
class Launch:
    """One kernel's launch. `clear`: it adds to its output, which must be 0 before."""

    name: str
    start: Callable[[], None]
    output: cp.ndarray
    clear: bool


@dataclass(frozen=True)
class Check:
    """The outputs of a pair must agree, and its first one with a reference: an array, or a function
    that makes it, of the output or its start.

    `off` may be the tolerance at most: the largest difference as a part of the largest value.
    `post` brings each output into a common order."""

    names: Sequence[str]
    outputs: Sequence[cp.ndarray]
    tolerance: float
    expect: cp.ndarray | Callable[[], cp.ndarray] | None = None
    post: Sequence[Callable[[cp.ndarray], cp.ndarray] | None] = (None, None)

    def run(self) -> bool:
        """Whether all agree; says so in a line."""
        outputs = [
            post(output) if post else output
            for output, post in zip(self.outputs, self.post, strict=False)
        ]
        off = [relative(output, outputs[0]) for output in outputs[1:]]
        if self.expect is not None:
            expected = self.expect() if callable(self.expect) else self.expect
            off.append(relative(outputs[0][: expected.size], expected))
        varied = outputs[0].size == 1 or bool(cp.any(outputs[0] != outputs[0][0]))
        good = (
            varied
            and bool(cp.isfinite(outputs[0]).all())
            and all(each <= self.tolerance for each in off)
        )
        alone = "" if self.expect is not None else " (twin only)"
        print(
            f"{'OK  ' if good else 'FAIL'} {' '.join(self.names):13} off {off} tolerance {self.tolerance}{alone}",
            flush=True,
        )
        return good


def relative(got: cp.ndarray, want: cp.ndarray) -> float:
    """Largest difference as a part of the largest value wanted; infinite where there is nan or inf,
    or all that is wanted is 0."""
    worst, scale, step = 0.0, 0.0, 1 << 24
    for at in range(0, want.size, step):
        g, w = (values[at : at + step].astype(cp.float64) for values in (got, want))
        worst = max(worst, float(cp.abs(g - w).max()))
        if not math.isfinite(worst):
            return math.inf
        scale = max(scale, float(cp.abs(w).max()))
    return worst / scale if scale else math.inf


class Bench:
    """The cases of one set. `arch` is what nvcc builds for; `letter` begins its kernels' names;
    `arguments` are those of the command line."""

    def __init__(
        self, folder: Path, arch: str, letter: str, arguments: Sequence[str] = tuple(sys.argv[1:])
    ) -> None:
        self._folder = folder
        self._letter = letter
        self._timing = "--time" in arguments
        self._only = {int(name[1:3]) for name in arguments if not name.startswith("-")}
        self._cases: list[tuple[int, Callable[[], None]]] = []
        self._launches: list[Launch] = []
        self._checks: list[Check] = []
        self._module = cp.RawModule(path=str(_built(folder, arch)))

    def case(self, number: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
        """Marks the function that adds the launches and checks of a pair; they are called in order
        of the file."""

        def mark(build: Callable[[], None]) -> Callable[[], None]:
            self._cases.append((number, build))
            return build

        return mark

    def constant(self, name: str, values: cp.ndarray) -> None:
        """Fill an array in constant memory."""
        cp.ndarray(values.shape, values.dtype, self._module.get_global(name))[...] = values

    def launch(
        self,
        name: str,
        grid: Shape,
        block: Shape,
        arguments: tuple[Any, ...],
        output: cp.ndarray,
        dynamic: int = 0,
        clear: bool = False,
    ) -> None:
        """Add the launch of a kernel, with `dynamic` bytes of shared memory."""
        kernel = self._module.get_function(name)
        if dynamic:
            kernel.max_dynamic_shared_size_bytes = dynamic
        shape = [extent if isinstance(extent, tuple) else (extent,) for extent in (grid, block)]
        self._launches.append(
            Launch(name, lambda: kernel(*shape, arguments, shared_mem=dynamic), output, clear)
        )

    def pair(
        self,
        number: int,
        shapes: Sequence[tuple[Shape, Shape]],
        args: Callable[[cp.ndarray, int], tuple[Any, ...]],
        outs: Sequence[cp.ndarray],
        tol: float,
        dynamic: Sequence[int] = (0, 0),
        reset: Sequence[bool] = (False, False),
        expect: cp.ndarray | Callable[[], cp.ndarray] | None = None,
        post: Sequence[Callable[[cp.ndarray], cp.ndarray] | None] = (None, None),
    ) -> None:
        """Add a kernel and its twin with their check (see Check for the rest).

        shapes: (grid, block) of the kernel, and of the twin if there is one. args(out, k):
        arguments of the k-th. reset: which add to their outputs."""
        names = [f"{self._letter}{number:02d}_{which}" for which in "ab"[: len(shapes)]]
        for k, name in enumerate(names):
            self.launch(name, *shapes[k], args(outs[k], k), outs[k], dynamic[k], reset[k])
        self.check(Check(names, outs, tol, expect, post))

    def check(self, check: Check) -> None:
        """Add a check."""
        self._checks.append(check)

    def main(self) -> int:
        """Build the cases, check them, then time or launch them; returns the exit status."""
        for number, build in self._cases:
            if not self._only or number in self._only:
                build()
        self._clear()
        for launch in self._launches:  # the warm-up, whose results are checked
            launch.start()
            cp.cuda.runtime.deviceSynchronize()
        good = True
        for check in self._checks:
            good &= check.run()
            cp.get_default_memory_pool().free_all_blocks()
        if self._timing:
            self._time()
        else:
            self._clear()
            cp.cuda.runtime.deviceSynchronize()
            with profile():
                for launch in self._launches:
                    launch.start()
                cp.cuda.runtime.deviceSynchronize()
        print("ALL OK" if good else "SOME FAILED")
        return 0 if good else 1

    def _clear(self) -> None:
        for launch in self._launches:
            if launch.clear:
                launch.output.fill(0)

    def _time(self) -> None:
        """Median of several launches each, by events, with an emptied L2."""
        flush = cp.zeros(_FLUSHED, F)
        times = {launch.name: _median(launch, flush) for launch in self._launches}
        for name, us in times.items():
            twin = times.get(name[:-1] + "b") if name.endswith("a") else None
            print(
                f"{name} {us:9.1f} us"
                + (f"   fixed {twin:9.1f} us, saves {100 * (1 - twin / us):5.1f} %" if twin else "")
            )
        Path(os.environ.get("OUT", self._folder), "timings.json").write_text(
            json.dumps(times, indent=1), encoding="utf-8"
        )


def _built(folder: Path, arch: str) -> Path:
    """The set's machine code."""
    source, target = folder / "kernels.cu", folder / "kernels.cubin"
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        # from its folder, so that line information names no more of this machine than it must
        subprocess.run(
            ["nvcc", f"-arch={arch}", "-lineinfo", "-cubin", "-o", target.name, source.name],
            cwd=folder,
            check=True,
        )
    return target


def _median(launch: Launch, flush: cp.ndarray) -> float:
    """Microseconds."""
    samples = []
    for _ in range(_SAMPLES):
        if launch.clear:
            launch.output.fill(0)
        flush += 1
        before, after = cp.cuda.Event(), cp.cuda.Event()
        before.record()
        launch.start()
        after.record()
        after.synchronize()
        samples.append(cp.cuda.get_elapsed_time(before, after) * 1e3)
    return float(np.median(samples))
