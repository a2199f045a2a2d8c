"""Run pairs of programs alone, in turn, and compare their results.

python run.py OUT [NAME ...] [--times K] [--limit SECONDS] [--public FOLDER]

Builds every .cu first (in parallel), then runs before, after, before, after ... one at a time.
--public adds the programs that public.py copied. Writes OUT/results.json: {name: {"before": {us, result, seconds, code, error}, "after": ...}}.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIDES = ("before", "after")


def find_nvcc():
    """nvcc on the path, in CUDA's usual home, or from pip."""
    found = os.environ.get("NVCC") or shutil.which("nvcc")
    if found:
        return found
    places = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "nvcc"]
    for folder in sys.path:
        places += sorted(Path(folder or ".").glob("nvidia/*/bin/nvcc"))
    return next((str(p) for p in places if p.exists()), "nvcc")


def build(arguments, folder):
    """Run nvcc in a folder; the error's text, or None."""
    nvcc = find_nvcc()
    command = [nvcc, "-arch=native", "-lineinfo", *map(str, arguments)]
    lib = Path(nvcc).resolve().parent.parent / "lib"
    if lib.is_dir():
        command += ["-L", str(lib)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]


def last_json(text):
    """The object in the last line that holds one."""
    for line in reversed(text.strip().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise ValueError("no JSON in the output")


def read_public(text, how):
    """A public program's output by the patterns that public.toml gives."""
    if not re.search(how.get("passes", ""), text):
        raise ValueError(f"{how['passes']!r} is not in the output")
    found = re.findall(how["time"], text)
    us = sorted(float(t) * how["scale"] for t in found)[len(found) // 2]
    result = [float(re.search(p, text)[1]) for p in how.get("results", [])]
    return {"us": us, "result": result, "steps": None}


def run_once(command, folder, limit, how=None):
    """Run one program; its row."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=limit
        )
        code, out, error = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        code, out, error = None, "", f"still running after {limit} s"
    row = {"seconds": round(time.perf_counter() - start, 2), "code": code}
    if code != 0:
        return row | {"error": (error or out)[-2000:]}
    try:
        message = read_public(out, how) if how else last_json(out)
        return row | {"us": message["us"], "result": message["result"], "steps": message["steps"]}
    except (ValueError, KeyError, IndexError, TypeError) as error:
        return row | {"error": f"{error!r}: {out[-500:]}"}


def plan_side(home, side, target):
    """How to build and run one side of a program, or None where there is no such side."""
    source = home / side
    if (source / "run.json").exists():
        how = json.loads((source / "run.json").read_text(encoding="utf-8"))
        command = [sys.executable if c == "python" else c for c in how["command"]]
        arguments = how.get("build", [])[1:]
        return {"build": arguments, "command": command, "folder": source, "how": how}
    if source.with_suffix(".py").exists():
        command, arguments = [sys.executable, source.with_suffix(".py")], []
    elif source.with_suffix(".cu").exists():
        command = [target]
        arguments = ["-O3", "-std=c++17", "-o", target, source.with_suffix(".cu")]
    else:
        return None
    return {"build": arguments, "command": command, "folder": target.parent, "how": None}


def build_all(plans, over=lambda: False):
    """Build what needs it, several at once; the errors' texts by the keys of `plans`. Nothing more is
    built once the time is `over`."""

    def built(plan):
        return "the time is over" if over() else build(plan["build"], plan["folder"])

    todo = [key for key, plan in plans.items() if plan["build"]]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = pool.map(built, [plans[key] for key in todo])
        return {key: error for key, error in zip(todo, errors, strict=True) if error}


def close(a, b, tolerance):
    """Whether two lists of numbers agree within a relative tolerance."""
    return len(a) == len(b) and all(
        x == y or abs(x - y) <= tolerance * max(abs(x), abs(y), 1e-12)
        for x, y in zip(a, b, strict=True)
    )


def merge(side, row):
    """Put one run's row into its side's record."""
    side["us"] += [row["us"]] if "us" in row else []
    side["seconds"].append(row["seconds"])
    side["code"] = row["code"] if side.get("code") in (None, 0) else side["code"]
    for key in ("result", "steps"):
        if key in row:
            side.setdefault(key, row[key])
    if "error" in row:
        side["error"] = row["error"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--public", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    labels = tomllib.loads((HERE / "labels.toml").read_text(encoding="utf-8"))
    homes = [HERE / "pairs", *([args.public] if args.public else [])]
    found = {p.name: p.resolve() for home in homes for p in sorted(home.iterdir()) if p.is_dir()}
    names = args.names or list(found)

    plans, results = {}, {}
    binaries = (args.out / "bin").resolve()
    binaries.mkdir(exist_ok=True)
    for name in names:
        results[name] = {}
        for side in SIDES:
            plan = plan_side(found[name], side, binaries / f"{name}.{side}")
            if plan:
                results[name][side] = {"us": [], "seconds": [], "code": None}
                plans[name, side] = plan
    for (name, side), error in build_all(plans).items():
        results[name][side]["error"] = f"build: {error}"

    where = args.out / "results.json"
    for name in names:
        for _ in range(args.times):
            for side in SIDES:
                plan = plans.get((name, side))
                if plan and "error" not in results[name][side]:
                    row = run_once(plan["command"], plan["folder"], args.limit, plan["how"])
                    merge(results[name][side], row)
        sides = [results[name][s] for s in SIDES if s in results[name]]
        if len(sides) == 2 and all("result" in s for s in sides):
            tolerance = labels.get(name, {}).get("tolerance", 1e-3)
            results[name]["same"] = close(sides[0]["result"], sides[1]["result"], tolerance)
        where.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        middle = [
            "{:.0f}".format(sorted(s["us"])[len(s["us"]) // 2]) if s["us"] else "-" for s in sides
        ]
        took = max((max(s["seconds"], default=0) for s in sides), default=0)
        notes = [
            s["error"].strip().splitlines()[-1][:150] for s in sides if s.get("error", "").strip()
        ]
        same = results[name].get("same", "")
        print(
            f"{name:28} {' -> '.join(middle):>20} us  {took:5.1f} s  same={same} {' | '.join(notes)}",
            flush=True,
        )
    return (
        1
        if any("error" in s for r in results.values() for s in r.values() if isinstance(s, dict))
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
