"""Product of two 4096-square bf16 matrices, with the tile of a tutorial."""

import torch

from benchmarks.field import Launch, Pair, Work
from benchmarks.field.pairs.triton._matmul import launch

SIZE = 4096


def inputs():
    torch.manual_seed(16)
    return tuple(torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))


def make(variant, a, b):
    stages = 1 if variant == "before" else 4
    c = torch.empty(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    return Work(
        lambda: launch(a, b, c, (128, 256, 64), num_warps=8, num_stages=stages),
        lambda: c[::3].float().cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("matmul"), tolerance=2e-2)
