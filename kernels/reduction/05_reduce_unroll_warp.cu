/*+++
title = "Last warp without barriers"
idea = """\
When 32 threads or fewer are left they are one warp, and a warp needs no block-wide barrier: the \
last six levels run unrolled in the first warp, while the other warps have already left."""
kind = "step"
compared_with = "reduce_first_add"
removes = "barrier-imbalance"
+++*/

#include "common/reduce_elem.cuh"

// The last 64 values, by the first warp alone. Lanes of a warp no longer run in step by themselves: each level
// reads, then all lanes meet, then it writes, where the document relied on volatile.
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

// Sum of the block's 2 * BLOCK elements of in[0 .. count) to out[blockIdx.x].
__device__ __forceinline__ void reduce_unroll_warp(const Elem* __restrict__ in, Elem* __restrict__ out, long long count) {
    __shared__ Elem sum[BLOCK];
    const unsigned tid = threadIdx.x;
    const long long i = blockIdx.x * (2LL * BLOCK) + tid;
    const Elem first = i < count ? in[i] : Elem(0);
    const Elem second = i + BLOCK < count ? in[i + BLOCK] : Elem(0);
    sum[tid] = first + second;
    __syncthreads();

    for (unsigned s = blockDim.x / 2; s > WARP_SIZE; s /= 2) {
        if (tid < s) sum[tid] += sum[tid + s];
        __syncthreads();
    }
    if (tid < WARP_SIZE) last_warp(sum, tid);
    if (tid == 0) out[blockIdx.x] = sum[0];
}

// The input, then what the first launch left: one partial sum a block.
extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_unroll_warp_1(const Elem* __restrict__ x, Elem* __restrict__ partial, long long n) {
    reduce_unroll_warp(x, partial, n);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_unroll_warp_2(const Elem* __restrict__ partial, Elem* __restrict__ partial2, long long n) {
    reduce_unroll_warp(partial, partial2, max(1LL, ceil_div(n, 2LL * BLOCK)));
}

// One block adds up what is left.
extern "C" __global__ void __launch_bounds__(FINISH)
reduce_unroll_warp_3(const Elem* __restrict__ partial2, Elem* __restrict__ y, long long n) {
    const long long count = max(1LL, ceil_div(ceil_div(n, 2LL * BLOCK), 2LL * BLOCK));
    Elem sum = 0;
    for (long long i = threadIdx.x; i < count; i += FINISH) sum += partial2[i];
    sum = block_sum<FINISH>(sum);
    if (threadIdx.x == 0) *y = sum;
}

/*+++
minimum_cc = "8.0"

[source]
document = "M. Harris, Optimizing Parallel Reduction in CUDA"
claim = "31.289 GB/s at 2^22 int32, block 128"
device = "G80"

[parameters]
BLOCK = 128
FINISH = 1024

[search]
BLOCK = [64, 128, 256, 512]

[[launch]]
kernel = "reduce_unroll_warp_1"
grid = ["max(1, ceil_div(n, 2 * BLOCK))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "partial", "n"]

[[launch]]
kernel = "reduce_unroll_warp_2"
grid = ["max(1, ceil_div(ceil_div(n, 2 * BLOCK), 2 * BLOCK))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["partial", "partial2", "n"]

[[launch]]
kernel = "reduce_unroll_warp_3"
grid = ["1", "1", "1"]
block = ["FINISH", "1", "1"]
shared = "0"
args = ["partial2", "y", "n"]

[scratch.partial]
dtype = "int32"
count = "max(1, ceil_div(n, 2 * BLOCK))"
zeroed = false

[scratch.partial2]
dtype = "int32"
count = "max(1, ceil_div(ceil_div(n, 2 * BLOCK), 2 * BLOCK))"
zeroed = false

[expect.sass]
present = ["LDG.E", "STS", "LDS", "BAR.SYNC"]
absent = ["LDL", "STL"]


[[expect.profile]]
says = "a barrier only for the levels above one warp"
check = "executed('BAR') < 0.5 * prev_executed('BAR')"

[[expect.profile]]
says = "fewer instructions"
check = "metric('instructions') < 0.8 * prev_metric('instructions')"
+++*/
