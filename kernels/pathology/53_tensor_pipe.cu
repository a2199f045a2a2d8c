/*+++
title = "Matrix products that never leave the registers"
idea = """\
Rows of 64 half-precision numbers go through the same 64 x 64 matrix STEPS times. The matrix stays \
in a warp's registers as tensor-core operands, and the results of one product are, lane by lane, \
the operands of the next: the tensor cores wait for nothing."""
kind = "roof"
+++*/

#include "pathology/pathology.cuh"
#include <cuda_fp16.h>

// d += a * b for one 16 x 8 x 16 product, half in, float out.
__device__ __forceinline__ void mma(float* d, const unsigned* a, const unsigned* b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ unsigned pack(__half low, __half high) {
    return (unsigned)__half_as_ushort(low) | (unsigned)__half_as_ushort(high) << 16;
}

__device__ __forceinline__ unsigned pack(float low, float high) {
    const __half2 v = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(v);
}

extern "C" __global__ void __launch_bounds__(BLOCK)
tensor_pipe(const __half* __restrict__ A, const __half* __restrict__ W, __half* __restrict__ C, int rows) {
    // In an operand of mma a lane holds rows g and g + 8 and columns 2t and 2t + 1 (and 8 further on); see the PTX manual's figures for m16n8k16.
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4 * 2;
    unsigned w[4][8][2];
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const __half* p = W + (16 * k + 8 * h + t) * 64 + 8 * n + g;
                w[k][n][h] = pack(p[0], p[64]);
            }

    const int warps = gridDim.x * (BLOCK / 32);
#pragma unroll 1
    for (int stripe = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32; stripe < rows / 16; stripe += warps) {
        const size_t at = ((size_t)stripe * 16 + g) * 64 + t;
        unsigned a[4][4];  // by 16 columns: (row g, columns t), (row g + 8, t), (g, t + 8), (g + 8, t + 8)
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int j = 0; j < 4; ++j) a[k][j] = *reinterpret_cast<const unsigned*>(A + at + j % 2 * 8 * 64 + 16 * k + j / 2 * 8);
#pragma unroll 1
        for (int s = 0; s < STEPS; ++s) {
            float sum[8][4] = {};
#pragma unroll
            for (int k = 0; k < 4; ++k)
#pragma unroll
                for (int n = 0; n < 8; ++n) mma(sum[n], a[k], w[k][n]);
            // A result holds columns 8n + t, 8n + t + 1 of rows g and g + 8: two of them side by side are an operand.
#pragma unroll
            for (int n = 0; n < 8; ++n) {
                a[n / 2][n % 2 * 2] = pack(sum[n][0], sum[n][1]);
                a[n / 2][n % 2 * 2 + 1] = pack(sum[n][2], sum[n][3]);
            }
        }
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int j = 0; j < 4; ++j) *reinterpret_cast<unsigned*>(C + at + j % 2 * 8 * 64 + 16 * k + j / 2 * 8) = a[k][j];
    }
}

/*+++
minimum_cc = "8.0"

[problem]
reference = "layers"
width = 64
steps = 32

[parameters]
BLOCK = 128
BLOCKS_PER_SM = 4
STEPS = 32

[[launch]]
kernel = "tensor_pipe"
grid = ["sm_count * BLOCKS_PER_SM", "1", "1"]
block = ["BLOCK", "1", "1"]
shared = "0"
args = ["A", "W", "C", "rows"]

[expect.sass]
present = ["HMMA.16816.F32"]
absent = ["LDL", "STL"]

[[expect.profile]]
says = "the tensor cores are busy"
check = "metric('tensor_pipe_active') > 0.5"

[[expect.profile]]
says = "no redundant products"
check = "executed('HMMA') == 32 * 32 * n / 64 / 16"
+++*/
