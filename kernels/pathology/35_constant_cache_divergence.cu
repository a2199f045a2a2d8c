/*+++
title = "Each lane reads another constant"
idea = """\
A table of 32 entries in constant memory, indexed by data. The constant cache hands one address a \
time to a whole warp: where 32 lanes ask for some 20 different entries, it serves them one after \
the other."""
kind = "planted"
compared_with = ""
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
constant_cache_divergence(const int* __restrict__ key, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) y[i] = look_up(table.value, key[i]);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "lookup"
entries = 32

[parameters]
BLOCK = 256
ENTRIES = 32

[[launch]]
kernel = "constant_cache_divergence"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["key", "y", "count"]

[expect.sass]
present = ["LDC"]
absent = ["LDL", "STL", "LDS"]

[[expect.profile]]
says = "six indexed constant loads per element"
check = "executed('LDC') >= 6 * n / 32"

[[expect.profile]]
says = "device memory is not busy"
check = "metric('dram_utilization') < 0.5"
+++*/
