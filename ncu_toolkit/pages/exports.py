"""Times of kernels for three services that keep them over commits: airspeed velocity (asv), Bencher
and github-action-benchmark. Each is one entry a kernel: the median of its repeats."""

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Mapping
from typing import Any, Final

from ncu_toolkit import __version__
from ncu_toolkit.analysis.gate import Side
from ncu_toolkit.core.safe import visible
from ncu_toolkit.core.units import counted
from ncu_toolkit.pages.json import written

#: Where CI says which commit it builds.
_COMMIT: Final = ("GITHUB_SHA", "CI_COMMIT_SHA")
_LONGEST: Final = 512

Named = Mapping[str, Side]


def named(sides: Mapping[tuple[object, ...], Side]) -> dict[str, Side]:
    """Complete sides with a time by a name of their own: kernels of one name by grid and block too, and by a
    number where that is not enough."""
    plain = [side.name for side in sides.values()]
    found: dict[str, Side] = {}
    for key, side in sides.items():
        if not side.times_us or side.status != "complete":
            continue
        name = side.name
        if plain.count(name) > 1:
            shape = (x for x in key if isinstance(x, tuple) and x and isinstance(x[0], int))
            sizes = ["x".join(map(str, each)) for each in shape]
            name = " ".join(
                [name, *(f"{k} {v}" for k, v in zip(("grid", "block"), sizes, strict=False))]
            )
        name = visible(name, _LONGEST)
        at, unique = 2, name
        while unique in found:
            unique, at = f"{name} #{at}", at + 1
        found[unique] = side
    return found


def benchmark_action(sides: Named) -> str:
    """github-action-benchmark's `customSmallerIsBetter`: a list of name, unit, value and range.

    Source: README of benchmark-action/github-action-benchmark.
    """
    found: list[dict[str, Any]] = []
    for name, side in sides.items():
        times = side.times_us
        entry: dict[str, Any] = {"name": name, "unit": "us", "value": statistics.median(times)}
        if len(times) > 1:
            entry["range"] = f"± {(max(times) - min(times)) / 2:.6g}"
        entry["extra"] = f"{counted(len(times), 'repeat')} on {visible(side.device)}"
        found.append(entry)
    return written(found)


def bencher(sides: Named) -> str:
    """Bencher Metric Format: the built-in measure `latency` in nanoseconds, with the quartiles as its
    bounds where there are repeats.

    Source: bencher.dev/docs/reference/bencher-metric-format.
    """
    found: dict[str, Any] = {}
    for name, side in sides.items():
        metric = {"value": statistics.median(side.times_us) * 1e3}
        if len(side.times_us) > 1:
            low, high = _quartiles(side)
            metric.update(lower_value=low * 1e3, upper_value=high * 1e3)
        found[name] = {"latency": metric}
    return written(found)


def asv(sides: Named) -> str:
    """One file of asv's results, version 2, in seconds; it goes to
    `results/MACHINE/COMMIT-ENVIRONMENT.json`.

    Source: asv's developer documentation, "Benchmark suite layout and file formats".
    """
    now = int(time.time() * 1000)
    results = {}
    for name, side in sides.items():
        low, high = _quartiles(side)
        results[name] = [
            [statistics.median(side.times_us) * 1e-6], [], None, now, None,
            None, None, [low * 1e-6], [high * 1e-6], [1], [len(side.times_us)],
            [[each * 1e-6 for each in side.times_us]],
        ]  # fmt: skip
    devices = dict.fromkeys(visible(side.device) for side in sides.values())
    gpu = ", ".join(devices)
    commit, date = _commit()
    return written(
        {
            "version": 2,
            "commit_hash": commit,
            "env_name": "ncu-toolkit",
            "date": date or now,
            "params": {"machine": gpu, "gpu": gpu, "python": platform.python_version()},
            "python": platform.python_version(),
            "requirements": {"ncu-toolkit": __version__},
            "env_vars": {},
            "durations": {},
            "result_columns": [
                "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b",
                "stats_q_25", "stats_q_75", "stats_number", "stats_repeat", "samples",
            ],
            "results": results,
        }
    )  # fmt: skip


def _quartiles(side: Side) -> tuple[float, float]:
    """First and third quartile in microseconds; of a single time itself."""
    times = side.times_us
    if len(times) < 2:
        return times[0], times[0]
    low, _, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, high


def _commit() -> tuple[str, int | None]:
    """The commit and its date in milliseconds: of CI's variables, else of the folder's repository;
    empty where there is none."""
    named = next((os.environ[name] for name in _COMMIT if os.environ.get(name)), "")
    try:
        told = subprocess.run(
            ["git", "show", "--no-patch", "--format=%H %ct", named or "HEAD", "--"],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout.split()  # fmt: skip
        return told[0], int(told[1]) * 1000
    except (OSError, subprocess.SubprocessError, IndexError, ValueError):
        return named, None


FORMATS: Final = {"asv": asv, "bencher": bencher, "github-action-benchmark": benchmark_action}
