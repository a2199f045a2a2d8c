/*+++
title = "The same tiles on the tensor cores"
idea = """\
The same tiles of the same size in shared memory; each warp multiplies its quarter with 16 x 16 x \
16 tensor-core fragments."""
kind = "step"
compared_with = "tensor_core_unused"
removes = "tensor-core-unused"
+++*/

#include "pathology/pathology.cuh"
#include <cuda_fp16.h>
#include <mma.h>

#define K_ALL 256   // inner extent
#define COLS 256    // columns of W and C
#define TILE 64     // rows and columns of a block's piece of C
#define PITCH_A 40  // 32 halves and 8 of padding: 16-byte accesses stay aligned, and rows start in different banks
#define PITCH_W 72  // 64 halves and 8 of padding

// The block's 64 x 32 piece of A and 32 x 64 piece of W at inner index k0, 16 bytes a thread at a time.
__device__ __forceinline__ void load_tiles(__half (*a)[PITCH_A], __half (*w)[PITCH_W], const __half* A, const __half* W, int k0) {
    const size_t row0 = (size_t)blockIdx.x * TILE;
    const int col0 = blockIdx.y * TILE;
#pragma unroll
    for (int i = threadIdx.x; i < 256; i += BLOCK) {
        const int row_a = i / 4, col_a = i % 4 * 8, row_w = i / 8, col_w = i % 8 * 8;
        *reinterpret_cast<uint4*>(&a[row_a][col_a]) = *reinterpret_cast<const uint4*>(A + (row0 + row_a) * K_ALL + k0 + col_a);
        *reinterpret_cast<uint4*>(&w[row_w][col_w]) = *reinterpret_cast<const uint4*>(W + (k0 + row_w) * COLS + col0 + col_w);
    }
}

using namespace nvcuda::wmma;

extern "C" __global__ void __launch_bounds__(BLOCK)
tensor_core_unused_fixed(const __half* __restrict__ A, const __half* __restrict__ W, float* __restrict__ C) {
    __shared__ __align__(32) __half a[TILE][PITCH_A], w[32][PITCH_W];
    const int warp = threadIdx.x / 32, row = warp / 2 * 32, col = warp % 2 * 32;  // the warp's 32 x 32 quarter
    fragment<accumulator, 16, 16, 16, float> sum[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int c = 0; c < 2; ++c) fill_fragment(sum[r][c], 0.f);
#pragma unroll 1
    for (int k0 = 0; k0 < K_ALL; k0 += 32) {
        load_tiles(a, w, A, W, k0);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k += 16) {
            fragment<matrix_a, 16, 16, 16, __half, row_major> left[2];
            fragment<matrix_b, 16, 16, 16, __half, row_major> right[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                load_matrix_sync(left[j], &a[row + 16 * j][k], PITCH_A);
                load_matrix_sync(right[j], &w[k][col + 16 * j], PITCH_W);
            }
#pragma unroll
            for (int r = 0; r < 2; ++r)
#pragma unroll
                for (int c = 0; c < 2; ++c) mma_sync(sum[r][c], left[r], right[c], sum[r][c]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const size_t at = ((size_t)blockIdx.x * TILE + row + 16 * r) * COLS + blockIdx.y * TILE + col + 16 * c;
            store_matrix_sync(C + at, sum[r][c], COLS, mem_row_major);
        }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "matmul"
k = 256
cols = 256
dtype = "float16"

[parameters]
BLOCK = 128

[[launch]]
kernel = "tensor_core_unused_fixed"
grid = ["rows / 64", "4", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["A", "W", "C"]

[expect]
ratio_at_least = 2

[expect.sass]
present = ["HMMA", "LDSM"]
absent = ["LDL", "STL", "FFMA"]

[[expect.profile]]
says = "the products run on the tensor cores"
check = "executed('HMMA') > 0"

[[expect.profile]]
says = "none is left on the FMA pipe"
check = "executed('FFMA') < 0.01 * prev_executed('FFMA')"
+++*/
