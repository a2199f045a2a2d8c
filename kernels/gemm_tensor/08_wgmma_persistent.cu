/*+++
title = "Persistent clusters with multicast"
idea = """\
Pairs of blocks form a cluster, and each fetches half of a tile of B for both: a third less is \
read from the L2. Blocks stay resident and walk over the tiles in an order that suits the L2, \
every other one from the far end of k, where the last one ended. Finished tiles leave through a \
small piece of shared memory in whole lines while the producer already fetches the next."""
kind = "step"
compared_with = "wgmma_warp_specialized"
removes = "tensor-pipe"
+++*/

#include "common/common.cuh"
#include "common/tile_order.cuh"
#include "common/tma.cuh"
#include "common/wgmma.cuh"

#define CONSUMERS 2  // warpgroups
#define TILE_A (BM * BK)
#define TILE_B (BN * BK)
#define SHARE_B (TILE_B / CLUSTER)  // what each block of a cluster fetches of B, for all of them
#define STAGE_BYTES ((TILE_A + TILE_B) * 2)
#define PIECE_PITCH (STORE_N + 8)   // 16 bytes more than a row: eight rows at the same column then meet all 32 banks

// Rounds STORE_N columns of a warp's 16 rows into its piece of shared memory.
__device__ __forceinline__ void write_piece(elem16* piece, const float* v) {
    const int lane = threadIdx.x % WARP_SIZE;
    const unsigned address = shared_address(piece + lane % 16 * PIECE_PITCH + lane / 16 * CHUNK);
#pragma unroll
    for (int n = 0; n < STORE_N; n += 16, v += 8)
        stmatrix_x4(address + n * 2, pack_elem16(v[0], v[1]), pack_elem16(v[2], v[3]), pack_elem16(v[4], v[5]), pack_elem16(v[6], v[7]));
}

// Sends a warp's 16 x BN part of a tile out through its piece of shared memory, in whole 128-byte lines. N is a multiple of CHUNK.
__device__ __forceinline__ void store_through(elem16* piece, elem16* C, const float (&sum)[BN / 2], int row0, int col0, int M, int N) {
    const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int n0 = 0; n0 < BN; n0 += STORE_N) {
        constexpr int ROW_CHUNKS = STORE_N / CHUNK;
        write_piece(piece, sum + n0 / 2);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * ROW_CHUNKS / WARP_SIZE; ++i) {
            const int r = (i * WARP_SIZE + lane) / ROW_CHUNKS, c = lane % ROW_CHUNKS * CHUNK;
            const uint4 chunk = *reinterpret_cast<const uint4*>(piece + r * PIECE_PITCH + c);
            if (row0 + r < M && col0 + n0 + c < N) __stcs(reinterpret_cast<uint4*>(C + (size_t)(row0 + r) * N + (col0 + n0 + c)), chunk);
        }
        __syncwarp();  // the piece has been read and may be written again
    }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128 * (CONSUMERS + 1), 1)
wgmma_persistent(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, elem16* __restrict__ C,
                 int M, int N, int K) {
    extern __shared__ unsigned char shared[];
    __shared__ mbarrier full[STAGES], empty[STAGES];
    // Swizzled tiles start at a multiple of 1024 bytes (the launch asks for 1024 bytes more), at the same offset in every block of the cluster.
    elem16* ring_a = reinterpret_cast<elem16*>(shared + (1024 - shared_address(shared) % 1024) % 1024);
    elem16* ring_b = ring_a + STAGES * TILE_A;
    elem16* pieces = ring_b + STAGES * TILE_B;

    const int rank = cluster_rank(), warpgroup = threadIdx.x / 128, lane = threadIdx.x % WARP_SIZE;
    const int steps = ceil_div(K, BK);
    // A cluster takes CLUSTER tiles one below the other: they need the same part of B.
    const int tile_rows = ceil_div(M, BM * CLUSTER), tile_cols = ceil_div(N, BN);
    const int first = blockIdx.x / CLUSTER, stride = gridDim.x / CLUSTER;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], 1);                         // this block's producer, and the bytes that all producers deliver
            mbarrier_init(&empty[s], CLUSTER * CONSUMERS * 4);  // one lane of each consumer warp of the cluster
        }
        mbarrier_init_fence();
    }
    cluster_sync();

    int stage = 0;
    unsigned phase = 0;  // parity of the current round through the ring
    if (warpgroup == 0) {
        release_registers<40>();
        if (threadIdx.x == 0) {
            tma_prefetch_map(&map_a);
            tma_prefetch_map(&map_b);
            bool backward = false;
            for (int index = first; index < tile_rows * tile_cols; index += stride) {
                const TileIndex tile = banded_tile(index, tile_rows, tile_cols, BAND);
                const int row0 = (tile.row * CLUSTER + rank) * BM, col0 = tile.col * BN;
                for (int t = 0; t < steps; ++t) {
                    const int k0 = (backward ? steps - 1 - t : t) * BK;
                    // Free in every block: this block's part of B lands in all of them.
                    mbarrier_wait(&empty[stage], phase ^ 1);
                    mbarrier_arrive_expect(&full[stage], STAGE_BYTES);
                    tma_load(ring_a + stage * TILE_A, &map_a, k0, row0, &full[stage]);
                    elem16* share = ring_b + stage * TILE_B + rank * SHARE_B;
                    tma_load_multicast(share, &map_b, k0, col0 + rank * (BN / CLUSTER), &full[stage], (1 << CLUSTER) - 1);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
                // What was read last is still in the L2: start the next tile, in the same rows or columns, from there.
                backward = !backward;
            }
        }
    } else {
        claim_registers<232>();
        const int band = (warpgroup - 1) * 64, warp = threadIdx.x / WARP_SIZE % 4;
        elem16* piece = pieces + (band + warp * 16) * PIECE_PITCH;
        // Lane r of each warp reports to block r.
        const unsigned empty_there = cluster_address(shared_address(empty), lane % CLUSTER);
        const auto release = [&](int s) {
            if (lane < CLUSTER) mbarrier_arrive_cluster(empty_there + s * sizeof(mbarrier));
        };
        float sum[BN / 2];
        for (int index = first; index < tile_rows * tile_cols; index += stride) {
            const TileIndex tile = banded_tile(index, tile_rows, tile_cols, BAND);
            const int row0 = (tile.row * CLUSTER + rank) * BM + band, col0 = tile.col * BN;
            for (int t = 0; t < steps; ++t) {
                mbarrier_wait(&full[stage], phase);
                const unsigned long long a = wgmma_tile(ring_a + stage * TILE_A + band * BK), b = wgmma_tile(ring_b + stage * TILE_B);
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < BK / 16; ++k) wgmma_k16(sum, a + k * WGMMA_K16_STEP, b + k * WGMMA_K16_STEP, t + k > 0);
                wgmma_commit();
                // The stage before this one has been read: hand it back while this one is multiplied.
                wgmma_wait<1>();
                if (t > 0) release(stage == 0 ? STAGES - 1 : stage - 1);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            wgmma_wait<0>();
            release(stage == 0 ? STAGES - 1 : stage - 1);

            if (N % CHUNK == 0) store_through(piece, C, sum, row0 + warp * 16, col0, M, N);
            else store_accumulators(C, sum, row0, col0, M, N);  // rows off the 16-byte grid
        }
    }
    cluster_sync();  // no block leaves while another may still arrive at its barriers
}

/*+++
minimum_cc = "9.0"
arch_specific = true

[source]
document = """\
PTX ISA, thread block clusters and multicast; CUDA C++ Programming Guide, asynchronous copies"""

[parameters]
BM = 128
BN = 256
BK = 64
STAGES = 4
CLUSTER = 2
BAND = 8                  # rows of clusters' tiles taken together
STORE_N = 64              # columns that leave at a time

[search]
BN = [128, 256]
STAGES = [3, 4, 5]
CLUSTER = [1, 2]
BAND = [4, 8, 16]
STORE_N = [64, 128, 256]

[[constraint]]
check = "BM == 128 and BK == 64 and (BN == 128 or BN == 256) and (CLUSTER == 1 or CLUSTER == 2)"
says = "two consumer warpgroups take 64 rows each, and a row of a tile is one 128-byte swizzle span"

[[constraint]]
check = "BN % STORE_N == 0 and STORE_N % 64 == 0"
says = "a tile leaves in whole pieces of STORE_N columns"

[[constraint]]
check = "STAGES * (BM + BN) * BK * 2 + BM * (STORE_N + 8) * 2 + 2048 <= 232448"
says = "the ring and the outgoing piece must fit in shared memory"

[[launch]]                # as few clusters as the number of rounds needs: they then all have the same number of tiles, or one less
kernel = "wgmma_persistent"
grid = ["ceil_div(ceil_div(M, BM * CLUSTER) * ceil_div(N, BN), ceil_div(ceil_div(M, BM * CLUSTER) * ceil_div(N, BN), max(1, sm_count // CLUSTER))) * CLUSTER", "1", "1"]
block = ["384", "1", "1"]
shared = "STAGES * (BM + BN) * BK * 2 + BM * (STORE_N + 8) * 2 + 1024"
args = ["map_a", "map_b", "C", "M", "N", "K"]

[tensor_maps.map_a]
array = "A_pitched"
box = ["BK", "BM"]
swizzle = 128

[tensor_maps.map_b]
array = "B_t"
box = ["BK", "ceil_div(BN, CLUSTER)"]
swizzle = 128

[expect.sass]
present = ["HGMMA", "UTMALDG.2D", "STSM", "SYNCS", "USETMAXREG"]
absent = ["LDL", "STL", "HMMA", "LDGSTS", "LDSM"]
max_registers = 168

[[expect.profile]]
says = "a warp's share of one instruction is 16 x BN x 16 multiply-adds"
check = "executed('HGMMA') * 16 * BN * 16 == M * N * K"

[[expect.profile]]
says = "the tensor cores work more of the time"
check = "metric('tensor_pipe_active') > prev_metric('tensor_pipe_active')"

[[expect.profile]]
says = "multicast reads less from L2"
check = "metric('l2_sectors') < 0.85 * prev_metric('l2_sectors')"
+++*/
