/*+++
title = "Many elements per thread"
idea = """\
As many blocks as the GPU holds at once walk over the array and each thread adds up many elements \
in a register before the tree begins. The tree, its barriers and the start of a block are paid \
once per block rather than once for every 256 elements."""
kind = "step"
compared_with = "reduce_unrolled"
removes = "launch-overhead"
+++*/

#include "common/reduce_elem.cuh"

// The last 64 values, by the first warp alone: each level reads, then all lanes meet, then it writes.
__device__ __forceinline__ void last_warp(Elem* sum, unsigned lane) {
    Elem v = sum[lane];
    #pragma unroll
    for (unsigned s = WARP_SIZE; s > 0; s /= 2) {
        v += sum[lane + s];
        __syncwarp();
        sum[lane] = v;
        __syncwarp();
    }
}

// Sum of in[0 .. count), one partial sum a block to out[blockIdx.x]: the grid has a fixed size, and each thread adds up many elements.
__device__ __forceinline__ void reduce_grid_stride(const Elem* __restrict__ in, Elem* __restrict__ out, long long count) {
    __shared__ Elem sum[BLOCK];
    const unsigned tid = threadIdx.x;
    const long long stride = gridDim.x * (2LL * BLOCK);
    Elem mine = 0;
    long long i = blockIdx.x * (2LL * BLOCK) + tid;
    for (; i + BLOCK < count; i += stride) mine += in[i] + in[i + BLOCK];
    if (i < count) mine += in[i];  // a pair that the end of the array cuts in half
    sum[tid] = mine;
    __syncthreads();

    #pragma unroll
    for (unsigned s = BLOCK / 2; s > WARP_SIZE; s /= 2) {
        if (tid < s) sum[tid] += sum[tid + s];
        __syncthreads();
    }
    if (tid < WARP_SIZE) last_warp(sum, tid);
    if (tid == 0) out[blockIdx.x] = sum[0];
}

// The second launch needs to know how many partial sums the first one left, and that depends on the GPU.
extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_grid_stride_1(const Elem* __restrict__ x, Elem* __restrict__ partial, int* __restrict__ blocks, long long n) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *blocks = (int)gridDim.x;
    reduce_grid_stride(x, partial, n);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_grid_stride_2(const Elem* __restrict__ partial, Elem* __restrict__ y, const int* __restrict__ blocks) {
    reduce_grid_stride(partial, y, *blocks);
}

/*+++
minimum_cc = "8.0"

[source]
document = "M. Harris, Optimizing Parallel Reduction in CUDA"
claim = "62.671 GB/s at 2^22 int32, block 128"
device = "G80"

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
kernel = "reduce_grid_stride_1"
grid = ["max(1, min(sm_count * BLOCKS_PER_SM, ceil_div(n, 2 * BLOCK)))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "partial", "blocks", "n"]

[[launch]]
kernel = "reduce_grid_stride_2"
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
present = ["LDG.E", "STS", "LDS", "BAR.SYNC"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the tree runs once per block instead of once per 256 elements"
check = "executed('BAR') < 0.3 * prev_executed('BAR')"

[[expect.profile]]
says = "fewer instructions for the same elements"
check = "metric('instructions') < 0.8 * prev_metric('instructions')"
+++*/
