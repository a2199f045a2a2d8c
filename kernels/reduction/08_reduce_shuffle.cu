/*+++
title = "Shuffles for the tree"
idea = """\
Lanes exchange registers directly: five shuffles sum up a warp, and shared memory holds one \
number per warp. The tree now runs once per block, so little time is left to gain. The lesson: \
optimising a part that no longer matters gains nothing."""
kind = "step"
compared_with = "reduce_grid_stride"
+++*/

#include "common/reduce_elem.cuh"

// Sum of in[0 .. count), one partial sum a block to out[blockIdx.x]: the grid has a fixed size, and each thread adds up many elements.
__device__ __forceinline__ void reduce_shuffle(const Elem* __restrict__ in, Elem* __restrict__ out, long long count) {
    const unsigned tid = threadIdx.x;
    const long long stride = gridDim.x * (2LL * BLOCK);
    Elem mine = 0;
    long long i = blockIdx.x * (2LL * BLOCK) + tid;
    for (; i + BLOCK < count; i += stride) mine += in[i] + in[i + BLOCK];
    if (i < count) mine += in[i];  // a pair that the end of the array cuts in half

    mine = block_sum<BLOCK>(mine);
    if (tid == 0) out[blockIdx.x] = mine;
}

// The second launch needs to know how many partial sums the first one left, and that depends on the GPU.
extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_shuffle_1(const Elem* __restrict__ x, Elem* __restrict__ partial, int* __restrict__ blocks, long long n) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *blocks = (int)gridDim.x;
    reduce_shuffle(x, partial, n);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_shuffle_2(const Elem* __restrict__ partial, Elem* __restrict__ y, const int* __restrict__ blocks) {
    reduce_shuffle(partial, y, *blocks);
}

/*+++
minimum_cc = "8.0"

[source]
document = "Beyond the document: warp shuffles instead of its shared-memory tree"

[parameters]
BLOCK = 128
BLOCKS_PER_SM = 16

[search]
BLOCK = [128, 256, 512]
BLOCKS_PER_SM = [2, 4, 8, 16]
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM <= 2048"
says = "more threads than an SM holds"

[[launch]]
kernel = "reduce_shuffle_1"
grid = ["max(1, min(sm_count * BLOCKS_PER_SM, ceil_div(n, 2 * BLOCK)))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "partial", "blocks", "n"]

[[launch]]
kernel = "reduce_shuffle_2"
grid = ["1", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["partial", "y", "blocks"]

[scratch.partial]
dtype = "int32"
count = "max(1, min(sm_count * BLOCKS_PER_SM, ceil_div(n, 2 * BLOCK)))"
zeroed = false

[scratch.blocks]
dtype = "int32"
count = "1"
zeroed = false

[expect.sass]
present = ["LDG.E", "SHFL.DOWN", "BAR.SYNC"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "fewer shared-memory instructions"
check = "executed('LDS') + executed('STS') < 0.5 * (prev_executed('LDS') + prev_executed('STS'))"

[[expect.profile]]
says = "the same loads from global memory"
check = "0.9 < executed('LDG') / prev_executed('LDG') < 1.1"
+++*/
