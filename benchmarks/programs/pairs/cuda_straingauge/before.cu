// Decimation filter of a distributed strain-sensing fibre.
//
// The interrogator delivers frames [time][channel]; each channel is low-passed with a
// 32-tap linear-phase filter and every sample's strain rate is written together with a
// running peak per channel.  One step handles one block of frames for the whole fibre.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t err_ = (call);                                                   \
        if (err_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_)); \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int kChannels = 1 << 18;
constexpr int kFrames = 768;
constexpr int kTaps = 32;
constexpr int kWarmup = 6, kBlocks = 8, kPerBlock = 5;

__constant__ float c_taps[kTaps];

__device__ __forceinline__ unsigned mix(unsigned v) {
    v ^= v >> 16; v *= 0x7feb352dU;
    v ^= v >> 15; v *= 0x846ca68bU;
    return v ^ (v >> 16);
}

// Synthetic frames: a travelling wave per channel and the noise of the laser.
__global__ void fillFrames(float* frames) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    int t = blockIdx.y;
    float noise = mix(t * 2654435761U + channel) * (1.0f / 4294967296.0f) - 0.5f;
    float wave = __sinf(0.05f * t - 0.0007f * (channel & 8191));
    frames[size_t(t) * kChannels + channel] = wave + 0.3f * noise;
}

__global__ void filterFibre(const float* __restrict__ frames, float* __restrict__ rate,
                            float* __restrict__ peak) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel >= kChannels) return;

    float history[kTaps];
    for (int k = 0; k < kTaps; ++k) history[k] = 0.0f;

    float previous = 0.0f;
    float highest = peak[channel];
    int head = 0;
    for (int t = 0; t < kFrames; ++t) {
        history[head] = frames[size_t(t) * kChannels + channel];
        float smooth = 0.0f;
#pragma unroll
        for (int k = 0; k < kTaps; ++k)
            smooth = fmaf(c_taps[k], history[(head - k) & (kTaps - 1)], smooth);
        float now = smooth - previous;
        previous = smooth;
        highest = fmaxf(highest, fabsf(now));
        rate[size_t(t) * kChannels + channel] = now;
        head = (head + 1) & (kTaps - 1);
    }
    peak[channel] = highest;
}

static std::vector<float> designTaps() {
    std::vector<float> taps(kTaps);
    double sum = 0.0;
    for (int k = 0; k < kTaps; ++k) {
        double x = k - 0.5 * (kTaps - 1);
        double sinc = std::sin(0.2 * M_PI * x) / (M_PI * x);
        double hann = 0.5 - 0.5 * std::cos(2.0 * M_PI * (k + 0.5) / kTaps);
        taps[k] = float(sinc * hann);
        sum += taps[k];
    }
    for (float& tap : taps) tap = float(tap / sum);
    return taps;
}

int main() {
    float *frames, *rate, *peak;
    size_t bytes = size_t(kFrames) * kChannels * sizeof(float);
    CHECK(cudaMalloc(&frames, bytes));
    CHECK(cudaMalloc(&rate, bytes));
    CHECK(cudaMalloc(&peak, kChannels * sizeof(float)));
    CHECK(cudaMemset(peak, 0, kChannels * sizeof(float)));
    std::vector<float> taps = designTaps();
    CHECK(cudaMemcpyToSymbol(c_taps, taps.data(), kTaps * sizeof(float)));
    fillFrames<<<dim3(kChannels / 256, kFrames), 256>>>(frames);
    CHECK(cudaGetLastError());

    auto step = [&] {
        filterFibre<<<kChannels / 256, 256>>>(frames, rate, peak);
        CHECK(cudaGetLastError());
    };

    int done = 0;
    for (int i = 0; i < kWarmup; ++i, ++done) step();
    CHECK(cudaDeviceSynchronize());

    std::vector<double> perStep;
    for (int b = 0; b < kBlocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kPerBlock; ++i, ++done) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        perStep.push_back(took.count() / kPerBlock);
    }
    std::sort(perStep.begin(), perStep.end());
    double us = 0.5 * (perStep[kBlocks / 2 - 1] + perStep[kBlocks / 2]);

    std::vector<float> peaks(kChannels), last(kChannels);
    CHECK(cudaMemcpy(peaks.data(), peak, kChannels * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(last.data(), rate + size_t(kFrames - 1) * kChannels,
                     kChannels * sizeof(float), cudaMemcpyDeviceToHost));
    double meanPeak = 0.0, power = 0.0;
    for (int c = 0; c < kChannels; ++c) {
        meanPeak += peaks[c];
        power += double(last[c]) * last[c];
    }
    std::printf("%d channels, %d frames a block\n", kChannels, kFrames);
    std::printf("{\"program\": \"cuda_straingauge\", \"steps\": %d, \"us\": %.3f, \"result\": [%.8g, %.8g]}\n",
                done, us, meanPeak / kChannels, std::sqrt(power / kChannels));
    CHECK(cudaFree(frames));
    CHECK(cudaFree(rate));
    CHECK(cudaFree(peak));
    return 0;
}
