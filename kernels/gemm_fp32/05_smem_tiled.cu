/*+++
title = "Tiles in shared memory"
idea = """\
A block copies a TILE x TILE piece of A and of B into shared memory and each float is then used \
TILE times, so global traffic falls by TILE. Each multiply-add still needs its operands from \
shared memory, and that queue becomes the limit."""
kind = "step"
compared_with = "coalesced"
removes = "missing-data-reuse"
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(TILE * TILE)
smem_tiled(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty;
    const int col = blockIdx.x * TILE + tx;

    float sum = 0.f;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        // Beyond the edge a tile holds zeros: every thread keeps working and reaches every barrier.
        As[ty][tx] = row < M && k0 + tx < K ? A[(size_t)row * K + k0 + tx] : 0.f;
        Bs[ty][tx] = col < N && k0 + ty < K ? B[(size_t)(k0 + ty) * N + col] : 0.f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = sum;
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, TILE) <= 65535", says = "M must be at most 65535 * TILE: the grid's y dimension ends there" }]

[source]
document = "S. Boehm, How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance: a Worklog"
claim = "2,200 GFLOP/s (RTX A6000); 323 us at 1024 with TILE = 16 (RTX 4090)"
device = "RTX A6000, RTX 4090"

[parameters]
TILE = 32

[search]
TILE = [16, 32]

[[launch]]
kernel = "smem_tiled"
grid = ["ceil_div(N, TILE)", "ceil_div(M, TILE)", "1"]
block = ["TILE", "TILE", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "FFMA", "BAR.SYNC"]
absent = ["STS.128", "LDG.E.128", "LDL", "STL"]

[[expect.profile]]
says = "each float is fetched from global memory TILE times less often"
check = "metric('l1_global_bytes') < 0.1 * prev_metric('l1_global_bytes')"

[[expect.profile]]
says = "the queue of shared-memory instructions is what warps wait for most"
check = """\
stall_share('mio_throttle') > max(stall_share('long_scoreboard'), stall_share('short_scoreboard'), \
stall_share('barrier'), stall_share('lg_throttle'))"""
sizes = ["4096"]

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
