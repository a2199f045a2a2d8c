"""Small traces of torch.profiler, as its versions write them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

H100 = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "computeMajor": 9,
    "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048, "numSms": 132,
}  # fmt: skip
MAIN = {"pid": 100, "tid": 100}


def event(cat: str, name: str, ts: float, dur: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **MAIN, **more}


def launch(number: int, ts: float, name: str = "gemm", dur: float = 10.0, **args: Any) -> list[Any]:
    """A call on the host and the kernel that it queued, 5 us later."""
    found = {
        "correlation": number, "device": 0, "stream": 7, "grid": [4, 2, 1], "block": [128, 1, 1],
        "registers per thread": 32, "shared memory": 1024, **args,
    }  # fmt: skip
    return [
        event(
            "cuda_runtime", "cudaLaunchKernel", ts, 4.0, args={"cbid": 211, "correlation": number}
        ),
        event("kernel", name, ts + 5, dur, pid=0, tid=7, args=found),
    ]


def trace(events: list[Any], **more: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, "deviceProperties": [H100], "traceEvents": events, **more}


def write(path: Path, document: Any) -> Path:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
