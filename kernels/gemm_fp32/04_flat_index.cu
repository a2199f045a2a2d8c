/*+++
title = "Coalesced, with a one-dimensional block"
idea = """\
The block is a flat run of threads, and row and column come from a division and a remainder. The \
lanes of a warp fall on the same elements as before, so the time should not change. Only the \
mapping of lanes to elements matters, not how it is computed."""
kind = "step"
compared_with = "coalesced"
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK * BLOCK)
flat_index(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    const int row = blockIdx.y * BLOCK + threadIdx.x / BLOCK;
    const int col = blockIdx.x * BLOCK + threadIdx.x % BLOCK;
    if (row >= M || col >= N) return;

    float sum = 0.f;
    for (int k = 0; k < K; ++k) sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = sum;
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(M, BLOCK) <= 65535", says = "M must be at most 65535 * BLOCK: the grid's y dimension ends there" }]

[source]
document = "GEMM worklog on an RTX 4090"
claim = "a little faster than coalesced"
device = "RTX 4090"

[parameters]
BLOCK = 32

[search]
BLOCK = [16, 32]

[[launch]]
kernel = "flat_index"
grid = ["ceil_div(N, BLOCK)", "ceil_div(M, BLOCK)", "1"]
block = ["BLOCK * BLOCK", "1", "1"]
shared = "0"
args = ["A", "B", "C", "M", "N", "K"]

[expect.sass]
present = ["LDG.E", "FFMA"]
absent = ["LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "sectors per request do not change"
check = "abs(metric('ld_sectors_per_request') - prev_metric('ld_sectors_per_request')) < 0.05"

[[expect.profile]]
says = "the bytes through L1 do not change"
check = "abs(metric('l1_global_bytes') / prev_metric('l1_global_bytes') - 1) < 0.02"

[[expect.profile]]
says = "the product takes M * N * K multiply-adds, no more"
check = "executed('FFMA') == M * N * K / 32"

[[measured]]
gpu = "NVIDIA H200"
says = """\
1.8 % slower than coalesced at 6144 and level elsewhere: the two have the same blocks and read \
the same addresses."""
+++*/
