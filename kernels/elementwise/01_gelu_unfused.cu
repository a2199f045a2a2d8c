/*+++
title = "GELU, one launch per operation"
idea = """\
The tanh form of GELU as an array library runs it when nothing is fused: eight launches, each of \
which reads its operands from memory and writes its result back. 18 passes over an array are made \
where 2 would do."""
kind = "step"
compared_with = ""
+++*/

#include "common/gelu.cuh"

__device__ __forceinline__ long long element() { return (long long)blockIdx.x * BLOCK + threadIdx.x; }

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_1(const float* __restrict__ x, float* __restrict__ t, long long count) {
    const long long i = element();
    if (i < count) t[i] = x[i] * x[i] * x[i];
}

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_2(float* __restrict__ t, long long count) {
    const long long i = element();
    if (i < count) t[i] *= GELU_CUBIC;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_3(const float* __restrict__ x, float* __restrict__ t, long long count) {
    const long long i = element();
    if (i < count) t[i] += x[i];
}

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_4(float* __restrict__ t, long long count) {
    const long long i = element();
    if (i < count) t[i] *= GELU_SCALE;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_5(float* __restrict__ t, long long count) {
    const long long i = element();
    if (i < count) t[i] = tanhf(t[i]);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_6(float* __restrict__ t, long long count) {
    const long long i = element();
    if (i < count) t[i] += 1.f;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_7(const float* __restrict__ x, float* __restrict__ y, long long count) {
    const long long i = element();
    if (i < count) y[i] = 0.5f * x[i];
}

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_unfused_8(const float* __restrict__ t, float* __restrict__ y, long long count) {
    const long long i = element();
    if (i < count) y[i] *= t[i];
}

/*+++
minimum_cc = "8.0"

[problem]
op = "gelu"

[source]
document = "Fused GELU example (unfused variant)"
claim = "67.2 us at 1024 x 1024, 8 launches"
device = "not stated"

[parameters]
BLOCK = 256

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "gelu_unfused_1"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "t", "count"]

[[launch]]
kernel = "gelu_unfused_2"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["t", "count"]

[[launch]]
kernel = "gelu_unfused_3"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "t", "count"]

[[launch]]
kernel = "gelu_unfused_4"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["t", "count"]

[[launch]]
kernel = "gelu_unfused_5"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["t", "count"]

[[launch]]
kernel = "gelu_unfused_6"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["t", "count"]

[[launch]]
kernel = "gelu_unfused_7"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[[launch]]
kernel = "gelu_unfused_8"
grid = ["ceil_div(rows * cols, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["t", "y", "count"]

[scratch.t]
dtype = "float32"
count = "rows * cols"
zeroed = false

[expect.sass]
present = ["LDG.E", "STG.E", "MUFU.EX2"]
absent = ["LDG.E.128", "LDS", "STS", "LDL", "STL"]
+++*/
