// Period search for variable stars: floating-mean periodograms of survey light curves.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                      \
    do {                                                                                 \
        cudaError_t status = (call);                                                     \
        if (status != cudaSuccess) {                                                     \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));         \
            std::exit(1);                                                                \
        }                                                                                \
    } while (0)

constexpr int STARS = 16;
constexpr int EPOCHS = 2048;
constexpr int FREQUENCIES = 65536;
constexpr int TILE = 512;
constexpr float F_MIN = 0.02f;
constexpr float F_STEP = 1.0e-4f;
constexpr int WARMUP = 4, BLOCKS = 8, STEPS_PER_BLOCK = 5;

// Weighted mean of the magnitudes of a star removed, weights normalised to one.
__global__ void standardise(const float* __restrict__ magnitude, const float* __restrict__ error,
                            float* __restrict__ residual, float* __restrict__ weight) {
    __shared__ float sums[2][256];
    const int star = blockIdx.x;
    const int t = threadIdx.x;
    float w = 0.0f, wm = 0.0f;
    for (int e = t; e < EPOCHS; e += blockDim.x) {
        const float sigma = error[star * EPOCHS + e];
        const float v = 1.0f / (sigma * sigma);
        w += v;
        wm += v * magnitude[star * EPOCHS + e];
    }
    sums[0][t] = w;
    sums[1][t] = wm;
    __syncthreads();
    for (int half = 128; half > 0; half >>= 1) {
        if (t < half) {
            sums[0][t] += sums[0][t + half];
            sums[1][t] += sums[1][t + half];
        }
        __syncthreads();
    }
    const float total = sums[0][0];
    const float mean = sums[1][0] / total;
    for (int e = t; e < EPOCHS; e += blockDim.x) {
        const float sigma = error[star * EPOCHS + e];
        weight[star * EPOCHS + e] = 1.0f / (sigma * sigma * total);
        residual[star * EPOCHS + e] = magnitude[star * EPOCHS + e] - mean;
    }
}

__global__ void __launch_bounds__(512) periodogram(const float* __restrict__ time, const float* __restrict__ residual,
                                                    const float* __restrict__ weight, float* __restrict__ power) {
    __shared__ float tt[TILE], ww[TILE], wy[TILE];
    const int star = blockIdx.y;
    const float* starTime = time + star * EPOCHS;
    const float* starResidual = residual + star * EPOCHS;
    const float* starWeight = weight + star * EPOCHS;
    for (int f = blockIdx.x * blockDim.x + threadIdx.x; f < FREQUENCIES; f += gridDim.x * blockDim.x) {
        const float frequency = F_MIN + F_STEP * f;
        float c = 0.0f, s = 0.0f, yc = 0.0f, ys = 0.0f, cc = 0.0f, cs = 0.0f, yy = 0.0f;
        for (int base = 0; base < EPOCHS; base += TILE) {
            __syncthreads();
            for (int e = threadIdx.x; e < TILE; e += blockDim.x) {
                tt[e] = starTime[base + e];
                ww[e] = starWeight[base + e];
                wy[e] = starResidual[base + e];
            }
            __syncthreads();
#pragma unroll 8
            for (int e = 0; e < TILE; ++e) {
                float phase = tt[e] * frequency;
                phase -= floorf(phase);
                float sine, cosine;
                __sincosf(6.2831853f * phase, &sine, &cosine);
                const float w = ww[e], y = wy[e];
                const float wc = w * cosine, ws = w * sine;
                c += wc;
                s += ws;
                yc += y * wc;
                ys += y * ws;
                cc += wc * cosine;
                cs += wc * sine;
                yy += w * y * y;
            }
        }
        const float ss = 1.0f - cc - s * s;
        const float c2 = cc - c * c, cross = cs - c * s;
        const float det = c2 * ss - cross * cross;
        power[star * FREQUENCIES + f] =
            (ss * yc * yc + c2 * ys * ys - 2.0f * cross * yc * ys) / (yy * fmaxf(det, 1.0e-12f));
    }
}

__global__ void bestPeak(const float* __restrict__ power, float2* __restrict__ peak) {
    __shared__ float best[1024];
    __shared__ int where[1024];
    const int star = blockIdx.x;
    const int t = threadIdx.x;
    float top = -1.0f;
    int at = 0;
#pragma unroll 8
    for (int f = t; f < FREQUENCIES; f += 1024) {
        const float p = power[star * FREQUENCIES + f];
        if (p > top) {
            top = p;
            at = f;
        }
    }
    best[t] = top;
    where[t] = at;
    __syncthreads();
    for (int half = 512; half > 0; half >>= 1) {
        if (t < half && best[t + half] > best[t]) {
            best[t] = best[t + half];
            where[t] = where[t + half];
        }
        __syncthreads();
    }
    if (t == 0) peak[star] = make_float2(F_MIN + F_STEP * where[0], best[0]);
}

int main() {
    const int samples = STARS * EPOCHS;
    float *hostTime, *hostMagnitude, *hostError;
    float2* hostPeak;
    CHECK(cudaMallocHost(&hostTime, sizeof(float) * samples));
    CHECK(cudaMallocHost(&hostMagnitude, sizeof(float) * samples));
    CHECK(cudaMallocHost(&hostError, sizeof(float) * samples));
    CHECK(cudaMallocHost(&hostPeak, sizeof(float2) * STARS));
    std::mt19937 rng(2024);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (int star = 0; star < STARS; ++star) {
        const float frequency = 0.3f + 5.5f * uniform(rng), amplitude = 0.1f + 0.3f * uniform(rng);
        for (int e = 0; e < EPOCHS; ++e) {
            const int i = star * EPOCHS + e;
            hostTime[i] = 400.0f * uniform(rng);
            hostError[i] = 0.02f + 0.05f * uniform(rng);
            hostMagnitude[i] = 14.0f + amplitude * std::sin(6.2831853f * frequency * hostTime[i]) + hostError[i] * normal(rng);
        }
    }

    float *time, *magnitude, *error, *residual, *weight, *power;
    float2* peak;
    CHECK(cudaMalloc(&time, sizeof(float) * samples));
    CHECK(cudaMalloc(&magnitude, sizeof(float) * samples));
    CHECK(cudaMalloc(&error, sizeof(float) * samples));
    CHECK(cudaMalloc(&residual, sizeof(float) * samples));
    CHECK(cudaMalloc(&weight, sizeof(float) * samples));
    CHECK(cudaMalloc(&power, sizeof(float) * STARS * FREQUENCIES));
    CHECK(cudaMalloc(&peak, sizeof(float2) * STARS));

    auto searchField = [&]() {
        CHECK(cudaMemcpyAsync(time, hostTime, sizeof(float) * samples, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyAsync(magnitude, hostMagnitude, sizeof(float) * samples, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyAsync(error, hostError, sizeof(float) * samples, cudaMemcpyHostToDevice));
        standardise<<<STARS, 256>>>(magnitude, error, residual, weight);
        periodogram<<<dim3(FREQUENCIES / 512, STARS), 512>>>(time, residual, weight, power);
        bestPeak<<<STARS, 1024>>>(power, peak);
        CHECK(cudaMemcpyAsync(hostPeak, peak, sizeof(float2) * STARS, cudaMemcpyDeviceToHost));
    };

    for (int s = 0; s < WARMUP; ++s) searchField();
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        const auto begin = std::chrono::steady_clock::now();
        for (int s = 0; s < STEPS_PER_BLOCK; ++s) searchField();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
        times.push_back(spent.count() / STEPS_PER_BLOCK);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    const double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    double frequencySum = 0.0, powerSum = 0.0;
    for (int star = 0; star < STARS; ++star) {
        frequencySum += hostPeak[star].x;
        powerSum += hostPeak[star].y;
    }
    std::printf("{\"program\": \"cuda_variable_stars\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f, %.6f]}\n",
                WARMUP + BLOCKS * STEPS_PER_BLOCK, median, frequencySum, powerSum, hostPeak[0].x);
    return 0;
}
