/*+++
title = "One thread per row"
idea = """\
A thread walks over its row three times: for the maximum, for the sum of the exponentials, and to \
write them. The lanes of a warp are a whole row apart, so each load of a warp touches 32 sectors, \
and long rows leave too few threads to fill the GPU."""
kind = "step"
compared_with = ""
+++*/

#include "softmax/reduce_row.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
softmax_naive(const float* __restrict__ x, float* __restrict__ y, int rows, int cols) {
    const int row = blockIdx.x * BLOCK + threadIdx.x;
    if (row >= rows) return;
    x += (long long)row * cols;
    y += (long long)row * cols;

    float largest = LOWEST;
    for (int i = 0; i < cols; ++i) largest = fmaxf(largest, x[i]);
    float sum = 0.f;
    for (int i = 0; i < cols; ++i) sum += __expf(x[i] - largest);
    const float scale = 1.f / sum;
    for (int i = 0; i < cols; ++i) y[i] = __expf(x[i] - largest) * scale;
}

/*+++
minimum_cc = "8.0"

[source]
document = "The definition, with the maximum taken off so that no exponential overflows"

[parameters]
BLOCK = 128

[search]
BLOCK = [32, 64, 128, 256]

[[launch]]
kernel = "softmax_naive"
grid = ["ceil_div(rows, BLOCK)", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "rows", "cols"]

[expect.sass]
present = ["LDG.E", "STG.E", "MUFU.EX2"]
absent = ["LDG.E.128", "LDS", "STS", "SHFL", "LDL", "STL"]
+++*/
