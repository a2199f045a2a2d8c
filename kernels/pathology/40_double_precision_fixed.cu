/*+++
title = "The same constants with an f suffix"
idea = """\
Four added f suffixes. The chain runs in single precision, accurate enough for float data."""
kind = "step"
compared_with = "double_precision"
removes = "double-precision"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
double_precision_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    const auto keep = 1.0f - 1.0f / 4096.0f;
    const auto gain = 0.5f / 4096.0f;
    auto v = x[i] * keep + gain;
#pragma unroll 16
    for (int k = 1; k < STEPS; ++k) v = v * keep + gain;
    y[i] = (float)v;
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 513

[parameters]
BLOCK = 256
STEPS = 513

[[launch]]
kernel = "double_precision_fixed"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.5

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL", "DFMA", "DADD", "DMUL", "F2F"]

[[expect.profile]]
says = "no double precision is left"
check = "executed('DFMA') + executed('DADD') + executed('DMUL') == 0"

[[expect.profile]]
says = "as many multiply-adds"
check = "0.98 < executed('FFMA') / prev_executed('DFMA') < 1.02"
+++*/
