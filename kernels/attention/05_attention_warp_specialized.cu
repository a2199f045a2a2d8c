/*+++
title = "Warpgroups that take turns"
idea = """\
A producer warpgroup keeps keys and values coming; two to four others compute, and take turns at \
the tensor cores: while one waits for its products, another computes exponentials. Within each, \
the product for the scores of the next keys overlaps the product with the present values. Tiles of \
queries are dealt out by tickets, the longest first where the mask is causal."""
kind = "step"
compared_with = "attention_wgmma"
+++*/

#include "attention/tiles.cuh"

#define D HEAD_SIZE
#define ROWS (D == 64 ? ROWS_64 : ROWS_128)  // queries of a block
#define KEYS (D == 64 ? KEYS_64 : KEYS_128)  // of a tile
#define CONSUMERS (ROWS / 64)                // warpgroups
#define TILE_Q (ROWS * D)
#define TILE (KEYS * D)

// Named barriers: a warpgroup waits at its own for its turn at the tensor cores, and the one before it passes the turn on.
__device__ __forceinline__ void turn_wait(int who) { asm volatile("bar.sync %0, 256;" :: "r"(who + 1) : "memory"); }
__device__ __forceinline__ void turn_pass(int who) { asm volatile("bar.arrive %0, 256;" :: "r"(who + 1) : "memory"); }

extern "C" __global__ void __launch_bounds__(ROWS * 2 + 128, 1)
attention_warp_specialized(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                           elem16* __restrict__ O, int* __restrict__ tickets, int N, int heads, int causal) {
    extern __shared__ unsigned char shared[];
    __shared__ mbarrier q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    __shared__ int announced;  // the tile of queries that is in shared memory, or is on its way
    // Swizzled tiles start at a multiple of 1024 bytes; the launch asks for 1024 bytes more than they take.
    elem16* q = reinterpret_cast<elem16*>(shared + (1024 - shared_address(shared) % 1024) % 1024);
    elem16* k_ring = q + TILE_Q;
    elem16* v_ring = k_ring + STAGES * TILE;
    elem16* pieces = v_ring + STAGES * TILE;
    // The same for all lanes, which the compiler cannot know without the shuffle: addresses then stay in uniform registers.
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    const int total = ceil_div(N, ROWS) * heads;

    if (threadIdx.x == 0) {
        mbarrier_init(&q_full, 1);
        mbarrier_init(&q_empty, CONSUMERS * 4);
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&k_full[s], 1);
            mbarrier_init(&v_full[s], 1);
            mbarrier_init(&k_empty[s], CONSUMERS * 4);  // one lane of each consumer warp
            mbarrier_init(&v_empty[s], CONSUMERS * 4);
        }
        mbarrier_init_fence();
    }
    __syncthreads();

    if (warpgroup == 0) {
        release_registers<CONSUMERS == 3 ? 32 : 24>();
        if (threadIdx.x == 0) {
            tma_prefetch_map(&map_q);
            tma_prefetch_map(&map_k);
            tma_prefetch_map(&map_v);
            int k_stage = 0, v_stage = 0;
            unsigned k_phase = 1, v_phase = 1, q_phase = 1;  // in the first round all buffers are free: nothing to wait for
            for (int index = blockIdx.x;; q_phase ^= 1) {
                mbarrier_wait(&q_empty, q_phase);
                atomicExch(&announced, index);  // atomics on both sides: racecheck does not follow these two barriers
                if (index >= total) {
                    mbarrier_arrive(&q_full);
                    break;
                }
                const int ticket = atomicAdd(tickets, 1);  // of the next tile; it arrives while this one is loaded
                const QueryTile tile = query_tile<D, ROWS>(index, N, heads, SECTION_MIB);
                const int base = tile.head * N;
                mbarrier_arrive_expect(&q_full, TILE_Q * 2);
                load_rows<D, ROWS>(q, &map_q, base + tile.row0, &q_full);
                const auto load_k = [&](int block) {
                    mbarrier_wait(&k_empty[k_stage], k_phase);
                    mbarrier_arrive_expect(&k_full[k_stage], TILE * 2);
                    load_rows<D, KEYS>(k_ring + k_stage * TILE, &map_k, base + block * KEYS, &k_full[k_stage]);
                    if (++k_stage == STAGES) k_stage = 0, k_phase ^= 1;
                };
                int block = key_blocks<KEYS>(tile.row0 + ROWS, N, causal) - 1;
                load_k(block);
                for (; block >= 0; --block) {
                    if (block > 0) load_k(block - 1);  // keys are needed a block before their values
                    mbarrier_wait(&v_empty[v_stage], v_phase);
                    mbarrier_arrive_expect(&v_full[v_stage], TILE * 2);
                    load_rows<D, KEYS>(v_ring + v_stage * TILE, &map_v, base + block * KEYS, &v_full[v_stage]);
                    if (++v_stage == STAGES) v_stage = 0, v_phase ^= 1;
                }
                index = gridDim.x + ticket;
                if (ticket == total - 1) *tickets = 0;  // the last ticket of all: ready for the next launch
            }
        }
    } else {
        claim_registers<CONSUMERS == 2 ? 240 : CONSUMERS == 3 ? 160 : 112>();
        const int own = warpgroup - 1, next = own + 1 == CONSUMERS ? 0 : own + 1;
        const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE % 4;
        elem16* piece = pieces + (own * 4 + warp) * 16 * PIECE_PITCH;
        const elem16* q_own = q + own * 64 * 64;
        if (TURNS && own == CONSUMERS - 1) turn_pass(next);
        float out[D / 2], scores[KEYS / 2];
        unsigned powers[KEYS / 4];
        int k_stage = 0, v_stage = 0;
        unsigned k_phase = 0, v_phase = 0;
        for (unsigned q_phase = 0;; q_phase ^= 1) {
            mbarrier_wait(&q_full, q_phase);
            // Only the lane that hands the queries back reads it: lane 0, for its warp.
            const int index = __shfl_sync(0xffffffffu, lane == 0 ? atomicOr(&announced, 0) : 0, 0);
            if (index >= total) break;
            const QueryTile tile = query_tile<D, ROWS>(index, N, heads, SECTION_MIB);
            const int own_row = tile.row0 + own * 64, row0 = own_row + warp * 16;
            // This warpgroup's rows see nothing of blocks from `blocks` on, and some of them not all of those from `whole` on.
            const int blocks = key_blocks<KEYS>(own_row + 64, N, causal), whole = (causal ? min(own_row + 1, N) : N) / KEYS;
            RowPair rows;
            float factor[2];
            const auto release_k = [&] {
                if (lane == 0) mbarrier_arrive(&k_empty[k_stage]);
                if (++k_stage == STAGES) k_stage = 0, k_phase ^= 1;
            };
            const auto release_v = [&] {
                if (lane == 0) mbarrier_arrive(&v_empty[v_stage]);
                if (++v_stage == STAGES) v_stage = 0, v_phase ^= 1;
            };

            int block = key_blocks<KEYS>(tile.row0 + ROWS, N, causal) - 1;
            if (ROWS != KEYS)
                for (; block >= blocks; --block) {  // for other warpgroups only
                    mbarrier_wait(&k_full[k_stage], k_phase);
                    release_k();
                    if (TURNS) turn_wait(own), turn_pass(next);
                    mbarrier_wait(&v_full[v_stage], v_phase);
                    release_v();
                }
            mbarrier_wait(&k_full[k_stage], k_phase);
            pin(scores);
            wgmma_fence();
            start_scores<D, ROWS, KEYS>(scores, q_own, k_ring + k_stage * TILE);
            wgmma_commit();
            wgmma_wait<0>();
            pin(scores);
            release_k();
            if (block >= whole) mask_scores(scores, row0, block * KEYS, N, causal);
            online_softmax<D, true>(scores, rows, factor);
            round_pairs(powers, scores);
#pragma unroll
            for (int i = 0; i < D / 2; ++i) out[i] = 0.f;

            // One step: scores of the next block and the product with the values of this one are both under way while the softmax of the
            // next block's scores is computed. The other warpgroups take their turns at the tensor cores meanwhile.
            const auto step = [&](bool masked) {
                mbarrier_wait(&k_full[k_stage], k_phase);
                if (TURNS) turn_wait(own);
                pin(out);
                pin(powers);
                pin(scores);
                wgmma_fence();
                start_scores<D, ROWS, KEYS>(scores, q_own, k_ring + k_stage * TILE);
                wgmma_commit();
                mbarrier_wait(&v_full[v_stage], v_phase);
                wgmma_fence();
                start_output<D, KEYS>(out, powers, v_ring + v_stage * TILE);
                wgmma_commit();
                if (TURNS) turn_pass(next);
                wgmma_wait<1>();
                pin(scores);
                release_k();
                if (masked) mask_scores(scores, row0, (block - 1) * KEYS, N, causal);
                online_softmax<D, false>(scores, rows, factor);
                wgmma_wait<0>();
                pin(out);
                pin(powers);
                release_v();
                round_pairs(powers, scores);
                scale_rows(out, factor);
                --block;
            };
            if (ROWS != KEYS)  // else the first block is the only one that needs a mask
                while (block > whole) step(true);
            while (block > 0) step(false);

            if (lane == 0) mbarrier_arrive(&q_empty);  // the next tile of queries may come
            mbarrier_wait(&v_full[v_stage], v_phase);
            pin(out);
            pin(powers);
            wgmma_fence();
            start_output<D, KEYS>(out, powers, v_ring + v_stage * TILE);
            wgmma_commit();
            wgmma_wait<0>();
            pin(out);
            release_v();
            finish_rows(rows, factor);
            scale_rows(out, factor);
            store_rows<D>(piece, O + ((size_t)tile.head * N + row0) * D, out, N - row0);
        }
        if (TURNS && own == 0) turn_wait(own);  // the turn that nobody takes any more
    }
}

/*+++
minimum_cc = "9.0"
arch_specific = true

[source]
document = "FlashAttention-3: overlap of softmax and products, warpgroups in turns"

[parameters]
ROWS_64 = 192             # queries of a block at head size 64, 64 a warpgroup
KEYS_64 = 128             # keys of a tile at head size 64
ROWS_128 = 128            # queries at head size 128
KEYS_128 = 128
STAGES = 2                # tiles of keys, and of values, in flight
TURNS = 1                 # 0: warpgroups do not wait for each other
SECTION_MIB = 16          # of keys and values that blocks share in the L2 at a time

[search]
ROWS_64 = [128, 192, 256]
KEYS_64 = [64, 128]
TURNS = [0, 1]
SECTION_MIB = [8, 16, 32]

[[constraint]]
check = "((ROWS_64 == 128 or ROWS_64 == 192) and KEYS_64 == 128) or (ROWS_64 == 256 and KEYS_64 == 64)"
says = "two, three or four warpgroups take 64 queries each, with as many keys as their registers hold"

[[constraint]]
check = "ROWS_128 == 128 and KEYS_128 == 128"
says = "at head size 128 registers hold two warpgroups with 128 keys"

[[constraint]]
check = "(ROWS_128 + 2 * STAGES * KEYS_128) * 256 + ROWS_128 * 144 + 2048 <= 232448"
says = "the tiles must fit in shared memory"

[[launch]]
kernel = "attention_warp_specialized"
grid = ["min(sm_count, ceil_div(N, ROWS_64 if D == 64 else ROWS_128) * heads)", "1", "1"]
block = ["(ROWS_64 if D == 64 else ROWS_128) * 2 + 128", "1", "1"]
shared = "((ROWS_64 if D == 64 else ROWS_128) + 2 * STAGES * (KEYS_64 if D == 64 else KEYS_128)) * D * 2 + (ROWS_64 if D == 64 else ROWS_128) * 144 + 1024"
args = ["map_q", "map_k", "map_v", "O", "tickets", "N", "heads", "causal"]

[scratch.tickets]         # the launch that takes the last one puts it back to 0
dtype = "int32"
count = "1"

[tensor_maps.map_q]
array = "Q"
box = ["64", "ROWS_64 if D == 64 else ROWS_128"]
swizzle = 128

[tensor_maps.map_k]
array = "K"
box = ["64", "KEYS_64 if D == 64 else KEYS_128"]
swizzle = 128

[tensor_maps.map_v]
array = "V"
box = ["64", "KEYS_64 if D == 64 else KEYS_128"]
swizzle = 128

[expect.sass]
present = ["HGMMA", "UTMALDG.2D", "STSM", "SYNCS", "USETMAXREG", "MUFU.EX2"]
absent = ["HMMA", "LDSM", "LDL", "STL"]
max_registers = 168

[[expect.profile]]
says = "hardly a wait at barriers is left"
check = "stall('barrier') < 0.3 * prev_stall('barrier')"

[[expect.profile]]
says = "the schedulers issue more often, with about as many instructions"
check = "metric('issue_active') > 1.2 * prev_metric('issue_active') and metric('instructions') < 1.2 * prev_metric('instructions')"

[[expect.profile]]
says = "overlap makes it a third faster"
check = "time_us < 0.77 * prev_time_us"
+++*/
