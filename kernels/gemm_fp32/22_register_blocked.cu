/*+++
title = "Register blocking until FMA is the limit"
idea = "Every thread owns 8x16 results, so that a k costs 6 LDS.128 for 128 FFMA, and the fragments of the next k are fetched while those of this one are multiplied. The FFMA run through the accumulators in a snake: each finds an operand of the one before in the reuse cache and reads the other two from different register banks. The loop holds two k, short enough for the instruction cache, and the tiles of the last, ragged round are cut along k, so that more SMs have a part of it. EVEN cuts them into equal shares for all SMs, also where that means the end of one tile and the start of the next; whether it pays depends on the size, and the table of tuned parameters says where."
kind = "step"
compared_with = "triple_buffered"
removes = "fp32-pipe"
minimum_cc = "8.0"

[parameters]
BM = 128
BN = 128
BK = 16
TM = 8
TN = 16
EVEN = 0
GROUP = 16
BLOCKS_PER_SM = 2
MIN_STEPS = 8
WORTH = 8

[search]
BM = [64, 128]
BK = [8, 16]
EVEN = [0, 1]
GROUP = [8, 16]
BLOCKS_PER_SM = [2, 4]
[[constraint]]
check = "BM % (8 * TM) == 0 and BN % (4 * TN) == 0"
says = "a warp is 8x4 threads, and warps must tile the block evenly"
[[constraint]]
check = "BM * BK % (4 * (BM // TM) * (BN // TN)) == 0 and BK * BN % (4 * (BM // TM) * (BN // TN)) == 0"
says = "every thread must copy the same number of quartets of each tile"
[[constraint]]
check = "(BM // TM) * (BN // TN) % (BN // 4) == 0 and (BM // TM) * (BN // TN) % (BK // 4) == 0"
says = "a thread's quartets of a tile must lie a whole pass of the block apart"
[[constraint]]
check = "TM * TN <= 128"
says = "16x16 accumulators alone would be more than the 255 registers of a thread"
[[constraint]]
check = "(BM // TM) * (BN // TN) * BLOCKS_PER_SM * min(255, TM * TN + 2 * (TM + TN) + 40) <= 65536"
says = "accumulators, two sets of fragments and addresses of all resident threads must fit in the registers of an SM"
[[constraint]]
check = "8 * BK * (BM + 4 + BN) <= 101376 // BLOCKS_PER_SM - 1024"
says = "the two halves of all resident blocks must fit in the 99 KiB of shared memory that the smallest SMs have"

[[launch]]
kernel = "register_blocked"
grid = ["sm_count * BLOCKS_PER_SM", "ceil_div(ceil_div(M, BM) * ceil_div(N, BN), sm_count * BLOCKS_PER_SM)", "1"]
block = ["(BM // TM) * (BN // TN)", "1", "1"]
shared = "8 * BK * (BM + 4 + BN)"
args = ["A", "B", "C", "partial", "arrived", "M", "N", "K"]

[scratch.partial]
dtype = "float32"
count = "(1 + EVEN) * sm_count * BLOCKS_PER_SM * BM * BN"

[scratch.arrived]  # all zero again after every launch
dtype = "int32"
count = "sm_count * BLOCKS_PER_SM"

[expect.sass]
present = ["LDG.E.128", "STS.128", "LDS.128", "FFMA", "STG.E.128"]
absent = ["LDL", "STL", "LDGSTS"]
max_registers = 255

[[expect.profile]]
says = "one FFMA for each lane and product, also where tiles are cut along k: parts are added up by FADD"
check = "executed('FFMA') == M * N * K / 32"
[[expect.profile]]
says = "fewer shared loads for a product than with 8x8 results a thread"
check = "executed('LDS.128') < 0.85 * prev_executed('LDS.128')"
[[expect.profile]]
says = "the FMA pipe is the limit"
check = "metric('fma_pipe_active') > 0.74"
sizes = ["4096"]
[[expect.profile]]
says = "few FFMA wait for their registers to be read"
check = "stall('dispatch_stall') < 0.6 * prev_stall('dispatch_stall')"
[[expect.profile]]
says = "storing A transposed costs few wavefronts beyond the ideal"
check = "metric('shared_conflict_excess') < 0.1"

[[measured]]
gpu = "NVIDIA H200"
says = "TFLOP/s at 1024, 2048 .. 8192: 36.5, 50.2, 52.0, 51.4, 53.0, 51.7, 52.9, 51.7; over cuBLAS beside it: 1.010, 1.006, 1.152, 1.007, 1.130, 1.017, 1.018, 1.011, geometric mean 1.042. The goal was 1.05 at 4096 and 8192: docs/decisions/fp32-beyond-cublas.md says what is in the way."
[[measured]]
gpu = "NVIDIA H200"
says = "EVEN = 1 with BK = 16, as the table of tuned parameters has it: 52.4, 52.9 and 52.9 TFLOP/s at 4096, 6144 and 8192."
[[measured]]
gpu = "NVIDIA H200"
says = "EVEN = 1 with BK = 8, over cuBLAS beside it: 1.013 at 4096, 1.029 at 6144, 1.021 at 8192, where the default had 1.006, 1.017 and 1.011 in the same run; but 1.031, 0.972, 1.136, 1.113 and 1.008 at 1024, 2048, 3072, 5120 and 7168, where the default had 1.058, 1.003, 1.151, 1.131 and 1.018. That was an earlier form, which worked shares out by 64-bit divisions in every block, also cut where only 7 steps were to be gained (2048, 3072), and had no register left for BK = 16."
[[measured]]
gpu = "NVIDIA H200"
says = "Without the cut along k, and with BK = 8, it is 0.3 to 0.6 % faster where nothing is to be cut (2048, 4096, 6144 to 8192), but reaches 0.59 of cuBLAS at 1024, 0.86 at 3072 and 0.99 at 5120. BK = 16 beats BK = 8 by 0.2 to 0.5 %, although two of the four threads that copy a row of A then store to one bank. Blocks of 64x128 with BK = 8 are 0.3 % faster at 1024 only."
+++*/
#include <climits>

#include "common/gemm_registers.cuh"
#include "common/tile_order.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int WM = 8 * TM, WN = 4 * TN;  // what a warp of 8x4 threads owns
// A row of a shared tile holds one k: a column of A, four floats of nothing, a row of B. The four floats turn the next four rows by 16 banks,
// so that two threads which store neighbouring quartets of a row of A do not meet; with BK = 16 those two quartets apart still do.
constexpr int PITCH = BM + 4 + BN, HALF = BK * PITCH;
constexpr int A_LOADS = BM * BK / (4 * THREADS), A_STEP = THREADS / (BK / 4);  // quartets a thread copies, and rows between them
constexpr int B_LOADS = BK * BN / (4 * THREADS), B_STEP = THREADS / (BN / 4);
static_assert(BM * BK % (4 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0, "every thread copies the same number of quartets");
static_assert(THREADS % (BN / 4) == 0 && THREADS % (BK / 4) == 0 && BM % WM == 0 && BN % WN == 0 && BK % 4 == 0, "see the constraints");

// Four neighbours of a row. Without alignment, `at` says where each lies.
template <bool ALIGNED>
__device__ __forceinline__ float4 fetch(const float* row, const int (&at)[4]) {
    if (ALIGNED) return load_float4(row);
    return make_float4(row[at[0]], row[at[1]], row[at[2]], row[at[3]]);
}

// sum[i][j] += left[i] * right[j], in a snake: at the end of a row the operand of B stays, else that of A does. An FFMA that finds one operand
// in the reuse cache, where the FFMA before left it, reads two registers, one from each bank; with three to read it would wait.
__device__ __forceinline__ void add_product(float (&sum)[TM][TN], const float4 (&a)[TM / 4], const float4 (&b)[TN / 4]) {
    const float *left = reinterpret_cast<const float*>(a), *right = reinterpret_cast<const float*>(b);
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int s = 0; s < TN; ++s) {
            const int j = i % 2 ? TN - 1 - s : s;
            sum[i][j] += left[i] * right[j];
        }
    }
}

// Adds the k-steps `from` .. `to` - 1 of the tile at (m0, n0) to `sum`. The step that is not full is the first of all, so that the loop never
// looks at K's remainder.
template <bool ALIGNED>
__device__ __forceinline__ void multiply(float (&sum)[TM][TN], const float* A, const float* B, int M, int N, int K, int m0, int n0,
                                         int row0, int column0, int from, int to, float* tiles) {
    const int a_row = threadIdx.x / (BK / 4), a_k = threadIdx.x % (BK / 4) * 4;
    const int b_k = threadIdx.x / (BN / 4), b_column = threadIdx.x % (BN / 4) * 4;
    const int remainder = (K - 1) % BK + 1;
    const int depth = from == 0 ? remainder : BK, k0 = from == 0 ? 0 : remainder + (from - 1) * BK;

    // Rows beyond M and columns beyond N repeat the last ones: they only reach results that nobody stores.
    const float *a_from[A_LOADS], *b_from[B_LOADS];
    const int a_at[4] = {0, 1, 2, 3};
    int b_at[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) b_at[e] = min(n0 + b_column + e, N - 1);
#pragma unroll
    for (int l = 0; l < A_LOADS; ++l) a_from[l] = A + row_offset(min(m0 + a_row + l * A_STEP, M - 1), K) + (k0 + a_k);
#pragma unroll
    for (int l = 0; l < B_LOADS; ++l) b_from[l] = B + row_offset(k0 + b_k + l * B_STEP, N) + (ALIGNED ? min(n0 + b_column, N - 4) : 0);

    float4 a_next[A_LOADS], b_next[B_LOADS];  // the step after the present one, on its way from global to shared memory
    auto load_tile = [&]() {
#pragma unroll
        for (int l = 0; l < A_LOADS; ++l) {
            a_next[l] = fetch<ALIGNED>(a_from[l], a_at);
            a_from[l] += BK;
        }
#pragma unroll
        for (int l = 0; l < B_LOADS; ++l) {
            b_next[l] = fetch<ALIGNED>(b_from[l], b_at);
            b_from[l] += row_offset(BK, N);
        }
    };
    float *a_to = tiles + a_k * PITCH + a_row, *b_to = tiles + b_k * PITCH + BM + 4 + b_column;
    auto store_tile = [&]() {
#pragma unroll
        for (int l = 0; l < A_LOADS; ++l) {
            a_to[l * A_STEP] = a_next[l].x;
            a_to[l * A_STEP + PITCH] = a_next[l].y;
            a_to[l * A_STEP + 2 * PITCH] = a_next[l].z;
            a_to[l * A_STEP + 3 * PITCH] = a_next[l].w;
        }
#pragma unroll
        for (int l = 0; l < B_LOADS; ++l) store_float4(b_to + l * B_STEP * PITCH, b_next[l]);
    };

#pragma unroll
    for (int l = 0; l < A_LOADS; ++l) {
        const float* quartet = a_from[l];
        a_next[l].x = a_k + 0 < depth ? quartet[0] : 0.f;
        a_next[l].y = a_k + 1 < depth ? quartet[1] : 0.f;
        a_next[l].z = a_k + 2 < depth ? quartet[2] : 0.f;
        a_next[l].w = a_k + 3 < depth ? quartet[3] : 0.f;
        a_from[l] += depth;
    }
#pragma unroll
    for (int l = 0; l < B_LOADS; ++l) {
        b_next[l] = make_float4(0.f, 0.f, 0.f, 0.f);
        if (b_k + l * B_STEP < depth) b_next[l] = fetch<ALIGNED>(b_from[l], b_at);
        b_from[l] += row_offset(depth, N);
    }
    store_tile();
    __syncthreads();
    if (from + 1 < to) load_tile();
    a_to += HALF;
    b_to += HALF;

    float4 a[2][TM / 4], b[2][TN / 4];  // fragments for an even k and for an odd one
    const float *a_read = tiles + row0, *b_read = tiles + BM + 4 + column0;
    auto read_fragments = [&](int odd) {
#pragma unroll
        for (int i = 0; i < TM / 4; ++i) a[odd][i] = load_float4(a_read + odd * PITCH + 32 * i);
#pragma unroll
        for (int j = 0; j < TN / 4; ++j) b[odd][j] = load_float4(b_read + odd * PITCH + 16 * j);
    };
    read_fragments(0);
    int wrap = 0;  // floats to go back by after the second half
#pragma unroll 1
    for (int step = from + 1; step <= to; ++step) {
        // Two k at a time, no more: the loop fits in the instruction cache, and the branch in its middle keeps the compiler from mixing the
        // two products, which would put loads right before their use and break the snake.
#pragma unroll 1
        for (int k = 0; k < BK; k += 2) {
            read_fragments(1);
            add_product(sum, a[0], b[0]);
            if (k == BK - 2) {
                // Everybody left the other half before the last barrier, and the fragments to read next lie in it.
                if (step < to) store_tile();
                __syncthreads();
                a_read += 2 * PITCH - wrap;
                b_read += 2 * PITCH - wrap;
            } else {
                a_read += 2 * PITCH;
                b_read += 2 * PITCH;
            }
            read_fragments(0);
            add_product(sum, a[1], b[1]);
        }
        wrap = 2 * HALF - wrap;
        a_to += HALF - wrap;
        b_to += HALF - wrap;
        if (step + 1 < to) load_tile();
    }
}

// Takes one of the `parts` of a tile to memory, to slot `mine`; whoever comes last by arrived[tile] adds them all up into `sum`, from slot(0) on,
// in the order of k, so that the result is the same each time. True for that block, which has the tile to store.
template <typename Index, typename Slot>
__device__ __forceinline__ bool last_adds_up(float (&sum)[TM][TN], float* partial, int* arrived, int tile, Index mine, int parts, Slot slot) {
    const auto at = [&](auto s) { return partial + static_cast<size_t>(s) * (BM * BN) + threadIdx.x; };
    float* to = at(mine);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) to[(i * TN + j) * THREADS] = sum[i][j];
    __threadfence();
    __shared__ int before;
    __syncthreads();
    if (threadIdx.x == 0) before = atomicAdd(arrived + tile, 1);
    __syncthreads();
    if (before != parts - 1) return false;
    __threadfence();
    if (threadIdx.x == 0) arrived[tile] = 0;  // for the next launch
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] = 0.f;
#pragma unroll 1
    for (int p = 0; p < parts; ++p) {
        const float* other = at(slot(p));
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] += __ldcg(other + (i * TN + j) * THREADS);
    }
    return true;
}

template <bool ALIGNED>
__device__ __forceinline__ void store_tile(float (&sum)[TM][TN], float* C, int M, int N, int m0, int n0, int row0, int column0) {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        // An addition, not a copy: the accumulators would else have to lie in quartets as STG.128 wants them, with the element for
        // column j in the register bank of B's fragment for column j, and FFMA would wait for both.
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += 0.f;
        const int row = m0 + row0 + i / 4 * 32 + i % 4;
        if (row < M) store_row<ALIGNED, 16>(C, N, row, n0 + column0, sum[i]);
    }
}

#if EVEN
// blockIdx.x, read anew: what follows from it is worked out a second time after the loop, which has no register left to keep it in.
__device__ __forceinline__ int this_block() {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

// How the k-steps of a round of tiles are dealt out. The tiles of a group have their steps, one tile after the other, dealt out to the group's
// blocks in equal shares, none longer than a tile: so a share touches two tiles at most. Block b of group g is block b * groups + g.
struct Deal {
    int groups, steps, share, more;  // steps of a tile; steps of a block, the first `more` have one more

    __device__ __forceinline__ int start_of(int b) const { return b * share + min(b, more); }
    __device__ __forceinline__ int block_at(int step) const { return step < more * (share + 1) ? step / (share + 1) : (step - more) / share; }
};

// What a block has of a tile: steps from .. to - 1 of tile `within` of the round, which starts at step `tile_start` of the group.
struct Part {
    int within, tile_start, from, to;

    // piece 0: of the tile that the block's share starts in, 1: of the next one, where to <= 0 if it has nothing of it
    __device__ __forceinline__ Part(const Deal& deal, int block, int piece) {
        const int b = block / deal.groups, start = deal.start_of(b), end = deal.start_of(b + 1);
        const int tile = start / deal.steps + piece;
        within = block % deal.groups + tile;
        tile_start = tile * deal.steps;
        from = max(start - tile_start, 0);
        to = min(end - tile_start, deal.steps);
    }
};
#endif

template <bool ALIGNED>
__device__ __forceinline__ void multiply_tiles(const float* A, const float* B, float* C, float* partial, int* arrived, int M, int N, int K,
                                                float* tiles) {
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int row0 = warp / (BN / WN) * WM + lane / 4 * 4, column0 = warp % (BN / WN) * WN + lane % 4 * 4;
    const int tiles_m = (M - 1) / BM + 1, tiles_n = (N - 1) / BN + 1, steps = (K - 1) / BK + 1;

    // A row of the grid is as many blocks as run at the same time. In the last row tiles may be too few for all of them: where they are at
    // most half as many, each is cut along k, into as many parts as there are blocks for, but none shorter than MIN_STEPS.
    const int first = blockIdx.y * gridDim.x, places = gridDim.x, rest = min(tiles_m * tiles_n - first, places);
    const int parts = max(1, min(places / rest, steps / MIN_STEPS));
#if EVEN
    // Equal shares: all tiles are one group where that makes the longest share shorter by more than WORTH steps, which adding up costs.
    Deal deal = {rest, steps, steps / parts, steps % parts};
    int blocks = parts * rest;
    if (rest < places && steps >= 2 * MIN_STEPS && steps < INT_MAX / places) {
        const int total = rest * steps, most = min(places, total / MIN_STEPS);
        if ((steps - 1) / parts - (total - 1) / most > WORTH) {
            deal = {1, steps, total / most, total % most};
            blocks = most;
        }
    }
    if (static_cast<int>(blockIdx.x) >= blocks) return;

#pragma unroll 1
    for (int piece = 0; piece < 2; ++piece) {
        float sum[TM][TN] = {};
        {
            const Part part(deal, this_block(), piece);
            if (part.to <= 0) return;
            const TileIndex place = banded_tile(first + part.within, tiles_m, tiles_n, GROUP);
            multiply<ALIGNED>(sum, A, B, M, N, K, place.row * BM, place.col * BN, row0, column0, part.from, part.to, tiles);
        }
        const int block = this_block();
        const Part part(deal, block, piece);
        bool whole = part.to - part.from == steps;
        if (!whole) {
            // A block has two slots: one for the tile that its share starts in, one for the next.
            const int b0 = deal.block_at(part.tile_start), b1 = deal.block_at(part.tile_start + steps - 1);
            const auto slot = [&](int p) {
                const int b = b0 + p, at = b * deal.groups + block % deal.groups;
                return 2 * at + (deal.start_of(b) < part.tile_start);
            };
            // The counter as an address, worked out here: by its index the loop over the pieces is two instructions longer.
            whole = last_adds_up(sum, partial, arrived + part.within, 0, slot(block / deal.groups - b0), b1 - b0 + 1, slot);
        }
        if (whole) {
            const TileIndex place = banded_tile(first + part.within, tiles_m, tiles_n, GROUP);
            store_tile<ALIGNED>(sum, C, M, N, place.row * BM, place.col * BN, row0, column0);
        }
        __syncthreads();  // all have read the shared tiles of this part, and `before`
    }
#else
    // A part a block: block b has part b / rest of tile b % rest of the row.
    const int part = blockIdx.x / rest, within = blockIdx.x % rest;
    if (part >= parts) return;
    const int share = steps / parts, more = steps % parts;  // the first `more` parts have one step more
    const int from = part * share + min(part, more), to = from + share + (part < more);
    const TileIndex place = banded_tile(first + within, tiles_m, tiles_n, GROUP);
    const int m0 = place.row * BM, n0 = place.col * BN;

    float sum[TM][TN] = {};
    multiply<ALIGNED>(sum, A, B, M, N, K, m0, n0, row0, column0, from, to, tiles);
    if (parts > 1) {
        const auto slot = [&](int p) { return p * rest + within; };
        if (!last_adds_up(sum, partial, arrived, within, blockIdx.x, parts, slot)) return;
    }
    store_tile<ALIGNED>(sum, C, M, N, m0, n0, row0, column0);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
register_blocked(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, float* partial, int* arrived,
                 int M, int N, int K) {
    extern __shared__ __align__(128) float tiles[];
    if (rows_are_aligned(A, B, C, N, K)) multiply_tiles<true>(A, B, C, partial, arrived, M, N, K, tiles);
    else multiply_tiles<false>(A, B, C, partial, arrived, M, N, K, tiles);
}
