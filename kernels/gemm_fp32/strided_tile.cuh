// A BM x BN tile of C by (BM / TM) * (BN / TN) threads, each of which computes TM x TN elements that
// lie a whole row or column of threads apart; the -D parameters of the rung give the sizes. Shared by
// the rungs that differ in where B's tile comes from and how it lies in shared memory.
#pragma once
#include "common/common.cuh"

// The rungs bound their registers so that 768 threads fit a multiprocessor: fewer warps would not
// hide the copies behind each other's arithmetic.
#define THREADS ((BM / TM) * (BN / TN))

// Copies a ROWS x COLS tile into shared memory, lanes along the rows as memory has them; zeros
// beyond the edge.
template <int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void copy_tile(float (&tile)[ROWS][PITCH], const float* __restrict__ from,
                                          int row0, int col0, int rows, int cols) {
    static_assert(PITCH >= COLS, "a row of the tile must fit");
    static_assert(ROWS * COLS % THREADS == 0, "every thread copies the same number of floats");
#pragma unroll
    for (int n = 0; n < ROWS * COLS / THREADS; ++n) {
        const int i = threadIdx.x + n * THREADS;
        const int row = row0 + i / COLS, col = col0 + i % COLS;
        tile[i / COLS][i % COLS] = row < rows && col < cols ? from[(size_t)row * cols + col] : 0.f;
    }
}
