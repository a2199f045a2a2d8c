/*+++
title = "Too much shared memory per block"
idea = """\
A streaming kernel whose launch asks for 64 KiB of shared memory a block, left over from a version \
that needed it. Three blocks of four warps fit on an H200's SM: far too few loads under way."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
low_occupancy(const float* __restrict__ x, float* __restrict__ y, int count) {
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
kernel = "low_occupancy"
grid = ["ceil_div(count, BLOCK * PER_THREAD)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "64 * 1024"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E", "STG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "few warps fit on an SM"
check = "metric('theoretical_occupancy') < 0.25"

[[expect.profile]]
says = "warps wait for loads"
check = "stall_share('long_scoreboard') > 0.5"
+++*/
