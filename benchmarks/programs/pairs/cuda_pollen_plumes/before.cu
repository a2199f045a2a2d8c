// Airborne pollen: Gaussian plumes from many stands of trees, hour by hour, on a
// regular grid of receptors. Sources pass through shared memory in tiles.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e_ = (call);                                                 \
        if (e_ != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,               \
                         cudaGetErrorString(e_));                                \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int NX = 640, NY = 384;          // receptors, 50 m apart
constexpr float SPACING = 50.0f;
constexpr int STANDS = 512;
constexpr int TILE = 128;
constexpr int WARMUP = 5, BLOCKS = 6, PER_BLOCK = 5;

struct Stand {
    float x, y;         // m
    float height;       // release height, m
    float rate;         // grains per second
};

struct Hour {
    float cosw, sinw;   // wind direction
    float speed;        // m/s
    float decay;        // deposition, 1/s
};

// Dispersion after Briggs, open country, neutral stability.
__device__ __forceinline__ float sigma_y(float x)
{
    return 0.08 * x / sqrt(1.0 + 0.0001 * x);
}

__device__ __forceinline__ float sigma_z(float x)
{
    return 0.06 * x / sqrt(1.0 + 0.0015 * x);
}

// Ground-level concentration at (down, across) of a stand, with reflection at the
// mixing height as one image source.
__device__ __forceinline__ float plume(float down, float across, const Stand &s, const Hour &h)
{
    const float d = fmaxf(down, 1.0f);
    const float sy = sigma_y(d), sz = sigma_z(d);
    const float lateral = exp(-0.5 * across * across / (sy * sy));
    const float lift = exp(-0.5 * s.height * s.height / (sz * sz));
    const float top = 1200.0 - s.height;
    const float lid = exp(-0.5 * top * top / (sz * sz));
    const float settle = exp(-h.decay * d / h.speed);
    const float c = s.rate * lateral * (lift + lid) * settle / (3.14159265 * h.speed * sy * sz);
    return down > 0.0 ? c : 0.0;
}

__global__ void __launch_bounds__(TILE)
accumulate_hour(const Stand *__restrict__ stands, int count, Hour h, float *__restrict__ dose)
{
    __shared__ Stand tile[TILE];
    const int ix = blockIdx.x * TILE + threadIdx.x, iy = blockIdx.y;
    const float px = ix * SPACING, py = iy * SPACING;
    float sum = 0.0f;
    for (int base = 0; base < count; base += TILE) {
        tile[threadIdx.x] = stands[base + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < TILE; ++j) {
            const Stand s = tile[j];
            const float dx = px - s.x, dy = py - s.y;
            sum += plume(dx * h.cosw + dy * h.sinw, dy * h.cosw - dx * h.sinw, s, h);
        }
        __syncthreads();
    }
    dose[iy * NX + ix] += 3600.0f * sum;
}

int main()
{
    std::mt19937 rng(2024);
    std::uniform_real_distribution<float> u(0.0f, 1.0f);
    std::vector<Stand> stands(STANDS);
    for (auto &s : stands)
        s = {u(rng) * NX * SPACING, u(rng) * NY * SPACING, 6.0f + 18.0f * u(rng), 500.0f + 4000.0f * u(rng)};

    const int steps = WARMUP + BLOCKS * PER_BLOCK;
    std::vector<Hour> hours(steps);
    for (int i = 0; i < steps; ++i) {
        const float dir = 0.4f + 0.9f * std::sin(0.26f * i);
        hours[i] = {std::cos(dir), std::sin(dir), 2.0f + 2.0f * u(rng), 2e-5f};
    }

    Stand *d_stands;
    float *d_dose;
    CHECK(cudaMalloc(&d_stands, STANDS * sizeof(Stand)));
    CHECK(cudaMalloc(&d_dose, NX * NY * sizeof(float)));
    CHECK(cudaMemcpy(d_stands, stands.data(), STANDS * sizeof(Stand), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(d_dose, 0, NX * NY * sizeof(float)));

    const dim3 grid(NX / TILE, NY);
    int step = 0;
    auto advance = [&]() {
        accumulate_hour<<<grid, TILE>>>(d_stands, STANDS, hours[step], d_dose);
        CHECK(cudaGetLastError());
        ++step;
    };

    for (int i = 0; i < WARMUP; ++i) advance();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        const auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i) advance();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> dt = std::chrono::steady_clock::now() - t0;
        times.push_back(dt.count() / PER_BLOCK);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> dose(NX * NY);
    CHECK(cudaMemcpy(dose.data(), d_dose, dose.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0.0;
    for (float v : dose) mean += v;
    mean /= dose.size();
    std::printf("{\"program\": \"cuda_pollen_plumes\", \"steps\": %d, \"us\": %.1f, \"result\": [%.7g, %.7g]}\n",
                step, times[times.size() / 2], mean, dose[(NY / 2) * NX + NX / 2]);
    cudaFree(d_stands);
    cudaFree(d_dose);
    return 0;
}
