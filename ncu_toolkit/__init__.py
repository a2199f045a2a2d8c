"""ncu-toolkit: build a ladder of CUDA kernels, profile it with Nsight Compute, and explain each
step's bottleneck."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncu_toolkit.analysis.api import Report, load, profile

__version__ = "0.1.0"
__all__ = ["Report", "__version__", "load", "profile"]


def __getattr__(name: str) -> Any:
    # imported when first used: the command line should not wait for what it does not need
    if name in ("Report", "load", "profile"):
        from ncu_toolkit.analysis import api

        return getattr(api, name)
    raise AttributeError(f"module 'ncu_toolkit' has no attribute '{name}'")
