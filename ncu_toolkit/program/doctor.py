"""What works on this machine and what does not, each with its remedy. A check that fails does not
stop the others."""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Literal, get_args

from ncu_toolkit import __version__
from ncu_toolkit.base.core import cache
from ncu_toolkit.base.core.errors import ToolkitError, extra
from ncu_toolkit.kernel.build import toolchain
from ncu_toolkit.kernel.gpu import collect, failures
from ncu_toolkit.kernel.report import ncu_action

State = Literal["ok", "warning", "missing"]

#: Free space that a ladder needs: the reports of 22 rungs at two sizes took 40 MB, and ncu writes
#: temporary copies.
_DISK_BYTES: Final = 2 << 30
_BUNDLED: Final = "bundled with Nsight Compute"
_PARAMETERS: Final = Path("/proc/driver/nvidia/params")
_DRIVER: Final = Path("/proc/driver/nvidia/version")
_STATUS: Final = Path("/proc/self/status")
_CAP_SYS_ADMIN: Final = 21
_CAP_PERFMON: Final = 38
#: The first driver that takes CAP_PERFMON (NVIDIA, "ERR_NVGPUCTRPERM").
_PERFMON_SINCE: Final = 565


@dataclass(frozen=True)
class MachineCheck:
    """One check. `needed_for` names the commands that fail without it; `remedy` is empty where all
    is well."""

    name: str
    state: State
    found: str
    needed_for: str = ""
    remedy: str = ""


def _made(state: State, found: str, remedy: str = "", needed_for: str = "") -> MachineCheck:
    return MachineCheck("", state, found, needed_for, remedy)


_ok, _warning, _missing = (partial(_made, state) for state in get_args(State))
_Look = Callable[[], MachineCheck]


def examine() -> tuple[MachineCheck, ...]:
    """All checks; later ones depend on earlier ones."""
    return tuple(_run(name, *check) for name, check in _CHECKS.items())


def _run(name: str, check: _Look, needed_for: str) -> MachineCheck:
    try:
        found = check()
    except ToolkitError as error:
        found = _missing(error.message, error.remedy)
    except Exception as error:
        found = _warning(f"this check failed: {type(error).__name__}: {error}")
    needed = "" if found.state == "ok" else found.needed_for or needed_for
    return replace(found, name=name, needed_for=needed)


def _driver() -> MachineCheck:
    try:
        text = _DRIVER.read_text(encoding="utf-8")
    except OSError:
        if shutil.which("nvidia-smi"):
            remedy = "This is normal in WSL. Elsewhere, load the NVIDIA kernel module"
            return _warning(f"nvidia-smi exists, {_DRIVER} does not", remedy)
        return _missing(
            "no NVIDIA driver is loaded",
            "Install one on a machine with a GPU; `ncu-toolkit report` and `analyze` need none",
        )
    found = re.search(r"Kernel Module\D*?(?:for \S+ +)?(\d+\.\d+(?:\.\d+)?)", text)
    return _ok(found.group(1) if found else text.splitlines()[0])


def _gpu() -> MachineCheck:
    from ncu_toolkit.kernel.gpu import cuda

    try:
        device = cuda.device()
        cc = device.cc
        name = f"{device.name}, CC {cc[0]}.{cc[1]}, {device.sm_count} SMs"
    except ToolkitError as error:
        found = _from_smi()
        if found is None:
            return _missing(f"not usable: {error.message}", error.remedy)
        name, cc = found
    if cc < (7, 0):
        return _missing(name, "Nsight Compute needs a GPU from Volta (CC 7.0) on")
    return _ok(name)


def _from_smi() -> tuple[str, tuple[int, int]] | None:
    """The first GPU as nvidia-smi names it, for machines without CuPy."""
    words = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"(.+), (\d+)\.(\d+)$", answer.stdout, re.MULTILINE)
    if found is None:
        return None
    name, major, minor = found.groups()
    return f"{name}, CC {major}.{minor}", (int(major), int(minor))


def _ncu() -> MachineCheck:
    ncu = collect.find_ncu()
    if ncu.stock_sections is None:
        remedy = "Set NCU to the ncu of a complete installation. ncu-toolkit's own sections work without them"
        what = f"{ncu.version}, but its section files are missing"
        return _warning(what, remedy, "profile --set full")
    return _ok(ncu.version)


def _counters() -> MachineCheck:
    try:
        text = _PARAMETERS.read_text(encoding="utf-8")
    except OSError:
        if failures.on_windows():
            what = "in WSL the Windows driver says who may read them"
            return _warning(what, f"Where ncu may not: {failures.remedy_of('permission')}")
        return _warning("no driver here, so permissions of the performance counters are unknown")
    found = re.search(r"RmProfilingAdminOnly:\s*(\d)", text)
    if found is None:
        what = "the driver does not report who may read the performance counters"
        return _warning(what, "Try: ncu --set basic <program>")
    if found.group(1) == "0":
        return _ok("every user may read them")
    if may_profile():
        return _ok("only administrators may read them, and this process may")
    return _missing(
        "only administrators may read them (RmProfilingAdminOnly: 1)",
        failures.remedy_of("permission"),
    )


def _recorder() -> MachineCheck:
    from ncu_toolkit.program.recording import recorder

    built = recorder.built()
    library = next((path for path in recorder.cupti_libraries([]) if "/" in path), "")
    if library:
        return _ok(f"built as {built.name}, with {library}")
    what = "no CUPTI is found in this Python or a CUDA toolkit; a program's own Python may have it"
    return _warning(what, extra("probe"))


def may_profile() -> bool:
    """Whether this process has what the driver requires for performance counters: CAP_SYS_ADMIN, or
    from driver 565 on CAP_PERFMON."""
    try:
        found = re.search(r"CapEff:\s*([0-9a-f]+)", _STATUS.read_text(encoding="utf-8"))
    except OSError:
        return os.geteuid() == 0
    held = int(found.group(1), 16) if found else 0
    release = re.match(r"(\d+)\.", _driver().found)  # 565 of 565.57.01
    enough = [_CAP_SYS_ADMIN]
    enough += [_CAP_PERFMON] if release and int(release[1]) >= _PERFMON_SINCE else []
    return any(held >> capability & 1 for capability in enough)


def _module_version() -> str:
    """Version of the report module in use. Raises EnvironmentProblem without one."""
    own = str(getattr(ncu_action.module(), "__version__", ""))
    return own or _version_of("ncu-report", _BUNDLED)


def _version_of(package: str, otherwise: str = "not found") -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return otherwise


def _versions() -> MachineCheck:
    """The module reads reports of its own version and older ones."""
    module = _module_version()
    try:
        ncu = collect.find_ncu().version
    except ToolkitError:
        return _ok("nothing to compare: ncu is not installed")
    if _numbers(module) and _numbers(ncu) > _numbers(module):
        remedy = "Run `pip install --upgrade ncu-report`"
        return _warning(f"ncu {ncu} is newer than ncu-report {module}", remedy)
    return _ok(f"ncu-report {module} reads what ncu {ncu} writes")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _tool(name: str) -> MachineCheck:
    return _ok(f"{name} {toolchain.find_tool(name).version}")


def _cupys() -> list[str]:
    """The installed packages of CuPy: each CUDA release has one of its own."""
    names = {dist.metadata["Name"] or "" for dist in importlib.metadata.distributions()}
    return sorted(name for name in names if name.lower().startswith("cupy"))


def _cupy() -> MachineCheck:
    names = _cupys()
    if len(names) > 1:
        remedy = f"Uninstall all but one: pip uninstall {' '.join(names)}"
        return _warning(f"several are installed: {', '.join(names)}", remedy)
    if not names:
        return _missing("it is not installed", extra("gpu"))
    return _ok(f"{names[0]} {importlib.metadata.version(names[0])}")


def _disk() -> MachineCheck:
    folder = cache.cache_folder()
    places = {
        "here": Path.cwd(),
        "temporary files": Path(tempfile.gettempdir()),
        "cache": next(each for each in (folder, *folder.parents) if each.exists()),
    }
    free = {label: shutil.disk_usage(path).free for label, path in places.items()}
    tight = []
    for label, path in places.items():
        if free[label] < _DISK_BYTES:
            tight.append(f"{free[label] / 2**30:.1f} GiB free for {label}")
        if not os.access(path, os.W_OK):
            tight.append(f"no permission to write for {label}")
    if tight:
        remedy = "Free space, or set TMPDIR, NCU_TOOLKIT_CACHE and --output to other folders"
        return _warning("; ".join(tight), remedy)
    return _ok(f"{min(free.values()) / 2**30:.0f} GiB free")


def _recordings() -> MachineCheck:
    from ncu_toolkit.kernel.runs import store

    found = store.recordings()
    if not found:
        return _missing("the installation has none", "Reinstall ncu-toolkit")
    return _ok(", ".join(path.name for path in found))


#: Checks by name, in order, each with the commands that need it.
_CHECKS: Final[dict[str, tuple[_Look, str]]] = {
    "Python": (lambda: _ok(f"{platform.python_version()}, ncu-toolkit {__version__}"), ""),
    "driver": (_driver, "profile, bench, probe"),
    "GPU": (_gpu, "profile, bench, probe"),
    "ncu": (_ncu, "profile"),
    "counters": (_counters, "profile"),
    "recorder": (_recorder, "a program's step (profile -- PROGRAM, probe)"),
    "report module": (lambda: _ok(f"ncu-report {_module_version()}"), "reading reports"),
    "versions": (_versions, "reading reports of this ncu"),
    "compiler": (partial(_tool, "nvcc"), "ladders: build, profile, bench"),
    "disassembler": (partial(_tool, "nvdisasm"), "static analysis of compiled kernels"),
    "CuPy": (_cupy, "ladders: profile, bench"),
    "disk": (_disk, "reports and the cache of compiled kernels"),
    "recordings": (_recordings, "report without a GPU"),
}
#: Packages whose versions change a figure or a page; CuPy is named after the CUDA release it is
#: for.
_PACKAGES: Final = (
    "ncu-report", "plotly", "pandas", "jinja2", "rich", "click", "numpy", "cuda-bindings", "nvidia-cuda-cupti", "nvidia-ml-py",
)  # fmt: skip


def versions() -> dict[str, str]:
    """Versions of the dependencies by name, with "not found" for missing ones; none is imported."""
    found = {"Python": platform.python_version()}
    for name in (*_PACKAGES, *(_cupys() or ["cupy"])):
        found[name] = _version_of(name)
    if found["ncu-report"] == "not found":
        there = ncu_action.bundled()
        found["ncu-report"] = _BUNDLED if there else "not found, which only reports need"
    tools: dict[str, Callable[[], collect.Ncu | toolchain.Tool]] = {
        "ncu": collect.find_ncu,
        "CUDA compiler": lambda: toolchain.find_tool("nvcc"),
    }
    for name, look in tools.items():
        try:
            found[name] = look().version
        except ToolkitError:
            found[name] = "not found"
    driver = _driver()
    found["driver"] = driver.found if driver.state == "ok" else "not found"
    return found


def works(checks: tuple[MachineCheck, ...]) -> dict[str, bool]:
    """Which commands work here."""
    state = {check.name: check.state for check in checks}

    def there(*names: str) -> bool:
        return all(state.get(name) != "missing" for name in names)

    reading, counters = state.get("report module") == "ok", there("ncu", "counters")
    gpu = reading and there("driver", "GPU", "compiler", "CuPy")
    return {
        "analyze": reading,
        "report": reading and state.get("recordings") == "ok",
        "bench": gpu,
        "profile a ladder": gpu and counters,
        "profile a program": reading and counters and there("driver"),
        "probe": state.get("recorder") == "ok" and there("driver"),
    }
