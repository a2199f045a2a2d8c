/*+++
title = "One full wave"
idea = "One block less, each with a little more work: all start together and end together."
kind = "step"
compared_with = "tail_effect"
removes = "tail-effect"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
tail_effect_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
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
kernel = "tail_effect_fixed"
grid = ["2 * sm_count", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.25

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]
max_registers = 32

[[expect.profile]]
says = "exactly one wave"
check = "abs(metric('waves') - 1) < 0.001"

[[expect.profile]]
says = "the multiply-adds are the same"
check = "0.98 < executed('FFMA') / prev_executed('FFMA') < 1.02"
+++*/
