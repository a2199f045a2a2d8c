/*+++
title = "Tiles that fill the last wave"
idea = """\
A wave of tiles takes equally long whether it is full or not: size 3072 needs 2.18 waves of 128 x \
256 tiles and pays for three. With tiles of 192 x 192, for which a third warpgroup multiplies, it \
needs 1.94. The power cap sets the clock, so bytes cost time: large tiles read less, and clusters \
of one part of the chip take tiles in one row, whose reads of A are merged on the way to the L2. \
Few tiles are cut along k. Where K is short, two warpgroups take tiles in turn: one stores while \
the other multiplies. A model has the shape for each size, in steps of eight columns."""
kind = "step"
compared_with = "wgmma_persistent"
+++*/

#include "common/common.cuh"
#include "common/tile_order.cuh"
#include "common/tma_store.cuh"
#include "common/wgmma_shapes.cuh"

#define CONSUMERS (TURNS ? 2 : BM / 64)  // warpgroups
#define BANDS (TURNS ? BM / 64 : 1)      // bands of 64 rows that each of them multiplies of its tile
#define READERS (TURNS ? 1 : CONSUMERS)  // warpgroups that read a stage
#define SHARED_BYTES 232448  // that a block may have
#define TILE_A (BM * BK)
#define TILE_B (BN * BK)
#define HALVES (!TURNS && CONSUMERS == 3 && BN > 200)  // a row of the tile in two instructions: one would need more registers than a block of 512 threads has
#define SIDE (1 << ACROSS)            // columns and rows of tiles that a cluster takes: tiles side by side need the same part of A,
#define DOWN (CLUSTER / SIDE)         // tiles in a column the same part of B
#define SHARE_A (BM / SIDE)           // rows that each block of a cluster fetches of what they share, for all of them
#define SHARE_B (DOWN == 1 ? BN : (BN / DOWN + 7) / 8 * 8)  // whole swizzles: two may fetch the same rows
#define FIRST_B(part) (DOWN <= 2 ? (part) * (BN - SHARE_B) : min((part) * SHARE_B, BN - SHARE_B))
#define STAGE_BYTES ((TILE_A + SHARE_B * DOWN * BK) * 2)
#define LOW_BM (BM - 64)  // rows of a block's tile in the last LOW rows of tiles, in which the last consumer has nothing to do
#define LOW_SHARE (LOW_BM / SIDE)
#define LOW_BYTES ((LOW_BM * BK + SHARE_B * DOWN * BK) * 2)
#define STORE_N (BN % 64 == 0 ? 64 : BN % 80 == 0 ? 80 : BN % 32 == 0 ? 32 : 16)  // columns that leave at a time
#define PIECE_PITCH (STORE_N + 8)         // 16 bytes more than a row: eight rows at the same column then meet all 32 banks
#define WARP_QUARTETS (BN / 8)            // that a lane has of its warp's 16 x BN sums

#define OUT_N 64                // columns of a piece that TMA stores: 128 bytes, a span of its swizzle
#define OUT_PIECE (16 * OUT_N)  // its elements: rows of one warp
#define OUT (PIECES ? CONSUMERS * 4 * PIECES * OUT_PIECE : BM * PIECE_PITCH)  // elements on their way out
#define SUMS (ALONG > 1 ? BM * BN : 0)  // elements that hold the sums of another block: half a tile

// The ring takes what shared memory the outgoing pieces leave. A stage has two barriers.
constexpr int FITTING = (SHARED_BYTES - (OUT + SUMS) * 2) / ((TILE_A + TILE_B) * 2 + 2 * (int)sizeof(mbarrier)), STAGES = FITTING < 8 ? FITTING : 8;
static_assert(EARLY < STAGES, "one stage is left for what the cluster fetches together");

// The place in a round of tiles where a cluster starts. Requests for one line of A that come from one GPC (the part of the chip that a cluster
// cannot leave) at about the same time are merged on their way to the L2; those for B, which are multicast, are not. So the clusters of a GPC start
// side by side in a row of tiles. Where A is multicast they start one below the other, as they come. How an H200 deals out clusters of two was measured: four to SMs that are in none of its eight GPCs, then four
// rounds of all GPCs, the small one first, then four rounds without it. Elsewhere this is just another order.
__device__ __forceinline__ int place(int cluster, int clusters, int tiles) {
    if (ACROSS || CLUSTER > 2 || clusters < 64 || tiles <= clusters) return cluster;
    const int gpc = cluster < 4 ? 7 : cluster < 36 ? (cluster + 3) % 8 : (cluster - 36) % 7;  // the small one is 7
    const int member = cluster < 4 ? 4 + cluster : cluster < 36 ? (cluster - 4) / 8 : 4 + (cluster - 36) / 7;
    const int across = cluster < 64 ? gpc * 8 + member : cluster, cols = clusters / BAND;
    return across < cols * BAND ? across % cols * BAND + across / cols : across;  // tiles are counted down columns
}

// Where the tile of a cluster's block lies among the cluster's tiles, which are counted down columns.
__device__ __forceinline__ int row_in_cluster(int rank) {
    return SIDE == 1 ? rank : DOWN == 1 ? 0 : rank % DOWN;
}
__device__ __forceinline__ int column_in_cluster(int rank) {
    return SIDE == 1 ? 0 : DOWN == 1 ? rank : rank / DOWN;
}

// The blocks of a cluster, as a mask, whose tiles lie in the same row as that of block `rank`, or in the same column.
__device__ __forceinline__ int sharing_a(int rank) {
    return (DOWN == 1 ? (1 << CLUSTER) - 1 : 1 << CLUSTER / 2 | 1) << row_in_cluster(rank);
}
__device__ __forceinline__ int sharing_b(int rank) {
    return ((1 << DOWN) - 1) << column_in_cluster(rank) * DOWN;
}

// The first row that a copy of `count` rows takes, of a matrix of `limit` rows: with WITHIN it takes the last ones where all of its own would lie
// outside, whose products are stored nowhere.
#if WITHIN
#define INSIDE(first, count, limit) ((first) < (limit) ? (first) : max((limit) - (count), 0))
#else
#define INSIDE(first, count, limit) (first)
#endif

struct Corner {
    int row, col;
    bool low;  // the tile has LOW_BM rows instead of BM
};

// Where a block's tile lies. Below `tile_rows` rows of whole tiles lie
// LOW rows of low ones, which are taken last: the clusters then finish at more nearly the same time.
__device__ __forceinline__ Corner corner(int index, int tile_rows, int tile_cols, int rank) {
    const int down = row_in_cluster(rank), side = column_in_cluster(rank);
    if (LOW > 0 && index >= tile_rows * tile_cols) {
        const TileIndex tile = banded_tile(index - tile_rows * tile_cols, LOW, tile_cols, BAND);
        return {tile_rows * DOWN * BM + (tile.row * DOWN + down) * LOW_BM, (tile.col * SIDE + side) * BN, true};
    }
    // The first band, if it is whole, needs no division: the copies of a block's first tile wait for this.
    const bool easy = index < BAND * tile_cols && tile_rows >= BAND;
    const TileIndex tile = easy ? TileIndex{index % BAND, index / BAND} : banded_tile(index, tile_rows, tile_cols, BAND);
    return {(tile.row * DOWN + down) * BM, (tile.col * SIDE + side) * BN, false};
}

// sum (64 x BN, fp32) += a (64 x 16) * b (16 x BN), or = where `accumulate` is false.
__device__ __forceinline__ void multiply(float (&sum)[BN / 2], unsigned long long a, unsigned long long b, bool accumulate) {
#if HALVES
    const unsigned long long other = b + (BN / 2 * BK * 2 >> 4);
    wgmma_k16(reinterpret_cast<float(&)[BN / 4]>(sum), a, b, accumulate);
    wgmma_k16(reinterpret_cast<float(&)[BN / 4]>(sum[BN / 4]), a, other, accumulate);
#else
    wgmma_k16(sum, a, b, accumulate);
#endif
}

// Rounds STORE_N columns of a warp's 16 rows into its piece of shared memory.
__device__ __forceinline__ void write_piece(elem16* piece, const float* v) {
    const int lane = threadIdx.x % WARP_SIZE;
    const unsigned address = shared_address(piece + lane % 16 * PIECE_PITCH + lane / 16 * CHUNK);
#pragma unroll
    for (int n = 0; n < STORE_N; n += 16, v += 8)
        stmatrix_x4(address + n * 2, pack_elem16(v[0], v[1]), pack_elem16(v[2], v[3]), pack_elem16(v[4], v[5]), pack_elem16(v[6], v[7]));
}

// Sends a warp's 16 x BN part of a tile out through its piece of shared memory, in whole sectors. N is a multiple of CHUNK.
__device__ __forceinline__ void store_through(elem16* piece, elem16* C, const float (&sum)[BN / 2], int row0, int col0, int M, int N) {
    const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int n0 = 0; n0 + STORE_N <= BN; n0 += STORE_N) {
        constexpr int ROW_CHUNKS = STORE_N / CHUNK;
        write_piece(piece, sum + n0 / 2);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * ROW_CHUNKS / WARP_SIZE; ++i) {
            const int at = i * WARP_SIZE + lane, r = at / ROW_CHUNKS, c = at % ROW_CHUNKS * CHUNK;
            const uint4 chunk = *reinterpret_cast<const uint4*>(piece + r * PIECE_PITCH + c);
            if (row0 + r < M && col0 + n0 + c < N) __stcs(reinterpret_cast<uint4*>(C + (size_t)(row0 + r) * N + (col0 + n0 + c)), chunk);
        }
        __syncwarp();  // the piece has been read and may be written again
    }
}

// The same by TMA, which reads the pieces while the warp goes on: PIECES of them may be under way, `piece` is the first and `next` the one that is
// free next. The last piece may repeat columns of the one before.
template <int COUNT>
__device__ __forceinline__ void store_behind(elem16* piece, int& next, const CUtensorMap* map, const float (&sum)[COUNT], int row0, int col0, int M, int N) {
    const int lane = threadIdx.x % WARP_SIZE, row = lane % 16;
#pragma unroll
    for (int n0 = 0; n0 < COUNT * 2; n0 += OUT_N) {
        const int first = n0 < COUNT * 2 - OUT_N ? n0 : COUNT * 2 - OUT_N;
        const float* v = sum + first / 2;
        elem16* out = piece + next * OUT_PIECE;
        // The swizzle exchanges the chunks of a row by its number in its eight.
        const unsigned address = shared_address(out + row * OUT_N) + ((lane / 16 ^ row % 8) * 16);
        if (lane == 0) bulk_store_wait<PIECES - 1>();
        __syncwarp();
#pragma unroll
        for (int n = 0; n < OUT_N; n += 16, v += 8)
            stmatrix_x4(address ^ n * 2, pack_elem16(v[0], v[1]), pack_elem16(v[2], v[3]), pack_elem16(v[4], v[5]), pack_elem16(v[6], v[7]));
        async_proxy_fence();
        __syncwarp();
        if (lane == 0) {
            if (row0 < M && col0 + first < N) tma_store(map, out, col0 + first, row0);
            bulk_store_commit();
        }
        if (++next == PIECES) next = 0;
    }
}

// The same where the tile's rows are columns of C: a warpgroup's 64 columns of C leave in pieces of 64 rows, which its four warps write together.
__device__ __forceinline__ void store_turned(elem16* piece, int& next, int barrier, const CUtensorMap* map, const float (&sum)[BN / 2], int row0, int col0, int M, int N) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE % 4;
    const bool first_thread = threadIdx.x % 128 == 0;
#pragma unroll
    for (int m0 = 0; m0 < BN; m0 += OUT_N) {
        const int first = m0 < BN - OUT_N ? m0 : BN - OUT_N;
        const float* v = sum + first / 2;
        elem16* out = piece + next * (4 * OUT_PIECE);
        // Matrices of a warp: its first and last eight columns of C, at eight rows, then at the eight after these.
        const unsigned address = shared_address(out + (lane / 16 * 8 + lane % 8) * OUT_N) + ((warp * 2 + lane / 8 % 2 ^ lane % 8) * 16);
        if (first_thread) bulk_store_wait<PIECES - 1>();
        barrier_sync(barrier, 128);
#pragma unroll
        for (int m = 0; m < OUT_N; m += 16, v += 8)
            stmatrix_x4_transposed(address + m * OUT_N * 2, pack_elem16(v[0], v[1]), pack_elem16(v[2], v[3]), pack_elem16(v[4], v[5]), pack_elem16(v[6], v[7]));
        async_proxy_fence();
        barrier_sync(barrier, 128);
        if (first_thread) {
            if (row0 + first < M && col0 < N) tma_store(map, out, col0, row0 + first);
            bulk_store_commit();
        }
        if (++next == PIECES) next = 0;
    }
}

// The k-steps that a block has of a tile: the tile itself, and from .. to - 1 of its steps.
struct Share {
    int tile, part, from, to;
};

// Share `index` where, of `tiles` tiles, those after the first `whole` are cut into `parts` along k. Clusters that run at the same time have the same part of different tiles.
__device__ __forceinline__ Share share_of(int index, int whole, int tiles, int parts, int steps, int half) {
    if (ALONG > 1) return {index, half, steps * half / ALONG, steps * (half + 1) / ALONG};
    if (SPLIT == 1 || index < whole) return {index, 0, 0, steps};
    const int rest = tiles - whole, part = (index - whole) / rest;
    return {index - part * rest, part, steps * part / parts, steps * (part + 1) / parts};
}

// Adds up what the `parts` warps that have a part of the same 16 x BN sums found: in pairs, then pairs of pairs. The first of a pair leaves its sums in
// memory and is done; the second adds them to its own and goes on. Which is which changes nothing, so the result is the same each time. The second waits
// for a warp that is already writing, never for one that has yet to start. True for the one that has them all.
__device__ __forceinline__ bool add_parts(float (&sum)[BN / 2], float4* partial, unsigned* arrived, int part, int parts) {
    const int lane = threadIdx.x % WARP_SIZE;
#pragma unroll 1
    for (int width = 1; width < parts; width *= 2) {
        const int mine = part / width;
        if ((mine ^ 1) * width >= parts) continue;  // nobody to add
        const int pair = (mine | 1) * width;        // where its second half starts: no other pair's does
        float4* slot = partial + pair * (WARP_QUARTETS * WARP_SIZE) + lane;
        unsigned before = 0;
        if (lane == 0) before = atomicAdd(arrived + pair, 1u);
        if (__shfl_sync(0xffffffff, before, 0) == 0) {
#pragma unroll
            for (int i = 0; i < WARP_QUARTETS; ++i) __stcg(slot + i * WARP_SIZE, make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]));
            __threadfence();
            __syncwarp();
            if (lane == 0) atomicAdd(arrived + pair, 2u);
            return false;
        }
        unsigned state;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(state) : "l"(arrived + pair) : "memory");
        while (state < 4);
        __syncwarp();
        if (lane == 0) arrived[pair] = 0;  // for the next launch
        constexpr int AT_ONCE = 8;         // loads under way: each takes as long as the L2 needs to answer
#pragma unroll
        for (int i = 0; i < WARP_QUARTETS; i += AT_ONCE) {
            float4 other[AT_ONCE];
#pragma unroll
            for (int q = 0; q < AT_ONCE; ++q)
                if (i + q < WARP_QUARTETS) other[q] = __ldcg(slot + (i + q) * WARP_SIZE);
#pragma unroll
            for (int q = 0; q < AT_ONCE; ++q)
                if (i + q < WARP_QUARTETS) {
                    float* own = sum + 4 * (i + q);
                    own[0] += other[q].x, own[1] += other[q].y, own[2] += other[q].z, own[3] += other[q].w;
                }
        }
    }
    return true;
}

// Adds up a tile whose `half`s along k two blocks of a cluster have: each sends the other one half of its columns, through shared memory, and adds
// what it gets to its own half of them. `there` is the address of the other's `sums`, `unit` the number of the warp among the consumers.
__device__ __forceinline__ void exchange(float (&own)[BN / 4], const float (&sum)[BN / 2], int half, const float4* sums, unsigned there, int unit) {
    constexpr int QUARTETS = BN / 16;
    const int first = unit * QUARTETS * WARP_SIZE + threadIdx.x % WARP_SIZE;
#pragma unroll
    for (int i = 0; i < QUARTETS; ++i) {
        float sent[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float low = sum[4 * i + j], high = sum[4 * (i + QUARTETS) + j];
            own[4 * i + j] = half ? high : low, sent[j] = half ? low : high;
        }
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(there + (first + i * WARP_SIZE) * 16), "f"(sent[0]), "f"(sent[1]), "f"(sent[2]), "f"(sent[3]) : "memory");
    }
    cluster_sync();
#pragma unroll
    for (int i = 0; i < QUARTETS; ++i) {
        const float4 other = sums[first + i * WARP_SIZE];
        own[4 * i] += other.x, own[4 * i + 1] += other.y, own[4 * i + 2] += other.z, own[4 * i + 3] += other.w;
    }
}

// Meets the other blocks of the cluster after mbarrier_init_fence, where nothing else is handed over: unlike cluster_sync, nobody waits until
// earlier writes have arrived everywhere. All lanes of a warp come together.
__device__ __forceinline__ void cluster_meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

extern "C" __global__ void __cluster_dims__(CLUSTER * ALONG, 1, 1) __launch_bounds__(128 * (CONSUMERS + 1), 1)
wgmma_fitted(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_low,
              const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_c, elem16* __restrict__ C, int M, int N, int K, float4* partial, unsigned* arrived) {
    extern __shared__ __align__(1024) elem16 ring_a[];  // swizzled tiles start at a multiple of 1024 bytes
    elem16* ring_b = ring_a + STAGES * TILE_A;
    elem16* pieces = ring_b + STAGES * TILE_B;
    mbarrier *full = reinterpret_cast<mbarrier*>(pieces + OUT + SUMS), *empty = full + STAGES;

    // TURNED: the rows of tiles are columns of C, and their columns are rows of it.
    const CUtensorMap *const map_rows = TURNED ? &map_b : &map_a, *const map_cols = TURNED ? &map_a : &map_b;
    const int rows = TURNED ? N : M, cols = TURNED ? M : N;
    // `rank`: which of the blocks that share tiles this one is. `half`, with ALONG: which half of the K steps it takes.
    const int rank = ALONG > 1 ? cluster_rank() % CLUSTER : cluster_rank(), half = ALONG > 1 ? cluster_rank() / CLUSTER : 0, warpgroup = threadIdx.x / 128, lane = threadIdx.x % WARP_SIZE;
    const int steps = ceil_div(K, BK), parts = min(SPLIT, steps);
    const int tile_rows = ceil_div(max(rows - LOW * DOWN * LOW_BM, 0), BM * DOWN), tile_cols = ceil_div(cols, BN * SIDE), tiles = (tile_rows + LOW) * tile_cols;
    const int stride = gridDim.x / (CLUSTER * ALONG), whole = SPLIT > 1 ? tiles / stride * stride : 0;  // full rounds of tiles are not cut
    const int shares = whole + (tiles - whole) * parts, first = place(blockIdx.x / (CLUSTER * ALONG), stride, shares);
    const Share first_share = share_of(first, whole, tiles, parts, steps, half);
    const int early = min(EARLY, first_share.to - first_share.from);

    if (PIECES && threadIdx.x == WARP_SIZE && N % CHUNK == 0) prefetch_map(&map_c);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], 1);                         // this block's producer, and the bytes that all producers deliver
            mbarrier_init(&empty[s], CLUSTER * READERS * 4);  // one lane of each warp of the cluster that reads a stage
        }
        mbarrier_init_fence();
        // The first copies, in the first lines of the machine code and before the cluster has met: each block fetches all for itself.
        const Corner tile = corner(first_share.tile, tile_rows, tile_cols, rank);
        for (int s = 0; s < early; ++s) {
            const int k0 = (first_share.from + s) * BK;
            mbarrier_arrive_expect(&full[s], tile.low ? LOW_BYTES : STAGE_BYTES);
#pragma unroll
            for (int part = 0; part < SIDE; ++part) {
                const int down = part * (tile.low ? LOW_SHARE : SHARE_A);
                tma_load(ring_a + s * TILE_A + down * BK, tile.low ? &map_low : map_rows, k0, INSIDE(tile.row + down, tile.low ? LOW_SHARE : SHARE_A, rows), &full[s]);
            }
#pragma unroll
            for (int part = 0; part < DOWN; ++part)
                tma_load(ring_b + s * TILE_B + FIRST_B(part) * BK, map_cols, k0, INSIDE(tile.col + FIRST_B(part), SHARE_B, cols), &full[s]);
        }
    }
    unsigned phase = 0;  // parity of the current round through the ring
    if (warpgroup == 0) {
        // With one consumer nobody needs more registers than all may have.
        if (CONSUMERS > 1) release_registers<TURNS ? 24 : HALVES ? 32 : 40>();
        __syncwarp();
        cluster_meet();
        if (threadIdx.x == 0) {
            int t = early, stage = early;
            bool backward = false;
            for (int index = first; index < shares; index += stride) {
                const Share share = share_of(index, whole, tiles, parts, steps, half);
                const Corner tile = corner(share.tile, tile_rows, tile_cols, rank);
                for (; t < share.to - share.from; ++t) {
                    const int k0 = (backward ? share.to - 1 - t : share.from + t) * BK;
                    // Free in every block: this block's part of what they share lands in all of them.
                    mbarrier_wait(&empty[stage], phase ^ 1);
                    mbarrier_arrive_expect(&full[stage], tile.low ? LOW_BYTES : STAGE_BYTES);
                    const unsigned short with_a = sharing_a(rank), with_b = sharing_b(rank) << half * CLUSTER;
                    elem16 *to_a = ring_a + stage * TILE_A, *to_b = ring_b + stage * TILE_B;
                    if (SIDE > 1) {
                        const int down = column_in_cluster(rank) * (tile.low ? LOW_SHARE : SHARE_A);
                        tma_load_multicast(to_a + down * BK, tile.low ? &map_low : map_rows, k0, INSIDE(tile.row + down, tile.low ? LOW_SHARE : SHARE_A, rows), &full[stage], with_a);
                    } else {
                        tma_load(to_a, tile.low ? &map_low : map_rows, k0, INSIDE(tile.row, tile.low ? LOW_SHARE : SHARE_A, rows), &full[stage]);
                    }
                    if (DOWN > 1) {
                        const int first = FIRST_B(row_in_cluster(rank));
                        tma_load_multicast(to_b + first * BK, map_cols, k0, INSIDE(tile.col + first, SHARE_B, cols), &full[stage], with_b);
                    } else {
                        tma_load(to_b, map_cols, k0, INSIDE(tile.col, SHARE_B, cols), &full[stage]);
                    }
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
                t = 0;
                // What was read last is still in the L2: start the next tile, in the same rows or columns, from there.
                backward = !backward;
            }
            // No block leaves while another may still arrive at its barriers: wait until all stages have been handed back.
            for (int s = 0; s < STAGES; ++s) {
                mbarrier_wait(&empty[stage], phase ^ 1);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
        }
        if (ALONG > 1) {
            __syncwarp();
            cluster_sync();  // of exchange()
        }
    } else {
        if (CONSUMERS > 1) claim_registers<TURNS ? 240 : CONSUMERS == 2 ? 232 : HALVES ? 160 : 152>();
        const int turn = warpgroup - 1, band = TURNS ? 0 : turn * 64, warp = threadIdx.x / WARP_SIZE % 4;
        cluster_meet();
        elem16* piece = pieces + (turn * 4 + (TURNED ? 0 : warp)) * (PIECES ? PIECES * OUT_PIECE : 16 * PIECE_PITCH);
        // Lane r of each warp reports to block r.
        const unsigned empty_there = cluster_address(shared_address(empty), half * CLUSTER + lane % CLUSTER);
        const auto release = [&](int s) {
            if (lane < CLUSTER) mbarrier_arrive_cluster(empty_there + s * sizeof(mbarrier));
        };
        float sum[BANDS][BN / 2];
        int stage = 0, next = 0;
        bool mine = !TURNS || turn == 0;
        if (TURNS && turn == 1) barrier_arrive(1, 256);
        for (int index = first; index < shares; index += stride) {
            const Share share = share_of(index, whole, tiles, parts, steps, half);
            const int own_steps = share.to - share.from;
            if (TURNS) {
                const bool now = mine;
                mine = !mine;
                if (!now) {  // the other consumer's tile, which passes through the same stages
                    stage += own_steps;
                    phase ^= stage / STAGES & 1;
                    stage %= STAGES;
                    continue;
                }
            }
            const Corner tile = corner(share.tile, tile_rows, tile_cols, rank);
            if (tile.low && band >= LOW_BM) {  // the last consumer has no rows of a low tile
                for (int t = 0; t < own_steps; ++t) {
                    mbarrier_wait(&full[stage], phase);
                    release(stage);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
                continue;
            }
            // The other one has started its last products: so all stages before this tile's have been filled, and a barrier's parity is not taken for that of
            // an earlier round.
            if (TURNS) barrier_sync(1 + turn, 256);
            for (int t = 0; t < own_steps; ++t) {
                mbarrier_wait(&full[stage], phase);
                const unsigned long long a = wgmma_tile(ring_a + stage * TILE_A + band * BK), b = wgmma_tile(ring_b + stage * TILE_B);
                wgmma_fence();
#pragma unroll
                for (int k = 0; k < BK / 16; ++k)
#pragma unroll
                    for (int i = 0; i < BANDS; ++i) multiply(sum[i], a + i * (64 * BK * 2 >> 4) + k * WGMMA_K16_STEP, b + k * WGMMA_K16_STEP, t + k > 0);
                wgmma_commit();
                // The stage before this one has been read: hand it back while this one is multiplied.
                wgmma_wait<1>();
                if (t > 0) release(stage == 0 ? STAGES - 1 : stage - 1);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            if (TURNS) barrier_arrive(2 - turn, 256);
            wgmma_wait<0>();
            release(stage == 0 ? STAGES - 1 : stage - 1);
#pragma unroll
            for (int i = 0; i < BANDS; ++i) {
                const int row0 = tile.row + band + i * 64;
                if (SPLIT > 1 && own_steps < steps) {
                    const int unit = ((share.tile * CLUSTER + rank) * (BM / 64) + turn) * 4 + warp;  // the same rows of all parts
                    if (!add_parts(sum[i], partial + (size_t)unit * SPLIT * (WARP_QUARTETS * WARP_SIZE), arrived + unit * SPLIT, share.part, parts)) continue;
                }
#if ALONG > 1
                float own[BN / 4];
                float4* sums = reinterpret_cast<float4*>(pieces + OUT);
                exchange(own, sum[i], half, sums, cluster_address(shared_address(sums), cluster_rank() ^ CLUSTER), turn * 4 + warp);
                const int col0 = tile.col + half * (BN / 2);
                if (N % CHUNK != 0) store_accumulators(C, own, row0, col0, M, N);
                else store_behind(piece, next, &map_c, own, row0 + warp * 16, col0, M, N);
#else
                if (TURNED) store_turned(piece, next, 3 + turn, &map_c, sum[i], tile.col, row0, M, N);
                else if (N % CHUNK != 0) store_accumulators(C, sum[i], row0, tile.col, M, N);  // rows off the 16-byte grid
                else if (PIECES) store_behind(piece, next, &map_c, sum[i], row0 + warp * 16, tile.col, M, N);
                else store_through(piece, C, sum[i], row0 + warp * 16, tile.col, M, N);
#endif
            }
        }
        if (PIECES && lane == 0) bulk_store_wait<0>();  // shared memory is read until then
    }
}

/*+++
minimum_cc = "9.0"
arch_specific = true
shapes = [{ check = "ALONG == 1 or K > BK", says = "each half along k has a step" }, { check = "TURNED == 0 or N % 8 == 0", says = "TMA stores rows at multiples of 16 bytes" }]

[source]
document = """\
PTX ISA, thread block clusters and multicast; CUDA C++ Programming Guide, asynchronous copies"""

[parameters]
BM = 128                  # 64 rows for each consumer warpgroup
BN = 256
BK = 64
CLUSTER = 2               # blocks that fetch for each other what they share; not all SMs are in whole groups of four
BAND = 8                  # rows of clusters' tiles taken together
EARLY = 2                 # stages filled before the blocks of a cluster have met
LOW = 0                   # rows of clusters' tiles, at the bottom, that have 64 rows a block less
ACROSS = 0                # a cluster takes 2 ** ACROSS columns of tiles; those side by side share A, those one below the other share B
SPLIT = 1                 # parts along k that each tile is cut into, where tiles are too few
TURNS = 0                 # 1: two consumers take whole tiles in turn, one stores while the other multiplies; 0: all multiply one tile
PIECES = 0                # pieces of 16 x 64 that a warp may have on their way out through TMA; 0: threads store
ALONG = 1                 # 2: pairs of such clusters halve the steps of one tile each, and add up in shared memory, where tiles are few
WITHIN = 0                # 1: a copy that would lie wholly outside its matrix takes rows of it instead
TURNED = 0                # 1: rows of tiles are columns of C, whose rows are then cut as finely as BN allows

[search]
BM = [64, 128, 192]
BN = [64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216, 224, 232, 240, 248, 256]
CLUSTER = [2, 4]
BAND = [4, 7, 8, 9, 10, 14, 16]
EARLY = [2, 3, 7]
LOW = [0, 2, 4, 8]
ACROSS = [0, 1, 2]
SPLIT = [1, 2, 3, 4, 8]
TURNS = [0, 1]
PIECES = [0, 1, 2]
TURNED = [0, 1]
ALONG = [1, 2]
WITHIN = [0, 1]

[[constraint]]
check = "BK == 64 and BM % 64 == 0 and BM <= 192 and (TURNS == 0 or BM * BN <= 128 * 192) and BN % (8 if BM > 64 else 16) == 0 and 64 <= BN <= 256 and (BM <= 128 or BN <= 200 or BN % 16 == 0) and 2 ** ACROSS <= CLUSTER and (CLUSTER == 1 or CLUSTER == 2 or CLUSTER == 4)"
says = """\
a consumer warpgroup takes 64 rows and has the registers for 256 columns, one of three only in two \
instructions of 128; a row of a tile is one 128-byte swizzle span"""

[[constraint]]
check = "CLUSTER <= 2 and BN >= 128 or LOW == 0 and SPLIT == 1 and TURNS == 0 and ALONG == 1"
says = "clusters of four, and tiles of fewer than 128 columns, take whole tiles of one height, which all consumers multiply together"

[[constraint]]
check = "LOW == 0 or BM > 64 and SPLIT == 1"
says = "a low tile has 64 rows per block less, and one consumer idle; what is cut along k has tiles of one height"

[[constraint]]
check = "TURNS == 0 or LOW == 0 and SPLIT == 1"
says = "tiles taken in turn are whole, and of one height"

[[constraint]]
check = "TURNED == 0 or LOW == 0 and SPLIT == 1 and (ACROSS == 0 or CLUSTER == 4)"
says = "a turned tile leaves by the warpgroup: it is whole"

[[constraint]]
check = "ALONG == 1 or ALONG == 2 and LOW == 0 and SPLIT == 1 and ACROSS == 0 and TURNS == 0 and TURNED == 0 and BN % 16 == 0 and BM <= 128"
says = "the halves of a tile are whole and of one height, and each block stores half of the columns"

[[constraint]]
check = "PIECES > 0 or BN % 16 == 0 and (BM < 192 or BN <= 192 or BN == 256) and TURNS == 0 and TURNED == 0 and ALONG == 1"
says = "threads store only whole tiles that two consumers multiply together, in rows of C"

[[constraint]]
check = "SPLIT == 1 or BM < 192 or BN <= 192"
says = "adding up the parts of wider tiles needs more registers than a thread of four warpgroups has"

[[constraint]]
check = "EARLY < min(8, (232448 - ((8 if TURNS else BM // 16) * PIECES * 2048 or BM * ((64 if BN % 64 == 0 else 80 if BN % 80 == 0 else 32 if BN % 32 == 0 else 16) + 8) * 2) - (ALONG - 1) * BM * BN * 2) // ((BM + BN) * BK * 2 + 16))"
says = "the ring has one stage more than are filled early"

[model]
says = """\
The longest cluster decides: whole rounds of tiles, then low ones. A step takes as long as the \
products or the rows that come from the L2, of which a row off the 128-byte lines needs more, and \
each where all SMs read a single round, in which clusters of a GPC do not start side by side (few clusters in a column share more); tiles \
taken in turn are stored behind products; long runs are slowed by the power cap, less so where SMs are idle; bytes of C cost time, \
more where rows of a tile begin between sectors or lines. Clusters of four read less, but 12 of 132 SMs have no \
place in one, and they meet later. \
Constants fitted to 785 settings at 103 sizes on an H200 (docs/decisions/51-tiles-in-turn.md), in \
microseconds and steps of 1640 cycles."""
time_us = "(4 + (0.35 if CLUSTER == 4 else 0) + (0.25 + max(hot, rounds * (store + merge) * 1.32) + merge if TURNS else (rounds - 1) * tile + merge + 1.4 * low + hot) + store) * cool + M * N * 1e-6 * (0.125 if TURNED else 0.116)"

[model.over]
BM = [64, 128, 192]
CLUSTER = [2, 4]
BN = [64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216, 224, 232, 240, 248, 256]
ACROSS = [0, 1, 2]
SPLIT = [1, 2, 3, 4, 8]
LOW = [0, 2]
TURNS = [0, 1]
TURNED = [0, 1]
ALONG = [1, 2]

[model.set]               # as many pieces as cost no stage; threads store whole sectors of a single round no later
PIECES = "0 if rounds == 1 and SPLIT == 1 and BN % 32 == 0 and (BM < 192 or BN <= 192 or BN == 256) and TURNS == 0 and TURNED == 0 and ALONG == 1 else 2 if ALONG == 1 and min(8, (232448 - (8 if TURNS else BM // 16) * 4096) // ((BM + BN) * 128 + 16)) == min(8, (232448 - (8 if TURNS else BM // 16) * 2048) // ((BM + BN) * 128 + 16)) else 1"
WITHIN = "1 if LOW == 0 and (-(N if TURNED else M) % (BM * down) >= BM // 2 ** ACROSS or -(M if TURNED else N) % (BN * 2 ** ACROSS) >= (BN // down + 7) // 8 * 8) else 0"
EARLY = "5 if BM == 64 and BN <= 128 else 2 if ALONG > 1 else 3 if BN < 208 else 2"

[model.let]
down = "CLUSTER // 2 ** ACROSS"
slots = "sm_count // 2 if ALONG * CLUSTER == 2 else max(1, sm_count // 4 - 3)"  # clusters of four do not fill every GPC
columns = "ceil_div(M if TURNED else N, BN * CLUSTER // down)"
high = "ceil_div(max(0, (N if TURNED else M) - LOW * down * (BM - 64)), BM * down) * columns * SPLIT"
tiles = "high + LOW * columns"
rounds = "ceil_div(tiles, slots)"
whole = "ceil_div(high, ceil_div(tiles, rounds)) if SPLIT == 1 else high // SPLIT // ceil_div(tiles, rounds)"
cut = "0 if SPLIT == 1 else rounds - whole * SPLIT"
low = "rounds - whole if LOW else 0"
idle = "1 - tiles / (rounds * (slots if CLUSTER == 2 else sm_count / 4))"
off_lines = "K % 8 == 0 and K % BK != 0"
rows = "BM * (1.35 if off_lines and not TURNED else 1) * down / CLUSTER + (BN / down if CLUSTER == 2 else ceil_div(BN, 8 * down) * 8) * (1.35 if off_lines and TURNED else 1)"
pace = "1.05 if BN < 128 else 1.041 if BM == 64 and (TURNS or BN > 128) else 0.981 if BM == 192 and BN == 256 else 1.01 if BM == 192 and 200 < BN < 240 else 1"
cycles = "((BM * BN / 32) ** 8 + ((2.6 + (0.4 * (1 - idle) ** 8 * (1 if off_lines else min(1, high / columns / SPLIT / 8) ** 2) if whole + low + cut == 1 else 0)) * rows) ** 8 + 200 ** 8) ** 0.125 * pace"
step = "cycles / 1640 * (1 if not ACROSS else 1.045 if off_lines else 1.04)"
steps = "ceil_div(ceil_div(K, BK), ALONG)"
work = "((whole + low * 1.08 * (BM - 64) / BM) * steps + cut * ceil_div(steps, SPLIT)) * step"
heat = "work / (work + 300)"
hot = "work * (1 + (0.05 - 0.0056 * (100 * rows / (BM * BN) - 1)) * heat + (0 if TURNED else 0.025 * heat if N % 64 else 0) + (0.03 if rounds == 1 and BN % 16 and not TURNED else 0))"
cool = "1 - 0.64 * idle * heat"
store = "BM * (BN * 0.466 if N % 8 else ceil_div(BN, 64) * 64 * 0.07) / 1024"
tile = "store if N % 8 else BM * ceil_div(BN, 64) * 64 * 0.0387 / 1024"
merge = "(0.37 + BM * BN / 23900 if ALONG > 1 else 0) + cut * (2.2 + BM * BN / 29650) * (0 if SPLIT == 1 else 1 if SPLIT == 2 else 2 if SPLIT <= 4 else 3)"

[[launch]]                # as few clusters as the number of rounds needs: they then all have the same number of tiles, or one less
kernel = "wgmma_fitted"
grid = ["ceil_div((ceil_div(max(0, (N if TURNED else M) - LOW * (BM - 64) * (CLUSTER // 2 ** ACROSS)), BM * (CLUSTER // 2 ** ACROSS)) + LOW) * ceil_div((M if TURNED else N), BN * 2 ** ACROSS) * min(SPLIT, ceil_div(K, BK)), 1 if ALONG > 1 else ceil_div((ceil_div(max(0, (N if TURNED else M) - LOW * (BM - 64) * (CLUSTER // 2 ** ACROSS)), BM * (CLUSTER // 2 ** ACROSS)) + LOW) * ceil_div((M if TURNED else N), BN * 2 ** ACROSS) * min(SPLIT, ceil_div(K, BK)), max(1, sm_count // CLUSTER - CLUSTER // 4 * 3))) * CLUSTER * ALONG", "1", "1"]
block = ["384 if TURNS else 128 * (BM // 64 + 1)", "1", "1"]
shared = "232448"
args = ["map_a", "map_low", "map_b", "map_c", "C", "M", "N", "K", "partial", "arrived"]

[scratch.partial]         # sums of the parts of a tile
dtype = "float32"
count = "ceil_div((N if TURNED else M), BM * CLUSTER) * ceil_div((M if TURNED else N), BN * CLUSTER) * CLUSTER * CLUSTER * BM * BN * SPLIT if SPLIT > 1 else 1"

[scratch.arrived]         # a word for each pair of parts of a warp's rows of a tile; all zero again after every launch
dtype = "int32"
count = "ceil_div((N if TURNED else M), BM * CLUSTER) * ceil_div((M if TURNED else N), BN * CLUSTER) * CLUSTER * CLUSTER * BM // 16 * SPLIT if SPLIT > 1 else 1"

[tensor_maps.map_a]
array = "A_lines"
box = ["BK", "(BN if CLUSTER == 2 ** ACROSS else (BN // (CLUSTER // 2 ** ACROSS) + 7) // 8 * 8) if TURNED else BM // 2 ** ACROSS"]
swizzle = 128

[tensor_maps.map_low]
array = "A_lines"
box = ["BK", "max(64, BM - 64) // 2 ** ACROSS"]
swizzle = 128

[tensor_maps.map_b]
array = "B_lines"
box = ["BK", "BM // 2 ** ACROSS if TURNED else BN if CLUSTER == 2 ** ACROSS else (BN // (CLUSTER // 2 ** ACROSS) + 7) // 8 * 8"]
swizzle = 128

[tensor_maps.map_c]
array = "C"
box = ["0 if N % 8 else 64", "0 if N % 8 else 64 if TURNED else 16"]  # rows off the 16-byte grid are stored by threads
swizzle = 128

[expect.sass]
present = ["HGMMA", "UTMALDG.2D", "STSM", "SYNCS", "USETMAXREG"]
absent = ["LDL", "STL", "HMMA", "LDGSTS", "LDSM"]
max_registers = 168

[[expect.profile]]
says = "a warp's share of one instruction is 16 x BN x 16 multiply-adds, half of that where a row takes two, in whole tiles"
check = "executed('HGMMA') * 16 * (BN // 2 if BM == 192 and BN > 200 else BN) * 16 == (ceil_div(max(0, (N if TURNED else M) - LOW * (BM - 64) * (CLUSTER // 2 ** ACROSS)), BM * (CLUSTER // 2 ** ACROSS)) * BM + LOW * (BM - 64)) * CLUSTER * ceil_div((M if TURNED else N), BN * 2 ** ACROSS) * BN * ceil_div(K, BK) * BK"

[[measured]]
gpu = "NVIDIA H200"
says = """\
Over cuBLAS in turns, before tiles were cut along k, as tuned, at 1024, 2048 .. 16384: 1.021, 1.012, 1.028, 1.019, 1.012, 1.045, \
1.001, 1.043, 1.012, 1.037, 1.055, 1.040, 1.011, 1.033, 1.032, 1.035; 3.97 at 4097 in an earlier \
form, in tiles of 128 x 224. GPCs in rows: + 0.8 to + 2.9 % from 3072 on. Low tiles on top: + 0.4 \
to + 0.8 % at 8192, 10240 and 14336. What was tried: docs/decisions/20-tops.md. At 48 sizes that \
nobody tuned 1.031 in the median, over the better of cuBLAS and cuBLASLt, 0.930 to 5.5 \
(docs/decisions/51-tiles-in-turn.md)."""
+++*/
