/*+++
title = "Two shared buffers"
idea = """\
The next tile's global loads are issued before the present tile is multiplied and stored to the \
other buffer after it, so that their latency passes behind the FMAs. One barrier a tile is enough: \
no warp writes to a buffer that another may still read."""
kind = "step"
compared_with = "warp_tiled"
removes = "memory-latency"
+++*/

#include "common/gemm_registers.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int WM = 8 * TM, WN = 4 * TN;  // what a warp of 8x4 threads owns
constexpr int A_TILE = BM * BK, STAGE = A_TILE + BK * BN;  // floats
constexpr int A_LOADS = BM * BK / (4 * THREADS), B_LOADS = BK * BN / (4 * THREADS);
static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0, "every thread loads the same number of quartets");

// Where quartet `quartet` of rows begins in the transposed tile of A at k: permuted as in warp_tiled.
__device__ __forceinline__ constexpr int a_place(int k, int quartet) { return k * BM + ((quartet ^ (k / 4 * (32 / BK) % 8)) * 4); }

template <bool ALIGNED>
__device__ __forceinline__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, int m0, int n0, float* tiles) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int thread_row = warp / (BN / WN) * WM + lane / 4 * 4, thread_column = warp % (BN / WN) * WN + lane % 4 * 4;
    float sum[TM][TN] = {};
    float4 a_next[A_LOADS], b_next[B_LOADS];  // on their way from global memory

    auto load_tiles = [&](int k0) {
#pragma unroll
        for (int l = 0; l < A_LOADS; ++l) {
            const int q = l * THREADS + threadIdx.x;
            a_next[l] = load_a_quartet<ALIGNED>(A, M, K, m0 + q / (BK / 4), k0 + q % (BK / 4) * 4);
        }
#pragma unroll
        for (int l = 0; l < B_LOADS; ++l) {
            const int q = l * THREADS + threadIdx.x;
            b_next[l] = load_b_quartet<ALIGNED>(B, N, K, k0 + q / (BN / 4), n0 + q % (BN / 4) * 4);
        }
    };
    auto store_tiles = [&](float* stage) {
#pragma unroll
        for (int l = 0; l < A_LOADS; ++l) {
            const int q = l * THREADS + threadIdx.x, row = q / (BK / 4), k = q % (BK / 4) * 4;
            float* transposed = stage + a_place(k, row / 4) + row % 4;
            transposed[0] = a_next[l].x;
            transposed[BM] = a_next[l].y;
            transposed[2 * BM] = a_next[l].z;
            transposed[3 * BM] = a_next[l].w;
        }
#pragma unroll
        for (int l = 0; l < B_LOADS; ++l) {
            const int q = l * THREADS + threadIdx.x;
            store_float4(stage + A_TILE + q / (BN / 4) * BN + q % (BN / 4) * 4, b_next[l]);
        }
    };

    load_tiles(0);
    store_tiles(tiles);
    __syncthreads();
    int now = 0;
    for (int k0 = 0; k0 < K; k0 += BK) {
        const bool more = k0 + BK < K;
        if (more) load_tiles(k0 + BK);
        const float *a_tile = tiles + now, *b_tile = a_tile + A_TILE;
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            float4 a[TM / 4], b[TN / 4];
#pragma unroll
            for (int i = 0; i < TM / 4; ++i) a[i] = load_float4(a_tile + a_place(k, thread_row / 4 + 8 * i));
#pragma unroll
            for (int j = 0; j < TN / 4; ++j) b[j] = load_float4(b_tile + k * BN + thread_column + 16 * j);
            add_outer_product(sum, a, b);
        }
        now = STAGE - now;
        if (more) store_tiles(tiles + now);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = m0 + thread_row + i / 4 * 32 + i % 4;
        if (row < M) store_row<ALIGNED, 16>(C, N, row, n0 + thread_column, sum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, THREADS <= 256 && TM * TN <= 64 ? 2 : 1)
double_buffered(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ __align__(16) float tiles[2 * STAGE];
    const int tiles_n = (N - 1) / BN + 1, m0 = blockIdx.x / tiles_n * BM, n0 = blockIdx.x % tiles_n * BN;
    if (rows_are_aligned(A, B, C, N, K)) multiply<true>(A, B, C, M, N, K, m0, n0, tiles);
    else multiply<false>(A, B, C, M, N, K, m0, n0, tiles);
}

/*+++
minimum_cc = "8.0"

[source]
document = "GEMM worklog"
claim = "62.8 us at 1024"
device = "RTX 4090"

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
check = "8 * (BM + BN) * BK <= 49152"
says = "static shared memory ends at 48 KiB"
[[constraint]]
check = "TM * TN <= 128 and (BM // TM) * (BN // TN) * (TM * TN + 40) + (BM + BN) * BK <= 65536"
says = """\
accumulators, the loads in flight and some forty other registers of all threads must fit in the \
register file"""

[[launch]]
kernel = "double_buffered"
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
says = "warps wait less for global memory"
check = "stall('long_scoreboard') < prev_stall('long_scoreboard')"
[[expect.profile]]
says = "one barrier a tile instead of two"
check = "executed('BAR') < 0.6 * prev_executed('BAR')"
+++*/
