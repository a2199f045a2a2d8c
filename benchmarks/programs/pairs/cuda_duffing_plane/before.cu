// Largest Lyapunov exponent of the forced Duffing oscillator over a plane of damping and forcing.
// One oscillator and its tangent vector per thread; one call advances the plane by one forcing period.
#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cmath>
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

constexpr int kWidth = 2048;
constexpr int kHeight = 2048;
constexpr int kOscillators = kWidth * kHeight;
constexpr int kSubsteps = 400;
constexpr float kOmega = 1.2f;

__constant__ float c_drive[2 * kSubsteps + 2];  // cos(omega t) at whole and half substeps

struct State {
    float x, v, dx, dv;
};

__device__ __forceinline__ State slope(const State& s, float damping, float force) {
    float xx = s.x * s.x;
    State r;
    r.x = s.v;
    r.v = fmaf(-damping, s.v, fmaf(s.x, 1.0f - xx, force));
    r.dx = s.dv;
    r.dv = fmaf(-damping, s.dv, s.dx * fmaf(-3.0f, xx, 1.0f));
    return r;
}

__device__ __forceinline__ State moved(const State& s, const State& k, float h) {
    return {fmaf(h, k.x, s.x), fmaf(h, k.v, s.v), fmaf(h, k.dx, s.dx), fmaf(h, k.dv, s.dv)};
}

__global__ void __launch_bounds__(256) advance_period(float4* __restrict__ states, float* __restrict__ growth, float h) {
    int id = blockIdx.x * blockDim.x + threadIdx.x;
    int column = id & (kWidth - 1);
    int row = id / kWidth;
    float damping = 0.10f + 0.40f * column / kWidth;
    float forcing = 0.20f + 0.40f * row / kHeight;
    float4 packed = states[id];
    State s = {packed.x, packed.y, packed.z, packed.w};
    const float half = 0.5f * h, sixth = h / 6.0f;
#pragma unroll 4
    for (int n = 0; n < kSubsteps; ++n) {
        float early = forcing * c_drive[2 * n];
        float middle = forcing * c_drive[2 * n + 1];
        float late = forcing * c_drive[2 * n + 2];
        State k1 = slope(s, damping, early);
        State k2 = slope(moved(s, k1, half), damping, middle);
        State k3 = slope(moved(s, k2, half), damping, middle);
        State k4 = slope(moved(s, k3, h), damping, late);
        s.x = fmaf(sixth, fmaf(2.0f, k2.x + k3.x, k1.x + k4.x), s.x);
        s.v = fmaf(sixth, fmaf(2.0f, k2.v + k3.v, k1.v + k4.v), s.v);
        s.dx = fmaf(sixth, fmaf(2.0f, k2.dx + k3.dx, k1.dx + k4.dx), s.dx);
        s.dv = fmaf(sixth, fmaf(2.0f, k2.dv + k3.dv, k1.dv + k4.dv), s.dv);
    }
    float length = sqrtf(s.dx * s.dx + s.dv * s.dv);
    growth[id] += logf(length);
    states[id] = make_float4(s.x, s.v, s.dx / length, s.dv / length);
}

__global__ void __launch_bounds__(256) chaotic_share(const float* __restrict__ growth, float* __restrict__ partial) {
    __shared__ float warp_sum[8];
    float sum = 0.0f;
    for (int id = blockIdx.x * blockDim.x + threadIdx.x; id < kOscillators; id += gridDim.x * blockDim.x)
        sum += growth[id] > 0.0f ? 1.0f : 0.0f;
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, offset);
    if ((threadIdx.x & 31) == 0) warp_sum[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) sum += warp_sum[w];
        partial[blockIdx.x] = sum;
    }
}

int main() {
    const double period = 2.0 * 3.14159265358979 / kOmega;
    const float h = float(period / kSubsteps);
    std::vector<float> drive(2 * kSubsteps + 2);
    for (size_t i = 0; i < drive.size(); ++i) drive[i] = float(std::cos(3.14159265358979 * double(i) / kSubsteps));
    CHECK(cudaMemcpyToSymbol(c_drive, drive.data(), drive.size() * sizeof(float)));

    std::vector<float4> start_states(kOscillators);
    unsigned seed = 5u;
    for (auto& s : start_states) {
        seed = seed * 1664525u + 1013904223u;
        s = make_float4(1.0f + 0.01f * ((seed >> 8) / 16777216.0f), 0.0f, 1.0f, 0.0f);
    }

    const int partial_blocks = 132 * 8;
    float4* states;
    float *growth, *partial;
    CHECK(cudaMalloc(&states, sizeof(float4) * kOscillators));
    CHECK(cudaMalloc(&growth, sizeof(float) * kOscillators));
    CHECK(cudaMalloc(&partial, sizeof(float) * partial_blocks));
    CHECK(cudaMemcpy(states, start_states.data(), sizeof(float4) * kOscillators, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(growth, 0, sizeof(float) * kOscillators));

    auto advance = [&]() {
        advance_period<<<kOscillators / 256, 256>>>(states, growth, h);
        chaotic_share<<<partial_blocks, 256>>>(growth, partial);
    };

    const int warmup = 500, blocks = 10, per_block = 10;
    for (int i = 0; i < warmup; ++i) advance();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) advance();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    std::vector<float> sums(partial_blocks);
    CHECK(cudaMemcpy(sums.data(), partial, sizeof(float) * partial_blocks, cudaMemcpyDeviceToHost));
    std::vector<float> exponents(kOscillators);
    CHECK(cudaMemcpy(exponents.data(), growth, sizeof(float) * kOscillators, cudaMemcpyDeviceToHost));
    double share = 0.0, mean = 0.0;
    for (float s : sums) share += s;
    for (float e : exponents) mean += e;
    const int steps = warmup + blocks * per_block;
    std::printf("{\"program\": \"cuda_duffing_plane\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f]}\n",
                steps, median, share / kOscillators, mean / kOscillators / (steps * period));
    CHECK(cudaFree(states));
    CHECK(cudaFree(growth));
    CHECK(cudaFree(partial));
    return 0;
}
