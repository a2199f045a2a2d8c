/*+++
title = "All steps in one launch"
idea = "One kernel takes all 64 steps of an element in registers."
kind = "step"
compared_with = "launch_overhead"
removes = "launch-overhead"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
launch_overhead_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) y[i] = iterate(x[i], STEPS);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 64
divide = 64

[parameters]
BLOCK = 256
STEPS = 64

[[launch]]
kernel = "launch_overhead_fixed"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 8

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "all steps in one launch"
check = "executed('FFMA') >= 64 * n / 64 / 32"
+++*/
