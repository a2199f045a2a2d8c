"""Product of two 2048-square fp32 matrices for a network that tolerates TF32."""

import torch

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.triton._matmul import launch

SIZE = 2048


def inputs():
    torch.manual_seed(4)
    return tuple(torch.randn(SIZE, SIZE, device="cuda") for _ in range(2))


def make(variant, a, b):
    precision = "ieee" if variant == "before" else "tf32"
    tile = (64, 64, 32) if variant == "before" else (128, 128, 32)
    c = torch.empty(SIZE, SIZE, device="cuda")
    return Work(
        lambda: launch(a, b, c, tile, precision, num_warps=8, num_stages=3),
        lambda: c.cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("matmul"), tolerance=1e-2)
