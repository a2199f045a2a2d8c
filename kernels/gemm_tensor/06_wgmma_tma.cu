/*+++
title = "Warpgroup MMA fed by TMA"
idea = """\
Hopper's own path: one thread asks TMA for a whole swizzled tile, and four warps \
multiply it straight from shared memory with wgmma, so that neither copies nor fragments pass \
through registers. There is one buffer and no overlap within a block: it waits for each tile, then \
multiplies it."""
kind = "step"
compared_with = "mma_ldmatrix"
removes = "tensor-pipe"
+++*/

#include "common/common.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

#define HALVES (BM / 64)  // an instruction computes 64 rows
#define TILE_BYTES ((BM + BN) * BK * 2)

extern "C" __global__ void __launch_bounds__(128)
wgmma_tma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, elem16* __restrict__ C, int M, int N, int K) {
    extern __shared__ unsigned char shared[];
    __shared__ mbarrier full;
    // Swizzled tiles start at a multiple of 1024 bytes; the launch asks for 1024 bytes more than the tiles take.
    elem16* tile_a = reinterpret_cast<elem16*>(shared + (1024 - shared_address(shared) % 1024) % 1024);
    elem16* tile_b = tile_a + BM * BK;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    if (threadIdx.x == 0) {
        mbarrier_init(&full, 1);
        mbarrier_init_fence();
    }
    __syncthreads();

    float sum[HALVES][BN / 2];
    const int tiles = ceil_div(K, BK);
    for (int t = 0; t < tiles; ++t) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect(&full, TILE_BYTES);
            tma_load(tile_a, &map_a, t * BK, row0, &full);
            tma_load(tile_b, &map_b, t * BK, col0, &full);
        }
        mbarrier_wait(&full, t % 2);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < BK / 16; ++k)
#pragma unroll
            for (int h = 0; h < HALVES; ++h)
                wgmma_k16(sum[h], wgmma_tile(tile_a + h * 64 * BK) + k * WGMMA_K16_STEP, wgmma_tile(tile_b) + k * WGMMA_K16_STEP, t + k > 0);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();  // all four warps have read the tile; the next may overwrite it
    }
#pragma unroll
    for (int h = 0; h < HALVES; ++h) store_accumulators(C, sum[h], row0 + h * 64, col0, M, N);
}

/*+++
minimum_cc = "9.0"
arch_specific = true
shapes = [{ check = "ceil_div(M, BM) <= 65535", says = "M must be at most 65535 * BM: the grid's y dimension ends there" }]

[source]
document = "PTX ISA, asynchronous warpgroup matrix instructions"

[parameters]
BM = 128
BN = 128
BK = 64

[search]
BN = [128, 256]

[[constraint]]
check = "BK == 64 and (BM == 64 or BM == 128) and (BN == 128 or BN == 256) and BM * BN <= 16384"
says = """\
a row of a tile is one 128-byte swizzle span, and a warpgroup's accumulators are at most 128 \
registers a thread"""

[[launch]]
kernel = "wgmma_tma"
grid = ["ceil_div(N, BN)", "ceil_div(M, BM)", "1"]
block = ["128", "1", "1"]
shared = "(BM + BN) * BK * 2 + 1024"
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
present = ["HGMMA", "UTMALDG.2D", "SYNCS"]
absent = ["LDL", "STL", "HMMA", "LDGSTS", "LDSM"]
max_registers = 255

[[expect.profile]]
says = "a warp's share of one instruction is 16 x BN x 16 multiply-adds"
check = "executed('HGMMA') * 16 * BN * 16 == M * N * K"

[[expect.profile]]
says = "no fragment passes through registers"
check = "executed('LDSM') == 0 and executed('LDGSTS') == 0"

[[expect.profile]]
says = "far fewer instructions"
check = "executed('HGMMA') < 0.2 * prev_executed('HMMA')"

[[measured]]
gpu = "NVIDIA H200"
says = """\
1.07 times the time of mma_ldmatrix at 2048: a block waits for its tile before it multiplies, and \
256 blocks on 132 SMs leave few others to multiply meanwhile. mma_ldmatrix has one block an SM \
there, and copies three stages ahead."""
+++*/
