// Porosity and fracture density of drill-core sections from X-ray slices.
#include <cstdio>
#include <cstdlib>
#include <cstdint>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>

#define CHECK(call)                                                     \
    do {                                                                \
        cudaError_t e_ = (call);                                        \
        if (e_ != cudaSuccess) { puts(cudaGetErrorString(e_)); exit(1); } \
    } while (0)

constexpr int WIDTH = 4096, HEIGHT = 4096, PIXELS = WIDTH * HEIGHT;
constexpr int SLICES = 24;
constexpr int RADIUS = 3;
constexpr int STAT_BLOCKS = 1056, STAT_THREADS = 256;

__constant__ float c_taps[2 * RADIUS + 1];

__device__ __forceinline__ uint32_t mix(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352dU;
    x = (x ^ (x >> 15)) * 0x846ca68bU;
    return x ^ (x >> 16);
}

__global__ void make_slices(uint16_t* raw) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    int slice = i / PIXELS;
    int p = i % PIXELS, x = p % WIDTH, y = p / WIDTH;
    uint32_t grain = mix((uint32_t)((y / 48) * 977 + (x / 48) * 131 + slice * 7919));
    uint32_t noise = mix((uint32_t)(i * 2654435761U + 17U));
    float value = 18000.0f + (grain & 0x3fff) + (noise & 0x7ff);
    if ((grain >> 20) % 9 == 0) value *= 0.35f;
    raw[i] = (uint16_t)value;
}

__global__ void flat_field(const uint16_t* raw, const float* dark, const float* gain,
                           float exposure, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    int p = y * WIDTH + x;
    out[p] = (raw[p] - dark[x]) * gain[x] * exposure;
}

__global__ void smooth_rows(const float* in, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    float acc = 0.0f;
#pragma unroll
    for (int k = -RADIUS; k <= RADIUS; ++k) {
        acc += c_taps[k + RADIUS] * in[y * WIDTH + min(max(x + k, 0), WIDTH - 1)];
    }
    out[y * WIDTH + x] = acc;
}

__global__ void smooth_columns(const float* in, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    float acc = 0.0f;
#pragma unroll
    for (int k = -RADIUS; k <= RADIUS; ++k) {
        acc += c_taps[k + RADIUS] * in[min(max(y + k, 0), HEIGHT - 1) * WIDTH + x];
    }
    out[y * WIDTH + x] = acc;
}

__global__ void edge_strength(const float* in, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    int xl = max(x - 1, 0), xr = min(x + 1, WIDTH - 1);
    int yu = max(y - 1, 0), yd = min(y + 1, HEIGHT - 1);
    float gx = 0.5f * (in[y * WIDTH + xr] - in[y * WIDTH + xl]);
    float gy = 0.5f * (in[yd * WIDTH + x] - in[yu * WIDTH + x]);
    out[y * WIDTH + x] = sqrtf(gx * gx + gy * gy);
}

__device__ float2 block_sum(float2 v) {
    __shared__ float2 warp_part[32];
    for (int o = 16; o > 0; o >>= 1) {
        v.x += __shfl_down_sync(0xffffffffu, v.x, o);
        v.y += __shfl_down_sync(0xffffffffu, v.y, o);
    }
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (lane == 0) warp_part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < (int)blockDim.x / 32 ? warp_part[lane] : make_float2(0.0f, 0.0f);
        for (int o = 16; o > 0; o >>= 1) {
            v.x += __shfl_down_sync(0xffffffffu, v.x, o);
            v.y += __shfl_down_sync(0xffffffffu, v.y, o);
        }
    }
    return v;
}

__global__ void slice_stats(const float* density, const float* edges, float2* partial) {
    float2 v = make_float2(0.0f, 0.0f);
    for (int p = blockIdx.x * blockDim.x + threadIdx.x; p < PIXELS; p += gridDim.x * blockDim.x) {
        v.x += density[p] < 0.55f ? 1.0f : 0.0f;
        v.y += edges[p];
    }
    v = block_sum(v);
    if (threadIdx.x == 0) partial[blockIdx.x] = v;
}

__global__ void finish_stats(const float2* partial, float2* result) {
    float2 v = make_float2(0.0f, 0.0f);
    for (int b = threadIdx.x; b < STAT_BLOCKS; b += blockDim.x) {
        v.x += partial[b].x;
        v.y += partial[b].y;
    }
    v = block_sum(v);
    if (threadIdx.x == 0) *result = make_float2(v.x / PIXELS, v.y / PIXELS);
}

struct Detector { float *dark, *gain; };

void analyse_slice(const uint16_t* raw, const Detector& det, float exposure, float2* result) {
    float *corrected, *rows, *density, *edges;
    float2* partial;
    CHECK(cudaMalloc(&corrected, PIXELS * sizeof(float)));
    CHECK(cudaMalloc(&rows, PIXELS * sizeof(float)));
    CHECK(cudaMalloc(&density, PIXELS * sizeof(float)));
    CHECK(cudaMalloc(&edges, PIXELS * sizeof(float)));
    CHECK(cudaMalloc(&partial, STAT_BLOCKS * sizeof(float2)));

    dim3 block(256), grid(WIDTH / 256, HEIGHT);
    flat_field<<<grid, block>>>(raw, det.dark, det.gain, exposure, corrected);
    smooth_rows<<<grid, block>>>(corrected, rows);
    smooth_columns<<<grid, block>>>(rows, density);
    edge_strength<<<grid, block>>>(density, edges);
    slice_stats<<<STAT_BLOCKS, STAT_THREADS>>>(density, edges, partial);
    finish_stats<<<1, STAT_THREADS>>>(partial, result);
    CHECK(cudaGetLastError());

    CHECK(cudaFree(corrected));
    CHECK(cudaFree(rows));
    CHECK(cudaFree(density));
    CHECK(cudaFree(edges));
    CHECK(cudaFree(partial));
}

int main() {
    uint16_t* raw;
    float2* results;
    Detector det;
    CHECK(cudaMalloc(&raw, (size_t)SLICES * PIXELS * sizeof(uint16_t)));
    CHECK(cudaMalloc(&results, SLICES * sizeof(float2)));
    CHECK(cudaMalloc(&det.dark, WIDTH * sizeof(float)));
    CHECK(cudaMalloc(&det.gain, WIDTH * sizeof(float)));

    std::vector<float> dark(WIDTH), gain(WIDTH);
    uint32_t seed = 20240611u;
    for (int x = 0; x < WIDTH; ++x) {
        seed = seed * 1664525u + 1013904223u;
        dark[x] = 300.0f + (seed >> 24);
        seed = seed * 1664525u + 1013904223u;
        gain[x] = (1.0f + 0.0002f * (seed >> 24)) / 30000.0f;
    }
    float taps[7] = {0.0366f, 0.1113f, 0.2166f, 0.2710f, 0.2166f, 0.1113f, 0.0366f};
    CHECK(cudaMemcpy(det.dark, dark.data(), WIDTH * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(det.gain, gain.data(), WIDTH * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(c_taps, taps, sizeof(taps)));
    make_slices<<<(unsigned)((size_t)SLICES * PIXELS / 256), 256>>>(raw);
    CHECK(cudaDeviceSynchronize());

    int step = 0;
    auto section = [&]() {
        float exposure = 1.0f + 0.0005f * (step % 50);
        for (int s = 0; s < SLICES; ++s)
            analyse_slice(raw + (size_t)s * PIXELS, det, exposure, results + s);
        ++step;
    };

    for (int i = 0; i < 20; ++i) section();
    CHECK(cudaDeviceSynchronize());

    const int blocks = 10, per_block = 10;
    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) section();
        CHECK(cudaDeviceSynchronize());
        auto t1 = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::micro>(t1 - t0).count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double us = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    std::vector<float2> host(SLICES);
    CHECK(cudaMemcpy(host.data(), results, SLICES * sizeof(float2), cudaMemcpyDeviceToHost));
    double porosity = 0.0, fracture = 0.0;
    for (const float2& r : host) porosity += r.x / SLICES, fracture += r.y / SLICES;
    cudaFree(raw); cudaFree(results); cudaFree(det.dark); cudaFree(det.gain);
    printf("{\"program\": \"cuda_drillcore\", \"steps\": %d, \"us\": %.1f, \"result\": [%.6f, %.6f]}\n",
           step, us, porosity, fracture);
    return 0;
}
