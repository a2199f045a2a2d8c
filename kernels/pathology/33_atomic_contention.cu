/*+++
title = "All threads update the same few counters"
idea = """\
A histogram with 16 bins, counted in global memory. Each element is an atomic on one of 16 \
addresses that lie side by side in the L2, and one slice of the L2 processes the updates of the \
whole GPU."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

// The last block to arrive copies the counts to y, reading them past the L1, which other SMs' atomics do not pass through.
__device__ __forceinline__ void publish(int* bins, int* ticket, int* y) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1) == (int)gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x < BINS) y[threadIdx.x] = atomicAdd(bins + threadIdx.x, 0);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
atomic_contention(const int* __restrict__ key, int* bins, int* ticket, int* __restrict__ y, int count) {
#pragma unroll 4
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) atomicAdd(bins + key[i], 1);
    publish(bins, ticket, y);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "histogram"
bins = 16

[parameters]
BLOCK = 256
BLOCKS_PER_SM = 8
BINS = 16

[[launch]]
kernel = "atomic_contention"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["key", "bins", "ticket", "y", "count"]

[scratch.bins]
dtype = "int32"
count = "BINS"
zeroed = true

[scratch.ticket]
dtype = "int32"
count = "1"
zeroed = true

[expect.sass]
present = ["RED|ATOMG", "LDG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "an atomic in global memory for every element"
check = "executed('RED') + executed('ATOMG') >= n / 32"

[[expect.profile]]
says = "device memory is not busy"
check = "metric('dram_utilization') < 0.3"
+++*/
