/*+++
title = "16-byte loads, many in flight"
idea = """\
Each thread issues UNROLL independent 16-byte loads before it adds anything, which keeps enough \
bytes under way to cover the latency of device memory with a quarter of the load instructions. The \
last block to finish adds up the partial sums, so there is no second launch."""
kind = "step"
compared_with = "reduce_shuffle"
removes = "narrow-access"
+++*/

#include "common/reduce_elem.cuh"

// Each byte is read once: with a hint, no line of the L1 is spent on it.
__device__ __forceinline__ Elem4 load_once(const Elem4* p) {
#if L2_PREFETCH == 0
    return __ldg(p);
#else
#define LOAD_HINTED(BYTES) "ld.global.nc.L1::no_allocate.L2::" #BYTES "B.v4.b32 {%0, %1, %2, %3}, [%4];"
#define LOAD_EXPANDED(BYTES) LOAD_HINTED(BYTES)
    uint4 v;
    asm(LOAD_EXPANDED(L2_PREFETCH) : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return *reinterpret_cast<Elem4*>(&v);
#endif
}

__device__ __forceinline__ void add(Elem4& sum, Elem4 v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
}

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM)
reduce_vectorized(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ partial, unsigned* __restrict__ finished, long long n) {
    const Elem4* const x4 = reinterpret_cast<const Elem4*>(x);
    const long long vectors = is_aligned_16(x) ? n / 4 : 0;
    const long long round = (long long)gridDim.x * BLOCK * UNROLL;  // vectors that the grid reads in one round

    // Whole rounds: a block reads BLOCK * UNROLL neighbouring vectors, all of them before the first addition.
    Elem4 sum4 = {0, 0, 0, 0};
    long long first = 0;
    for (; first + round <= vectors; first += round) {
        const Elem4* const mine = x4 + first + (long long)blockIdx.x * (BLOCK * UNROLL) + threadIdx.x;
        Elem4 v[UNROLL];
        #pragma unroll
        for (int k = 0; k < UNROLL; ++k) v[k] = load_once(mine + k * BLOCK);
        #pragma unroll
        for (int k = 0; k < UNROLL; ++k) add(sum4, v[k]);
    }

    // What is left is dealt out one vector at a time, so that no block gets more than one vector a thread above another.
    const long long threads = (long long)gridDim.x * BLOCK;
    const long long thread = (long long)blockIdx.x * BLOCK + threadIdx.x;
    Elem4 v[UNROLL];
    #pragma unroll
    for (int k = 0; k < UNROLL; ++k) {
        const long long i = first + k * threads + thread;
        v[k] = Elem4{0, 0, 0, 0};
        if (i < vectors) v[k] = load_once(x4 + i);
    }
    #pragma unroll
    for (int k = 0; k < UNROLL; ++k) add(sum4, v[k]);

    // The last one to three elements, or all of them where x is not aligned.
    Elem sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
    for (long long i = 4 * vectors + thread; i < n; i += threads) sum += x[i];

    sum = block_sum<BLOCK>(sum);
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();  // the partial sum is visible before the count says so
        last = atomicInc(finished, gridDim.x - 1) == gridDim.x - 1;  // wraps around to 0, ready for the next run
    }
    __syncthreads();
    if (!last) return;

    __threadfence();
    Elem total = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += BLOCK) total += __ldcg(partial + i);
    total = block_sum<BLOCK>(total);
    if (threadIdx.x == 0) *y = total;
}

/*+++
minimum_cc = "8.0"

[source]
document = "Beyond the document: vector loads and a single pass"

[parameters]
BLOCK = 512
UNROLL = 8
BLOCKS_PER_SM = 2         # resident at once
WAVES = 16                # rounds of blocks: evens out SMs of different distance to memory
L2_PREFETCH = 128         # bytes the L2 fetches at a time, past the L1: 64, 128 or 256; 0 for a plain load

[search]
BLOCK = [128, 256, 512, 1024]
UNROLL = [2, 4, 8, 16]
BLOCKS_PER_SM = [1, 2, 3, 4, 6, 8, 12]
WAVES = [1, 2, 4, 8, 16]
L2_PREFETCH = [0, 64, 128, 256]
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM <= 1536"
says = "more threads than an SM of compute capability 8.6 or 8.9 holds"
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM * (4 * UNROLL + 32) <= 65536"
says = "the loads in flight need more registers than an SM has"
[[constraint]]
check = "BLOCK * BLOCKS_PER_SM * UNROLL * 16 >= 32768"
says = "too few bytes in flight to cover the latency of device memory"

[[launch]]
kernel = "reduce_vectorized"
grid = ["max(1, min(sm_count * BLOCKS_PER_SM * WAVES, ceil_div(n, 4 * BLOCK)))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "partial", "finished", "n"]

[scratch.partial]
dtype = "int32"
count = "max(1, min(sm_count * BLOCKS_PER_SM * WAVES, ceil_div(n, 4 * BLOCK)))"
zeroed = false

[scratch.finished]       # starts as 0 when allocated, and the last block leaves it at 0: nothing to clear before a run
dtype = "int32"
count = "1"
zeroed = false

[expect.sass]
present = ["LDG.E.128", "SHFL.DOWN", "BAR.SYNC", "ATOM|ATOMG"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "nearly all loads are 128 bits wide"
check = "executed('LDG.E.128') > 0.9 * executed('LDG')"

[[expect.profile]]
says = "a quarter of the load instructions, for the same bytes"
check = "executed('LDG') < 0.35 * prev_executed('LDG')"
sizes = ["268435456"]

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.8"
sizes = ["268435456"]

[[measured]]
gpu = "NVIDIA H200"
says = """\
1.39 times the time of reduce_shuffle at 2^22: 2048 blocks of 512 threads for 16 MiB are one \
vector a thread, and a sum across the block for it; reduce_shuffle has 2112 blocks of 128 \
threads."""
+++*/
