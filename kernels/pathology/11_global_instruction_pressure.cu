/*+++
title = "A load for every multiply-add"
idea = """\
A polynomial by Horner's rule with the coefficients in global memory. They stay in the L1, so no \
latency or bandwidth of memory is at stake: each multiply-add of each thread issues a load of 4 \
bytes, and the queue of the load/store unit is full."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
global_instruction_pressure(const float* __restrict__ x, const float* __restrict__ c, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    const float v = x[i];
    float sum = 0.f;
#pragma unroll 16
    for (int k = DEGREE; k >= 0; --k) sum = fmaf(sum, v, c[k]);
    y[i] = sum;
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "polynomial"
degree = 63

[parameters]
BLOCK = 256
DEGREE = 63

[[launch]]
kernel = "global_instruction_pressure"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "c", "y", "count"]

[expect.sass]
present = ["LDG.E", "FFMA"]
absent = ["LDL", "STL", "LDG.E.128", "LDG.E.64"]

[[expect.profile]]
says = "one load per multiply-add"
check = "executed('LDG') > 0.9 * executed('FFMA')"

[[expect.profile]]
says = "they hit the L1"
check = "metric('l1_hit_rate') > 0.8"
+++*/
