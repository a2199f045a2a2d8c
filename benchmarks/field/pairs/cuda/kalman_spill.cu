// 16 prediction steps P = F P F' + Q with 6 x 6 matrices, for a million filters.
// tolerance: 1e-4
// before: -maxrregcount=32
#include "field.cuh"

const int N = 1 << 20, D = 6, STEPS = 16;

// Element e of filter i is at p[e * N + i].
__global__ void kalman_spill(const float* __restrict__ f, const float* __restrict__ in,
                             float* __restrict__ out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a[D][D], p[D][D], t[D][D];
#pragma unroll
    for (int e = 0; e < D * D; ++e) {
        a[e / D][e % D] = f[e * N + i];
        p[e / D][e % D] = in[e * N + i];
    }
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) {
#pragma unroll
        for (int r = 0; r < D; ++r)
#pragma unroll
            for (int c = 0; c < D; ++c) {
                t[r][c] = 0.0f;
#pragma unroll
                for (int k = 0; k < D; ++k) t[r][c] += a[r][k] * p[k][c];
            }
#pragma unroll
        for (int r = 0; r < D; ++r)
#pragma unroll
            for (int c = 0; c < D; ++c) {
                p[r][c] = r == c ? 0.01f : 0.0f;
#pragma unroll
                for (int k = 0; k < D; ++k) p[r][c] += t[r][k] * a[c][k];
            }
    }
#pragma unroll
    for (int e = 0; e < D * D; ++e) out[e * N + i] = p[e / D][e % D];
}

int main() {
    const size_t n = size_t(N) * D * D;
    float* f = field::filled<float>(n, [] __device__(size_t i) {
        return (i / (1 << 20)) % 7 == 0 ? 0.9f : (field::unit(i, 1) - 0.5f) * 0.1f;
    });
    float* in = field::filled<float>(n, [] __device__(size_t i) { return field::unit(i, 2); });
    float* out = field::zeros<float>(n);
    field::run([&] { kalman_spill<<<N / 128, 128>>>(f, in, out); });
    return field::report(out, n);
}
