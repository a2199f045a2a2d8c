"""Softmax over the rows of a tall matrix with 64 columns."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 1 << 19, 64


@triton.jit
def softmax_rows(x, y, COLS: tl.constexpr, TAKE: tl.constexpr):
    rows = tl.program_id(0) * TAKE + tl.arange(0, TAKE)
    where = rows[:, None] * COLS + tl.arange(0, COLS)[None, :]
    value = tl.load(x + where)
    value = tl.exp(value - tl.max(value, axis=1)[:, None])
    tl.store(y + where, value / tl.sum(value, axis=1)[:, None])


def inputs():
    torch.manual_seed(1)
    return (torch.randn(ROWS, COLS, device="cuda"),)


def make(variant, x):
    take = 1 if variant == "before" else 32  # rows a program
    y = torch.empty_like(x)
    return Work(lambda: softmax_rows[(ROWS // take,)](x, y, COLS, take), lambda: y.cpu().numpy())


PAIR = Pair(inputs, make, Launch("softmax_rows"), tolerance=1e-4)
