/*+++
title = "One histogram for each warp"
idea = """\
Each warp counts in shared memory, in bins that no other warp touches, and each block adds 16 \
totals to the global bins at the end."""
kind = "step"
compared_with = "atomic_contention"
removes = "atomic-contention"
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

#define WARPS (BLOCK / 32)

extern "C" __global__ void __launch_bounds__(BLOCK)
atomic_contention_fixed(const int* __restrict__ key, int* bins, int* ticket, int* __restrict__ y, int count) {
    __shared__ int mine[WARPS][BINS];
    for (int i = threadIdx.x; i < WARPS * BINS; i += BLOCK) mine[i / BINS][i % BINS] = 0;
    __syncthreads();
    const int warp = threadIdx.x / 32;
#pragma unroll 4
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) atomicAdd(&mine[warp][key[i]], 1);
    __syncthreads();
    if (threadIdx.x < BINS) {
        int total = 0;
        for (int w = 0; w < WARPS; ++w) total += mine[w][threadIdx.x];
        atomicAdd(bins + threadIdx.x, total);
    }
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
kernel = "atomic_contention_fixed"
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

[expect]
ratio_at_least = 4

[expect.sass]
present = ["ATOMS", "LDG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "hardly a global atomic is left"
check = "executed('RED') + executed('ATOMG') < 0.05 * (prev_executed('RED') + prev_executed('ATOMG'))"

[[expect.profile]]
says = "the counting happens in shared memory"
check = "executed('ATOMS') > 0"
+++*/
