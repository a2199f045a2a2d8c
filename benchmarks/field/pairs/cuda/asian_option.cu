// The price of an option on the mean of a path, by simulating 524,288 paths of 256 steps.
// tolerance: 1e-4
#include "field.cuh"

const int STEPS = 256;

__device__ float normal(unsigned path, unsigned step) {
    unsigned h = field::hash(path * 2654435761u + step);
    float u = ((h >> 16) + 0.5f) * (1.0f / 65536.0f), v = (h & 65535) * (1.0f / 65536.0f);
    return sqrtf(-2.0f * __logf(u)) * __cosf(6.2831853f * v);
}

__global__ void asian_option(float* __restrict__ payoff, float s0, float strike, float drift,
                             float sigma) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float price = s0, sum = 0.0f;
#if VARIANT == 0
    float path[STEPS];
    for (int k = 0; k < STEPS; ++k) {
        price *= __expf(drift + sigma * normal(i, k));
        path[k] = price;
    }
    for (int k = 0; k < STEPS; ++k) sum += path[k];
#else
    for (int k = 0; k < STEPS; ++k) {
        price *= __expf(drift + sigma * normal(i, k));
        sum += price;
    }
#endif
    payoff[i] = fmaxf(sum / STEPS - strike, 0.0f);
}

int main() {
    const int paths = 1 << 19;
    float* payoff = field::zeros<float>(paths);
    field::run([&] { asian_option<<<paths / 128, 128>>>(payoff, 100.0f, 95.0f, 1e-4f, 0.0125f); });
    return field::report(payoff, paths);
}
