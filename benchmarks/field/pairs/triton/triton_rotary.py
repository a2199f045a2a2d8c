"""Rotary position embedding of 16384 tokens, 32 heads of 128 channels, fp16."""

import torch
import triton
import triton.language as tl

from benchmarks.field import Launch, Pair, Work

TOKENS, HEADS, HALF = 16384, 32, 64
STEP = 13.287712379549449 / HALF  # log2(10000) a channel


@triton.jit
def rotary(
    x, y, cosines, sines, STEP: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
    TABLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channel = pair % HALF
    row = pair // HALF
    token = row // HEADS
    if TABLE:
        cosine = tl.load(cosines + token * HALF + channel)
        sine = tl.load(sines + token * HALF + channel)
    else:
        angle = token.to(tl.float32) * tl.exp2(-STEP * channel.to(tl.float32))
        cosine = tl.cos(angle)
        sine = tl.sin(angle)
    first = row * (2 * HALF) + channel
    a = tl.load(x + first).to(tl.float32)
    b = tl.load(x + first + HALF).to(tl.float32)
    tl.store(y + first, (a * cosine - b * sine).to(tl.float16))
    tl.store(y + first + HALF, (b * cosine + a * sine).to(tl.float16))


def inputs():
    torch.manual_seed(8)
    channel = torch.arange(HALF, device="cuda", dtype=torch.float32)
    token = torch.arange(TOKENS, device="cuda", dtype=torch.float32)
    angle = token[:, None] * torch.exp2(-STEP * channel)[None, :]
    x = torch.randn(TOKENS, HEADS, 2 * HALF, device="cuda", dtype=torch.float16)
    return x, angle.cos(), angle.sin()


def make(variant, x, cosines, sines):
    y = torch.empty_like(x)
    table = variant == "after"
    programs = TOKENS * HEADS * HALF // 1024

    def run():
        rotary[(programs,)](x, y, cosines, sines, STEP, HEADS, HALF, table, 1024)

    return Work(run, lambda: y[::5].float().cpu().numpy())


PAIR = Pair(inputs, make, Launch("rotary"), tolerance=2e-2)
