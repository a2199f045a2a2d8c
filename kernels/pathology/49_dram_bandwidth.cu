/*+++
title = "A stream at DRAM bandwidth"
idea = """\
Each element is read once, scaled, and written once, 16 bytes per lane with the GPU full of warps. \
Nothing is fetched twice, and warps wait only for memory, so this is the fastest possible."""
kind = "roof"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
dram_bandwidth(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int first = 4 * (blockIdx.x * (2 * BLOCK) + threadIdx.x);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const int i = first + k * 4 * BLOCK;
        const float4 v = load_float4_guarded(x + i, count - i, true);
        store_float4_guarded(y + i, make_float4(affine(v.x), affine(v.y), affine(v.z), affine(v.w)), count - i, true);
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "affine"
scale = 4

[parameters]
BLOCK = 256

[[launch]]
kernel = "dram_bandwidth"
grid = ["ceil_div(count, 8 * BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E.128", "STG.E.128"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the device memory is busy"
check = "metric('dram_utilization') > 0.75"

[[expect.profile]]
says = "the traffic is close to the compulsory traffic"
check = "metric('dram_bytes') < 1.15 * 2 * 4 * 4 * n"
+++*/
