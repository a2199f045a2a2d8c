// What the pairs with fetched sources share. A driver includes this file, then the fetched program,
// whose `main` gets another name, and then says `#undef main`.
#pragma once
#include "../cuda/field.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace field {

// The n values at `data` as floats, for `report`.
template <class T>
float* floats(const T* data, size_t n) {
    return filled<float>(n, [=] __device__(size_t i) { return static_cast<float>(data[i]); });
}

// Numbers in [low, high) that depend on the index and the seed only.
template <class T = float>
T* numbers(size_t n, uint32_t seed, float low = 0.0f, float high = 1.0f) {
    return filled<T>(n, [=] __device__(size_t i) {
        return static_cast<T>(low + (high - low) * unit(i, seed));
    });
}

template <class T>
void clear(T* data, size_t n) {
    CHECK(cudaMemset(data, 0, n * sizeof(T)));
}

template <class T>
void restore(T* data, const T* saved, size_t n) {
    CHECK(cudaMemcpy(data, saved, n * sizeof(T), cudaMemcpyDeviceToDevice));
}

}  // namespace field

// CUDA 13 dropped a name that older programs call.
#define cudaThreadSynchronize cudaDeviceSynchronize
#define main main_of_the_fetched_program
