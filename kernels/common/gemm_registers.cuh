// What the register-tiled FP32 GEMM rungs share: guarded loads of a quartet, the outer product of two fragments, the store of a row.
#pragma once
#include "common/common.cuh"

// Whether all rows of A, B and C start on 16 bytes: decided once, for the whole launch alike.
__device__ __forceinline__ bool rows_are_aligned(const float* A, const float* B, const float* C, int N, int K) {
    return N % 4 == 0 && K % 4 == 0 && is_aligned_16(A) && is_aligned_16(B) && is_aligned_16(C);
}

// Floats before a row. Unsigned, so that 32 x 32 -> 64 bits is one instruction where signed factors would be extended first.
__device__ __forceinline__ size_t row_offset(int row, int pitch) {
    return static_cast<size_t>(static_cast<unsigned>(row)) * static_cast<unsigned>(pitch);
}

// row[column .. column + 3], zero at `limit` and beyond. ALIGNED: `limit` does not cut a quartet, so one predicate is enough.
template <bool ALIGNED>
__device__ __forceinline__ float4 load_quartet(const float* row, int column, int limit) {
    if (!ALIGNED) return load_float4_guarded(row + column, limit - column, false);
    return column < limit ? load_float4(row + column) : make_float4(0.f, 0.f, 0.f, 0.f);
}

// Four neighbours along k of a row of A. Rows beyond M repeat the last one: they only reach rows of C that nobody stores.
template <bool ALIGNED>
__device__ __forceinline__ float4 load_a_quartet(const float* A, int M, int K, int row, int k) {
    return load_quartet<ALIGNED>(A + row_offset(min(row, M - 1), K), k, K);
}

// Four neighbours of a row of B, zero beyond K: a product with what lies there must not count, whatever it is.
template <bool ALIGNED>
__device__ __forceinline__ float4 load_b_quartet(const float* B, int N, int K, int k, int column) {
    return load_quartet<ALIGNED>(B + row_offset(k, N), column, k < K ? N : 0);
}

// sum[i][j] += a[i] * b[j], both fragments given in quartets.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void add_outer_product(float (&sum)[ROWS][COLUMNS], const float4 (&a)[ROWS / 4], const float4 (&b)[COLUMNS / 4]) {
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const float4 rows = a[i / 4];
        const float x = i % 4 == 0 ? rows.x : i % 4 == 1 ? rows.y : i % 4 == 2 ? rows.z : rows.w;
#pragma unroll
        for (int j = 0; j < COLUMNS / 4; ++j) {
            sum[i][4 * j + 0] += x * b[j].x;
            sum[i][4 * j + 1] += x * b[j].y;
            sum[i][4 * j + 2] += x * b[j].z;
            sum[i][4 * j + 3] += x * b[j].w;
        }
    }
}

// One row of a thread's results; its quartets lie PITCH columns apart, the first at `column`.
template <bool ALIGNED, int PITCH, int COLUMNS>
__device__ __forceinline__ void store_row(float* C, int N, int row, int column, const float (&sum)[COLUMNS]) {
#pragma unroll
    for (int j = 0; j < COLUMNS / 4; ++j, column += PITCH) {
        const float4 quartet = make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
        store_float4_guarded(C + row_offset(row, N) + column, quartet, N - column, ALIGNED);
    }
}
