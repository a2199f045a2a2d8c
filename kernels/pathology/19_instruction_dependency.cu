/*+++
title = "One chain of arithmetic per thread"
idea = """\
Each multiply-add needs the result of the one before, which takes four cycles, and a scheduler has \
two warps to choose from. Half of the issue slots find no warp ready."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
instruction_dependency(const float* __restrict__ x, float* __restrict__ y, int count) {
#pragma unroll 1
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) y[i] = iterate(x[i], STEPS);
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

[[launch]]
kernel = "instruction_dependency"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "warps wait for the result of the instruction before"
check = "stall_share('wait') > 0.4"

[[expect.profile]]
says = "the schedulers often find no warp ready"
check = "metric('issue_active') < 0.6"
+++*/
