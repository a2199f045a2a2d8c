// Electrostatic particle-in-cell plasma in one dimension: a Langmuir wave and its Landau damping.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int PARTICLES = 1 << 24;
constexpr int CELLS = 256;
constexpr float LENGTH = 4.0f * 3.14159265f;
constexpr float DX = LENGTH / CELLS;
constexpr float DT = 0.05f;
constexpr float UNIT = 16384.0f;  // fixed point, so that a run can be reproduced bit by bit
constexpr int THREADS = 256;
constexpr int WARMUP = 20;
constexpr int BLOCKS = 10;
constexpr int STEPS_PER_BLOCK = 120;

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t e = (call);                                                       \
        if (e != cudaSuccess) {                                                       \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

__device__ unsigned hash(unsigned x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

__global__ void load(float* position, float* velocity) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a = (hash(3 * i) + 0.5f) * 2.3283064e-10f;
    float b = (hash(3 * i + 1) + 0.5f) * 2.3283064e-10f;
    float c = (hash(3 * i + 2) + 0.5f) * 2.3283064e-10f;
    float x = a * LENGTH;
    x += 0.1f * sinf(0.5f * x);
    x = x < 0 ? x + LENGTH : x;
    position[i] = x >= LENGTH ? x - LENGTH : x;
    velocity[i] = sqrtf(-2.0f * logf(fmaxf(b, 1e-9f))) * cosf(6.2831853f * c);
}

__global__ void deposit(const float* position, unsigned* charge) {
    __shared__ unsigned local[CELLS];
    for (int c = threadIdx.x; c < CELLS; c += blockDim.x) local[c] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < PARTICLES; i += gridDim.x * blockDim.x) {
        float s = position[i] * (1.0f / DX);
        int cell = int(s);
        unsigned right = unsigned((s - cell) * UNIT);
        atomicAdd(&local[cell & (CELLS - 1)], unsigned(UNIT) - right);
        atomicAdd(&local[(cell + 1) & (CELLS - 1)], right);
    }
    __syncthreads();
    for (int c = threadIdx.x; c < CELLS; c += blockDim.x) atomicAdd(&charge[c], local[c]);
}

// dE/dx = rho in a periodic box, mean field zero; one block, one thread per cell.
__global__ void solve_field(unsigned* charge, float* field, float* history, int step) {
    __shared__ float sum[CELLS];
    __shared__ float part[CELLS];
    int c = threadIdx.x;
    float rho = 1.0f - charge[c] * (CELLS / (UNIT * PARTICLES));
    charge[c] = 0;
    sum[c] = rho * DX;
    __syncthreads();
    for (int d = 1; d < CELLS; d *= 2) {
        float other = c >= d ? sum[c - d] : 0.0f;
        __syncthreads();
        sum[c] += other;
        __syncthreads();
    }
    part[c] = sum[c];
    __syncthreads();
    for (int d = CELLS / 2; d > 0; d /= 2) {
        if (c < d) part[c] += part[c + d];
        __syncthreads();
    }
    float e = sum[c] - part[0] / CELLS;
    field[c] = e;
    __syncthreads();
    part[c] = 0.5f * e * e * DX;
    __syncthreads();
    for (int d = CELLS / 2; d > 0; d /= 2) {
        if (c < d) part[c] += part[c + d];
        __syncthreads();
    }
    if (c == 0) history[step] = part[0];
}

__global__ void push(float* position, float* velocity, const float* field) {
    __shared__ float local[CELLS];
    for (int c = threadIdx.x; c < CELLS; c += blockDim.x) local[c] = field[c];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = position[i], v = velocity[i];
    float s = x * (1.0f / DX);
    int cell = int(s);
    float w = s - cell;
    float e = (1.0f - w) * local[cell & (CELLS - 1)] + w * local[(cell + 1) & (CELLS - 1)];
    v -= DT * e;
    x += DT * v;
    if (x < 0) x += LENGTH;
    if (x >= LENGTH) x -= LENGTH;
    position[i] = x;
    velocity[i] = v;
}

int main() {
    constexpr int STEPS = WARMUP + BLOCKS * STEPS_PER_BLOCK;
    float *position, *velocity, *field, *history;
    unsigned* charge;
    CHECK(cudaMalloc(&position, PARTICLES * sizeof(float)));
    CHECK(cudaMalloc(&velocity, PARTICLES * sizeof(float)));
    CHECK(cudaMalloc(&field, CELLS * sizeof(float)));
    CHECK(cudaMalloc(&history, STEPS * sizeof(float)));
    CHECK(cudaMalloc(&charge, CELLS * sizeof(unsigned)));
    CHECK(cudaMemset(charge, 0, CELLS * sizeof(unsigned)));
    load<<<PARTICLES / THREADS, THREADS>>>(position, velocity);

    int done = 0;
    auto step = [&]() {
        deposit<<<PARTICLES / THREADS / 64, THREADS>>>(position, charge);
        solve_field<<<1, CELLS>>>(charge, field, history, done);
        push<<<PARTICLES / THREADS, THREADS>>>(position, velocity, field);
        ++done;
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double us = times[times.size() / 2];
    std::vector<float> energy(STEPS), speed(PARTICLES);
    CHECK(cudaMemcpy(energy.data(), history, STEPS * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(speed.data(), velocity, PARTICLES * sizeof(float), cudaMemcpyDeviceToHost));
    double early = 0, kinetic = 0;
    for (int i = 0; i < 100; ++i) early += energy[i] / 100;
    for (float v : speed) kinetic += 0.5 * double(v) * v;
    printf("%.0f M particles/s\n", PARTICLES / us);
    printf("{\"program\": \"cuda_plasma_1d\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           STEPS, us, early, kinetic / PARTICLES);
    return 0;
}
