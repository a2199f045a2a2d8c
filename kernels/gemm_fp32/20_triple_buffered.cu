/*+++
title = "Three stages"
idea = """\
With a third stage, copies go to a buffer that no warp has read since the last barrier. They \
start before the multiplication instead of after it, have two steps to land, and need one barrier \
per step."""
kind = "step"
compared_with = "async_copy"
+++*/

#include "common/gemm_async.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int WM = 8 * TM, WN = 4 * TN;  // what a warp of 8x4 threads owns
constexpr int A_TILE = BM * BK, STAGE = A_TILE + BK * BN;  // floats

template <bool ALIGNED>
__device__ __forceinline__ void multiply(const float* A, const float* B, float* C, int M, int N, int K, int m0, int n0, float* tiles) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    // The thread owns rows 8 apart and quartets of columns 16 apart.
    const int thread_row = warp / (BN / WN) * WM + lane / 4, thread_column = warp % (BN / WN) * WN + lane % 4 * 4;
    float sum[TM][TN] = {};
    const int steps = (K - 1) / BK + 1;
    // Starts the copies of a k-step into the stage that begins `stage` floats into the tiles.
    // A step beyond K has none, but still is a group to count.
    auto copy = [&](int step, int stage) {
        if (step < steps) copy_tiles<ALIGNED, BM, BN, BK, THREADS>(shared_address(tiles + stage), A, B, M, N, K, m0, n0, step * BK);
        cp_async_commit();
    };

#pragma unroll
    for (int step = 0; step < STAGES - 1; ++step) copy(step, step * STAGE);
    int now = 0, fill = (STAGES - 1) * STAGE;
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<STAGES - 2>();  // all but the STAGES - 2 steps after this one
        __syncthreads();              // for everybody; and everybody has left the stage before, where the next copies go
        copy(step + STAGES - 1, fill);
        multiply_tiles<BN, BK>(sum, tiles + now, tiles + now + A_TILE, thread_row, thread_column);
        fill = now;
        now = now == (STAGES - 1) * STAGE ? 0 : now + STAGE;
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = m0 + thread_row + 8 * i;
        if (row < M) store_row<ALIGNED, 16>(C, N, row, n0 + thread_column, sum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, THREADS <= 256 && TM * TN <= 64 ? 2 : 1)
triple_buffered(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ __align__(128) float tiles[STAGES * STAGE];
    const int tiles_n = (N - 1) / BN + 1, m0 = blockIdx.x / tiles_n * BM, n0 = blockIdx.x % tiles_n * BN;
    if (rows_are_aligned(A, B, C, N, K)) multiply<true>(A, B, C, M, N, K, m0, n0, tiles);
    else multiply<false>(A, B, C, M, N, K, m0, n0, tiles);
}

/*+++
minimum_cc = "8.0"

[source]
document = "GEMM worklog: its three-stage version, which also multiplies two tiles too many"
claim = "72.9 us at 1024"
device = "RTX 4090"

[parameters]
BM = 128
BN = 128
BK = 8
TM = 8
TN = 8
STAGES = 3

[search]
BM = [64, 128, 256]
BN = [32, 64, 128, 256]
BK = [8, 16, 32]
TM = [4, 8, 16]
TN = [4, 8, 16]
STAGES = [2, 3, 4, 5]
[[constraint]]
check = "BM % (8 * TM) == 0 and BN % (4 * TN) == 0"
says = "a warp is 8x4 threads, and warps must tile the block evenly"
[[constraint]]
check = "(BM // TM) * (BN // TN) >= 32 and (BM // TM) * (BN // TN) <= 1024"
says = "a block has at most 1024 threads"
[[constraint]]
check = "BM * BK % (4 * (BM // TM) * (BN // TN)) == 0 and BK * BN % (4 * (BM // TM) * (BN // TN)) == 0"
says = "every thread must copy the same number of quartets of each tile"
[[constraint]]
check = "STAGES * 4 * (BM + BN) * BK <= 49152"
says = "static shared memory ends at 48 KiB"
[[constraint]]
check = "TM * TN <= 128 and (BM // TM) * (BN // TN) * (TM * TN + 4 * TM + 30) <= 65536"
says = """\
accumulators, four k of A and some thirty other registers of all threads must fit in the register \
file"""

[[launch]]
kernel = "triple_buffered"
grid = ["ceil_div(M, BM) * ceil_div(N, BN)", "1", "1"]
block = ["(BM // TM) * (BN // TN)", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDGSTS.E.BYPASS", "LDGDEPBAR", "LDS.128", "FFMA", "STG.E.128"]
absent = ["LDL", "STL", "STS"]

[[expect.profile]]
says = "one FFMA for each lane and product"
check = "executed('FFMA') == M * N * K / 32"
[[expect.profile]]
says = "one barrier a k-step instead of two"
check = "executed('BAR') < 0.6 * prev_executed('BAR')"
[[expect.profile]]
says = "beyond the ideal there is only what copying rows of A costs: 12 of 116 wavefronts"
check = "metric('shared_conflict_excess') < 0.11"

[[measured]]
gpu = "NVIDIA H200"
says = """\
0.103 of the shared wavefronts are beyond the ideal, and all of them are in LDGSTS, none in LDS. \
They are not bank conflicts: a warp's copy of A comes from 16 rows, and the data of each row are \
written by themselves, 16 wavefronts where 512 bytes need 4. The copy of B, whose rows are long, \
takes 4. A tile with BK = 16 halves the rows (0.043 in register_blocked_unrolled); no layout of \
the tile in shared memory can."""

[[measured]]
gpu = "NVIDIA H200"
says = """\
2.5 % slower than async_copy at 512 and 1024, where 16 and 64 blocks leave SMs idle and a block \
has an SM to itself."""
+++*/
