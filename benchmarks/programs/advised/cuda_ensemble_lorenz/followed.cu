// Data assimilation: independent members of an ensemble, each on a stream of its own.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int MEMBERS = 8;
constexpr int CELLS = 8192;
constexpr int SUBSTEPS = 40;
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

constexpr int THREADS = 512;
constexpr int TILES = CELLS / THREADS;  // blocks of one member: 16, so 128 for all members
static_assert(CELLS % THREADS == 0 && SUBSTEPS % 2 == 0, "tiles");

typedef unsigned long long Word;  // a cell's value and the substep that it belongs to

__device__ inline void publish(Word* w, float v, unsigned epoch) {
    *(volatile Word*)w = (Word(epoch) << 32) | __float_as_uint(v);
}

__device__ inline float await(const Word* w, unsigned epoch) {
    Word got;
    do got = *(const volatile Word*)w;
    while (unsigned(got >> 32) != epoch);
    return __uint_as_float(unsigned(got));
}

// All substeps of one member. A block keeps its cells, and exchanges only the cells at its edges
// with its two neighbours: halo[parity][tile] = {first cell, last but one, last}.
// Lorenz-96 tendency, and fast small-scale variables inside each cell.
// All blocks of a member must be resident: the 128 blocks of the whole ensemble fit on the GPU.
__global__ void __launch_bounds__(THREADS) forecast_kernel(float* xs, const float* force, Word* halo,
                                                           unsigned base, float dt) {
    __shared__ float sh[2][THREADS + 3];
    const int t = threadIdx.x, tile = blockIdx.x;
    const int left = (tile + TILES - 1) % TILES, right = (tile + 1) % TILES;
    const int i = tile * THREADS + t;
    const float f = force[0];
    float x = xs[i];
    for (int s = 0; s < SUBSTEPS; ++s) {
        const int p = s & 1;
        const unsigned epoch = base + s + 1;
        Word* h = halo + p * TILES * 3;
        sh[p][t + 2] = x;
        if (t == 0) publish(h + tile * 3, x, epoch);
        if (t >= THREADS - 2) publish(h + tile * 3 + 1 + (t - (THREADS - 2)), x, epoch);

        // fast += 0.002 (sin(3 fast + k) - fast), with the next argument of the sine one
        // multiply-add after the sine.
        float fast = 0.1f * x;
        float arg = 3.0f * fast, k = 0.0f;
#pragma unroll 8
        for (int n = 0; n < INNER; ++n) {
            float decayed = fmaf(-0.002f, fast, fast);
            k += 1.0f;
            float rest = fmaf(3.0f, decayed, k);
            float sine = __sinf(arg);
            arg = fmaf(0.006f, sine, rest);
            fast = fmaf(0.002f, sine, decayed);
        }

        // The neighbours published their cells before the loop above.
        if (t == 0) sh[p][0] = await(h + left * 3 + 1, epoch);
        if (t == 1) sh[p][1] = await(h + left * 3 + 2, epoch);
        if (t == THREADS - 1) sh[p][THREADS + 2] = await(h + right * 3, epoch);
        __syncthreads();
        float near = sh[p][t + 3] - sh[p][t];
        float dx = near * sh[p][t + 1] - x + f - fast;
        x += dt * dx;
    }
    xs[i] = x;
}

struct Member {
    float *x, *force;
    Word* halo;
    unsigned epoch;
    cudaStream_t stream;
};

void forecast(Member& m, size_t shared) {
    forecast_kernel<<<TILES, THREADS, shared, m.stream>>>(m.x, m.force, m.halo, m.epoch, 1e-4f);
    m.epoch += SUBSTEPS;
}

int main() {
    std::vector<Member> members(MEMBERS);
    std::vector<float> host(CELLS);
    for (int e = 0; e < MEMBERS; ++e) {
        Member& m = members[e];
        for (int i = 0; i < CELLS; ++i) host[i] = 8.0f + sinf(0.1f * i + e);
        float force = 8.0f + 0.1f * e;
        CHECK(cudaMalloc(&m.x, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&m.halo, 2 * TILES * 3 * sizeof(Word)));
        CHECK(cudaMemset(m.halo, 0, 2 * TILES * 3 * sizeof(Word)));
        m.epoch = 0;
        CHECK(cudaStreamCreate(&m.stream));
        CHECK(cudaMalloc(&m.force, sizeof(float)));
        CHECK(cudaMemcpy(m.x, host.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(m.force, &force, sizeof(float), cudaMemcpyHostToDevice));
    }
    // Each block on an SM of its own, where there are enough: too much shared memory for two.
    int sms = 0;
    CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
    size_t shared = sms >= MEMBERS * TILES ? 120 * 1024 : 0;
    if (shared)
        CHECK(cudaFuncSetAttribute(forecast_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   int(shared)));
    CHECK(cudaDeviceSynchronize());

    auto step = [&]() {
        for (auto& m : members) forecast(m, shared);
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaGetLastError());
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
    for (auto& m : members) {
        CHECK(cudaMemcpy(host.data(), m.x, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
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
