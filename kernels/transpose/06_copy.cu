/*+++
title = "Device copy"
idea = "Reads and writes every byte once, in 16-byte accesses, UNROLL of them in flight a thread: what a transpose would cost if turning were free."
kind = "roof"
compared_with = ""
removes = ""
minimum_cc = "8.0"

[problem]
op = "copy"

[source]
document = "The roof of every memory-bound ladder"

[parameters]
BLOCK = 256
UNROLL = 4

[search]
BLOCK = [128, 256, 512, 1024]
UNROLL = [1, 2, 4, 8]

[[launch]]
kernel = "copy"
grid = ["ceil_div(rows * cols, 4 * BLOCK * UNROLL)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E.128", "STG.E.128"]
absent = ["LDS", "STS", "LDL", "STL"]

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.75"
sizes = ["16384"]
+++*/
#include "common/common.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
copy(const float* __restrict__ x, float* __restrict__ y, long long count) {
    const long long first = (long long)blockIdx.x * (4 * BLOCK * UNROLL);
    if (first + 4 * BLOCK * UNROLL <= count && is_aligned_16(x) && is_aligned_16(y)) {
        const float* const in = x + first + 4 * threadIdx.x;
        float* const out = y + first + 4 * threadIdx.x;
        float4 v[UNROLL];
        #pragma unroll
        for (int k = 0; k < UNROLL; ++k) v[k] = load_float4(in + 4 * BLOCK * k);
        #pragma unroll
        for (int k = 0; k < UNROLL; ++k) store_float4(out + 4 * BLOCK * k, v[k]);
        return;
    }
    // The block that the end of the array cuts: one element at a time.
    for (long long i = first + threadIdx.x; i < first + 4 * BLOCK * UNROLL && i < count; i += BLOCK) y[i] = x[i];
}
