/*+++
title = "One column of padding"
idea = """\
A row of the tile takes 33 floats instead of 32, so the floats of a column lie in 32 different \
banks. One unused float a row is the price."""
kind = "step"
compared_with = "transpose_smem"
removes = "shared-bank-conflict"
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(TILE * STEP)
transpose_padded(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    __shared__ float tile[TILE][TILE + 1];
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
kernel = "transpose_padded"
grid = ["ceil_div(cols, TILE)", "ceil_div(rows, TILE)", "1"]
block = ["TILE", "STEP", "1"]
shared = "0"
args = ["x", "y", "rows", "cols"]

[expect.sass]
present = ["LDG.E", "STS", "LDS", "STG.E", "BAR.SYNC"]
absent = ["LDG.E.128", "LDL", "STL"]

[[expect.profile]]
says = "bank conflicts are gone"
check = "metric('shared_conflict_excess') < 0.02 and prev_metric('shared_conflict_excess') > 0.8"

[[expect.profile]]
says = "the same accesses to global memory"
check = "executed('LDG') == prev_executed('LDG') and executed('STG') == prev_executed('STG')"
+++*/
