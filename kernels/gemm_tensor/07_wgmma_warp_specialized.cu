/*+++
title = "One warpgroup copies, two multiply"
idea = """\
The block splits into roles: a producer keeps a ring of four buffers full, and two consumer \
warpgroups, 64 of 128 rows each, only multiply. Full and empty barriers connect them, so that \
copies run ahead and the tensor cores need not wait. setmaxnreg moves the producer's registers to \
the consumers, which lets the tile grow to 256 columns."""
kind = "step"
compared_with = "wgmma_tma"
removes = "async-copy-wait"
+++*/

#include "common/common.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

#define CONSUMERS 2  // warpgroups
#define TILE_A (BM * BK)
#define TILE_B (BN * BK)
#define STAGE_BYTES ((TILE_A + TILE_B) * 2)

extern "C" __global__ void __launch_bounds__(128 * (CONSUMERS + 1), 1)
wgmma_warp_specialized(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, elem16* __restrict__ C,
                       int M, int N, int K) {
    extern __shared__ unsigned char shared[];
    __shared__ mbarrier full[STAGES], empty[STAGES];
    // Swizzled tiles start at a multiple of 1024 bytes; the launch asks for 1024 bytes more than the ring takes.
    elem16* ring_a = reinterpret_cast<elem16*>(shared + (1024 - shared_address(shared) % 1024) % 1024);
    elem16* ring_b = ring_a + STAGES * TILE_A;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const int warpgroup = threadIdx.x / 128;
    const int tiles = ceil_div(K, BK);

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], 1);               // the producer, and the bytes that it announces
            mbarrier_init(&empty[s], CONSUMERS * 4);  // one lane of each consumer warp
        }
        mbarrier_init_fence();
    }
    __syncthreads();

    int stage = 0;
    unsigned phase = 0;  // parity of the current round through the ring
    if (warpgroup == 0) {
        release_registers<40>();
        if (threadIdx.x == 0) {
            tma_prefetch_map(&map_a);
            tma_prefetch_map(&map_b);
            for (int t = 0; t < tiles; ++t) {
                mbarrier_wait(&empty[stage], phase ^ 1);  // in the first round the buffers are free: nothing to wait for
                mbarrier_arrive_expect(&full[stage], STAGE_BYTES);
                tma_load(ring_a + stage * TILE_A, &map_a, t * BK, row0, &full[stage]);
                tma_load(ring_b + stage * TILE_B, &map_b, t * BK, col0, &full[stage]);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
        }
    } else {
        claim_registers<232>();
        const int band = (warpgroup - 1) * 64;  // this warpgroup's rows of the tile
        float sum[BN / 2];
        for (int t = 0; t < tiles; ++t) {
            mbarrier_wait(&full[stage], phase);
            const unsigned long long a = wgmma_tile(ring_a + stage * TILE_A + band * BK), b = wgmma_tile(ring_b + stage * TILE_B);
            wgmma_fence();
#pragma unroll
            for (int k = 0; k < BK / 16; ++k) wgmma_k16(sum, a + k * WGMMA_K16_STEP, b + k * WGMMA_K16_STEP, t + k > 0);
            wgmma_commit();
            // The tile before this one has been read: hand its buffer back while this one is multiplied.
            wgmma_wait<1>();
            if (t > 0 && threadIdx.x % 32 == 0) mbarrier_arrive(&empty[stage == 0 ? STAGES - 1 : stage - 1]);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        wgmma_wait<0>();  // the last buffers are not handed back: nobody waits for them
        store_accumulators(C, sum, row0 + band, col0, M, N);
    }
}

/*+++
minimum_cc = "9.0"
arch_specific = true
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "PTX ISA, asynchronous warpgroup matrix instructions"

[parameters]
BM = 128
BN = 256
BK = 64
STAGES = 4

[search]
BN = [128, 256]
STAGES = [2, 3, 4, 5, 6]

[[constraint]]
check = "BM == 128 and BK == 64 and (BN == 128 or BN == 256)"
says = "two consumer warpgroups take 64 rows each, and a row of a tile is one 128-byte swizzle span"

[[constraint]]
check = "STAGES * (BM + BN) * BK * 2 + 2048 <= 232448"
says = "the ring must fit in shared memory"

[[launch]]
kernel = "wgmma_warp_specialized"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["384", "1", "1"]
shared = "STAGES * (BM + BN) * BK * 2 + 1024"
args = ["map_a", "map_b", "C", "M", "N", "K"]

[tensor_maps.map_a]
array = "A_pitched"
box = ["BK", "BM"]
swizzle = 128

[tensor_maps.map_b]
array = "B_t"
box = ["BK", "BN"]
swizzle = 128

[expect.sass]
present = ["HGMMA", "UTMALDG.2D", "SYNCS", "USETMAXREG"]
absent = ["LDL", "STL", "HMMA", "LDGSTS", "LDSM"]
max_registers = 168

[[expect.profile]]
says = "a warp's share of one instruction is 16 x BN x 16 multiply-adds"
check = "executed('HGMMA') * 16 * BN * 16 == M * N * K"

[[expect.profile]]
says = "the tensor cores work more of the time"
check = "metric('tensor_pipe_active') > prev_metric('tensor_pipe_active')"

[[measured]]
gpu = "NVIDIA H200"
says = """\
1.14 times the time of wgmma_tma at 512: tiles of 128 x 256 are 8 blocks for 132 SMs, those of \
wgmma_tma 16."""
+++*/
