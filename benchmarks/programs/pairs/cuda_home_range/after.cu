// Home range of a tagged animal: kernel density of GPS fixes on a fine grid,
// one sliding window of the track a step, with location error per fix.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t err_ = (call);                                           \
        if (err_ != cudaSuccess) {                                           \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                \
                    cudaGetErrorString(err_));                               \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

constexpr int CELLS = 512;          // grid cells a side
constexpr float EXTENT = 20.0f;     // km
constexpr int TRACK = 20000;        // fixes in the whole track
constexpr int WINDOW = 8192;        // fixes in one window
constexpr int SLIDE = 250;
constexpr int TILE = 256;
constexpr int WARMUP = 5;
constexpr int BLOCKS = 8;
constexpr int BLOCK_STEPS = 5;

struct Fix {
    float x, y;      // km
    float error;     // km, one standard deviation of the receiver
    float weight;    // hours since the last fix
};

__global__ void __launch_bounds__(TILE)
density(const Fix *__restrict__ fixes, int count, float bandwidth,
        float *__restrict__ grid)
{
    __shared__ Fix tile[TILE];
    int cell = blockIdx.x * TILE + threadIdx.x;
    float cx = (cell % CELLS + 0.5f) * (EXTENT / CELLS);
    float cy = (cell / CELLS + 0.5f) * (EXTENT / CELLS);

    float sum = 0.0f;
    for (int base = 0; base < count; base += TILE) {
        Fix mine = fixes[base + threadIdx.x];
        // Stored as the inverse variance and the peak of this fix's kernel.
        float variance = bandwidth * bandwidth + mine.error * mine.error;
        mine.error = 1.0f / variance;
        mine.weight = mine.weight / (2.0f * float(M_PI) * variance);
        tile[threadIdx.x] = mine;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            float dx = cx - tile[k].x;
            float dy = cy - tile[k].y;
            float q = (dx * dx + dy * dy) * tile[k].error;
            sum += tile[k].weight * expf(-0.5f * q);
        }
        __syncthreads();
    }
    grid[cell] = sum;
}

// Accumulates the occupied area and the mean density over all windows.
__global__ void accumulate(const float *__restrict__ grid, float *__restrict__ mean,
                           float share)
{
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    mean[cell] += share * grid[cell];
}

static std::vector<Fix> wander()
{
    std::mt19937 rng(404);
    std::normal_distribution<float> step(0.0f, 0.12f);
    std::uniform_real_distribution<float> unit(0.0f, 1.0f);
    std::vector<Fix> track(TRACK);
    float x = 10.0f, y = 10.0f;
    for (Fix &fix : track) {
        // A pull to the den keeps the animal on the map.
        x += step(rng) + 0.004f * (10.0f - x);
        y += step(rng) + 0.004f * (10.0f - y);
        fix = {x, y, 0.01f + 0.04f * unit(rng), 0.25f + 0.5f * unit(rng)};
    }
    return track;
}

int main()
{
    const int cells = CELLS * CELLS;
    const int steps = WARMUP + BLOCKS * BLOCK_STEPS;
    std::vector<Fix> track = wander();
    Fix *fixes;
    float *grid, *mean;
    CHECK(cudaMalloc(&fixes, TRACK * sizeof(Fix)));
    CHECK(cudaMalloc(&grid, cells * sizeof(float)));
    CHECK(cudaMalloc(&mean, cells * sizeof(float)));
    CHECK(cudaMemcpy(fixes, track.data(), TRACK * sizeof(Fix), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(mean, 0, cells * sizeof(float)));

    int step = 0;
    auto run = [&](int count) {
        for (int i = 0; i < count; ++i, ++step) {
            const Fix *first = fixes + step * SLIDE;
            density<<<cells / TILE, TILE>>>(first, WINDOW, 0.35f, grid);
            accumulate<<<cells / 256, 256>>>(grid, mean, 1.0f / steps);
        }
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    };

    run(WARMUP);
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        run(BLOCK_STEPS);
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / BLOCK_STEPS);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> map(cells);
    CHECK(cudaMemcpy(map.data(), mean, cells * sizeof(float), cudaMemcpyDeviceToHost));
    double total = 0.0, peak = 0.0;
    for (float v : map) {
        total += v;
        peak = std::max(peak, double(v));
    }
    printf("{\"program\": \"cuda_home_range\", \"steps\": %d, \"us\": %.2f, "
           "\"result\": [%.8g, %.8g]}\n",
           step, (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]) / 2, total, peak);
    return 0;
}
