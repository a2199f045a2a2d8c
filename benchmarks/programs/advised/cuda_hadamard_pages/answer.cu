// Walsh-Hadamard transform of square pages, threshold, and back: rows, transpose, rows.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int SIDE = 1024;
constexpr int PAGES = 64;
constexpr int ROWS = 8;      // in a block of rows(), a warp each
constexpr int COLUMNS = 16;  // in a block of columns()
constexpr int SHARED = (SIDE * COLUMNS + 32 * COLUMNS) * sizeof(float);
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

// A warp for each row, in registers: of the ten bits of the column, bits 0, 1, 7, 8 and 9 are in a
// lane's values and bits 2 to 6 are the lane. Rows go from the last to the first if so asked.
__global__ void __launch_bounds__(32 * ROWS) rows(float* data, int reverse) {
    int lane = threadIdx.x, w = threadIdx.y;
    int block = reverse ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    float4* mine = reinterpret_cast<float4*>(data + (size_t(block) * ROWS + w) * SIDE) + lane;
    float v[32];
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        float4 q = mine[k * 32];
        v[4 * k] = q.x, v[4 * k + 1] = q.y, v[4 * k + 2] = q.z, v[4 * k + 3] = q.w;
    }
    transform(v);
#pragma unroll
    for (int half = 1; half < 32; half *= 2) {
        float sign = lane & half ? -1.0f : 1.0f;
#pragma unroll
        for (int k = 0; k < 32; ++k) v[k] = fmaf(sign, v[k], __shfl_xor_sync(0xffffffffu, v[k], half));
    }
#pragma unroll
    for (int k = 0; k < 8; ++k)
        mine[k * 32] = make_float4(v[4 * k] * 0.03125f, v[4 * k + 1] * 0.03125f, v[4 * k + 2] * 0.03125f,
                                   v[4 * k + 3] * 0.03125f);
}

// Some columns of a page: transform, values below the threshold become zero, transform back.
__global__ void __launch_bounds__(32 * COLUMNS, 2) columns(float* data, float threshold, int reverse) {
    extern __shared__ float tile[];
    int column = threadIdx.x % COLUMNS, g = threadIdx.x / COLUMNS;
    int block = reverse ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    constexpr int STRIPS = SIDE / COLUMNS;
    float* mine = data + size_t(block / STRIPS) * SIDE * SIDE + size_t(g) * SIDE +
                  (block % STRIPS) * COLUMNS + column;
    // Row r of the tile begins at r * COLUMNS, plus COLUMNS for every 32 rows: no bank conflicts.
    float* across = tile + g * COLUMNS + column;       // rows 32 * k + g
    float* along = tile + g * 33 * COLUMNS + column;   // rows 32 * g + k
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = mine[k * 32 * SIDE];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) across[k * 33 * COLUMNS] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = along[k * COLUMNS];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        float x = v[k] * 0.03125f;
        v[k] = fabsf(x) < threshold ? 0.0f : x;
    }
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) along[k * COLUMNS] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = across[k * 33 * COLUMNS];
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
    CHECK(cudaFuncSetAttribute(columns, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));

    // Transforms of rows and of columns commute, so the columns' way there and back needs one pass.
    // Each pass begins where the one before ended, with what the L2 cache still holds.
    int reverse = 0;
    auto step = [&]() {
        rows<<<SIDE * PAGES / ROWS, warps>>>(a, reverse);
        columns<<<SIDE / COLUMNS * PAGES, 32 * COLUMNS, SHARED>>>(a, 0.5f, !reverse);
        rows<<<SIDE * PAGES / ROWS, warps>>>(a, reverse);
        reverse = !reverse;
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
    CHECK(cudaGetLastError());
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
