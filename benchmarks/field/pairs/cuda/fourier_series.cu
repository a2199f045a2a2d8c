// A Fourier series of 64 terms at 8 million places.
// tolerance: 1e-3
#include "field.cuh"

const int TERMS = 64, N = 1 << 23;
__constant__ float2 term[TERMS];

__global__ void fourier_series(const float* __restrict__ x, float* __restrict__ y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i], sum = 0.0f;
#if VARIANT == 0
#pragma unroll 8
    for (int k = 0; k < TERMS; ++k) {
        float angle = (k + 1) * v;
        sum += term[k].x * __cosf(angle) + term[k].y * __sinf(angle);
    }
#else
    float c1 = __cosf(v), s1 = __sinf(v), c = c1, s = s1;
#pragma unroll 8
    for (int k = 0; k < TERMS; ++k) {
        sum += term[k].x * c + term[k].y * s;
        float t = c * c1 - s * s1;
        s = s * c1 + c * s1;
        c = t;
    }
#endif
    y[i] = sum;
}

int main() {
    float2 t[TERMS];
    for (int k = 0; k < TERMS; ++k) t[k] = make_float2(field::unit(k, 1), field::unit(k, 2));
    CHECK(cudaMemcpyToSymbol(term, t, sizeof t));
    float* x = field::filled<float>(N, [] __device__(size_t i) { return field::unit(i) * 3.0f; });
    float* y = field::zeros<float>(N);
    field::run([&] { fourier_series<<<N / 256, 256>>>(x, y); });
    return field::report(y, N);
}
