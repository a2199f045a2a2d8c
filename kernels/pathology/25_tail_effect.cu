/*+++
title = "One block too many for one wave"
idea = """\
The work is split evenly over one block more than the GPU can hold at once. That block starts when \
the others are done, and runs alone: a second wave for 1/265 of the work."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
tail_effect(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int share = ceil_div(count, (int)gridDim.x);
    const int end = min((int)(blockIdx.x + 1) * share, count);
#pragma unroll 1
    for (int i = blockIdx.x * share + threadIdx.x; i < end; i += BLOCK) y[i] = iterate(x[i], STEPS);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 512

[parameters]
BLOCK = 1024
STEPS = 512

[[launch]]
kernel = "tail_effect"
grid = ["2 * sm_count + 1", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]
max_registers = 32

[[expect.profile]]
says = "slightly more than one wave"
check = "1 < metric('waves') < 1.1"
+++*/
