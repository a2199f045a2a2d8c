// Smoothed particles in a box: sort into cells (a counting sort), density, forces; scratch memory held.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cub/device/device_scan.cuh>

constexpr int SIDE = 96;                      // particles along an edge
constexpr int CELLS = 64;                     // cells along an edge
constexpr int XBINS = 2 * CELLS;              // bins along x: half a cell wide
constexpr int BINS = XBINS * CELLS * CELLS;
constexpr int WARMUP = 5;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 10;
constexpr float H = 1.0f / CELLS;
constexpr float DT = 1e-4f;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

__device__ int3 bin_of(float4 p) {
    return make_int3(min(max(int(p.x * XBINS), 0), XBINS - 1), min(max(int(p.y * CELLS), 0), CELLS - 1),
                     min(max(int(p.z * CELLS), 0), CELLS - 1));
}

__global__ void count_bins(const float4* __restrict__ pos, int* count, int* rank, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int3 c = bin_of(pos[i]);
    rank[i] = atomicAdd(&count[(c.z * CELLS + c.y) * XBINS + c.x], 1);
}

// Positions in the order of the bins; w holds the particle's number.
__global__ void sort_bins(const float4* __restrict__ pos, const int* __restrict__ first,
                          const int* __restrict__ rank, float4* __restrict__ sorted, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = pos[i];
    int3 c = bin_of(p);
    p.w = __int_as_float(i);
    sorted[first[(c.z * CELLS + c.y) * XBINS + c.x] + rank[i]] = p;
}

// The bins within H of p: 9 rows along x, each one run of the sorted particles.
template <typename F>
__device__ __forceinline__ void runs(float4 p, const int* __restrict__ first, F f) {
    int3 c = bin_of(p);
    int low = max(c.x - 2, 0), high = min(c.x + 2, XBINS - 1) + 1;
    int r = 0;
    for (int dz = -1; dz <= 1; ++dz)
        for (int dy = -1; dy <= 1; ++dy, ++r) {
            int z = c.z + dz, y = c.y + dy;
            if (z < 0 || z >= CELLS || y < 0 || y >= CELLS) continue;
            int row = (z * CELLS + y) * XBINS;
            f(r, __ldg(first + row + low), __ldg(first + row + high));
        }
}

// hits: for each run, the bits of those of its first 32 particles that lie within H.
__global__ void densities(const float4* __restrict__ sorted, const int* __restrict__ first,
                          float4* __restrict__ dense, unsigned* __restrict__ hits, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = sorted[i];
    float sum = 0;
    runs(p, first, [&](int r, int begin, int end) {
        unsigned mask = 0, bit = 1;
#pragma unroll 4
        for (int j = begin; j < end; ++j) {
            float4 q = __ldg(sorted + j);
            float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
            float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
            float t = fmaxf(1 - r2, 0.0f);
            sum += t * t * t;
            if (r2 < 1) mask |= bit;
            bit <<= 1;
        }
        hits[size_t(r) * n + i] = mask;
    });
    p.w = sum;
    dense[i] = p;
}

// Forces on a particle, then its move.
__global__ void forces(const float4* __restrict__ sorted, const float4* __restrict__ dense,
                       const int* __restrict__ first, const unsigned* __restrict__ hits,
                       float4* __restrict__ pos, float4* __restrict__ vel, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int id = __float_as_int(sorted[i].w);
    float4 p = dense[i];
    float4 v = vel[id];
    float mine = p.w;
    float4 f = make_float4(0, 0, -1.0f, 0);
    auto pair = [&](int j) {
        float4 q = __ldg(dense + j);
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
        if (r2 < 1 && j != i) {
            float w = 20.0f * (1 - r2) * (mine + q.w - 3.0f);
            f.x += w * dx;
            f.y += w * dy;
            f.z += w * dz;
        }
    };
    runs(p, first, [&](int r, int begin, int end) {
        if (end - begin <= 32) {
            for (unsigned mask = hits[size_t(r) * n + i]; mask; mask &= mask - 1)
                pair(begin + __ffs(mask) - 1);
        } else {
            for (int j = begin; j < end; ++j) pair(j);
        }
    });
    v.x += DT * f.x;
    v.y += DT * f.y;
    v.z += DT * f.z;
    p.x = fminf(fmaxf(p.x + DT * v.x, 0.0f), 0.999f);
    p.y = fminf(fmaxf(p.y + DT * v.y, 0.0f), 0.999f);
    p.z = fminf(fmaxf(p.z + DT * v.z, 0.0f), 0.999f);
    p.w = 0;
    pos[id] = p;
    vel[id] = v;
}

struct Fluid {
    int n;
    float4 *pos, *vel;
    int *count, *first, *rank;
    float4 *sorted, *dense;
    unsigned* hits;
    void* scratch;
    size_t scratch_bytes;

    void reserve() {
        CHECK(cudaMalloc(&count, (BINS + 1) * sizeof(int)));
        CHECK(cudaMalloc(&first, (BINS + 1) * sizeof(int)));
        CHECK(cudaMalloc(&rank, n * sizeof(int)));
        CHECK(cudaMalloc(&sorted, n * sizeof(float4)));
        CHECK(cudaMalloc(&dense, n * sizeof(float4)));
        CHECK(cudaMalloc(&hits, size_t(9) * n * sizeof(unsigned)));
        scratch = nullptr;
        scratch_bytes = 0;
        CHECK(cub::DeviceScan::ExclusiveSum(scratch, scratch_bytes, count, first, BINS + 1));
        CHECK(cudaMalloc(&scratch, scratch_bytes));
    }

    void step() {
        CHECK(cudaMemsetAsync(count, 0, (BINS + 1) * sizeof(int)));
        int grid = (n + 127) / 128;
        count_bins<<<grid, 128>>>(pos, count, rank, n);
        CHECK(cub::DeviceScan::ExclusiveSum(scratch, scratch_bytes, count, first, BINS + 1));
        sort_bins<<<grid, 128>>>(pos, first, rank, sorted, n);
        densities<<<grid, 128>>>(sorted, first, dense, hits, n);
        forces<<<grid, 128>>>(sorted, dense, first, hits, pos, vel, n);
    }
};

int main() {
    int n = SIDE * SIDE * SIDE;
    std::vector<float4> start(n), zero(n, make_float4(0, 0, 0, 0));
    unsigned state = 7;
    auto jitter = [&]() {
        state = state * 1664525u + 1013904223u;
        return float(state >> 8) / (1 << 24) * 0.002f;
    };
    for (int i = 0; i < n; ++i)
        start[i] = make_float4((i % SIDE) * 0.9f / SIDE + jitter(),
                               (i / SIDE % SIDE) * 0.9f / SIDE + jitter(),
                               (i / (SIDE * SIDE)) * 0.9f / SIDE + jitter(), 0);
    Fluid fluid{};
    fluid.n = n;
    fluid.reserve();
    CHECK(cudaMalloc(&fluid.pos, n * sizeof(float4)));
    CHECK(cudaMalloc(&fluid.vel, n * sizeof(float4)));
    CHECK(cudaMemcpy(fluid.pos, start.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(fluid.vel, zero.data(), n * sizeof(float4), cudaMemcpyHostToDevice));

    for (int i = 0; i < WARMUP; ++i) fluid.step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) fluid.step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaMemcpy(start.data(), fluid.pos, n * sizeof(float4), cudaMemcpyDeviceToHost));
    double x = 0, z = 0;
    for (auto p : start) {
        x += p.x;
        z += p.z;
    }
    printf("%d particles, centre %.5f %.5f\n", n, x / n, z / n);
    printf("{\"program\": \"cuda_sph_fluid\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], x / n, z / n);
    return 0;
}
