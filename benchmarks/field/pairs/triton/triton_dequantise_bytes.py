"""Dequantisation of 64 million int8 values to fp16."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

COUNT = 1 << 26


@triton.jit
def dequantise(x, y, scale, BLOCK: tl.constexpr):
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + where).to(tl.float32) * scale
    tl.store(y + where, value.to(tl.float16))


def inputs():
    torch.manual_seed(7)
    return (torch.randint(-128, 128, (COUNT,), device="cuda", dtype=torch.int8),)


def make(variant, x):
    block = 128 if variant == "before" else 4096
    y = torch.empty(COUNT, device="cuda", dtype=torch.float16)
    return Work(
        lambda: dequantise[(COUNT // block,)](x, y, 0.0125, block, num_warps=4),
        lambda: y[::7].float().cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("dequantise"), tolerance=1e-6)
