/*+++
title = "Multiply-adds at the FP32 peak"
idea = """\
A thousand multiply-adds for each element that is read, four independent chains per thread, the \
GPU full of warps: the FMA pipe has work in nearly every cycle, and all of it is useful."""
kind = "roof"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
fp32_pipe(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int first = blockIdx.x * (4 * BLOCK) + threadIdx.x;
    float v[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) v[c] = first + c * BLOCK < count ? x[first + c * BLOCK] : 0.f;
#pragma unroll 16
    for (int k = 0; k < STEPS; ++k)
#pragma unroll
        for (int c = 0; c < 4; ++c) v[c] = step(v[c]);
#pragma unroll
    for (int c = 0; c < 4; ++c)
        if (first + c * BLOCK < count) y[first + c * BLOCK] = v[c];
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 1024

[parameters]
BLOCK = 256
STEPS = 1024

[[launch]]
kernel = "fp32_pipe"
grid = ["ceil_div(count, 4 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the FMA pipe is busy"
check = "metric('fma_pipe_active') > 0.85"

[[expect.profile]]
says = "no redundant multiply-adds"
check = "executed('FFMA') == 1024 * n / 32"
+++*/
