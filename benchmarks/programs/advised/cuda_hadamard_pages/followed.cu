// Walsh-Hadamard transform of square pages, threshold, and back: rows, transposed as they are written.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int SIDE = 1024;
constexpr int PAGES = 64;
constexpr int ROWS = 16;  // in a block, a warp each
constexpr int LINE = 32 + 1;
constexpr int SPAN = 32 * LINE + 2;
constexpr int SHARED = ROWS * SPAN * int(sizeof(float));
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
// Values below a threshold become zero. The rows of a block are written transposed.
// Lines of a row's square are padded by one word (no bank conflicts along either side), and rows
// are SPAN words apart, SPAN % 32 == 2, so that 16 rows of 2 neighbouring columns hit 32 banks.
__global__ void __launch_bounds__(32 * ROWS, 2)
rows_transposed(const float* __restrict__ in, float* __restrict__ out, float threshold) {
    extern __shared__ float shared[];
    int lane = threadIdx.x, w = threadIdx.y;
    const float* mine = in + (size_t(blockIdx.x) * ROWS + w) * SIDE;
    float* row = shared + w * SPAN;
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = mine[k * 32 + lane];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) row[k * LINE + lane] = v[k];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = row[lane * LINE + k];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        float x = v[k] * 0.03125f;
        row[lane * LINE + k] = fabsf(x) < threshold ? 0.0f : x;
    }
    __syncthreads();
    int page = blockIdx.x / (SIDE / ROWS), first = blockIdx.x % (SIDE / ROWS) * ROWS;
    int t = w * 32 + lane, r = t % ROWS, c = t / ROWS;  // c: 0 to 31
    float* to = out + (size_t(page) * SIDE + c) * SIDE + first + r;
    const float* from = shared + r * SPAN + c;
#pragma unroll
    for (int k = 0; k < 32; ++k) to[size_t(k) * 32 * SIDE] = from[k * LINE];
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
    dim3 warps(32, ROWS);
    int grid = SIDE * PAGES / ROWS;
    CHECK(cudaFuncSetAttribute(rows_transposed, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));

    auto step = [&]() {
        rows_transposed<<<grid, warps, SHARED>>>(a, b, 0.0f);
        rows_transposed<<<grid, warps, SHARED>>>(b, a, 0.5f);
        rows_transposed<<<grid, warps, SHARED>>>(a, b, 0.0f);
        rows_transposed<<<grid, warps, SHARED>>>(b, a, 0.0f);
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
