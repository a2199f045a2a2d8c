"""Histogram of 8 million small integers in 64 bins."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

COUNT, BINS = 1 << 23, 64


@triton.jit
def count_each(x, bins, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(x + where), 1)


@triton.jit
def count_block(x, bins, BINS: tl.constexpr, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x + where), BINS)
    tl.atomic_add(bins + tl.arange(0, BINS), counts)


def inputs():
    torch.manual_seed(6)
    return (torch.randint(0, BINS, (COUNT,), device="cuda", dtype=torch.int32),)


def make(variant, x):
    bins = torch.zeros(BINS, device="cuda", dtype=torch.int32)

    def run():
        bins.zero_()
        if variant == "before":
            count_each[(COUNT // 1024,)](x, bins, 1024)
        else:
            count_block[(COUNT // 8192,)](x, bins, BINS, 8192)

    return Work(run, lambda: bins.cpu().numpy())


PAIR = Pair(inputs, make, Launch("count_(each|block)"), tolerance=1e-9)
