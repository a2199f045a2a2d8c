/*+++
title = "A 4 x 4 mini-tile per thread"
idea = """\
A thread computes TM x TN elements and fetches TM + TN floats from shared memory for TM * TN \
multiply-adds. It also copies its own square blocks of A and B, one float at a time: lanes lie \
four floats apart, so each store to shared memory hits only every fourth bank."""
kind = "step"
compared_with = "thread_tile_1d"
removes = "shared-instruction-pressure"
+++*/

#include "common/common.cuh"

#define THREADS ((BM / TM) * (BN / TN))

// Copies a ROWS x COLS tile into shared memory. Each thread takes whole 4 x 4 blocks, float by float; zeros beyond the edge.
template <int ROWS, int COLS>
__device__ __forceinline__ void copy_blocks(float (&tile)[ROWS][COLS], const float* __restrict__ from, int row0, int col0, int rows, int cols) {
    static_assert(ROWS * COLS % (16 * THREADS) == 0, "every thread copies the same number of blocks");
#pragma unroll
    for (int n = 0; n < ROWS * COLS / 16 / THREADS; ++n) {
        const int block = threadIdx.x + n * THREADS;
        const int r = block / (COLS / 4) * 4, c = block % (COLS / 4) * 4;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int row = row0 + r + i, col = col0 + c + j;
                tile[r + i][c + j] = row < rows && col < cols ? from[(size_t)row * cols + col] : 0.f;
            }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
mini_tile(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];
    const int tx = threadIdx.x % (BN / TN);  // group of TN columns
    const int ty = threadIdx.x / (BN / TN);  // group of TM rows
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        copy_blocks(As, A, row0, k0, M, K);
        copy_blocks(Bs, B, k0, col0, K, N);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[ty * TM + i][k];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = Bs[k][tx * TN + j];
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
            const int row = row0 + ty * TM + i, col = col0 + tx * TN + j;
            if (row < M && col < N) C[(size_t)row * N + col] = sum[i][j];
        }
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "GEMM worklog on an RTX 4090"
claim = "82.3 us at 1024"
device = "RTX 4090"

[parameters]
BM = 64
BN = 64
BK = 64
TM = 4
TN = 4

[search]
BM = [32, 64]
BN = [32, 64]
BK = [32, 64]
TM = [4, 8]
TN = [4, 8]

[[constraint]]
check = "BM % TM == 0 and BN % TN == 0 and BK % 4 == 0"
says = "the tile must split evenly among threads and into 4 x 4 blocks"

[[constraint]]
check = "BM * BK % (16 * (BM / TM) * (BN / TN)) == 0 and BN * BK % (16 * (BM / TM) * (BN / TN)) == 0"
says = "every thread must copy the same number of 4 x 4 blocks"

[[constraint]]
check = "(BM + BN) * BK * 4 <= 49152"
says = "both tiles must fit in 48 KB of shared memory"

[[launch]]
kernel = "mini_tile"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * (BN / TN)", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]

[[expect.profile]]
says = "less shared memory is read for the same product"
check = "executed('LDS') < prev_executed('LDS')"

[[expect.profile]]
says = "stores to shared memory move one float per lane"
check = "executed('STS.128') == 0 and executed('STS.64') == 0"

[[expect.profile]]
says = "warps wait for shared memory: for its data or for its queue"
check = "stall_share('short_scoreboard') + stall_share('mio_throttle') > 0.3"

[[expect.profile]]
says = "stores to shared memory conflict"
check = "metric('shared_conflict_excess') > 0.1"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
