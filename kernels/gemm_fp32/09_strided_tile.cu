/*+++
title = "A thread's results 16 rows and columns apart"
idea = """\
The thread's 4 x 4 elements no longer touch: they lie 16 rows and 16 columns apart, so that \
neighbouring lanes always use neighbouring floats. Shared reads and writes then hit every bank \
once, and C is stored in whole sectors."""
kind = "step"
compared_with = "mini_tile"
removes = "shared-bank-conflict"
+++*/

#include "gemm_fp32/strided_tile.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 768 / THREADS)
strided_tile(const float* __restrict__ A, const float* __restrict__ B,
             float* __restrict__ C, int M, int N, int K) {
    constexpr int ACROSS = BN / TN, DOWN = BM / TM;  // threads along a row and a column of the tile
    // A warp spans two rows of threads, which read neighbouring rows of A's tile: the pad keeps
    // those in different banks.
    __shared__ float As[BM][BK + PAD_A];
    __shared__ float Bs[BK][BN];
    const int tx = threadIdx.x % ACROSS, ty = threadIdx.x / ACROSS;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        copy_tile<BM, BK>(As, A, row0, k0, M, K);
        copy_tile<BK, BN>(Bs, B, k0, col0, K, N);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[ty + i * DOWN][k];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx + j * ACROSS];
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
claim = "6.7 TFLOP/s"
device = "Tesla V100"

[parameters]
BM = 64
BN = 64
BK = 32
TM = 4
TN = 4
PAD_A = 4

[search]
BM = [32, 64, 128]
BN = [32, 64, 128]
BK = [16, 32]

[[constraint]]
check = "BM % TM == 0 and BN % TN == 0 and (BM / TM) * (BN / TN) <= 1024"
says = "the tile must split evenly among at most 1024 threads"

[[constraint]]
check = "BM * BK % ((BM / TM) * (BN / TN)) == 0 and BN * BK % ((BM / TM) * (BN / TN)) == 0"
says = "every thread must copy the same number of floats"

[[constraint]]
check = "(BM * (BK + PAD_A) + BK * BN) * 4 <= 49152"
says = "both tiles must fit in 48 KB of shared memory"

[[launch]]
kernel = "strided_tile"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * (BN / TN)", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]
max_registers = 128

[[expect.profile]]
says = "shared accesses do not conflict"
check = "metric('shared_conflict_excess') < 0.05"

[[expect.profile]]
says = "a store of C touches four sectors, all of them in full"
check = "abs(metric('st_sectors_per_request') - 4) < 0.1"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
