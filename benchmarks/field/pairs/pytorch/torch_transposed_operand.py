"""Product, element by element, of two 8192x4096 float32 matrices."""

import torch

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 8192, 4096


def inputs():
    torch.manual_seed(4)
    a = torch.randn(ROWS, COLS, device="cuda")
    b = torch.randn(COLS, ROWS, device="cuda")
    return a, b, b.t().contiguous()


def make(variant, a, b, b_turned):
    out = torch.empty_like(a)
    other = b.t() if variant == "before" else b_turned
    return Work(lambda: torch.mul(a, other, out=out), lambda: out.cpu().numpy())


PAIR = Pair(inputs, make, Launch("elementwise_kernel"), tolerance=1e-7)
