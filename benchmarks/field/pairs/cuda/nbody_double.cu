// Forces of 32,768 bodies on each other.
// tolerance: 1e-3
#include "field.cuh"
#include <type_traits>

const int N = 1 << 15;
typedef std::conditional<VARIANT == 0, double, float>::type real;

__global__ void nbody_double(const float4* __restrict__ body, float4* __restrict__ force) {
    __shared__ float4 tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 p = body[i];
    real fx = 0, fy = 0, fz = 0;
    for (int base = 0; base < N; base += 256) {
        tile[threadIdx.x] = body[base + threadIdx.x];
        __syncthreads();
#pragma unroll 4
        for (int t = 0; t < 256; ++t) {
            float4 b = tile[t];
            real dx = real(b.x) - p.x, dy = real(b.y) - p.y, dz = real(b.z) - p.z;
            real square = dx * dx + dy * dy + dz * dz + real(1e-2);
#if VARIANT == 0
            real pull = b.w / (square * sqrt(square));
#else
            real root = rsqrtf(square), pull = b.w * root * root * root;
#endif
            fx += pull * dx;
            fy += pull * dy;
            fz += pull * dz;
        }
        __syncthreads();
    }
    force[i] = make_float4(fx, fy, fz, 0.0f);
}

int main() {
    auto* body = field::filled<float4>(N, [] __device__(size_t i) {
        return make_float4(field::unit(i, 1), field::unit(i, 2), field::unit(i, 3), field::unit(i, 4));
    });
    auto* force = field::zeros<float4>(N);
    field::run([&] { nbody_double<<<N / 256, 256>>>(body, force); });
    return field::report(reinterpret_cast<float*>(force), 4 * N);
}
