/*+++
title = "Constants without an f suffix"
idea = """\
The data are float, but the constants are written 0.5 and 4096.0, so the compiler computes in \
double precision, and `auto` carries the double through the whole chain. On this GPU that halves \
the arithmetic rate; on most others it is 32 or 64 times slower."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
double_precision(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    const auto keep = 1.0 - 1.0 / 4096.0;
    const auto gain = 0.5 / 4096.0;
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
kernel = "double_precision"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["DFMA", "F2F.F64.F32"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the chain runs in double precision"
check = "executed('DFMA') >= 512 * n / 32"

[[expect.profile]]
says = "the double-precision pipe is busy"
check = "metric('fp64_pipe_active') > 0.6"
+++*/
