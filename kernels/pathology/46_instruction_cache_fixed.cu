/*+++
title = "One body for all, the constants as data"
idea = """\
The classes differ in two numbers only. They become data, and one short loop serves every class."""
kind = "step"
compared_with = "instruction_cache"
removes = "instruction-cache"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
instruction_cache_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
#pragma unroll 1
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) {
        const float factor = step_factor(i / 32 % 64), offset = step_offset(i / 32 % 64);
        float v = x[i];
#pragma unroll 32
        for (int k = 0; k < STEPS; ++k) v = fmaf(v, factor, offset);
        y[i] = v;
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 256
classes = 64

[parameters]
BLOCK = 256
BLOCKS_PER_SM = 8
STEPS = 256

[[launch]]
kernel = "instruction_cache_fixed"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.3

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "hardly a wait for instructions"
check = "stall_share('no_instruction') < 0.15"

[[expect.profile]]
says = "about the same multiply-adds"
check = "0.95 < executed('FFMA') / prev_executed('FFMA') < 1.05"
+++*/
