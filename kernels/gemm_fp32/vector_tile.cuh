// A BM x BN tile of C by (BM / TM) * (BN / TN) threads, with every access to global and shared memory 16 bytes wide; the -D parameters of the
// rung give the sizes. A's tile is transposed on its way into shared memory, so that a thread finds its TM floats of one k side by side.
// Shared by the rungs that differ in tile shape and skew.
#pragma once
#include "common/common.cuh"

#define THREADS ((BM / TM) * (BN / TN))
#define FOUR_ROWS (4 * BM + SKEW)  // floats in four rows of A's transposed tile

// Element i of a quartet; i is known at compile time wherever this is used.
__device__ __forceinline__ float element(const float4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Where A's tile keeps row k of BM floats: SKEW unused floats follow every fourth row. A thread stores a 4 x 4 block as four quartets, so lanes
// that are neighbours along k write four rows apart: without a skew these all start in the same bank, with a skew of four floats they start
// four banks apart, and eight lanes cover the 32 banks.
__device__ __forceinline__ int row_of_a(int k) { return k / 4 * FOUR_ROWS + k % 4 * BM; }

// Copies two tiles that lie wholly inside their matrices. All loads come before the first store, so that they are in flight together.
// LANES_K: how many 4 x 4 blocks of A neighbouring lanes take along k before they move on to the next four rows.
__device__ __forceinline__ void copy_full(float* As, float* Bs, const float* __restrict__ A, const float* __restrict__ B, int N, int K) {
    constexpr int A_BLOCKS = BM * BK / 16 / THREADS, B_QUARTETS = BK * BN / 4 / THREADS;
    float4 a[A_BLOCKS][4], b[B_QUARTETS];
#pragma unroll
    for (int n = 0; n < A_BLOCKS; ++n) {
        const int block = threadIdx.x + n * THREADS;
        const int k = 4 * (block % LANES_K + LANES_K * (block / (LANES_K * (BM / 4)))), m = 4 * (block / LANES_K % (BM / 4));
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
        const int k = 4 * (block % LANES_K + LANES_K * (block / (LANES_K * (BM / 4)))), m = 4 * (block / LANES_K % (BM / 4));
#pragma unroll
        for (int j = 0; j < 4; ++j)
            store_float4(As + row_of_a(k + j) + m,
                         make_float4(element(a[n][0], j), element(a[n][1], j), element(a[n][2], j), element(a[n][3], j)));
    }
#pragma unroll
    for (int n = 0; n < B_QUARTETS; ++n) store_float4(Bs + 4 * (threadIdx.x + n * THREADS), b[n]);
}

// The same for tiles that reach over an edge, or rows that are not 16-byte aligned: float by float, zeros beyond the edge. Kept small and
// not unrolled, because registers taken here would cost the full tiles their occupancy.
__device__ __forceinline__ void copy_edge(float* As, float* Bs, const float* __restrict__ A, const float* __restrict__ B,
                                          int rows, int cols, int depth, int N, int K) {
#pragma unroll 1
    for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
        const int m = i / BK, k = i % BK;
        As[row_of_a(k) + m] = m < rows && k < depth ? A[(size_t)m * K + k] : 0.f;
    }
#pragma unroll 1
    for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
        const int k = i / BN, n = i % BN;
        Bs[i] = k < depth && n < cols ? B[(size_t)k * N + n] : 0.f;
    }
}

__device__ __forceinline__ void vector_tile_gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                                                 int M, int N, int K) {
    static_assert(BM % TM == 0 && BN % TN == 0 && TM % 4 == 0 && TN % 4 == 0 && BK % 4 == 0 && SKEW % 4 == 0, "everything moves in quartets");
    static_assert(BM * BK % (16 * THREADS) == 0 && BK * BN % (4 * THREADS) == 0, "every thread copies the same share");
    static_assert(BK / 4 % LANES_K == 0, "the lanes must cover the tile's depth evenly");
    __shared__ __align__(16) float As[BK / 4 * FOUR_ROWS];
    __shared__ __align__(16) float Bs[BK * BN];

    const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    const bool vector = K % 4 == 0 && N % 4 == 0 && is_aligned_16(A) && is_aligned_16(B) && is_aligned_16(C);
    const int rows = M - row0, cols = N - col0;  // what is left of C from this tile's corner on
    const bool inside = vector && rows >= BM && cols >= BN;
    A += (size_t)row0 * K;
    B += col0;
    C += (size_t)row0 * N + col0;

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        if (inside && K - k0 >= BK) copy_full(As, Bs, A + k0, B + (size_t)k0 * N, N, K);
        else copy_edge(As, Bs, A + k0, B + (size_t)k0 * N, rows, cols, K - k0, N, K);
        __syncthreads();
#pragma unroll 2
        for (int k = 0; k < BK; k += 4)
#pragma unroll
            for (int kk = 0; kk < 4; ++kk) {
                float4 a[TM / 4], b[TN / 4];
#pragma unroll
                for (int i = 0; i < TM / 4; ++i) a[i] = load_float4(As + row_of_a(k + kk) + ty * TM + 4 * i);
#pragma unroll
                for (int j = 0; j < TN / 4; ++j) b[j] = load_float4(Bs + (k + kk) * BN + tx * TN + 4 * j);
#pragma unroll
                for (int i = 0; i < TM; ++i)
#pragma unroll
                    for (int j = 0; j < TN; ++j) sum[i][j] += element(a[i / 4], i % 4) * element(b[j / 4], j % 4);
            }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int row = ty * TM + i, col = tx * TN + j;
            const float4 v = make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            store_float4_guarded(C + (size_t)row * N + col, v, row < rows ? cols - col : 0, vector);
        }
}
