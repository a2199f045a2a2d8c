"""Attention of 64 heads over 2048 tokens with 64 channels, fp16."""

import torch

from benchmarks.field import Launch, Pair, Work

BATCH, HEADS, TOKENS, DIM = 4, 16, 2048, 64


def inputs():
    torch.manual_seed(7)
    shape = (BATCH, HEADS, TOKENS, DIM)
    return tuple(torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))


def make(variant, q, k, v):
    out = [q]

    def run():
        if variant == "before":
            scores = q @ k.transpose(-1, -2) * DIM**-0.5
            out[0] = torch.softmax(scores, dim=-1) @ v
        else:
            out[0] = torch.nn.functional.scaled_dot_product_attention(q, k, v)

    return Work(run, lambda: out[0].float().cpu().numpy())


PAIR = Pair(
    inputs,
    make,
    {"before": Launch("[Ss]oft[Mm]ax"), "after": Launch("flash|fmha|sdpa|cudnn")},
    tolerance=2e-2,
)
