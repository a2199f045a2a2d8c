// Reflectance transformation of a carved stone: a robust surface polynomial per pixel from photographs under known lamps.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                       \
    do {                                                                                  \
        cudaError_t status_ = (call);                                                     \
        if (status_ != cudaSuccess) {                                                     \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (0)

constexpr int kWidth = 1280;
constexpr int kHeight = 960;
constexpr int kPixels = kWidth * kHeight;
constexpr int kLamps = 48;
constexpr int kMaxTerms = 9;
constexpr int kTerms = 6;          // biquadratic polynomial; 4 or 9 for hemispherical harmonics
constexpr int kRounds = 3;         // reweighting rounds
constexpr int kViews = 24;         // relit views per step
constexpr int kThreads = 128;
constexpr int kPlates = 2;

__constant__ float c_basis[kLamps * kMaxTerms];
__constant__ float c_view[kViews * kMaxTerms];

__host__ __device__ inline void lamp_basis(float u, float v, float* basis) {
    basis[0] = 1.0f;
    basis[1] = u;
    basis[2] = v;
    basis[3] = u * v;
    basis[4] = u * u;
    basis[5] = v * v;
}

// Solves the packed symmetric system in place (Cholesky); the answer replaces rhs.
template <int terms>
__device__ __forceinline__ void solve_packed(float (&normal)[terms * (terms + 1) / 2], float (&rhs)[terms]) {
#pragma unroll
    for (int j = 0; j < terms; ++j) {
#pragma unroll
        for (int i = j; i < terms; ++i) {
            float sum = normal[i * (i + 1) / 2 + j];
#pragma unroll
            for (int k = 0; k < j; ++k) sum -= normal[i * (i + 1) / 2 + k] * normal[j * (j + 1) / 2 + k];
            if (i == j)
                normal[i * (i + 1) / 2 + j] = rsqrtf(sum);
            else
                normal[i * (i + 1) / 2 + j] = sum * normal[j * (j + 1) / 2 + j];
        }
    }
#pragma unroll
    for (int i = 0; i < terms; ++i) {
        float sum = rhs[i];
#pragma unroll
        for (int k = 0; k < i; ++k) sum -= normal[i * (i + 1) / 2 + k] * rhs[k];
        rhs[i] = sum * normal[i * (i + 1) / 2 + i];
    }
#pragma unroll
    for (int i = terms - 1; i >= 0; --i) {
        float sum = rhs[i];
#pragma unroll
        for (int k = i + 1; k < terms; ++k) sum -= normal[k * (k + 1) / 2 + i] * rhs[k];
        rhs[i] = sum * normal[i * (i + 1) / 2 + i];
    }
}

// Iteratively reweighted least squares: shadows and highlights lose their weight.
template <int terms>
__global__ void fit_surface(const float* photos, float* coefficients) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= kPixels) return;
    float normal[terms * (terms + 1) / 2];
    float rhs[terms];
    float fitted[terms];
#pragma unroll
    for (int i = 0; i < terms; ++i) fitted[i] = 0.0f;
    fitted[0] = 0.5f;
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
        for (int i = 0; i < terms; ++i) {
            rhs[i] = 0.0f;
#pragma unroll
            for (int j = 0; j <= i; ++j) normal[i * (i + 1) / 2 + j] = i == j ? 1e-3f : 0.0f;
        }
        float scale = round == 0 ? 0.0f : 60.0f * round;
        for (int lamp = 0; lamp < kLamps; ++lamp) {
            const float* basis = c_basis + lamp * kMaxTerms;
            float seen = photos[size_t(lamp) * kPixels + p];
            float expected = 0.0f;
#pragma unroll
            for (int i = 0; i < terms; ++i) expected = fmaf(fitted[i], basis[i], expected);
            float misfit = scale * (seen - expected);
            float weight = __fdividef(1.0f, fmaf(misfit, misfit, 1.0f));
#pragma unroll
            for (int i = 0; i < terms; ++i) {
                float weighted = weight * basis[i];
                rhs[i] = fmaf(weighted, seen, rhs[i]);
#pragma unroll
                for (int j = 0; j <= i; ++j)
                    normal[i * (i + 1) / 2 + j] = fmaf(weighted, basis[j], normal[i * (i + 1) / 2 + j]);
            }
        }
        solve_packed<terms>(normal, rhs);
#pragma unroll
        for (int i = 0; i < terms; ++i) fitted[i] = rhs[i];
    }
#pragma unroll
    for (int i = 0; i < terms; ++i) coefficients[size_t(i) * kPixels + p] = fitted[i];
}

// Raw counts to reflectance with the lamp's own flat field.
__global__ void calibrate(const uint16_t* raw, const float* flat, float* photos) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= kPixels) return;
    float gain = (1.0f / 40000.0f) / flat[p];
#pragma unroll 8
    for (int lamp = 0; lamp < kLamps; ++lamp)
        photos[size_t(lamp) * kPixels + p] = gain * float(raw[size_t(lamp) * kPixels + p]);
}

// The stone under lamps that were never there.
__global__ void relight(const float* coefficients, float* views) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= kPixels) return;
    float c[6];
#pragma unroll
    for (int i = 0; i < 6; ++i) c[i] = coefficients[size_t(i) * kPixels + p];
#pragma unroll 4
    for (int v = 0; v < kViews; ++v) {
        float light = 0.0f;
#pragma unroll
        for (int i = 0; i < 6; ++i) light = fmaf(c[i], c_view[v * kMaxTerms + i], light);
        views[size_t(v) * kPixels + p] = fminf(fmaxf(light, 0.0f), 1.0f);
    }
}

static float next_uniform(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) * (1.0f / 16777216.0f);
}

static void lamp_dome(float* basis, int count, float radius) {
    for (int l = 0; l < count; ++l) {
        float r = radius * std::sqrt((l + 0.5f) / count), turn = 2.39996323f * l;
        lamp_basis(r * std::cos(turn), r * std::sin(turn), basis + l * kMaxTerms);
    }
}

static void photograph(std::vector<uint16_t>& raw, const float* basis, int plate) {
    uint32_t state = 4711u + 13u * plate;
    for (int p = 0; p < kPixels; ++p) {
        float relief = 0.3f * std::sin(0.05f * (p % kWidth) + plate), slope = 0.3f * std::cos(0.04f * (p / kWidth));
        float truth[6] = {0.55f, relief, slope, 0.1f * relief * slope, -0.15f, -0.12f};
        for (int l = 0; l < kLamps; ++l) {
            float light = 0.0f;
            for (int i = 0; i < 6; ++i) light += truth[i] * basis[l * kMaxTerms + i];
            float chance = next_uniform(state);
            if (chance < 0.08f) light *= 0.2f;
            if (chance > 0.95f) light += 0.5f;
            light += 0.02f * (chance - 0.5f);
            raw[size_t(l) * kPixels + p] = uint16_t(std::min(std::max(light * 40000.0f, 0.0f), 65535.0f));
        }
    }
}

int main() {
    std::vector<float> basis(kLamps * kMaxTerms, 0.0f), view(kViews * kMaxTerms, 0.0f);
    lamp_dome(basis.data(), kLamps, 0.9f);
    lamp_dome(view.data(), kViews, 0.7f);
    CHECK(cudaMemcpyToSymbol(c_basis, basis.data(), sizeof(float) * basis.size()));
    CHECK(cudaMemcpyToSymbol(c_view, view.data(), sizeof(float) * view.size()));

    uint16_t* raw[kPlates];
    std::vector<uint16_t> shot(size_t(kLamps) * kPixels);
    for (int plate = 0; plate < kPlates; ++plate) {
        photograph(shot, basis.data(), plate);
        CHECK(cudaMalloc(&raw[plate], sizeof(uint16_t) * shot.size()));
        CHECK(cudaMemcpy(raw[plate], shot.data(), sizeof(uint16_t) * shot.size(), cudaMemcpyHostToDevice));
    }
    std::vector<float> vignette(kPixels);
    for (int p = 0; p < kPixels; ++p) vignette[p] = 1.0f - 0.1f * std::fabs(float(p % kWidth) / kWidth - 0.5f);
    float *flat, *photos, *coefficients, *views;
    CHECK(cudaMalloc(&flat, sizeof(float) * kPixels));
    CHECK(cudaMemcpy(flat, vignette.data(), sizeof(float) * kPixels, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&photos, sizeof(float) * kPixels * kLamps));
    CHECK(cudaMalloc(&coefficients, sizeof(float) * kPixels * kMaxTerms));
    CHECK(cudaMalloc(&views, sizeof(float) * kPixels * kViews));

    int steps = 0;
    const int grid = (kPixels + kThreads - 1) / kThreads;
    auto process = [&]() {
        calibrate<<<grid, kThreads>>>(raw[steps++ % kPlates], flat, photos);
        fit_surface<kTerms><<<grid, kThreads>>>(photos, coefficients);
        relight<<<grid, kThreads>>>(coefficients, views);
        CHECK(cudaGetLastError());
    };
    for (int i = 0; i < 20; ++i) process();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    const int blocks = 12, per_block = 20;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) process();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    std::vector<float> host(size_t(kPixels) * kViews);
    CHECK(cudaMemcpy(host.data(), views, sizeof(float) * host.size(), cudaMemcpyDeviceToHost));
    double mean = 0.0, square = 0.0;
    for (float x : host) mean += x, square += double(x) * x;
    mean /= host.size();
    double spread = std::sqrt(square / host.size() - mean * mean);
    std::printf("{\"program\": \"cuda_relief_lighting\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f]}\n",
                steps, median, mean, spread);
    return 0;
}
