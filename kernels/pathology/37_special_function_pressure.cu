/*+++
title = "Powers computed by exponential and logarithm"
idea = """\
The sum of the first powers of x, each power as 2^(k log2 x). Every term needs the \
special-function unit, which serves at most a quarter as many lanes per cycle as the other pipes: \
all warps queue up for it."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

__device__ __forceinline__ float log2_fast(float v) { float r; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
__device__ __forceinline__ float exp2_fast(float v) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }

extern "C" __global__ void __launch_bounds__(BLOCK)
special_function_pressure(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    const float l = log2_fast(x[i]);
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k <= DEGREE; ++k) sum += exp2_fast((float)k * l);
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
kernel = "special_function_pressure"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["MUFU.EX2", "MUFU.LG2"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "an exponential for every term"
check = "executed('MUFU') >= 64 * n / 32"

[[expect.profile]]
says = "the special-function pipe is busy"
check = "metric('xu_pipe_active') > 0.6"
+++*/
