// A product of two float matrices of 2048 x 2048.
// tolerance: 1e-4
#include "field.cuh"
#include "sgemm.cuh"

#if VARIANT == 0
__global__ void sgemm_naive(const float* __restrict__ a, const float* __restrict__ b,
                            float* __restrict__ c, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += a[size_t(y) * n + k] * b[size_t(k) * n + x];
    c[size_t(y) * n + x] = sum;
}
#else
__global__ void __launch_bounds__(256, 2)
    sgemm_naive(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    sgemm_tiled(a, b, c, n);
}
#endif

int main() {
    const int n = 2048;
    float* a = field::filled<float>(n * n, [] __device__(size_t i) { return field::unit(i, 1); });
    float* b = field::filled<float>(n * n, [] __device__(size_t i) { return field::unit(i, 2); });
    float* c = field::zeros<float>(n * n);
    const int tile = VARIANT == 0 ? 16 : 128;
    const dim3 block = VARIANT == 0 ? dim3(16, 16) : dim3(256);
    field::run([&] { sgemm_naive<<<dim3(n / tile, n / tile), block>>>(a, b, c, n); });
    return field::report(c, n * n);
}
