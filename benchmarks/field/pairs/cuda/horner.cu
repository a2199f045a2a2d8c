// A polynomial of degree 511 at 4 million places.
// tolerance: 1e-4
#include "field.cuh"

const int TERMS = 512, N = 1 << 22;
__constant__ float coefficient[TERMS];

__global__ void horner(const float* __restrict__ x, float* __restrict__ y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
#if VARIANT == 0
    for (; i < N; i += threads) {
        float v = x[i], p = 0.0f;
#pragma unroll 16
        for (int k = TERMS - 1; k >= 0; --k) p = p * v + coefficient[k];
        y[i] = p;
    }
#else
    for (; i < N; i += 8 * threads) {
        float v[8], p[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) v[j] = i + j * threads < N ? x[i + j * threads] : 0.0f, p[j] = 0.0f;
#pragma unroll 16
        for (int k = TERMS - 1; k >= 0; --k)
#pragma unroll
            for (int j = 0; j < 8; ++j) p[j] = p[j] * v[j] + coefficient[k];
#pragma unroll
        for (int j = 0; j < 8; ++j)
            if (i + j * threads < N) y[i + j * threads] = p[j];
    }
#endif
}

int main() {
    float c[TERMS];
    for (int k = 0; k < TERMS; ++k) c[k] = field::unit(k, 9) - 0.3f;
    CHECK(cudaMemcpyToSymbol(coefficient, c, sizeof c));
    float* x = field::filled<float>(N, [] __device__(size_t i) { return field::unit(i); });
    float* y = field::zeros<float>(N);
    field::run([&] { horner<<<field::sm_count(), 128>>>(x, y); });
    return field::report(y, N);
}
