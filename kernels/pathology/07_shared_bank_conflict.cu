/*+++
title = "Columns of an unpadded tile"
idea = """\
32 x 32 tiles are transposed through shared memory. The pitch of the tile is 32 floats, so the 32 \
elements of a column lie in one bank and a warp that reads a column is served one lane at a time."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(32 * ROWS)
shared_bank_conflict(const float* __restrict__ x, float* __restrict__ y) {
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
PITCH = 32

[[launch]]
kernel = "shared_bank_conflict"
grid = ["count / 1024", "1", "1"]
block = ["32 * ROWS", "1", "1"]
shared = "0"
args = ["x", "y"]

[expect.sass]
present = ["LDS", "STS"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "most wavefronts are beyond the ideal"
check = "metric('shared_conflict_excess') > 0.8"
+++*/
