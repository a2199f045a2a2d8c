/*+++
title = "The expensive elements spread over all blocks"
idea = """\
The same elements on the same grid, dealt out in turns: every block gets its share of the hard \
ones."""
kind = "step"
compared_with = "load_imbalance"
removes = "load-imbalance"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
load_imbalance_fixed(const float* __restrict__ x, float* __restrict__ y, int count, int heavy) {
#pragma unroll 1
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) y[i] = iterate(x[i], i < heavy ? LONG_STEPS : STEPS);
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
kernel = "load_imbalance_fixed"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count", "heavy"]

[expect]
ratio_at_least = 2

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "all SMs work about as long"
check = "metric('sm_active_cycles_max') < 1.15 * metric('sm_active_cycles')"

[[expect.profile]]
says = "the multiply-adds are the same"
check = "0.98 < executed('FFMA') / prev_executed('FFMA') < 1.02"
+++*/
