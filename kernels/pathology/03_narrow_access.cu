/*+++
title = "One byte per lane"
idea = """\
Each lane loads one byte, inverts it and stores it. The accesses are coalesced, but a warp has 32 \
bytes under way where it could have 512, and the latency of memory is paid for every one of them."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
narrow_access(const unsigned char* __restrict__ x, unsigned char* __restrict__ y, int count) {
#pragma unroll 1
    for (int i = blockIdx.x * BLOCK + threadIdx.x; i < count; i += gridDim.x * BLOCK) y[i] = ~x[i];
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
kernel = "narrow_access"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E.U8", "STG.E.U8"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "a request asks for one sector"
check = "metric('ld_sectors_per_request') < 1.1"

[[expect.profile]]
says = "device memory is not busy"
check = "metric('dram_utilization') < 0.6"
+++*/
