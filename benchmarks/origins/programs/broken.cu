// Programs that end badly. Two good launches come first, so that there is something to report.
//   trap | illegal | misaligned | assert | endless | killed | exit
#include "check.cuh"
#include <cassert>
#include <csignal>
#include <unistd.h>

__global__ void good(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = y[i] * 2.f + 1.f;
}

__global__ void stops_half_way(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 1.f;
    if (i == n / 2) asm volatile("trap;");
}

__global__ void writes_outside(float* y, size_t far) {
    y[threadIdx.x + far * (blockIdx.x == 7)] = 1.f;
}

__global__ void writes_between(char* y) {
    *reinterpret_cast<float*>(y + 4 * threadIdx.x + 1) = 1.f;
}

__global__ void asserts(const float* y) {
    assert(y[threadIdx.x] < -1.f);
}

// It ends by itself after `seconds`, in case nobody can kill it.
__global__ void goes_on(float* y, unsigned long long seconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        y[threadIdx.x] += 1.f;
    } while (now - start < seconds * 1000000000ull);
}

int main(int argc, char** argv) {
    const char* mode = argc > 1 ? argv[1] : "exit";
    const int n = 1 << 20;
    float* y = filled(n);
    good<<<n / 256, 256>>>(y, n);
    good<<<n / 512, 256>>>(y, n / 2);
    finish();
    if (!std::strcmp(mode, "trap")) stops_half_way<<<n / 256, 256>>>(y, n);
    else if (!std::strcmp(mode, "illegal")) writes_outside<<<64, 256>>>(y, (size_t)1 << 42);
    else if (!std::strcmp(mode, "misaligned")) writes_between<<<1, 32>>>((char*)y);
    else if (!std::strcmp(mode, "assert")) asserts<<<1, 32>>>(y);
    else if (!std::strcmp(mode, "endless")) goes_on<<<1, 32>>>(y, 45);
    else if (!std::strcmp(mode, "killed")) raise(SIGKILL);
    else if (!std::strcmp(mode, "exit")) _exit(3);
    finish();
    good<<<n / 256, 256>>>(y, n);
    finish();
    return 0;
}
