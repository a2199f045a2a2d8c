"""Record the pairs on this machine's GPU: a trace of each program before its fix, and the times of
both: `python benchmarks/programs/record.py OUT [NAME...]`. Programs import side by side (--jobs) and
hold the GPU one after another. What lies in OUT already is kept; SECONDS_LEFT ends it.

OUT gets NAME.before.ncu-trace (and NAME.after.ncu-trace with --after) and times.json:
{NAME: {before: {us, recorded_us, result, seconds, imports, code, error}, after: ...}}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
END = time.monotonic() + float(os.environ.get("SECONDS_LEFT", "1e9"))
#: Run by a Python of its own: the recorder waits for its program in the main thread.
RECORD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from ncu_toolkit.core.errors import ToolkitError
from ncu_toolkit.gpu import recorder
from ncu_toolkit.program.files import write_trace
folder, to, name, *command = sys.argv[2:]
code = recorder.record(command, Path(folder), recorder.RecordOptions(lines=command[-1].endswith(".py")))
try:
    write_trace(recorder.read_recording(Path(folder), name), Path(to))
except ToolkitError as error:
    print(f"error: {error}", file=sys.stderr)
sys.exit(code)
"""


def program(name: str, variant: str, built: Path) -> Path | None:
    folder = HERE / "pairs" / name
    if (folder / f"{variant}.py").is_file():
        return folder / f"{variant}.py"
    if (folder / f"{variant}.cu").is_file():
        return built / f"{name}.{variant}"
    return None


def build(names: list[str], built: Path) -> dict[str, str]:
    """Build the programs in CUDA C++; what nvcc said of those that failed."""
    built.mkdir(parents=True, exist_ok=True)

    def one(source: Path) -> tuple[str, str]:
        to = built / f"{source.parent.name}.{source.stem}"
        words = [
            "nvcc",
            "-O3",
            "-std=c++17",
            "-arch=native",
            "-lineinfo",
            "-o",
            str(to),
            str(source),
        ]
        libraries = [f"-l{each}" for each in ("cublas", "cufft", "curand", "cusparse")]
        done = subprocess.run([*words, *libraries], capture_output=True, text=True)
        return to.name, done.stderr[-500:] if done.returncode else ""

    sources = [path for name in names for path in sorted((HERE / "pairs" / name).glob("*.cu"))]
    with ThreadPoolExecutor(8) as pool:
        return {name: said for name, said in pool.map(one, sources) if said}


def last_line(text: str) -> dict[str, object]:
    for line in reversed(text.splitlines()):
        if line.startswith('{"program"'):
            return dict(json.loads(line))
    return {}


class Runs:
    """What was run, written after each run."""

    def __init__(self, out: Path, work: Path) -> None:
        self.out, self.work, self.path = out, work, out / "times.json"
        self.found: dict[str, dict[str, dict[str, object]]] = (
            json.loads(self.path.read_text()) if self.path.is_file() else {}
        )
        self.lock = threading.Lock()

    def run(self, name: str, variant: str, recorded: bool) -> None:
        command = program(name, variant, self.work / "built")
        if command is None or END - time.monotonic() < 12:
            return
        stem = f"{name}.{variant}"
        times = self.work / f"{stem}.{recorded:d}.json"
        words = [
            sys.executable,
            str(HERE / "hold.py"),
            str(self.work / "lock"),
            str(times),
            str(command),
        ]
        trace = self.out / f"{stem}.ncu-trace"
        if recorded:
            raw = self.work / f"{stem}.raw"
            words = [
                sys.executable,
                "-c",
                RECORD,
                str(HERE.parents[1]),
                str(raw),
                str(trace),
                name,
                *words,
            ]
        limit = max(5.0, min(90.0, END - time.monotonic()))
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, errors="replace", timeout=limit
            )
            code, said, error = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired:
            code, said, error = -9, "", f"took over {limit:.0f} s"
        told = last_line(said)
        spent = json.loads(times.read_text()) if times.is_file() else {}
        with self.lock:
            kept = self.found.setdefault(name, {}).setdefault(variant, {"us": []})
            if code or not told:
                kept["code"], kept["error"] = code, (error or said)[-600:]
            if told and recorded:
                kept["recorded_us"] = told["us"]
                kept["recorded_seconds"] = round(spent.get("seconds", 0), 2)
            elif told:
                kept["us"] = [*kept["us"], told["us"]]  # type: ignore[misc]
                kept["seconds"], kept["imports"] = (
                    round(spent.get(k, 0), 2) for k in ("seconds", "imports")
                )
            if told:
                kept["result"], kept["steps"] = told.get("result"), told["steps"]
            self.path.write_text(json.dumps(self.found, indent=1, sort_keys=True) + "\n")
        print(
            f"{END - time.monotonic():6.0f} s left  {stem} recorded={recorded:d} code={code} {told.get('us')}",
            flush=True,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split(":")[0] if __doc__ else "")
    options.add_argument("out", type=Path)
    options.add_argument("names", nargs="*")
    options.add_argument("--jobs", type=int, default=6)
    options.add_argument("--after", action="store_true", help="record the fixed programs too")
    options.add_argument("--rounds", type=int, default=1, help="runs alone of each")
    options.add_argument("--work", type=Path, default=Path("/tmp/programs"))
    asked = options.parse_args()
    # By hash, so that what the time allows is a sample of all frameworks.
    there = (path.name for path in (HERE / "pairs").iterdir() if path.is_dir())
    names = asked.names or sorted(there, key=lambda name: sha256(name.encode()).digest())
    asked.out.mkdir(parents=True, exist_ok=True)
    asked.work.mkdir(parents=True, exist_ok=True)
    for name, said in build(names, asked.work / "built").items():
        print(f"error: {name} was not built: {said}", flush=True)
    runs = Runs(asked.out, asked.work)
    wanted = []
    for name in names:
        wanted.append((name, "before", True))
        for _ in range(asked.rounds):
            wanted += [(name, "before", False), (name, "after", False)]
        if asked.after:
            wanted.append((name, "after", True))
    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(lambda each: runs.run(*each), wanted))


if __name__ == "__main__":
    main()
