/*+++
title = "Sixteen blocks"
idea = """\
A grid of a fixed 16 blocks, right for some small GPU of the past: on an H200 116 of the 132 SMs \
have nothing to do."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
grid_too_small(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int stride = gridDim.x * BLOCK;
#pragma unroll 4
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += stride) y[i] = affine(x[i]);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "affine"

[parameters]
BLOCK = 256
BLOCKS = 16

[[launch]]
kernel = "grid_too_small"
grid = ["BLOCKS", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E", "STG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the grid fills a small part of the GPU"
check = "metric('waves') < 0.2"
+++*/
