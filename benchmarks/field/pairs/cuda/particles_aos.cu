// One step of 16 million particles: position += velocity * dt.
// tolerance: 1e-5
#include "field.cuh"

struct Particle {
    float x, y, z, vx, vy, vz, mass, charge, colour[4];
};

#if VARIANT == 0
__global__ void particles_aos(Particle* p, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    p[i].x += p[i].vx * dt;
    p[i].y += p[i].vy * dt;
    p[i].z += p[i].vz * dt;
}
#else
// Member m of particle i is at p[m * n + i].
__global__ void particles_aos(float* __restrict__ p, int n, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#pragma unroll
    for (size_t m = 0; m < 3; ++m) p[m * n + i] += p[(m + 3) * n + i] * dt;
}
#endif

int main() {
    const int n = 1 << 24;
    float* p = field::filled<float>(12 * size_t(n), [] __device__(size_t i) {
        const size_t particle = VARIANT == 0 ? i / 12 : i % (1 << 24);
        const size_t member = VARIANT == 0 ? i % 12 : i / (1 << 24);
        return field::unit(particle, uint32_t(member));
    });
#if VARIANT == 0
    field::run([&] { particles_aos<<<n / 256, 256>>>(reinterpret_cast<Particle*>(p), n, 0.01f); });
#else
    field::run([&] { particles_aos<<<n / 256, 256>>>(p, n, 0.01f); });
#endif
    float* x = field::filled<float>(n, [=] __device__(size_t i) {
        const size_t step = VARIANT == 0 ? 12 : 1, next = VARIANT == 0 ? 1 : size_t(1) << 24;
        return p[i * step] + 2.0f * p[i * step + next] + 3.0f * p[i * step + 2 * next];
    });
    return field::report(x, n);
}
