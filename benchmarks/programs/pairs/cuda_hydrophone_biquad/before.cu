// Recursive band filter over a hydrophone array: every channel has its own biquad,
// samples arrive as channel-major records and the filter state carries over.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>
#include <algorithm>
#include <chrono>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t err_ = (call);                                               \
        if (err_ != cudaSuccess) {                                               \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

constexpr int CHANNELS = 65536;
constexpr int SAMPLES = 8192;   // per record
constexpr int CH = 64;          // channels (and threads) of a block
constexpr int CHUNK = 64;       // samples staged at once
constexpr int PITCH = CHUNK;    // row of the staging tile
constexpr int WARMUP = 5, BLOCKS = 6, PER_BLOCK = 5;

struct Biquad {
    float b0, b1, b2, a1, a2;
};

__global__ void fill_records(float *x, size_t n, unsigned seed) {
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride) {
        unsigned h = (unsigned)i * 2654435761u + seed;
        h ^= h >> 16;
        h *= 2246822519u;
        h ^= h >> 13;
        h *= 3266489917u;
        h ^= h >> 16;
        x[i] = (float)h * (2.0f / 4294967296.0f) - 1.0f;
    }
}

// One thread owns one channel. The block loads a CH x CHUNK tile with whole rows
// per load, filters along the rows in place and writes the tile back the same way.
__global__ void __launch_bounds__(CH) filter_records(const float *__restrict__ in, float *__restrict__ out,
                                                     const Biquad *__restrict__ bank, float2 *state) {
    __shared__ float tile[CH * PITCH];
    const int tid = threadIdx.x;
    const int first = blockIdx.x * CH;
    const Biquad f = bank[first + tid];
    float2 z = state[first + tid];

    const float *src = in + (size_t)first * SAMPLES + tid;
    float *dst = out + (size_t)first * SAMPLES + tid;
    for (int t0 = 0; t0 < SAMPLES; t0 += CHUNK) {
#pragma unroll 16
        for (int row = 0; row < CH; ++row)
            tile[row * PITCH + tid] = src[(size_t)row * SAMPLES + t0];
        __syncthreads();

        float *mine = tile + tid * PITCH;
#pragma unroll 8
        for (int k = 0; k < CHUNK; ++k) {
            float x = mine[k];
            float y = fmaf(f.b0, x, z.x);
            z.x = fmaf(f.b1, x, fmaf(-f.a1, y, z.y));
            z.y = fmaf(f.b2, x, -f.a2 * y);
            mine[k] = y;
        }
        __syncthreads();

#pragma unroll 16
        for (int row = 0; row < CH; ++row)
            dst[(size_t)row * SAMPLES + t0] = tile[row * PITCH + tid];
        __syncthreads();
    }
    state[first + tid] = z;
}

static std::vector<Biquad> design_bank() {
    std::vector<Biquad> bank(CHANNELS);
    for (int c = 0; c < CHANNELS; ++c) {
        // Band pass, centre between 0.02 and 0.2 of the sample rate, Q between 0.7 and 2.
        float w = 6.2831853f * (0.02f + 0.18f * (c % 997) / 997.0f);
        float q = 0.7f + 1.3f * (c % 61) / 61.0f;
        float alpha = sinf(w) / (2.0f * q);
        float a0 = 1.0f + alpha;
        bank[c] = {alpha / a0, 0.0f, -alpha / a0, -2.0f * cosf(w) / a0, (1.0f - alpha) / a0};
    }
    return bank;
}

int main() {
    const size_t n = (size_t)CHANNELS * SAMPLES;
    float *in, *out;
    Biquad *bank;
    float2 *state;
    CHECK(cudaMalloc(&in, n * sizeof(float)));
    CHECK(cudaMalloc(&out, n * sizeof(float)));
    CHECK(cudaMalloc(&bank, CHANNELS * sizeof(Biquad)));
    CHECK(cudaMalloc(&state, CHANNELS * sizeof(float2)));
    std::vector<Biquad> host_bank = design_bank();
    CHECK(cudaMemcpy(bank, host_bank.data(), CHANNELS * sizeof(Biquad), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(state, 0, CHANNELS * sizeof(float2)));
    fill_records<<<4096, 256>>>(in, n, 12345u);
    CHECK(cudaGetLastError());

    int steps = 0;
    auto step = [&]() {
        filter_records<<<CHANNELS / CH, CH>>>(in, out, bank, state);
        ++steps;
    };
    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> us;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> d = std::chrono::steady_clock::now() - start;
        us.push_back(d.count() / PER_BLOCK);
    }
    std::sort(us.begin(), us.end());

    // Power of a few channels of the last record.
    double power[3] = {0, 0, 0};
    std::vector<float> record(SAMPLES);
    const int picks[3] = {7, 30001, CHANNELS - 2};
    for (int p = 0; p < 3; ++p) {
        CHECK(cudaMemcpy(record.data(), out + (size_t)picks[p] * SAMPLES, SAMPLES * sizeof(float),
                         cudaMemcpyDeviceToHost));
        for (float v : record) power[p] += (double)v * v / SAMPLES;
    }
    printf("{\"program\": \"cuda_hydrophone_biquad\", \"steps\": %d, \"us\": %.2f, \"result\": [%.8g, %.8g, %.8g]}\n",
           steps, us[us.size() / 2], power[0], power[1], power[2]);
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
    CHECK(cudaFree(bank));
    CHECK(cudaFree(state));
    return 0;
}
