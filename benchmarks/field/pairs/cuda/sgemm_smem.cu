// A product of two float matrices of 4096 x 4096, tiles in shared memory on both sides.
// tolerance: 1e-4
#include "field.cuh"
#include "sgemm.cuh"

#if VARIANT == 0
__global__ void sgemm_smem(const float* __restrict__ a, const float* __restrict__ b,
                           float* __restrict__ c, int n) {
    __shared__ float as[32][32], bs[32][32];
    int tx = threadIdx.x, ty = threadIdx.y;
    int x = blockIdx.x * 32 + tx, y = blockIdx.y * 32 + ty;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 32) {
        as[ty][tx] = a[size_t(y) * n + k + tx];
        bs[ty][tx] = b[size_t(k + ty) * n + x];
        __syncthreads();
        for (int j = 0; j < 32; ++j) sum += as[ty][j] * bs[j][tx];
        __syncthreads();
    }
    c[size_t(y) * n + x] = sum;
}
#else
__global__ void __launch_bounds__(256, 2)
    sgemm_smem(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    sgemm_tiled(a, b, c, n);
}
#endif

int main() {
    const int n = 4096;
    float* a = field::filled<float>(n * n, [] __device__(size_t i) { return field::unit(i, 1); });
    float* b = field::filled<float>(n * n, [] __device__(size_t i) { return field::unit(i, 2); });
    float* c = field::zeros<float>(n * n);
    const int tile = VARIANT == 0 ? 32 : 128;
    const dim3 block = VARIANT == 0 ? dim3(32, 32) : dim3(256);
    field::run([&] { sgemm_smem<<<dim3(n / tile, n / tile), block>>>(a, b, c, n); });
    return field::report(c, n * n);
}
