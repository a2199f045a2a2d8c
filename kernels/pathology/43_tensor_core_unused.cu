/*+++
title = "A half-precision product on the FMA pipe"
idea = """\
A product of half-precision matrices, summed up in float. It is tiled in shared memory and \
registers like a good float kernel, and is no faster than one: the tensor cores, which multiply \
this type many times faster, stand idle."""
kind = "planted"
compared_with = ""
+++*/

#include "pathology/pathology.cuh"
#include <cuda_fp16.h>

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

extern "C" __global__ void __launch_bounds__(BLOCK)
tensor_core_unused(const __half* __restrict__ A, const __half* __restrict__ W, float* __restrict__ C) {
    __shared__ __align__(16) __half a[TILE][PITCH_A], w[32][PITCH_W];
    const int col = threadIdx.x % 16 * 4, row = threadIdx.x / 16;  // 8 rows, eight apart, times 4 columns
    float sum[8][4] = {};
#pragma unroll 1
    for (int k0 = 0; k0 < K_ALL; k0 += 32) {
        load_tiles(a, w, A, W, k0);
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < 32; k += 2) {
            float2 left[8], right[2][2];
#pragma unroll
            for (int r = 0; r < 8; ++r) left[r] = __half22float2(*reinterpret_cast<const __half2*>(&a[row + 8 * r][k]));
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const uint2 q = *reinterpret_cast<const uint2*>(&w[k + j][col]);
                right[j][0] = __half22float2(reinterpret_cast<const __half2&>(q.x));
                right[j][1] = __half22float2(reinterpret_cast<const __half2&>(q.y));
            }
#pragma unroll
            for (int r = 0; r < 8; ++r)
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const float l = j == 0 ? left[r].x : left[r].y;
                    sum[r][0] = fmaf(l, right[j][0].x, sum[r][0]);
                    sum[r][1] = fmaf(l, right[j][0].y, sum[r][1]);
                    sum[r][2] = fmaf(l, right[j][1].x, sum[r][2]);
                    sum[r][3] = fmaf(l, right[j][1].y, sum[r][3]);
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const size_t at = ((size_t)blockIdx.x * TILE + row + 8 * r) * COLS + blockIdx.y * TILE + col;
        store_float4(C + at, make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
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
kernel = "tensor_core_unused"
grid = ["rows / 64", "4", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["A", "W", "C"]

[expect.sass]
present = ["FFMA", "HADD2.F32"]
absent = ["LDL", "STL", "HMMA"]

[[expect.profile]]
says = "the products run on the FMA pipe"
check = "executed('FFMA') >= 256 * n / 32"

[[expect.profile]]
says = "the tensor cores are idle"
check = "executed('HMMA') == 0"
+++*/
