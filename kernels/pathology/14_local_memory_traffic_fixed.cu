/*+++
title = "The same ring, unrolled once around"
idea = """\
The loop is unrolled once around the ring, so every index is a constant when the code is compiled \
and the array lives in registers."""
kind = "step"
compared_with = "local_memory_traffic"
removes = "local-memory-traffic"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
local_memory_traffic_fixed(const float* __restrict__ x, float* __restrict__ y, int cols) {
    const int col = blockIdx.x * BLOCK + threadIdx.x;
    if (col >= cols) return;
    float ring[TAPS];
#pragma unroll
    for (int t = 0; t < TAPS - 1; ++t) ring[t] = x[(size_t)t * cols + col];
#pragma unroll 1
    for (int turn = 0; turn < LENGTH; turn += TAPS) {
#pragma unroll
        for (int t = 0; t < TAPS; ++t) {  // once around the ring: `newest` is a constant in each copy
            const int row = turn + t, newest = (t + TAPS - 1) % TAPS;
            ring[newest] = x[(size_t)(row + TAPS - 1) * cols + col];
            float sum = 0.f;
#pragma unroll
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
kernel = "local_memory_traffic_fixed"
grid = ["ceil_div(cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "cols"]

[expect]
ratio_at_least = 1.3

[expect.sass]
present = ["FADD"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "nothing is left in local memory"
check = "executed('LDL') + executed('STL') == 0"

[[expect.profile]]
says = "the additions are the same"
check = "0.9 < executed('FADD') / prev_executed('FADD') < 1.1"
+++*/
