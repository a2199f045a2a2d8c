/*+++
title = "One contiguous chunk per block, scheduled by the hardware"
idea = """\
Each block adds one contiguous chunk of vectors and ends; the hardware starts the next block on \
the first SM that is free. With equal shares, SMs that memory serves faster end before the \
others. A second block on the SM covers the gap between two blocks. The last blocks take \
smaller chunks, so that all SMs end together. Plain loads are enough: TMA is not \
needed."""
kind = "step"
compared_with = "reduce_bulk"
+++*/

#include "common/reduce_elem.cuh"

// Each byte is read once: no line of the L1 is spent on it. `volatile` keeps the loads in this order, ahead of the additions.
__device__ __forceinline__ Elem4 load_once(const Elem4* p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return *reinterpret_cast<Elem4*>(&v);
}

__device__ __forceinline__ void add(Elem4& sum, Elem4 v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
}

// Sum of a thread's share of COUNT vectors for each thread, from vector `first` on.
template <int COUNT>
__device__ __forceinline__ Elem sum_stretch(const Elem* __restrict__ x, long long first, long long n) {
    const long long vectors = is_aligned_16(x) ? n / 4 : 0, end = first + COUNT * BLOCK;
    const Elem4* const v = reinterpret_cast<const Elem4*>(x) + threadIdx.x;
    Elem4 sum4 = {0, 0, 0, 0};
    if (end <= vectors) {
        Elem4 loaded[COUNT];
        #pragma unroll
        for (int k = 0; k < COUNT; ++k) loaded[k] = load_once(v + first + k * BLOCK);
        #pragma unroll
        for (int k = 0; k < COUNT; ++k) add(sum4, loaded[k]);
    } else {
        #pragma unroll 8
        for (long long i = first; i + threadIdx.x < vectors; i += BLOCK) add(sum4, __ldg(v + i));
    }
    Elem sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
    // The last one to three elements, or all of them where x is not aligned.
    #pragma unroll 8
    for (long long i = max(4 * vectors, 4 * first) + threadIdx.x; i < min(4 * end, n); i += BLOCK) sum += __ldg(x + i);
    return sum;
}

extern "C" __global__ void __launch_bounds__(BLOCK, BLOCKS_PER_SM)
reduce_dealt(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ partial, unsigned long long* __restrict__ gathered, long long n) {
    constexpr int STRETCH = UNROLL * BLOCK;  // vectors of a block
    // The last CUT stretches are cut into SHORT quarters and SHORT sixteenths; where there are few stretches, all are cut into sixteenths.
    constexpr int CUT = SHORT * 5 / 16;
    const int b = blockIdx.x, stretches = (n + 4 * STRETCH - 1) / (4 * STRETCH), quarters = stretches > SHORT ? SHORT : 0, whole = quarters ? stretches - CUT : 0;
    Elem sum;
    if (SHORT == 0 || b < whole) sum = sum_stretch<UNROLL>(x, (long long)b * STRETCH, n);
    else if (b < whole + quarters) sum = sum_stretch<(UNROLL + 3) / 4>(x, (long long)whole * STRETCH + (b - whole) * (STRETCH / 4), n);
    else sum = sum_stretch<(UNROLL + 15) / 16>(x, (long long)(whole + quarters / 4) * STRETCH + (b - whole - quarters) * (STRETCH / 16), n);
    sum = block_sum<BLOCK>(sum);

#if defined(ELEM_INT32)
    // The order of integers does not matter: one word gathers their sum in its upper half, which wraps around as it should, and counts blocks in its
    // lower half. Who comes last has all of both.
    if (threadIdx.x == 0) {
        const unsigned long long mine = (unsigned long long)sum << 32 | 1, all = atomicAdd(gathered, mine) + mine;
        if ((unsigned)all == gridDim.x) {
            *gathered = 0;  // for the next launch
            *y = all >> 32;
        }
    }
#else
    // Floats are added in the order of blocks, whichever of them comes last.
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();  // the partial sum is visible before the count says so
        last = atomicAdd(gathered, 1ull) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;

    __threadfence();
    Elem total = 0;
    #pragma unroll 8
    for (unsigned i = threadIdx.x; i < gridDim.x; i += BLOCK) total += __ldcg(partial + i);
    total = block_sum<BLOCK>(total);
    if (threadIdx.x == 0) {
        *gathered = 0;  // for the next launch
        *y = total;
    }
#endif
}

/*+++
minimum_cc = "8.0"

[source]
document = "CUDA C++ Programming Guide, thread blocks are scheduled in any order"

[parameters]
BLOCK = 512
UNROLL = 64               # vectors of 16 bytes that a thread adds
SHORT = 256               # blocks that take a quarter of a stretch, and blocks that take a sixteenth; 0: none
BLOCKS_PER_SM = 2         # resident at once

# Blocks of 128 and of 1024 threads are 0.1 % faster where CUB takes 946 us for 2^30, and 0.1 to 0.2 % slower where it takes 926.
[search]
BLOCK = [256, 512]
UNROLL = [8, 16, 32, 64]
SHORT = [0, 256]
BLOCKS_PER_SM = [2, 3, 4]

[[constraint]]
check = "BLOCK * BLOCKS_PER_SM <= 1536"
says = "more threads than an SM of compute capability 8.6 or 8.9 holds"

[[constraint]]
check = "SHORT % 16 == 0 and (SHORT == 0 or UNROLL % 16 == 0)"
says = "the last stretches are quarters and sixteenths"

[[launch]]
kernel = "reduce_dealt"
grid = ["max(1, ceil_div(n, 4 * UNROLL * BLOCK) + SHORT * 27 // 16 if ceil_div(n, 4 * UNROLL * BLOCK) > SHORT else ceil_div(4 * n, UNROLL * BLOCK))", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["x", "y", "partial", "gathered", "n"]

[scratch.partial]
dtype = "int32"
count = "max(1, ceil_div(n, 4 * UNROLL * BLOCK) + SHORT * 27 // 16 if ceil_div(n, 4 * UNROLL * BLOCK) > SHORT else ceil_div(4 * n, UNROLL * BLOCK))"
zeroed = false

[scratch.gathered]       # starts as 0 when allocated, and the last block leaves it at 0: nothing to clear before a run
dtype = "int64"
count = "1"
zeroed = false

[expect.sass]
present = ["LDG.E.128|LDG.E.NA.128", "SHFL.DOWN", "ATOM|ATOMG"]
absent = ["LDL", "STL", "UBLKCP", "LDS.128"]

[[expect.profile]]
says = "nearly all loads are 128 bits wide"
check = "executed('LDG.E.128') + executed('LDG.E.NA.128') > 0.9 * executed('LDG')"

[[expect.profile]]
says = "an SM takes several blocks one after the other"
check = "metric('waves') > 4"
sizes = ["268435456"]

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.8"
sizes = ["268435456"]

[[measured]]
gpu = "NVIDIA H200"
says = """\
int32 over CUB taken in turns, where CUB takes 925 us for 2^30, and reduce_bulk in brackets: \
2^22 1.353 (1.320), 2^28 1.024 (1.020), 2^30 1.0139 (1.0117). On a board where CUB takes 946 us, \
stretches of one length are 0.15 % slower at 2^30 and 0.4 % at 2^28. float32 is slower than \
reduce_bulk, 1.050 (1.168), 1.016 (1.020), 1.009 (1.011): each block's sum needs a fence, and \
there are more blocks. See docs/decisions/20-tops.md."""
+++*/
