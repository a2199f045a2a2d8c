// Fluorescence lifetime images: a mosaic of tiles comes from a gated camera; each pixel has photon
// counts in 16 time gates. For each pixel the amplitude and the decay rate of one exponential are fitted.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        cudaError_t err_ = (call);                                                         \
        if (err_ != cudaSuccess) {                                                         \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_));   \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

constexpr int GATES = 16;
constexpr int TILES = 12;
constexpr int TILE_PIXELS = 512 * 1024;
constexpr int ITERATIONS = 30;
constexpr int SLOTS = 3;
constexpr int WARMUP = 10;
constexpr int BLOCKS = 10;
constexpr int STEPS_PER_BLOCK = 10;

__constant__ float gate_time[GATES];

__global__ void __launch_bounds__(256) fit_decay(const uint16_t* __restrict__ counts, float2* __restrict__ fit,
                                                 int pixels) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;

    float y[GATES];
    float total = 0.0f, moment = 0.0f;
#pragma unroll
    for (int g = 0; g < GATES; ++g) {
        y[g] = static_cast<float>(counts[static_cast<size_t>(g) * pixels + p]);
        total += y[g];
        moment += y[g] * gate_time[g];
    }
    float rate = fminf(fmaxf(total / (moment + 1.0f), 0.1f), 4.0f);
    float amp = y[0] + 1.0f;

    for (int it = 0; it < ITERATIONS; ++it) {
        float see = 0.0f, sed = 0.0f, sdd = 0.0f, be = 0.0f, bd = 0.0f;
#pragma unroll
        for (int g = 0; g < GATES; ++g) {
            float e = __expf(-rate * gate_time[g]);
            float d = gate_time[g] * e;
            float r = y[g] - amp * e;
            see += e * e;
            sed += e * d;
            sdd += d * d;
            be += e * r;
            bd += d * r;
        }
        float a12 = -amp * sed;
        float a22 = amp * amp * sdd * 1.02f + 1e-3f;
        float b2 = -amp * bd;
        float det = see * a22 - a12 * a12 + 1e-6f;
        float inv = __fdividef(1.0f, det);
        float damp = (be * a22 - b2 * a12) * inv;
        float drate = (see * b2 - a12 * be) * inv;
        amp = fmaxf(amp + 0.8f * damp, 1.0f);
        rate = fminf(fmaxf(rate + 0.8f * fminf(fmaxf(drate, -0.3f), 0.3f), 0.05f), 6.0f);
    }
    fit[p] = make_float2(amp, rate);
}

static void make_mosaic(uint16_t* counts, const float* times) {
    uint32_t state = 90210u;
    for (int t = 0; t < TILES; ++t) {
        uint16_t* tile = counts + static_cast<size_t>(t) * GATES * TILE_PIXELS;
        std::vector<float> decay(64 * GATES);
        for (int k = 0; k < 64; ++k)
            for (int g = 0; g < GATES; ++g)
                decay[k * GATES + g] = std::exp(-(0.25f + 0.02f * k + 0.01f * t) * times[g]);
        for (int g = 0; g < GATES; ++g) {
            for (int p = 0; p < TILE_PIXELS; ++p) {
                state = state * 1664525u + 1013904223u;
                int kind = (p >> 6) & 63;
                float bright = 300.0f + static_cast<float>((p * 37) & 1023);
                float mean = bright * decay[kind * GATES + g];
                float noise = (static_cast<float>(state >> 8) * (1.0f / 16777216.0f) - 0.5f) * 0.2f * mean;
                tile[static_cast<size_t>(g) * TILE_PIXELS + p] = static_cast<uint16_t>(mean + noise + 0.5f);
            }
        }
    }
}

struct Fitter {
    cudaStream_t stream[SLOTS];
    uint16_t* counts[SLOTS];
    float2* fit[SLOTS];
};

static void fit_mosaic(Fitter& f, const uint16_t* host_counts, float2* host_fit) {
    const size_t in_values = static_cast<size_t>(GATES) * TILE_PIXELS;
    for (int t = 0; t < TILES; ++t) {
        const int k = t % SLOTS;
        CHECK(cudaMemcpyAsync(f.counts[k], host_counts + t * in_values, in_values * sizeof(uint16_t),
                              cudaMemcpyHostToDevice, f.stream[k]));
        fit_decay<<<(TILE_PIXELS + 255) / 256, 256, 0, f.stream[k]>>>(f.counts[k], f.fit[k], TILE_PIXELS);
        CHECK(cudaMemcpyAsync(host_fit + static_cast<size_t>(t) * TILE_PIXELS, f.fit[k],
                              TILE_PIXELS * sizeof(float2), cudaMemcpyDeviceToHost, f.stream[k]));
    }
    CHECK(cudaGetLastError());
}

int main() {
    float times[GATES];
    for (int g = 0; g < GATES; ++g) times[g] = 0.15f * g + 0.012f * g * g;
    CHECK(cudaMemcpyToSymbol(gate_time, times, sizeof(times)));

    const size_t in_values = static_cast<size_t>(GATES) * TILE_PIXELS;
    const size_t pixels = static_cast<size_t>(TILES) * TILE_PIXELS;
    uint16_t* host_counts;
    float2* host_fit;
    CHECK(cudaMallocHost(&host_counts, TILES * in_values * sizeof(uint16_t)));
    CHECK(cudaMallocHost(&host_fit, pixels * sizeof(float2)));
    make_mosaic(host_counts, times);

    Fitter f;
    for (int k = 0; k < SLOTS; ++k) {
        CHECK(cudaStreamCreateWithFlags(&f.stream[k], cudaStreamNonBlocking));
        CHECK(cudaMalloc(&f.counts[k], in_values * sizeof(uint16_t)));
        CHECK(cudaMalloc(&f.fit[k], TILE_PIXELS * sizeof(float2)));
    }

    for (int i = 0; i < WARMUP; ++i) fit_mosaic(f, host_counts, host_fit);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> us;
    int steps = WARMUP;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int s = 0; s < STEPS_PER_BLOCK; ++s) fit_mosaic(f, host_counts, host_fit);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> span = std::chrono::steady_clock::now() - start;
        us.push_back(span.count() / STEPS_PER_BLOCK);
        steps += STEPS_PER_BLOCK;
    }
    std::sort(us.begin(), us.end());
    double median = 0.5 * (us[(us.size() - 1) / 2] + us[us.size() / 2]);

    double amp = 0.0, rate = 0.0, square = 0.0;
    for (size_t p = 0; p < pixels; ++p) {
        amp += host_fit[p].x;
        rate += host_fit[p].y;
        square += static_cast<double>(host_fit[p].y) * host_fit[p].y;
    }
    printf("{\"program\": \"cuda_flim_tiles\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.8f, %.8f]}\n", steps,
           median, amp / pixels, rate / pixels, std::sqrt(square / pixels));
    return 0;
}
