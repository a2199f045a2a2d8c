"""How the tuner's client scales with the number of boards: workers in this process, work that sleeps.
It shows what the client and Dask cost, and nothing of a GPU.

python benchmarks/cluster_scaling.py [WORKERS…]"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":  # the tests' own modules and the package of this checkout
    _ROOT = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(_ROOT), str(_ROOT / "tests"), str(_ROOT / "tests/guests/cluster")]

import cluster_worker

from ncu_toolkit.base.core import cache
from ncu_toolkit.guests.cluster import schedulers
from ncu_toolkit.guests.tune import tune

SECONDS = 0.5
QUIET = {
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.worker.profile.enabled": False,
    "distributed.comm.timeouts.connect": "3s",
}
ROUNDS = 4


@contextlib.contextmanager
def simulated(workers: int, **options: Any) -> Iterator[Any]:
    """A cluster of workers in this process, without what Dask measures of itself."""
    import dask
    from distributed import LocalCluster

    with (
        dask.config.set(QUIET),
        LocalCluster(
            n_workers=workers,
            processes=False,
            protocol="tcp://",
            threads_per_worker=1,
            resources={"GPU": 1},
            dashboard_address=":0",
            worker_dashboard_address=None,
            silence_logs=logging.CRITICAL,
            memory_limit=0,
            **options,
        ) as made,
    ):
        yield made


def measure(workers: int) -> tuple[float, float]:
    """Settings a minute of so many boards with measurements of SECONDS, and the share of what they
    could do at most."""
    (cluster_worker.folder() / "seconds").write_text(str(SECONDS))
    with (
        simulated(workers) as made,
        schedulers.opened(made.scheduler_address, lambda _: None) as where,
    ):
        tasks = [
            (tune.BenchOf("gemm_fp32/autotuned", "64", "float32", ""), {"BM": n}, 3, None, True)
            for n in range(ROUNDS * workers)
        ]
        started = time.monotonic()
        done = list(where.run(tune.measure_setting, tasks))
        spent = time.monotonic() - started
    assert len(done) == len(tasks)
    assert all(each.error is None for each in done), done[0].error
    return 60 * len(tasks) / spent, ROUNDS * SECONDS / spent


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        os.environ["FAKE_CLUSTER"] = name
        os.environ[cache.CACHE_VARIABLE] = str(Path(name) / "cache")
        cluster_worker.install(pytest.MonkeyPatch())
        for count in map(int, sys.argv[1:] or ("1", "2", "8", "64")):
            rate, share = measure(count)
            print(f"{count:3} boards: {rate:7.0f} settings a minute, {share:.0%} of the most")
