// Spectrum monitoring of a ground station: recorded IQ samples (16 bit) pass
// a channel filter on the GPU and come back as the envelope of the channel.
#include <algorithm>
#include <chrono>
#include <cmath>
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

constexpr int TAPS = 64;
constexpr int THREADS = 256;
constexpr int CHUNK = 2 << 20;          // samples of a chunk
constexpr int CHUNKS = 12;              // chunks of a step
constexpr int EDGE = TAPS;              // samples kept from the chunk before
constexpr int SLOTS = 4;
constexpr int WARMUP = 5, BLOCKS = 6, BLOCK = 4;

__constant__ float2 taps[TAPS];

__global__ void __launch_bounds__(THREADS)
channel_envelope(const short2* __restrict__ iq, float* __restrict__ envelope)
{
    __shared__ float2 part[THREADS + TAPS];
    const int first = blockIdx.x * THREADS;
    for (int i = threadIdx.x; i < THREADS + TAPS; i += THREADS) {
        short2 v = iq[first + i];
        part[i] = make_float2(v.x * (1.0f / 32768.0f), v.y * (1.0f / 32768.0f));
    }
    __syncthreads();
    float re = 0.0f, im = 0.0f;
#pragma unroll 16
    for (int k = 0; k < TAPS; ++k) {
        float2 x = part[threadIdx.x + TAPS - k];
        float2 h = taps[k];
        re += x.x * h.x - x.y * h.y;
        im += x.x * h.y + x.y * h.x;
    }
    envelope[first + threadIdx.x] = sqrtf(re * re + im * im);
}

struct Slot {
    short2* iq;
    float* envelope;
    cudaStream_t stream;
};

// A channel at 0.12 of the sampling rate, Hann-windowed.
static void design_filter()
{
    std::vector<float2> h(TAPS);
    for (int k = 0; k < TAPS; ++k) {
        double w = 0.5 - 0.5 * cos(2 * M_PI * (k + 0.5) / TAPS);
        double phase = 2 * M_PI * 0.12 * k;
        h[k] = make_float2((float)(w * cos(phase) / TAPS * 2), (float)(w * sin(phase) / TAPS * 2));
    }
    CHECK(cudaMemcpyToSymbol(taps, h.data(), TAPS * sizeof(float2)));
}

// Carrier in the channel, keyed on and off, in noise.
static void record(short2* iq, size_t n)
{
    unsigned state = 12345u;
    double turn_re = cos(2 * M_PI * 0.12), turn_im = sin(2 * M_PI * 0.12), re = 1, im = 0;
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        float a = (i / 5000) % 3 ? 9000.0f : 1500.0f;
        iq[i].x = (short)(a * re + ((state >> 8) & 0xfff) - 2048);
        iq[i].y = (short)(a * im + ((state >> 20) & 0xfff) - 2048);
        double t = re * turn_re - im * turn_im;
        im = re * turn_im + im * turn_re;
        re = t;
    }
}

static void step(const short2* recording, float* result, const Slot* slots)
{
    for (int c = 0; c < CHUNKS; ++c) {
        const Slot& s = slots[c % SLOTS];
        CHECK(cudaMemcpyAsync(s.iq, recording + (size_t)c * CHUNK,
                              (CHUNK + EDGE) * sizeof(short2), cudaMemcpyHostToDevice, s.stream));
        channel_envelope<<<CHUNK / THREADS, THREADS, 0, s.stream>>>(s.iq, s.envelope);
        CHECK(cudaMemcpyAsync(result + (size_t)c * CHUNK, s.envelope, CHUNK * sizeof(float),
                              cudaMemcpyDeviceToHost, s.stream));
    }
    CHECK(cudaGetLastError());
}

int main()
{
    const size_t n = (size_t)CHUNK * CHUNKS;
    short2* recording;
    float* result;
    CHECK(cudaMallocHost(&recording, (n + EDGE) * sizeof(short2)));
    CHECK(cudaMallocHost(&result, n * sizeof(float)));
    record(recording, n + EDGE);
    design_filter();
    Slot slots[SLOTS];
    for (Slot& s : slots) {
        CHECK(cudaMalloc(&s.iq, (CHUNK + EDGE) * sizeof(short2)));
        CHECK(cudaMalloc(&s.envelope, CHUNK * sizeof(float)));
        CHECK(cudaStreamCreateWithFlags(&s.stream, cudaStreamNonBlocking));
    }
    CHECK(cudaDeviceSynchronize());

    for (int k = 0; k < WARMUP; ++k)
        step(recording, result, slots);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto begin = std::chrono::steady_clock::now();
        for (int k = 0; k < BLOCK; ++k)
            step(recording, result, slots);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> d = std::chrono::steady_clock::now() - begin;
        times.push_back(d.count() / BLOCK);
    }
    std::sort(times.begin(), times.end());

    double total = 0, keyed = 0;
    for (size_t i = 0; i < n; i += 7) {
        total += result[i];
        keyed += result[i] > 0.15f;
    }
    total /= n / 7;
    keyed /= n / 7;
    printf("mean envelope %.4f, channel in use %.1f %%\n", total, 100 * keyed);
    printf("{\"program\": \"cuda_iq_monitor\", \"steps\": %d, \"us\": %.2f, "
           "\"result\": [%.7g, %.7g]}\n",
           WARMUP + BLOCKS * BLOCK, times[times.size() / 2], total, keyed);
    return 0;
}
