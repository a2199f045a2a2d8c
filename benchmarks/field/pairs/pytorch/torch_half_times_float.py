"""Activations of 16384 tokens and 4096 channels times a gain a channel, fp16."""

import torch

from benchmarks.field import Launch, Pair, Work

ROWS, COLS = 16384, 4096


def inputs():
    torch.manual_seed(9)
    x = torch.randn(ROWS, COLS, device="cuda", dtype=torch.float16)
    gain = torch.rand(COLS, device="cuda", dtype=torch.float16)
    return x, gain


def make(variant, x, gain):
    weight = gain.float() if variant == "before" else gain
    out = [x]

    def run():
        # fp16 times float32 is float32, and casting back is one more pass
        out[0] = (x * weight).half()

    return Work(run, lambda: out[0][::5].float().cpu().numpy())


PAIR = Pair(inputs, make, Launch("elementwise_kernel"), tolerance=2e-3)
