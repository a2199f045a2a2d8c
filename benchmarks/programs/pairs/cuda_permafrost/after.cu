// Ground temperatures of a permafrost plateau: freezing soil with unfrozen water, 3-D heat conduction.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                      \
    do {                                                                                 \
        cudaError_t status = (call);                                                     \
        if (status != cudaSuccess) {                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));         \
            std::exit(1);                                                                \
        }                                                                                \
    } while (0)

constexpr int NX = 512, NY = 512, NZ = 64;
constexpr int PLANE = NX * NY;
constexpr int CELLS = PLANE * NZ;
constexpr float DAY = 86400.0f;
constexpr float SPACING = 0.25f;
constexpr int SWEEPS = 8;
constexpr int WARMUP = 10, BLOCKS = 8, STEPS_PER_BLOCK = 10;

__device__ __forceinline__ float noise(unsigned int n) {
    n = (n ^ 61u) ^ (n >> 16);
    n *= 9u;
    n ^= n >> 4;
    n *= 0x27d4eb2du;
    n ^= n >> 15;
    return n * (1.0f / 4294967296.0f);
}

__global__ void layOutGround(float* temperature, float* porosity) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= CELLS) return;
    const int z = i / PLANE;
    const int column = i - z * PLANE;
    temperature[i] = -3.0f + 0.03f * z + 0.8f * noise(column) + 0.2f * noise(i + 77u);
    porosity[i] = 0.25f + 0.25f * expf(-0.06f * z) + 0.08f * noise(i * 3u + 11u);
}

__global__ void surfaceTemperature(float* surface, float day) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= PLANE) return;
    const float season = sinpif(2.0f * (day - 110.0f) / 365.0f);
    surface[column] = -5.5f + 11.0f * season + 1.5f * noise(column + 5000u);
}

__global__ void soilProperties(const float* __restrict__ temperature, const float* __restrict__ porosity,
                               float* __restrict__ conductivity, float* __restrict__ capacity) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= CELLS) return;
    const float t = temperature[i];
    const float n = porosity[i];
    const float onset = 0.05f;
    const float exponent = 0.55f;
    const float depression = fmaxf(-t, onset);
    const float liquid = n * powf(depression / onset, -exponent);
    const float ice = n - liquid;
    const float slope = -t > onset ? exponent * liquid / depression : 0.0f;
    conductivity[i] = expf(1.065f * (1.0f - n) - 0.580f * liquid + 0.793f * ice);
    capacity[i] = 2.0e6f * (1.0f - n) + 4.18e6f * liquid + 1.93e6f * ice + 3.34e8f * slope;
}

__global__ void conductionSweep(const float* __restrict__ previous, const float* __restrict__ current,
                                const float* __restrict__ surface, const float* __restrict__ conductivity,
                                const float* __restrict__ capacity, float* __restrict__ next) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    const int z = blockIdx.z;
    const int i = z * PLANE + y * NX + x;
    const int west = x > 0 ? i - 1 : i, east = x < NX - 1 ? i + 1 : i;
    const int north = y > 0 ? i - NX : i, south = y < NY - 1 ? i + NX : i;
    const int above = z > 0 ? i - PLANE : i, below = z < NZ - 1 ? i + PLANE : i;
    const float k = conductivity[i];
    const float kw = 0.5f * (k + conductivity[west]), ke = 0.5f * (k + conductivity[east]);
    const float kn = 0.5f * (k + conductivity[north]), ks = 0.5f * (k + conductivity[south]);
    const float ka = 0.5f * (k + conductivity[above]), kb = 0.5f * (k + conductivity[below]);
    const float upper = z > 0 ? current[above] : surface[y * NX + x];
    const float store = capacity[i] * (SPACING * SPACING / DAY);
    const float inflow = kw * current[west] + ke * current[east] + kn * current[north] + ks * current[south] +
                         ka * upper + kb * current[below];
    next[i] = (store * previous[i] + inflow) / (store + kw + ke + kn + ks + ka + kb);
}

int main() {
    float *start, *first, *second, *porosity, *conductivity, *capacity, *surface;
    const size_t bytes = sizeof(float) * CELLS;
    CHECK(cudaMalloc(&start, bytes));
    CHECK(cudaMalloc(&first, bytes));
    CHECK(cudaMalloc(&second, bytes));
    CHECK(cudaMalloc(&porosity, bytes));
    CHECK(cudaMalloc(&conductivity, bytes));
    CHECK(cudaMalloc(&capacity, bytes));
    CHECK(cudaMalloc(&surface, sizeof(float) * PLANE));
    const int threads = 256;
    const int cellBlocks = CELLS / threads;
    const dim3 tile(64, 4, 1);
    const dim3 tiles(NX / tile.x, NY / tile.y, NZ);
    layOutGround<<<cellBlocks, threads>>>(start, porosity);
    CHECK(cudaGetLastError());

    int day = 0;
    auto advanceDay = [&]() {
        surfaceTemperature<<<PLANE / threads, threads>>>(surface, static_cast<float>(day % 365));
        soilProperties<<<cellBlocks, threads>>>(start, porosity, conductivity, capacity);
        const float* current = start;
        float* next = first;
        for (int sweep = 0; sweep < SWEEPS; ++sweep) {
            conductionSweep<<<tiles, tile>>>(start, current, surface, conductivity, capacity, next);
            current = next;
            next = (next == first) ? second : first;
        }
        std::swap(start, second);
        ++day;
    };

    for (int s = 0; s < WARMUP; ++s) advanceDay();
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        const auto begin = std::chrono::steady_clock::now();
        for (int s = 0; s < STEPS_PER_BLOCK; ++s) advanceDay();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
        times.push_back(spent.count() / STEPS_PER_BLOCK);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    const double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    std::vector<float> ground(CELLS);
    CHECK(cudaMemcpy(ground.data(), start, bytes, cudaMemcpyDeviceToHost));
    double sum = 0.0, squares = 0.0, top = 0.0;
    for (int i = 0; i < CELLS; ++i) {
        sum += ground[i];
        squares += static_cast<double>(ground[i]) * ground[i];
        if (i < PLANE) top += ground[i];
    }
    std::printf("{\"program\": \"cuda_permafrost\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f, %.6f]}\n",
                WARMUP + BLOCKS * STEPS_PER_BLOCK, median, sum / CELLS, std::sqrt(squares / CELLS), top / PLANE);
    return 0;
}
