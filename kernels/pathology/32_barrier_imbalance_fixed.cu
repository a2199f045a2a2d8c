/*+++
title = "All warps work, then all wait once"
idea = """\
The factors of 32 tiles are found together, a warp a tile, with one barrier for all of them. The \
arithmetic is the same, and no warp waits for a single other one."""
kind = "step"
compared_with = "barrier_imbalance"
removes = "barrier-imbalance"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(1024)
barrier_imbalance_fixed(const float* __restrict__ x, float* __restrict__ y, int rows) {
    __shared__ float factor[1024];
    const int warp = threadIdx.x / 32;
    const int begin = blockIdx.x * TILES, end = min(begin + TILES, rows / 32);
    const int row = begin * 32 + threadIdx.x;
    if (row < end * 32) factor[threadIdx.x] = iterate(x[(size_t)row * 32], STEPS);
    __syncthreads();
#pragma unroll 4
    for (int tile = begin; tile < end; ++tile) {
        const size_t i = (size_t)tile * 1024 + threadIdx.x;
        y[i] = x[i] * factor[(tile - begin) * 32 + warp];
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "row_scale"
steps = 1024

[parameters]
TILES = 32
STEPS = 1024

[[launch]]
kernel = "barrier_imbalance_fixed"
grid = ["ceil_div(rows / 32, TILES)", "1", "1"]
block = ["1024", "1", "1"]
shared = "0"
args = ["x", "y", "rows"]

[expect]
ratio_at_least = 1.8

[expect.sass]
present = ["BAR.SYNC", "FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the wait at the barrier is small"
check = "stall_share('barrier') < 0.25"

[[expect.profile]]
says = "the multiply-adds are the same"
check = "0.98 < executed('FFMA') / prev_executed('FFMA') < 1.02"
+++*/
