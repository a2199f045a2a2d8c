"""python -m benchmarks.programs.hta VENV: what HolisticTraceAnalysis says of the same traces.

HTA reads PyTorch's traces, so each recording is written as one. VENV is made, with HTA in it, where it
is not there (an index of packages is needed). Adds to recordings/hta.json what is not there: for each program parts (0-1)
of its time, {"host wait", "kernel wait", "other": idle time by HTA's causes, "memory", "communication",
"computation": of the busy time by HTA's kinds, "largest": its largest kernel}. score.py has the rule by
which that names a cause.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.programs import score
from ncu_toolkit.program.model import Op, Trace
from ncu_toolkit.program.traces.files import read_trace

#: HTA and the pandas that it was made for: with pandas 3 it fails on some traces.
HTA = ("HolisticTraceAnalysis==0.5.0", "pandas<3")
#: Run by a Python that has HTA: folder of traces, file to write.
ANALYSE = """
import json, sys
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.json")):
    try:
        trace = TraceAnalysis(trace_files={0: str(path)}, trace_dir=sys.argv[1])
        times = trace.get_temporal_breakdown(visualize=False).iloc[0]
        whole = times["idle_time(us)"] + times["compute_time(us)"] + times["non_compute_time(us)"]
        idle, _ = trace.get_idle_time_breakdown(ranks=[0], visualize=False)
        idle = idle.groupby("idle_category")["idle_time"].sum()
        kinds, kernels = trace.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
        said = {}
        for name, key in (("host wait", "host_wait"), ("kernel wait", "kernel_wait"), ("other", "other")):
            of = idle.get(key, 0.0) / idle.sum() if idle.sum() else 0.0
            said[name] = float(of * times["idle_time(us)"] / whole)
        for _, row in kinds.iterrows():
            kind = row["kernel_type"].lower()
            if kind in ("memory", "communication", "computation"):
                said[kind] = float(row["sum"] / whole)
        said["largest"] = float(kernels["sum (us)"].max() / whole) if len(kernels) else 0.0
        found[path.stem] = {name: round(part, 4) for name, part in said.items()}
    except Exception as error:
        found[path.stem] = {"error": f"{type(error).__name__}: {error}"[:200]}
Path(sys.argv[2]).write_text(json.dumps(found, indent=1, sort_keys=True) + "\\n")
"""


def kineto(trace: Trace) -> dict[str, Any]:
    """A trace as PyTorch's profiler writes it: work of the GPU, and the calls that queued it."""
    events: list[dict[str, Any]] = []
    for op in trace.ops:
        if op.kind == "kernel":
            name, category = trace.shapes[op.shape].kernel, "kernel"
        elif op.kind == "copy":
            name, category = f"Memcpy {op.path} (Pageable -> Device)", "gpu_memcpy"
        else:
            name, category = "Memset (Device)", "gpu_memset"
        events.append(_event(op.start, op.end, name, category, op.device, op.stream, _gpu(op)))
    for at, call in enumerate(trace.calls):
        name = trace.names[call.name]
        args = {"correlation": at + 1, "External id": at + 1}
        kind = "cuda_driver" if name.startswith("cu") and name[2:3].isupper() else "cuda_runtime"
        events.append(_event(call.start, call.end, name, kind, 1000, call.thread % 10000 + 1, args))
    events.sort(key=lambda event: event["ts"])
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}


def _gpu(op: Op) -> dict[str, Any]:
    return {"device": op.device, "stream": op.stream, "correlation": op.call + 1, "External id": op.call + 1}  # fmt: skip


def _event(
    start: int, end: int, name: str, kind: str, process: int, thread: int, args: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": kind, "name": name, "pid": process, "tid": thread, "ts": start / 1e3,
        "dur": (end - start) / 1e3, "args": args,
    }  # fmt: skip


def _python(venv: Path) -> Path:
    python = venv / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *HTA], check=True)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.programs.hta")
    parser.add_argument("venv", type=Path)
    parser.add_argument("--recordings", type=Path, default=score.FOLDER / "recordings")
    given = parser.parse_args()
    to = given.recordings / "hta.json"
    known = json.loads(to.read_text()) if to.is_file() else {}
    with tempfile.TemporaryDirectory() as made:
        folder, message = Path(made) / "traces", Path(made) / "said.json"
        folder.mkdir()
        for path in sorted(given.recordings.glob("*.before.ncu-trace")):
            name = path.name.partition(".")[0]
            if name not in known:
                (folder / f"{name}.json").write_text(json.dumps(kineto(read_trace(path))))
        command = [str(_python(given.venv)), "-c", ANALYSE, str(folder), str(message)]
        exact = {**os.environ, "HTA_DISABLE_NS_ROUNDING": "1"}  # kernels of a microsecond
        done = subprocess.run(command, capture_output=True, text=True, env=exact)
        if done.returncode:
            print(f"error: {done.stderr[-1000:]}", file=sys.stderr)
            return 1
        known |= json.loads(message.read_text())
    to.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    failed = {name: row["error"] for name, row in known.items() if "error" in row}
    print(f"{len(known)} programs, {len(failed)} that HTA does not read: {failed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
