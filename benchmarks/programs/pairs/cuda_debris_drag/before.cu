// Decay of orbital debris: ten minutes of planar motion with drag for every object of a catalogue.
// Low objects feel a dense atmosphere and get a finer time step than high ones.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t err_ = (call);                                                      \
        if (err_ != cudaSuccess) {                                                      \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_)); \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

constexpr int kObjects = 4 * 1000 * 1000;
constexpr float kEarth = 6371.0f;          // km
constexpr float kMu = 398600.44f;          // km^3 / s^2
constexpr float kInterval = 600.0f;        // s
constexpr int kThreads = 256;
constexpr int kWarmup = 6, kBlocks = 5, kPerBlock = 6;

struct Orbit { float x, y, vx, vy; };
struct Entry { Orbit orbit; float ballistic; int substeps; };

// Exponential atmosphere around 400 km, kg / km^3.
__device__ inline float density(float height) {
    float scale = 52.0f + 0.06f * fmaxf(height - 400.0f, 0.0f);
    return 2.8e-3f * __expf(-(height - 400.0f) / scale);
}

__global__ void propagate(Orbit* __restrict__ orbits, const float* __restrict__ ballistic,
                          const int* __restrict__ substeps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Orbit o = orbits[i];
    float drag = 0.5f * ballistic[i];
    int steps = substeps[i];
    float dt = kInterval / steps;
    for (int k = 0; k < steps; ++k) {
        o.x += 0.5f * dt * o.vx;
        o.y += 0.5f * dt * o.vy;
        float r2 = o.x * o.x + o.y * o.y;
        float inv = rsqrtf(r2);
        float pull = -kMu * inv * inv * inv;
        float speed = sqrtf(o.vx * o.vx + o.vy * o.vy);
        float brake = drag * density(r2 * inv - kEarth) * speed;
        o.vx += dt * (pull * o.x - brake * o.vx);
        o.vy += dt * (pull * o.y - brake * o.vy);
        o.x += 0.5f * dt * o.vx;
        o.y += 0.5f * dt * o.vy;
    }
    orbits[i] = o;
}

// Objects in the order of their discovery.
std::vector<Entry> load_catalogue() {
    std::mt19937 rng(2024);
    std::uniform_real_distribution<float> uni(0.0f, 1.0f);
    std::vector<Entry> entries(kObjects);
    for (Entry& e : entries) {
        float pick = uni(rng);
        float height = pick < 0.10f ? 320.0f + 160.0f * uni(rng)
                     : pick < 0.32f ? 480.0f + 320.0f * uni(rng)
                                    : 800.0f + 700.0f * uni(rng);
        float radius = kEarth + height, speed = std::sqrt(kMu / radius), angle = 6.2831853f * uni(rng);
        float c = std::cos(angle), s = std::sin(angle);
        e.orbit = {radius * c, radius * s, -speed * s, speed * c};
        e.ballistic = 2e-6f * (0.3f + uni(rng));     // km^2 / kg, light fragments
        e.substeps = height < 480.0f ? 480 : height < 800.0f ? 96 : 20;
    }
    return entries;
}

int main() {
    std::vector<Entry> entries = load_catalogue();
    std::vector<Orbit> orbits(kObjects);
    std::vector<float> ballistic(kObjects);
    std::vector<int> substeps(kObjects);
    for (int i = 0; i < kObjects; ++i) {
        orbits[i] = entries[i].orbit;
        ballistic[i] = entries[i].ballistic;
        substeps[i] = entries[i].substeps;
    }
    Orbit* d_orbits;
    float* d_ballistic;
    int* d_substeps;
    CHECK(cudaMalloc(&d_orbits, kObjects * sizeof(Orbit)));
    CHECK(cudaMalloc(&d_ballistic, kObjects * sizeof(float)));
    CHECK(cudaMalloc(&d_substeps, kObjects * sizeof(int)));
    CHECK(cudaMemcpy(d_orbits, orbits.data(), kObjects * sizeof(Orbit), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_ballistic, ballistic.data(), kObjects * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_substeps, substeps.data(), kObjects * sizeof(int), cudaMemcpyHostToDevice));

    int grid = (kObjects + kThreads - 1) / kThreads;
    auto step = [&]() {
        propagate<<<grid, kThreads>>>(d_orbits, d_ballistic, d_substeps, kObjects);
        CHECK(cudaGetLastError());
    };
    for (int s = 0; s < kWarmup; ++s) step();
    CHECK(cudaDeviceSynchronize());

    std::vector<double> spans;
    for (int b = 0; b < kBlocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int s = 0; s < kPerBlock; ++s) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - start;
        spans.push_back(us.count() / kPerBlock);
    }
    std::sort(spans.begin(), spans.end());

    CHECK(cudaMemcpy(orbits.data(), d_orbits, kObjects * sizeof(Orbit), cudaMemcpyDeviceToHost));
    double height = 0, low = 0, energy = 0;
    for (int i = 0; i < kObjects; ++i) {
        const Orbit& o = orbits[i];
        double r = std::hypot((double)o.x, (double)o.y);
        height += r - kEarth;
        if (substeps[i] == 480) low += r - kEarth;
        energy += 0.5 * ((double)o.vx * o.vx + (double)o.vy * o.vy) - kMu / r;
    }
    std::printf("{\"program\": \"cuda_debris_drag\", \"steps\": %d, \"us\": %.2f, \"result\": [%.4f, %.2f, %.6f]}\n",
                kWarmup + kBlocks * kPerBlock, spans[kBlocks / 2], height / kObjects, low / kObjects, energy / kObjects);
    cudaFree(d_orbits); cudaFree(d_ballistic); cudaFree(d_substeps);
    return 0;
}
