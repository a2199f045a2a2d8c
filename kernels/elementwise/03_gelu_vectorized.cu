/*+++
title = "GELU, 16 bytes at a time"
idea = """\
Each thread takes four floats by one 16-byte load and one store: a quarter of the memory \
instructions, and four times the bytes in flight. The tanh becomes a logistic function, which is \
the same value for one exponential and one reciprocal."""
kind = "step"
compared_with = "gelu_fused"
removes = "narrow-access"
+++*/

#include "common/gelu.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
gelu_vectorized(const float* __restrict__ x, float* __restrict__ y, long long count) {
    const long long i = 4 * ((long long)blockIdx.x * BLOCK + threadIdx.x);
    const int remaining = (int)min(4LL, count - i);
    const bool vector = is_aligned_16(x) && is_aligned_16(y);
    const float4 v = load_float4_guarded(x + i, remaining, vector);
    const float4 g = make_float4(gelu_logistic(v.x), gelu_logistic(v.y), gelu_logistic(v.z), gelu_logistic(v.w));
    store_float4_guarded(y + i, g, remaining, vector);
}

/*+++
minimum_cc = "8.0"

[problem]
op = "gelu"

[source]
document = "Beyond the document: vector accesses"

[parameters]
BLOCK = 256

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "gelu_vectorized"
grid = ["ceil_div(rows * cols, 4 * BLOCK)", "1", "1"]
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
says = "fewer instructions per element"
check = "metric('instructions') < 0.7 * prev_metric('instructions')"

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.75"
sizes = ["16384"]
+++*/
