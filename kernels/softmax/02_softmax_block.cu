/*+++
title = "One block per row"
idea = """\
The threads of a block walk over one row side by side, so that a warp's load is one piece of 128 \
bytes, and there are enough blocks for every SM. Maximum and sum meet in a tree in shared memory. \
The row is still read three times."""
kind = "step"
compared_with = "softmax_naive"
+++*/

#include "softmax/reduce_row.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
softmax_block(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float part[BLOCK];
    const int tid = threadIdx.x;
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;

    float largest = LOWEST;
    for (int i = tid; i < cols; i += BLOCK) largest = fmaxf(largest, x[i]);
    part[tid] = largest;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) part[tid] = fmaxf(part[tid], part[tid + s]);
        __syncthreads();
    }
    largest = part[0];
    __syncthreads();  // part is written again

    float sum = 0.f;
    for (int i = tid; i < cols; i += BLOCK) sum += __expf(x[i] - largest);
    part[tid] = sum;
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        if (tid < s) part[tid] += part[tid + s];
        __syncthreads();
    }
    const float scale = 1.f / part[0];
    for (int i = tid; i < cols; i += BLOCK) y[i] = __expf(x[i] - largest) * scale;
}

/*+++
minimum_cc = "8.0"

[source]
document = "Beyond the definition: coalesced rows"

[parameters]
BLOCK = 256

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "softmax_block"
grid = ["rows", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "cols"]

[expect.sass]
present = ["LDG.E", "STG.E", "MUFU.EX2", "STS", "LDS", "BAR.SYNC"]
absent = ["LDG.E.128", "SHFL", "LDL", "STL"]

[[expect.profile]]
says = "a warp's load takes four sectors, not up to 32"
check = "metric('ld_sectors_per_request') < 5 < prev_metric('ld_sectors_per_request')"
+++*/
