// Data assimilation: independent members of an ensemble, each a chain of small kernels.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int MEMBERS = 8;
constexpr int CELLS = 8192;
constexpr int SUBSTEPS = 40;  // even: the slots of the edges alternate
constexpr int INNER = 600;
constexpr int WARMUP = 3;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 6;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

constexpr int WARPS_PER_MEMBER = CELLS / 32;
constexpr int WARPS = MEMBERS * WARPS_PER_MEMBER;
constexpr int THREADS = 128;

__device__ __forceinline__ void put(unsigned long long* p, float v, unsigned tag) {
    unsigned long long w = (static_cast<unsigned long long>(tag) << 32) | __float_as_uint(v);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(w) : "memory");
}

__device__ __forceinline__ unsigned long long get(const unsigned long long* p) {
    unsigned long long w;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(w) : "l"(p) : "memory");
    return w;
}

__device__ __forceinline__ float inner(float fast, float k, int n) {
#pragma unroll 10
    for (int j = 0; j < n; ++j) {
        float kept = fmaf(-0.002f, fast, fast);
        fast = fmaf(0.002f, __sinf(fmaf(3.0f, fast, k)), kept);
        k += 1.0f;
    }
    return fast;
}

// All members and all substeps of a step: Lorenz-96 tendency, with fast small-scale variables inside each
// cell. A thread is a cell. Warps hand the cells at their edges to the neighbours as (tag, value) words,
// before the long inner loop, and take the neighbours' after it. Two slots by parity suffice: a warp can be
// at most one substep ahead of a neighbour.
__global__ void __launch_bounds__(THREADS) forecast(float* x, const float* force, unsigned long long* edges,
                                                    unsigned base) {
    int t = blockIdx.x * THREADS + threadIdx.x;
    int lane = threadIdx.x & 31;
    int warp = t >> 5;
    int member = warp / WARPS_PER_MEMBER;
    int w = warp % WARPS_PER_MEMBER;
    int left = member * WARPS_PER_MEMBER + (w + WARPS_PER_MEMBER - 1) % WARPS_PER_MEMBER;
    int right = member * WARPS_PER_MEMBER + (w + 1) % WARPS_PER_MEMBER;
    // words of a warp: 0 its cell 0, 1 its cell 30, 2 its cell 31 (3 unused)
    bool writes = lane == 0 || lane >= 30;
    int mine = warp * 4 + (lane == 0 ? 0 : lane - 29);
    bool reads = lane <= 1 || lane == 31;
    int theirs = lane == 31 ? right * 4 : left * 4 + (lane == 0 ? 2 : 1);
    float f = force[member];
    float v = x[t];
    for (int s = 0; s < SUBSTEPS; ++s) {
        unsigned tag = base + s + 1;
        unsigned long long* slot = edges + (s & 1) * (WARPS * 4);
        if (writes) put(slot + mine, v, tag);
        float fast = inner(0.1f * v, 0.0f, INNER / 2);
        unsigned long long word = 0;
        if (reads) word = get(slot + theirs);
        fast = inner(fast, float(INNER / 2), INNER - INNER / 2);
        if (reads)
            while (unsigned(word >> 32) != tag) word = get(slot + theirs);
        __syncwarp();
        float edge = __uint_as_float(unsigned(word));
        float edge0 = __shfl_sync(~0u, edge, 0), edge1 = __shfl_sync(~0u, edge, 1);
        float before = __shfl_up_sync(~0u, v, 1), before2 = __shfl_up_sync(~0u, v, 2);
        float after = __shfl_down_sync(~0u, v, 1);
        if (lane == 0) before = edge0, before2 = edge1;
        if (lane == 1) before2 = edge0;
        if (lane == 31) after = edge;
        float dx = (after - before2) * before - v + f - fast;
        v += 1e-4f * dx;
    }
    x[t] = v;
}

int main() {
    std::vector<float> host(CELLS), forces(MEMBERS);
    float *x, *force;
    unsigned long long* edges;
    CHECK(cudaMalloc(&x, MEMBERS * CELLS * sizeof(float)));
    CHECK(cudaMalloc(&force, MEMBERS * sizeof(float)));
    CHECK(cudaMalloc(&edges, 2 * WARPS * 4 * sizeof(unsigned long long)));
    CHECK(cudaMemset(edges, 0, 2 * WARPS * 4 * sizeof(unsigned long long)));
    for (int m = 0; m < MEMBERS; ++m) {
        for (int i = 0; i < CELLS; ++i) host[i] = 8.0f + sinf(0.1f * i + m);
        forces[m] = 8.0f + 0.1f * m;
        CHECK(cudaMemcpy(x + m * CELLS, host.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
    }
    CHECK(cudaMemcpy(force, forces.data(), MEMBERS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    unsigned base = 0;

    auto step = [&]() {
        void* args[] = {&x, &force, &edges, &base};
        // cooperative: all warps are resident together, as they wait for each other
        CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&forecast), dim3(MEMBERS * CELLS / THREADS),
                                          dim3(THREADS), args, 0, stream));
        base += SUBSTEPS;
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    double mean = 0, square = 0;
    for (int m = 0; m < MEMBERS; ++m) {
        CHECK(cudaMemcpy(host.data(), x + m * CELLS, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
        for (float v : host) {
            mean += v;
            square += double(v) * v;
        }
    }
    double n = double(MEMBERS) * CELLS;
    printf("ensemble mean %.5f\n", mean / n);
    printf("{\"program\": \"cuda_ensemble_lorenz\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], mean / n, square / n);
    return 0;
}
