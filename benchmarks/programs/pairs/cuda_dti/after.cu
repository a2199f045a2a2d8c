// Diffusion tensor fit: weighted log-linear least squares per voxel of a brain volume.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t status_ = (call);                                                 \
        if (status_ != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)

constexpr int DIRECTIONS = 32;
constexpr int TENSOR_TERMS = 7;   // log S0 and six tensor elements
constexpr int MAX_TERMS = 7;
constexpr int SLAB = 1 << 20;     // voxels of a slab
constexpr int SLABS = 6;
constexpr int WARMUP = 6, BLOCK = 5, BLOCKS = 8;

__constant__ float design[DIRECTIONS * MAX_TERMS];

__device__ unsigned scramble(unsigned x) {
    x ^= x >> 16; x *= 0x7feb352dU; x ^= x >> 15; x *= 0x846ca68bU; x ^= x >> 16;
    return x;
}

// Synthetic measurement: an axis-aligned tensor of random eigenvalues, some noise. Layout [direction][voxel].
__global__ void simulate(float* signal, int voxels, unsigned seed) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= voxels) return;
    unsigned r = scramble(v + seed * 0x9e3779b9U);
    float dx = 0.3f + 1.4f * (r & 1023) / 1023.0f;
    float dy = 0.3f + 0.9f * ((r >> 10) & 1023) / 1023.0f;
    float dz = 0.2f + 0.5f * ((r >> 20) & 1023) / 1023.0f;
    for (int k = 0; k < DIRECTIONS; ++k) {
        const float* row = design + k * TENSOR_TERMS;
        r = scramble(r + k);
        float noise = 1.0f + 0.04f * ((r & 0xffff) / 65535.0f - 0.5f);
        signal[(size_t)k * voxels + v] = noise * expf(6.0f + row[1] * dx + row[2] * dy + row[3] * dz);
    }
}

template <int terms>
__global__ void __launch_bounds__(128) fitVoxels(const float* __restrict__ signal, float* __restrict__ fitted,
                                                 int voxels) {
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= voxels) return;

    float normal[terms * terms];
    float rhs[terms];
    #pragma unroll
    for (int i = 0; i < terms; ++i) {
        rhs[i] = 0.0f;
        #pragma unroll
        for (int j = 0; j <= i; ++j) normal[i * terms + j] = 0.0f;
    }

    #pragma unroll 4
    for (int k = 0; k < DIRECTIONS; ++k) {
        float s = fmaxf(signal[(size_t)k * voxels + v], 1e-3f);
        float y = __logf(s);
        float w = s * s * 1e-4f;
        const float* row = design + k * terms;
        #pragma unroll
        for (int i = 0; i < terms; ++i) {
            float scaled = w * row[i];
            rhs[i] += scaled * y;
            #pragma unroll
            for (int j = 0; j <= i; ++j) normal[i * terms + j] += scaled * row[j];
        }
    }

    // Cholesky factor in place, then the two triangular solves
    #pragma unroll
    for (int j = 0; j < terms; ++j) {
        float pivot = normal[j * terms + j];
        #pragma unroll
        for (int m = 0; m < j; ++m) pivot -= normal[j * terms + m] * normal[j * terms + m];
        float inverse = rsqrtf(fmaxf(pivot, 1e-12f));
        normal[j * terms + j] = inverse;
        #pragma unroll
        for (int i = j + 1; i < terms; ++i) {
            float sum = normal[i * terms + j];
            #pragma unroll
            for (int m = 0; m < j; ++m) sum -= normal[i * terms + m] * normal[j * terms + m];
            normal[i * terms + j] = sum * inverse;
        }
    }
    #pragma unroll
    for (int i = 0; i < terms; ++i) {
        float sum = rhs[i];
        #pragma unroll
        for (int m = 0; m < i; ++m) sum -= normal[i * terms + m] * rhs[m];
        rhs[i] = sum * normal[i * terms + i];
    }
    #pragma unroll
    for (int i = terms - 1; i >= 0; --i) {
        float sum = rhs[i];
        #pragma unroll
        for (int m = i + 1; m < terms; ++m) sum -= normal[m * terms + i] * rhs[m];
        rhs[i] = sum * normal[i * terms + i];
    }
    #pragma unroll
    for (int i = 0; i < terms; ++i) fitted[(size_t)i * voxels + v] = rhs[i];
}

static void uploadDesign() {
    std::vector<float> rows(DIRECTIONS * TENSOR_TERMS);
    for (int k = 0; k < DIRECTIONS; ++k) {
        double z = 1.0 - (2.0 * k + 1.0) / DIRECTIONS, angle = 2.399963 * k;
        double r = std::sqrt(1.0 - z * z), gx = r * std::cos(angle), gy = r * std::sin(angle);
        double b = k % 8 == 0 ? 0.0 : 1.0;   // every eighth image is unweighted
        double values[TENSOR_TERMS] = {1.0, -b * gx * gx, -b * gy * gy, -b * z * z,
                                       -2 * b * gx * gy, -2 * b * gx * z, -2 * b * gy * z};
        for (int i = 0; i < TENSOR_TERMS; ++i) rows[k * TENSOR_TERMS + i] = (float)values[i];
    }
    CHECK(cudaMemcpyToSymbol(design, rows.data(), rows.size() * sizeof(float)));
}

static void fitVolume(const float* signal, float* fitted) {
    for (int s = 0; s < SLABS; ++s) {
        fitVoxels<TENSOR_TERMS><<<SLAB / 128, 128>>>(signal + (size_t)s * SLAB * DIRECTIONS,
                                       fitted + (size_t)s * SLAB * TENSOR_TERMS, SLAB);
        CHECK(cudaGetLastError());
    }
}

int main() {
    uploadDesign();
    float *signal, *fitted;
    CHECK(cudaMalloc(&signal, sizeof(float) * (size_t)SLABS * SLAB * DIRECTIONS));
    CHECK(cudaMalloc(&fitted, sizeof(float) * (size_t)SLABS * SLAB * TENSOR_TERMS));
    for (int s = 0; s < SLABS; ++s)
        simulate<<<SLAB / 256, 256>>>(signal + (size_t)s * SLAB * DIRECTIONS, SLAB, s + 1);
    CHECK(cudaDeviceSynchronize());

    for (int i = 0; i < WARMUP; ++i) fitVolume(signal, fitted);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < BLOCK; ++i) fitVolume(signal, fitted);
        CHECK(cudaDeviceSynchronize());
        times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / BLOCK);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> host((size_t)SLAB * TENSOR_TERMS);
    CHECK(cudaMemcpy(host.data(), fitted + (size_t)(SLABS - 1) * SLAB * TENSOR_TERMS,
                     host.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double mean[4] = {0, 0, 0, 0};
    for (int i = 0; i < 4; ++i) {
        for (int v = 0; v < SLAB; ++v) mean[i] += host[(size_t)i * SLAB + v];
        mean[i] /= SLAB;
    }
    std::printf("{\"program\": \"cuda_dti\", \"steps\": %d, \"us\": %.3f, \"result\": [%.7g, %.7g, %.7g, %.7g]}\n",
                WARMUP + BLOCK * BLOCKS, times[times.size() / 2], mean[0], mean[1], mean[2], mean[3]);
    return 0;
}
