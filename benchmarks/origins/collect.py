"""Collect small reports of every origin on a GPU machine: ways to build, to launch and to profile.

    python3 benchmarks/origins/collect.py --output "$OUT/origins.tar.xz"
    python3 benchmarks/origins/collect.py --output "$OUT/again.tar.xz" --only graph-nodes --only numba
    python3 benchmarks/origins/collect.py --list

It runs from the root of the repository. Programs are copied to a neutral folder (/src) and built
there, so that reports name no private path. Compilers work in parallel, ncu alone. A case that
fails is noted in the manifest, and the next one starts. Clocks are left alone (--clock-control
none). It needs Python's own library only; what the programs need is beside each case.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
#: Set for every process that is started, so that those left behind are found again.
MARK = "ORIGINS_COLLECT"
#: What the programs' environment keeps; reports may store it.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "VIRTUAL_ENV")
KEPT_PREFIXES = ("LD_", "CUDA", "NVIDIA_", "NCCL_", "NVSHMEM_", "TORCH_", "PYTHON", "XLA_", "JAX_")
#: Reports above this size go to a second archive.
LARGE = 8 << 20
#: Seconds that packing may take, kept back from the whole.
PACKING = 75
NVCC = ("-std=c++17", "-O3", "-gencode", "arch=compute_90,code=sm_90")
NVCC_A = ("-std=c++17", "-O3", "-gencode", "arch=compute_90a,code=sm_90a")
NVCC_G = ("-std=c++17", "-g", "-G", "-gencode", "arch=compute_90,code=sm_90")


@dataclass(frozen=True)
class Build:
    """A program: its sources in programs/, nvcc's flags, and arguments for a run without ncu."""

    sources: tuple[str, ...]
    flags: tuple[str, ...]
    trial: tuple[str, ...] | None = ()


TENSOR = ("-lineinfo", "-DELEM_BFLOAT16=1", "-I../kernels", "-I.")
BUILDS = {
    "basics": Build(
        ("basics.cu",), (*NVCC, "-lineinfo"), ("scale:1", "sum:1", "hot:1", "single:1")
    ),
    "basics-plain": Build(("basics.cu",), NVCC, ("scale:1",)),
    "basics-debug": Build(("basics.cu",), NVCC_G, ("scale:1",)),
    "family": Build(("family.cu",), (*NVCC, "-lineinfo"), ("both",)),
    "ranges": Build(("ranges.cu",), (*NVCC, "-lineinfo")),
    "graph": Build(("graph.cu",), (*NVCC, "-lineinfo")),
    "broken": Build(("broken.cu",), (*NVCC, "-lineinfo"), None),
    "names": Build(("names.cu",), (*NVCC, "-lineinfo")),
    "names-debug": Build(("names.cu",), NVCC_G),
    "apart": Build(("rdc_kernel.cu", "rdc_function.cu"), (*NVCC, "-lineinfo", "-rdc=true")),
    "nested": Build(("nested.cu",), (*NVCC, "-lineinfo", "--extended-lambda")),
    "nvtx": Build(("nvtx.cu",), (*NVCC, "-lineinfo")),
    "wgmma-single": Build(("wgmma.cu",), (*NVCC_A, *TENSOR, "-DRUNG=6")),
    "wgmma-ring": Build(("wgmma.cu",), (*NVCC_A, *TENSOR, "-DRUNG=7")),
    "stacks": Build(("stacks.cu",), (*NVCC, "-g", "-lineinfo")),
    "stacks-library": Build(
        ("stacks.cu",), (*NVCC, "-g", "-lineinfo", "-shared", "-Xcompiler", "-fPIC"), None
    ),
    "principles": Build(("principles.cu",), (*NVCC, "-lineinfo")),
    "principles-debug": Build(("principles.cu",), NVCC_G, ("copy",)),
}


@dataclass(frozen=True)
class Case:
    """One report. `launches` is how many results are expected, None where nobody knows."""

    name: str
    origin: str
    options: tuple[str, ...]
    program: tuple[str, ...]
    launches: int | None
    seconds: int = 60
    fails: bool = False
    """The program or ncu is meant to end badly; a report may be missing."""
    stop: str = ""
    """A signal to send once `goes_on` is profiled: "TERM" and "KILL" go to ncu, "INT" to all."""
    source: str = ""
    """The case whose report is imported, for a report that is saved again."""
    needs: str = ""
    """A Python module that must be there."""
    sections: tuple[str, ...] = field(default=())
    """Stock sections to add; those that this ncu does not know are left out."""


BASIC = ("--set", "basic")
FULL = ("--set", "full")
LADDER = ("--section-folder", "{src}/sections", "--set", "ladder")
SOURCE = ("--import-source", "yes")
IN_RANGE = ("--profile-from-start", "off")
PLAIN = ("basics", "scale:1", "sum:1")
FIRST_HALF = ("principles", "chains", "copy", "read", "convert", "walk", "tiles")
SECOND_HALF = ("principles", "blocks", "uneven", "write", "table", "links", "product", "hollow")
FEW = ",".join(
    (
        "gpu__time_duration.sum",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__bytes_read.sum",
        "launch__registers_per_thread",
        "launch__waves_per_multiprocessor",
    )
)


def python(name: str) -> tuple[str, ...]:
    return ("python3", f"{name}.py")


CASES = (
    # how much is collected, and how the program was built
    Case("set-basic", "--set basic", BASIC, PLAIN, 2),
    Case("set-detailed", "--set detailed", ("--set", "detailed"), PLAIN, 2),
    Case("set-full", "--set full", FULL, PLAIN, 2),
    Case("set-ladder", "this repository's sections, source imported", (*LADDER, *SOURCE), PLAIN, 2),
    Case(
        "no-lineinfo",
        "built without -lineinfo; --set full",
        FULL,
        ("basics-plain", "scale:1", "sum:1"),
        2,
    ),
    Case("source-imported", "built with -lineinfo, source imported", (*FULL, *SOURCE), PLAIN, 2),
    Case(
        "debug-build",
        "built with -G, source imported",
        (*FULL, *SOURCE),
        ("basics-debug", "scale:1", "sum:1"),
        2,
    ),
    Case(
        "debug-ladder",
        "built with -G, this repository's sections",
        (*LADDER, *SOURCE),
        ("basics-debug", "scale:1", "sum:1"),
        2,
    ),
    Case(
        "debug-names",
        "built with -G: calls, recursion, pointers",
        ("--set", "detailed", *SOURCE),
        ("names-debug",),
        15,
    ),
    Case(
        "cache-control-none",
        "--cache-control none (twice, warm)",
        (*LADDER, "--cache-control", "none"),
        ("basics", "scale:2"),
        2,
    ),
    Case("one-thread", "a launch of one thread", LADDER, ("basics", "single:2"), 2),
    Case(
        "pm-sampling",
        "PM sampling, warp sampling and source counters",
        (),
        ("basics", "hot:1"),
        1,
        sections=(
            "PmSampling",
            "PmSampling_WarpStates",
            "WarpStateStats",
            "SourceCounters",
            "LaunchStats",
        ),
    ),
    # what is left out
    Case(
        "few-metrics",
        "--metrics: five of them, no section",
        ("--metrics", FEW),
        ("basics", "scale:2", "sum:1"),
        3,
    ),
    Case(
        "kernel-regex",
        "-k regex:^s with a count",
        (*BASIC, "-k", "regex:^s", "-c", "3"),
        ("basics", "hot:1", "scale:2", "sum:2"),
        3,
    ),
    Case(
        "launch-skip",
        "--launch-skip 2 --launch-count 2",
        (*BASIC, "-s", "2", "-c", "2"),
        ("basics", "scale:2", "hot:1", "sum:3"),
        2,
    ),
    Case(
        "kernel-id",
        "--kernel-id: the second scale only",
        (*BASIC, "--kernel-id", "::scale:2"),
        ("basics", "scale:3", "sum:1"),
        1,
    ),
    Case(
        "hot-left-out",
        "the hot kernel (20 launches, most of the time) is filtered out",
        (*LADDER, "-k", "regex:scale|sum"),
        ("basics", "hot:20", "scale:1", "sum:1"),
        2,
    ),
    Case(
        "kill-after",
        "--kill yes after two launches",
        (*BASIC, "-c", "2", "--kill", "yes"),
        ("basics", "scale:4"),
        2,
        fails=True,
    ),
    Case(
        "saved-again",
        "--import with a filter and --export",
        ("-k", "regex:sum"),
        (),
        1,
        source="set-detailed",
    ),
    Case("saved-whole", "--import and --export, nothing left out", (), (), 2, source="set-basic"),
    # processes
    Case("child-process", "only the child launches", BASIC, ("family", "child"), 2),
    Case("parent-and-child", "parent and child launch", BASIC, ("family", "both"), 4),
    Case("siblings", "two children launch", LADDER, ("family", "siblings"), 4),
    # replay, ranges, graphs
    Case(
        "range-replay",
        "--replay-mode range, two ranges",
        ("--replay-mode", "range", *BASIC),
        ("ranges",),
        2,
    ),
    Case(
        "app-range-replay",
        "--replay-mode app-range, two ranges",
        ("--replay-mode", "app-range", *BASIC),
        ("ranges",),
        2,
    ),
    Case(
        "application-replay",
        "--replay-mode application",
        ("--replay-mode", "application", *BASIC),
        PLAIN,
        2,
    ),
    Case(
        "start-stop", "--profile-from-start off, two windows", (*BASIC, *IN_RANGE), ("ranges",), 5
    ),
    Case(
        "graph-nodes",
        "a CUDA graph, its nodes profiled",
        (*BASIC, "--graph-profiling", "node"),
        ("graph",),
        6,
    ),
    Case(
        "graph-whole",
        "a CUDA graph as one workload",
        (*BASIC, "--graph-profiling", "graph"),
        ("graph",),
        2,
    ),
    Case(
        "range-no-time",
        "a range with the figures of its launches and its time alone",
        ("--replay-mode", "range", "--section", "LaunchStats"),
        ("ranges",),
        2,
    ),
    # call stacks
    Case(
        "call-stack",
        "--call-stack: native",
        (*BASIC, "--call-stack", "--call-stack-type", "native"),
        ("stacks",),
        1,
    ),
    Case(
        "call-stack-python",
        "--call-stack: Python and native",
        (*BASIC, "--call-stack", "--call-stack-type", "python", "--call-stack-type", "native"),
        python("stacks_app"),
        1,
    ),
    # kinds of launch and of name
    Case(
        "names",
        "kinds of launch and name, source imported",
        (*LADDER, *SOURCE),
        ("names",),
        15,
        seconds=90,
    ),
    Case(
        "separate-compilation",
        "-rdc: the function lies outside of the kernel's code",
        (*FULL, *SOURCE),
        ("apart",),
        1,
    ),
    Case(
        "nested-names",
        "long nested template names, lambdas as kernels",
        (*LADDER, *SOURCE),
        ("nested",),
        5,
    ),
    Case("nvtx-texts", "NVTX ranges with odd texts", (*BASIC, "--nvtx"), ("nvtx",), 11),
    Case(
        "nvtx-filtered",
        "--nvtx-include: one range",
        (*BASIC, "--nvtx", "--nvtx-include", "outer/inner/"),
        ("nvtx",),
        None,
    ),
    # this repository's kernels
    Case(
        "wgmma-single",
        "WGMMA and TMA, one buffer (a rung of the ladder)",
        (*LADDER, *IN_RANGE),
        ("wgmma-single",),
        1,
    ),
    Case(
        "wgmma-ring", "WGMMA and TMA, a ring of buffers", (*LADDER, *IN_RANGE), ("wgmma-ring",), 1
    ),
    Case(
        "wgmma-full",
        "the same with one buffer; --set full, source imported",
        (*FULL, *SOURCE, *IN_RANGE),
        ("wgmma-single",),
        1,
    ),
    # the principles of a diagnosis
    Case(
        "principles-basic",
        "FP32 and memory pairs; --set basic",
        (*BASIC, *IN_RANGE),
        ("principles", "chains", "copy"),
        4,
    ),
    Case(
        "principles-ladder-1",
        "first half; this repository's sections",
        (*LADDER, *IN_RANGE),
        FIRST_HALF,
        14,
        seconds=90,
    ),
    Case(
        "principles-ladder-2",
        "second half; this repository's sections",
        (*LADDER, *IN_RANGE),
        SECOND_HALF,
        18,
        seconds=90,
    ),
    Case(
        "principles-full-1",
        "first half; --set full",
        (*FULL, *IN_RANGE),
        FIRST_HALF,
        14,
        seconds=100,
    ),
    Case(
        "principles-full-2",
        "second half; --set full",
        (*FULL, *IN_RANGE),
        SECOND_HALF,
        18,
        seconds=100,
    ),
    Case(
        "principles-debug",
        "some groups, built with -G",
        (*LADDER, *IN_RANGE),
        ("principles-debug", "copy", "walk", "tiles", "links"),
        8,
        seconds=90,
    ),
    # frameworks
    Case(
        "cupy",
        "CuPy: raw, elementwise, fused, reduction, cuBLAS",
        ("--set", "detailed", *SOURCE, *IN_RANGE),
        python("cupy_app"),
        None,
        100,
        needs="cupy",
    ),
    Case(
        "numba",
        "Numba: with and without line information",
        (*LADDER, *SOURCE, *IN_RANGE),
        python("numba_app"),
        3,
        90,
        needs="numba",
    ),
    Case(
        "triton",
        "Triton: a product and a softmax",
        (*LADDER, *SOURCE, *IN_RANGE),
        python("triton_app"),
        2,
        100,
        needs="triton",
    ),
    Case(
        "torch-workers",
        "PyTorch with two DataLoader workers",
        (*BASIC, "--nvtx", "-k", "regex:elementwise|gemm|softmax|nvjet", "-c", "6"),
        python("torch_app"),
        6,
        120,
        needs="torch",
    ),
    Case(
        "jax",
        "JAX: a compiled function",
        (*BASIC, *IN_RANGE, "-c", "6"),
        python("jax_app"),
        None,
        120,
        needs="jax",
    ),
    Case(
        "warp",
        "Warp: three kernels",
        (*LADDER, *SOURCE, *IN_RANGE),
        python("warp_app"),
        3,
        90,
        needs="warp",
    ),
    # what ends badly; last, as it may leave the GPU in a bad state
    Case("exit-code", "the program ends with 3", BASIC, ("broken", "exit"), 2, fails=True),
    Case(
        "program-killed",
        "the program is killed after two launches",
        BASIC,
        ("broken", "killed"),
        2,
        fails=True,
    ),
    Case("trap", "a kernel stops half-way (trap)", BASIC, ("broken", "trap"), None, fails=True),
    Case(
        "illegal-access", "an illegal memory access", BASIC, ("broken", "illegal"), None, fails=True
    ),
    Case("misaligned", "a misaligned access", BASIC, ("broken", "misaligned"), None, fails=True),
    Case("assert", "a device-side assert", BASIC, ("broken", "assert"), None, fails=True),
    Case(
        "endless-int",
        "a launch that does not end; Ctrl-C",
        BASIC,
        ("broken", "endless"),
        None,
        fails=True,
        stop="INT",
    ),
    Case(
        "endless-term",
        "a launch that does not end; SIGTERM to ncu",
        BASIC,
        ("broken", "endless"),
        None,
        fails=True,
        stop="TERM",
    ),
    Case(
        "endless-kill",
        "a launch that does not end; SIGKILL to ncu",
        BASIC,
        ("broken", "endless"),
        None,
        fails=True,
        stop="KILL",
    ),
)


@dataclass
class Tools:
    ncu: str
    version: str
    nvcc: str
    sections: frozenset[str]


def find(name: str) -> str:
    """The tool on PATH, in CUDA's folder, or in the newest Nsight Compute."""
    homes = [Path(os.environ[v]) / "bin" for v in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(v)]
    homes += [
        Path("/usr/local/cuda/bin"),
        *sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True),
    ]
    found = shutil.which(name) or next((str(h / name) for h in homes if (h / name).is_file()), None)
    if found is None:
        raise SystemExit(f"there is no {name} on this machine")
    return found


def message(command: list[str], seconds: int = 60) -> str:
    """What a command prints, or why it does not."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return (done.stdout + done.stderr).strip()


def find_tools(ncu: str = "") -> Tools:
    path = ncu or find("ncu")
    version = re.search(r"Version (\S+)", message([path, "--version"]))
    listed = frozenset(re.findall(r"^\s*(\w+)\s", message([path, "--list-sections"]), re.MULTILINE))
    return Tools(path, version[1] if version else "unknown", find("nvcc"), listed)


def environment(src: Path) -> dict[str, str]:
    """What programs see: little, and neutral folders for everything that is cached."""
    kept = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith(KEPT_PREFIXES)}
    cache = src / "cache"
    more = {
        MARK: "1",
        "TMPDIR": str(src / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "CUPY_CACHE_DIR": str(cache / "cupy"),
        "CUPY_CACHE_SAVE_CUDA_SOURCE": "1",
        "NUMBA_CACHE_DIR": str(cache / "numba"),
        "WARP_CACHE_PATH": str(cache / "warp"),
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "XLA_FLAGS": (kept.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer=").strip(),
    }
    return {**kept, **more}


def prepare(src: Path) -> None:
    """Copy programs, sections and the tensor kernels to the neutral folder."""
    for folder in ("bin", "reports", "logs", "tmp", "cache"):
        (src / folder).mkdir(parents=True, exist_ok=True)
    shutil.copytree(HERE / "programs", src / "programs", dirs_exist_ok=True)
    for folder in ("common", "gemm_tensor"):
        shutil.copytree(
            REPOSITORY / "kernels" / folder, src / "kernels" / folder, dirs_exist_ok=True
        )
    (src / "sections").mkdir(exist_ok=True)
    for section in (REPOSITORY / "sections").glob(
        "*.section"
    ):  # without the rule, which needs the package
        shutil.copy(section, src / "sections")


def nvtx_folder() -> list[str]:
    """Where NVTX's header lies, if not in CUDA's own folder: the packages of this Python."""
    for folder in map(Path, sys.path):
        for header in (
            *folder.glob("nvidia/*/include/nvtx3/nvToolsExt.h"),
            *folder.glob("nvidia/nvtx/include/nvtx3/nvToolsExt.h"),
        ):
            return ["-idirafter", str(header.parents[1])]
    return []


def build(name: str, src: Path, nvcc: str) -> dict[str, Any]:
    """Compile one program; the result says how it went."""
    started = time.monotonic()
    what = BUILDS[name]
    extra = ["-Xcompiler", ",".join(nvtx_folder())] if name == "nvtx" and nvtx_folder() else []
    command = [nvcc, *what.flags, *extra, "-o", str(src / "bin" / name), *what.sources]
    try:
        done = subprocess.run(
            command,
            cwd=src / "programs",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=200,
            env=environment(src),
        )
        ok, text = done.returncode == 0, done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        ok, text = False, f"{type(error).__name__}: {error}"
    (src / "logs" / f"build-{name}.txt").write_text(" ".join(command) + "\n" + text)
    return {
        "ok": ok,
        "seconds": round(time.monotonic() - started, 1),
        "tail": tail(text) if not ok else "",
    }


def words_of(case: Case, src: Path) -> list[str]:
    """The program's command line, with absolute paths."""
    if not case.program:
        return []
    if case.program[0] == "python3":
        return [sys.executable, str(src / "programs" / case.program[1])]
    return [str(src / "bin" / case.program[0]), *case.program[1:]]


def trial(name: str, command: list[str], src: Path, seconds: int) -> dict[str, Any]:
    """Run a program without ncu: it shows that it works, and fills caches of compiled code."""
    started = time.monotonic()
    log = src / "logs" / f"trial-{name}.txt"
    code = run(command, log, src, seconds)[0]
    text = log.read_text(errors="replace")
    return {
        "ok": code == 0,
        "returncode": code,
        "seconds": round(time.monotonic() - started, 1),
        "tail": tail(text) if code else "",
    }


def run(
    command: list[str], log: Path, src: Path, seconds: float, stop: str = ""
) -> tuple[int | None, bool]:
    """Run a command in its own group.

    Returns its exit code (None: killed at the limit), and whether `stop` was sent.
    """
    sent = False
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=src / "tmp",
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment(src),
            start_new_session=True,
        )
        started = time.monotonic()
        deadline = started + seconds
        code: int | None = None
        while True:
            code = process.poll()
            if code is not None or time.monotonic() > deadline:
                break
            late = time.monotonic() - started > 15
            if stop and not sent and (late or b"goes_on" in log.read_bytes()):
                time.sleep(1.5)
                sent = True
                number = getattr(signal, f"SIG{stop}")
                deadline = min(deadline, time.monotonic() + 15)
                if process.poll() is None:
                    os.killpg(process.pid, number) if stop == "INT" else os.kill(
                        process.pid, number
                    )
            time.sleep(0.05)
        if code is None:
            try:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(4)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return code, sent


def sweep() -> int:
    """Kill what our own runs left behind: only processes that carry our mark."""
    killed = 0
    own = {os.getpid(), os.getppid()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marked = f"{MARK}=1".encode() in (entry / "environ").read_bytes().split(b"\0")
            if marked and int(entry.name) not in own:
                os.kill(int(entry.name), signal.SIGKILL)
                killed += 1
        except (OSError, ValueError):
            continue
    return killed


def tail(text: str, lines: int = 6) -> str:
    """The last lines, and ncu's own complaints wherever they are."""
    rows = [row for row in text.replace("\r", "\n").splitlines() if row.strip()]
    loud = [row for row in rows[:-lines] if row.startswith(("==ERROR", "==WARN"))][:6]
    return "\n".join([*loud, *rows[-lines:]])[-1500:]


def collect(case: Case, tools: Tools, src: Path, seconds: float) -> dict[str, Any]:
    """One case under ncu."""
    started = time.monotonic()
    report = src / "reports" / case.name
    for old in report.parent.glob(f"{case.name}.ncu-rep*"):
        old.unlink()
    listed = "SpeedOfLight" in tools.sections  # else the list could not be read
    known = [s for s in case.sections if s in tools.sections or not listed]
    options = [word.format(src=src) for word in case.options]
    for section in known:
        options += ["--section", section]
    if case.source:
        command = [
            tools.ncu,
            "--import",
            str(report.with_name(case.source + ".ncu-rep")),
            *options,
            "--export",
            f"{report}.ncu-rep",
        ]
    else:
        fixed = ["--target-processes", "all", "--clock-control", "none"]
        if "--cache-control" not in options:
            fixed += ["--cache-control", "all"]
        if "--import-source" not in options:
            fixed += ["--import-source", "no"]
        command = [
            tools.ncu,
            *fixed,
            *options,
            "--export",
            f"{report}.ncu-rep",
            *words_of(case, src),
        ]
    log = src / "logs" / f"{case.name}.txt"
    code, sent = run(command, log, src, seconds, case.stop)
    text = log.read_text(errors="replace")
    files = sorted(p for p in report.parent.glob(f"{case.name}.ncu-rep*") if p.is_file())
    entry: dict[str, Any] = {
        "case": case.name,
        "origin": case.origin,
        "command": command,
        "returncode": code,
        "timed_out": code is None,
        "signal_sent": case.stop if sent else "",
        "meant_to_fail": case.fails,
        "launches_expected": case.launches,
        "launches_profiled": len(re.findall(r'^==PROF== Profiling "', text, re.MULTILINE)),
        "sections_unknown": [s for s in case.sections if s not in known],
        "seconds": round(time.monotonic() - started, 1),
        "left_behind": sweep(),
        "files": [
            {
                "name": p.name,
                "bytes": p.stat().st_size,
                "sha256": hashlib.sha256(p.read_bytes()).hexdigest(),
            }
            for p in files
        ],
        "tail": tail(text),
    }
    clean = bool(files) and code == 0
    entry["state"] = "ok" if clean else "as meant" if case.fails else "failed"
    if (
        case.launches is not None
        and entry["launches_profiled"] != case.launches
        and not case.source
        and entry["state"] == "ok"
    ):
        entry["state"] = "other count"
    return entry


def gpu_answers(src: Path) -> bool:
    """Whether a small program still runs; after a case that ended badly."""
    return (
        run([str(src / "bin" / "basics"), "single:1"], src / "logs" / "health.txt", src, 40)[0] == 0
    )


def machine(tools: Tools) -> dict[str, Any]:
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    release = re.search(r"V(\d+\.\d+\.\d+)", message([tools.nvcc, "--version"]))
    return {
        "ncu": tools.version,
        "gpu": message(asked),
        "nvcc": release[1] if release else "unknown",
        "python": sys.version.split()[0],
        "clock_control": "none",
    }


def pack(target: Path, files: list[tuple[Path, str]]) -> int:
    """One .tar.xz; alike files lie close together, which is what makes it small."""
    if not files:
        return 0
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 96 << 20}]
    with (
        lzma.open(target, "wb", format=lzma.FORMAT_XZ, filters=filters) as sink,
        tarfile.open(fileobj=sink, mode="w") as archive,
    ):
        for path, name in files:
            info = archive.gettarinfo(str(path), name)
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            with path.open("rb") as data:
                archive.addfile(info, data)
    return target.stat().st_size


def chosen(only: list[str]) -> list[Case]:
    """The cases asked for, with those whose reports they import."""
    if not only:
        return list(CASES)
    unknown = sorted(set(only) - {case.name for case in CASES})
    if unknown:
        raise SystemExit(f"there is no case {', '.join(unknown)}; --list names them")
    wanted = set(only) | {case.source for case in CASES if case.name in only and case.source}
    return [case for case in CASES if case.name in wanted]


def build_all(
    cases: list[Case], src: Path, tools: Tools, until: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compile in parallel, and try each program without ncu. Python's programs start at once."""
    names = sorted(
        {c.program[0] for c in cases if c.program and c.program[0] in BUILDS}
        | {"basics", "stacks-library"}
    )
    apps = {c.name: c for c in cases if c.program and c.program[0] == "python3"}
    left = int(max(20, until - time.monotonic()))
    with concurrent.futures.ThreadPoolExecutor(
        max_workers=max(4, (os.cpu_count() or 4) - 2)
    ) as pool:
        compiling = {name: pool.submit(build, name, src, tools.nvcc) for name in names}
        trying = {
            name: pool.submit(trial, name, words_of(c, src), src, min(150, left))
            for name, c in apps.items()
        }
        builds = {name: job.result() for name, job in compiling.items()}
        for name in names:
            arguments = BUILDS[name].trial
            if builds[name]["ok"] and arguments is not None:
                trying[name] = pool.submit(
                    trial, name, [str(src / "bin" / name), *arguments], src, 60
                )
        return builds, {name: job.result() for name, job in trying.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("origins.tar.xz"),
        help="the archive; large reports go beside it",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="this case; may be repeated"
    )
    parser.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="NAME",
        help="all but this case; may be repeated",
    )
    parser.add_argument(
        "--seconds", type=float, default=560, help="for everything, packing included"
    )
    parser.add_argument("--src", type=Path, default=Path("/src"), help="the neutral folder")
    parser.add_argument("--ncu", default="", help="an ncu other than the first found")
    parser.add_argument("--list", action="store_true", help="name the cases, and end")
    parser.add_argument("--build-only", action="store_true", help="compile, and end; needs no GPU")
    args = parser.parse_args()
    if args.list:
        for case in CASES:
            print(f"{case.name:24} {case.origin}")
        return 0
    started = time.monotonic()
    until = started + args.seconds - PACKING
    cases = [case for case in chosen(args.only) if case.name not in args.skip]
    src: Path = args.src
    prepare(src)
    if args.build_only:
        tools = Tools("", "none", find("nvcc"), frozenset())
        failed = 0
        for name in BUILDS:
            result = build(name, src, tools.nvcc)
            failed += not result["ok"]
            print(
                f"{'ok' if result['ok'] else 'FAILED':8} {name:20} {result['seconds']:6.1f} s",
                result["tail"],
                flush=True,
            )
        return 1 if failed else 0
    tools = find_tools(args.ncu)
    (src / "logs" / "ncu-help.txt").write_text(message([tools.ncu, "--help"]))
    (src / "logs" / "ncu-sets.txt").write_text(
        message([tools.ncu, "--list-sets"]) + "\n" + message([tools.ncu, "--list-sections"])
    )
    manifest: dict[str, Any] = {"machine": machine(tools), "cases": []}
    print(json.dumps(manifest["machine"]), flush=True)
    manifest["builds"], manifest["trials"] = build_all(cases, src, tools, until)
    for kind in ("builds", "trials"):
        for name, result in manifest[kind].items():
            if not result["ok"]:
                print(f"{kind[:-1]} failed: {name}\n{result['tail']}", flush=True)
    print(f"built and tried after {time.monotonic() - started:.0f} s", flush=True)
    for case in cases:
        left = until - time.monotonic()
        program = case.program[0] if case.program else ""
        reason = ""
        if left < 8:
            reason = "no time left"
        elif program in BUILDS and not manifest["builds"][program]["ok"]:
            reason = "not built"
        elif case.needs and "No module named" in manifest["trials"].get(case.name, {}).get(
            "tail", ""
        ):
            reason = f"no {case.needs} here"
        elif case.source and not (src / "reports" / f"{case.source}.ncu-rep").is_file():
            reason = f"no report of {case.source}"
        if reason:
            entry: dict[str, Any] = {
                "case": case.name,
                "origin": case.origin,
                "state": "skipped",
                "reason": reason,
                "files": [],
            }
        else:
            entry = collect(case, tools, src, min(case.seconds, left))
            if case.fails:
                entry["gpu_answers_after"] = gpu_answers(src)
        manifest["cases"].append(entry)
        size = sum(f["bytes"] for f in entry["files"]) / 1024
        expected = "?" if case.launches is None else case.launches
        counted = f"{entry.get('launches_profiled', '-')}/{expected}"
        took = entry.get("seconds", 0)
        print(
            f"{entry['state']:12} {case.name:22} {took:6.1f} s {size:8.0f} KiB {counted:>7}",
            reason,
            flush=True,
        )
        if entry["state"] == "failed" or entry.get("gpu_answers_after") is False:
            print("    " + entry.get("tail", "").replace("\n", "\n    "), flush=True)
    finish(args.output, src, manifest, started)
    return 0


def finish(output: Path, src: Path, manifest: dict[str, Any], started: float) -> None:
    """Write the manifest, and pack."""
    small: list[tuple[Path, str]] = []
    large: list[tuple[Path, str]] = []
    for entry in manifest["cases"]:
        for file in entry["files"]:
            file["archive"] = "large" if file["bytes"] > LARGE else "small"
            (large if file["bytes"] > LARGE else small).append(
                (src / "reports" / file["name"], f"reports/{file['name']}")
            )
    manifest["seconds"] = round(time.monotonic() - started, 1)
    path = src / "manifest.json"
    path.write_text(json.dumps(manifest, indent=1) + "\n")
    logs = sorted((src / "logs").glob("*.txt"))
    output.parent.mkdir(parents=True, exist_ok=True)
    # The manifest also travels alone: it is there even if packing is cut short.
    shutil.copy(path, output.with_name(output.name.removesuffix(".tar.xz") + "-manifest.json"))
    size = pack(output, [(path, "manifest.json"), *((p, f"logs/{p.name}") for p in logs), *small])
    second = output.with_name(output.name.removesuffix(".tar.xz") + "-large.tar.xz")
    more = pack(second, large)
    raw = sum(f["bytes"] for entry in manifest["cases"] for f in entry["files"])
    print(
        f"{len(small)} reports in {output.name} ({size / 1e6:.2f} MB), "
        f"{len(large)} in {second.name} ({more / 1e6:.2f} MB)"
    )
    print(f"{raw / 1e6:.1f} MB unpacked; {time.monotonic() - started:.0f} s in all", flush=True)


if __name__ == "__main__":
    sys.exit(main())
