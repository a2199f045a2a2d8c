"""Kernel file → cubin: one nvcc call, cached by everything that can change its output, with ptxas's
resource report.

A cubin carries the absolute path of its source (-lineinfo), which ncu shows and stores. With
$NCU_TOOLKIT_SOURCE_ROOT a copy of the kernels in that folder is compiled, so that a recording made
for others names no private path."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from ncu_toolkit.base.core.cache import (
    CACHE_VARIABLE,
    cache_folder,
    own_bytes,
    private,
    replace_file,
)
from ncu_toolkit.base.core.children import end_all, run
from ncu_toolkit.base.core.errors import (
    EnvironmentProblem,
    KernelProblem,
    ToolkitError,
    UsageProblem,
    refused,
)
from ncu_toolkit.base.core.files import parse_json
from ncu_toolkit.kernel.build.toolchain import Tool, find_tool
from ncu_toolkit.kernel.ladder.catalogue import code_digest, kernels_root
from ncu_toolkit.kernel.ladder.rung import Rung

SOURCE_ROOT_VARIABLE = "NCU_TOOLKIT_SOURCE_ROOT"
FLAGS = ("-std=c++17", "-O3", "-lineinfo", "--resource-usage")
#: Longest a single nvcc call may take, in seconds. The slowest rung takes a few.
TIMEOUT = 600
_FORMAT = 3  # of report.json; entries of another format are built again

#: A header that a source includes by its own path.
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"\n]+)"', re.MULTILINE)
_PROPERTIES = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_ERROR_LINE = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)
#: What this machine lacks, by what nvcc prints, and what to do.
_MACHINE = (
    ("Unsupported gpu architecture", "nvcc {version} cannot compile for {target}", "Choose another --arch; before sm_75 CUDA 12.9 works"),
    (
        r"Failed to preprocess host compiler|Cannot find compiler|^(gcc|g\+\+|sh: .*): .*(No such file|not found)",
        "nvcc found no C++ host compiler", "Install g++ (on Debian and Ubuntu: apt install g++)",
    ),
    (
        "unsupported GNU version|unsupported clang version", "nvcc {version} does not work with the host compiler here",
        "Install an older g++, or a newer CUDA toolkit",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Resources:
    """What ptxas reports for one function. Registers per thread; sizes in bytes, `shared` static,
    `stack` per thread."""

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    barriers: int = 0

    @property
    def spills(self) -> bool:
        return self.spill_stores > 0 or self.spill_loads > 0


@dataclass(frozen=True)
class BuiltCubin:
    """A compiled kernel file. `entries` are the kernels by (mangled) name; `log` is what nvcc
    printed."""

    path: Path
    target: str
    """`sm_90`, or `sm_90a` for architecture-specific code."""
    entries: Mapping[str, Resources]
    parameters: Mapping[str, int]
    compiler: str
    command: tuple[str, ...]
    log: str = field(repr=False)
    cached: bool = False

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(line for line in self.log.splitlines() if re.search(r"\bwarning\b", line))


@dataclass(frozen=True)
class BuildRequest:
    """One compilation; see `compile_rung`."""

    rung: Rung
    arch: str
    parameters: Mapping[str, int] = field(default_factory=dict)
    macros: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildOutcome:
    """A request with its cubin or its error."""

    request: BuildRequest
    cubin: BuiltCubin | None = None
    error: ToolkitError | None = None


#: Gets how many are done, of how many, and the last outcome.
OnBuilt = Callable[[int, int, BuildOutcome], None]


def parse_arch(text: str) -> tuple[int, int]:
    """Compute capability of `sm_90`, `sm_90a`, `90` or `9.0`. Raises UsageProblem for anything
    else."""
    found = re.fullmatch(r"(?:sm_)?(\d{1,2})\.?(\d)a?", text.strip())
    if found is None:
        hint = "Write it as sm_80, sm_86, sm_89 or sm_90"
        raise UsageProblem(f"'{text}' is not an architecture", hint)
    return int(found[1]), int(found[2])


def target_of(rung: Rung, arch: str) -> str:
    """The target a rung is compiled for on `arch`: `sm_90a` where it needs architecture-specific
    instructions, else `sm_90`. Raises UsageProblem: the rung cannot run there, with the reason."""
    cc = parse_arch(arch)
    suffix = "a" if rung.arch_specific else ""
    if reason := rung.unsupported_on(cc):
        major, minor = rung.minimum_cc
        raise UsageProblem(reason, f"Build it with --arch sm_{major}{minor}{suffix}")
    return f"sm_{cc[0]}{cc[1]}{suffix}"


def compile_rung(
    rung: Rung,
    arch: str,
    parameters: Mapping[str, int] | None = None,
    macros: Mapping[str, str] | None = None,
) -> BuiltCubin:
    """Compile a rung, or take it from the cache.

    Args:
        rung: what to compile.
        arch: `sm_90` and so on, of the device it is for.
        parameters: overrides of the rung's parameters; each is passed as -DNAME=VALUE.
        macros: further macros, such as `Problem.macros(dtype)`.

    Raises:
        UsageProblem: a library baseline (nothing to compile), an architecture or parameters the
            rung does not take.
        EnvironmentProblem: no nvcc, no host compiler, an nvcc too old for the architecture, no
            place to write.
        KernelProblem: the code does not compile.
    """
    if rung.library:
        what = f"{rung.name} is a library baseline and has no code to compile"
        raise UsageProblem(what, "Choose another kernel")
    values = rung.with_parameters(parameters)
    target = target_of(rung, arch)
    source = _Source(rung.path, rung.path.parents[1], rung.label)
    return _compile(source, target, values, dict(macros or {}))


def compile_file(
    source: Path, arch: str, macros: Mapping[str, str] | None = None, timeout: float = TIMEOUT
) -> BuiltCubin:
    """Compile any `.cu` file, for static analysis, within `timeout` seconds. `arch` may be
    architecture-specific (`sm_90a`). Raises as `compile_rung`."""
    target = _target(arch)
    if not source.is_file():
        hint = "Give a .cu file, a .cubin, or the name of a kernel"
        raise UsageProblem(f"there is no file '{source}'", hint)
    code = _Source(source.resolve(), kernels_root(), source.name)
    return _compile(code, target, {}, dict(macros or {}), timeout)


def preprocessed(
    source: Path, arch: str, timeout: float, extra: Sequence[str] = ()
) -> tuple[str | None, str]:
    """What the preprocessor makes of a `.cu` file for `compile_file`, and its messages, which may quote
    any file: the same flags, and the one pass that a cubin takes. None where it fails. Raises
    UsageProblem, EnvironmentProblem: as `compile_rung`. Raises KernelProblem: it takes longer than
    `timeout` seconds."""
    nvcc = find_tool("nvcc")
    flags = _flags(_target(arch), kernels_root(), {})
    command = [str(nvcc.path), "-E", *flags, *extra, str(source)]
    answer = _call(command, source.parent, timeout, source.name)
    return (answer.stdout if answer.returncode == 0 else None), answer.stderr


def _call(
    command: Sequence[str], folder: Path, timeout: float, label: str, what: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run nvcc in a folder. Raises KernelProblem where it takes longer than `timeout` seconds."""
    try:
        return run(command, timeout, cwd=folder, environment={"LC_ALL": "C"})
    except subprocess.TimeoutExpired as error:
        text = f"{label}: nvcc did not finish within {timeout:g} s{what}"
        raise KernelProblem(text, "Simplify the kernel") from error


def _target(arch: str) -> str:
    """The target that `arch` names; it may be architecture-specific (`sm_90a`)."""
    major, minor = parse_arch(arch)
    return f"sm_{major}{minor}{'a' if arch.strip().endswith('a') else ''}"


def _flags(target: str, root: Path, macros: Mapping[str, object]) -> tuple[str, ...]:
    """nvcc's flags for a target, besides what it is to make."""
    specific = f"-gencode=arch=compute_{target[3:]},code={target}"
    architecture = specific if target.endswith("a") else f"-arch={target}"
    defines = (f"-D{name}={value}" for name, value in sorted(macros.items()))
    return (architecture, *FLAGS, "-I", str(root), *defines)


def source_digest(rung: Rung) -> str:
    """Digest of a rung's device code, its includes, and its launches. Comments and white space do
    not count."""
    files = _with_includes(rung.path, rung.path.parents[1])
    scratch, maps = (
        tuple(msgspec.structs.replace(table, name=name) for name, table in tables.items())
        for tables in (rung.scratch_tables, rung.map_tables)
    )
    launch = [rung.parameters, rung.launches, scratch, maps, rung.problem]
    parts = [*sorted(code_digest(text) for _, text in files), repr(launch)]
    return sha256("\0".join(parts).encode()).hexdigest()[:16]


def build_many(
    requests: Sequence[BuildRequest], progress: OnBuilt | None = None, jobs: int | None = None
) -> list[BuildOutcome]:
    """Compile several rungs on `jobs` threads (the CPU count where None); outcomes in the order of
    the requests. One that fails does not stop the others. `progress` is called on this thread after
    each with (done, total, outcome)."""
    with ThreadPoolExecutor(max_workers=jobs or os.cpu_count() or 1) as pool:
        futures = [pool.submit(_build, request) for request in requests]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                if progress:
                    progress(done, len(requests), future.result())
        except BaseException:  # Ctrl-C: drop queued calls, end running ones
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise
    return [future.result() for future in futures]


def _build(request: BuildRequest) -> BuildOutcome:
    r = request
    try:
        return BuildOutcome(r, compile_rung(r.rung, r.arch, r.parameters, r.macros))
    except ToolkitError as error:
        return BuildOutcome(r, error=error)


class _Source(NamedTuple):
    """A source file, the folder of its includes, and what messages call it."""

    path: Path
    root: Path
    label: str


def _compile(
    code: _Source, target: str, parameters: dict[str, int], macros: dict[str, str], timeout: float = TIMEOUT
) -> BuiltCubin:  # fmt: skip
    nvcc, (source, root, label) = find_tool("nvcc"), code
    files = dict(_with_includes(source, root))
    if chosen := os.environ.get(SOURCE_ROOT_VARIABLE):
        source, root = _stage(files, source, root, Path(chosen))
    flags = ("-cubin", *_flags(target, root, {**parameters, **macros}))
    key = sha256(
        json.dumps([_FORMAT, sorted(files.values()), str(source), flags, nvcc.version]).encode()
    ).hexdigest()[:32]
    folder = cache_folder() / "cubins" / key
    found = _from_cache(folder)
    if found is not None:
        return found
    command = (str(nvcc.path), *flags, "-o", "kernel.cubin", str(source))
    compiler = f"nvcc {nvcc.version}"
    made = BuiltCubin(Path("kernel.cubin"), target, {}, parameters, compiler, command, "")
    return _run(made, nvcc, folder, label, root, timeout)


def _run(
    made: BuiltCubin, nvcc: Tool, folder: Path, label: str, root: Path, timeout: float
) -> BuiltCubin:
    """Compile into a temporary folder and rename it into the cache, so that no reader sees half an
    entry."""
    with _writing(folder.parent):
        work = Path(tempfile.mkdtemp(prefix=".making-", dir=private(cache_folder(), "cubins")))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        stack.enter_context(_writing(folder.parent))
        command = list(made.command)
        command[command.index("-o") + 1] = str(work / "kernel.cubin")
        answer = _call(command, work, timeout, label, f" for {made.target}")
        log = answer.stdout + answer.stderr
        if answer.returncode != 0 or not (work / "kernel.cubin").is_file():
            raise _failure(log, label, made.target, nvcc, root, folder)
        made = replace(made, entries=parse_resources(log), log=log)
        record = asdict(made) | {"path": "", "format": _FORMAT}
        record["sha256"] = _digest((work / "kernel.cubin").read_bytes(), record)
        text = json.dumps(record, indent=1, sort_keys=True)
        (work / "report.json").write_text(text, encoding="utf-8")
        for each in work.iterdir():
            each.chmod(0o600)
        try:
            work.rename(folder)
        except OSError:  # Another process was first, or an entry is damaged.
            other = _from_cache(folder)
            if other is not None:
                return replace(other, cached=False)
            shutil.rmtree(folder, ignore_errors=True)
            work.rename(folder)
        return replace(made, path=folder / "kernel.cubin")


def _from_cache(folder: Path) -> BuiltCubin | None:
    """The entry in `folder`; None where there is none, or it is damaged or another user's."""
    try:
        path, report = folder / "kernel.cubin", folder / "report.json"
        record = parse_json(own_bytes(report), report)
        digest = record.pop("sha256")
        if (record["format"], digest) != (_FORMAT, _digest(own_bytes(path), record)):
            return None
        return msgspec.convert(record | {"path": path, "cached": True}, BuiltCubin)
    except (OSError, ToolkitError, KeyError, TypeError, AttributeError, msgspec.ValidationError):
        return None


def parse_resources(log: str) -> dict[str, Resources]:
    """Resources by entry function from what `nvcc --resource-usage` prints. Device functions that
    are called, not inlined, are left out."""
    entries: dict[str, Resources] = {}
    entry = subject = ""
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '([^']+)'", line):
            entry = subject = found[1]
            entries[entry] = Resources()
        elif found := re.search(r"Function properties for (\S+)", line):
            subject = found[1]
        elif (found := _PROPERTIES.search(line)) and subject in entries:
            stack, stores, loads = map(int, found.groups())
            used = {"stack": stack, "spill_stores": stores, "spill_loads": loads}
            entries[subject] = replace(entries[subject], **used)
        elif entry and (found := re.search(r"Used (\d+) registers", line)):
            shared, barriers = _amount(line, "bytes smem"), _amount(line, "barriers")
            used = {"registers": int(found[1]), "shared": shared, "barriers": barriers}
            entries[entry] = replace(entries[entry], **used)
    return entries


def _amount(line: str, unit: str) -> int:
    found = re.search(rf"(\d+) {unit}", line)
    return int(found[1]) if found else 0


def _with_includes(source: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """The source and every quoted include below it that is next to it or under `root`, with their
    contents."""
    waiting, seen = [source.resolve()], set[Path]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        text = path.read_text(encoding="utf-8", errors="replace")
        yield path, text
        for name in INCLUDE.findall(text):
            for folder in (path.parent, root):
                if (folder / name).is_file():
                    waiting.append((folder / name).resolve())
                    break


def _stage(files: Mapping[Path, str], source: Path, root: Path, stage: Path) -> tuple[Path, Path]:
    """Copy the files under `stage`/kernels and return the source and the include root there."""
    base, target = root.resolve(), stage.absolute() / "kernels"
    with _writing(target):
        for path, text in files.items():
            copy = target / path.relative_to(base)
            if copy.is_file() and copy.read_text(encoding="utf-8", errors="replace") == text:
                continue
            replace_file(copy, text.encode())
    return target / source.resolve().relative_to(base), target


def _failure(
    log: str, label: str, target: str, nvcc: Tool, root: Path, folder: Path
) -> ToolkitError:
    """The error of a failed nvcc call: the machine lacks something, or the code does not
    compile."""
    for pattern, what, remedy in _MACHINE:
        if re.search(pattern, log, re.MULTILINE):
            return EnvironmentProblem(what.format(version=nvcc.version, target=target), remedy)
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = lines[-1] if lines else "nvcc printed nothing"
    first = next((line for line in lines if _ERROR_LINE.search(line)), last)
    first = first.replace(f"{root}{os.sep}", "kernels/")
    full = folder.parent.parent / "logs" / f"{folder.name}.log"
    remedy = f"The full log is {full}"
    try:
        replace_file(full, log.encode())
    except OSError as error:
        remedy = f"The full log could not be written: {error.strerror}"
    return KernelProblem(f"{label} does not compile for {target}: {first}", remedy)


def _writing(folder: Path) -> contextlib.AbstractContextManager[None]:
    remedy = f"Free some space, or set {CACHE_VARIABLE} to another folder"
    return refused(f"cannot write to {folder}", remedy)


def _digest(cubin: bytes, record: Mapping[str, object]) -> str:
    """SHA-256 of a cubin and what is recorded of it."""
    return sha256(cubin + json.dumps(record, sort_keys=True).encode()).hexdigest()
