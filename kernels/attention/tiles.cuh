// Tiles of the attention rungs that copy through TMA, and the order in which blocks take the queries.
#pragma once

#include "common/tma.cuh"
#include "attention/softmax.cuh"
#include "attention/wgmma_registers.cuh"

// Copies HEIGHT rows of D columns, as D / 64 parts of 64 columns one after the other.
template <int D, int HEIGHT>
__device__ __forceinline__ void load_rows(elem16* tile, const CUtensorMap* map, int row, mbarrier* bar) {
#pragma unroll
    for (int part = 0; part < D / 64; ++part) tma_load(tile + part * HEIGHT * 64, map, part * 64, row, bar);
}

// scores (64 x WIDTH) = q (64 rows of a tile of Q_HEIGHT, from `q`) * k (WIDTH rows), transposed. Started, not waited for.
template <int D, int Q_HEIGHT, int WIDTH>
__device__ __forceinline__ void start_scores(float (&scores)[WIDTH / 2], const elem16* q, const elem16* k) {
    const unsigned long long left = wgmma_tile(q), right = wgmma_tile(k);
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
        const int part = step / 4, within = step % 4;
        wgmma_k16(scores, left + part * (Q_HEIGHT * 128 / 16) + within * WGMMA_K16_STEP, right + part * (WIDTH * 128 / 16) + within * WGMMA_K16_STEP, step > 0);
    }
}

// out (64 x D) += powers (64 x WIDTH, rounded in pairs, in registers) * v (WIDTH rows). Started, not waited for.
template <int D, int WIDTH>
__device__ __forceinline__ void start_output(float (&out)[D / 2], const unsigned (&powers)[WIDTH / 4], const elem16* v) {
    const unsigned long long right = wgmma_tile_across<WIDTH>(v);
#pragma unroll
    for (int step = 0; step < WIDTH / 16; ++step) wgmma_k16_registers(out, powers + step * 4, right + step * WGMMA_K16_ROWS);
}

// Accumulators to left operand: the layouts are the same but for the width.
template <int COUNT>
__device__ __forceinline__ void round_pairs(unsigned (&rounded)[COUNT / 2], const float (&s)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) rounded[i] = pack_elem16(s[2 * i], s[2 * i + 1]);
}

// Multiplies each of the thread's two rows.
template <int COUNT>
__device__ __forceinline__ void scale_rows(float (&out)[COUNT], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) out[i] *= factor[i / 2 % 2];
}

// Writes a warp's 16 rows of the output, 64 columns at a time, through its piece of shared memory and in chunks of 16 bytes. `out` points to the
// first row, of which `rows` exist (any int). Rows of a piece are 16 bytes longer than 64 columns: eight rows at one column then meet all banks.
#define PIECE_COLS 64
#define PIECE_PITCH (PIECE_COLS + CHUNK)
template <int D>
__device__ __forceinline__ void store_rows(elem16* piece, elem16* out, const float (&o)[D / 2], int rows) {
    const int lane = threadIdx.x % WARP_SIZE;
    const unsigned address = shared_address(piece + lane % 16 * PIECE_PITCH + lane / 16 * CHUNK);
#pragma unroll
    for (int part = 0; part < D / PIECE_COLS; ++part) {
        const float* v = o + part * (PIECE_COLS / 2);
        __syncwarp();  // the piece's last use is over
#pragma unroll
        for (int i = 0; i < PIECE_COLS / 2; i += 8)
            stmatrix_x4(address + i * 4, pack_elem16(v[i], v[i + 1]), pack_elem16(v[i + 2], v[i + 3]), pack_elem16(v[i + 4], v[i + 5]),
                        pack_elem16(v[i + 6], v[i + 7]));
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PIECE_COLS / 16; ++i) {
            constexpr int CHUNKS = PIECE_COLS / CHUNK;
            const int r = (i * WARP_SIZE + lane) / CHUNKS, c = lane % CHUNKS * CHUNK;
            if (r < rows) *reinterpret_cast<uint4*>(out + (size_t)r * D + part * PIECE_COLS + c) = *reinterpret_cast<const uint4*>(piece + r * PIECE_PITCH + c);
        }
    }
}

struct QueryTile {
    int head, row0;
};

// Tile `index` of `rows` queries each. Heads are taken in sections whose keys and values, 4 * N * D bytes a head, fit in SECTION bytes: blocks
// that run at the same time then share them in the L2. Within a section the last tiles come first: where the mask is causal they are
// the longest, and what is left for the end is short.
template <int D, int HEIGHT>
__device__ __forceinline__ QueryTile query_tile(int index, int N, int heads, int section_mib) {
    const int tiles = ceil_div(N, HEIGHT);
    const int section = max(1, (section_mib << 20) / (4 * D) / N);
    const int first = index / (section * tiles) * section;
    const int within = index % (section * tiles), count = min(section, heads - first);
    return {first + within % count, (tiles - 1 - within / count) * HEIGHT};
}
