/*+++
title = "One chain of dependent loads"
idea = """\
Each thread follows a chain through memory, HOPS links long, each link found through a page \
table. An address is known only when the load before it has arrived: two latencies a hop, and one \
load in flight per thread. All accesses are coalesced and the SM is full of warps; this does not \
hide the latency."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

// One hop: the page table gives the place of the element's chunk, the element there names the next one.
__device__ __forceinline__ int hop(const int* __restrict__ link, const int* __restrict__ table, int i) {
    return __ldg(link + __ldg(table + i / CHUNK) * CHUNK + i % CHUNK);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
memory_latency(const int* __restrict__ link, const int* __restrict__ table, int* __restrict__ y, int n) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n) return;
    int at = i;
#pragma unroll 1
    for (int h = 0; h < HOPS; ++h) at = hop(link, table, at);
    y[i] = at;
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

[[launch]]
kernel = "memory_latency"
grid = ["ceil_div(n, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["link", "table", "y", "n"]

[expect.sass]
present = ["LDG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "warps wait for loads"
check = "stall_share('long_scoreboard') > 0.6"

[[expect.profile]]
says = "accesses are coalesced"
check = "metric('ld_sectors_per_request') < 4.5"

[[expect.profile]]
says = "the SM is full of warps"
check = "metric('theoretical_occupancy') > 0.9"
+++*/
