// Walsh-Hadamard transform of square pages, threshold, and back.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int SIDE = 1024;
constexpr int PAGES = 64;
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

// In a step: rows, columns, threshold, and then rows and columns again. The latter two commute, so the
// columns go forth and back in one piece: three passes (rows; columns, threshold, columns; rows), in place.
// The passes of a page follow one another closely, so that a page is still in the second-level cache: blocks
// take tickets, in the order of the pages, and wait until the pass before is done with their page.
// A block only ever waits for lower tickets, which run already.
constexpr int THREADS = 512;
constexpr int COLS = 16;                         // columns of a block
constexpr int PARTS = SIDE / COLS;               // blocks of a page in a pass; a block has as many rows
constexpr int LAG = 2;                           // pages between the passes
constexpr int STAGES = PAGES + 2 * LAG;
constexpr int TICKETS = STAGES * 3 * PARTS;
constexpr int SHARED = (SIDE + 32) * COLS * sizeof(float);
static_assert(THREADS == 32 * COLS && PARTS * COLS == SIDE, "");

__device__ void row_pass(float* mine, float* row, int lane, bool last) {
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = __ldcg(mine + k * 32 + lane);
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) row[k * 33 + lane] = v[k];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = row[lane * 33 + k];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) row[lane * 33 + k] = v[k] * 0.03125f;
    __syncwarp();
    if (last) {
#pragma unroll
        for (int k = 0; k < 32; ++k) __stcs(mine + k * 32 + lane, row[k * 33 + lane]);
    } else {
#pragma unroll
        for (int k = 0; k < 32; ++k) __stcg(mine + k * 32 + lane, row[k * 33 + lane]);
    }
}

// Row r of the piece lies at r * COLS + (r / 32) * COLS.
__device__ void column_pass(float* piece, float* tile, float threshold) {
    int c = threadIdx.x % COLS, g = threadIdx.x / COLS;
    float v[32];
    float* mine = piece + size_t(g) * SIDE + c;
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = __ldcg(mine + k * 32 * SIDE);
    transform(v);
    float* far = tile + g * COLS + c;            // rows k * 32 + g
    float* near = tile + g * 33 * COLS + c;      // rows g * 32 + k
#pragma unroll
    for (int k = 0; k < 32; ++k) far[k * 33 * COLS] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = near[k * COLS];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        float x = v[k] * 0.03125f;
        v[k] = fabsf(x) < threshold ? 0.0f : x;
    }
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) near[k * COLS] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = far[k * 33 * COLS];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) __stcg(mine + k * 32 * SIDE, v[k] * 0.03125f);
}

// state: the next ticket, then for the first two passes how many blocks of each page are done.
// These count on from launch to launch; epoch is the number of launches before.
__global__ void __launch_bounds__(THREADS, 2) pages(float* data, unsigned* state, unsigned epoch, float threshold) {
    extern __shared__ float tile[];
    __shared__ unsigned shared_ticket;
    if (threadIdx.x == 0) {
        unsigned t = atomicAdd(state, 1u) - epoch * TICKETS;
        int pass = t / PARTS % 3, page = int(t / (3 * PARTS)) - pass * LAG;
        if (pass > 0 && page >= 0 && page < PAGES) {
            volatile unsigned* done = state + 1 + (pass - 1) * PAGES + page;
            while (*done < (epoch + 1) * PARTS) __nanosleep(100);
            __threadfence();
        }
        shared_ticket = t;
    }
    __syncthreads();
    unsigned t = shared_ticket;
    int part = t % PARTS, pass = t / PARTS % 3, page = int(t / (3 * PARTS)) - pass * LAG;
    if (page < 0 || page >= PAGES) return;
    float* base = data + size_t(page) * SIDE * SIDE;
    if (pass == 1) {
        column_pass(base + part * COLS, tile, threshold);
    } else {
        int lane = threadIdx.x % 32, w = threadIdx.x / 32;
        row_pass(base + size_t(part * COLS + w) * SIDE, tile + w * 32 * 33, lane, pass == 2);
    }
    if (pass < 2) {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicAdd(state + 1 + pass * PAGES + page, 1u);
        }
    }
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
    unsigned* state_d;
    unsigned epoch = 0;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&state_d, (1 + 2 * PAGES) * sizeof(unsigned)));
    CHECK(cudaMemset(state_d, 0, (1 + 2 * PAGES) * sizeof(unsigned)));
    CHECK(cudaFuncSetAttribute(pages, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    CHECK(cudaMemcpy(a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));

    auto step = [&]() {
        pages<<<TICKETS, THREADS, SHARED>>>(a, state_d, epoch, 0.5f);
        ++epoch;
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
