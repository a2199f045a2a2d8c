// What the register-blocked rungs share: the order of FFMA, and how the tiles of C are dealt out to blocks, cut along k and stored.
#pragma once

#include <climits>

#include "common/gemm_registers.cuh"
#include "common/tile_order.cuh"

constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int WM = 8 * TM, WN = 4 * TN;  // what a warp of 8x4 threads owns

// The value, of which the compiler is to know nothing: what it would work out anew from other values stays in its register, and what is added to an
// address is multiplied in with it, in one instruction.
__device__ __forceinline__ unsigned opaque(unsigned value) {
    asm("" : "+r"(value));
    return value;
}

// Rows FIRST .. FIRST + TM / 2 - 1 of sum[i][j] += left(i) * right[j], in a snake: at the end of a row the operand of B stays, else that of A does.
// An FFMA that finds one operand in the reuse cache, where the FFMA before left it, reads two registers, one from each bank; with three to read it
// would wait. `after` is called after each row, with the number of the row in the half.
template <int FIRST, typename Left, typename After>
__device__ __forceinline__ void add_rows(float (&sum)[TM][TN], Left left, const float4 (&b)[TN / 4], After after) {
    const float* right = reinterpret_cast<const float*>(b);
#pragma unroll
    for (int i = FIRST; i < FIRST + TM / 2; ++i) {
#pragma unroll
        for (int s = 0; s < TN; ++s) {
            const int j = i % 2 ? TN - 1 - s : s;
            sum[i][j] += left(i) * right[j];
        }
        after(i - FIRST);
    }
}

// Takes one of the `parts` of a tile to memory, to slot `mine`; whoever comes last by *arrived adds them all up into `sum`, from slot(0) on, in the
// order of k, so that the result is the same each time. True for that block, which has the tile to store.
template <typename Slot>
__device__ __forceinline__ bool last_adds_up(float (&sum)[TM][TN], float* partial, int* arrived, int mine, int parts, Slot slot) {
    const auto at = [&](auto s) { return partial + static_cast<size_t>(s) * (BM * BN) + threadIdx.x; };
    float* to = at(mine);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) to[(i * TN + j) * THREADS] = sum[i][j];
    __threadfence();
    __shared__ int before;
    __syncthreads();
    if (threadIdx.x == 0) before = atomicAdd(arrived, 1);
    __syncthreads();
    if (before != parts - 1) return false;
    __threadfence();
    if (threadIdx.x == 0) *arrived = 0;  // for the next launch
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

// Stores what a thread has of the tile at (m0, n0). Row i of `sum` lies row_of(i) rows below its first.
template <bool ALIGNED, typename RowOf>
__device__ __forceinline__ void store_tile(float (&sum)[TM][TN], float* C, int M, int N, int m0, int n0, int row0, int column0, RowOf row_of) {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        // An addition, not a copy: the accumulators would else have to lie in quartets as STG.128 wants them, with the element for
        // column j in the register bank of B's fragment for column j, and FFMA would wait for both.
#pragma unroll
        for (int j = 0; j < TN; ++j) sum[i][j] += 0.f;
        const int row = m0 + row0 + row_of(i);
        if (row < M) store_row<ALIGNED, 16>(C, N, row, n0 + column0, sum[i]);
    }
}

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

// All that a block has to do. multiply(sum, m0, n0, from, to, piece) adds steps from .. to - 1 of the tile at (m0, n0) to `sum`;
// store(sum, m0, n0) takes a whole tile to C.
template <typename Multiply, typename Store>
__device__ __forceinline__ void multiply_dealt(float* partial, int* arrived, int M, int N, int K, Multiply multiply, Store store) {
    const int tiles_m = (M - 1) / BM + 1, tiles_n = (N - 1) / BN + 1, steps = (K - 1) / BK + 1;

    // A row of the grid is as many blocks as run at the same time. In the last row tiles may be too few for all of them. Where they are at most
    // half as many, each is cut along k, into as many parts as there are blocks for, but none shorter than MIN_STEPS. They are one group instead,
    // dealt out in equal shares, where that makes the longest share shorter by more than WORTH steps, which adding up costs.
    const int first = blockIdx.y * gridDim.x, places = gridDim.x, rest = min(tiles_m * tiles_n - first, places);
    const int parts = max(1, min(places / rest, steps / MIN_STEPS));
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
            multiply(sum, place.row * BM, place.col * BN, part.from, part.to, piece);
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
            whole = last_adds_up(sum, partial, arrived + part.within, slot(block / deal.groups - b0), b1 - b0 + 1, slot);
        }
        if (whole) {
            const TileIndex place = banded_tile(first + part.within, tiles_m, tiles_n, GROUP);
            store(sum, place.row * BM, place.col * BN);
        }
        __syncthreads();  // all have read the shared tiles of this part, and `before`
    }
}
