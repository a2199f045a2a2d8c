// Walsh-Hadamard transform of square pages, threshold, and back: rows, columns, rows.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int SIDE = 1024;
constexpr int PAGES = 64;
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

// The two transforms of a step along the rows, and those along the columns, commute; so a step is
// rows, columns with threshold and columns again in one pass, rows. Nothing has to be transposed.
// A block may take the pages from the end, where the pass before has left them in the L2 cache.
constexpr int COLS = 16;  // of a block of the middle pass
constexpr int COLS_SHARED = (SIDE + 32) * COLS * int(sizeof(float));

// A warp for each row, as 32 by 32 numbers: first along one side, then along the other.
// After the forward pass number p * 32 + q of a row lies at q * 32 + p; the backward pass undoes it.
template <bool FORWARD>
__global__ void __launch_bounds__(32 * ROWS) rows(float* data, bool reversed) {
    __shared__ float row[ROWS][32][33];
    int lane = threadIdx.x, w = threadIdx.y;
    size_t b = reversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    float* mine = data + (b * ROWS + w) * SIDE;
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = mine[k * 32 + lane];
    transform(v);
    if (FORWARD) {
#pragma unroll
        for (int k = 0; k < 32; ++k) row[w][k][lane] = v[k];
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 32; ++k) v[k] = row[w][lane][k];
    } else {
#pragma unroll
        for (int k = 0; k < 32; ++k) row[w][lane][k] = v[k];
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 32; ++k) v[k] = row[w][k][lane];
    }
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) mine[k * 32 + lane] = v[k] * 0.03125f;
}

// COLS columns of a page: forward, threshold, and back.
__global__ void __launch_bounds__(32 * COLS, 2) columns(float* data, float threshold, bool reversed) {
    extern __shared__ float tile[];  // number (row, c) at row * COLS + c, and COLS more after each 32 rows
    int c = threadIdx.x % COLS, r = threadIdx.x / COLS;
    unsigned b = reversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    float* mine = data + size_t(b / (SIDE / COLS)) * SIDE * SIDE + b % (SIDE / COLS) * COLS
                  + size_t(r) * SIDE + c;
    float* across = tile + r * COLS + c;       // rows k * 32 + r
    float* along = tile + r * 33 * COLS + c;   // rows r * 32 + k
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = mine[k * 32 * SIDE];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) across[k * 33 * COLS] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = along[k * COLS];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        float x = v[k] * 0.03125f;
        v[k] = fabsf(x) < threshold ? 0.0f : x;
    }
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) along[k * COLS] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = across[k * 33 * COLS];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) mine[k * 32 * SIDE] = v[k] * 0.03125f;
}

int main() {
    size_t n = size_t(SIDE) * SIDE * PAGES;
    std::vector<float> host(n);
    unsigned state = 11;
    for (size_t i = 0; i < n; ++i) {
        state = state * 1664525u + 1013904223u;
        host[i] = sinf(0.02f * (i % SIDE)) + 0.2f * (float(state >> 8) / (1 << 24) - 0.5f);
    }
    float* a;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMemcpy(a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    dim3 warps(32, ROWS);
    CHECK(cudaFuncSetAttribute(columns, cudaFuncAttributeMaxDynamicSharedMemorySize, COLS_SHARED));

    bool reversed = false;
    auto step = [&]() {
        rows<true><<<SIDE * PAGES / ROWS, warps>>>(a, reversed);
        columns<<<SIDE / COLS * PAGES, 32 * COLS, COLS_SHARED>>>(a, 0.5f, !reversed);
        rows<false><<<SIDE * PAGES / ROWS, warps>>>(a, reversed);
        reversed = !reversed;
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaGetLastError());
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
