// What the small programs share: a check of every call, and buffers with values.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                                                              \
    do {                                                                                         \
        cudaError_t error_ = (call);                                                             \
        if (error_ != cudaSuccess) {                                                             \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(error_)); \
            std::exit(2);                                                                        \
        }                                                                                        \
    } while (0)

// A buffer of values between 0 and 1 that are neither zero nor all alike. They come from the host,
// so that no launch but a program's own is in its report.
static float* filled(size_t n, unsigned seed = 1) {
    const size_t block = n < (1u << 20) ? n : (1u << 20);
    std::vector<float> values(block);
    for (size_t i = 0; i < block; ++i) {
        unsigned h = (unsigned)i * 2654435761u + seed;
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
        values[i] = (float)(h >> 8) * (1.f / 16777216.f);
    }
    float* p = nullptr;
    CHECK(cudaMalloc(&p, n * sizeof(float)));
    for (size_t i = 0; i < n; i += block) {
        const size_t rest = n - i < block ? n - i : block;
        CHECK(cudaMemcpy(p + i, values.data(), rest * sizeof(float), cudaMemcpyHostToDevice));
    }
    return p;
}

static void finish() {
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
}
