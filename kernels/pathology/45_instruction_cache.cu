/*+++
title = "A separate code path for each of 64 classes"
idea = """\
The steps of each class of elements are unrolled into a body of their own, with the class's \
constants in the instructions: 64 bodies of 4 KiB, twice what the instruction caches of an SM \
hold. The warps of an SM are in different bodies, so they wait for instructions."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

template <int C>
__device__ __forceinline__ float body(float v) {
#pragma unroll
    for (int k = 0; k < STEPS; ++k) v = fmaf(v, step_factor(C), step_offset(C));
    return v;
}

#define CASE(c) case c: v = body<c>(v); break;
#define CASES_4(c) CASE(c) CASE(c + 1) CASE(c + 2) CASE(c + 3)
#define CASES_16(c) CASES_4(c) CASES_4(c + 4) CASES_4(c + 8) CASES_4(c + 12)

extern "C" __global__ void __launch_bounds__(BLOCK)
instruction_cache(const float* __restrict__ x, float* __restrict__ y, int count) {
#pragma unroll 1
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) {
        float v = x[i];
        switch (i / 32 % 64) {  // the same for the 32 lanes of a warp
            CASES_16(0) CASES_16(16) CASES_16(32) CASES_16(48)
        }
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
kernel = "instruction_cache"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "warps wait for instructions"
check = "stall_share('no_instruction') > 0.3"

[[expect.profile]]
says = "no lanes are lost"
check = "metric('lanes_per_instruction') > 31"
+++*/
