/*+++
title = "Bulk copies by the copy engine"
idea = """\
One thread asks the copy engine for whole chunks, a ring of them ahead of the warps that add. More \
bytes are under way than the registers of a loop of loads can hold, and no warp spends an \
instruction on an address or waits for a load of its own."""
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
reduce_bulk(const Elem* __restrict__ x, Elem* __restrict__ y, Elem* __restrict__ partial, unsigned* __restrict__ finished, long long n) {
    extern __shared__ __align__(128) Elem4 ring[];
    __shared__ mbarrier full[STAGES], empty[STAGES];
    const int chunks = is_aligned_16(x) ? (int)(4 * n / STAGE_BYTES) : 0;  // whole ones; block b takes chunks b, b + gridDim.x, ...

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], 1);
            mbarrier_init(&empty[s], BLOCK / WARP_SIZE);
        }
        mbarrier_init_fence();
    }
    __syncthreads();

    Elem sum = 0;
    int stage = 0;
    unsigned phase = 0;  // parity of the current round through the ring
    if (threadIdx.x == BLOCK) {
        for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
            mbarrier_wait(&empty[stage], phase ^ 1);
            mbarrier_arrive_expect(&full[stage], STAGE_BYTES);
            bulk_load(ring + stage * VECTORS, x + (size_t)chunk * (STAGE_BYTES / 4), STAGE_BYTES, &full[stage]);
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
    for (unsigned i = threadIdx.x; i < gridDim.x; i += BLOCK + WARP_SIZE) total += __ldcg(partial + i);
    total = block_sum<BLOCK + WARP_SIZE>(total);
    if (threadIdx.x == 0) *y = total;
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
args = ["x", "y", "partial", "finished", "n"]

[scratch.partial]
dtype = "int32"
count = "max(1, min(sm_count * BLOCKS_PER_SM, ceil_div(4 * n, STAGE_BYTES)))"
zeroed = false

[scratch.finished]       # starts as 0 when allocated, and the last block leaves it at 0: nothing to clear before a run
dtype = "int32"
count = "1"
zeroed = false

[expect.sass]
present = ["LDS.128", "UBLKCP", "SYNCS", "SHFL.DOWN", "ATOM|ATOMG"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "hardly a load from global memory is left: the copy engine fetches"
check = "executed('LDG') < 0.05 * prev_executed('LDG')"

[[expect.profile]]
says = "every 16 bytes are read from shared memory once"
check = "executed('LDS.128') * 512 == 4 * n"

[[expect.profile]]
says = "device memory is the limit"
check = "metric('dram_utilization') > 0.8"
sizes = ["268435456"]
+++*/
