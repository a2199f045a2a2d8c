/*+++
title = "Each thread reads a contiguous run"
idea = """\
Every thread works through CHUNK consecutive elements, so at any moment the 32 lanes of a warp are \
CHUNK elements apart and each touches another sector. It is how one divides work among CPU \
threads, and the wrong way round for a warp."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
uncoalesced_global_access(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int first = blockIdx.x * (BLOCK * CHUNK);
#pragma unroll 4
    for (int k = 0; k < CHUNK; ++k) {
        const int i = first + threadIdx.x * CHUNK + k;  // lanes are CHUNK elements apart
        if (i < count) y[i] = affine(x[i]);
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "affine"

[parameters]
BLOCK = 256
CHUNK = 32

[[launch]]
kernel = "uncoalesced_global_access"
grid = ["ceil_div(count, BLOCK * CHUNK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E", "STG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "a load request touches one sector per lane"
check = "metric('ld_sectors_per_request') > 24"

[[expect.profile]]
says = "a store request touches one sector per lane"
check = "metric('st_sectors_per_request') > 24"
+++*/
