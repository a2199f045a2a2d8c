/*+++
title = "As many blocks as the GPU holds"
idea = "The same grid-stride loop on a grid that follows the number of SMs."
kind = "step"
compared_with = "grid_too_small"
removes = "grid-too-small"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
grid_too_small_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
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
BLOCKS_PER_SM = 8

[[launch]]
kernel = "grid_too_small_fixed"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 4

[expect.sass]
present = ["LDG.E", "STG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the grid fills the GPU"
check = "metric('waves') > 0.9"

[[expect.profile]]
says = "the elements are the same"
check = "0.9 < executed('STG') / prev_executed('STG') < 1.1"
+++*/
