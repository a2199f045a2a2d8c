/*+++
title = "Bulk copies by TMA"
idea = """\
One thread asks TMA for whole chunks, a ring of them ahead of the warps that add. More \
bytes are under way than the registers of a loop of loads can hold, and no warp spends an \
instruction on an address or waits for its load. The sum of a block travels in one word \
with a mark, so that nobody needs a fence: integers are gathered by one atomic per block, floats \
by the last block, in a fixed order."""
kind = "step"
compared_with = "reduce_vectorized"
+++*/

#include "common/reduce_elem.cuh"
#include "common/tma.cuh"

#define VECTORS (STAGE_BYTES / 16)  // in a chunk

__device__ __forceinline__ void add(Elem4& sum, Elem4 v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
}

extern "C" __global__ void __launch_bounds__(BLOCK + WARP_SIZE, BLOCKS_PER_SM)
reduce_bulk(const Elem* __restrict__ x, Elem* __restrict__ y, unsigned long long* __restrict__ partial, long long n) {
    extern __shared__ __align__(128) Elem4 ring[];
    __shared__ mbarrier full[STAGES], empty[STAGES];
    const int chunks = is_aligned_16(x) ? (int)(4 * n / STAGE_BYTES) : 0;  // whole ones; block b takes chunks b, b + gridDim.x, ...
    const auto fetch = [&](int chunk, int stage) {
        mbarrier_arrive_expect(&full[stage], STAGE_BYTES);
        bulk_load(ring + stage * VECTORS, x + (size_t)chunk * (STAGE_BYTES / 4), STAGE_BYTES, &full[stage]);
    };

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], BLOCK / WARP_SIZE);
        }
        mbarrier_init_fence();
        // The ring is filled once before the other threads know of its barriers.
        for (int s = 0, chunk = blockIdx.x; s < STAGES && chunk < chunks; ++s, chunk += gridDim.x) fetch(chunk, s);
    }
    __syncthreads();

    Elem sum = 0;
    int stage = 0;
    unsigned phase = 0;  // parity of the current round through the ring
    if (threadIdx.x == BLOCK) {
        for (int chunk = blockIdx.x + STAGES * gridDim.x; chunk < chunks; chunk += gridDim.x) {
            mbarrier_wait(&empty[stage], phase);
            fetch(chunk, stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    } else if (threadIdx.x < BLOCK) {
        Elem4 sum4 = {0, 0, 0, 0};
        for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
            mbarrier_wait(&full[stage], phase);
            const Elem4* const v = ring + stage * VECTORS + threadIdx.x;
            #pragma unroll
            for (int i = 0; i < VECTORS; i += BLOCK) add(sum4, v[i]);
            __syncwarp();
            if (threadIdx.x % WARP_SIZE == 0) mbarrier_arrive(&empty[stage]);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        // The elements after the last whole chunk, or all of them where x is not aligned.
        sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
        const long long threads = (long long)gridDim.x * BLOCK;
        for (long long i = (long long)chunks * (STAGE_BYTES / 4) + (long long)blockIdx.x * BLOCK + threadIdx.x; i < n; i += threads) sum += x[i];
    }
    __syncwarp();  // the lanes of the last warp took two ways

    sum = block_sum<BLOCK + WARP_SIZE>(sum);
#if defined(ELEM_INT32)
    // The order of integers does not matter: one word gathers their sum in its upper half, which wraps around as it should, and counts blocks in its
    // lower half. Who comes last has all of both.
    if (threadIdx.x == 0) {
        const unsigned long long mine = (unsigned long long)sum << 32 | 1, all = atomicAdd(partial, mine) + mine;
        if ((unsigned)all == gridDim.x) {
            *partial = 0;  // for the next launch
            *y = all >> 32;
        }
    }
#else
    if (threadIdx.x == 0) {
        const unsigned long long word = 1ull << 32 | *reinterpret_cast<const unsigned*>(&sum);
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(partial + blockIdx.x), "l"(word) : "memory");
    }
    if (blockIdx.x != gridDim.x - 1) return;

    // The last block started no earlier than any other: it waits for all of them, and adds up in the order of blocks.
    Elem total = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += BLOCK + WARP_SIZE) {
        unsigned long long word;
        do asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(partial + i) : "memory");
        while (word == 0);
        partial[i] = 0;  // for the next launch
        const unsigned bits = word;
        total += *reinterpret_cast<const Elem*>(&bits);
    }
    total = block_sum<BLOCK + WARP_SIZE>(total);
    if (threadIdx.x == 0) *y = total;
#endif
}

/*+++
minimum_cc = "9.0"

[source]
document = "PTX ISA, bulk asynchronous copies"

[parameters]
BLOCK = 512               # threads that add; one more warp fetches
STAGE_BYTES = 32768
STAGES = 6
BLOCKS_PER_SM = 1

[search]
BLOCK = [128, 256, 512]
STAGE_BYTES = [8192, 16384, 32768]
STAGES = [2, 3, 4, 6, 12]
BLOCKS_PER_SM = [1, 2, 4]

[[constraint]]
check = "STAGE_BYTES % (BLOCK * 16) == 0"
says = "every thread adds as many vectors of a chunk"

[[constraint]]
check = "BLOCKS_PER_SM * (STAGES * STAGE_BYTES + 2048) <= 232448"
says = "the rings must fit in shared memory"

[[launch]]
kernel = "reduce_bulk"
grid = ["max(1, min(sm_count * BLOCKS_PER_SM, ceil_div(4 * n, STAGE_BYTES)))", "1", "1"]
block = ["BLOCK + 32", "1", "1"]
shared = "STAGES * STAGE_BYTES"
args = ["x", "y", "partial", "n"]

[scratch.partial]        # starts as 0 when allocated, and the last block leaves it at 0: nothing to clear before a run
dtype = "int64"
count = "max(1, min(sm_count * BLOCKS_PER_SM, ceil_div(4 * n, STAGE_BYTES)))"
zeroed = false

[expect.sass]
present = ["LDS.128", "UBLKCP", "SYNCS", "SHFL.DOWN"]
absent = ["LDL", "STL", "ATOM"]

[[expect.profile]]
says = "hardly a load from global memory is left: TMA fetches"
check = "executed('LDG') < 0.05 * prev_executed('LDG')"

[[expect.profile]]
says = "every 16 bytes are read from shared memory once"
check = "executed('LDS.128') * 512 == 4 * n"

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.8"
sizes = ["268435456"]

[[measured]]
gpu = "NVIDIA H200"
says = """\
int32 at 2^20, 2^22, 2^24, 2^26, 2^28, 2^30 over CUB taken in turns: 1.249, 1.255, 1.104, 1.044, \
1.019, 1.0125; with marked words for integers too 1.158, 1.177, 1.065, 1.033, 1.016, 1.0118. One \
stretch of chunks a block is 0.1 % faster at 2^30 where CUB takes 926 us, and 0.04 % slower where it \
takes 946; chunks by ticket are 0.1 % slower and 0.2 % faster: docs/decisions/20-tops.md."""
+++*/
