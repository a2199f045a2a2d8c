"""ncu-toolkit: build a ladder of CUDA kernels, profile it with Nsight Compute, and explain each
step's bottleneck."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ncu_toolkit.api import (
        KernelLaunch,
        ProgramTrace,
        Report,
        ReportComparison,
        TraceComparison,
        compare,
        load,
        profile,
        profile_program,
        step,
    )

__version__ = "0.1.0"
#: Where the package is installed.
PACKAGE: Final = Path(__file__).resolve().parent
__all__ = [
    "KernelLaunch",
    "ProgramTrace",
    "Report",
    "ReportComparison",
    "TraceComparison",
    "__version__",
    "compare",
    "load",
    "profile",
    "profile_program",
    "step",
]


def __getattr__(name: str) -> Any:
    # imported when first used: the command line should not wait for what it does not need
    if name in __all__:
        from ncu_toolkit import api

        return getattr(api, name)
    raise AttributeError(f"module 'ncu_toolkit' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
