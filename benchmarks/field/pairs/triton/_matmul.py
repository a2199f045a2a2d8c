"""The matrix product that several pairs launch with tiles of their own."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, c, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    a_tile = a + rows[:, None] * K + ks[None, :]
    b_tile = b + ks[:, None] * N + cols[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total, input_precision=PRECISION)
        a_tile += BK
        b_tile += BK * N
    tl.store(c + rows[:, None] * N + cols[None, :], total.to(c.dtype.element_ty))


def launch(a, b, c, tile, precision="tf32", **options):
    """c = a @ b; sizes are multiples of the tile (BM, BN, BK)."""
    (m, k), n = a.shape, b.shape[1]
    matmul[(m // tile[0], n // tile[1])](a, b, c, n, k, *tile, precision, **options)
