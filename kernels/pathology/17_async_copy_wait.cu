/*+++
title = "A pipeline with a prefetch distance of zero"
idea = """\
Tiles are copied to shared memory asynchronously, but the copy of a tile is started only when its \
turn has come, and the warp waits for it on the spot. The buffers for STAGES tiles are there; one \
is used at a time. The grid is persistent, so few warps are there to hide the wait."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"
#include <cuda_pipeline.h>

#define WIDTH 128  // floats in a row: 16 bytes a lane
#define WARPS (BLOCK / 32)

// y[r] = sum of row r. A tile is a row for each warp; a lane copies the 16 bytes that it will read itself, so no barrier is needed.
extern "C" __global__ void __launch_bounds__(BLOCK)
async_copy_wait(const float* __restrict__ x, float* __restrict__ y, int rows) {
    __shared__ __align__(16) float4 stage[STAGES][BLOCK];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int tiles = ceil_div(rows, WARPS);
    const auto copy = [&](int k) {  // the block's k-th tile; a commit for every tile keeps the count of copies under way right at the end
        const int row = (blockIdx.x + k * gridDim.x) * WARPS + warp;
        if (row < rows) __pipeline_memcpy_async(&stage[k % STAGES][threadIdx.x], x + (size_t)row * WIDTH + lane * 4, 16);
        __pipeline_commit();
    };

#pragma unroll
    for (int k = 0; k < DISTANCE; ++k) copy(k);
#pragma unroll 1
    for (int k = 0; blockIdx.x + k * gridDim.x < tiles; ++k) {
        copy(k + DISTANCE);
        __pipeline_wait_prior(DISTANCE);
        const int row = (blockIdx.x + k * gridDim.x) * WARPS + warp;
        if (row >= rows) break;  // the same for all lanes of the warp
        const float4 v = stage[k % STAGES][threadIdx.x];
        float sum = (v.x + v.y) + (v.z + v.w);
#pragma unroll
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (lane == 0) y[row] = sum;
    }
    __pipeline_wait_prior(0);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "row_sum"
width = 128
scale = 4

[parameters]
BLOCK = 256
STAGES = 8
DISTANCE = 0
BLOCKS_PER_SM = 2

[[launch]]
kernel = "async_copy_wait"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "rows"]

[expect.sass]
present = ["LDGSTS", "LDGDEPBAR", "SHFL"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "copies are asynchronous"
check = "executed('LDGSTS') > 0"

[[expect.profile]]
says = "warps wait for data most of the time"
check = "stall_share('long_scoreboard') > 0.5"

[[expect.profile]]
says = "device memory is not busy"
check = "metric('dram_utilization') < 0.6"
+++*/
