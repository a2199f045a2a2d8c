/*+++
title = "Four coefficients per load, eight elements per coefficient"
idea = """\
The same polynomial from the same place: a load brings four coefficients at once, and each serves \
eight elements of the thread. One load instruction in 32 is left."""
kind = "step"
compared_with = "global_instruction_pressure"
removes = "global-instruction-pressure"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
global_instruction_pressure_fixed(const float* __restrict__ x, const float* __restrict__ c, float* __restrict__ y, int count) {
    const int first = blockIdx.x * (BLOCK * PER_THREAD) + threadIdx.x;
    float v[PER_THREAD], sum[PER_THREAD];
#pragma unroll
    for (int j = 0; j < PER_THREAD; ++j) {
        v[j] = first + j * BLOCK < count ? x[first + j * BLOCK] : 0.f;
        sum[j] = 0.f;
    }
#pragma unroll 4
    for (int k = DEGREE - 3; k >= 0; k -= 4) {
        const float4 q = load_float4(c + k);
#pragma unroll
        for (int j = 0; j < PER_THREAD; ++j) sum[j] = fmaf(fmaf(fmaf(fmaf(sum[j], v[j], q.w), v[j], q.z), v[j], q.y), v[j], q.x);
    }
#pragma unroll
    for (int j = 0; j < PER_THREAD; ++j)
        if (first + j * BLOCK < count) y[first + j * BLOCK] = sum[j];
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "polynomial"
degree = 63

[parameters]
BLOCK = 256
DEGREE = 63
PER_THREAD = 8

[[launch]]
kernel = "global_instruction_pressure_fixed"
grid = ["ceil_div(count, BLOCK * PER_THREAD)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "c", "y", "count"]

[expect]
ratio_at_least = 1.8

[expect.sass]
present = ["LDG.E.128", "FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "few loads are left"
check = "executed('LDG') < 0.08 * prev_executed('LDG')"

[[expect.profile]]
says = "about the same multiply-adds"
check = "0.95 < executed('FFMA') / prev_executed('FFMA') < 1.05"
+++*/
