"""Causal attention, forward: 64 heads of 2048 tokens and 64 channels, fp16."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

HEADS, TOKENS, DIM = 64, 2048, 64


@triton.jit
def attention(
    q, k, v, out, scale, TOKENS: tl.constexpr, DIM: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, STOP: tl.constexpr,
):  # fmt: skip
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * TOKENS * DIM
    rows = block * BM + tl.arange(0, BM)
    columns = tl.arange(0, BN)
    channels = tl.arange(0, DIM)
    query = tl.load(q + base + rows[:, None] * DIM + channels[None, :])
    top = tl.full((BM,), -1e30, dtype=tl.float32)
    weight = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, DIM), dtype=tl.float32)
    last = TOKENS
    if STOP:
        last = (block + 1) * BM
    for start in range(0, last, BN):
        key = tl.load(k + base + (start + columns)[None, :] * DIM + channels[:, None])
        score = tl.dot(query, key) * scale
        score = tl.where(rows[:, None] >= (start + columns)[None, :], score, -1e30)
        higher = tl.maximum(top, tl.max(score, axis=1))
        p = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(top - higher)
        weight = weight * shrink + tl.sum(p, axis=1)
        value = tl.load(v + base + (start + columns)[:, None] * DIM + channels[None, :])
        total = tl.dot(p.to(tl.float16), value, total * shrink[:, None])
        top = higher
    total = total / weight[:, None]
    tl.store(out + base + rows[:, None] * DIM + channels[None, :], total.to(tl.float16))


def inputs():
    torch.manual_seed(5)
    shape = (HEADS, TOKENS, DIM)
    return tuple(torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))


def make(variant, q, k, v):
    out = torch.empty_like(q)
    stop = variant == "after"  # leave out the blocks that the mask hides
    scale = DIM**-0.5 * 1.4426950408889634

    def run():
        attention[(TOKENS // 128, HEADS)](
            q, k, v, out, scale, TOKENS, DIM, 128, 64, stop, num_warps=4, num_stages=3
        )

    return Work(run, lambda: out.float().cpu().numpy())


PAIR = Pair(inputs, make, Launch("attention"), tolerance=1e-2)
