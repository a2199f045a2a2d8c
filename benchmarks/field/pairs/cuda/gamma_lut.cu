// 64 million bytes to light by a table of 256 floats.
// tolerance: 0
#include "field.cuh"

__constant__ float table[256];

__global__ void gamma_lut(const uchar4* __restrict__ in, float4* __restrict__ out, int quads) {
#if VARIANT == 1
    __shared__ float lut[256];
    lut[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
#endif
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
        uchar4 p = in[i];
#if VARIANT == 0
        out[i] = make_float4(table[p.x], table[p.y], table[p.z], table[p.w]);
#else
        out[i] = make_float4(lut[p.x], lut[p.y], lut[p.z], lut[p.w]);
#endif
    }
}

int main() {
    const int n = 1 << 26;
    auto* in = field::filled<uchar4>(n / 4, [] __device__(size_t i) {
        uint32_t h = field::hash(uint32_t(i));
        return make_uchar4(h & 255, (h >> 8) & 255, (h >> 16) & 255, h >> 24);
    });
    auto* out = field::zeros<float4>(n / 4);
    float gamma[256];
    for (int i = 0; i < 256; ++i) gamma[i] = std::pow(i / 255.0f, 2.2f);
    CHECK(cudaMemcpyToSymbol(table, gamma, sizeof gamma));
    field::run([&] { gamma_lut<<<field::sm_count() * 8, 256>>>(in, out, n / 4); });
    return field::report(reinterpret_cast<float*>(out), n);
}
