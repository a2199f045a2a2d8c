/*+++
title = "Only the shared memory that it uses"
idea = """\
Only the shared memory in the launch changes, to the none that the code uses, and the SM fills \
up."""
kind = "step"
compared_with = "low_occupancy"
removes = "low-occupancy"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
low_occupancy_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int first = blockIdx.x * (BLOCK * PER_THREAD) + threadIdx.x;
#pragma unroll 1
    for (int k = 0; k < PER_THREAD; ++k) {
        const int i = first + k * BLOCK;
        if (i < count) y[i] = affine(x[i]);
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "affine"

[parameters]
BLOCK = 128
PER_THREAD = 8

[[launch]]
kernel = "low_occupancy_fixed"
grid = ["ceil_div(count, BLOCK * PER_THREAD)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 2

[expect.sass]
present = ["LDG.E", "STG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the SM is full of warps"
check = "metric('theoretical_occupancy') > 0.9"

[[expect.profile]]
says = "the code is the same"
check = "executed('LDG') == prev_executed('LDG')"
+++*/
