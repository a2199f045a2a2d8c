/*+++
title = "Coordinates by 64-bit division"
idea = """\
A slice of a long tensor with a bias along each axis. The coordinates come from three divisions \
with 64-bit extents that are known at run time only. The GPU has no instruction for division: each \
is dozens of integer instructions, and the one addition that is wanted disappears among them."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
integer_arithmetic(const float* __restrict__ x, const float* __restrict__ b0, const float* __restrict__ b1, const float* __restrict__ b2,
                   float* __restrict__ y, int count, long long first, long long d0, long long d1, long long d2) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    const long long at = first + i;
    const long long row = at / d0, plane = row / d1;
    y[i] = x[i] + b0[at % d0] + b1[row % d1] + b2[plane % d2];
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "broadcast_add"
d0 = 24
d1 = 36
d2 = 52

[parameters]
BLOCK = 256

[[launch]]
kernel = "integer_arithmetic"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "b0", "b1", "b2", "y", "count", "first", "d0", "d1", "d2"]

[expect.sass]
present = ["IMAD", "LDG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "more than 100 instructions per element"
check = "metric('instructions') > 100 * n / 32"

[[expect.profile]]
says = "device memory is not busy"
check = "metric('dram_utilization') < 0.6"
+++*/
