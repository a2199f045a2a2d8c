/*+++
title = "A warp tile between block and thread"
idea = """\
The 32 threads of a warp own one compact patch of the tile, 8x4 threads with their results in \
quartets spread over it, and A is stored with its quartets permuted. Every shared access then \
touches each bank once, so the loads that the FMAs wait for come in the fewest wavefronts. More \
ready warps then wait for their turn (not selected)."""
kind = "step"
compared_with = "autotuned"
removes = "shared-bank-conflict"
+++*/

#include "common/gemm_registers.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int WM = 8 * TM, WN = 4 * TN;  // what a warp of 8x4 threads owns
static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0, "every thread loads the same number of quartets");

// Where quartet `quartet` of rows begins in the transposed tile of A at k. The quartets are permuted differently for each four k, since
// the lanes that transpose neighbouring quartets of one row would all write to the same bank otherwise.
__device__ __forceinline__ constexpr int a_place(int k, int quartet) { return k * BM + ((quartet ^ (k / 4 * (32 / BK) % 8)) * 4); }

template <bool ALIGNED>
__device__ __forceinline__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, int m0, int n0,
                                         float* a_tile, float* b_tile) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    // The thread's first row and column; it owns quartets of rows 32 apart and quartets of columns 16 apart.
    const int thread_row = warp / (BN / WN) * WM + lane / 4 * 4, thread_column = warp % (BN / WN) * WN + lane % 4 * 4;
    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
        for (int q = 0; q < BM * BK / 4; q += THREADS) {
            const int row = (q + threadIdx.x) / (BK / 4), k = (q + threadIdx.x) % (BK / 4) * 4;
            const float4 v = load_a_quartet<ALIGNED>(A, M, K, m0 + row, k0 + k);
            float* transposed = a_tile + a_place(k, row / 4) + row % 4;
            transposed[0] = v.x;
            transposed[BM] = v.y;
            transposed[2 * BM] = v.z;
            transposed[3 * BM] = v.w;
        }
#pragma unroll
        for (int q = 0; q < BK * BN / 4; q += THREADS) {
            const int k = (q + threadIdx.x) / (BN / 4), column = (q + threadIdx.x) % (BN / 4) * 4;
            store_float4(b_tile + k * BN + column, load_b_quartet<ALIGNED>(B, N, K, k0 + k, n0 + column));
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float4 a[TM / 4], b[TN / 4];
#pragma unroll
            for (int i = 0; i < TM / 4; ++i) a[i] = load_float4(a_tile + a_place(k, thread_row / 4 + 8 * i));
#pragma unroll
            for (int j = 0; j < TN / 4; ++j) b[j] = load_float4(b_tile + k * BN + thread_column + 16 * j);
            add_outer_product(sum, a, b);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = m0 + thread_row + i / 4 * 32 + i % 4;
        if (row < M) store_row<ALIGNED, 16>(C, N, row, n0 + thread_column, sum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, THREADS <= 256 && TM * TN <= 64 ? 2 : 1)
warp_tiled(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ __align__(16) float a_tile[BK * BM];
    __shared__ __align__(16) float b_tile[BK * BN];
    const int tiles_n = (N - 1) / BN + 1, m0 = blockIdx.x / tiles_n * BM, n0 = blockIdx.x % tiles_n * BN;
    if (rows_are_aligned(A, B, C, N, K)) multiply<true>(A, B, C, M, N, K, m0, n0, a_tile, b_tile);
    else multiply<false>(A, B, C, M, N, K, m0, n0, a_tile, b_tile);
}

/*+++
minimum_cc = "8.0"

[source]
document = "GEMM worklog"
claim = "21.7 TFLOP/s (RTX A6000); 5.2 scalar and 8.9 vector TFLOP/s (V100)"
device = "RTX A6000, Tesla V100"

[parameters]
BM = 128
BN = 128
BK = 8
TM = 8
TN = 8

[search]
BM = [64, 128, 256]
BN = [32, 64, 128, 256]
BK = [8, 16, 32]
TM = [4, 8, 16]
TN = [4, 8, 16]
[[constraint]]
check = "BM % (8 * TM) == 0 and BN % (4 * TN) == 0"
says = "a warp is 8x4 threads, and warps must tile the block evenly"
[[constraint]]
check = "(BM // TM) * (BN // TN) >= 32 and (BM // TM) * (BN // TN) <= 1024"
says = "a block has at most 1024 threads"
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
kernel = "warp_tiled"
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
says = "no bank conflicts to speak of"
check = "metric('shared_conflict_excess') < 0.05"
[[expect.profile]]
says = "fewer bank conflicts than before"
check = "metric('shared_conflict_excess') < prev_metric('shared_conflict_excess')"

[[measured]]
gpu = "NVIDIA H200"
says = """\
1.88 and 1.18 times the time of autotuned at 1024 and 4096, which runs there with what a search \
found: 128 blocks for 132 SMs at 1024, where this rung has 64, and 16 x 4 results a thread at \
4096. Elsewhere both have tiles of 128 x 128, steps of 8 k here and 16 there: 1.07 and 1.06 times \
at 512 and 5120, and faster at 2048, 3072, 6144 and 7168."""
+++*/
