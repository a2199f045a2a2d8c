"""4096 columns of a 16384x8192 matrix, picked in random order."""

import torch

from benchmarks.field import Launch, Pair, Work

ROWS, COLS, PICKED = 16384, 8192, 4096


def inputs():
    torch.manual_seed(8)
    x = torch.randn(ROWS, COLS, device="cuda")
    return x, x.t().contiguous(), torch.randperm(COLS, device="cuda")[:PICKED]


def make(variant, x, turned, columns):
    out = [x]

    def run():
        if variant == "before":
            out[0] = x.index_select(1, columns)
        else:
            out[0] = turned.index_select(0, columns).t()

    return Work(run, lambda: out[0][::3].cpu().numpy())


PAIR = Pair(inputs, make, Launch("indexSelect|index_elementwise|gather|vectorized"), tolerance=1e-7)
