// Potentials of 16,384 charges at (SMs + 4) * 1024 places.
// tolerance: 1e-4
#include "field.cuh"

const int CHARGES = 16384, THREADS = VARIANT == 0 ? 1024 : 128, TILE = VARIANT == 0 ? 8192 : 128;

__global__ void nbody_tail(const float4* __restrict__ charge, const float4* __restrict__ place,
                           float* __restrict__ potential) {
    extern __shared__ float4 tile[];
    int i = blockIdx.x * THREADS + threadIdx.x;
    float4 p = place[i];
    float sum = 0.0f;
    for (int base = 0; base < CHARGES; base += TILE) {
        for (int t = threadIdx.x; t < TILE; t += THREADS) tile[t] = charge[base + t];
        __syncthreads();
#pragma unroll 8
        for (int t = 0; t < TILE; ++t) {
            float4 c = tile[t];
            float dx = c.x - p.x, dy = c.y - p.y, dz = c.z - p.z;
            sum += c.w * rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
        }
        __syncthreads();
    }
    potential[i] = sum;
}

int main() {
    const int places = (field::sm_count() + 4) * 1024, bytes = TILE * int(sizeof(float4));
    auto* charge = field::filled<float4>(CHARGES, [] __device__(size_t i) {
        return make_float4(field::unit(i, 1), field::unit(i, 2), field::unit(i, 3), field::unit(i, 4));
    });
    auto* place = field::filled<float4>(places, [] __device__(size_t i) {
        return make_float4(field::unit(i, 5), field::unit(i, 6), field::unit(i, 7), 0.0f);
    });
    float* potential = field::zeros<float>(places);
    CHECK(cudaFuncSetAttribute(nbody_tail, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    field::run([&] { nbody_tail<<<places / THREADS, THREADS, bytes>>>(charge, place, potential); });
    return field::report(potential, places);
}
