"""Product of two 4096-square fp16 matrices."""

import torch

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.triton._matmul import launch

SIZE = 4096


def inputs():
    torch.manual_seed(3)
    return tuple(torch.randn(SIZE, SIZE, device="cuda", dtype=torch.float16) for _ in range(2))


def make(variant, a, b):
    tile = (16, 16, 16) if variant == "before" else (128, 256, 64)
    warps = 4 if variant == "before" else 8
    c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.float16)
    return Work(
        lambda: launch(a, b, c, tile, num_warps=warps, num_stages=3),
        lambda: c[::3].float().cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("matmul"), tolerance=5e-3)
