"""Sum of 64 million floats."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

COUNT = 1 << 26


@triton.jit
def partial_sums(x, parts, each, BLOCK: tl.constexpr):
    start = tl.program_id(0) * each
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for offset in range(0, each, BLOCK):
        total += tl.load(x + start + offset + tl.arange(0, BLOCK))
    tl.store(parts + tl.program_id(0), tl.sum(total, axis=0))


def inputs():
    torch.manual_seed(9)
    return (torch.rand(COUNT, device="cuda"),)


def make(variant, x):
    programs = 32 if variant == "before" else 2048
    parts = torch.empty(programs, device="cuda")
    return Work(
        lambda: partial_sums[(programs,)](x, parts, COUNT // programs, 2048),
        lambda: parts.double().sum().cpu().numpy(),
    )


PAIR = Pair(inputs, make, Launch("partial_sums"), tolerance=1e-4)
