/*+++
title = "B column-major in shared memory, padded"
idea = """\
The same code with four unused floats after each row of the tile. Neighbouring rows now start four \
banks apart, so a row's quartets are read 16 bytes per lane without conflicts; a pad of one also \
spreads the banks but leaves rows unaligned, and reads scalar."""
kind = "step"
compared_with = "column_major_b"
removes = "shared-bank-conflict"
+++*/

#include "gemm_fp32/strided_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 768 / THREADS)
column_major_b_padded(const float* __restrict__ A, const float* __restrict__ B_col,
                      float* __restrict__ C, int M, int N, int K) {
    constexpr int ACROSS = BN / TN, DOWN = BM / TM;  // threads along a row and a column of the tile
    // PAD = 4 and not the usual 1: rows stay 16-byte aligned, and eight lanes that read 16 bytes
    // each cover the 32 banks exactly once.
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
claim = "6 TFLOP/s with a pad of one against 3 without; 7.9 TFLOP/s at best"
device = "Tesla V100"

[parameters]
BM = 64
BN = 64
BK = 32
TM = 4
TN = 4
PAD_A = 4
PAD = 4

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
kernel = "column_major_b_padded"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * (BN / TN)", "1", "1"]
shared = "0"
args = ["A", "B_col", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]
max_registers = 128

[[expect.profile]]
says = "the pad ends the conflicts"
check = "metric('shared_conflict_excess') < 0.05"

[[expect.profile]]
says = "the time lost to conflicts is gone"
check = "time_us < 0.8 * prev_time_us"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
