/*+++
title = "Neighbouring lanes read neighbouring elements"
idea = """\
The same loop over the same CHUNK elements a thread, dealt out so that the lanes of a warp are \
next to each other. A request needs 4 sectors instead of 32."""
kind = "step"
compared_with = "uncoalesced_global_access"
removes = "uncoalesced-global-access"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
uncoalesced_global_access_fixed(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int first = blockIdx.x * (BLOCK * CHUNK);
#pragma unroll 4
    for (int k = 0; k < CHUNK; ++k) {
        const int i = first + k * BLOCK + threadIdx.x;  // lanes are neighbours
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
kernel = "uncoalesced_global_access_fixed"
grid = ["ceil_div(count, BLOCK * CHUNK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 2

[expect.sass]
present = ["LDG.E", "STG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "a load request touches four sectors"
check = "metric('ld_sectors_per_request') < 4.5"

[[expect.profile]]
says = "a store request touches four sectors"
check = "metric('st_sectors_per_request') < 4.5"

[[expect.profile]]
says = "it is the same number of loads"
check = "executed('LDG') == prev_executed('LDG')"
+++*/
