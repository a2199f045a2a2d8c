/*+++
title = "A 4 x 4 tile per thread, 16 bytes per load"
idea = """\
The same tiles and the same products, but a thread keeps 4 x 4 results in registers and loads 16 \
bytes at a time: eight wide loads feed 64 multiply-adds."""
kind = "step"
compared_with = "shared_instruction_pressure"
removes = "shared-instruction-pressure"
+++*/

#include "pathology/pathology.cuh"

// The block's 64 rows of A (64 x 64) and all of W (64 x 64), 16 bytes a thread at a time.
__device__ __forceinline__ void load_tiles(float (*a)[64], float (*w)[64], const float* __restrict__ A, const float* __restrict__ W) {
    const float* rows = A + (size_t)blockIdx.x * 64 * 64;
#pragma unroll
    for (int i = threadIdx.x; i < 64 * 16; i += BLOCK) {
        store_float4(&a[i / 16][i % 16 * 4], load_float4(rows + 4 * i));
        store_float4(&w[i / 16][i % 16 * 4], load_float4(W + 4 * i));
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(BLOCK)
shared_instruction_pressure_fixed(const float* __restrict__ A, const float* __restrict__ W, float* __restrict__ C) {
    __shared__ __align__(16) float a[64][64], w[64][64];
    load_tiles(a, w, A, W);
    const int col = threadIdx.x % 16 * 4, row = threadIdx.x / 16 * 4;
    float sum[4][4] = {};
#pragma unroll 4
    for (int k = 0; k < 64; k += 4) {
        float left[4][4], right[4][4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            store_float4(left[j], load_float4(&a[row + j][k]));
            store_float4(right[j], load_float4(&w[k + j][col]));
        }
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int r = 0; r < 4; ++r)
#pragma unroll
                for (int c = 0; c < 4; ++c) sum[r][c] = fmaf(left[r][j], right[j][c], sum[r][c]);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const size_t at = ((size_t)blockIdx.x * 64 + row + r) * 64 + col;
        store_float4(C + at, make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "matmul"
k = 64
cols = 64
dtype = "float32"

[parameters]
BLOCK = 256

[[launch]]
kernel = "shared_instruction_pressure_fixed"
grid = ["rows / 64", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["A", "W", "C"]

[expect]
ratio_at_least = 1.8

[expect.sass]
present = ["LDS.128", "FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "every shared load is 128 bits wide"
check = "executed('LDS.128') == executed('LDS')"

[[expect.profile]]
says = "eight of them feed 64 multiply-adds"
check = "executed('LDS') == executed('FFMA') / 8"

[[expect.profile]]
says = "the products are the same"
check = "executed('FFMA') == prev_executed('FFMA')"
+++*/
