// Two ranges between cudaProfilerStart and cudaProfilerStop, with launches before, between and
// after. Nothing but launches lies inside: a range replay knows only some calls.
#include "check.cuh"
#include <cuda_profiler_api.h>

__global__ void produce(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] * 1.5f + 0.25f;
}

__global__ void consume(const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = y[(i * 33) & (n - 1)] + z[i];
}

int main() {
    const int n = 1 << 20;
    float* y = filled(n);
    float* z = filled(n, 3);
    produce<<<n / 256, 256>>>(y, n);
    finish();
    CHECK(cudaProfilerStart());
    produce<<<n / 256, 256>>>(y, n);
    consume<<<n / 256, 256>>>(y, z, n);
    CHECK(cudaProfilerStop());
    finish();
    consume<<<n / 256, 256>>>(y, z, n);
    finish();
    CHECK(cudaProfilerStart());
    for (int k = 0; k < 3; ++k) consume<<<n / 512, 256>>>(y, z, n / 2);
    CHECK(cudaProfilerStop());
    finish();
    return 0;
}
