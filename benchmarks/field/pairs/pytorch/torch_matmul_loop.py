"""Products of 512 pairs of 64-square float32 matrices."""

import torch

from benchmarks.field import Launch, Pair, Work

COUNT, SIZE = 512, 64


def inputs():
    torch.manual_seed(10)
    return tuple(torch.randn(COUNT, SIZE, SIZE, device="cuda") for _ in range(2))


def make(variant, a, b):
    out = torch.empty(COUNT, SIZE, SIZE, device="cuda")

    def run():
        torch.backends.cuda.matmul.allow_tf32 = False
        if variant == "before":
            for i in range(COUNT):
                torch.mm(a[i], b[i], out=out[i])
        else:
            torch.bmm(a, b, out=out)

    return Work(run, lambda: out.cpu().numpy())


PAIR = Pair(
    inputs,
    make,
    {
        "before": Launch("gemm|cutlass|xmma|nvjet|dot", 100),
        "after": Launch("gemm|cutlass|xmma|nvjet"),
    },
    tolerance=1e-4,
)
