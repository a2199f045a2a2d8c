// Data assimilation: independent members of an ensemble, each a chain of small kernels.
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
constexpr int TILES = CELLS / THREADS;      // blocks of one member
constexpr int GRID = MEMBERS * TILES;       // 128 blocks, one per SM, all resident
constexpr int UNROLL = 12;
constexpr float DT = 1e-4f;
static_assert(CELLS % THREADS == 0 && INNER % UNROLL == 0, "tiling");

struct Member {
    float *x, *force;
};

struct Members {
    Member m[MEMBERS];
};

// A cell at a tile's edge, passed to the neighbouring block: value and tag in one
// 64-bit word, so that it needs no fence. Each substep has its own slots.
using Slot = unsigned long long;

__device__ __forceinline__ void publish(Slot* slot, float value, unsigned tag) {
    *reinterpret_cast<volatile Slot*>(slot) =
        (static_cast<Slot>(tag) << 32) | __float_as_uint(value);
}

__device__ __forceinline__ float receive(const Slot* slot, unsigned tag) {
    Slot word;
    do {
        word = *reinterpret_cast<const volatile Slot*>(slot);
    } while (static_cast<unsigned>(word >> 32) != tag);
    return __uint_as_float(static_cast<unsigned>(word));
}

// Lorenz-96 tendency, and fast small-scale variables inside each cell: all substeps of
// all members. The neighbours' cells are needed only after the loop over the fast
// variables, so waiting for them is hidden behind it.
__global__ void __launch_bounds__(THREADS) forecast(const __grid_constant__ Members members, Slot* slots, unsigned tag) {
    __shared__ float tile[2][THREADS];
    const int t = threadIdx.x;
    const int member = blockIdx.x / TILES;
    const int part = blockIdx.x % TILES;
    const int left = member * TILES + (part + TILES - 1) % TILES;
    const int right = member * TILES + (part + 1) % TILES;
    float* cell = members.m[member].x + part * THREADS + t;
    const float force = members.m[member].force[0];
    float x = *cell;

    for (int s = 0; s < SUBSTEPS; ++s, ++tag) {
        // Slots of a block: its first cell, its last but one, its last.
        Slot* row = slots + s * GRID * 3;
        float* here = tile[s & 1];
        here[t] = x;
        if (t == 0) publish(row + blockIdx.x * 3, x, tag);
        if (t >= THREADS - 2) publish(row + blockIdx.x * 3 + 1 + t - (THREADS - 2), x, tag);

        // fast += 0.002 (sin(3 fast + k) - fast), with a short chain from sine to sine.
        float fast = 0.1f * x;
        float phase = 3.0f * fast;
        float k = 1.0f;
        for (int j = 0; j < INNER / UNROLL; ++j) {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                float kept = fmaf(-0.002f, fast, fast);
                float base = fmaf(3.0f, kept, k + float(u));
                float wave = __sinf(phase);
                phase = fmaf(0.006f, wave, base);
                fast = fmaf(0.002f, wave, kept);
            }
            k += float(UNROLL);
        }

        __syncthreads();
        float next = t < THREADS - 1 ? here[t + 1] : receive(row + right * 3, tag);
        float last = t > 0 ? here[t - 1] : receive(row + left * 3 + 2, tag);
        float before = t > 1 ? here[t - 2] : receive(row + left * 3 + 1 + t, tag);
        float dx = (next - before) * last - x + force - fast;
        x += DT * dx;
    }
    *cell = x;
}

int main() {
    std::vector<Member> members(MEMBERS);
    std::vector<float> host(CELLS);
    for (int e = 0; e < MEMBERS; ++e) {
        Member& m = members[e];
        for (int i = 0; i < CELLS; ++i) host[i] = 8.0f + sinf(0.1f * i + e);
        float force = 8.0f + 0.1f * e;
        CHECK(cudaMalloc(&m.x, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&m.force, sizeof(float)));
        CHECK(cudaMemcpy(m.x, host.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(m.force, &force, sizeof(float), cudaMemcpyHostToDevice));
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    Members all;
    std::copy(members.begin(), members.end(), all.m);
    Slot* slots;
    CHECK(cudaMalloc(&slots, SUBSTEPS * GRID * 3 * sizeof(Slot)));
    CHECK(cudaMemset(slots, 0, SUBSTEPS * GRID * 3 * sizeof(Slot)));
    CHECK(cudaDeviceSynchronize());
    unsigned tag = 1;

    auto step = [&]() {
        void* args[] = {&all, &slots, &tag};
        CHECK(cudaLaunchCooperativeKernel((const void*)forecast, dim3(GRID), dim3(THREADS), args, 0, stream));
        tag += SUBSTEPS;
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
