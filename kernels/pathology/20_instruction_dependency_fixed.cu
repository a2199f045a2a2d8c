/*+++
title = "Four independent chains per thread"
idea = """\
The same warps, but each thread works on four elements in turns: while one chain waits, the next \
ones issue."""
kind = "step"
compared_with = "instruction_dependency"
removes = "instruction-dependency"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
instruction_dependency_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int stride = gridDim.x * BLOCK;
#pragma unroll 1
    for (int first = blockIdx.x * BLOCK + threadIdx.x; first < count; first += CHAINS * stride) {
        float v[CHAINS];
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) v[c] = first + c * stride < count ? x[first + c * stride] : 0.f;
#pragma unroll 8
        for (int k = 0; k < STEPS; ++k)
#pragma unroll
            for (int c = 0; c < CHAINS; ++c) v[c] = step(v[c]);
#pragma unroll
        for (int c = 0; c < CHAINS; ++c)
            if (first + c * stride < count) y[first + c * stride] = v[c];
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 1024

[parameters]
BLOCK = 128
BLOCKS_PER_SM = 2
STEPS = 1024
CHAINS = 4

[[launch]]
kernel = "instruction_dependency_fixed"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.5

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "most issue slots are used"
check = "metric('issue_active') > 0.75"

[[expect.profile]]
says = "the number of warps is the same"
check = "metric('achieved_occupancy') < 0.2"

[[expect.profile]]
says = "the multiply-adds are the same"
check = "0.98 < executed('FFMA') / prev_executed('FFMA') < 1.02"
+++*/
