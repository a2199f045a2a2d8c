"""TMA descriptors, made on the host through cuda-bindings' driver API, in this one place."""

from __future__ import annotations

import ctypes
from typing import Any

from ncu_toolkit.core.errors import EnvironmentProblem, KernelProblem, extra
from ncu_toolkit.ladder.problems import ArraySpec

_TYPES = {
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "int32": "INT32", "uint64": "UINT64", "int64": "INT64",
    "float16": "FLOAT16", "float32": "FLOAT32", "float64": "FLOAT64", "bfloat16": "BFLOAT16",
}  # fmt: skip
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}
#: Size of a CUtensorMap in bytes (cuda.h: 16 64-bit words).
_TENSOR_MAP_BYTES = 128


def encode(array: Any, spec: ArraySpec, box: tuple[int, ...], swizzle: int) -> bytes:
    """The 128-byte CUtensorMap of a row-major array.

    Args:
        array: device array; its base must be 16-byte aligned, and every row pitch a multiple of 16
            bytes.
        box: tile extents, innermost first. swizzle: 0, 32, 64 or 128 bytes.

    Raises:
        EnvironmentProblem: cuda-bindings is missing. KernelProblem: the driver refuses the
            description.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        raise EnvironmentProblem(
            "cuda-bindings is missing; it makes the TMA descriptors",
            extra("gpu"),
        ) from None
    extents = list(reversed(spec.shape))
    item = spec.nbytes // max(1, _count(spec.shape))
    strides = []
    pitch = item
    for extent in extents[:-1]:
        pitch *= extent
        strides.append(pitch)
    rank = len(extents)
    status, described = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[spec.dtype]}"),
        rank,
        array.data.ptr,
        [driver.cuuint64_t(extent) for extent in extents],
        [driver.cuuint64_t(stride) for stride in strides],
        [driver.cuuint32_t(extent) for extent in box],
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[swizzle]}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if int(status) != 0:
        raise KernelProblem(
            f"the driver refuses a tensor map over {spec.shape} {spec.dtype} with box {box} and swizzle {swizzle}: {status.name}"
        )
    return ctypes.string_at(int(described.getPtr()), _TENSOR_MAP_BYTES)


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total
