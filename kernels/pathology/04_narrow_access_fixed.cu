/*+++
title = "Sixteen bytes per lane"
idea = """\
The same loop on the same grid, 16 bytes per lane: a sixteenth of the instructions, and sixteen \
times the bytes under way."""
kind = "step"
compared_with = "narrow_access"
removes = "narrow-access"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
narrow_access_fixed(const unsigned char* __restrict__ x, unsigned char* __restrict__ y, int count) {
    const uint4* __restrict__ wide_x = reinterpret_cast<const uint4*>(x);
    uint4* __restrict__ wide_y = reinterpret_cast<uint4*>(y);
    const int thread = blockIdx.x * BLOCK + threadIdx.x;
#pragma unroll 1
    for (int i = thread; i < count / 16; i += gridDim.x * BLOCK) {
        const uint4 v = wide_x[i];
        wide_y[i] = make_uint4(~v.x, ~v.y, ~v.z, ~v.w);
    }
    const int i = count / 16 * 16 + thread;  // the up to 15 bytes that are no whole vector
    if (i < count) y[i] = ~x[i];
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "invert_bytes"
scale = 8

[parameters]
BLOCK = 256
BLOCKS_PER_SM = 8

[[launch]]
kernel = "narrow_access_fixed"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect]
ratio_at_least = 1.8

[expect.sass]
present = ["LDG.E.128", "STG.E.128"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "loads are 128 bits wide"
check = "executed('LDG.E.128') > 0.9 * executed('LDG')"

[[expect.profile]]
says = "a sixteenth of the loads"
check = "executed('LDG') < 0.08 * prev_executed('LDG')"
+++*/
