// Highlights of 16 million pixels: the mean of four cosines to the power 32.
// tolerance: 1e-3
#include "field.cuh"

const int N = 1 << 24;

__device__ float shiny(float cosine, float exponent) {
#if VARIANT == 0
    return powf(cosine, exponent);
#else
    float v = cosine * cosine;
    v *= v;
    v *= v;
    v *= v;
    return v * v;
#endif
}

__global__ void phong_power(const float4* __restrict__ cosines, float* __restrict__ out, float exponent) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 c = cosines[i];
    out[i] = 0.25f * (shiny(c.x, exponent) + shiny(c.y, exponent) + shiny(c.z, exponent) +
                      shiny(c.w, exponent));
}

int main() {
    auto* cosines = field::filled<float4>(N, [] __device__(size_t i) {
        return make_float4(field::unit(i, 1), field::unit(i, 2), field::unit(i, 3), field::unit(i, 4));
    });
    float* out = field::zeros<float>(N);
    field::run([&] { phong_power<<<N / 256, 256>>>(cosines, out, 32.0f); });
    return field::report(out, N);
}
