/*+++
title = "Asynchronous copies without prefetch"
idea = """\
cp.async writes global data straight to shared memory, and there are two buffers; but every copy \
is waited for right after it is issued, a prefetch distance of zero. The result is right, yet each \
tile pays the whole latency of global memory at its barrier."""
kind = "planted"
compared_with = "double_buffered"
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
    // Starts the copies of a k-step into a stage. A step beyond K has none, but still is a group to count.
    auto copy = [&](int step, int stage) {
        if (step < steps) copy_tiles<ALIGNED, BM, BN, BK, THREADS>(shared_address(tiles + stage * STAGE), A, B, M, N, K, m0, n0, step * BK);
        cp_async_commit();
    };

    for (int step = 0; step < steps; ++step) {
        const int stage = step % 2;
        copy(step, stage);
        // The defect: the step about to be multiplied is the one just asked for, so all of its latency passes right here.
        cp_async_wait<0>();
        __syncthreads();
        const float* a_tile = tiles + stage * STAGE;
        multiply_tiles<BN, BK>(sum, a_tile, a_tile + A_TILE, thread_row, thread_column);
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = m0 + thread_row + 8 * i;
        if (row < M) store_row<ALIGNED, 16>(C, N, row, n0 + thread_column, sum[i]);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, THREADS <= 256 && TM * TN <= 64 ? 2 : 1)
async_copy_broken(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ __align__(128) float tiles[2 * STAGE];
    const int tiles_n = (N - 1) / BN + 1, m0 = blockIdx.x / tiles_n * BM, n0 = blockIdx.x % tiles_n * BN;
    if (rows_are_aligned(A, B, C, N, K)) multiply<true>(A, B, C, M, N, K, m0, n0, tiles);
    else multiply<false>(A, B, C, M, N, K, m0, n0, tiles);
}

/*+++
minimum_cc = "8.0"

[source]
document = "GEMM worklog: its memcpy_async version, whose two barriers alias one shared allocation"
claim = "73.4 us at 1024, slower than double_buffered's 62.8 us and unexplained there"
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
says = "every thread must copy the same number of quartets of each tile"
[[constraint]]
check = "2 * 4 * (BM + BN) * BK <= 49152"
says = "static shared memory ends at 48 KiB"
[[constraint]]
check = "TM * TN <= 128 and (BM // TM) * (BN // TN) * (TM * TN + 4 * TM + 30) <= 65536"
says = """\
accumulators, four k of A and some thirty other registers of all threads must fit in the register \
file"""

[[launch]]
kernel = "async_copy_broken"
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
says = "the copies are asynchronous"
check = "executed('LDGSTS') > 0"
[[expect.profile]]
says = """\
warps wait where the copy lands: at the wait for their own and at the barrier for the others'"""
check = "stall('long_scoreboard') + stall('barrier') > prev_stall('long_scoreboard') + prev_stall('barrier')"
[[expect.profile]]
says = "warps spend much of their time in that wait"
check = "stall_share('long_scoreboard') + stall_share('barrier') > 0.15"
+++*/
