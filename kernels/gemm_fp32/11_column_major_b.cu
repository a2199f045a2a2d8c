/*+++
title = "B column-major in shared memory, unpadded"
idea = """\
B is stored by columns and its tile keeps that order, so global reads stay coalesced. Lanes then \
read neighbouring columns of the tile, and with rows of exactly 32 floats all of those start in \
the same bank."""
kind = "regression"
compared_with = "strided_tile"
+++*/

#include "gemm_fp32/strided_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 768 / THREADS)
column_major_b(const float* __restrict__ A, const float* __restrict__ B_col,
               float* __restrict__ C, int M, int N, int K) {
    constexpr int ACROSS = BN / TN, DOWN = BM / TM;  // threads along a row and a column of the tile
    // Rows of BK = 32 floats span all 32 banks once, so 16 lanes that read 16 rows at the same k
    // want one and the same bank.
    __shared__ float As[BM][BK + PAD_A];
    __shared__ float Bs[BN][BK + PAD];
    const int tx = threadIdx.x % ACROSS, ty = threadIdx.x / ACROSS;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        copy_tile<BM, BK>(As, A, row0, k0, M, K);
        copy_tile<BN, BK>(Bs, B_col, col0, k0, N, K);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[ty + i * DOWN][k];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[tx + j * ACROSS][k];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int row = row0 + ty + i * DOWN, col = col0 + tx + j * ACROSS;
            if (row < M && col < N) C[(size_t)row * N + col] = sum[i][j];
        }
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "SGEMM study on a V100"
claim = "3 TFLOP/s without the pad"
device = "Tesla V100"

[parameters]
BM = 64
BN = 64
BK = 32
TM = 4
TN = 4
PAD_A = 4
PAD = 0

[search]
PAD = [0, 1, 2, 4]

[[constraint]]
check = "BM % TM == 0 and BN % TN == 0 and (BM / TM) * (BN / TN) <= 1024"
says = "the tile must split evenly among at most 1024 threads"

[[constraint]]
check = "BM * BK % ((BM / TM) * (BN / TN)) == 0 and BN * BK % ((BM / TM) * (BN / TN)) == 0"
says = "every thread must copy the same number of floats"

[[constraint]]
check = "(BM * (BK + PAD_A) + BN * (BK + PAD)) * 4 <= 49152"
says = "both tiles must fit in 48 KB of shared memory"

[[launch]]
kernel = "column_major_b"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * (BN / TN)", "1", "1"]
shared = "0"
args = ["A", "B_col", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]
max_registers = 128

[[expect.profile]]
says = "most shared wavefronts are repeats"
check = "metric('shared_conflict_excess') > 0.4"

[[expect.profile]]
says = "it is slower than the same tile with B row-major"
check = "time_us > prev_time_us"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
