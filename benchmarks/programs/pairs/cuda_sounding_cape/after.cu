// Convective available potential energy (CAPE) and inhibition of many model
// soundings, for several lifted parcels of each (a small parcel ensemble).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t e_ = (call);                                             \
        if (e_ != cudaSuccess) {                                             \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                \
                    cudaGetErrorString(e_));                                 \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

constexpr int SOUNDINGS = 1 << 19;
constexpr int LEVELS = 96;
constexpr int PARCELS = 4;
constexpr int WARMUP = 6, BLOCKS = 6, BLOCK = 5;
constexpr float GRAVITY = 9.81f;

struct Soundings {
    float* temperature;   // K
    float* moisture;      // g/kg
    float* height;        // m
};

__host__ __device__ inline size_t at(int sounding, int level)
{
    return (size_t)level * SOUNDINGS + sounding;
}

__global__ void synthesize(Soundings s)
{
    size_t n = (size_t)SOUNDINGS * LEVELS;
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) {
        int sounding = (int)(i / LEVELS), level = (int)(i % LEVELS);
        unsigned h = (unsigned)sounding * 2654435761u;
        h ^= h >> 15; h *= 2246822519u; h ^= h >> 13;
        float warm = (h & 0xfff) / 4096.0f, damp = ((h >> 12) & 0xfff) / 4096.0f;
        float z = 140.0f * level + 3.0f * damp;
        float lapse = z < 11000.0f ? 6.2f + 0.9f * damp : 4.0f;
        size_t o = at(sounding, level);
        s.height[o] = z;
        s.temperature[o] = 293.0f + 12.0f * warm - lapse * 1e-3f * z;
        s.moisture[o] = (8.0f + 9.0f * damp) * expf(-z / 2300.0f);
    }
}

__device__ inline float virtual_temperature(float t, float q)
{
    return t * (1.0f + 0.608e-3f * q);
}

// A parcel rises dry to its condensation level, then with a moist lapse rate
// that grows towards the dry one as it cools.
__global__ void __launch_bounds__(256)
lift_parcel(Soundings s, float excess, float* __restrict__ cape, float* __restrict__ cin)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= SOUNDINGS)
        return;
    float parcel = s.temperature[at(i, 0)] + excess;
    float water = s.moisture[at(i, 0)];
    float below = s.height[at(i, 0)];
    float condensation = below + 125.0f * (24.0f - water);
    float energy = 0.0f, inhibition = 0.0f;
    for (int k = 1; k < LEVELS; ++k) {
        float z = s.height[at(i, k)];
        float t = s.temperature[at(i, k)];
        float q = s.moisture[at(i, k)];
        float dz = z - below;
        float moist = 9.8e-3f - 5.0e-3f * __saturatef((parcel - 235.0f) * 0.0154f);
        bool cloudy = z > condensation;
        parcel -= dz * (cloudy ? moist : 9.8e-3f);
        water -= cloudy ? water * dz * 3.0e-4f : 0.0f;
        float around = virtual_temperature(t, q);
        float push = GRAVITY * (virtual_temperature(parcel, water) - around) / around * dz;
        energy += fmaxf(push, 0.0f);
        inhibition += energy > 50.0f ? 0.0f : fminf(push, 0.0f);
        below = z;
    }
    cape[i] = energy;
    cin[i] = inhibition;
}

static void step(const Soundings& s, float* cape, float* cin)
{
    for (int p = 0; p < PARCELS; ++p)
        lift_parcel<<<(SOUNDINGS + 255) / 256, 256>>>(s, 0.4f * p, cape + (size_t)p * SOUNDINGS,
                                                      cin + (size_t)p * SOUNDINGS);
    CHECK(cudaGetLastError());
}

static double mean(const float* device, size_t n)
{
    std::vector<float> host(n);
    CHECK(cudaMemcpy(host.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
    double total = 0;
    for (float v : host)
        total += v;
    return total / n;
}

int main()
{
    const size_t bytes = (size_t)SOUNDINGS * LEVELS * sizeof(float);
    Soundings s;
    CHECK(cudaMalloc(&s.temperature, bytes));
    CHECK(cudaMalloc(&s.moisture, bytes));
    CHECK(cudaMalloc(&s.height, bytes));
    float *cape, *cin;
    CHECK(cudaMalloc(&cape, (size_t)PARCELS * SOUNDINGS * sizeof(float)));
    CHECK(cudaMalloc(&cin, (size_t)PARCELS * SOUNDINGS * sizeof(float)));
    synthesize<<<4096, 256>>>(s);
    CHECK(cudaDeviceSynchronize());

    for (int k = 0; k < WARMUP; ++k)
        step(s, cape, cin);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto begin = std::chrono::steady_clock::now();
        for (int k = 0; k < BLOCK; ++k)
            step(s, cape, cin);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> d = std::chrono::steady_clock::now() - begin;
        times.push_back(d.count() / BLOCK);
    }
    std::sort(times.begin(), times.end());

    double low = mean(cape, SOUNDINGS), high = mean(cape + (size_t)3 * SOUNDINGS, SOUNDINGS);
    double inhibition = mean(cin, SOUNDINGS);
    printf("CAPE %.1f J/kg, with the warmest parcel %.1f\n", low, high);
    printf("{\"program\": \"cuda_sounding_cape\", \"steps\": %d, \"us\": %.2f, "
           "\"result\": [%.7g, %.7g, %.7g]}\n",
           WARMUP + BLOCKS * BLOCK, times[times.size() / 2], low, high, inhibition);
    return 0;
}
