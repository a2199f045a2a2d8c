/*+++
title = "A launch for every step"
idea = """\
Each of 64 steps is a separate kernel that reads the array and writes it back: a megabyte that \
stays in the L2. A launch works for a microsecond or two, and starting and draining it takes as \
long again."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
launch_overhead_first(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) y[i] = step(x[i]);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
launch_overhead_next(float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < count) y[i] = step(y[i]);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "iterate"
steps = 64
divide = 64

[parameters]
BLOCK = 256
STEPS = 64

[[launch]]
kernel = "launch_overhead_first"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[[launch]]
kernel = "launch_overhead_next"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["y", "count"]
repeat = "STEPS - 1"

[expect.sass]
present = ["FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "a launch is over in microseconds"
check = "metric('duration') < 20"
+++*/
