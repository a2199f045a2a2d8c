// Four plain kernels. The arguments say which to launch and how often: basics scale:2 sum:1 hot:20
#include "check.cuh"
#include <cuda_profiler_api.h>

#define COUNT (1 << 20)

__device__ float polish(float v) {
    return v * 1.0001f + 0.5f;
}

__global__ void scale(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = polish(a * x[i] + y[i]);
}

__global__ void sum(const float* x, float* out, int n) {
    __shared__ float part[256];
    float total = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        total += x[i];
    }
    part[threadIdx.x] = total;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(out, part[0]);
}

// Most of the program's time, where it is launched at all.
__global__ void hot(float* y, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = y[i];
    for (int k = 0; k < rounds; ++k) v = polish(v) * 0.999f;
    y[i] = v;
}

__global__ void single(float* y) {
    y[0] += 1.f;
}

int main(int argc, char** argv) {
    float* x = filled(COUNT);
    float* y = filled(COUNT, 7);
    CHECK(cudaProfilerStart());
    for (int a = 1; a < argc; ++a) {
        const char* colon = std::strchr(argv[a], ':');
        int times = colon ? std::atoi(colon + 1) : 1;
        size_t length = colon ? (size_t)(colon - argv[a]) : std::strlen(argv[a]);
        for (int k = 0; k < times; ++k) {
            if (!std::strncmp(argv[a], "scale", length))
                scale<<<COUNT / 256, 256>>>(x, y, 2.f, COUNT);
            else if (!std::strncmp(argv[a], "sum", length)) sum<<<264, 256>>>(x, y, COUNT);
            else if (!std::strncmp(argv[a], "hot", length)) hot<<<COUNT / 256, 256>>>(y, 20000);
            else if (!std::strncmp(argv[a], "single", length)) single<<<1, 1>>>(y);
        }
    }
    finish();
    CHECK(cudaProfilerStop());
    return 0;
}
