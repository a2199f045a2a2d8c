/*+++
title = "GELU, 16 bytes at a time"
idea = "Each thread reads UNROLL times four floats in 16-byte loads before it computes anything, which keeps more bytes in flight with a quarter of the memory instructions. The tanh becomes a logistic function, which is the same value for one exponential and one reciprocal."
kind = "step"
compared_with = "gelu_fused"
removes = "narrow-access"
minimum_cc = "8.0"

[problem]
op = "gelu"

[source]
document = "Beyond the document: vector accesses"

[parameters]
BLOCK = 256
UNROLL = 2

[search]
BLOCK = [128, 256, 512, 1024]
UNROLL = [1, 2, 4]

[[launch]]
kernel = "gelu_vectorized"
grid = ["ceil_div(rows * cols, 4 * BLOCK * UNROLL)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E.128", "STG.E.128", "MUFU.EX2", "MUFU.RCP"]
absent = ["LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "every load is 128 bits wide, and there are a quarter as many"
check = "executed('LDG.E.128') == executed('LDG') and executed('LDG') < 0.3 * prev_executed('LDG')"

[[expect.profile]]
says = "fewer instructions an element"
check = "metric('instructions') < 0.7 * prev_metric('instructions')"

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.75"
sizes = ["16384"]
+++*/
#include "common/gelu.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_vectorized(const float* __restrict__ x, float* __restrict__ y, long long count) {
    const long long first = (long long)blockIdx.x * (4 * BLOCK * UNROLL);
    if (first + 4 * BLOCK * UNROLL <= count && is_aligned_16(x) && is_aligned_16(y)) {
        const float* const in = x + first + 4 * threadIdx.x;
        float* const out = y + first + 4 * threadIdx.x;
        float4 v[UNROLL];
        #pragma unroll
        for (int k = 0; k < UNROLL; ++k) v[k] = load_float4(in + 4 * BLOCK * k);
        #pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const float4 g = make_float4(gelu_logistic(v[k].x), gelu_logistic(v[k].y), gelu_logistic(v[k].z), gelu_logistic(v[k].w));
            store_float4(out + 4 * BLOCK * k, g);
        }
        return;
    }
    // The block that the end of the array cuts: one element at a time.
    for (long long i = first + threadIdx.x; i < first + 4 * BLOCK * UNROLL && i < count; i += BLOCK) y[i] = gelu_logistic(x[i]);
}
