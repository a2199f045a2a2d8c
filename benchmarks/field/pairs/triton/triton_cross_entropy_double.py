"""Log of the sum of exponentials of each row: 2048 rows of 32768 logits."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 2048, 32768


@triton.jit
def log_sum_exp(x, out, COLS: tl.constexpr, BLOCK: tl.constexpr, DOUBLE: tl.constexpr):
    row = tl.program_id(0)
    top = tl.full((BLOCK,), -1e30, dtype=tl.float64 if DOUBLE else tl.float32)
    for start in range(0, COLS, BLOCK):
        value = tl.load(x + row * COLS + start + tl.arange(0, BLOCK))
        if DOUBLE:
            value = value.to(tl.float64)
        top = tl.maximum(top, value)
    highest = tl.max(top, axis=0)
    total = tl.zeros((BLOCK,), dtype=tl.float64 if DOUBLE else tl.float32)
    for start in range(0, COLS, BLOCK):
        value = tl.load(x + row * COLS + start + tl.arange(0, BLOCK))
        if DOUBLE:
            value = value.to(tl.float64)
        total += tl.exp(value - highest)
    tl.store(out + row, (highest + tl.log(tl.sum(total, axis=0))).to(tl.float32))


def inputs():
    torch.manual_seed(10)
    return (torch.randn(ROWS, COLS, device="cuda"),)


def make(variant, x):
    out = torch.empty(ROWS, device="cuda")
    double = variant == "before"
    return Work(
        lambda: log_sum_exp[(ROWS,)](x, out, COLS, 2048, double, num_warps=8),
        lambda: out.cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("log_sum_exp"), tolerance=1e-5)
