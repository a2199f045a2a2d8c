// 256 octaves of lattice noise at a million places.
// tolerance: 1e-3
#include "field.cuh"

const int OCTAVES = 256, N = 1 << 20;

__device__ float corner(int x, int y, int z, unsigned seed) {
    unsigned h = x * 73856093u ^ y * 19349663u ^ z * 83492791u ^ seed;
    h = (h ^ (h >> 13)) * 0x5bd1e995u;
    return (h >> 8) * (1.0f / 16777216.0f) - 0.5f;
}

__device__ float faded(float t) { return t * t * t * (t * (t * 6.0f - 15.0f) + 10.0f); }
__device__ float mixed(float a, float b, float t) { return a + (b - a) * t; }

__device__ float noise(float x, float y, float z, float frequency, unsigned seed) {
    x *= frequency, y *= frequency, z *= frequency;
    int i = int(x), j = int(y), k = int(z);
    float u = faded(x - i), v = faded(y - j), w = faded(z - k);
    float a = mixed(mixed(corner(i, j, k, seed), corner(i + 1, j, k, seed), u),
                    mixed(corner(i, j + 1, k, seed), corner(i + 1, j + 1, k, seed), u), v);
    float b = mixed(mixed(corner(i, j, k + 1, seed), corner(i + 1, j, k + 1, seed), u),
                    mixed(corner(i, j + 1, k + 1, seed), corner(i + 1, j + 1, k + 1, seed), u), v);
    return mixed(a, b, w);
}

__host__ __device__ constexpr float frequency_of(int octave) { return 1.0f + octave * 0.37f; }
__host__ __device__ constexpr float amplitude_of(int octave) { return 1.0f / (1 + octave); }
__host__ __device__ constexpr unsigned seed_of(int octave) { return octave * 2654435761u; }

__global__ void __launch_bounds__(256, 5)
    noise_unrolled(const float4* __restrict__ place, float* __restrict__ out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 p = place[i];
    float sum = 0.0f;
#if VARIANT == 0
#pragma unroll
#else
#pragma unroll 1
#endif
    for (int k = 0; k < OCTAVES; ++k)
        sum += amplitude_of(k) * noise(p.x, p.y, p.z, frequency_of(k), seed_of(k));
    out[i] = sum;
}

int main() {
    auto* place = field::filled<float4>(N, [] __device__(size_t i) {
        return make_float4(field::unit(i, 1) * 9.0f, field::unit(i, 2) * 9.0f, field::unit(i, 3) * 9.0f, 0.0f);
    });
    float* out = field::zeros<float>(N);
    field::run([&] { noise_unrolled<<<N / 256, 256>>>(place, out); });
    return field::report(out, N);
}
