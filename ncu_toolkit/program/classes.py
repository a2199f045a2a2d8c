"""What a kernel does in its program, by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ncu_toolkit.model.profile import Launch

Arithmetic = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "int8", "fp64", ""]


@dataclass(frozen=True)
class KernelClass:
    """What kernels of a class do: `id` for rules, `label` for readers."""

    id: str
    label: str


OTHER: Final = KernelClass("other", "Other kernels")


def kernel_class(launch: Launch) -> KernelClass:
    """The class of a kernel by its name."""
    return OTHER


def arithmetic(launch: Launch) -> Arithmetic:
    """The arithmetic of a library's product or convolution, "" if its name does not prove it."""
    return ""
