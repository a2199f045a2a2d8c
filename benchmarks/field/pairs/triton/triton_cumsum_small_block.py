"""Running sum along each of 2048 rows of 16384 floats."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 2048, 16384


@triton.jit
def running_sum(x, y, COLS: tl.constexpr, BLOCK: tl.constexpr):
    start_of_row = tl.program_id(0) * COLS
    carry = 0.0
    for start in range(0, COLS, BLOCK):
        where = start_of_row + start + tl.arange(0, BLOCK)
        value = tl.load(x + where)
        tl.store(y + where, tl.cumsum(value, axis=0) + carry)
        carry += tl.sum(value, axis=0)


def inputs():
    torch.manual_seed(12)
    return (torch.rand(ROWS, COLS, device="cuda"),)


def make(variant, x):
    y = torch.empty_like(x)
    block, warps = (32, 1) if variant == "before" else (4096, 8)
    return Work(
        lambda: running_sum[(ROWS,)](x, y, COLS, block, num_warps=warps),
        lambda: y[::3].cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("running_sum"), tolerance=1e-4)
