/*+++
title = "One warp works, 31 wait"
idea = """\
Every row of 32 elements is scaled by a factor that takes STEPS steps to find. For each tile of 32 \
rows the first warp finds the factors, a row per lane, while the other 31 warps of the block stand \
at the barrier."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(1024)
barrier_imbalance(const float* __restrict__ x, float* __restrict__ y, int rows) {
    __shared__ float factor[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int end = min((int)(blockIdx.x + 1) * TILES, rows / 32);
#pragma unroll 1
    for (int tile = blockIdx.x * TILES; tile < end; ++tile) {
        const size_t first = (size_t)tile * 1024;
        if (warp == 0) factor[lane] = iterate(x[first + lane * 32], STEPS);
        __syncthreads();
        y[first + threadIdx.x] = x[first + threadIdx.x] * factor[warp];
        __syncthreads();  // before the first warp overwrites the factors
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
kernel = "barrier_imbalance"
grid = ["ceil_div(rows / 32, TILES)", "1", "1"]
block = ["1024", "1", "1"]
shared = "0"
args = ["x", "y", "rows"]

[expect.sass]
present = ["BAR.SYNC", "FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "warps wait at the barrier"
check = "stall_share('barrier') > 0.5"
+++*/
