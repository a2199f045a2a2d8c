// Lattice Boltzmann (D2Q9, BGK) simulation of a periodic double shear layer.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t err_ = (call);                                           \
        if (err_ != cudaSuccess) {                                           \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                \
                    cudaGetErrorString(err_));                               \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

constexpr int NX = 4096, NY = 4000;
constexpr size_t CELLS = (size_t)NX * NY;

__device__ __forceinline__ void equilibrium(float rho, float ux, float uy, float feq[9])
{
    const float usq = 1.0f - 1.5f * (ux * ux + uy * uy);
    const float straight = rho * (1.0f / 9.0f), diagonal = rho * (1.0f / 36.0f);
    const float a = ux + uy, b = uy - ux;
    feq[0] = rho * (4.0f / 9.0f) * usq;
    feq[1] = straight * (usq + 3.0f * ux + 4.5f * ux * ux);
    feq[2] = straight * (usq + 3.0f * uy + 4.5f * uy * uy);
    feq[3] = straight * (usq - 3.0f * ux + 4.5f * ux * ux);
    feq[4] = straight * (usq - 3.0f * uy + 4.5f * uy * uy);
    feq[5] = diagonal * (usq + 3.0f * a + 4.5f * a * a);
    feq[6] = diagonal * (usq + 3.0f * b + 4.5f * b * b);
    feq[7] = diagonal * (usq - 3.0f * a + 4.5f * a * a);
    feq[8] = diagonal * (usq - 3.0f * b + 4.5f * b * b);
}

__global__ void __launch_bounds__(256) init(float *__restrict__ f)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    const float sx = (x + 0.5f) / NX, sy = (y + 0.5f) / NY;
    const float u0 = 0.04f, k = 80.0f;
    const float ux = u0 * tanhf(k * (sy < 0.5f ? sy - 0.25f : 0.75f - sy));
    const float uy = 0.05f * u0 * sinf(6.2831853f * (sx + 0.25f));
    float feq[9];
    equilibrium(1.0f, ux, uy, feq);
#pragma unroll
    for (int q = 0; q < 9; ++q) f[q * CELLS + (size_t)y * NX + x] = feq[q];
}

__global__ void __launch_bounds__(256)
collide_stream(const float *__restrict__ src, float *__restrict__ dst, float omega)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    const int xm = x == 0 ? NX - 1 : x - 1, xp = x == NX - 1 ? 0 : x + 1;
    const size_t row = (size_t)y * NX;
    const size_t below = (size_t)(y == 0 ? NY - 1 : y - 1) * NX;
    const size_t above = (size_t)(y == NY - 1 ? 0 : y + 1) * NX;

    float f[9];
    f[0] = src[row + x];
    f[1] = src[1 * CELLS + row + xm];
    f[2] = src[2 * CELLS + below + x];
    f[3] = src[3 * CELLS + row + xp];
    f[4] = src[4 * CELLS + above + x];
    f[5] = src[5 * CELLS + below + xm];
    f[6] = src[6 * CELLS + below + xp];
    f[7] = src[7 * CELLS + above + xp];
    f[8] = src[8 * CELLS + above + xm];

    const float rho = f[0] + f[1] + f[2] + f[3] + f[4] + f[5] + f[6] + f[7] + f[8];
    const float inv = 1.0f / rho;
    const float ux = (f[1] - f[3] + f[5] - f[6] - f[7] + f[8]) * inv;
    const float uy = (f[2] - f[4] + f[5] + f[6] - f[7] - f[8]) * inv;

    float feq[9];
    equilibrium(rho, ux, uy, feq);
#pragma unroll
    for (int q = 0; q < 9; ++q)
        dst[q * CELLS + row + x] = f[q] + omega * (feq[q] - f[q]);
}

int main()
{
    const int blocks = 10, steps = 16, updates = 16;
    const float viscosity = 0.002f, omega = 1.0f / (3.0f * viscosity + 0.5f);
    const dim3 threads(256, 1), grid(NX / 256, NY);
    float *src, *dst;
    CHECK(cudaMalloc(&src, 9 * CELLS * sizeof(float)));
    CHECK(cudaMalloc(&dst, 9 * CELLS * sizeof(float)));
    init<<<grid, threads>>>(src);

    auto step = [&]() {
        for (int k = 0; k < updates; ++k) {
            collide_stream<<<grid, threads>>>(src, dst, omega);
            std::swap(src, dst);
        }
    };

    for (int s = 0; s < 10; ++s) step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int s = 0; s < steps; ++s) step();
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - t0;
        times.push_back(ms.count() / steps);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> east(CELLS), west(CELLS);
    CHECK(cudaMemcpy(east.data(), src + 1 * CELLS, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(west.data(), src + 3 * CELLS, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0.0;
    for (size_t i = 0; i < CELLS; ++i) sum += std::fabs((double)east[i] - west[i]);
    printf("{\"program\": \"cuda_lbm\", \"steps\": %d, \"us\": %.9g, \"result\": [%.9g]}\n",
           10 + blocks * steps, 1e3 * times[blocks / 2], sum / CELLS);
    return 0;
}
