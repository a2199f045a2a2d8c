/*+++
title = "One column of padding"
idea = """\
The same code with a pitch of 33 floats: the elements of a column lie in 32 different banks."""
kind = "step"
compared_with = "shared_bank_conflict"
removes = "shared-bank-conflict"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(32 * ROWS)
shared_bank_conflict_fixed(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float tile[32][PITCH];
    const size_t first = (size_t)blockIdx.x * 1024;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = warp; r < 32; r += ROWS) tile[r][lane] = x[first + r * 32 + lane];
    __syncthreads();
#pragma unroll
    for (int r = warp; r < 32; r += ROWS) y[first + r * 32 + lane] = tile[lane][r];  // lanes are PITCH floats apart
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "tile_transpose"

[parameters]
ROWS = 8
PITCH = 33

[[launch]]
kernel = "shared_bank_conflict_fixed"
grid = ["count / 1024", "1", "1"]
block = ["32 * ROWS", "1", "1"]
shared = "0"
args = ["x", "y"]

[expect]
ratio_at_least = 1.3

[expect.sass]
present = ["LDS", "STS"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "hardly a pass through the banks is beyond the ideal"
check = "metric('shared_conflict_excess') < 0.1"

[[expect.profile]]
says = "the same shared-memory instructions"
check = "executed('LDS') == prev_executed('LDS')"
+++*/
