// Separate compilation: the device function lies in another file, and so outside of the kernel's
// code.
#include "check.cuh"

extern __device__ float from_elsewhere(float v, int rounds);

__global__ void calls_elsewhere(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = from_elsewhere(y[i], 16);
}

int main() {
    const int n = 1 << 18;
    float* y = filled(n);
    calls_elsewhere<<<n / 256, 256>>>(y, n);
    finish();
    return 0;
}
