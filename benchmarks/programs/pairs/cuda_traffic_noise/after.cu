// Hourly road traffic noise map of a town.
//
// Road segments are point sources with a height and an hourly sound power.
// Each hour the sound energy at every receptor of a regular grid is summed over
// all segments with spreading, air absorption and ground attenuation, and then
// added to the day-evening-night exposure of the receptor.
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
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) {                                            \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,               \
                         cudaGetErrorString(status_));                           \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

using real = float;

constexpr int kGrid = 1024;
constexpr int kSegments = 1024;
constexpr int kHours = 24;
constexpr int kTile = 256;
constexpr float kSpacing = 4.0f;
constexpr float kReceptorHeight = 4.0f;

constexpr int kWarmup = 10;
constexpr int kBlocks = 10;
constexpr int kStepsPerBlock = 10;

__global__ void __launch_bounds__(kTile)
receptor_energy(const float3 *segments, const float *sound_power, float *energy,
                float absorption) {
    __shared__ float4 tile[kTile];
    const int column = blockIdx.x * kTile + threadIdx.x;
    const int row = blockIdx.y;
    const real x = real(kSpacing) * real(column);
    const real y = real(kSpacing) * real(row);

    real sum = 0;
    for (int first = 0; first < kSegments; first += kTile) {
        const float3 s = segments[first + threadIdx.x];
        tile[threadIdx.x] = make_float4(s.x, s.y, s.z, sound_power[first + threadIdx.x]);
        __syncthreads();
        for (int i = 0; i < kTile; ++i) {
            const float4 source = tile[i];
            const real dx = x - real(source.x);
            const real dy = y - real(source.y);
            const real dz = real(kReceptorHeight) - real(source.z);
            const real r2 = dx * dx + dy * dy + dz * dz + real(1);
            const real r = sqrt(r2);
            const real mean_height = real(0.5) * (real(kReceptorHeight) + real(source.z));
            const real ground =
                fmax(real(0), real(4.8) - real(2) * mean_height / r * (real(17) + real(300) / r));
            const real loss_db = real(absorption) * r + ground;
            sum += real(source.w) * exp(real(-0.2302585) * loss_db) / r2;
        }
        __syncthreads();
    }
    energy[row * kGrid + column] = float(sum);
}

__global__ void add_exposure(const float *energy, float *exposure, float weight, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) exposure[i] += weight * energy[i];
}

int main() {
    std::mt19937 rng(3391);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);

    const float extent = kSpacing * kGrid;
    std::vector<float3> segments(kSegments);
    for (auto &s : segments) {
        s.x = extent * uniform(rng);
        s.y = extent * uniform(rng);
        s.z = 0.3f + 0.5f * uniform(rng);
    }
    std::vector<float> power(kHours * kSegments);
    for (int s = 0; s < kSegments; ++s) {
        const float busy = 0.2f + uniform(rng);
        for (int h = 0; h < kHours; ++h) {
            const float day = 0.55f + 0.45f * std::sin(6.2831853f * (h - 7.0f) / kHours);
            power[h * kSegments + s] = 1.0e4f * busy * (0.05f + day) * (0.8f + 0.4f * uniform(rng));
        }
    }

    const int receptors = kGrid * kGrid;
    float3 *d_segments;
    float *d_power, *d_energy, *d_exposure;
    CHECK(cudaMalloc(&d_segments, kSegments * sizeof(float3)));
    CHECK(cudaMalloc(&d_power, power.size() * sizeof(float)));
    CHECK(cudaMalloc(&d_energy, receptors * sizeof(float)));
    CHECK(cudaMalloc(&d_exposure, receptors * sizeof(float)));
    CHECK(cudaMemcpy(d_segments, segments.data(), kSegments * sizeof(float3),
                     cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_power, power.data(), power.size() * sizeof(float),
                     cudaMemcpyHostToDevice));
    CHECK(cudaMemset(d_exposure, 0, receptors * sizeof(float)));

    const dim3 grid(kGrid / kTile, kGrid);
    int hour = 0;
    auto step = [&]() {
        const int h = hour % kHours;
        const float weight = h < 6 || h >= 22 ? 10.0f : (h >= 18 ? 3.16f : 1.0f);
        const float absorption = 0.004f + 0.0001f * h;
        receptor_energy<<<grid, kTile>>>(d_segments, d_power + h * kSegments, d_energy, absorption);
        add_exposure<<<(receptors + 255) / 256, 256>>>(d_energy, d_exposure, weight, receptors);
        ++hour;
    };

    for (int i = 0; i < kWarmup; ++i) step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < kBlocks; ++b) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kStepsPerBlock; ++i) step();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> spent =
            std::chrono::steady_clock::now() - begin;
        times.push_back(spent.count() / kStepsPerBlock);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());

    std::vector<float> exposure(receptors);
    CHECK(cudaMemcpy(exposure.data(), d_exposure, receptors * sizeof(float),
                     cudaMemcpyDeviceToHost));
    double level_sum = 0.0, loudest = 0.0, total = 0.0;
    for (float e : exposure) {
        level_sum += 10.0 * std::log10(double(e));
        loudest = std::max(loudest, double(e));
        total += e;
    }
    std::printf("{\"program\": \"cuda_traffic_noise\", \"steps\": %d, \"us\": %.3f, "
                "\"result\": [%.8g, %.8g, %.8g]}\n",
                kWarmup + kBlocks * kStepsPerBlock, times[times.size() / 2],
                level_sum / receptors, loudest, total / receptors);
    CHECK(cudaFree(d_segments));
    CHECK(cudaFree(d_power));
    CHECK(cudaFree(d_energy));
    CHECK(cudaFree(d_exposure));
    return 0;
}
