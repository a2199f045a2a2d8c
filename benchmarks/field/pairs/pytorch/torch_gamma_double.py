"""Gamma correction of 16 million values that came from NumPy as float64."""

import torch

from benchmarks.field import Launch, Pair, Work

COUNT = 1 << 24


def inputs():
    torch.manual_seed(3)
    x = torch.rand(COUNT, device="cuda", dtype=torch.float64) + 0.01
    return x, x.float()


def make(variant, double, single):
    x = double if variant == "before" else single
    out = torch.empty_like(x)
    return Work(lambda: torch.pow(x, 2.2, out=out), lambda: out.cpu().numpy())


PAIR = Pair(inputs, make, Launch("elementwise_kernel"), tolerance=1e-4)
