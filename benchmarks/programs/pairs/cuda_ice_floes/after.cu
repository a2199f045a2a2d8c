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

struct Floes {
    float *x, *y;          // in cells
    float *thickness, *length;
    float *salinity, *temperature;
    float *snow, *age;
    float *u, *v;          // in cells per unit time
    float *spin, *angle;
    float *drag, *albedo;
    float *ridging, *melt;
};

__device__ float hash_unit(uint32_t n) {
    n *= 2654435761u;
    n ^= n >> 15;
    n *= 2246822519u;
    n ^= n >> 13;
    return (n >> 8) * (1.0f / 16777216.0f);
}

__global__ void place_floes(Floes f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kFloes) return;
    f.x[i] = (kNx - kSide) / 2 + i % kSide + hash_unit(i);
    f.y[i] = (kNy - kSide) / 2 + i / kSide + hash_unit(i + 0x40000000u);
    f.thickness[i] = 0.5f + 2.5f * hash_unit(i + 0x80000000u);
    f.length[i] = 20.0f + 100.0f * hash_unit(i + 0x90000000u);
    f.salinity[i] = 5.0f;
    f.temperature[i] = -4.0f;
    f.snow[i] = 0.2f;
    f.age[i] = 1.0f;
    f.u[i] = f.v[i] = 0.0f;
    f.spin[i] = f.angle[i] = 0.0f;
    f.drag[i] = 0.8f + 0.4f * hash_unit(i + 0xa0000000u);
    f.albedo[i] = 0.7f;
    f.ridging[i] = f.melt[i] = 0.0f;
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

__global__ void __launch_bounds__(256) drift(Floes floes, const float2* __restrict__ current, float wind) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kFloes) return;
    float x = floes.x[i], y = floes.y[i];
    float u = floes.u[i], v = floes.v[i];
    float thickness = floes.thickness[i], drag = floes.drag[i];
    int cx = min(max(int(x), 0), kNx - 1), cy = min(max(int(y), 0), kNy - 1);
    float2 water = current[size_t(cy) * kNx + cx];
    float du = water.x - u, dv = water.y - v;
    float pull = drag * (0.5f + sqrtf(du * du + dv * dv)) / thickness;
    u += kDt * (pull * du + 0.1f * v + 0.02f * wind / thickness);
    v += kDt * (pull * dv - 0.1f * u);
    floes.u[i] = u;
    floes.v[i] = v;
    floes.x[i] = fminf(fmaxf(x + kDt * u, 0.0f), kNx - 1.0f);
    floes.y[i] = fminf(fmaxf(y + kDt * v, 0.0f), kNy - 1.0f);
}

class IcePack {
public:
    IcePack() {
        for (float** field : {&floes_.x, &floes_.y, &floes_.thickness, &floes_.length, &floes_.salinity, &floes_.temperature,
                              &floes_.snow, &floes_.age, &floes_.u, &floes_.v, &floes_.spin, &floes_.angle, &floes_.drag,
                              &floes_.albedo, &floes_.ridging, &floes_.melt})
            CHECK(cudaMalloc(field, sizeof(float) * kFloes));
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
        auto fetch = [&](const float* field) {
            std::vector<float> host(count);
            CHECK(cudaMemcpy(host.data(), field + kFloes / 2, sizeof(float) * count, cudaMemcpyDeviceToHost));
            return host;
        };
        std::vector<float> hx = fetch(floes_.x), hy = fetch(floes_.y), hu = fetch(floes_.u), hv = fetch(floes_.v);
        x = y = speed = 0.0;
        for (int i = 0; i < count; ++i) {
            x += hx[i] / count;
            y += hy[i] / count;
            speed += std::sqrt(hu[i] * hu[i] + hv[i] * hv[i]) / count;
        }
    }

private:
    Floes floes_;
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
