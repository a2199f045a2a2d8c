// All-sky camera images and keogram of an auroral arc from a drifting electron flux model.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t err_ = (call);                                               \
        if (err_ != cudaSuccess) {                                               \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,               \
                         cudaGetErrorString(err_));                              \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int SIZE = 1024;
constexpr int MASK = SIZE - 1;
constexpr int PIXELS = SIZE * SIZE;
constexpr int BINS = 96;
constexpr int LEVELS = 96;
constexpr int WARMUP = 5000;
constexpr int BLOCKS = 10;
constexpr int BLOCK_STEPS = 10;

struct BinTable {
    float energy[BINS];
    float weight[BINS];
    float drift_x[BINS];
    float drift_y[BINS];
};
__constant__ BinTable c_bins;

__global__ void drift_flux(const float* __restrict__ flux, float* __restrict__ next,
                           const float* __restrict__ source, float* __restrict__ power,
                           float* __restrict__ peak)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    const int x1 = (x + 1) & MASK;
    const int y1 = (y + 1) & MASK;
    const int here = y * SIZE + x;
    const float supply = source[here];
    float number = 1e-6f, total = 0.0f;
#pragma unroll 4
    for (int b = 0; b < BINS; ++b) {
        const float* f = flux + (size_t)b * PIXELS;
        const float ax = c_bins.drift_x[b], ay = c_bins.drift_y[b];
        const float top = f[here] * (1.0f - ax) + f[y * SIZE + x1] * ax;
        const float low = f[y1 * SIZE + x] * (1.0f - ax) + f[y1 * SIZE + x1] * ax;
        const float value = 0.99f * (top * (1.0f - ay) + low * ay) + 0.01f * supply * c_bins.weight[b];
        next[(size_t)b * PIXELS + here] = value;
        number += value;
        total += value * c_bins.energy[b];
    }
    power[here] = total;
    peak[here] = 150.0f - 18.0f * __logf(total / number + 0.1f);
}

__global__ void line_of_sight(const float* __restrict__ power, const float* __restrict__ peak,
                              float* __restrict__ green, float* __restrict__ red)
{
    const int px = blockIdx.x * blockDim.x + threadIdx.x;
    const int py = blockIdx.y * blockDim.y + threadIdx.y;
    const double focal = 260.0;
    const double cell = 1.5;
    const double tx = (px - 0.5 * SIZE) / focal;
    const double ty = (py - 0.5 * SIZE) / focal;
    const double slant = sqrt(1.0 + tx * tx + ty * ty);
    const double per_cell_x = tx / cell;
    const double per_cell_y = ty / cell;
    double sum_green = 0.0, sum_red = 0.0;
    for (int level = 0; level < LEVELS; ++level) {
        const double altitude = 90.0 + 2.5 * level;
        const int cx = (int)(0.5 * SIZE + altitude * per_cell_x) & MASK;
        const int cy = (int)(0.5 * SIZE + altitude * per_cell_y) & MASK;
        const double rate = power[cy * SIZE + cx];
        const double above = altitude - peak[cy * SIZE + cx];
        const double qg = above * 0.055;
        const double qr = (above - 95.0) * 0.021;
        sum_green += rate * exp(1.0 - qg - exp(-qg));
        sum_red += 0.3 * rate * exp(1.0 - qr - exp(-qr));
    }
    const double path = 2.5 * slant;
    green[py * SIZE + px] = (float)(sum_green * path);
    red[py * SIZE + px] = (float)(sum_red * path);
}

__global__ void expose(const float* __restrict__ green, const float* __restrict__ red,
                       float* __restrict__ image, float* __restrict__ keogram, int slot)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x;
    const int y = blockIdx.y * blockDim.y + threadIdx.y;
    const float taps[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
    float g = 0.0f, r = 0.0f;
#pragma unroll
    for (int j = -2; j <= 2; ++j) {
        const int row = min(max(y + j, 0), SIZE - 1) * SIZE;
#pragma unroll
        for (int i = -2; i <= 2; ++i) {
            const int at = row + min(max(x + i, 0), SIZE - 1);
            const float w = taps[j + 2] * taps[i + 2];
            g += w * green[at];
            r += w * red[at];
        }
    }
    const int here = y * SIZE + x;
    image[here] = 0.9f * image[here] + 0.1f * g;
    image[PIXELS + here] = 0.9f * image[PIXELS + here] + 0.1f * r;
    if (x == SIZE / 2) keogram[slot * SIZE + y] = g + r;
}

struct Sky {
    float *flux, *next, *source, *power, *peak, *green, *red, *image, *keogram;
};

static void advance(Sky& s, int step)
{
    const dim3 block(32, 8), grid(SIZE / 32, SIZE / 8);
    drift_flux<<<grid, block>>>(s.flux, s.next, s.source, s.power, s.peak);
    line_of_sight<<<grid, block>>>(s.power, s.peak, s.green, s.red);
    expose<<<grid, block>>>(s.green, s.red, s.image, s.keogram, step & MASK);
    std::swap(s.flux, s.next);
}

static double checksum(const float* device, size_t n)
{
    std::vector<float> host(n);
    CHECK(cudaMemcpy(host.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0.0;
    for (float v : host) sum += v;
    return sum / (double)n;
}

int main()
{
    BinTable bins;
    for (int b = 0; b < BINS; ++b) {
        bins.energy[b] = 0.2f * std::exp(0.05f * b);
        bins.weight[b] = std::exp(-0.5f * (b - 40) * (b - 40) / 400.0f);
        bins.drift_x[b] = 0.2f + 0.006f * b;
        bins.drift_y[b] = 0.1f + 0.002f * b;
    }
    CHECK(cudaMemcpyToSymbol(c_bins, &bins, sizeof(bins)));

    std::vector<float> source(PIXELS);
    unsigned seed = 12345u;
    for (int y = 0; y < SIZE; ++y)
        for (int x = 0; x < SIZE; ++x) {
            seed = seed * 1664525u + 1013904223u;
            const float arc = (y - 512 - 60.0f * std::sin(0.012f * x)) / 70.0f;
            source[y * SIZE + x] = std::exp(-arc * arc) * (0.8f + 0.4f * (seed >> 8) / 16777216.0f) + 0.02f;
        }

    Sky s;
    const size_t plane = PIXELS * sizeof(float);
    CHECK(cudaMalloc(&s.flux, BINS * plane));
    CHECK(cudaMalloc(&s.next, BINS * plane));
    CHECK(cudaMalloc(&s.source, plane));
    CHECK(cudaMalloc(&s.power, plane));
    CHECK(cudaMalloc(&s.peak, plane));
    CHECK(cudaMalloc(&s.green, plane));
    CHECK(cudaMalloc(&s.red, plane));
    CHECK(cudaMalloc(&s.image, 2 * plane));
    CHECK(cudaMalloc(&s.keogram, plane));
    CHECK(cudaMemset(s.flux, 0, BINS * plane));
    CHECK(cudaMemset(s.image, 0, 2 * plane));
    CHECK(cudaMemset(s.keogram, 0, plane));
    CHECK(cudaMemcpy(s.source, source.data(), plane, cudaMemcpyHostToDevice));

    int step = 0;
    for (int i = 0; i < WARMUP; ++i) advance(s, step++);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < BLOCK_STEPS; ++i) advance(s, step++);
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        times.push_back(took.count() / BLOCK_STEPS);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    const double us = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    const double green = checksum(s.image, PIXELS);
    const double red = checksum(s.image + PIXELS, PIXELS);
    const double keogram = checksum(s.keogram, PIXELS);
    std::printf("{\"program\": \"cuda_aurora_keogram\", \"steps\": %d, \"us\": %.3f, \"result\": [%.8g, %.8g, %.8g]}\n",
                step, us, green, red, keogram);
    return 0;
}
