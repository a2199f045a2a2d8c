/*+++
title = "Extents known to the compiler, in 32 bits"
idea = """\
The extents are compile-time parameters, so that a division is a multiplication and a shift; and \
since the biases repeat every D0 * D1 * D2 elements, the slice's start is reduced to that range \
once and 32 bits do for the rest."""
kind = "step"
compared_with = "integer_arithmetic"
removes = "integer-arithmetic"
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
integer_arithmetic_fixed(const float* __restrict__ x, const float* __restrict__ b0, const float* __restrict__ b1, const float* __restrict__ b2,
                         float* __restrict__ y, int count, long long first) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    const unsigned at = (unsigned)((unsigned long long)first % (D0 * D1 * D2)) + i;
    const unsigned row = at / D0, plane = row / D1;
    y[i] = x[i] + b0[at % D0] + b1[row % D1] + b2[plane % D2];
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
D0 = 24
D1 = 36
D2 = 52

[[launch]]
kernel = "integer_arithmetic_fixed"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "b0", "b1", "b2", "y", "count", "first"]

[expect]
ratio_at_least = 1.5

[expect.sass]
present = ["IMAD", "LDG.E"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "far fewer instructions"
check = "metric('instructions') < 0.5 * prev_metric('instructions')"

[[expect.profile]]
says = "the loads are the same"
check = "0.9 < executed('LDG') / prev_executed('LDG') < 1.1"
+++*/
