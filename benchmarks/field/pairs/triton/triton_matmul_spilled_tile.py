"""Product of two 4096-square bf16 matrices, with a tile chosen by hand."""

import torch

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.triton._matmul import launch

SIZE = 4096


def inputs():
    torch.manual_seed(14)
    return tuple(torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))


def make(variant, a, b):
    tile = (256, 256, 32) if variant == "before" else (128, 128, 64)
    c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    return Work(
        lambda: launch(a, b, c, tile, num_warps=4, num_stages=3),
        lambda: c[::3].float().cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("matmul"), tolerance=2e-2)
