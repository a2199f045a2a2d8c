// A product of two half matrices of 4096 x 4096, summed in float.
// tolerance: 1e-4
#include "field.cuh"
#include <cuda_fp16.h>
#include <mma.h>

#if VARIANT == 0
// Tiles of 64 x 64 in shared memory, 4 x 4 outputs a thread.
__global__ void hgemm_scalar(const half* __restrict__ a, const half* __restrict__ b,
                             float* __restrict__ c, int n) {
    __shared__ half as[64][18], bs[16][64];
    int t = threadIdx.x, tx = t % 16, ty = t / 16;
    int row = blockIdx.y * 64, column = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        for (int e = t; e < 64 * 16; e += 256) {
            as[e / 16][e % 16] = a[size_t(row + e / 16) * n + k + e % 16];
            bs[e / 64][e % 64] = b[size_t(k + e / 64) * n + column + e % 64];
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 16; ++j)
#pragma unroll
            for (int y = 0; y < 4; ++y)
#pragma unroll
                for (int x = 0; x < 4; ++x)
                    sum[y][x] += __half2float(as[ty + 16 * y][j]) * __half2float(bs[j][tx + 16 * x]);
        __syncthreads();
    }
    for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 4; ++x) c[size_t(row + ty + 16 * y) * n + column + tx + 16 * x] = sum[y][x];
}
#else
// Tiles of 128 x 128 in shared memory, 8 warps of 64 x 32 outputs.
__global__ void hgemm_scalar(const half* __restrict__ a, const half* __restrict__ b,
                             float* __restrict__ c, int n) {
    using namespace nvcuda::wmma;
    __shared__ __align__(32) half as[128][32 + 8], bs[32][128 + 8];
    int t = threadIdx.x, warp = t / 32;
    int row = blockIdx.y * 128, column = blockIdx.x * 128;
    int wr = (warp / 4) * 64, wc = (warp % 4) * 32;
    fragment<accumulator, 16, 16, 16, float> sum[4][2];
    for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 2; ++x) fill_fragment(sum[y][x], 0.0f);
    for (int k = 0; k < n; k += 32) {
        for (int e = t; e < 512; e += 256) {
            *reinterpret_cast<uint4*>(&as[e / 4][(e % 4) * 8]) =
                *reinterpret_cast<const uint4*>(&a[size_t(row + e / 4) * n + k + (e % 4) * 8]);
            *reinterpret_cast<uint4*>(&bs[e / 16][(e % 16) * 8]) =
                *reinterpret_cast<const uint4*>(&b[size_t(k + e / 16) * n + column + (e % 16) * 8]);
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < 32; j += 16) {
            fragment<matrix_a, 16, 16, 16, half, row_major> fa[4];
            fragment<matrix_b, 16, 16, 16, half, row_major> fb[2];
            for (int y = 0; y < 4; ++y) load_matrix_sync(fa[y], &as[wr + 16 * y][j], 40);
            for (int x = 0; x < 2; ++x) load_matrix_sync(fb[x], &bs[j][wc + 16 * x], 136);
            for (int y = 0; y < 4; ++y)
                for (int x = 0; x < 2; ++x) mma_sync(sum[y][x], fa[y], fb[x], sum[y][x]);
        }
        __syncthreads();
    }
    for (int y = 0; y < 4; ++y)
        for (int x = 0; x < 2; ++x)
            store_matrix_sync(&c[size_t(row + wr + 16 * y) * n + column + wc + 16 * x], sum[y][x], n,
                              mem_row_major);
}
#endif

int main() {
    const int n = 4096;
    half* a = field::filled<half>(n * n, [] __device__(size_t i) { return __float2half(field::unit(i, 1)); });
    half* b = field::filled<half>(n * n, [] __device__(size_t i) { return __float2half(field::unit(i, 2)); });
    float* c = field::zeros<float>(n * n);
    const int tile = VARIANT == 0 ? 64 : 128;
    field::run([&] { hgemm_scalar<<<dim3(n / tile, n / tile), 256>>>(a, b, c, n); });
    return field::report(c, n * n);
}
