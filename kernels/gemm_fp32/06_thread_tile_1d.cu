/*+++
title = "Eight results per thread, in a column"
idea = """\
A thread keeps TM elements of one column of C in registers, so a float of B, once read from shared \
memory, is used TM times. Shared reads per result fall from 2K to K * (TM + 1) / TM."""
kind = "step"
compared_with = "smem_tiled"
removes = "shared-instruction-pressure"
+++*/

#include "common/common.cuh"

#define THREADS (BM / TM * BN)

extern "C" __global__ void __launch_bounds__(THREADS)
thread_tile_1d(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];
    static_assert(BM * BK % THREADS == 0 && BK * BN % THREADS == 0, "every thread copies the same number of floats");
    const int tid = threadIdx.x;
    const int tx = tid % BN;  // column of C in the tile
    const int ty = tid / BN;  // group of TM rows
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    float sum[TM] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
        for (int n = 0; n < BM * BK / THREADS; ++n) {
            const int i = tid + n * THREADS;
            const int row = row0 + i / BK, k = k0 + i % BK;
            As[i / BK][i % BK] = row < M && k < K ? A[(size_t)row * K + k] : 0.f;
        }
#pragma unroll
        for (int n = 0; n < BK * BN / THREADS; ++n) {
            const int i = tid + n * THREADS;
            const int k = k0 + i / BN, col = col0 + i % BN;
            Bs[i / BN][i % BN] = k < K && col < N ? B[(size_t)k * N + col] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            const float b = Bs[k][tx];
#pragma unroll
            for (int i = 0; i < TM; ++i) sum[i] += As[ty * TM + i][k] * b;
        }
        __syncthreads();
    }

    const int col = col0 + tx;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int row = row0 + ty * TM + i;
        if (row < M && col < N) C[(size_t)row * N + col] = sum[i];
    }
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "S. Boehm, How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance: a Worklog"
claim = "8,600 GFLOP/s (RTX A6000); 101.6 us at 1024 with a tile of 64 and 8 rows (RTX 4090)"
device = "RTX A6000, RTX 4090"

[parameters]
BM = 64
BN = 64
BK = 8
TM = 8

[search]
BM = [64, 128]
BN = [64]
BK = [8, 16]
TM = [8, 16]

[[constraint]]
check = "BM % TM == 0"
says = "the tile must split evenly among threads"

[[constraint]]
check = "BM / TM * BN <= 1024 and BM / TM * BN % 32 == 0"
says = "a block holds whole warps, at most 1024 threads"

[[constraint]]
check = "BM * BK % (BM / TM * BN) == 0 and BN * BK % (BM / TM * BN) == 0"
says = "every thread must copy the same number of floats"

[[launch]]
kernel = "thread_tile_1d"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * BN", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]

[[expect.profile]]
says = "less shared memory is read for the same product"
check = "executed('LDS') < 0.75 * prev_executed('LDS')"

[[expect.profile]]
says = "a warp waits less for the queue of shared-memory instructions"
check = "stall('mio_throttle') < prev_stall('mio_throttle')"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"

[[measured]]
gpu = "NVIDIA H200"
says = """\
1.30 times the time of smem_tiled at 512: 64 blocks for 132 SMs, where smem_tiled has 256."""
+++*/
