/*+++
title = "The expensive elements in a few blocks"
idea = """\
The first 1/64 of the elements need 32 times the steps of the others, and each block takes a \
contiguous share: the few blocks that hold them work on long after the rest of the GPU has gone \
idle."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
load_imbalance(const float* __restrict__ x, float* __restrict__ y, int count, int heavy) {
    const int share = ceil_div(count, (int)gridDim.x);
    const int end = min((int)(blockIdx.x + 1) * share, count);
#pragma unroll 1
    for (int i = blockIdx.x * share + threadIdx.x; i < end; i += BLOCK) y[i] = iterate(x[i], i < heavy ? LONG_STEPS : STEPS);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 64
long_steps = 2048

[parameters]
BLOCK = 256
BLOCKS_PER_SM = 8
STEPS = 64
LONG_STEPS = 2048

[[launch]]
kernel = "load_imbalance"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count", "heavy"]

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the busiest SM works far longer than the mean"
check = "metric('sm_active_cycles_max') > 1.3 * metric('sm_active_cycles')"
+++*/
