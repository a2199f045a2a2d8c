/*+++
title = "B stored column-major (a regression)"
idea = """\
Each thread now walks along memory in both operands, which looks better for a cache. Lanes of a \
warp take neighbouring columns, though, and those now lie K floats apart: the stride between \
lanes decides, not the stride within a thread."""
kind = "regression"
compared_with = "coalesced"
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK * BLOCK)
b_transposed(const float* __restrict__ A, const float* __restrict__ B_col, float* __restrict__ C, int M, int N, int K) {
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;  // varies along a warp: consecutive lanes are K floats apart in B_col
    if (row >= M || col >= N) return;

    float sum = 0.f;
    for (int k = 0; k < K; ++k) sum += A[(size_t)row * K + k] * B_col[(size_t)col * K + k];
    C[(size_t)row * N + col] = sum;
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BLOCK) <= 65535", says = "M must be at most 65535 * BLOCK: the grid's y dimension ends there" }]

[source]
document = "GEMM worklog on an RTX 4090"
claim = "1.659 s at 8192, 6.5 times slower than coalesced"
device = "RTX 4090"

[parameters]
BLOCK = 32

[search]
BLOCK = [16, 32]

[[launch]]
kernel = "b_transposed"
grid = ["ceil_div(N, BLOCK)", "ceil_div(M, BLOCK)", "1"]
block = ["BLOCK", "BLOCK", "1"]
shared = "0"
args = ["A", "B_col", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "FFMA"]
absent = ["LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "a read of B touches 32 sectors and a read of A one, 16.5 on average"
check = "abs(metric('ld_sectors_per_request') - 16.5) < 0.5"

[[expect.profile]]
says = "the queue to the L1 fills up again"
check = "stall('lg_throttle') > prev_stall('lg_throttle')"

[[expect.profile]]
says = "it is slower than the rung before"
check = "time_us > 2 * prev_time_us"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"
+++*/
