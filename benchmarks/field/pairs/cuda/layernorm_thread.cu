// Layer normalisation of 131,072 rows of 1024 floats.
// tolerance: 1e-4
#include "field.cuh"

const int ROWS = 1 << 17, C = 1024;

__global__ void layernorm_thread(const float* __restrict__ in, float* __restrict__ out) {
#if VARIANT == 0
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    const float* x = in + size_t(row) * C;
    float* y = out + size_t(row) * C;
    float mean = 0.0f, variance = 0.0f;
    for (int c = 0; c < C; ++c) mean += x[c];
    mean /= C;
    for (int c = 0; c < C; ++c) variance += (x[c] - mean) * (x[c] - mean);
    float scale = rsqrtf(variance / C + 1e-5f);
    for (int c = 0; c < C; ++c) y[c] = (x[c] - mean) * scale;
#else
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const float4* x = reinterpret_cast<const float4*>(in + size_t(row) * C);
    float4* y = reinterpret_cast<float4*>(out + size_t(row) * C);
    float4 v[8];
    float mean = 0.0f, variance = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = x[k * 32 + lane];
#pragma unroll
    for (int k = 0; k < 8; ++k) mean += v[k].x + v[k].y + v[k].z + v[k].w;
    for (int d = 16; d > 0; d /= 2) mean += __shfl_xor_sync(0xffffffffu, mean, d);
    mean /= C;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        v[k] = make_float4(v[k].x - mean, v[k].y - mean, v[k].z - mean, v[k].w - mean);
        variance += v[k].x * v[k].x + v[k].y * v[k].y + v[k].z * v[k].z + v[k].w * v[k].w;
    }
    for (int d = 16; d > 0; d /= 2) variance += __shfl_xor_sync(0xffffffffu, variance, d);
    float s = rsqrtf(variance / C + 1e-5f);
#pragma unroll
    for (int k = 0; k < 8; ++k)
        y[k * 32 + lane] = make_float4(v[k].x * s, v[k].y * s, v[k].z * s, v[k].w * s);
#endif
}

int main() {
    float* in = field::filled<float>(size_t(ROWS) * C, [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(size_t(ROWS) * C);
    field::run([&] { layernorm_thread<<<VARIANT == 0 ? ROWS / 128 : ROWS / 8, VARIANT == 0 ? 128 : 256>>>(in, out); });
    return field::report(out, size_t(ROWS) * C);
}
