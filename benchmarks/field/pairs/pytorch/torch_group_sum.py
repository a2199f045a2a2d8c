"""Sums of a million rows of 64 floats in 16 groups."""

import torch

from benchmarks.field import Launch, Pair, Work

ROWS, COLS, GROUPS, COPIES = 1 << 20, 64, 16, 256


def inputs():
    torch.manual_seed(5)
    group = torch.randint(0, GROUPS, (ROWS,), device="cuda")
    copy = torch.arange(ROWS, device="cuda") % COPIES
    return torch.rand(ROWS, COLS, device="cuda"), group, copy * GROUPS + group


def make(variant, x, group, spread):
    out = torch.zeros(GROUPS, COLS, device="cuda")
    private = torch.zeros(COPIES * GROUPS, COLS, device="cuda")

    def run():
        if variant == "before":
            out.zero_().index_add_(0, group, x)
        else:
            private.zero_().index_add_(0, spread, x)
            torch.sum(private.view(COPIES, GROUPS, COLS), dim=0, out=out)

    return Work(run, lambda: out.cpu().numpy())


PAIR = Pair(inputs, make, Launch("indexFunc"), tolerance=1e-3)
