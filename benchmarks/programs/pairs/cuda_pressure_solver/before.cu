// Pressure of a small flow solver: red-black relaxation with many sweeps over a small grid.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int N = 512;
constexpr int SWEEPS = 400;
constexpr int WARMUP = 4;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 8;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

__global__ void sweep(float* p, const float* rhs, int colour, float* change) {
    int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + 1;
    int y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    x += (y + colour) & 1;
    if (x >= N - 1 || y >= N - 1) return;
    int i = y * N + x;
    float next = 0.25f * (p[i - 1] + p[i + 1] + p[i - N] + p[i + N] - rhs[i]);
    float d = 1.7f * (next - p[i]);
    p[i] += d;
    if ((threadIdx.x | threadIdx.y) == 0) atomicMax((int*)change, __float_as_int(fabsf(d)));
}

__global__ void advect(float* rhs, float phase) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N * N) rhs[i] = 1e-3f * __sinf(phase + (i % N) * 0.05f) * __cosf((i / N) * 0.04f);
}

// Relax until nothing moves any more, at most SWEEPS times; gives the sweeps made.
int solve(float* p, float* rhs, float* change) {
    dim3 block(32, 8), grid((N / 2 + 31) / 32, (N + 7) / 8);
    float moved = 1;
    int k = 0;
    while (k < SWEEPS && moved > 1e-9f) {
        CHECK(cudaMemset(change, 0, sizeof(float)));
        sweep<<<grid, block>>>(p, rhs, 0, change);
        CHECK(cudaDeviceSynchronize());
        sweep<<<grid, block>>>(p, rhs, 1, change);
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemcpy(&moved, change, sizeof(float), cudaMemcpyDeviceToHost));
        ++k;
    }
    return k;
}

int main() {
    float *p, *rhs, *change;
    CHECK(cudaMalloc(&p, N * N * sizeof(float)));
    CHECK(cudaMalloc(&rhs, N * N * sizeof(float)));
    CHECK(cudaMalloc(&change, sizeof(float)));
    CHECK(cudaMemset(p, 0, N * N * sizeof(float)));
    int count = 0, sweeps = 0;

    auto step = [&]() {
        advect<<<(N * N + 255) / 256, 256>>>(rhs, 0.01f * count++);
        sweeps += solve(p, rhs, change);
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    std::vector<float> host(N * N);
    CHECK(cudaMemcpy(host.data(), p, N * N * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0, square = 0;
    for (float v : host) {
        sum += fabs(v);
        square += double(v) * v;
    }
    printf("%d steps, %d sweeps\n", count, sweeps);
    printf("{\"program\": \"cuda_pressure_solver\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           count, times[times.size() / 2], sum / N / N, sqrt(square / N / N));
    return 0;
}
