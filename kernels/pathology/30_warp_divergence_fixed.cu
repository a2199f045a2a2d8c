/*+++
title = "One kind of work per warp"
idea = """\
Four neighbouring warps share 128 elements so that each takes the four runs of one kind. A run of \
eight floats is a whole sector, so the accesses stay coalesced."""
kind = "step"
compared_with = "warp_divergence"
removes = "warp-divergence"
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
warp_divergence_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x / 128 * 128 + threadIdx.x % 32 / 8 * 32 + threadIdx.x / 32 % 4 * 8 + threadIdx.x % 8;
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
kernel = "warp_divergence_fixed"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.8

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "all lanes work"
check = "metric('lanes_per_instruction') > 30"

[[expect.profile]]
says = "the accesses stay coalesced"
check = "metric('ld_sectors_per_request') < 4.5"
+++*/
