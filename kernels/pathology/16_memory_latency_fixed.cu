/*+++
title = "Four chains at once"
idea = """\
The same chains, four of them per thread: four loads in flight instead of one, on the same \
number of resident warps."""
kind = "step"
compared_with = "memory_latency"
removes = "memory-latency"
+++*/

#include "pathology/pathology.cuh"

// One hop: the page table gives the place of the element's chunk, the element there names the next one.
__device__ __forceinline__ int hop(const int* __restrict__ link, const int* __restrict__ table, int i) {
    return __ldg(link + __ldg(table + i / CHUNK) * CHUNK + i % CHUNK);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
memory_latency_fixed(const int* __restrict__ link, const int* __restrict__ table, int* __restrict__ y, int n) {
    const int first = blockIdx.x * (BLOCK * CHAINS) + threadIdx.x;
    int at[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) at[c] = min(first + c * BLOCK, n - 1);  // past the end: a chain whose result nobody stores
#pragma unroll 1
    for (int h = 0; h < HOPS; ++h)
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) at[c] = hop(link, table, at[c]);
#pragma unroll
    for (int c = 0; c < CHAINS; ++c)
        if (first + c * BLOCK < n) y[first + c * BLOCK] = at[c];
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "chase"
hops = 8
chunk = 1024
scale = 4

[parameters]
BLOCK = 256
HOPS = 8
CHUNK = 1024
CHAINS = 4

[[launch]]
kernel = "memory_latency_fixed"
grid = ["ceil_div(n, BLOCK * CHAINS)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["link", "table", "y", "n"]

[expect]
ratio_at_least = 1.25

[expect.sass]
present = ["LDG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the loads are the same"
check = "0.99 < executed('LDG') / prev_executed('LDG') < 1.01"

[[expect.profile]]
says = "more bytes arrive in the same time"
check = "metric('dram_utilization') > 1.2 * prev_metric('dram_utilization')"
+++*/
