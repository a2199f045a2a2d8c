/*+++
title = "Through shared memory"
idea = """\
The tile turns in shared memory, so that both the read and the write of global memory are whole \
rows. The turn itself reads a column of the tile, 32 floats apart, and all 32 lanes meet in one \
bank."""
kind = "step"
compared_with = "transpose_naive"
removes = "uncoalesced-global-access"
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(TILE * STEP)
transpose_smem(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    __shared__ float tile[TILE][TILE];
    const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;

    #pragma unroll
    for (int step = 0; step < TILE; step += STEP) {
        const int r = threadIdx.y + step;
        if (row0 + r < rows && col0 + threadIdx.x < cols) tile[r][threadIdx.x] = x[(size_t)(row0 + r) * cols + col0 + threadIdx.x];
    }
    __syncthreads();

    // Row r of the output tile is column r of what was read: neighbouring lanes now write neighbouring floats.
    #pragma unroll
    for (int step = 0; step < TILE; step += STEP) {
        const int r = threadIdx.y + step;
        if (col0 + r < cols && row0 + threadIdx.x < rows) y[(size_t)(col0 + r) * rows + row0 + threadIdx.x] = tile[threadIdx.x][r];
    }
}

/*+++
minimum_cc = "8.0"
shapes = [{ check = "ceil_div(rows, TILE) <= 65535", says = "rows must be at most 65535 * TILE: the grid's y dimension ends there" }]

[source]
document = "M. Harris, An Efficient Matrix Transpose in CUDA C/C++"

[parameters]
TILE = 32
STEP = 8                 # rows of the tile that the block covers at a time

[search]
STEP = [4, 8, 16, 32]

[[launch]]
kernel = "transpose_smem"
grid = ["ceil_div(cols, TILE)", "ceil_div(rows, TILE)", "1"]
block = ["TILE", "STEP", "1"]
shared = "0"
args = ["x", "y", "rows", "cols"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "STG.E", "BAR.SYNC"]
absent = ["LDG.E.128", "LDL", "STL"]

[[expect.profile]]
says = "a store touches 4 sectors instead of 32"
check = "metric('st_sectors_per_request') < 4.5 and prev_metric('st_sectors_per_request') > 31"

[[expect.profile]]
says = "reading a column is a 32-way bank conflict"
check = "metric('shared_conflict_excess') > 0.8"
+++*/
