/*+++
title = "Warpgroup MMA fed by TMA"
idea = """\
TMA brings whole swizzled tiles, and wgmma multiplies them where they lie: queries by keys from \
shared memory, exponentials from registers by values, which it reads across rows. The next tile is \
on its way during the softmax, but a warpgroup's tensor cores are idle meanwhile."""
kind = "step"
compared_with = "attention_mma"
+++*/

#include "attention/tiles.cuh"

#define D HEAD_SIZE
#define TILE_Q (ROWS * D)
#define TILE (KEYS * D)

// A warpgroup for each 64 of the ROWS queries; all share the keys and values.
extern "C" __global__ void __launch_bounds__(ROWS * 2, 1)
attention_wgmma(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k, const __grid_constant__ CUtensorMap map_v,
                elem16* __restrict__ O, int N, int causal) {
    extern __shared__ unsigned char shared[];
    __shared__ mbarrier q_full, k_full, v_full;
    // Swizzled tiles start at a multiple of 1024 bytes; the launch asks for 1024 bytes more than they take.
    elem16* q = reinterpret_cast<elem16*>(shared + (1024 - shared_address(shared) % 1024) % 1024);
    elem16* k = q + TILE_Q;
    elem16* v = k + TILE;
    // The same for all lanes, which the compiler cannot know without the shuffle: addresses then stay in uniform registers.
    const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0), warp = threadIdx.x / WARP_SIZE;
    const int head = blockIdx.y, tile_row = blockIdx.x * ROWS, base = head * N, row0 = tile_row + warp * 16;
    const int blocks = key_blocks<KEYS>(tile_row + ROWS, N, causal);

    const auto load = [&](elem16* tile, const CUtensorMap& map, int row, mbarrier* full) {
        mbarrier_arrive_expect(full, TILE * 2);
        load_rows<D, KEYS>(tile, &map, row, full);
    };
    if (threadIdx.x == 0) {
        mbarrier_init(&q_full, 1);
        mbarrier_init(&k_full, 1);
        mbarrier_init(&v_full, 1);
        mbarrier_init_fence();
        mbarrier_arrive_expect(&q_full, TILE_Q * 2);
        load_rows<D, ROWS>(q, &map_q, base + tile_row, &q_full);
        load(k, map_k, base, &k_full);
        load(v, map_v, base, &v_full);
    }
    __syncthreads();
    mbarrier_wait(&q_full, 0);

    float out[D / 2] = {}, scores[KEYS / 2], factor[2];
    unsigned powers[KEYS / 4];
    RowPair rows = {{MINUS_INFINITY, MINUS_INFINITY}, {0.f, 0.f}};
    for (int block = 0; block < blocks; ++block) {
        mbarrier_wait(&k_full, block % 2);
        pin(scores);
        wgmma_fence();
        start_scores<D, ROWS, KEYS>(scores, q + warpgroup * 64 * 64, k);
        wgmma_commit();
        wgmma_wait<0>();
        pin(scores);
        __syncthreads();  // all have read the keys; the next may overwrite them
        if (threadIdx.x == 0 && block + 1 < blocks) load(k, map_k, base + (block + 1) * KEYS, &k_full);

        if ((block + 1) * KEYS > (causal ? min(tile_row + 1, N) : N)) mask_scores(scores, row0, block * KEYS, N, causal);
        online_softmax<D, false>(scores, rows, factor);
        scale_rows(out, factor);
        round_pairs(powers, scores);

        mbarrier_wait(&v_full, block % 2);
        pin(out);
        pin(powers);
        wgmma_fence();
        start_output<D, KEYS>(out, powers, v);
        wgmma_commit();
        wgmma_wait<0>();
        pin(out);
        __syncthreads();
        if (threadIdx.x == 0 && block + 1 < blocks) load(v, map_v, base + (block + 1) * KEYS, &v_full);
    }
    finish_rows(rows, factor);
    scale_rows(out, factor);
    // The keys and values have been read: the output leaves through their place.
    store_rows<D>(k + warp * 16 * PIECE_PITCH, O + ((size_t)base + row0) * D, out, N - row0);
}

/*+++
minimum_cc = "9.0"
arch_specific = true
shapes = [{ check = "heads <= 65535", says = "heads must be at most 65535: the grid's y dimension ends there" }]

[source]
document = "PTX ISA, asynchronous warpgroup matrix instructions"

[parameters]
ROWS = 128                # queries of a block, 64 a warpgroup
KEYS = 128

[[constraint]]
check = "ROWS == 128 and KEYS == 128"
says = "two warpgroups take 64 queries each, and an instruction computes their scores with 128 keys"

[[launch]]
kernel = "attention_wgmma"
grid = ["ceil_div(N, ROWS)", "heads", "1"]
block = ["ROWS * 2", "1", "1"]
shared = "(ROWS + 2 * KEYS) * D * 2 + 1024"
args = ["map_q", "map_k", "map_v", "O", "N", "causal"]

[tensor_maps.map_q]
array = "Q"
box = ["64", "ROWS"]
swizzle = 128

[tensor_maps.map_k]
array = "K"
box = ["64", "KEYS"]
swizzle = 128

[tensor_maps.map_v]
array = "V"
box = ["64", "KEYS"]
swizzle = 128

[expect.sass]
present = ["HGMMA", "UTMALDG.2D", "STSM", "MUFU.EX2"]
absent = ["HMMA", "LDSM", "LDL", "STL"]
max_registers = 255

[[expect.profile]]
says = "an instruction of a warpgroup does what 16 of a warp did"
check = "executed('HGMMA') * 16 == prev_executed('HMMA')"
sizes = ["4096x128"]

[[expect.profile]]
says = "a third of the instructions is gone: no fragments are loaded, no copies issued by all threads"
check = "metric('instructions') < 0.67 * prev_metric('instructions')"
+++*/
