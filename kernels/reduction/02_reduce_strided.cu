/*+++
title = "Interleaved tree, adjacent threads"
idea = """\
The same tree, but adjacent threads do the work: whole warps fall idle instead of lanes, and a \
multiplication replaces the modulo, which is most of what today's compilers leave of the divergent \
version, as they predicate the short branch. The addresses are now a power of two apart, and the \
lanes of a warp meet in the same shared-memory banks."""
kind = "step"
compared_with = "reduce_divergent"
removes = "integer-arithmetic"
+++*/

#include "common/reduce_elem.cuh"

// Sum of the block's BLOCK elements of in[0 .. count) to out[blockIdx.x].
__device__ __forceinline__ void reduce_strided(const Elem* __restrict__ in, Elem* __restrict__ out, long long count) {
    __shared__ Elem sum[BLOCK];
    const unsigned tid = threadIdx.x;
    const long long i = (long long)blockIdx.x * BLOCK + tid;
    sum[tid] = i < count ? in[i] : Elem(0);
    __syncthreads();

    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        const unsigned at = 2 * s * tid;  // stride 2 s across lanes: the bank conflicts
        if (at < blockDim.x) sum[at] += sum[at + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sum[0];
}

// The input, then what the first launch left: one partial sum a block.
extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_strided_1(const Elem* __restrict__ x, Elem* __restrict__ partial, long long n) {
    reduce_strided(x, partial, n);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
reduce_strided_2(const Elem* __restrict__ partial, Elem* __restrict__ partial2, long long n) {
    reduce_strided(partial, partial2, max(1LL, ceil_div(n, (long long)BLOCK)));
}

// One block adds up what is left.
extern "C" __global__ void __launch_bounds__(FINISH)
reduce_strided_3(const Elem* __restrict__ partial2, Elem* __restrict__ y, long long n) {
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
claim = "4.854 GB/s at 2^22 int32, block 128"
device = "G80"

[parameters]
BLOCK = 128
FINISH = 1024

[search]
BLOCK = [64, 128, 256, 512]

[[launch]]
kernel = "reduce_strided_1"
grid = ["max(1, ceil_div(n, BLOCK))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "partial", "n"]

[[launch]]
kernel = "reduce_strided_2"
grid = ["max(1, ceil_div(ceil_div(n, BLOCK), BLOCK))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["partial", "partial2", "n"]

[[launch]]
kernel = "reduce_strided_3"
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


[[expect.profile]]
says = "fewer instructions: no modulo at every level"
check = "metric('instructions') < prev_metric('instructions')"

[[expect.profile]]
says = "lanes meet in the same banks"
check = "metric('shared_conflict_excess') > 0.1"

[[expect.profile]]
says = "the divergent tree had no such conflicts"
check = "prev_metric('shared_conflict_excess') < metric('shared_conflict_excess')"
+++*/
