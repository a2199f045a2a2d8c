/*+++
title = "The table in shared memory"
idea = """\
The block copies the table to shared memory first, where 32 entries lie in 32 banks and every lane \
may read another one. The lookups are the same."""
kind = "step"
compared_with = "constant_cache_divergence"
removes = "constant-cache-divergence"
+++*/

#include "pathology/pathology.cuh"

struct Table {
    float value[ENTRIES];
    constexpr Table() : value() {
        for (int k = 0; k < ENTRIES; ++k) value[k] = 1.f / (float)(k + 1);
    }
};
__constant__ Table table = Table();

// Sum of the entries that the key's six groups of five bits name.
__device__ __forceinline__ float look_up(const float* entries, int key) {
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < 6; ++j) sum += entries[key >> (5 * j) & (ENTRIES - 1)];
    return sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
constant_cache_divergence_fixed(const int* __restrict__ key, float* __restrict__ y, int count) {
    __shared__ float entries[ENTRIES];
    if (threadIdx.x < ENTRIES) entries[threadIdx.x] = table.value[threadIdx.x];
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < PER_THREAD; ++k) {
        const int i = (blockIdx.x * PER_THREAD + k) * BLOCK + threadIdx.x;
        if (i < count) y[i] = look_up(entries, key[i]);
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "lookup"
entries = 32

[parameters]
BLOCK = 256
ENTRIES = 32
PER_THREAD = 4

[[launch]]
kernel = "constant_cache_divergence_fixed"
grid = ["ceil_div(count, BLOCK * PER_THREAD)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["key", "y", "count"]

[expect]
ratio_at_least = 2

[expect.sass]
present = ["LDS"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the lookups go to shared memory"
check = "executed('LDS') >= 6 * n / 32"

[[expect.profile]]
says = "they have no bank conflicts"
check = "metric('shared_conflict_excess') < 0.1"
+++*/
