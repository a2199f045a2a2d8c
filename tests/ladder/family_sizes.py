"""Sizes that tests of the ladders verify: round and odd."""

from __future__ import annotations

from ncu_toolkit.kernel.ladder.problems import Problem

#: By family.
_SIZES: dict[str, tuple[str, ...]] = {
    "attention": (
        "1x64", "7x64xcausal", "64x128xcausal", "127x128", "128x64", "129x128xcausal", "200x64xcausal", "385x64",
        "517x128xcausal", "1000x128", "1024x64", "1024x128xcausal", "4096x64xcausal", "4096x128",
    ),
    "elementwise": (
        "1", "7x3", "127x129", "1000", "1023x517", "1x4097", "2048",
    ),
    "gemm_fp32": (
        "1", "7", "127", "129", "1000", "1023x517x2049", "1024", "4096",
    ),
    "gemm_tensor": (
        "1", "7", "127", "129", "1000", "1023x517x2049", "517x1023x2056", "1x8192x64", "8192x1x65", "1024", "4096",
    ),
    "pathology": (
        "1", "1000", "65537", "16777216",
    ),
    "reduction": (
        "0", "1", "7", "127", "129", "1000", "2^20", "4194305", "16777259", "2^26",
    ),
    "scan": (
        "1", "7", "127", "129", "1000", "2049", "2^20", "4194305", "16777259", "2^26",
    ),
    "softmax": (
        "1", "7x3", "127x129", "1000", "1023x517", "1x4097", "4097x1", "9x8192", "5x8196", "3x32768", "2x40001", "1024x1024",
    ),
    "transpose": (
        "1", "7x3", "127x129", "1000", "1023x517", "1x4097", "4097x1", "68x132", "1024",
    ),
}  # fmt: skip
#: Of a family that is not above.
_USUAL = ("1", "7", "127", "129", "1000", "1024")
#: Further ones by family and rung, at which it takes paths that those do not reach.
_FURTHER: dict[str, dict[str, tuple[str, ...]]] = {
    # Tiles cut along K, in equal parts; then shares that span two tiles, on a GPU of 132 SMs: with
    # rows off the 16-byte grid, and of few steps.
    "gemm_fp32": {
        "register_blocked": ("96x200x1000", "1537x1411x1001", "2304x1920x520"),
        "register_blocked_tma": ("96x200x1000", "1537x1411x1001", "1537x1411x411"),
    },
    # Several rounds of tiles on a GPU of 132 SMs, with rows off the 16-byte grid; in the second all
    # clusters run, so that they start in the order of its GPCs.
    "gemm_tensor": {
        "wgmma_fitted": ("3000x3001x1157", "5377x3001x72"),
    },
}


def verified_sizes(problem: Problem) -> tuple[str, ...]:
    """The sizes at which each rung of a family is verified."""
    return _SIZES.get(problem.family, _USUAL)


def further_sizes(problem: Problem) -> dict[str, tuple[str, ...]]:
    """Those of single rungs, by their names."""
    return _FURTHER.get(problem.family, {})
