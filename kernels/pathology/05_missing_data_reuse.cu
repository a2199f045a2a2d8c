/*+++
title = "Every tap loaded again"
idea = """\
A moving mean over TAPS neighbours, one result per thread. Neighbouring results share all but one \
input, yet each thread fetches all of them itself: every element passes the L1 TAPS times."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
missing_data_reuse(const float* __restrict__ x, float* __restrict__ y, int count) {
    const int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i >= count) return;
    float sum = 0.f;
#pragma unroll 16
    for (int t = 0; t < TAPS; ++t) sum += x[i + t];
    y[i] = sum * (1.f / TAPS);
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "moving_mean"
taps = 64

[parameters]
BLOCK = 256
TAPS = 64

[[launch]]
kernel = "missing_data_reuse"
grid = ["ceil_div(count, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "count"]

[expect.sass]
present = ["LDG.E", "FADD"]
absent = ["LDL", "STL", "LDS"]

[[expect.profile]]
says = "nearly all of it is fetched again from the L1"
check = "metric('l1_hit_rate') > 0.7"

[[expect.profile]]
says = "L1 delivers many times the input"
check = "metric('l1_global_bytes') > 20 * 4 * n"
+++*/
