"""Running ncu: its command line, one subprocess call, and the error for its output."""

import logging
import math
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final

from ncu_toolkit.core import files
from ncu_toolkit.core.children import GRACE, Child
from ncu_toolkit.core.errors import (
    EnvironmentProblem,
    InputProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
    refused,
)
from ncu_toolkit.metrics.registry import SET_NAME

#: Seconds that ncu has to write its report after it was asked to stop.
GRACE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
#: How the names of ncu's own processes begin.
_NCU: Final = ("ncu", "TreeLauncher")
#: What ncu says of each launch when it is profiled, and when that begins.
_PASSES: Final = r"- (\d+) pass"
BEGUN: Final = re.compile(r'==PROF== Profiling "([^"\n]+)"')
#: Remedy of a time-out.
_LESS: Final = "allow more time with --timeout, or profile fewer kernels"
#: What to do where only administrators may read the counters.
PERMIT: Final = (
    "Run as root, or give the process CAP_PERFMON (from driver 565 on; a container: --cap-add=PERFMON) or CAP_SYS_ADMIN (--cap-add=SYS_ADMIN), "
    "or have an administrator load the driver with NVreg_RestrictProfilingToAdminUsers=0"
)
#: Asked a few times a second, with how many launches are finished and ncu's name of the one that is
#: being profiled (empty between two), whether the program may end.
Enough = Callable[[int, str], bool]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ncu:
    """An Nsight Compute command-line tool."""

    path: str
    version: str

    @property
    def stock_sections(self) -> Path | None:
        """Its own section folder, where it is found beside the binary."""
        above = Path(self.path).resolve().parents
        release = ".".join(self.version.split(".")[:3])
        named = [each for top in above for each in top.glob(f"nsight-compute*{release}*")]
        places = [*above, *named, Path("/opt/nvidia/nsight-compute") / release]
        folders = (place / "sections" for place in places)
        return next((each for each in folders if (each / "SpeedOfLight.section").is_file()), None)


def find_ncu() -> Ncu:
    """ncu from `$NCU`, PATH, CUDA_HOME or /opt/nvidia, the newest of the last. Raises
    EnvironmentProblem: there is none, or it does not run."""
    named = os.environ.get("NCU")
    if named:
        if not shutil.which(named):
            what = f"$NCU names '{named}', which is not an executable"
            raise EnvironmentProblem(what, "Point it at the ncu binary, or unset it")
        return _probe(named)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    installed = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), reverse=True)
    candidates = [
        shutil.which("ncu"),
        shutil.which(str(Path(home) / "bin" / "ncu")) if home else None,
        *map(str, installed),
        shutil.which("/usr/local/cuda/bin/ncu"),
    ]
    for candidate in filter(None, candidates):
        return _probe(candidate)
    raise EnvironmentProblem(
        "ncu (Nsight Compute) is not on PATH, in $NCU, $CUDA_HOME or /opt/nvidia",
        "Install the CUDA toolkit or set NCU=/path/to/ncu; `ncu-toolkit report` shows the recordings without it",
    )


def _probe(path: str) -> Ncu:
    """The version that a file says it is, asked once while the file stays the same."""
    with refused(f"'{path}' cannot be read"):
        return _asked(path, os.stat(shutil.which(path) or path).st_mtime_ns)


@cache
def _asked(path: str, changed: int) -> Ncu:
    words = [path, "--version"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"'{path} --version' does not run: {error}") from None
    found = re.search(r"Version (\S+)", answer.stdout)
    if not found:
        raise EnvironmentProblem(f"'{path} --version' does not answer like Nsight Compute")
    return Ncu(path, found.group(1))


def section_folder() -> Path:
    """Our section files: in the package (a wheel) or beside it (a checkout). Raises
    EnvironmentProblem: neither is there."""
    package = Path(__file__).resolve().parents[1]
    for candidate in (package / "sections_data", package.parent / "sections"):
        if candidate.is_dir():
            return candidate
    missing = "the section files are missing from the installation"
    raise EnvironmentProblem(missing, "Reinstall ncu-toolkit")


def section_folders(ncu: Ncu, set_name: str) -> tuple[Path, ...]:
    """Folders of section files for a set: ours, and ncu's own where they are found. Raises
    EnvironmentProblem: the set is in folders that are not found."""
    if ncu.stock_sections is not None:
        return section_folder(), ncu.stock_sections
    if set_name != SET_NAME:
        raise EnvironmentProblem(
            f"ncu's own section files were not found next to '{ncu.path}', and the set '{set_name}' needs them",
            "Set NCU to the ncu of an installation that has them",
        )
    return (section_folder(),)


@dataclass(frozen=True)
class Request:
    """What to ask of ncu. `output` is the report without its suffix."""

    output: Path = Path()
    command: tuple[str, ...] = ()
    section_folders: tuple[Path, ...] = ()
    set_name: str = SET_NAME
    ranges_only: bool | None = None
    """Profile only between profiler start and stop calls of the program; None: `program_run` looks
    whether the script has any."""
    kernel_filter: str = ""
    """A regular expression that is searched in demangled names, as --kernel of every command."""
    kernel_function: str = ""
    """A kernel's name without its arguments, in place of a filter."""
    launch_skip: int = 0
    launch_count: int = 0
    nvtx_include: tuple[str, ...] = ()
    cache_control: str = "all"
    import_source: bool = True
    extra: tuple[str, ...] = ()


def argv(ncu: Ncu, request: Request) -> list[str]:
    """The ncu command line of a request. Clocks are never touched (`--clock-control none`)."""
    words = [ncu.path, "--set", request.set_name]
    for folder in request.section_folders:
        words += ["--section-folder", str(folder)]
    words += ["--clock-control", "none", "--cache-control", request.cache_control]
    words += ["--nvtx", "--target-processes", "all"]
    if request.import_source:
        words += ["--import-source", "yes"]
    if request.ranges_only:
        words += ["--profile-from-start", "off"]
    if request.kernel_filter:
        pattern = f"regex:{request.kernel_filter}"
        words += ["--kernel-name-base", "demangled", "--kernel-name", pattern]
    elif request.kernel_function:
        words += ["--kernel-name", f"regex:^{re.escape(request.kernel_function)}$"]
    for pattern in request.nvtx_include:
        words += ["--nvtx-include", pattern]
    if request.launch_skip:
        words += ["--launch-skip", str(request.launch_skip)]
    if request.launch_count:
        words += ["--launch-count", str(request.launch_count)]
    # Without the suffix ncu writes a packed report since 2026.3.
    export = f"{request.output}{files.REPORT_SUFFIXES[0]}"
    return [*words, *request.extra, "--export", export, *request.command]


def written(output: Path) -> Path | None:
    """The report of a run whose `Request.output` this was: a plain `.ncu-rep`, which a packed one is
    made into; None where there is none. A packed report that cannot be unpacked stays as it is."""
    plain, *others = (output.with_name(output.name + suffix) for suffix in files.REPORT_SUFFIXES)
    if plain.is_file():
        return plain
    packed = next((path for path in others if path.is_file()), None)
    if packed is None:
        return None
    try:
        files.write_atomic(plain, files.read_bytes(packed))
    except (InputProblem, OSError):
        return packed
    packed.unlink()
    return plain


@dataclass(frozen=True)
class NcuOutcome:
    """How an ncu run ended. `report` is None when none was written; `problem` when something went
    wrong."""

    command: tuple[str, ...]
    returncode: int
    seconds: float
    log: Path
    report: Path | None
    problem: ToolkitError | None
    interrupted: bool = False
    passes: tuple[int, ...] = ()
    cause: str = ""
    """The kind of problem: an id of `_PROBLEMS`, or timeout, crash (the program), crashed or signal
    (ncu), unknown."""


def run(
    words: Sequence[str],
    output: Path,
    log: Path,
    *,
    timeout: float,
    tick: Callable[[], None] | None = None,
    request_stop: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
    keep_open: Sequence[int] = (),
    less: str = _LESS,
    enough: Enough | None = None,
) -> NcuOutcome:
    """Run ncu in a session of its own and wait.

    On Ctrl-C or time-out `request_stop` is called, so that the program under ncu ends by itself and
    the report is written with what is finished; without it the program gets SIGTERM, and SIGKILL
    if it does not end by that. After GRACE_SECONDS, or at a second Ctrl-C, all are killed.
    `tick` is called a few times a second, for progress. `keep_open` are file descriptors that ncu
    and the program inherit. `less` is what to do about a time-out. Where there is `enough`, the
    program is ended in the same way; that it was is no problem.

    Raises:
        EnvironmentProblem: the log cannot be written, or ncu cannot be started.
    """
    started = time.monotonic()
    interrupted = timed_out = done = False
    remedy = "Free space, or name another folder with --output"
    with refused(f"'{log}' cannot be written", remedy):
        sink = log.open("wb")
    with sink:
        process = _started(words, sink, environment or {}, keep_open)
        profiled = _profiled(log)
        deadline, hard = started + timeout, math.inf
        stopping = False
        try:
            while process.poll() is None:
                try:
                    if tick is not None:
                        tick()
                    time.sleep(_POLL_SECONDS)
                    if enough is not None and not stopping:
                        done = enough(*next(profiled))
                    if (interrupted or done or time.monotonic() > deadline) and not stopping:
                        stopping = True
                        timed_out = not interrupted and not done
                        deadline = time.monotonic() + GRACE_SECONDS
                        if request_stop is not None:
                            request_stop()
                        else:
                            hard = time.monotonic() + GRACE
                            process.send(signal.SIGTERM, spare=_NCU)
                    elif time.monotonic() > hard:
                        hard = math.inf
                        process.send(signal.SIGKILL, spare=_NCU)
                    elif stopping and time.monotonic() > deadline:
                        break
                except KeyboardInterrupt:
                    if interrupted:
                        break
                    interrupted = True
        finally:
            process.end(signal.SIGKILL)
    if tick is not None:
        tick()
    # None where it hangs in a driver
    code = -signal.SIGKILL if process.returncode is None else process.returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    found = written(output)
    logger.debug("output of ncu and the program:\n%s", text)
    cause, problem = classify(text, code, timed_out=timed_out, timeout=timeout, log=log, less=less)
    if done and found:
        cause, problem = "", None
    elif done and cause in ("", "crash"):  # it was ended before any launch
        cause, problem = "no-kernels", UsageProblem("no kernel was profiled")
    seconds = time.monotonic() - started
    what = f": {problem}" if problem else ""
    logger.info("ncu ended with %s after %.1f s%s", code, seconds, what)
    passes = tuple(int(n) for n in re.findall(_PASSES, text))
    return NcuOutcome(tuple(words), code, seconds, log, found, problem, interrupted, passes, cause)


def _profiled(log: Path) -> Iterator[tuple[int, str]]:
    """What `Enough` is asked with, each time."""
    finished, begun, rest = 0, [], b""
    with log.open("rb") as file:
        while True:
            *lines, rest = (rest + file.read()).split(b"\n")
            text = b"\n".join(lines).decode(errors="replace")
            finished += len(re.findall(_PASSES, text))
            begun += BEGUN.findall(text)
            now = [*begun, *BEGUN.findall(rest.decode(errors="replace"))]
            yield finished, now[-1] if len(now) > finished else ""


def _started(
    words: Sequence[str], sink: BinaryIO, environment: Mapping[str, str], keep_open: Sequence[int]
) -> Child:
    remedy = "Free memory or processes, or check $NCU"
    with refused(f"'{words[0]}' cannot be started", remedy):
        return Child(
            words, environment, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, pass_fds=tuple(keep_open),
        )  # fmt: skip


#: Problems by cause, with the pattern in ncu's output. Patterns are searched in ncu's own lines,
#: which start with `==`; where the last entry is true and the program failed, also in the program's
#: output.
_PROBLEMS: Final[tuple[tuple[str, str, type[ToolkitError], str, str, bool], ...]] = (
    (
        "permission", r"ERR_NVGPUCTRPERM", EnvironmentProblem, "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
        f"{PERMIT}. Without counters: `ncu-toolkit probe -- python script.py`", True,
    ),
    (
        "counters", r"ERR_NVGPUCTRRESOURCEUNAVAIL|already in use|another (?:instance|tool|profiler)|resource.{0,40}(?:unavailable|busy)", EnvironmentProblem,
        "another profiler holds the GPU's performance counters", "End it (another ncu, nsys, DCGM: `dcgmi profile --pause`) and try again", False,
    ),
    ("library", r"LibraryNotLoaded", EnvironmentProblem, "ncu cannot load its driver library (LibraryNotLoaded)", "The driver is missing, too old for this ncu, or hidden by a sandbox; check `nvidia-smi`", True),
    ("gpu", r"Unsupported (?:device|GPU)|is not supported on this (?:device|platform)|No supported GPU", EnvironmentProblem, "this ncu does not support this GPU", "Use an ncu release that knows it: `ncu --list-chips`", False),
    ("driver-for-ncu", r"driver is not compatible with Nsight Compute|[Dd]river.{0,40}not supported by this version", EnvironmentProblem, "the driver is too old for this ncu", "Update the driver, or name an older ncu in $NCU: that of the CUDA release `nvidia-smi` shows", False),
    ("driver", r"driver version is insufficient|driver.{0,30}too old", EnvironmentProblem, "the driver is too old for this CUDA release", "Update the driver, or use an older toolkit", True),
    ("no-gpu", r"no CUDA-capable device|No devices? (?:were )?found|CUDA_ERROR_NO_DEVICE", EnvironmentProblem, "ncu finds no CUDA GPU", "Check `nvidia-smi`; `ncu-toolkit report` works without a GPU", True),
    ("disk", r"No space left on device|[Dd]isk quota exceeded", EnvironmentProblem, "the disk is full", "Free space, or point TMPDIR and --output elsewhere", True),
    ("memory", r"[Oo]ut of memory|OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY", EnvironmentProblem, "the GPU ran out of memory while profiling, because ncu saves memory that a kernel writes between passes", "Choose a smaller --size, or smaller inputs", True),
    ("sections", r"Could not find (?:any )?(?:section|set)|Unknown set|no sections", EnvironmentProblem, "ncu does not find the section files", "Reinstall ncu-toolkit, or pass the sections/ folder", False),
    ("no-kernels", r"No kernels were profiled", UsageProblem, "no kernel was profiled", "Check the kernel filter, and that the program launches one inside the profiled range", False),
)  # fmt: skip


_CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


def classify(
    text: str,
    returncode: int,
    *,
    timed_out: bool = False,
    timeout: float = 0,
    log: Path | None = None,
    less: str = _LESS,
) -> tuple[str, ToolkitError | None]:
    """The kind of problem and its error, from ncu's output and exit code; ("", None) for success."""
    if timed_out:
        message = f"ncu did not finish within {timeout:.0f} s"
        return "timeout", EnvironmentProblem(message, f"Finished work is kept; {less}")
    own = "\n".join(line for line in text.splitlines() if line.startswith("=="))
    crashed = re.search(r"application returned an error code \((-?\d+)\)", text)
    for where in (own, text) if returncode else (own,):
        for cause, pattern, kind, message, remedy, by_program in _PROBLEMS:
            meant = where is own or by_program
            if meant and re.search(pattern, where) and not (cause == "no-kernels" and crashed):
                return cause, kind(message, remedy)
    if returncode == 0:
        return "", None
    output = f"Its output is in {log}" if log else "Its output is in the log beside the report"
    if crashed:
        ended = f"the profiled program ended with exit code {crashed.group(1)}"
        return "crash", KernelProblem(ended, output)
    number = -returncode if returncode < 0 else returncode - 128  # by the shell that starts ncu
    if returncode < 0 or number in _CRASHES:
        known = {each.value: each.name for each in signal.Signals}
        ended = f"ncu was ended by signal {number} ({known.get(number, 'not a standard one')})"
        cause = "crashed" if number in _CRASHES else "signal"
        return cause, EnvironmentProblem(ended, "Finished work is kept")
    lines = [line for line in text.splitlines() if line.startswith("==ERROR==")]
    first = f": {lines[0].removeprefix('==ERROR== ').strip()}" if lines else ""
    failed = f"ncu failed with exit code {returncode}{first}"
    return "unknown", EnvironmentProblem(failed, output.replace("Its", "Its whole"))
