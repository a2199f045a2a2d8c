// Root-mean-square normalisation of 131,072 rows of 1024 floats, a block of 512 a row.
// tolerance: 1e-4
#include "field.cuh"

const int ROWS = 1 << 17;

__global__ void rmsnorm_leader(const float2* __restrict__ in, float2* __restrict__ out) {
    __shared__ float part[512];
    __shared__ float scale;
    int t = threadIdx.x;
    size_t i = blockIdx.x * size_t(512) + t;
    float2 v = in[i];
    float square = v.x * v.x + v.y * v.y;
#if VARIANT == 0
    part[t] = square;
    __syncthreads();
    if (t == 0) {
        float sum = 0.0f;
        for (int k = 0; k < 512; ++k) sum += part[k];
        scale = rsqrtf(sum / 1024 + 1e-5f);
    }
#else
    for (int d = 16; d > 0; d /= 2) square += __shfl_down_sync(0xffffffffu, square, d);
    if (t % 32 == 0) part[t / 32] = square;
    __syncthreads();
    if (t < 16) {
        float sum = part[t];
        for (int d = 8; d > 0; d /= 2) sum += __shfl_down_sync(0xffffu, sum, d);
        if (t == 0) scale = rsqrtf(sum / 1024 + 1e-5f);
    }
#endif
    __syncthreads();
    out[i] = make_float2(v.x * scale, v.y * scale);
}

int main() {
    const size_t n = size_t(ROWS) * 512;
    auto* in = field::filled<float2>(n, [] __device__(size_t i) {
        return make_float2(field::unit(i, 1), field::unit(i, 2));
    });
    auto* out = field::zeros<float2>(n);
    field::run([&] { rmsnorm_leader<<<ROWS, 512>>>(in, out); });
    return field::report(reinterpret_cast<float*>(out), 2 * n);
}
