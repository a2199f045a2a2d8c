/*+++
title = "Horner's rule"
idea = "The same sum by Horner's rule: a multiply-add a term, and no special function at all."
kind = "step"
compared_with = "special_function_pressure"
removes = "special-function-pressure"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
special_function_pressure_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    const float v = x[i];
    float sum = 0.f;
#pragma unroll 16
    for (int k = 0; k <= DEGREE; ++k) sum = fmaf(sum, v, 1.f);
    y[i] = sum;
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "polynomial"
degree = 63
ones = 1

[parameters]
BLOCK = 256
DEGREE = 63

[[launch]]
kernel = "special_function_pressure_fixed"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.8

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL", "MUFU"]

[[expect.profile]]
says = "no special function is left"
check = "executed('MUFU') == 0"

[[expect.profile]]
says = "a multiply-add for every term"
check = "executed('FFMA') >= 63 * n / 32"
+++*/
