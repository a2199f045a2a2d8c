"""What works on this machine and what does not, each with its remedy. A check that fails does not
stop the others."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ncu_toolkit import __version__
from ncu_toolkit.build import toolchain
from ncu_toolkit.core import cache
from ncu_toolkit.core.errors import ToolkitError, extra
from ncu_toolkit.gpu import collect
from ncu_toolkit.report import ncu_module

State = Literal["ok", "warning", "missing"]

#: Free space that a ladder needs: the reports of 22 rungs at two sizes took 40 MB, and ncu writes
#: temporary copies.
_DISK_BYTES: Final = 2 << 30
_PARAMETERS: Final = Path("/proc/driver/nvidia/params")
_DRIVER: Final = Path("/proc/driver/nvidia/version")
_STATUS: Final = Path("/proc/self/status")
_CAP_SYS_ADMIN: Final = 21
_CAP_PERFMON: Final = 38
#: The first driver that takes CAP_PERFMON (NVIDIA, "ERR_NVGPUCTRPERM").
_PERFMON_SINCE: Final = 565


@dataclass(frozen=True)
class Check:
    """One check. `needed_for` names the commands that fail without it; `remedy` is empty where all
    is well."""

    name: str
    state: State
    found: str
    needed_for: str = ""
    remedy: str = ""


def examine() -> tuple[Check, ...]:
    """All checks; later ones depend on earlier ones."""
    return tuple(_run(name, check) for name, check in _CHECKS)


def _run(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except ToolkitError as error:
        return Check(name, "missing", error.message, _NEEDED.get(name, ""), error.remedy)
    except Exception as error:
        return Check(
            name,
            "warning",
            f"this check failed: {type(error).__name__}: {error}",
            _NEEDED.get(name, ""),
        )


_NEEDED: Final = {
    "driver": "profile, bench, record",
    "GPU": "profile, bench, record",
    "ncu": "profile, record",
    "counters": "profile, record",
    "CUPTI": "probe",
    "report module": "reading reports",
    "versions": "reading reports of this ncu",
    "compiler": "ladders: build, profile, bench",
    "disassembler": "static analysis of compiled kernels",
    "CuPy": "ladders: profile, bench",
    "disk": "reports and the cache of compiled kernels",
    "recordings": "report without a GPU",
}


def _python() -> Check:
    return Check("Python", "ok", f"{platform.python_version()}, ncu-toolkit {__version__}")


def _driver() -> Check:
    try:
        text = _DRIVER.read_text(encoding="utf-8")
    except OSError:
        if shutil.which("nvidia-smi"):
            return Check(
                "driver",
                "warning",
                f"nvidia-smi exists, {_DRIVER} does not",
                _NEEDED["driver"],
                "This is normal in WSL. Elsewhere, load the NVIDIA kernel module",
            )
        return Check(
            "driver",
            "missing",
            "no NVIDIA driver is loaded",
            _NEEDED["driver"],
            "Install one on a machine with a GPU; `ncu-toolkit report` and `analyze` need none",
        )
    found = re.search(r"Kernel Module\D*?(?:for \S+ +)?(\d+\.\d+(?:\.\d+)?)", text)
    return Check("driver", "ok", found.group(1) if found else text.splitlines()[0])


def _gpu() -> Check:
    from ncu_toolkit.gpu import cuda

    try:
        device = cuda.device()
        name, cc = (
            f"{device.name}, CC {device.cc[0]}.{device.cc[1]}, {device.sm_count} SMs",
            device.cc,
        )
    except ToolkitError:
        found = _from_smi()
        if found is None:
            raise
        name, cc = found
    if cc < (7, 0):
        return Check(
            "GPU",
            "missing",
            name,
            _NEEDED["GPU"],
            "Nsight Compute needs a GPU from Volta (CC 7.0) on",
        )
    return Check("GPU", "ok", name)


def _from_smi() -> tuple[str, tuple[int, int]] | None:
    """The first GPU as nvidia-smi names it, for machines without CuPy."""
    try:
        answer = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = (
        re.match(r"(.+), (\d+)\.(\d+)$", answer.stdout.splitlines()[0]) if answer.stdout else None
    )
    return (
        (f"{found[1]}, CC {found[2]}.{found[3]}", (int(found[2]), int(found[3]))) if found else None
    )


def _ncu() -> Check:
    ncu = collect.find_ncu()
    if ncu.stock_sections is None:
        remedy = "Set NCU to the ncu of a complete installation. ncu-toolkit's own sections work without them"
        return Check(
            "ncu",
            "warning",
            f"{ncu.version}, but its section files are missing",
            "profile --set full",
            remedy,
        )
    return Check("ncu", "ok", ncu.version)


def _counters() -> Check:
    try:
        text = _PARAMETERS.read_text(encoding="utf-8")
    except OSError:
        return Check(
            "counters",
            "warning",
            "no driver here, so permissions of the performance counters are not known",
            _NEEDED["counters"],
        )
    found = re.search(r"RmProfilingAdminOnly:\s*(\d)", text)
    if found is None:
        return Check(
            "counters",
            "warning",
            "the driver does not report who may read the performance counters",
            _NEEDED["counters"],
            "Try: ncu --set basic <program>",
        )
    if found.group(1) == "0":
        return Check("counters", "ok", "every user may read them")
    if may_profile():
        return Check("counters", "ok", "only administrators may read them, and this process may")
    remedy = f"{collect.PERMIT}. `ncu-toolkit probe` works without counters"
    return Check(
        "counters",
        "missing",
        "only administrators may read them (RmProfilingAdminOnly: 1)",
        _NEEDED["counters"],
        remedy,
    )


def _cupti() -> Check:
    try:
        version = importlib.metadata.version("cupti-python")
    except importlib.metadata.PackageNotFoundError:
        return Check(
            "CUPTI",
            "warning",
            "cupti-python is not installed",
            _NEEDED["CUPTI"],
            extra("probe"),
        )
    return Check("CUPTI", "ok", f"cupti-python {version}")


def may_profile() -> bool:
    """Whether this process has what the driver requires for performance counters: CAP_SYS_ADMIN, or
    from driver 565 on CAP_PERFMON."""
    try:
        found = re.search(r"CapEff:\s*([0-9a-f]+)", _STATUS.read_text(encoding="utf-8"))
    except OSError:
        return os.geteuid() == 0
    held = int(found.group(1), 16) if found else 0
    enough = {_CAP_SYS_ADMIN, *([_CAP_PERFMON] if _release() >= _PERFMON_SINCE else [])}
    return any(held >> capability & 1 for capability in enough)


def _release() -> int:
    """The driver's release, 565 of 565.57.01; 0 where it is not known."""
    try:
        return int(_driver().found.partition(".")[0])
    except ValueError:
        return 0


def _module() -> Check:
    ncu_module.module()
    return Check("report module", "ok", f"ncu-report {ncu_module.version()}")


def _versions() -> Check:
    """The module reads reports of its own version and older ones."""
    module = ncu_module.version()
    try:
        ncu = collect.find_ncu().version
    except ToolkitError:
        return Check("versions", "ok", "there is no ncu here to compare ncu-report with")
    newer = _numbers(ncu) > _numbers(module)
    if newer and _numbers(module):
        return Check(
            "versions",
            "warning",
            f"ncu {ncu} is newer than ncu-report {module}",
            _NEEDED["versions"],
            "Run `pip install --upgrade ncu-report`",
        )
    return Check("versions", "ok", f"ncu-report {module} reads what ncu {ncu} writes")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _tool(name: str, label: str) -> Callable[[], Check]:
    def check() -> Check:
        return Check(label, "ok", f"{name} {toolchain.find_tool(name).version}")

    return check


def _cupy() -> Check:
    names = [
        dist.metadata["Name"]
        for dist in importlib.metadata.distributions()
        if (dist.metadata["Name"] or "").lower().startswith("cupy")
    ]
    if len(set(names)) > 1:
        remedy = f"Uninstall all but one: pip uninstall {' '.join(sorted(set(names)))}"
        return Check(
            "CuPy",
            "warning",
            f"several are installed: {', '.join(sorted(set(names)))}",
            _NEEDED["CuPy"],
            remedy,
        )
    if not names:
        return Check(
            "CuPy",
            "missing",
            "it is not installed",
            _NEEDED["CuPy"],
            extra("gpu"),
        )
    return Check("CuPy", "ok", f"{names[0]} {importlib.metadata.version(names[0])}")


def _disk() -> Check:
    places = {
        "here": Path.cwd(),
        "temporary files": Path(tempfile.gettempdir()),
        "cache": _existing(cache.cache_folder()),
    }
    tight = []
    for label, path in places.items():
        free = shutil.disk_usage(path).free
        if free < _DISK_BYTES:
            tight.append(f"{free / 2**30:.1f} GiB free for {label}")
        if not os.access(path, os.W_OK):
            tight.append(f"no permission to write for {label}")
    if tight:
        return Check(
            "disk",
            "warning",
            "; ".join(tight),
            _NEEDED["disk"],
            "Free space, or set TMPDIR, NCU_TOOLKIT_CACHE and --output to other folders",
        )
    return Check(
        "disk",
        "ok",
        f"{min(shutil.disk_usage(path).free for path in places.values()) / 2**30:.0f} GiB free",
    )


def _existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _recordings() -> Check:
    from ncu_toolkit.runs import store

    found = store.recordings()
    if not found:
        return Check(
            "recordings",
            "missing",
            "the installation has none",
            _NEEDED["recordings"],
            "Reinstall ncu-toolkit",
        )
    return Check("recordings", "ok", ", ".join(path.name for path in found))


_CHECKS: Final[tuple[tuple[str, Callable[[], Check]], ...]] = (
    ("Python", _python),
    ("driver", _driver),
    ("GPU", _gpu),
    ("ncu", _ncu),
    ("counters", _counters),
    ("CUPTI", _cupti),
    ("report module", _module),
    ("versions", _versions),
    ("compiler", _tool("nvcc", "compiler")),
    ("disassembler", _tool("nvdisasm", "disassembler")),
    ("CuPy", _cupy),
    ("disk", _disk),
    ("recordings", _recordings),
)


#: Packages whose versions change a figure or a page; CuPy is named after the CUDA release it is
#: for.
_PACKAGES: Final = (
    "ncu-report",
    "plotly",
    "pandas",
    "jinja2",
    "rich",
    "click",
    "numpy",
    "cuda-bindings",
    "cupti-python",
    "nvidia-ml-py",
)


def versions() -> dict[str, str]:
    """Versions of the dependencies by name, with "not found" for missing ones; none is imported."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not found"
    cupy = sorted(
        {
            dist.metadata["Name"]
            for dist in importlib.metadata.distributions()
            if (dist.metadata["Name"] or "").lower().startswith("cupy")
        }
    )
    found |= {name: importlib.metadata.version(name) for name in cupy} or {"cupy": "not found"}
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


def works(checks: tuple[Check, ...]) -> dict[str, bool]:
    """Which commands work here."""
    state = {check.name: check.state for check in checks}
    reading = state.get("report module") == "ok"
    gpu = reading and all(
        state.get(name) != "missing" for name in ("driver", "GPU", "compiler", "CuPy")
    )
    counters = all(state.get(name) != "missing" for name in ("ncu", "counters"))
    return {
        "analyze": reading,
        "report": reading and state.get("recordings") == "ok",
        "bench": gpu,
        "profile a ladder": gpu and counters,
        "profile a program": reading and counters and state.get("driver") != "missing",
        "probe": state.get("CUPTI") == "ok" and state.get("driver") != "missing",
    }
