"""Small exports of Nsight Systems, with the tables and columns that real ones have."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

PROCESS = 0x1_0002_A700_0000
"""globalPid of process 679."""
PID = PROCESS >> 24 & 0xFFFFFF
THREAD = PROCESS + 680
STRINGS = {
    1: "void at::copy<float>(int)", 2: "copy", 3: "cudaLaunchKernel_v7000", 4: "cudaMemcpyAsync_v3020",
    5: "step", 6: "cudaStreamSynchronize_ptsz_v7000", 7: "NCCL", 8: "cuMemAlloc_v2",
}  # fmt: skip
GPU = {
    "id": 3, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0, "smCount": 108,
    "l2CacheSize": 41943040, "totalMemory": 84990623744, "clockRate": 1410000000, "maxWarpsPerSm": 64, "cuDevice": 0,
}  # fmt: skip
KERNEL = {
    "start": 2000, "end": 5000, "globalPid": PROCESS, "deviceId": 0, "streamId": 7, "correlationId": 11,
    "demangledName": 1, "shortName": 2, "gridX": 4, "gridY": 2, "gridZ": 1, "blockX": 128, "blockY": 1, "blockZ": 1,
    "registersPerThread": 32, "staticSharedMemory": 16, "dynamicSharedMemory": 1024, "graphNodeId": None,
}  # fmt: skip
CALL = {
    "start": 1000, "end": 1800, "eventClass": 0, "globalTid": THREAD, "correlationId": 11, "nameId": 3,
    "returnValue": 0, "callchainId": None,
}  # fmt: skip
COPY = {
    "start": 6000, "end": 9000, "globalPid": PROCESS, "deviceId": 0, "streamId": 7, "correlationId": 12,
    "bytes": 4096, "copyKind": 1, "srcKind": 0, "dstKind": 2, "graphNodeId": None,
}  # fmt: skip
RANGE = {
    "start": 500, "end": 9500, "eventType": 59, "text": None, "textId": 5, "globalTid": THREAD, "domainId": 0,
}  # fmt: skip
ACTIVITY = "CUPTI_ACTIVITY_KIND_"


def tables(**more: Sequence[Mapping[str, Any]]) -> dict[str, Sequence[Mapping[str, Any]]]:
    """An export of one kernel, with other tables added or in the place of these."""
    return {
        "StringIds": [{"id": number, "value": text} for number, text in STRINGS.items()],
        "ThreadNames": [{"nameId": 1, "globalTid": THREAD}],
        "TARGET_INFO_GPU": [GPU],
        "PROCESSES": [{"globalPid": PROCESS, "pid": PID, "name": "/opt/some/app"}],
        "META_DATA_EXPORT": [{"name": "EXPORT_PRODUCT_VERSION", "value": "2024.5.1.113"}],
        f"{ACTIVITY}KERNEL": [KERNEL],
        f"{ACTIVITY}RUNTIME": [CALL],
        **more,
    }


def write(path: Path, content: Mapping[str, Sequence[Mapping[str, Any]]]) -> Path:
    with closing(sqlite3.connect(path)) as base:
        for table, rows in content.items():
            columns = list(rows[0]) if rows else ["start", "end"]
            base.execute(f'CREATE TABLE "{table}" ({", ".join(columns)})')
            marks = ", ".join("?" * len(columns))
            base.executemany(
                f'INSERT INTO "{table}" VALUES ({marks})',
                [[row.get(c) for c in columns] for row in rows],
            )
        base.commit()
    return path
