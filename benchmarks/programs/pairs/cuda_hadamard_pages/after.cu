// Walsh-Hadamard transform of square pages, threshold, and back: rows, transpose, rows.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int SIDE = 1024;
constexpr int PAGES = 64;
constexpr int TILE = 32;
constexpr int ROWS = 4;  // in a block, a warp each
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

__device__ void transform(float (&v)[32]) {
#pragma unroll
    for (int half = 1; half < 32; half *= 2)
#pragma unroll
        for (int k = 0; k < 32; ++k)
            if (!(k & half)) {
                float a = v[k], b = v[k + half];
                v[k] = a + b;
                v[k + half] = a - b;
            }
}

// A warp for each row, as 32 by 32 numbers: first along one side, then along the other.
// Values below a threshold become zero.
__global__ void rows(float* data, float threshold) {
    __shared__ float row[ROWS][32][33];
    int lane = threadIdx.x, w = threadIdx.y;
    float* mine = data + (size_t(blockIdx.x) * ROWS + w) * SIDE;
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = mine[k * 32 + lane];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) row[w][k][lane] = v[k];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = row[w][lane][k];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        float x = v[k] * 0.03125f;
        row[w][lane][k] = fabsf(x) < threshold ? 0.0f : x;
    }
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) mine[k * 32 + lane] = row[w][k][lane];
}

__global__ void transpose(const float* in, float* out) {
    __shared__ float tile[TILE][TILE + 1];
    size_t page = size_t(blockIdx.z) * SIDE * SIDE;
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int k = 0; k < TILE; k += 8)
        tile[threadIdx.y + k][threadIdx.x] = in[page + size_t(y + k) * SIDE + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int k = 0; k < TILE; k += 8)
        out[page + size_t(y + k) * SIDE + x] = tile[threadIdx.x][threadIdx.y + k];
}

int main() {
    size_t n = size_t(SIDE) * SIDE * PAGES;
    std::vector<float> host(n);
    unsigned state = 11;
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        host[i] = sinf(0.02f * (i % SIDE)) + 0.2f * (float(state >> 8) / (1 << 24) - 0.5f);
    }
    float *a, *b;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&b, n * sizeof(float)));
    CHECK(cudaMemcpy(a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    dim3 grid(SIDE / TILE, SIDE / TILE, PAGES), block(TILE, 8), warps(32, ROWS);

    auto step = [&]() {
        rows<<<SIDE * PAGES / ROWS, warps>>>(a, 0.0f);
        transpose<<<grid, block>>>(a, b);
        rows<<<SIDE * PAGES / ROWS, warps>>>(b, 0.5f);
        transpose<<<grid, block>>>(b, a);
        rows<<<SIDE * PAGES / ROWS, warps>>>(a, 0.0f);
        transpose<<<grid, block>>>(a, b);
        rows<<<SIDE * PAGES / ROWS, warps>>>(b, 0.0f);
        transpose<<<grid, block>>>(b, a);
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int k = 0; k < BLOCKS; ++k) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaMemcpy(host.data(), a, n * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0, square = 0;
    for (float v : host) {
        sum += fabs(v);
        square += double(v) * v;
    }
    printf("%.1f pages/ms\n", PAGES / times[times.size() / 2] * 1e3);
    printf("{\"program\": \"cuda_hadamard_pages\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], sum / n, square / n);
    return 0;
}
