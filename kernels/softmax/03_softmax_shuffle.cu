/*+++
title = "Shuffles for the trees"
idea = """\
The lanes of a warp exchange registers, and shared memory holds one number a warp. Each of the two \
trees costs a single barrier instead of nine, which is what a block spends most of its time on \
when rows are short."""
kind = "step"
compared_with = "softmax_block"
+++*/

#include "softmax/reduce_row.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK)
softmax_shuffle(const float* __restrict__ x, float* __restrict__ y, int cols) {
    __shared__ float of_warp[2][WARP_SIZE];
    const int tid = threadIdx.x;
    x += (long long)blockIdx.x * cols;
    y += (long long)blockIdx.x * cols;

    float largest = LOWEST;
    for (int i = tid; i < cols; i += BLOCK) largest = fmaxf(largest, x[i]);
    largest = across_block<Larger>(largest, of_warp[0], BLOCK / WARP_SIZE);

    float sum = 0.f;
    for (int i = tid; i < cols; i += BLOCK) sum += __expf(x[i] - largest);
    sum = across_block<Total>(sum, of_warp[1], BLOCK / WARP_SIZE);

    const float scale = 1.f / sum;
    for (int i = tid; i < cols; i += BLOCK) y[i] = __expf(x[i] - largest) * scale;
}

/*+++
minimum_cc = "8.0"

[source]
document = "Beyond the definition: warp shuffles"

[parameters]
BLOCK = 256

[search]
BLOCK = [128, 256, 512, 1024]

[[launch]]
kernel = "softmax_shuffle"
grid = ["rows", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "cols"]

[expect.sass]
present = ["LDG.E", "STG.E", "MUFU.EX2", "SHFL.BFLY", "BAR.SYNC"]
absent = ["LDG.E.128", "LDL", "STL"]

[[expect.profile]]
says = "two barriers per warp instead of 19"
check = "executed('BAR') < 0.15 * prev_executed('BAR')"

[[expect.profile]]
says = "the same loads from global memory"
check = "0.9 < executed('LDG') / prev_executed('LDG') < 1.1"
+++*/
