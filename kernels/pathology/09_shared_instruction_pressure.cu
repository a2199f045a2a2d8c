/*+++
title = "One result at a time from shared memory"
idea = """\
A matrix product with both tiles in shared memory. A thread takes its 16 results one after the \
other, so that nearly every multiply-add needs its own shared load: the queue in front of the \
shared memory is full, and the arithmetic waits behind it."""
kind = "planted"
compared_with = ""
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
shared_instruction_pressure(const float* __restrict__ A, const float* __restrict__ W, float* __restrict__ C) {
    __shared__ __align__(16) float a[64][64], w[64][64];
    load_tiles(a, w, A, W);
    const int col = threadIdx.x % 64;
#pragma unroll 1
    for (int row = threadIdx.x / 64; row < 64; row += BLOCK / 64) {
        float sum = 0.f;
#pragma unroll 16
        for (int k = 0; k < 64; ++k) sum = fmaf(a[row][k], w[k][col], sum);
        C[((size_t)blockIdx.x * 64 + row) * 64 + col] = sum;
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
kernel = "shared_instruction_pressure"
grid = ["rows / 64", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["A", "W", "C"]

[expect.sass]
present = ["LDS", "FFMA"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "a shared load a multiply-add"
check = "executed('LDS') > executed('FFMA')"

[[expect.profile]]
says = "warps wait in the queue for shared memory"
check = "stall_share('mio_throttle') + stall_share('short_scoreboard') > 0.3"
+++*/
