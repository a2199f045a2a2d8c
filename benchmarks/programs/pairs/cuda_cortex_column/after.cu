// Adaptive exponential neurons of a cortical slab under noisy background drive.
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <cmath>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t err_ = (call);                                               \
        if (err_ != cudaSuccess) {                                               \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                    \
                    cudaGetErrorString(err_));                                   \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

constexpr int NEURONS = 1 << 24;
constexpr int THREADS = 256;
constexpr int TICKS_PER_STEP = 40;
constexpr int CLASSES = 4;

struct CellClass {
    float tau_m;       // ms
    float slope;       // mV
    float threshold;   // mV
    float reset;       // mV
    float tau_w;       // ms
    float coupling;
    float jump;
    float drive;       // mV
    int substeps;      // per tick of 1 ms
};

__constant__ CellClass c_class[CLASSES];

struct Neuron {
    uint32_t id;
    uint32_t kind;
};

__device__ __host__ __forceinline__ uint32_t mix(uint32_t x) {
    x ^= x >> 16; x *= 0x7feb352dU;
    x ^= x >> 15; x *= 0x846ca68bU;
    x ^= x >> 16;
    return x;
}

__global__ void rest_state(const Neuron* cells, float2* state, uint32_t* spikes) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float u = (mix(cells[i].id + 99u) >> 8) * (1.0f / 16777216.0f);
    state[i] = make_float2(-70.0f + 8.0f * u, 0.0f);
    spikes[i] = 0u;
}

__global__ void __launch_bounds__(THREADS)
tick(const Neuron* __restrict__ cells, float2* __restrict__ state,
     uint32_t* __restrict__ spikes, uint32_t time) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    Neuron cell = cells[i];
    const CellClass k = c_class[cell.kind];
    float noise = (mix(cell.id ^ (time * 0x9e3779b9U)) >> 8) * (1.0f / 16777216.0f);
    float drive = k.drive * (0.5f + noise);

    float2 s = state[i];
    const float dt = 1.0f / k.substeps;
    const float rate_m = dt / k.tau_m;
    const float rate_w = dt / k.tau_w;
    const float inv_slope = 1.0f / k.slope;
    uint32_t fired = 0;
    for (int n = 0; n < k.substeps; ++n) {
        float arg = fminf((s.x - k.threshold) * inv_slope, 8.0f);
        float upstroke = k.slope * __expf(arg);
        float dv = -(s.x + 70.0f) + upstroke - s.y + drive;
        float dw = k.coupling * (s.x + 70.0f) - s.y;
        s.x += rate_m * dv;
        s.y += rate_w * dw;
        if (s.x > -30.0f) {
            s.x = k.reset;
            s.y += k.jump;
            ++fired;
        }
    }
    state[i] = s;
    if (fired) spikes[i] += fired;
}

std::vector<Neuron> place_cells() {
    std::vector<Neuron> cells(NEURONS);
    for (uint32_t i = 0; i < (uint32_t)NEURONS; ++i) {
        uint32_t draw = mix(i * 747796405u + 31u) % 100u;
        cells[i].id = i;
        cells[i].kind = draw < 40u ? 0u : draw < 70u ? 1u : draw < 90u ? 2u : 3u;
    }
    std::stable_sort(cells.begin(), cells.end(),
                     [](const Neuron& a, const Neuron& b) { return a.kind > b.kind; });
    return cells;
}

int main() {
    const CellClass classes[CLASSES] = {
        {20.0f, 2.0f, -50.0f, -58.0f, 120.0f, 0.10f, 4.0f, 24.0f, 4},
        {16.0f, 2.0f, -50.0f, -56.0f, 90.0f, 0.15f, 3.0f, 25.0f, 8},
        {12.0f, 1.5f, -50.0f, -52.0f, 60.0f, 0.20f, 2.0f, 26.0f, 16},
        {6.0f, 0.5f, -48.0f, -60.0f, 20.0f, 0.05f, 0.5f, 28.0f, 64},
    };
    CHECK(cudaMemcpyToSymbol(c_class, classes, sizeof(classes)));

    std::vector<Neuron> cells = place_cells();
    Neuron* d_cells;
    float2* d_state;
    uint32_t* d_spikes;
    CHECK(cudaMalloc(&d_cells, (size_t)NEURONS * sizeof(Neuron)));
    CHECK(cudaMalloc(&d_state, (size_t)NEURONS * sizeof(float2)));
    CHECK(cudaMalloc(&d_spikes, (size_t)NEURONS * sizeof(uint32_t)));
    CHECK(cudaMemcpy(d_cells, cells.data(), (size_t)NEURONS * sizeof(Neuron), cudaMemcpyHostToDevice));
    rest_state<<<NEURONS / THREADS, THREADS>>>(d_cells, d_state, d_spikes);
    CHECK(cudaDeviceSynchronize());

    uint32_t time = 0;
    int steps = 0;
    auto run_step = [&]() {
        for (int t = 0; t < TICKS_PER_STEP; ++t)
            tick<<<NEURONS / THREADS, THREADS>>>(d_cells, d_state, d_spikes, time++);
        ++steps;
    };

    for (int i = 0; i < 20; ++i) run_step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    const int blocks = 10, per_block = 10;
    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) run_step();
        CHECK(cudaDeviceSynchronize());
        auto t1 = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::micro>(t1 - t0).count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double us = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    std::vector<uint32_t> spikes(NEURONS);
    std::vector<float2> state(NEURONS);
    CHECK(cudaMemcpy(spikes.data(), d_spikes, (size_t)NEURONS * sizeof(uint32_t), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(state.data(), d_state, (size_t)NEURONS * sizeof(float2), cudaMemcpyDeviceToHost));
    double total = 0.0, fast = 0.0, membrane = 0.0;
    for (int i = 0; i < NEURONS; ++i) {
        total += spikes[i];
        if (cells[i].kind == 3u) fast += spikes[i];
        membrane += state[i].x;
    }
    cudaFree(d_cells); cudaFree(d_state); cudaFree(d_spikes);
    printf("{\"program\": \"cuda_cortex_column\", \"steps\": %d, \"us\": %.1f, \"result\": [%.1f, %.1f, %.6f]}\n",
           steps, us, total, fast, membrane / NEURONS);
    return 0;
}
