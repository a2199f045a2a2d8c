// Apple bloom model on a climate grid.
//
// Every cell runs a chilling and forcing model through one season of daily mean
// temperatures. The daily bud stage is kept for the frost assessment that follows.
// Each step evaluates one candidate parameter set of the calibration.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) {                                            \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,               \
                         cudaGetErrorString(status_));                           \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int kCells = 524288;
constexpr int kDays = 300;
constexpr int kThreads = 256;

constexpr int kWarmup = 10;
constexpr int kBlocks = 10;
constexpr int kStepsPerBlock = 10;

struct Candidate {
    float chill_need;
    float base;
    float forcing_need;
};

__host__ __device__ inline size_t at(int cell, int day) {
    return size_t(cell) * kDays + day;
}

__device__ inline float noise(unsigned int key) {
    key ^= key >> 16;
    key *= 0x7feb352dU;
    key ^= key >> 15;
    key *= 0x846ca68bU;
    key ^= key >> 16;
    return float(key >> 8) * (1.0f / 16777216.0f) - 0.5f;
}

__global__ void make_season(float *temperature, unsigned int seed) {
    const int cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= kCells) return;
    const float site = 9.0f + 6.0f * noise(seed + cell);
    const float swing = 9.0f + 3.0f * noise(seed + kCells + cell);
    for (int day = 0; day < kDays; ++day) {
        const float season = cosf(6.2831853f * (day - 100) / 365.0f);
        const unsigned int key = seed + 2u * kCells + unsigned(cell) * kDays + day;
        temperature[at(cell, day)] = site - swing * season + 6.0f * noise(key);
    }
}

__global__ void bud_development(const float *__restrict__ temperature,
                                float *__restrict__ stage, float *__restrict__ frost_loss,
                                Candidate c) {
    const int cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= kCells) return;
    float chill = 0.0f;
    float forcing = 0.0f;
    float loss = 0.0f;
    for (int day = 0; day < kDays; ++day) {
        const float t = temperature[at(cell, day)];
        const float distance = (t - 6.0f) * 0.125f;
        chill += fmaxf(0.0f, 1.0f - distance * distance);
        const float released = __saturatef((chill - c.chill_need) * 0.1f);
        forcing += released * fmaxf(0.0f, t - c.base);
        const float bud = 1.0f - __expf(-forcing / c.forcing_need);
        loss += bud * fmaxf(0.0f, -1.5f - t);
        stage[at(cell, day)] = bud;
    }
    frost_loss[cell] = loss;
}

int main() {
    const size_t values = size_t(kCells) * kDays;
    float *d_temperature, *d_stage, *d_loss;
    CHECK(cudaMalloc(&d_temperature, values * sizeof(float)));
    CHECK(cudaMalloc(&d_stage, values * sizeof(float)));
    CHECK(cudaMalloc(&d_loss, kCells * sizeof(float)));

    const int grid = (kCells + kThreads - 1) / kThreads;
    make_season<<<grid, kThreads>>>(d_temperature, 90210u);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    int trial = 0;
    auto step = [&]() {
        Candidate c;
        c.chill_need = 45.0f + 1.5f * (trial % 10);
        c.base = 4.0f + 0.1f * (trial % 7);
        c.forcing_need = 150.0f + 5.0f * (trial % 5);
        bud_development<<<grid, kThreads>>>(d_temperature, d_stage, d_loss, c);
        ++trial;
    };

    for (int i = 0; i < kWarmup; ++i) step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < kBlocks; ++b) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kStepsPerBlock; ++i) step();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> spent =
            std::chrono::steady_clock::now() - begin;
        times.push_back(spent.count() / kStepsPerBlock);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());

    std::vector<float> loss(kCells), stage(values);
    CHECK(cudaMemcpy(loss.data(), d_loss, kCells * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(stage.data(), d_stage, values * sizeof(float), cudaMemcpyDeviceToHost));
    double loss_sum = 0.0, spring = 0.0, last = 0.0;
    for (int cell = 0; cell < kCells; ++cell) {
        loss_sum += loss[cell];
        spring += stage[at(cell, 190)];
        last += stage[at(cell, kDays - 1)];
    }
    std::printf("{\"program\": \"cuda_apple_bloom\", \"steps\": %d, \"us\": %.3f, "
                "\"result\": [%.8g, %.8g, %.8g]}\n",
                kWarmup + kBlocks * kStepsPerBlock, times[times.size() / 2],
                loss_sum / kCells, spring / kCells, last / kCells);
    CHECK(cudaFree(d_temperature));
    CHECK(cudaFree(d_stage));
    CHECK(cudaFree(d_loss));
    return 0;
}
