// Robust harmonic regression of vegetation index series, one fit a pixel, reweighted round after round.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t status = (call);                                                    \
        if (status != cudaSuccess) {                                                    \
            std::fprintf(stderr, "%s line %d\n", cudaGetErrorString(status), __LINE__); \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

constexpr int MAX_DATES = 64;
constexpr int MAX_TERMS = 10;
constexpr int WARMUP = 5;
constexpr int BLOCK_STEPS = 8;
constexpr int BLOCKS = 8;

__constant__ float basis[MAX_DATES * MAX_TERMS];

__device__ float hash01(unsigned int x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return (x >> 8) * (1.0f / 16777216.0f);
}

__global__ void synthesise(float* series, float* quality, float* weights, int pixels, int dates, int terms) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    float level = 0.4f + 0.2f * hash01(p);
    float swing = 0.1f + 0.2f * hash01(p + 77777777u);
    for (int t = 0; t < dates; ++t) {
        unsigned int key = static_cast<unsigned int>(t) * 2654435761u + p * 40503u;
        float season = basis[t * terms + 2] * swing + basis[t * terms + 3] * 0.5f * swing;
        float noise = 0.06f * (hash01(key) + hash01(key + 1u) - 1.0f);
        float cloud = hash01(key + 2u) < 0.12f ? -0.35f : 0.0f;
        size_t at = static_cast<size_t>(t) * pixels + p;
        series[at] = level + season + noise + cloud;
        quality[at] = 0.5f + 0.5f * hash01(key + 3u);
        weights[at] = quality[at];
    }
}

template <int terms>
__global__ void fit_pixels(const float* __restrict__ series, const float* __restrict__ weights,
                           float* __restrict__ coefficients, int pixels, int dates) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    float normal[terms][terms];
    float right[terms];
#pragma unroll
    for (int i = 0; i < terms; ++i) {
        right[i] = 0.0f;
#pragma unroll
        for (int j = 0; j <= i; ++j) normal[i][j] = i == j ? 1e-3f : 0.0f;
    }
    for (int t = 0; t < dates; ++t) {
        size_t at = static_cast<size_t>(t) * pixels + p;
        float w = weights[at];
        float y = series[at];
#pragma unroll
        for (int i = 0; i < terms; ++i) {
            float wb = w * basis[t * terms + i];
            right[i] += wb * y;
#pragma unroll
            for (int j = 0; j <= i; ++j) normal[i][j] += wb * basis[t * terms + j];
        }
    }
#pragma unroll
    for (int i = 0; i < terms; ++i) {
#pragma unroll
        for (int j = 0; j <= i; ++j) {
            float sum = normal[i][j];
#pragma unroll
            for (int k = 0; k < j; ++k) sum -= normal[i][k] * normal[j][k];
            normal[i][j] = i == j ? rsqrtf(sum) : sum * normal[j][j];
        }
        float sum = right[i];
#pragma unroll
        for (int k = 0; k < i; ++k) sum -= normal[i][k] * right[k];
        right[i] = sum * normal[i][i];
    }
#pragma unroll
    for (int i = terms - 1; i >= 0; --i) {
        float sum = right[i];
#pragma unroll
        for (int k = i + 1; k < terms; ++k) sum -= normal[k][i] * right[k];
        right[i] = sum * normal[i][i];
    }
#pragma unroll
    for (int i = 0; i < terms; ++i) coefficients[static_cast<size_t>(i) * pixels + p] = right[i];
}

template <int terms>
__global__ void reweight(const float* __restrict__ series, const float* __restrict__ quality,
                         const float* __restrict__ coefficients, float* __restrict__ weights,
                         float* __restrict__ misfit, int pixels, int dates, float threshold) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    float c[terms];
#pragma unroll
    for (int i = 0; i < terms; ++i) c[i] = coefficients[static_cast<size_t>(i) * pixels + p];
    float total = 0.0f;
    for (int t = 0; t < dates; ++t) {
        size_t at = static_cast<size_t>(t) * pixels + p;
        float model = 0.0f;
#pragma unroll
        for (int i = 0; i < terms; ++i) model += c[i] * basis[t * terms + i];
        float off = fabsf(series[at] - model);
        float q = quality[at];
        float factor = off > threshold ? threshold / off : 1.0f;
        weights[at] = q * factor;
        total += q * factor * off * off;
    }
    misfit[p] = total;
}

int main() {
    const int pixels = 1024 * 1024;
    const int dates = 48;
    constexpr int terms = 8;
    std::vector<float> table(MAX_DATES * MAX_TERMS, 0.0f);
    for (int t = 0; t < dates; ++t) {
        double year = 2.0 * (t + 0.3 * std::sin(1.7 * t)) / dates;
        table[t * terms + 0] = 1.0f;
        table[t * terms + 1] = static_cast<float>(year - 1.0);
        for (int h = 1; h <= 3; ++h) {
            table[t * terms + 2 * h] = static_cast<float>(std::cos(2.0 * M_PI * h * year));
            table[t * terms + 2 * h + 1] = static_cast<float>(std::sin(2.0 * M_PI * h * year));
        }
    }
    CHECK(cudaMemcpyToSymbol(basis, table.data(), table.size() * sizeof(float)));

    float *series, *quality, *weights, *coefficients, *misfit;
    const size_t cube = static_cast<size_t>(pixels) * dates * sizeof(float);
    CHECK(cudaMalloc(&series, cube));
    CHECK(cudaMalloc(&quality, cube));
    CHECK(cudaMalloc(&weights, cube));
    CHECK(cudaMalloc(&coefficients, static_cast<size_t>(pixels) * terms * sizeof(float)));
    CHECK(cudaMalloc(&misfit, pixels * sizeof(float)));
    const int threads = 128;
    const int grid = (pixels + threads - 1) / threads;
    synthesise<<<grid, threads>>>(series, quality, weights, pixels, dates, terms);
    CHECK(cudaGetLastError());

    auto step = [&]() {
        fit_pixels<terms><<<grid, threads>>>(series, weights, coefficients, pixels, dates);
        reweight<terms><<<grid, threads>>>(series, quality, coefficients, weights, misfit, pixels, dates, 0.05f);
    };
    int steps = 0;
    for (; steps < WARMUP; ++steps) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int s = 0; s < BLOCK_STEPS; ++s, ++steps) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        times.push_back(spent.count() / BLOCK_STEPS);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    std::vector<float> fitted(static_cast<size_t>(pixels) * terms), left(pixels);
    CHECK(cudaMemcpy(fitted.data(), coefficients, fitted.size() * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(left.data(), misfit, left.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double level = 0.0, swing = 0.0, rest = 0.0;
    for (int p = 0; p < pixels; ++p) {
        level += fitted[p];
        swing += fitted[2 * static_cast<size_t>(pixels) + p];
        rest += left[p];
    }
    std::printf("{\"program\": \"cuda_phenology\", \"steps\": %d, \"us\": %.3f, \"result\": [%.7g, %.7g, %.7g]}\n",
                steps, median, level / pixels, swing / pixels, rest / pixels);
    return 0;
}
