// 30 linear stages of a colour pipeline over 16 million pixels of four floats.
// tolerance: 1e-3
#include "field.cuh"

const int N = 1 << 24, STAGES = VARIANT == 0 ? 30 : 1;
__constant__ float4 row[STAGES * 4];

__device__ float dot(float4 a, float4 b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }

__global__ void transform_chain(const float4* __restrict__ in, float4* __restrict__ out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 v = in[i];
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
        v = make_float4(dot(row[4 * s], v), dot(row[4 * s + 1], v), dot(row[4 * s + 2], v),
                        dot(row[4 * s + 3], v));
    out[i] = v;
}

int main() {
    // Stage s mixes a little of each channel into the others; `all` is the product of the stages.
    float stages[30 * 16], all[16] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
    for (int s = 0; s < 30; ++s) {
        float* m = stages + 16 * s;
        for (int e = 0; e < 16; ++e) m[e] = (e % 5 == 0 ? 0.97f : 0.0f) + 0.02f * field::unit(e, s);
        float next[16] = {};
        for (int e = 0; e < 16; ++e)
            for (int k = 0; k < 4; ++k) next[e] += m[e / 4 * 4 + k] * all[k * 4 + e % 4];
        std::copy(next, next + 16, all);
    }
    CHECK(cudaMemcpyToSymbol(row, VARIANT == 0 ? stages : all, sizeof(float) * 16 * STAGES));
    auto* in = field::filled<float4>(N, [] __device__(size_t i) {
        return make_float4(field::unit(i, 1), field::unit(i, 2), field::unit(i, 3), field::unit(i, 4));
    });
    auto* out = field::zeros<float4>(N);
    field::run([&] { transform_chain<<<N / 256, 256>>>(in, out); });
    return field::report(reinterpret_cast<float*>(out), 4 * size_t(N));
}
