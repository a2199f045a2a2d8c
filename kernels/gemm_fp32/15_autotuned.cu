/*+++
title = "Tuned tile sizes"
idea = """\
The vectorised kernel with every tile size a parameter: block tile BM x BN, depth BK, TM x TN \
results per thread. How much work a thread should own depends on the GPU's registers and shared \
memory, so a search picks the sizes."""
kind = "step"
compared_with = "vectorized"
removes = "shared-instruction-pressure"
+++*/

#include "common/gemm_registers.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0, "every thread loads the same number of quartets");

template <bool ALIGNED>
__device__ __forceinline__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, int m0, int n0,
                                         float (&a_tile)[BK][BM], float (&b_tile)[BK][BN]) {
    const int thread_row = threadIdx.x / (BN / TN) * TM, thread_column = threadIdx.x % (BN / TN) * TN;
    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
        for (int q = 0; q < BM * BK / 4; q += THREADS) {
            const int row = (q + threadIdx.x) / (BK / 4), k = (q + threadIdx.x) % (BK / 4) * 4;
            const float4 v = load_a_quartet<ALIGNED>(A, M, K, m0 + row, k0 + k);
            // Transposed, so that a thread's rows lie side by side. The lanes of one row of A write to the same bank.
            a_tile[k][row] = v.x;
            a_tile[k + 1][row] = v.y;
            a_tile[k + 2][row] = v.z;
            a_tile[k + 3][row] = v.w;
        }
#pragma unroll
        for (int q = 0; q < BK * BN / 4; q += THREADS) {
            const int k = (q + threadIdx.x) / (BN / 4), column = (q + threadIdx.x) % (BN / 4) * 4;
            store_float4(&b_tile[k][column], load_b_quartet<ALIGNED>(B, N, K, k0 + k, n0 + column));
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float4 a[TM / 4], b[TN / 4];
#pragma unroll
            for (int i = 0; i < TM / 4; ++i) a[i] = load_float4(&a_tile[k][thread_row + 4 * i]);
#pragma unroll
            for (int j = 0; j < TN / 4; ++j) b[j] = load_float4(&b_tile[k][thread_column + 4 * j]);
            add_outer_product(sum, a, b);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = m0 + thread_row + i;
        if (row < M) store_row<ALIGNED, 4>(C, N, row, n0 + thread_column, sum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
autotuned(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ __align__(16) float a_tile[BK][BM];
    __shared__ __align__(16) float b_tile[BK][BN];
    const int tiles_n = (N - 1) / BN + 1, m0 = blockIdx.x / tiles_n * BM, n0 = blockIdx.x % tiles_n * BN;
    if (rows_are_aligned(A, B, C, N, K)) multiply<true>(A, B, C, M, N, K, m0, n0, a_tile, b_tile);
    else multiply<false>(A, B, C, M, N, K, m0, n0, a_tile, b_tile);
}

/*+++
minimum_cc = "8.0"

[source]
document = "GEMM worklog"
claim = "20 TFLOP/s with 128/128/16/8/8 (12.6 on an A100 with 64/64/16/4/4)"
device = "RTX A6000"

[parameters]
BM = 128                  # rows of a block's tile
BN = 128                  # columns of a block's tile
BK = 16                   # how much of K a block holds at a time
TM = 8                    # rows of a thread's tile
TN = 8                    # columns of a thread's tile

[search]
BM = [32, 64, 128, 256]
BN = [32, 64, 128, 256]
BK = [8, 16, 32]
TM = [4, 8, 16]
TN = [4, 8, 16]
[[constraint]]
check = "BM % TM == 0 and BN % TN == 0"
says = "the tile must split evenly among threads"
[[constraint]]
check = "(BM // TM) * (BN // TN) >= 32 and (BM // TM) * (BN // TN) <= 1024 and (BM // TM) * (BN // TN) % 32 == 0"
says = "a block is whole warps, at most 1024 threads"
[[constraint]]
check = "BM * BK % (4 * (BM // TM) * (BN // TN)) == 0 and BK * BN % (4 * (BM // TM) * (BN // TN)) == 0"
says = "every thread must load the same number of quartets of each tile"
[[constraint]]
check = "4 * (BM + BN) * BK <= 49152"
says = "static shared memory ends at 48 KiB"
[[constraint]]
check = "TM * TN <= 128 and (BM // TM) * (BN // TN) * (TM * TN + 40) <= 65536"
says = """\
the accumulators and some forty other registers of all threads must fit in the register file"""

[[launch]]
kernel = "autotuned"
grid = ["ceil_div(M, BM) * ceil_div(N, BN)", "1", "1"]
block = ["(BM // TM) * (BN // TN)", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E.128", "STS.128", "LDS.128", "FFMA", "STG.E.128"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "one FFMA for each lane and product"
check = "executed('FFMA') == M * N * K / 32"
[[expect.profile]]
says = "more results per thread, so fewer shared loads"
check = "executed('LDS') < prev_executed('LDS')"

[[measured]]
gpu = "NVIDIA H200"
says = """\
2.5 times the time of vectorized at 512, which was not searched: tiles of 128 x 128 are 16 blocks \
for 132 SMs, those of vectorized 64."""
+++*/
