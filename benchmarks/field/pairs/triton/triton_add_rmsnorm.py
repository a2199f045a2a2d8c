"""Residual addition and RMS norm of 16384 tokens of 4096 channels, fp16."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 16384, 4096


@triton.jit
def add_residual(x, residual, out, COLS: tl.constexpr):
    where = tl.program_id(0) * COLS + tl.arange(0, COLS)
    tl.store(out + where, tl.load(x + where) + tl.load(residual + where))


@triton.jit
def rms_norm(x, residual, gain, out, COLS: tl.constexpr, ADD: tl.constexpr):
    channel = tl.arange(0, COLS)
    where = tl.program_id(0) * COLS + channel
    value = tl.load(x + where)
    if ADD:
        value += tl.load(residual + where)
    value = value.to(tl.float32)
    value *= tl.rsqrt(tl.sum(value * value, axis=0) / COLS + 1e-6)
    value *= tl.load(gain + channel).to(tl.float32)
    tl.store(out + where, value.to(tl.float16))


def inputs():
    torch.manual_seed(15)
    x, residual = (torch.randn(ROWS, COLS, device="cuda", dtype=torch.float16) for _ in range(2))
    return x, residual, torch.rand(COLS, device="cuda", dtype=torch.float16)


def make(variant, x, residual, gain):
    out, between = torch.empty_like(x), torch.empty_like(x)

    def run():
        if variant == "before":
            add_residual[(ROWS,)](x, residual, between, COLS, num_warps=8)
            rms_norm[(ROWS,)](between, between, gain, out, COLS, False, num_warps=8)
        else:
            rms_norm[(ROWS,)](x, residual, gain, out, COLS, True, num_warps=8)

    return Work(run, lambda: out[::5].float().cpu().numpy())


PAIR = Pair(
    inputs,
    make,
    {"before": Launch("add_residual"), "after": Launch("rms_norm")},
    tolerance=5e-3,
)
