// Launches from a function that other functions call, as a program and as a library for stacks.py:
// what ncu --call-stack records.
#include "check.cuh"

__global__ void add_one(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 1.0f;
}

__attribute__((noinline)) void launch(float* y, int n) {
    add_one<<<n / 256, 256>>>(y, n);
    finish();
}

__attribute__((noinline)) void step(float* y, int n) {
    launch(y, n);
    finish();
}

extern "C" int work() {
    const int n = 1 << 20;
    float* y = filled(n);
    step(y, n);
    finish();
    return 0;
}

int main() { return work(); }
