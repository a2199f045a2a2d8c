"""Triton: a matrix product and a softmax."""

import torch
import triton
import triton.language as tl
from gpu_range import gpu_range


@triton.jit
def softmax_rows(x, y, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * stride + at, v / tl.sum(v, axis=0), mask=at < columns)


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        left = tl.load(a + rows[:, None] * K + (k + ks)[None, :])
        right = tl.load(b + (k + ks)[:, None] * N + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.bfloat16))


n = 1024
a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
c = torch.empty_like(a)
x = torch.randn(n, 1000, device="cuda")
y = torch.empty_like(x)


def work():
    product[(n // 128, n // 128)](a, b, c, n, n, n, BM=128, BN=128, BK=64, num_warps=8)
    softmax_rows[(n,)](x, y, 1000, 1000, BLOCK=1024, num_warps=4)
    torch.cuda.synchronize()


work()
with gpu_range():
    work()
print("triton", float((c.float() - (a @ b).float()).abs().max()), float(y[0].sum()))
