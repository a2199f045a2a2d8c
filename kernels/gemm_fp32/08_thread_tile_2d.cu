/*+++
title = "An 8 x 8 tile per thread"
idea = """\
With 8 x 8 results in registers a thread does 64 multiply-adds for 16 floats from shared memory, \
four times the ratio of one column of eight. Registers now hold most of the reuse and leave room \
for two blocks a multiprocessor. Tiles are still written one float at a time; a row of B is read \
16 bytes at a time, but by lanes that lie eight floats apart, which meet in half of the banks: \
twice the wavefronts."""
kind = "step"
compared_with = "mini_tile"
removes = "shared-instruction-pressure"
+++*/

#include "common/common.cuh"

#define THREADS ((BM / TM) * (BN / TN))

// Two blocks a multiprocessor: without the bound the compiler takes more than 128 registers, and one block is left.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
thread_tile_2d(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[BM][BK];
    __shared__ float Bs[BK][BN];
    static_assert(BM * BK % THREADS == 0 && BK * BN % THREADS == 0, "every thread copies the same number of floats");
    const int tid = threadIdx.x;
    const int tx = tid % (BN / TN);  // group of TN columns
    const int ty = tid / (BN / TN);  // group of TM rows
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    float sum[TM][TN] = {};
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
#pragma unroll 2
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
document = "S. Boehm, How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance: a Worklog"
claim = "16 TFLOP/s"
device = "RTX A6000"

[parameters]
BM = 128
BN = 128
BK = 8
TM = 8
TN = 8

[search]
BM = [64, 128]
BN = [64, 128]
BK = [8, 16]
TM = [4, 8]
TN = [4, 8]

[[constraint]]
check = "BM % TM == 0 and BN % TN == 0"
says = "the tile must split evenly among threads"

[[constraint]]
check = "BM * BK % ((BM / TM) * (BN / TN)) == 0 and BN * BK % ((BM / TM) * (BN / TN)) == 0 and (BM / TM) * (BN / TN) <= 256"
says = """\
every thread must copy the same number of floats, and two blocks of at most 256 threads share the \
registers"""

[[launch]]
kernel = "thread_tile_2d"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["(BM / TM) * (BN / TN)", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]
max_registers = 128

[[expect.profile]]
says = "less shared memory is read for the same product"
check = "executed('LDS') < 0.8 * prev_executed('LDS')"

[[expect.profile]]
says = "shared reads eight floats apart conflict"
check = "metric('shared_conflict_excess') > 0.1"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"

[[measured]]
gpu = "NVIDIA H200"
says = """\
3.4, 2.0 and 1.09 times the time of mini_tile at 512, 1024 and 3072: its blocks are a quarter as \
many. 16 and 64 do not reach all 132 SMs. At 3072, 576 blocks on 264 places are 2.2 rounds that \
take three; mini_tile has 4.4 rounds that take five."""
+++*/
