/*+++
title = "16-byte loads and stores, written in the order of the result"
idea = """\
A thread reads a 4 x 4 piece as four 16-byte loads, turns it in registers, where turning is only \
naming, and passes it on through shared memory in 16-byte quartets, swizzled so that neither side \
has a conflict. Loads and stores of global memory are 16 bytes a lane, four times fewer, and 64 \
bytes per thread are in flight. Blocks go down the columns of tiles, so that those which run at \
the same time write neighbouring rows of the result, whole."""
kind = "step"
compared_with = "transpose_swizzled"
removes = "narrow-access"
+++*/

#include "common/common.cuh"

#define QUARTETS (TILE / 4)                // 16-byte pieces in a row of the tile
#define THREADS (QUARTETS * QUARTETS)

extern "C" __global__ void __launch_bounds__(THREADS)
transpose_vectorized(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    // tile[c][q ^ (c / 4 % QUARTETS)] holds rows 4 q .. 4 q + 3 of column c.
    __shared__ float4 tile[TILE][QUARTETS];

    // Down the columns of tiles: neighbouring blocks write neighbouring pieces of the same rows of y,
    // whole, and read short runs of many rows; across, it would be the other way round. What is written
    // waits in the L2 and goes out later, and stretches of whole rows can leave page by page of memory.
    const unsigned down = ceil_div(rows, TILE);
    const int row0 = (int)(blockIdx.x % down) * TILE;
    const int col0 = (int)(blockIdx.x / down) * TILE;

    const bool whole = row0 + TILE <= rows && col0 + TILE <= cols;
    const bool vector_in = cols % 4 == 0 && is_aligned_16(x);
    const bool vector_out = rows % 4 == 0 && is_aligned_16(y);
    const int q = threadIdx.x % QUARTETS;
    const int r = threadIdx.x / QUARTETS;

    float4 in[4];
    const float* const from = x + (size_t)(row0 + 4 * r) * cols + col0 + 4 * q;
    if (whole && vector_in) {
        #pragma unroll
        for (int i = 0; i < 4; ++i) in[i] = load_float4(from + (size_t)i * cols);
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int remaining = row0 + 4 * r + i < rows ? cols - (col0 + 4 * q) : 0;
            in[i] = load_float4_guarded(from + (size_t)i * cols, remaining, vector_in);
        }
    }
    tile[4 * q + 0][r ^ q] = make_float4(in[0].x, in[1].x, in[2].x, in[3].x);
    tile[4 * q + 1][r ^ q] = make_float4(in[0].y, in[1].y, in[2].y, in[3].y);
    tile[4 * q + 2][r ^ q] = make_float4(in[0].z, in[1].z, in[2].z, in[3].z);
    tile[4 * q + 3][r ^ q] = make_float4(in[0].w, in[1].w, in[2].w, in[3].w);
    __syncthreads();

    float* const to = y + (size_t)(col0 + r) * rows + row0 + 4 * q;
    if (whole && vector_out) {
        #pragma unroll
        for (int c = 0; c < TILE; c += QUARTETS) store_float4(to + (size_t)c * rows, tile[r + c][q ^ (r + c) / 4]);
    } else {
        #pragma unroll
        for (int c = 0; c < TILE; c += QUARTETS)
            store_float4_guarded(to + (size_t)c * rows, tile[r + c][q ^ (r + c) / 4], col0 + r + c < cols ? rows - (row0 + 4 * q) : 0, vector_out);
    }
}

/*+++
minimum_cc = "8.0"

[source]
document = "Beyond the document: vector accesses"

[parameters]
TILE = 64

[search]
TILE = [32, 64]

[[launch]]
kernel = "transpose_vectorized"
grid = ["ceil_div(cols, TILE) * ceil_div(rows, TILE)", "1", "1"]
block = ["(TILE / 4) * (TILE / 4)", "1", "1"]
shared = "0"
args = ["x", "y", "rows", "cols"]

[expect.sass]
present = ["LDG.E.128", "STS.128", "LDS.128", "STG.E.128", "BAR.SYNC"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "every access to global memory is 128 bits wide, a quarter as many as before"
check = "executed('LDG.E.128') == executed('LDG') and executed('STG.E.128') == executed('STG') and executed('LDG') < 0.3 * prev_executed('LDG')"

[[expect.profile]]
says = "shared memory has no bank conflicts"
check = "metric('shared_conflict_excess') < 0.02"

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.75"
sizes = ["16384"]

[[measured]]
gpu = "NVIDIA H200"
says = """\
16384 x 16384, relative to the device copy of the same run (4.26 TB/s): 0.975 of it (10th to 90th \
percentile 0.972 to 0.977), 4.16 TB/s. With tiles taken across, row by row, 0.947; in bands of 4, \
16 or 32 tile rows 0.942 to 0.946 (another run): runs of a few KB on both sides gain nothing. That \
the pages of device memory are the reason is inferred from this, not profiled. Tiles of 128 x 64 \
are as fast, others slower: docs/decisions/tensor-and-memory-tops.md."""
+++*/
