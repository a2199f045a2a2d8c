"""Product of two 4096-square float32 matrices for a network that tolerates TF32."""

import torch

from benchmarks.field import Launch, Pair, Work

SIZE = 4096


def inputs():
    torch.manual_seed(2)
    return tuple(torch.randn(SIZE, SIZE, device="cuda") for _ in range(2))


def make(variant, a, b):
    out = torch.empty(SIZE, SIZE, device="cuda")

    def run():
        torch.backends.cuda.matmul.allow_tf32 = variant == "after"
        torch.mm(a, b, out=out)

    return Work(run, lambda: out[::3].cpu().numpy())


PAIR = Pair(inputs, make, Launch("gemm|cutlass|xmma|nvjet"), tolerance=1e-2)
