// A BM x BN tile of C by (BM / TM) * (BN / TN) threads, each of which computes TM x TN elements that lie a whole row or column of threads
// apart; the -D parameters of the rung give the sizes. Shared by the rungs whose B is row-major and column-major: they differ in where B's tile
// comes from and how it lies in shared memory.
#pragma once
#include "common/common.cuh"

// The rungs bound their registers so that 768 threads fit a multiprocessor: fewer warps would not hide the copies behind each other's arithmetic.
#define THREADS ((BM / TM) * (BN / TN))

// Copies a ROWS x COLS tile into shared memory, lanes along the rows as memory has them; zeros beyond the edge.
template <int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void copy_tile(float (&tile)[ROWS][PITCH], const float* __restrict__ from, int row0, int col0, int rows, int cols) {
    static_assert(PITCH >= COLS, "a row of the tile must fit");
    static_assert(ROWS * COLS % THREADS == 0, "every thread copies the same number of floats");
#pragma unroll
    for (int n = 0; n < ROWS * COLS / THREADS; ++n) {
        const int i = threadIdx.x + n * THREADS;
        const int row = row0 + i / COLS, col = col0 + i % COLS;
        tile[i / COLS][i % COLS] = row < rows && col < cols ? from[(size_t)row * cols + col] : 0.f;
    }
}

// B_COLUMN_MAJOR: B is stored by columns, element (k, n) at n * K + k, and its tile keeps that order. The pads widen the rows of a shared
// tile that run along k; neighbouring rows then start in different banks.
template <bool B_COLUMN_MAJOR, int PAD_B>
__device__ __forceinline__ void strided_tile_gemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
                                                  int M, int N, int K) {
    constexpr int ACROSS = BN / TN, DOWN = BM / TM;
    constexpr int B_ROWS = B_COLUMN_MAJOR ? BN : BK, B_COLS = B_COLUMN_MAJOR ? BK : BN;
    __shared__ float As[BM][BK + PAD_A];
    __shared__ float Bs[B_ROWS][B_COLS + PAD_B];
    const int tx = threadIdx.x % ACROSS, ty = threadIdx.x / ACROSS;
    const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;

    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
        copy_tile<BM, BK>(As, A, row0, k0, M, K);
        if (B_COLUMN_MAJOR) copy_tile<B_ROWS, B_COLS>(Bs, B, col0, k0, N, K);
        else copy_tile<B_ROWS, B_COLS>(Bs, B, k0, col0, K, N);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) a[i] = As[ty + i * DOWN][k];
#pragma unroll
            for (int j = 0; j < TN; ++j) b[j] = B_COLUMN_MAJOR ? Bs[tx + j * ACROSS][k] : Bs[k][tx + j * ACROSS];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int row = row0 + ty + i * DOWN, col = col0 + tx + j * ACROSS;
            if (row < M && col < N) C[(size_t)row * N + col] = sum[i][j];
        }
}
