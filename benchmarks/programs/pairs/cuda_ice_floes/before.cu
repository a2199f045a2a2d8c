// Drift of sea-ice floes: every floe is dragged by the surface current of its cell and by the wind,
// while the current itself relaxes under the wind stress of the day.
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

constexpr int kNx = 8192;
constexpr int kNy = 6144;
constexpr int kSide = 4096;               // floes along a side of the pack
constexpr int kFloes = kSide * kSide;
constexpr float kDt = 0.02f;

struct Floe {
    float x, y;            // in cells
    float thickness, length;
    float salinity, temperature;
    float snow, age;
    float u, v;            // in cells per unit time
    float spin, angle;
    float drag, albedo;
    float ridging, melt;
};

__device__ float hash_unit(uint32_t n) {
    n *= 2654435761u;
    n ^= n >> 15;
    n *= 2246822519u;
    n ^= n >> 13;
    return (n >> 8) * (1.0f / 16777216.0f);
}

__global__ void place_floes(Floe* floes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kFloes) return;
    Floe f;
    f.x = (kNx - kSide) / 2 + i % kSide + hash_unit(i);
    f.y = (kNy - kSide) / 2 + i / kSide + hash_unit(i + 0x40000000u);
    f.thickness = 0.5f + 2.5f * hash_unit(i + 0x80000000u);
    f.length = 20.0f + 100.0f * hash_unit(i + 0x90000000u);
    f.salinity = 5.0f;
    f.temperature = -4.0f;
    f.snow = 0.2f;
    f.age = 1.0f;
    f.u = f.v = 0.0f;
    f.spin = f.angle = 0.0f;
    f.drag = 0.8f + 0.4f * hash_unit(i + 0xa0000000u);
    f.albedo = 0.7f;
    f.ridging = f.melt = 0.0f;
    floes[i] = f;
}

__global__ void start_current(float2* current, float2* stress) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    size_t c = size_t(y) * kNx + x;
    float a = 6.2831853f * x / kNx, b = 6.2831853f * y / kNy;
    current[c] = make_float2(0.4f * sinf(3.0f * b) + 0.1f * hash_unit(c), 0.3f * cosf(2.0f * a));
    stress[c] = make_float2(0.2f * cosf(a + b), 0.2f * sinf(a - 2.0f * b));
}

__global__ void __launch_bounds__(256) relax_current(const float2* __restrict__ now, const float2* __restrict__ stress,
                                                     float2* __restrict__ next, float wind) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    int west = x ? x - 1 : kNx - 1, east = x + 1 < kNx ? x + 1 : 0;
    int south = y ? y - 1 : 0, north = y + 1 < kNy ? y + 1 : kNy - 1;
    size_t row = size_t(y) * kNx;
    float2 c = now[row + x], w = now[row + west], e = now[row + east];
    float2 s = now[size_t(south) * kNx + x], n = now[size_t(north) * kNx + x], t = stress[row + x];
    float lu = w.x + e.x + s.x + n.x - 4.0f * c.x, lv = w.y + e.y + s.y + n.y - 4.0f * c.y;
    next[row + x] = make_float2(c.x + kDt * (5.0f * lu + wind * t.x + 0.1f * c.y - 0.02f * c.x),
                                c.y + kDt * (5.0f * lv + wind * t.y - 0.1f * c.x - 0.02f * c.y));
}

__global__ void __launch_bounds__(256) drift(Floe* __restrict__ floes, const float2* __restrict__ current, float wind) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kFloes) return;
    float x = floes[i].x, y = floes[i].y;
    float u = floes[i].u, v = floes[i].v;
    float thickness = floes[i].thickness, drag = floes[i].drag;
    int cx = min(max(int(x), 0), kNx - 1), cy = min(max(int(y), 0), kNy - 1);
    float2 water = current[size_t(cy) * kNx + cx];
    float du = water.x - u, dv = water.y - v;
    float pull = drag * (0.5f + sqrtf(du * du + dv * dv)) / thickness;
    u += kDt * (pull * du + 0.1f * v + 0.02f * wind / thickness);
    v += kDt * (pull * dv - 0.1f * u);
    floes[i].u = u;
    floes[i].v = v;
    floes[i].x = fminf(fmaxf(x + kDt * u, 0.0f), kNx - 1.0f);
    floes[i].y = fminf(fmaxf(y + kDt * v, 0.0f), kNy - 1.0f);
}

class IcePack {
public:
    IcePack() {
        CHECK(cudaMalloc(&floes_, sizeof(Floe) * kFloes));
        for (float2*& c : current_) CHECK(cudaMalloc(&c, sizeof(float2) * kNx * kNy));
        CHECK(cudaMalloc(&stress_, sizeof(float2) * kNx * kNy));
        place_floes<<<kFloes / 256, 256>>>(floes_);
        start_current<<<dim3(kNx / 256, kNy), 256>>>(current_[0], stress_);
        CHECK(cudaGetLastError());
    }
    void advance(int step) {
        float wind = 1.0f + 0.5f * std::sin(0.01f * step);
        relax_current<<<dim3(kNx / 256, kNy), 256>>>(current_[0], stress_, current_[1], wind);
        std::swap(current_[0], current_[1]);
        drift<<<kFloes / 256, 256>>>(floes_, current_[0], wind);
        CHECK(cudaGetLastError());
    }
    // Mean position and speed of the pack, from a band in its middle.
    void summary(double& x, double& y, double& speed) const {
        const int count = kFloes / 16;
        std::vector<Floe> host(count);
        CHECK(cudaMemcpy(host.data(), floes_ + kFloes / 2, sizeof(Floe) * count, cudaMemcpyDeviceToHost));
        x = y = speed = 0.0;
        for (const Floe& f : host) {
            x += f.x / count;
            y += f.y / count;
            speed += std::sqrt(f.u * f.u + f.v * f.v) / count;
        }
    }

private:
    Floe* floes_;
    float2 *current_[2], *stress_;
};

int main() {
    IcePack pack;
    const int warmup = 60, blocks = 12, per_block = 50;
    int step = 0;
    for (int i = 0; i < warmup; ++i) pack.advance(step++);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) pack.advance(step++);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);
    double x, y, speed;
    pack.summary(x, y, speed);
    std::printf("{\"program\": \"cuda_ice_floes\", \"steps\": %d, \"us\": %.3f, \"result\": [%.4f, %.4f, %.6f]}\n", step, median,
                x, y, speed);
    return 0;
}
