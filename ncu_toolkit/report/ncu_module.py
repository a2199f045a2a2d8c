"""NVIDIA's report module: finding it, and whether this process may load it. The only importer of
`ncu_report`.

Modules up to at least 2025 export symbols of a C++ library of their own. Loaded after CuPy or
PyTorch, which load the system's library, such a module crashes the process (CuPy 14.2 and
ncu-report 2025.3.1, in the first `IMetric.unit()`). Loaded first, it does no harm. 2026.3.1 exports
none."""

from __future__ import annotations

import importlib
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from ncu_toolkit.core.errors import EnvironmentProblem

_MAPS: Final = Path("/proc/self/maps")
_LIBRARY: Final = "libstdc++"


def module() -> Any:
    """NVIDIA's report module: from PyPI (`ncu-report`), else from an installed Nsight Compute.

    Raises:
        EnvironmentProblem: neither is there.
    """
    return _loaded()[0]


def fits_here() -> bool:
    """Whether this process can use the module: no other C++ code was loaded before it."""
    return _loaded()[1] if "ncu_report" in sys.modules else not _others()


@lru_cache(maxsize=1)
def _loaded() -> tuple[Any, bool]:
    """The module, and whether it came first."""
    first = not _others()
    try:
        return importlib.import_module("ncu_report"), first
    except ImportError as missing:
        for folder in sorted(
            Path("/opt/nvidia/nsight-compute").glob("*/extras/python"), reverse=True
        ):
            sys.path.append(str(folder))
            try:
                return importlib.import_module("ncu_report"), first
            except ImportError:
                sys.path.remove(str(folder))
        raise EnvironmentProblem(
            f"the ncu_report module cannot be imported ({missing})", "Run `pip install ncu-report`"
        ) from None


def _others() -> bool:
    """Whether the system's C++ library is loaded in this process. False where that is unknown."""
    try:
        return _LIBRARY in _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def version() -> str:
    """Version of the report module in use.

    Raises:
        EnvironmentProblem: there is none.
    """
    return str(getattr(module(), "__version__", "")) or str(_pip_version())


def _pip_version() -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version("ncu-report")
    except importlib.metadata.PackageNotFoundError:
        return "bundled with Nsight Compute"
