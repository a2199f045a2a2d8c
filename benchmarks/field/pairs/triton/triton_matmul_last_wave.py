"""Product of a 2176x8192 and an 8192x2048 fp16 matrix."""

import torch

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.triton._matmul import launch

M, N, K = 17 * 128, 8 * 256, 8192


def inputs():
    torch.manual_seed(13)
    return (
        torch.randn(M, K, device="cuda", dtype=torch.float16),
        torch.randn(K, N, device="cuda", dtype=torch.float16),
    )


def make(variant, a, b):
    # 136 tiles on 132 SMs, or twice as many of half the size
    tile, warps = ((128, 256, 64), 8) if variant == "before" else ((128, 128, 64), 4)
    c = torch.empty(M, N, device="cuda", dtype=torch.float16)
    return Work(
        lambda: launch(a, b, c, tile, num_warps=warps, num_stages=3),
        lambda: c.float().cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("matmul"), tolerance=5e-3)
