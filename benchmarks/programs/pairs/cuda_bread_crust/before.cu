// Baking of loaves in a tunnel oven: heat and moisture in the layers under the surface of every
// patch of crust, with evaporation into the oven air, one conveyor position a step.
#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t status_ = (call);                                                   \
        if (status_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

constexpr int kLayers = 6;
constexpr int kPatches = 1 << 21;
constexpr int kSubsteps = 64;
constexpr float kDt = 0.03f;         // seconds
constexpr float kDepth = 1.6f;       // millimetres of a layer

struct Oven {
    float air;        // degrees Celsius
    float humidity;   // vapour pressure, Pa
    float transfer;   // W / m2 K
};

// Saturation vapour pressure over the wet crust, Pa (Magnus).
__device__ float saturation_pressure(float t) {
    return 610.94 * exp(17.625 * t / (t + 243.04));
}

__device__ float heat_conductivity(float moisture) { return 0.09f + 0.75f * moisture * (1.0f + 0.25f * moisture); }

__device__ float moisture_diffusivity(float temperature, float moisture) {
    return 0.0022f * (0.2f + moisture) * (1.0f + 0.012f * temperature);
}

__global__ void __launch_bounds__(128) bake(float* __restrict__ temperature, float* __restrict__ moisture,
                                            const float* __restrict__ draught, float* __restrict__ lost, Oven oven,
                                            int patches) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= patches) return;
    float t[kLayers], w[kLayers];
#pragma unroll
    for (int l = 0; l < kLayers; ++l) {
        t[l] = temperature[size_t(l) * patches + p];
        w[l] = moisture[size_t(l) * patches + p];
    }
    float transfer = oven.transfer * draught[p];
    float steam = 0.0f;
    const float inverse = 1.0f / kDepth;

    for (int s = 0; s < kSubsteps; ++s) {
        // Surface: convection against evaporation.
        float activity = __fdividef(w[0], w[0] + 0.08f);
        float excess = activity * saturation_pressure(t[0]) - oven.humidity;
        float evaporation = fminf(fmaxf(2.2e-7f * transfer * excess, 0.0f), 2.0f * w[0]);
        float heat = 0.004f * transfer * (oven.air - t[0]) - 22.0f * evaporation;
        float water = -evaporation;
        steam = fmaf(evaporation, kDt, steam);
        // Layers: conduction and diffusion between neighbours, vapour carried inwards.
#pragma unroll
        for (int l = 0; l < kLayers; ++l) {
            float down_heat = 0.0f, down_water = 0.0f;
            if (l + 1 < kLayers) {
                float mid_t = 0.5f * (t[l] + t[l + 1]);
                float mid_w = 0.5f * (w[l] + w[l + 1]);
                down_heat = heat_conductivity(mid_w) * (t[l] - t[l + 1]) * inverse;
                down_water = moisture_diffusivity(mid_t, mid_w) * (w[l] - w[l + 1]) * inverse;
                down_heat = fmaf(0.4f * down_water, mid_t, down_heat);
            }
            float capacity = 1.3f + 2.8f * w[l];
            t[l] = t[l] + __fdividef(kDt * (heat - down_heat), capacity);
            w[l] = fmaxf(fmaf(kDt, water - down_water, w[l]), 0.0f);
            heat = down_heat;
            water = down_water;
        }
    }
#pragma unroll
    for (int l = 0; l < kLayers; ++l) {
        temperature[size_t(l) * patches + p] = t[l];
        moisture[size_t(l) * patches + p] = w[l];
    }
    lost[p] += steam;
}

__global__ void fill(float* temperature, float* moisture, float* draught, float* lost, int patches) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= patches) return;
    uint32_t h = p * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    float u = (h >> 8) * (1.0f / 16777216.0f);
    for (int l = 0; l < kLayers; ++l) {
        temperature[size_t(l) * patches + p] = 28.0f + 2.0f * u;
        moisture[size_t(l) * patches + p] = 0.62f + 0.04f * u;
    }
    draught[p] = 0.7f + 0.6f * u;
    lost[p] = 0.0f;
}

class Tunnel {
public:
    Tunnel() {
        CHECK(cudaMalloc(&temperature_, sizeof(float) * kLayers * kPatches));
        CHECK(cudaMalloc(&moisture_, sizeof(float) * kLayers * kPatches));
        CHECK(cudaMalloc(&draught_, sizeof(float) * kPatches));
        CHECK(cudaMalloc(&lost_, sizeof(float) * kPatches));
        load();
    }
    void load() {
        fill<<<kPatches / 256, 256>>>(temperature_, moisture_, draught_, lost_, kPatches);
        CHECK(cudaGetLastError());
    }
    void advance(int position) {
        float along = float(position) / 400.0f;
        Oven oven{235.0f - 30.0f * along, 9000.0f - 5000.0f * along, 28.0f + 10.0f * along};
        bake<<<kPatches / 128, 128>>>(temperature_, moisture_, draught_, lost_, oven, kPatches);
        CHECK(cudaGetLastError());
    }
    double mean(const float* field) const {
        std::vector<float> host(kPatches);
        CHECK(cudaMemcpy(host.data(), field, sizeof(float) * kPatches, cudaMemcpyDeviceToHost));
        double sum = 0.0;
        for (float v : host) sum += v;
        return sum / kPatches;
    }
    const float* crust() const { return temperature_; }
    const float* crumb() const { return temperature_ + size_t(kLayers - 1) * kPatches; }
    const float* lost() const { return lost_; }

private:
    float *temperature_, *moisture_, *draught_, *lost_;
};

int main() {
    Tunnel tunnel;
    const int warmup = 60, blocks = 12, per_block = 20;
    int position = 0;
    for (int i = 0; i < warmup; ++i) tunnel.advance(position++);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) tunnel.advance(position++);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);
    std::printf("{\"program\": \"cuda_bread_crust\", \"steps\": %d, \"us\": %.3f, \"result\": [%.5f, %.5f, %.6f]}\n",
                position, median, tunnel.mean(tunnel.crust()), tunnel.mean(tunnel.crumb()), tunnel.mean(tunnel.lost()));
    return 0;
}
