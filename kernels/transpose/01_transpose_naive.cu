/*+++
title = "Naive: uncoalesced writes"
idea = """\
Each warp reads 32 neighbouring floats of a row and writes them down a column: the read is one \
request of 4 sectors, the write touches 32 sectors for 32 floats."""
kind = "step"
compared_with = ""
+++*/

#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(TILE * STEP)
transpose_naive(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    const int col = blockIdx.x * TILE + threadIdx.x;
    const int first = blockIdx.y * TILE + threadIdx.y;
    #pragma unroll
    for (int step = 0; step < TILE; step += STEP) {
        const int row = first + step;
        if (row < rows && col < cols) y[(size_t)col * rows + row] = x[(size_t)row * cols + col];
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
kernel = "transpose_naive"
grid = ["ceil_div(cols, TILE)", "ceil_div(rows, TILE)", "1"]
block = ["TILE", "STEP", "1"]
shared = "0"
args = ["x", "y", "rows", "cols"]

[expect.sass]
present = ["LDG.E", "STG.E"]
absent = ["LDG.E.128", "LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "a load touches 4 sectors, a store 32"
check = "metric('ld_sectors_per_request') < 4.5 and metric('st_sectors_per_request') > 31"
+++*/
