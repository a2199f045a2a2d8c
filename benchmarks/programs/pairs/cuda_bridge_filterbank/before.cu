// Modal energy of a long-span bridge: FIR band-pass filters over many fibre-optic
// strain channels, one thread a channel, and the band energy of each half second.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
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

constexpr int CHANNELS = 262144;
constexpr int SAMPLES = 256;            // per record, 64 Hz
constexpr int FRAME = 32;               // half a second
constexpr int TAPS = 32;
constexpr int BANDS = 6;
constexpr int THREADS = 256;
constexpr int WARMUP = 5, BLOCKS = 6, PER_BLOCK = 4;

__constant__ float c_taps[BANDS][TAPS];

// record: [sample][channel]; energy: [frame][channel] of one band
__global__ void __launch_bounds__(THREADS)
band_energy(const float *__restrict__ record, float *__restrict__ energy, int band)
{
    const int ch = blockIdx.x * THREADS + threadIdx.x;
    float line[TAPS];                   // delay line
    for (int k = 0; k < TAPS; ++k) line[k] = 0.0f;

    int head = 0;
    for (int frame = 0; frame < SAMPLES / FRAME; ++frame) {
        float sum = 0.0f;
        for (int j = 0; j < FRAME; ++j) {
            line[head] = record[(size_t)(frame * FRAME + j) * CHANNELS + ch];
            float y = 0.0f;
            for (int k = 0; k < TAPS; ++k)
                y = fmaf(c_taps[band][k], line[(head - k) & (TAPS - 1)], y);
            sum = fmaf(y, y, sum);
            head = (head + 1) & (TAPS - 1);
        }
        energy[(size_t)frame * CHANNELS + ch] = sum / FRAME;
    }
}

// Running average of the band energies over records.
__global__ void average(const float *__restrict__ energy, float *__restrict__ mean, float rate, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) mean[i] += rate * (energy[i] - mean[i]);
}

__global__ void synthesise(float *record)
{
    const int ch = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned state = 747796405u * (ch + 1) + 2891336453u;
    const float f1 = 0.05f + 0.2f * (ch % 97) / 97.0f, f2 = 0.6f + 0.3f * (ch % 31) / 31.0f;
    for (int t = 0; t < SAMPLES; ++t) {
        state = state * 1664525u + 1013904223u;
        const float noise = (state >> 8) * (1.0f / 16777216.0f) - 0.5f;
        record[(size_t)t * CHANNELS + ch] = sinf(f1 * t) + 0.5f * sinf(f2 * t + 0.1f) + 0.2f * noise;
    }
}

static void design(float taps[BANDS][TAPS])
{
    const double pi = 3.14159265358979;
    for (int b = 0; b < BANDS; ++b) {
        const double lo = 0.02 + 0.06 * b, hi = lo + 0.08;      // cycles per sample
        for (int k = 0; k < TAPS; ++k) {
            const double m = k - 0.5 * (TAPS - 1);
            const double w = 0.54 - 0.46 * std::cos(2 * pi * k / (TAPS - 1));
            taps[b][k] = float(w * (std::sin(2 * pi * hi * m) - std::sin(2 * pi * lo * m)) / (pi * m));
        }
    }
}

int main()
{
    float taps[BANDS][TAPS];
    design(taps);
    CHECK(cudaMemcpyToSymbol(c_taps, taps, sizeof(taps)));

    const int frames = SAMPLES / FRAME;
    const size_t per_band = (size_t)frames * CHANNELS;
    float *record, *energy, *mean;
    CHECK(cudaMalloc(&record, (size_t)SAMPLES * CHANNELS * sizeof(float)));
    CHECK(cudaMalloc(&energy, BANDS * per_band * sizeof(float)));
    CHECK(cudaMalloc(&mean, BANDS * per_band * sizeof(float)));
    CHECK(cudaMemset(mean, 0, BANDS * per_band * sizeof(float)));
    synthesise<<<CHANNELS / THREADS, THREADS>>>(record);
    CHECK(cudaGetLastError());

    const int n = int(BANDS * per_band);
    int step = 0;
    auto process = [&]() {
        for (int b = 0; b < BANDS; ++b)
            band_energy<<<CHANNELS / THREADS, THREADS>>>(record, energy + b * per_band, b);
        average<<<(n + 255) / 256, 256>>>(energy, mean, 0.1f, n);
        CHECK(cudaGetLastError());
        ++step;
    };

    for (int i = 0; i < WARMUP; ++i) process();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        const auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i) process();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> dt = std::chrono::steady_clock::now() - t0;
        times.push_back(dt.count() / PER_BLOCK);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> host(n);
    CHECK(cudaMemcpy(host.data(), mean, (size_t)n * sizeof(float), cudaMemcpyDeviceToHost));
    double low = 0.0, high = 0.0;
    for (size_t i = 0; i < per_band; ++i) {
        low += host[i];
        high += host[(BANDS - 1) * per_band + i];
    }
    std::printf("{\"program\": \"cuda_bridge_filterbank\", \"steps\": %d, \"us\": %.1f, \"result\": [%.7g, %.7g]}\n",
                step, times[times.size() / 2], low / per_band, high / per_band);
    cudaFree(record); cudaFree(energy); cudaFree(mean);
    return 0;
}
