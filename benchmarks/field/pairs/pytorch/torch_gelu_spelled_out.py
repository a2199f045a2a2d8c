"""GELU (tanh form) of 32 million activations."""

import torch

from benchmarks.field import Launch, Pair, Work

COUNT = 1 << 25


def inputs():
    torch.manual_seed(1)
    return (torch.randn(COUNT, device="cuda"),)


def make(variant, x):
    out = [x]

    def run():
        if variant == "before":
            inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
            out[0] = 0.5 * x * (1.0 + torch.tanh(inner))
        else:
            out[0] = torch.nn.functional.gelu(x, approximate="tanh")

    return Work(run, lambda: out[0].cpu().numpy())


PAIR = Pair(inputs, make, Launch("elementwise_kernel"), tolerance=1e-4)
