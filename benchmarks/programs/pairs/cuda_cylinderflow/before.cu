// Flow past a row of cylinders: lattice Boltzmann D2Q9 with BGK collisions, pull scheme,
// periodic channel driven by a small body force, full-way bounce-back in the cylinders.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#define CUDA_OK(expr)                                                              \
    if (cudaError_t e_ = (expr); e_ != cudaSuccess) {                              \
        std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(e_));   \
        std::exit(1);                                                              \
    }

namespace lbm {

constexpr int NX = 8192;                 // powers of two: periodic wrap is a mask
constexpr int NY = 4096;
constexpr size_t CELLS = size_t(NX) * NY;
constexpr int THREADS = 256;
constexpr float TAU = 0.56f;
constexpr float FORCE = 2e-6f;

__device__ __forceinline__ float equilibrium(float w, float rho, float cu, float uu) {
    return w * rho * (1.0f + 3.0f * cu + 4.5f * cu * cu - 1.5f * uu);
}

__global__ void initialise(float* __restrict__ f, uint8_t* __restrict__ solid) {
    int x = blockIdx.x * THREADS + threadIdx.x;
    int y = blockIdx.y;
    size_t at = size_t(y) * NX + x;
    float ux = 0.04f * (1.0f + 0.05f * __sinf(0.01f * y) * __cosf(0.005f * x));
    float uy = 0.002f * __sinf(0.004f * x);
    float uu = ux * ux + uy * uy;
    const float w0 = 4.f / 9, w1 = 1.f / 9, w2 = 1.f / 36;
    f[0 * CELLS + at] = equilibrium(w0, 1.0f, 0.0f, uu);
    f[1 * CELLS + at] = equilibrium(w1, 1.0f, ux, uu);
    f[2 * CELLS + at] = equilibrium(w1, 1.0f, uy, uu);
    f[3 * CELLS + at] = equilibrium(w1, 1.0f, -ux, uu);
    f[4 * CELLS + at] = equilibrium(w1, 1.0f, -uy, uu);
    f[5 * CELLS + at] = equilibrium(w2, 1.0f, ux + uy, uu);
    f[6 * CELLS + at] = equilibrium(w2, 1.0f, -ux + uy, uu);
    f[7 * CELLS + at] = equilibrium(w2, 1.0f, -ux - uy, uu);
    f[8 * CELLS + at] = equilibrium(w2, 1.0f, ux - uy, uu);
    int dx = (x & 2047) - 512, dy = (y & 1023) - 512;
    solid[at] = dx * dx + dy * dy < 96 * 96;
}

// One lattice update: stream (pull from the neighbours) and collide in one pass.
__global__ void __launch_bounds__(THREADS)
update(const float* __restrict__ in, float* __restrict__ out, const uint8_t* __restrict__ solid) {
    const int x = blockIdx.x * THREADS + threadIdx.x;
    const int y = blockIdx.y;
    const int xw = (x - 1) & (NX - 1), xe = (x + 1) & (NX - 1);
    const size_t row = size_t(y) * NX;
    const size_t south = size_t((y - 1) & (NY - 1)) * NX, north = size_t((y + 1) & (NY - 1)) * NX;
    const size_t at = row + x;

    const bool wall = __ldg(solid + at);
    float f0 = __ldg(in + at);
    float f1 = __ldg(in + 1 * CELLS + row + xw);
    float f2 = __ldg(in + 2 * CELLS + south + x);
    float f3 = __ldg(in + 3 * CELLS + row + xe);
    float f4 = __ldg(in + 4 * CELLS + north + x);
    float f5 = __ldg(in + 5 * CELLS + south + xw);
    float f6 = __ldg(in + 6 * CELLS + south + xe);
    float f7 = __ldg(in + 7 * CELLS + north + xe);
    float f8 = __ldg(in + 8 * CELLS + north + xw);

    if (wall) {
        float s = f1; f1 = f3; f3 = s;
        s = f2; f2 = f4; f4 = s;
        s = f5; f5 = f7; f7 = s;
        s = f6; f6 = f8; f8 = s;
    } else {
        const float rho = f0 + f1 + f2 + f3 + f4 + f5 + f6 + f7 + f8;
        const float inv = __fdividef(1.0f, rho);
        const float ux = (f1 - f3 + f5 - f6 - f7 + f8) * inv + TAU * FORCE;
        const float uy = (f2 - f4 + f5 + f6 - f7 - f8) * inv;
        const float uu = ux * ux + uy * uy;
        constexpr float k = 1.0f / TAU;
        const float w0 = 4.f / 9, w1 = 1.f / 9, w2 = 1.f / 36;
        f0 += k * (equilibrium(w0, rho, 0.0f, uu) - f0);
        f1 += k * (equilibrium(w1, rho, ux, uu) - f1);
        f2 += k * (equilibrium(w1, rho, uy, uu) - f2);
        f3 += k * (equilibrium(w1, rho, -ux, uu) - f3);
        f4 += k * (equilibrium(w1, rho, -uy, uu) - f4);
        f5 += k * (equilibrium(w2, rho, ux + uy, uu) - f5);
        f6 += k * (equilibrium(w2, rho, -ux + uy, uu) - f6);
        f7 += k * (equilibrium(w2, rho, -ux - uy, uu) - f7);
        f8 += k * (equilibrium(w2, rho, ux - uy, uu) - f8);
    }
    out[at] = f0;
    out[1 * CELLS + at] = f1;
    out[2 * CELLS + at] = f2;
    out[3 * CELLS + at] = f3;
    out[4 * CELLS + at] = f4;
    out[5 * CELLS + at] = f5;
    out[6 * CELLS + at] = f6;
    out[7 * CELLS + at] = f7;
    out[8 * CELLS + at] = f8;
}

}  // namespace lbm

int main() {
    using namespace lbm;
    float *now, *next;
    uint8_t* solid;
    CUDA_OK(cudaMalloc(&now, 9 * CELLS * sizeof(float)));
    CUDA_OK(cudaMalloc(&next, 9 * CELLS * sizeof(float)));
    CUDA_OK(cudaMalloc(&solid, CELLS));
    const dim3 grid(NX / THREADS, NY);
    initialise<<<grid, THREADS>>>(now, solid);
    CUDA_OK(cudaGetLastError());

    const int updates = 8;               // lattice updates in a step
    int steps = 0;
    auto advance = [&](int n) {
        CUDA_OK(cudaDeviceSynchronize());
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < n; ++i, ++steps)
            for (int u = 0; u < updates; ++u) {
                update<<<grid, THREADS>>>(now, next, solid);
                std::swap(now, next);
            }
        CUDA_OK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        return took.count() / n;
    };
    advance(5);
    std::vector<double> us;
    for (int b = 0; b < 7; ++b) us.push_back(advance(5));
    std::sort(us.begin(), us.end());
    CUDA_OK(cudaGetLastError());

    // mean density and momentum along the line through the cylinders' centres
    std::vector<float> line(NX);
    double rho = 0, momentum = 0;
    const int cx[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1};
    for (int q = 0; q < 9; ++q) {
        CUDA_OK(cudaMemcpy(line.data(), now + q * CELLS + size_t(512) * NX, NX * sizeof(float),
                           cudaMemcpyDeviceToHost));
        for (float v : line) { rho += v / NX; momentum += cx[q] * double(v) / NX; }
    }
    std::printf("{\"program\": \"cuda_cylinderflow\", \"steps\": %d, \"us\": %.2f, "
                "\"result\": [%.6g, %.6g]}\n", steps, us[us.size() / 2], rho, momentum);
    return 0;
}
