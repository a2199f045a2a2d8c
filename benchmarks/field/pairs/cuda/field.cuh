// What every CUDA C++ pair of the field benchmark shares: inputs, launches and the line it prints.
//
// A pair is one .cu file with both sides, chosen by -DVARIANT=0 (before) or 1 (after). Its kernel is
// named as the file and launched three times; the third is profiled. The program prints one line of
// JSON: {"sums": [64 numbers], "scale": [64 numbers]}. sums[b] adds the outputs whose index is b
// modulo 64, scale[b] their absolute values: both sides agree when no sum differs by more than the
// pair's tolerance times its scale. Any CUDA error ends the program with exit code 5.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#ifndef VARIANT
#error "compile with -DVARIANT=0 (before) or -DVARIANT=1 (after)"
#endif

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t error_ = (call);                                                    \
        if (error_ != cudaSuccess) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_)); \
            exit(5);                                                                    \
        }                                                                               \
    } while (0)

namespace field {

__host__ __device__ inline uint32_t hash(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352dU;
    x ^= x >> 15;
    x *= 0x846ca68bU;
    return x ^ (x >> 16);
}

// A number in [0, 1) that depends on the index and the seed only.
__host__ __device__ inline float unit(uint64_t i, uint32_t seed = 0) {
    return (hash(static_cast<uint32_t>(i) + seed * 0x9e3779b9U) >> 8) * (1.0f / 16777216.0f);
}

template <class T, class F>
__global__ void field_fill(T* data, size_t n, F value) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n;
         i += size_t(gridDim.x) * blockDim.x)
        data[i] = value(i);
}

// n values on the device, the i-th being value(i).
template <class T, class F>
T* filled(size_t n, F value) {
    T* data;
    CHECK(cudaMalloc(&data, n * sizeof(T)));
    field_fill<<<1024, 256>>>(data, n, value);
    CHECK(cudaDeviceSynchronize());
    return data;
}

template <class T>
T* zeros(size_t n) {
    T* data;
    CHECK(cudaMalloc(&data, n * sizeof(T)));
    CHECK(cudaMemset(data, 0, n * sizeof(T)));
    return data;
}

template <class T>
T* copied(const std::vector<T>& values) {
    T* data;
    CHECK(cudaMalloc(&data, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return data;
}

inline int sm_count() {
    int count;
    CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
    return count;
}

// Launches three times, each after `reset`: two to warm up, and the third is the one profiled.
template <class R, class L>
void run(R reset, L launch) {
    for (int i = 0; i < 3; ++i) {
        reset();
        launch();
        CHECK(cudaGetLastError());
    }
    CHECK(cudaDeviceSynchronize());
}

template <class L>
void run(L launch) {
    run([] {}, launch);
}

// Block b adds the outputs of bucket b, and their absolute values.
template <class T>
__global__ void field_sums(const T* data, size_t n, bool ordered, double* sums, double* scale) {
    __shared__ double parts[2][1024];
    double sum = 0, absolute = 0;
    for (size_t k = threadIdx.x; ordered ? k * 64 + blockIdx.x < n : k < n; k += blockDim.x) {
        double v = static_cast<double>(data[ordered ? k * 64 + blockIdx.x : k]);
        if (!ordered && hash(static_cast<uint32_t>(static_cast<int64_t>(v))) % 64 != blockIdx.x) continue;
        sum += v;
        absolute += fabs(v);
    }
    parts[0][threadIdx.x] = sum;
    parts[1][threadIdx.x] = absolute;
    __syncthreads();
    if (threadIdx.x < 2) {
        double total = 0;
        for (int t = 0; t < 1024; ++t) total += parts[threadIdx.x][t];
        (threadIdx.x ? scale : sums)[blockIdx.x] = total;
    }
}

// Prints the line of JSON for the n outputs at `data` on the device. Where the order of outputs is
// free, the bucket comes from the value and not from its place.
template <class T>
int report(const T* data, size_t n, bool ordered = true) {
    double* found = zeros<double>(128);
    field_sums<<<64, 1024>>>(data, n, ordered, found, found + 64);
    double rows[128];
    CHECK(cudaMemcpy(rows, found, sizeof rows, cudaMemcpyDeviceToHost));
    const char* names[2] = {"{\"sums\"", ", \"scale\""};
    for (int r = 0; r < 2; ++r) {
        printf("%s: [", names[r]);
        for (int b = 0; b < 64; ++b) printf("%s%.17g", b ? ", " : "", rows[64 * r + b]);
        printf("]");
    }
    printf("}\n");
    return 0;
}

}  // namespace field
