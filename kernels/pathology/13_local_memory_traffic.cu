/*+++
title = "A ring buffer indexed at run time"
idea = """\
Each thread walks down a column and keeps the last TAPS values in a local array. The place \
of the newest one is known at run time only, and registers cannot be indexed: the array lies in \
local memory, and every sum reads all of it back through the L1."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
local_memory_traffic(const float* __restrict__ x, float* __restrict__ y, int cols) {
    const int col = blockIdx.x * BLOCK + threadIdx.x;
    if (col >= cols) return;
    float ring[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS - 1; ++t) ring[t] = x[(size_t)t * cols + col];
#pragma unroll 1
    for (int turn = 0; turn < LENGTH; turn += TAPS) {
#pragma unroll 1
        for (int t = 0; t < TAPS; ++t) {  // rows one by one: `newest` is a variable
            const int row = turn + t, newest = (t + TAPS - 1) % TAPS;
            ring[newest] = x[(size_t)(row + TAPS - 1) * cols + col];
            float sum = 0.f;
#pragma unroll 8
            for (int j = 1; j <= TAPS; ++j) sum += ring[(newest + j) % TAPS];  // from the oldest to the newest
            y[(size_t)row * cols + col] = sum * (1.f / TAPS);
        }
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "moving_mean"
taps = 32
length = 64

[parameters]
BLOCK = 256
TAPS = 32
LENGTH = 64

[[launch]]
kernel = "local_memory_traffic"
grid = ["ceil_div(cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "cols"]

[expect.sass]
present = ["LDL", "STL"]
absent = []

[[expect.profile]]
says = "local memory is read more than the input"
check = "metric('local_load_sectors') > 4 * n / 8"
+++*/
