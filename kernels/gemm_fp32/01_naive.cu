/*+++
title = "Naive: uncoalesced reads"
idea = """\
One thread computes one element of C, and neighbouring lanes take neighbouring rows. Every read of \
A then touches 32 rows, 32 sectors for 32 floats, so this is the starting point of the ladder."""
kind = "step"
compared_with = ""
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK * BLOCK)
naive(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    // threadIdx.x is what varies along a warp, and here it picks the row: consecutive lanes are K floats apart in A.
    const int row = blockIdx.x * BLOCK + threadIdx.x;
    const int col = blockIdx.y * BLOCK + threadIdx.y;
    if (row >= M || col >= N) return;

    float sum = 0.f;
    for (int k = 0; k < K; ++k) sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = sum;
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(N, BLOCK) <= 65535", says = "N must be at most 65535 * BLOCK: the grid's y dimension ends there" }]

[source]
document = "S. Boehm, How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance: a Worklog"
claim = "300 GFLOP/s, 15 GB/s; 4092^3 in 0.5 s"
device = "RTX A6000"

[parameters]
BLOCK = 32

[search]
BLOCK = [16, 32]

[[launch]]
kernel = "naive"
grid = ["ceil_div(M, BLOCK)", "ceil_div(N, BLOCK)", "1"]
block = ["BLOCK", "BLOCK", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "FFMA"]
absent = ["LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "a read of A touches 32 sectors and a read of B one, 16.5 on average"
check = "abs(metric('ld_sectors_per_request') - 16.5) < 0.5"

[[expect.profile]]
says = "a store of C touches 32 sectors"
check = "metric('st_sectors_per_request') > 31"

[[expect.profile]]
says = "warps wait on global memory: for its data or for its queue"
check = "stall_share('lg_throttle') + stall_share('long_scoreboard') > 0.5"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
