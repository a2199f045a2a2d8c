/*+++
title = "Interleaved tree, divergent"
idea = """\
One thread an element and a tree in shared memory: at each level every second, fourth, eighth ... \
thread adds its neighbour. The working threads are spread over all warps, so every warp runs every \
level with ever fewer of its lanes, and a modulo at each level finds out which."""
kind = "step"
compared_with = ""
+++*/

#include "common/reduce_elem.cuh"

// Sum of the block's BLOCK elements of in[0 .. count) to out[blockIdx.x].
__device__ __forceinline__ void reduce_divergent(const Elem* __restrict__ in, Elem* __restrict__ out, long long count) {
    __shared__ Elem sum[BLOCK];
    const unsigned tid = threadIdx.x;
    const long long i = (long long)blockIdx.x * BLOCK + tid;
    sum[tid] = i < count ? in[i] : Elem(0);
    __syncthreads();

    // blockDim.x and not BLOCK: the loop stays a loop, as in the document, until reduce_unrolled.
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0) sum[tid] += sum[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sum[0];
}

// The input, then what the first launch left: one partial sum a block.
extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_divergent_1(const Elem* __restrict__ x, Elem* __restrict__ partial, long long n) {
    reduce_divergent(x, partial, n);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_divergent_2(const Elem* __restrict__ partial, Elem* __restrict__ partial2, long long n) {
    reduce_divergent(partial, partial2, max(1LL, ceil_div(n, (long long)BLOCK)));
}

// One block adds up what is left.
extern "C" __global__ void __launch_bounds__(FINISH)
reduce_divergent_3(const Elem* __restrict__ partial2, Elem* __restrict__ y, long long n) {
    const long long count = max(1LL, ceil_div(ceil_div(n, (long long)BLOCK), (long long)BLOCK));
    Elem sum = 0;
    for (long long i = threadIdx.x; i < count; i += FINISH) sum += partial2[i];
    sum = block_sum<FINISH>(sum);
    if (threadIdx.x == 0) *y = sum;
}

/*+++
minimum_cc = "8.0"

[source]
document = "M. Harris, Optimizing Parallel Reduction in CUDA"
claim = "2.083 GB/s at 2^22 int32, block 128"
device = "G80"

[parameters]
BLOCK = 128
FINISH = 1024

[search]
BLOCK = [64, 128, 256, 512]

[[launch]]
kernel = "reduce_divergent_1"
grid = ["max(1, ceil_div(n, BLOCK))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "partial", "n"]

[[launch]]
kernel = "reduce_divergent_2"
grid = ["max(1, ceil_div(ceil_div(n, BLOCK), BLOCK))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["partial", "partial2", "n"]

[[launch]]
kernel = "reduce_divergent_3"
grid = ["1", "1", "1"]
block = ["FINISH", "1", "1"]
shared = "0"
args = ["partial2", "y", "n"]

[scratch.partial]
dtype = "int32"
count = "max(1, ceil_div(n, BLOCK))"
zeroed = false

[scratch.partial2]
dtype = "int32"
count = "max(1, ceil_div(ceil_div(n, BLOCK), BLOCK))"
zeroed = false

[expect.sass]
present = ["LDG.E", "STS", "LDS", "BAR.SYNC"]
absent = ["LDL", "STL"]
+++*/
