/*+++
title = "Coalesced reads"
idea = """\
The same loop with rows and columns swapped between the lanes, so that the 32 lanes of a warp read \
32 neighbouring floats of B and share one of A. A request then needs 1 or 4 sectors where it \
needed up to 32."""
kind = "step"
compared_with = "naive"
removes = "uncoalesced-global-access"
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK * BLOCK)
coalesced(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;  // varies along a warp: consecutive lanes, consecutive floats of B and C
    if (row >= M || col >= N) return;

    float sum = 0.f;
    for (int k = 0; k < K; ++k) sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = sum;
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BLOCK) <= 65535", says = "M must be at most 65535 * BLOCK: the grid's y dimension ends there" }]

[source]
document = "S. Boehm, How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance: a Worklog"
claim = """\
2,000 GFLOP/s, 110 GB/s (RTX A6000); 426 us at 1024 with BLOCK = 16, 0.256 s at 8192 (RTX 4090)"""
device = "RTX A6000, RTX 4090"

[parameters]
BLOCK = 32

[search]
BLOCK = [16, 32]

[[launch]]
kernel = "coalesced"
grid = ["ceil_div(N, BLOCK)", "ceil_div(M, BLOCK)", "1"]
block = ["BLOCK", "BLOCK", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "FFMA"]
absent = ["LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "a read of A touches one sector and a read of B four, 2.5 on average"
check = "abs(metric('ld_sectors_per_request') - 2.5) < 0.1"

[[expect.profile]]
says = "a store of C touches four sectors"
check = "abs(metric('st_sectors_per_request') - 4) < 0.1"

[[expect.profile]]
says = "fewer bytes pass the L1 for the same product"
check = "metric('l1_global_bytes') < 0.5 * prev_metric('l1_global_bytes')"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
