// The copy of rung vectorized, for the rungs after it.
#pragma once
#include "gemm_fp32/vector_tile.cuh"

// Copies two tiles that lie wholly inside their matrices. All loads come before the first store, so
// that they are in flight together. LANES_K: how many 4 x 4 blocks of A neighbouring lanes take
// along k before they move on to the next four rows.
__device__ __forceinline__ void copy_full(float* As, float* Bs, const float* __restrict__ A,
                                          const float* __restrict__ B, int N, int K) {
    constexpr int A_BLOCKS = BM * BK / 16 / THREADS, B_QUARTETS = BK * BN / 4 / THREADS;
    float4 a[A_BLOCKS][4], b[B_QUARTETS];
#pragma unroll
    for (int n = 0; n < A_BLOCKS; ++n) {
        const int block = threadIdx.x + n * THREADS;
        const int k = 4 * (block % LANES_K + LANES_K * (block / (LANES_K * (BM / 4))));
        const int m = 4 * (block / LANES_K % (BM / 4));
#pragma unroll
        for (int i = 0; i < 4; ++i) a[n][i] = load_float4(A + (size_t)(m + i) * K + k);
    }
#pragma unroll
    for (int n = 0; n < B_QUARTETS; ++n) {
        const int at = 4 * (threadIdx.x + n * THREADS);
        b[n] = load_float4(B + (size_t)(at / BN) * N + at % BN);
    }
#pragma unroll
    for (int n = 0; n < A_BLOCKS; ++n) {
        const int block = threadIdx.x + n * THREADS;
        const int k = 4 * (block % LANES_K + LANES_K * (block / (LANES_K * (BM / 4))));
        const int m = 4 * (block / LANES_K % (BM / 4));
#pragma unroll
        for (int j = 0; j < 4; ++j)  // column j of the block becomes a quartet of row k + j
            store_float4(As + row_of_a(k + j) + m,
                         make_float4(element(a[n][0], j), element(a[n][1], j),
                                     element(a[n][2], j), element(a[n][3], j)));
    }
#pragma unroll
    for (int n = 0; n < B_QUARTETS; ++n) store_float4(Bs + 4 * (threadIdx.x + n * THREADS), b[n]);
}
