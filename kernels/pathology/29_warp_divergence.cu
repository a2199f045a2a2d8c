/*+++
title = "Four kinds of work in one warp"
idea = """\
Elements come in runs of eight of one kind, and each kind takes another path. A warp of 32 \
neighbours holds all four, so it goes through all four paths, each with a quarter of its lanes."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

// Four small steps of four different equations; H is small enough for all of them to stay within 0 and 1.
#define H (1.f / 512.f)

__device__ __forceinline__ float evolve(float v, int kind) {
    switch (kind) {
    case 0:
#pragma unroll 8
        for (int k = 0; k < STEPS; ++k) v = v + H * (1.f - v);
        break;
    case 1:
#pragma unroll 8
        for (int k = 0; k < STEPS; ++k) v = v - H * (v * v);
        break;
    case 2:
#pragma unroll 8
        for (int k = 0; k < STEPS; ++k) v = v + H * (v * (1.f - v));
        break;
    default:
#pragma unroll 8
        for (int k = 0; k < STEPS; ++k) v = v - H * (v * v * v);
    }
    return v;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
warp_divergence(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) y[i] = evolve(x[i], i / 8 % 4);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "evolve"
steps = 128

[parameters]
BLOCK = 256
STEPS = 128

[[launch]]
kernel = "warp_divergence"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "a quarter of the lanes work at a time"
check = "metric('lanes_per_instruction') < 12"
+++*/
