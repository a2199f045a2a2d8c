// Walsh-Hadamard transform of square pages, threshold, and back: rows, columns, rows.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int SIDE = 1024;
constexpr int PAGES = 64;
constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;    // rows of an item
constexpr int WIDTH = 16;              // columns of an item
constexpr int ITEMS = SIDE / WIDTH;    // of a page in each pass
constexpr int PITCH = 32 * WIDTH + 16;
constexpr int SHARED = 32 * PITCH * 4;
constexpr int LAG = 2;                 // pages between the passes
static_assert(WARPS == WIDTH && SHARED >= WARPS * 32 * 33 * 4 && THREADS == 32 * WIDTH, "");
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

// A step of a page is: transform rows, transform columns, threshold, transform rows, transform columns.
// The last two commute, so it takes three passes over a page, in place:
//   0  rows
//   1  columns, threshold, columns
//   2  rows
// One launch runs all passes of all pages. A pass of a page is ITEMS items for a block each; the passes of
// a page follow each other soon, while the page is in L2. All blocks are resident (a cooperative launch),
// and an item waits only for items before it in the order, so there is always one that can go on.
__device__ __forceinline__ unsigned acquire(const unsigned* p) {
    unsigned v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}

// Hides where a pointer comes from: the accesses below then are a register and a constant each.
template <class T>
__device__ __forceinline__ T* plain(T* p) {
    asm volatile("" : "+l"(p));
    return p;
}

template <bool LAST>
__device__ __forceinline__ void rows(float* start, float* row, int lane) {
    float v[32];
    float* mine = plain(start + lane);
    float* put = row + lane;
    float* get = row + lane * 33;
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = __ldcg(mine + k * 32);
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) put[k * 33] = v[k];
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = get[k];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) get[k] = v[k] * 0.03125f;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        float x = put[k * 33];
        if (LAST) __stcs(mine + k * 32, x);
        else __stcg(mine + k * 32, x);
    }
}

__device__ __forceinline__ void columns(float* strip, float* shared, float threshold) {
    int c = threadIdx.x % WIDTH, w = threadIdx.x / WIDTH;
    float* mine = plain(strip + w * SIDE + c);
    float* put = shared + w * WIDTH + c;
    float* get = shared + w * PITCH + c;
    float v[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = __ldcg(mine + k * 32 * SIDE);
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) put[k * PITCH] = v[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = get[k * WIDTH];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) {
        float x = v[k] * 0.03125f;
        v[k] = fabsf(x) < threshold ? 0.0f : x;
    }
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) get[k * WIDTH] = v[k] * 0.03125f;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) v[k] = put[k * PITCH];
    transform(v);
#pragma unroll
    for (int k = 0; k < 32; ++k) __stcg(mine + k * 32 * SIDE, v[k]);
}

// done[pass][page] counts finished items over all launches; launch is 1, 2, ...
__global__ void __launch_bounds__(THREADS, 2) pages(float* data, unsigned* done, unsigned launch, float threshold) {
    extern __shared__ float shared[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int item = blockIdx.x; item < (PAGES + 2 * LAG) * 3 * ITEMS; item += gridDim.x) {
        int slot = item / (3 * ITEMS), pass = item / ITEMS % 3, part = item % ITEMS;
        int page = slot - pass * LAG;
        if (page < 0 || page >= PAGES) continue;
        if (pass > 0 && threadIdx.x == 0)
            while (acquire(done + (pass - 1) * PAGES + page) < launch * ITEMS) {}
        __syncthreads();
        float* base = data + size_t(page) * SIDE * SIDE;
        if (pass == 1) {
            columns(base + part * WIDTH, shared, threshold);
        } else {
            float* mine = base + (part * WARPS + warp) * SIDE;
            float* row = shared + warp * 32 * 33;
            if (pass == 0) rows<false>(mine, row, lane);
            else rows<true>(mine, row, lane);
        }
        __syncthreads();
        if (pass < 2 && threadIdx.x == 0) {
            __threadfence();
            atomicAdd(done + pass * PAGES + page, 1u);
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
    unsigned* done;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&done, 2 * PAGES * sizeof(unsigned)));
    CHECK(cudaMemset(done, 0, 2 * PAGES * sizeof(unsigned)));
    CHECK(cudaMemcpy(a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    int device, processors, resident;
    CHECK(cudaGetDevice(&device));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
    CHECK(cudaFuncSetAttribute(pages, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, pages, THREADS, SHARED));
    unsigned launch = 0;
    float threshold = 0.5f;

    auto step = [&]() {
        ++launch;
        void* args[] = {&a, &done, &launch, &threshold};
        CHECK(cudaLaunchCooperativeKernel((const void*)pages, dim3(processors * resident), dim3(THREADS), args,
                                          SHARED, cudaStream_t(0)));
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
