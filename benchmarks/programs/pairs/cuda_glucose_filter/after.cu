// Smoothing of continuous glucose monitor records.
//
// A study holds two days of five-minute readings of each participant-session.
// Every session is smoothed with a double exponential filter (level and trend)
// and the time spent outside of the target range is accumulated.  The filter
// constants are varied from run to run to find those of the clinic's device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t status_ = (call);                                        \
        if (status_ != cudaSuccess) {                                        \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,           \
                         cudaGetErrorString(status_));                       \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

static const char *NAME = "cuda_glucose_filter";
constexpr int SESSIONS = 262144;
constexpr int READINGS = 576;
constexpr int THREADS = 256;
constexpr int WARMUP = 6;
constexpr int BLOCKS = 8;
constexpr int PER_BLOCK = 4;

// Place of one reading in the study's array.
__host__ __device__ inline size_t at(int session, int reading)
{
    return (size_t)reading * SESSIONS + session;
}

__device__ inline unsigned hash(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

// Meals, sleep and sensor noise of a synthetic participant.
__global__ void simulate(float *glucose)
{
    int session = blockIdx.x * blockDim.x + threadIdx.x;
    if (session >= SESSIONS) return;
    float base = 90.0f + (hash(session) & 63);
    float meal = 0.0f;
    for (int k = 0; k < READINGS; ++k) {
        unsigned r = hash(session * 769u + k * 2654435761u);
        if ((r & 63u) == 0) meal += 60.0f;
        meal *= 0.97f;
        float noise = ((r >> 8) & 1023) * (12.0f / 1023.0f) - 6.0f;
        glucose[at(session, k)] = base + meal + noise;
    }
}

// One thread follows one session through its readings.
__global__ void __launch_bounds__(THREADS)
smooth(const float *__restrict__ glucose, float *__restrict__ smoothed,
       float *__restrict__ outside, float alpha, float beta)
{
    int session = blockIdx.x * blockDim.x + threadIdx.x;
    if (session >= SESSIONS) return;
    float level = glucose[at(session, 0)];
    float trend = 0.0f;
    float excess = 0.0f;
#pragma unroll 8
    for (int k = 0; k < READINGS; ++k) {
        float reading = glucose[at(session, k)];
        float previous = level;
        level = alpha * reading + (1.0f - alpha) * (level + trend);
        trend = beta * (level - previous) + (1.0f - beta) * trend;
        excess += fmaxf(level - 180.0f, 0.0f) + fmaxf(70.0f - level, 0.0f);
        smoothed[at(session, k)] = level;
    }
    outside[session] = excess * (5.0f / 60.0f);
}

struct Study {
    float *glucose;
    float *smoothed;
    float *outside;
};

static void run_filter(const Study &study, int step)
{
    float alpha = 0.20f + 0.002f * step;
    float beta = 0.05f;
    smooth<<<(SESSIONS + THREADS - 1) / THREADS, THREADS>>>(
        study.glucose, study.smoothed, study.outside, alpha, beta);
    CHECK(cudaGetLastError());
}

int main()
{
    Study study;
    size_t bytes = (size_t)SESSIONS * READINGS * sizeof(float);
    CHECK(cudaMalloc(&study.glucose, bytes));
    CHECK(cudaMalloc(&study.smoothed, bytes));
    CHECK(cudaMalloc(&study.outside, SESSIONS * sizeof(float)));
    simulate<<<(SESSIONS + THREADS - 1) / THREADS, THREADS>>>(study.glucose);
    CHECK(cudaGetLastError());

    int steps = 0;
    for (int i = 0; i < WARMUP; ++i) run_filter(study, steps++);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i) run_filter(study, steps++);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        times.push_back(took.count() / PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    std::vector<float> outside(SESSIONS);
    CHECK(cudaMemcpy(outside.data(), study.outside, SESSIONS * sizeof(float),
                     cudaMemcpyDeviceToHost));
    double total = 0.0;
    for (float hours : outside) total += hours;
    float last = 0.0f;
    CHECK(cudaMemcpy(&last, study.smoothed + at(SESSIONS / 2, READINGS - 1), sizeof(float),
                     cudaMemcpyDeviceToHost));
    std::printf("{\"program\": \"%s\", \"steps\": %d, \"us\": %.3f, \"result\": [%.9g, %.9g]}\n",
                NAME, steps, median, total / SESSIONS, last);
    CHECK(cudaFree(study.glucose));
    CHECK(cudaFree(study.smoothed));
    CHECK(cudaFree(study.outside));
    return 0;
}
