// Shared-memory layout and copies of the FP32 GEMM rungs that fill their tiles with cp.async.
#pragma once
#include "common/cp_async.cuh"
#include "common/gemm_registers.cuh"

// A keeps its row-major order in shared memory, because only then is a copy 16 bytes wide: a tile is M rows of K floats, and a thread
// reads quartets of its rows along k. Eight neighbouring rows at the same k would start in only 32 / K different places of the 128-byte
// bank row, so the quartets of a row are permuted by the number of the bank row it lies in. Any eight rows from a multiple of 8 then cover
// all 32 banks once, for the reads; the copies fill whole bank rows. They still take a wavefront for every row of A that a warp copies from,
// since the data of different rows arrive separately.
template <int TILE_K>
__device__ __forceinline__ constexpr int swizzled(int row, int quartet) {
    static_assert(TILE_K == 8 || TILE_K == 16 || TILE_K == 32, "the permutation is written for rows of 2, 4 or 8 quartets");
    return row * TILE_K + ((quartet ^ (row / (32 / TILE_K))) % (TILE_K / 4)) * 4;
}

// Starts the copy of four neighbours of which `valid` exist; the others become zero and are not read.
// ALIGNED promises 16-byte alignment and that the four exist all or not at all.
template <bool ALIGNED>
__device__ __forceinline__ void copy_quartet(unsigned dst, const float* src, int valid) {
    if (ALIGNED) {
        cp_async_16_zfill(dst, src, valid > 0 ? 16 : 0);
    } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) cp_async_4_zfill(dst + 4 * e, src + e, e < valid ? 4 : 0);
    }
}

// Starts the copies of one k-step into a stage: A[m0 .., k0 ..] swizzled and B[k0 .., n0 ..] row-major after it, zero beyond K and N.
// Rows of A beyond M repeat the last one: they only reach rows of C that nobody stores, and a clamp is cheaper than a predicate.
template <bool ALIGNED, int TILE_M, int TILE_N, int TILE_K, int BLOCK>
__device__ __forceinline__ void copy_tiles(unsigned stage, const float* A, const float* B, int M, int N, int K, int m0, int n0, int k0) {
    static_assert(TILE_M * TILE_K % (4 * BLOCK) == 0 && TILE_K * TILE_N % (4 * BLOCK) == 0, "every thread copies the same number of quartets");
#pragma unroll
    for (int c = 0; c < TILE_M * TILE_K / (4 * BLOCK); ++c) {
        const int quartet = threadIdx.x + c * BLOCK, row = quartet / (TILE_K / 4), k = quartet % (TILE_K / 4) * 4;
        const float* src = A + row_offset(min(m0 + row, M - 1), K) + (k0 + k);
        copy_quartet<ALIGNED>(stage + 4 * swizzled<TILE_K>(row, k / 4), src, K - (k0 + k));
    }
#pragma unroll
    for (int c = 0; c < TILE_K * TILE_N / (4 * BLOCK); ++c) {
        const int quartet = threadIdx.x + c * BLOCK, k = quartet / (TILE_N / 4), column = quartet % (TILE_N / 4) * 4;
        const unsigned dst = stage + 4 * (TILE_M * TILE_K + k * TILE_N + column);
        copy_quartet<ALIGNED>(dst, B + row_offset(k0 + k, N) + (n0 + column), k0 + k < K ? N - (n0 + column) : 0);
    }
}

// Multiplies one k-step out of shared memory. The thread owns rows row0, row0 + 8, ... and quartets of columns column0, column0 + 16, ...
template <int TILE_N, int TILE_K, int ROWS, int COLUMNS>
__device__ __forceinline__ void multiply_tiles(float (&sum)[ROWS][COLUMNS], const float* a_tile, const float* b_tile, int row0, int column0) {
#pragma unroll
    for (int k = 0; k < TILE_K; k += 4) {
        float4 a[ROWS];  // four values of k for each row
#pragma unroll
        for (int i = 0; i < ROWS; ++i) a[i] = load_float4(a_tile + swizzled<TILE_K>(row0, k / 4) + i * 8 * TILE_K);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            float4 b[COLUMNS / 4];
#pragma unroll
            for (int j = 0; j < COLUMNS / 4; ++j) b[j] = load_float4(b_tile + (k + e) * TILE_N + column0 + 16 * j);
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const float left = e == 0 ? a[i].x : e == 1 ? a[i].y : e == 2 ? a[i].z : a[i].w;
#pragma unroll
                for (int j = 0; j < COLUMNS / 4; ++j) {
                    sum[i][4 * j + 0] += left * b[j].x;
                    sum[i][4 * j + 1] += left * b[j].y;
                    sum[i][4 * j + 2] += left * b[j].z;
                    sum[i][4 * j + 3] += left * b[j].w;
                }
            }
        }
    }
}
