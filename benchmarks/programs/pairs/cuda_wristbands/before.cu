// Pulse from optical wristbands: removes the baseline and filters the light curve of every band of
// a study, then matches it with templates of the pulse wave, one recording session a step.
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

constexpr int kBands = 98304;      // wristbands, side by side in memory
constexpr int kSamples = 2048;     // of a session
constexpr int kSessions = 3;
constexpr int kTaps = 16;
constexpr int kTemplates = 8;
constexpr int kWindow = 256;
constexpr int kWindows = kSamples / kWindow;

struct PulseFilter {
    float baseline_rate, b0, b1, b2, a1, a2, spike;
};

__constant__ float c_templates[kTemplates][kTaps];

__global__ void __launch_bounds__(256) filter_light(const float* light, float* pulse, PulseFilter f) {
    int band = blockIdx.x * blockDim.x + threadIdx.x;
    float baseline = light[band], s1 = 0.0f, s2 = 0.0f, spread = 0.1f;
    for (int t = 0; t < kSamples; ++t) {
        float value = light[size_t(t) * kBands + band];
        float x = value - baseline;
        x = fminf(fmaxf(x, -f.spike * spread), f.spike * spread);
        baseline = fmaf(f.baseline_rate, x, baseline);
        spread = fmaf(f.baseline_rate, fabsf(x) - spread, spread) + 1e-5f;
        float y = fmaf(f.b0, x, s1);
        s1 = fmaf(f.b1, x, fmaf(-f.a1, y, s2));
        s2 = fmaf(f.b2, x, -f.a2 * y);
        pulse[size_t(t) * kBands + band] = y;
    }
}

// Best squared correlation of each window with any template.
__global__ void __launch_bounds__(256) match_templates(const float* __restrict__ pulse, float* __restrict__ best) {
    int band = blockIdx.x * blockDim.x + threadIdx.x, window = blockIdx.y;
    const float* source = pulse + size_t(window) * kWindow * kBands + band;
    float ring[kTaps], top = 0.0f;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) ring[k] = 0.0f;
    for (int base = 0; base < kWindow; base += kTaps) {
        float fresh[kTaps];
#pragma unroll
        for (int k = 0; k < kTaps; ++k) fresh[k] = source[size_t(base + k) * kBands];
#pragma unroll
        for (int k = 0; k < kTaps; ++k) {
            ring[k] = fresh[k];
            float sum[kTemplates];
#pragma unroll
            for (int m = 0; m < kTemplates; ++m) sum[m] = 0.0f;
#pragma unroll
            for (int j = 0; j < kTaps; ++j)
#pragma unroll
                for (int m = 0; m < kTemplates; ++m) sum[m] = fmaf(c_templates[m][j], ring[(k + 1 + j) % kTaps], sum[m]);
#pragma unroll
            for (int m = 0; m < kTemplates; ++m) top = fmaxf(top, sum[m] * sum[m]);
        }
    }
    best[size_t(window) * kBands + band] = top;
}

__global__ void record(float* light, int session) {
    int band = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t state = (band + 1) * 2654435761u + session * 40503u;
    float phase = (state >> 8) * (6.2831853f / 16777216.0f), rate = 0.05f + 0.03f * ((state >> 4) & 255) / 255.0f;
    for (int t = 0; t < kSamples; ++t) {
        state = state * 1664525u + 1013904223u;
        float noise = (state >> 8) * (1.0f / 16777216.0f) - 0.5f;
        float beat = sinf(fmaf(rate, float(t), phase));
        light[size_t(t) * kBands + band] = 2.0f + 0.3f * sinf(0.003f * t + phase) + 0.15f * beat * beat * beat + 0.05f * noise;
    }
}

class Study {
public:
    Study() {
        for (int s = 0; s < kSessions; ++s) {
            CHECK(cudaMalloc(&light_[s], sizeof(float) * kBands * kSamples));
            record<<<kBands / 256, 256>>>(light_[s], s);
        }
        CHECK(cudaMalloc(&pulse_, sizeof(float) * kBands * kSamples));
        CHECK(cudaMalloc(&best_, sizeof(float) * kBands * kWindows));
        float templates[kTemplates][kTaps];
        for (int m = 0; m < kTemplates; ++m)
            for (int j = 0; j < kTaps; ++j) {
                float a = (j + 0.5f) / kTaps, width = 0.10f + 0.03f * m;
                templates[m][j] = std::exp(-(a - 0.4f) * (a - 0.4f) / (width * width)) - 0.3f * a;
            }
        CHECK(cudaMemcpyToSymbol(c_templates, templates, sizeof(templates)));
        filter_ = PulseFilter{0.02f, 0.20f, 0.0f, -0.20f, -1.55f, 0.62f, 6.0f};
        CHECK(cudaGetLastError());
    }
    void analyse(int session) {
        filter_light<<<kBands / 256, 256>>>(light_[session % kSessions], pulse_, filter_);
        match_templates<<<dim3(kBands / 256, kWindows), 256>>>(pulse_, best_);
        CHECK(cudaGetLastError());
    }
    void summary(double& mean, double& highest) const {
        std::vector<float> host(size_t(kBands) * kWindows);
        CHECK(cudaMemcpy(host.data(), best_, sizeof(float) * host.size(), cudaMemcpyDeviceToHost));
        mean = highest = 0.0;
        for (float v : host) {
            mean += v / host.size();
            highest = std::max(highest, double(v));
        }
    }

private:
    float *light_[kSessions], *pulse_, *best_;
    PulseFilter filter_;
};

int main() {
    Study study;
    const int warmup = 30, blocks = 12, per_block = 30;
    int session = 0;
    for (int i = 0; i < warmup; ++i) study.analyse(session++);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) study.analyse(session++);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]), mean, highest;
    study.summary(mean, highest);
    std::printf("{\"program\": \"cuda_wristbands\", \"steps\": %d, \"us\": %.3f, \"result\": [%.7f, %.6f]}\n", session, median,
                mean, highest);
    return 0;
}
