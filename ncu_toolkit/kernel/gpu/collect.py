"""Running ncu: its command line, one subprocess call, and the error for its output."""

import contextlib
import getpass
import logging
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from ncu_toolkit import PACKAGE
from ncu_toolkit.base.core import files
from ncu_toolkit.base.core.children import GRACE, Child
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    InputProblem,
    ToolkitError,
    UsageProblem,
    refused,
)
from ncu_toolkit.base.metrics.registry import SET_NAME
from ncu_toolkit.kernel.gpu import failures
from ncu_toolkit.kernel.report import reader

#: Seconds that ncu has to write its report after it was asked to stop.
GRACE_SECONDS: Final = 60.0
#: Seconds after which a collective hangs that ncu replays. Of a single process NCCL launches none, so
#: that each waits for another kernel, which ncu holds back.
_COLLECTIVE_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
#: How the names of ncu's own processes begin.
_NCU: Final = ("ncu", "TreeLauncher")
#: What ncu says of each launch when it is profiled, and when that begins.
_PASSES: Final = r"- (\d+) pass"
BEGUN: Final = re.compile(r'==PROF== Profiling "([^"\n]+)"')
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
    """Our section files: in the package (a wheel) or next to it (a checkout). Raises
    EnvironmentProblem: neither is there."""
    for candidate in (PACKAGE / "sections_data", PACKAGE.parent / "sections"):
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
    """A kernel's name without its arguments, instead of a filter."""
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
    # ncu starts a program by its absolute path, and mpirun then puts its own folder first in PATH
    by_name = ["env"] if request.command[:1] in (("mpirun",), ("mpiexec",)) else []
    return [*words, *request.extra, "--export", export, *by_name, *request.command]


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
    """The kind of problem: an id of data/failures.toml (no-kernels for all that say so, crash for all
    of the program), or timeout, crashed or signal (ncu), unknown."""


@dataclass(frozen=True)
class NcuJob:
    """A run of ncu."""

    ncu: Ncu
    request: Request
    timeout: float
    """Seconds."""
    environment: Mapping[str, str] = field(default_factory=dict)
    keep_open: Sequence[int] = ()
    """File descriptors that ncu and the program inherit."""
    less: str = "allow more time with --timeout, or profile fewer kernels"
    """What to do about a time-out."""

    @property
    def log(self) -> Path:
        return self.request.output.with_name(f"{self.request.output.name}.log")


def run(
    job: NcuJob,
    *,
    tick: Callable[[], None] = lambda: None,
    request_stop: Callable[[], None] | None = None,
    enough: Enough = lambda finished, begun: False,
) -> NcuOutcome:
    """Run ncu in its own session and wait.

    On Ctrl-C or time-out `request_stop` is called, so that the program under ncu ends by itself and
    the report is written with what is finished; without it the program gets SIGTERM, and SIGKILL
    if it does not end by that. After GRACE_SECONDS, or at a second Ctrl-C, all are killed.
    `tick` is called a few times a second, for progress. When there is `enough`, the program is
    ended in the same way, and that is no problem. A collective that does not end is a time-out. ncu
    and the program have their own temporary folder, since ncu's lock file in a shared one belongs
    to the user who profiled first. Raises EnvironmentProblem: the log cannot be written, or ncu
    cannot be started."""
    started, log, words = time.monotonic(), job.log, argv(job.ncu, job.request)
    remedy = "Free space, or name another folder with --output"
    with refused(f"'{log}' cannot be written", remedy):
        sink = log.open("wb")
    with (
        sink,
        tempfile.TemporaryDirectory(prefix="ncu-toolkit-", ignore_cleanup_errors=True) as own,
    ):
        environment = {**_with_temporary(own), **job.environment}
        with refused(f"'{words[0]}' cannot be started", "Free memory or processes, or check $NCU"):
            process = Child(
                words, environment, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, pass_fds=tuple(job.keep_open),
            )  # fmt: skip
        try:
            ended = _wait(process, job, tick, request_stop, enough)
        finally:
            process.end(signal.SIGKILL)
    tick()
    # None where it hangs in a driver
    code = -signal.SIGKILL if process.returncode is None else process.returncode
    text = log.read_text(encoding="utf-8", errors="replace")
    report = written(job.request.output)
    logger.debug("output of ncu and the program:\n%s", text)
    cause, problem = classify(text, code, timed_out=ended.timed_out, log=log, less=job.less)
    if ended.done and report:
        cause, problem = "", None
    elif ended.done and cause in ("", "crash"):  # it was ended before any launch
        cause, problem = "no-kernels", UsageProblem("no kernel was profiled")
    seconds = time.monotonic() - started
    what = f": {problem}" if problem else ""
    logger.info("ncu ended with %s after %.1f s%s", code, seconds, what)
    passes = tuple(int(n) for n in re.findall(_PASSES, text))
    return NcuOutcome(
        tuple(words), code, seconds, log, report, problem, ended.interrupted, passes, cause
    )


@dataclass
class _Ending:
    """Why ncu was stopped."""

    interrupted: bool = False
    done: bool = False
    """There was enough."""
    timed_out: float | None = None
    """After this many seconds."""


def _wait(
    process: Child,
    job: NcuJob,
    tick: Callable[[], None],
    request_stop: Callable[[], None] | None,
    enough: Enough,
) -> _Ending:
    """Wait until ncu has ended, or until it must be killed."""
    started, ended, stopping = time.monotonic(), _Ending(), False
    deadline, hard = started + job.timeout, math.inf
    profiled = _profiled(job.log)
    at, since = (0, ""), started
    while process.poll() is None:
        try:
            tick()
            time.sleep(_POLL_SECONDS)
            before, at, now = at, next(profiled), time.monotonic()
            since = now if at != before else since
            ended.done = ended.done or (not stopping and enough(*at))
            asked = ended.interrupted or ended.done
            hangs = now - since > _COLLECTIVE_SECONDS and reader.is_collective(at[1])
            if (asked or hangs or now > deadline) and not stopping:
                stopping = True
                ended.timed_out = None if asked else min(job.timeout, now - started)
                deadline = now + GRACE_SECONDS
                if request_stop is not None:
                    request_stop()
                else:
                    hard = now + GRACE
                    process.send(signal.SIGTERM, spare=_NCU)
            elif now > hard:
                hard = math.inf
                process.send(signal.SIGKILL, spare=_NCU)
            elif stopping and now > deadline:
                break
        except KeyboardInterrupt:
            if ended.interrupted:
                break
            ended.interrupted = True
            profiled = _profiled(job.log)  # a generator that was interrupted has ended
    return ended


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


def _with_temporary(folder: str) -> dict[str, str]:
    """Variables that name a folder for temporary files. TorchInductor keeps its compiled kernels in the
    usual one, where the next run finds them."""
    named = {"TMPDIR": folder}
    with contextlib.suppress(KeyError, OSError):  # a user without a name
        kept = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
        named["TORCHINDUCTOR_CACHE_DIR"] = os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(kept))
    return named


#: Failures that mean the same to those who go on after them.
_CAUSES: Final = {
    "segfault": "crash",
    "filter": "no-kernels",
    "nvtx": "no-kernels",
    "children": "no-kernels",
}
_CRASHES: Final = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


def classify(
    text: str,
    returncode: int,
    *,
    timed_out: float | None = None,
    log: Path | None = None,
    less: str = NcuJob.less,
) -> tuple[str, ToolkitError | None]:
    """The kind of problem and its error, from ncu's output and exit code; ("", None) for success.
    What ncu says comes before its exit code. `timed_out`: after how many seconds it was stopped."""
    if timed_out is not None:
        begun, message = BEGUN.findall(text), f"ncu did not finish within {timed_out:.0f} s"
        if begun and reader.is_collective(begun[-1]):
            message, less = f"ncu waited for '{begun[-1]}', which did not finish", reader.COLLECTIVE
        return "timeout", EnvironmentProblem(message, f"Finished work is kept; {less}")
    reading = failures.read(text, returncode != 0)
    where = f"Its output is in {log}" if log else "Its output is in the log next to the report"
    first = reading.first
    if first is not None and first.id in ("crash", "segfault"):
        first = replace(
            first, remedy=f"{where}. {first.remedy}" if first.id == "segfault" else where
        )
    if first is not None and first.id != "unknown":
        return _CAUSES.get(first.id, first.id), first.error()
    if returncode == 0:
        return "", None
    number = -returncode if returncode < 0 else returncode - 128  # by the shell that starts ncu
    if first is None and (returncode < 0 or number in _CRASHES):
        known = {each.value: each.name for each in signal.Signals}
        ended = f"ncu was ended by signal {number} ({known.get(number, 'not a standard one')})"
        cause = "crashed" if number in _CRASHES else "signal"
        return cause, EnvironmentProblem(ended, "Finished work is kept")
    sentence = f": {first.what}" if first else ""
    failed = f"ncu failed with exit code {returncode}{sentence}"
    return "unknown", EnvironmentProblem(failed, where.replace("Its", "Its whole"))
