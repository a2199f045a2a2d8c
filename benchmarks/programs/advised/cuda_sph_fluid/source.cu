// Smoothed particles in a box: sort into cells, density, forces.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>

constexpr int SIDE = 96;                      // particles along an edge
constexpr int CELLS = 64;                     // cells along an edge
constexpr int PER_CELL = 32;
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

__device__ int cell_of(float4 p) {
    int x = min(max(int(p.x * CELLS), 0), CELLS - 1);
    int y = min(max(int(p.y * CELLS), 0), CELLS - 1);
    int z = min(max(int(p.z * CELLS), 0), CELLS - 1);
    return (z * CELLS + y) * CELLS + x;
}

// count: how many particles a cell has; behind these, how many slots are given out from the front of
// the sorted particles, and how many from the back (particles over PER_CELL, which nobody sees).
constexpr int ALL_CELLS = CELLS * CELLS * CELLS;
constexpr int EDGE = CELLS + 1;

__global__ void count_cells(const float4* pos, int* count, int* slot, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    slot[i] = atomicAdd(&count[cell_of(pos[i])], 1);
}

// A warp for each row of cells along x, which get slots next to one another.
__global__ void place_rows(int* count, int* first) {
    static_assert(CELLS == 64, "two cells for each lane");
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= CELLS * CELLS) return;
    int2 c = reinterpret_cast<const int2*>(count)[row * 32 + lane];
    int a = min(c.x, PER_CELL), both = a + min(c.y, PER_CELL), sum = both;
    for (int k = 1; k < 32; k *= 2) {
        int other = __shfl_up_sync(~0u, sum, k);
        if (lane >= k) sum += other;
    }
    int base = 0;
    if (lane == 31) base = atomicAdd(&count[ALL_CELLS], sum);
    base = __shfl_sync(~0u, base, 31);
    int* mine = first + row * EDGE;
    mine[2 * lane] = base + sum - both;
    mine[2 * lane + 1] = base + sum - both + a;
    if (lane == 31) mine[CELLS] = base + sum;
}

__global__ void scatter(const float4* pos, const int* slot, const int* first, int* count, float4* sorted,
                        int* origin, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = pos[i];
    int c = cell_of(p), at = slot[i];
    int s = at < PER_CELL ? first[c / CELLS * EDGE + c % CELLS] + at
                          : n - 1 - atomicAdd(&count[ALL_CELLS + 1], 1);
    sorted[s] = p;
    origin[s] = i;
}

// The three cells along x are one range of the sorted particles.
template <typename F>
__device__ __forceinline__ void neighbours(float4 p, const int* __restrict__ first, F f) {
    int c = cell_of(p);
    int cx = c % CELLS, cy = c / CELLS % CELLS, cz = c / (CELLS * CELLS);
    int x0 = max(cx - 1, 0), x1 = min(cx + 1, CELLS - 1) + 1;
    for (int z = max(cz - 1, 0); z <= min(cz + 1, CELLS - 1); ++z)
        for (int y = max(cy - 1, 0); y <= min(cy + 1, CELLS - 1); ++y) {
            const int* row = first + (z * CELLS + y) * EDGE;
            int end = row[x1];
#pragma unroll 4
            for (int j = row[x0]; j < end; ++j) f(j);
        }
}

__global__ void __launch_bounds__(128) densities(const float4* __restrict__ sorted, const int* __restrict__ first,
                                                 float4* __restrict__ dense, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = sorted[i];
    float sum = 0;
    neighbours(p, first, [&](int j) {
        float4 q = sorted[j];
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
        float w = fmaxf(1 - r2, 0.0f);
        sum += w * w * w;
    });
    dense[i] = make_float4(p.x, p.y, p.z, sum);
}

__global__ void __launch_bounds__(128) move(const float4* __restrict__ dense, const int* __restrict__ first,
                                            const int* __restrict__ origin, float4* __restrict__ pos,
                                            float4* __restrict__ vel, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = dense[i];
    float mine = p.w - 3.0f;
    float fx = 0, fy = 0, fz = 0;
    // a particle itself has no distance, thus adds nothing
    neighbours(p, first, [&](int j) {
        float4 q = dense[j];
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
        float w = fmaxf(1 - r2, 0.0f) * (mine + q.w);
        fx += w * dx;
        fy += w * dy;
        fz += w * dz;
    });
    int to = origin[i];
    float4 v = vel[to];
    v.x += DT * (20.0f * fx);
    v.y += DT * (20.0f * fy);
    v.z += DT * (20.0f * fz - 1.0f);
    p.x = fminf(fmaxf(p.x + DT * v.x, 0.0f), 0.999f);
    p.y = fminf(fmaxf(p.y + DT * v.y, 0.0f), 0.999f);
    p.z = fminf(fmaxf(p.z + DT * v.z, 0.0f), 0.999f);
    p.w = 0.0f;
    pos[to] = p;
    vel[to] = v;
}

struct Fluid {
    int n;
    float4 *pos, *vel;
    int *count, *first, *slot, *origin;
    float4 *sorted, *dense;

    void scratch() {
        CHECK(cudaMalloc(&count, (ALL_CELLS + 2) * sizeof(int)));
        CHECK(cudaMalloc(&first, CELLS * CELLS * EDGE * sizeof(int)));
        CHECK(cudaMalloc(&slot, n * sizeof(int)));
        CHECK(cudaMalloc(&origin, n * sizeof(int)));
        CHECK(cudaMalloc(&sorted, n * sizeof(float4)));
        CHECK(cudaMalloc(&dense, n * sizeof(float4)));
    }

    void step() {
        CHECK(cudaMemsetAsync(count, 0, (ALL_CELLS + 2) * sizeof(int)));
        int grid = (n + 127) / 128;
        count_cells<<<grid, 128>>>(pos, count, slot, n);
        place_rows<<<CELLS * CELLS / 4, 128>>>(count, first);
        scatter<<<grid, 128>>>(pos, slot, first, count, sorted, origin, n);
        densities<<<grid, 128>>>(sorted, first, dense, n);
        move<<<grid, 128>>>(dense, first, origin, pos, vel, n);
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
    fluid.scratch();
    CHECK(cudaMalloc(&fluid.pos, n * sizeof(float4)));
    CHECK(cudaMalloc(&fluid.vel, n * sizeof(float4)));
    CHECK(cudaMemcpy(fluid.pos, start.data(), n * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(fluid.vel, zero.data(), n * sizeof(float4), cudaMemcpyHostToDevice));

    for (int i = 0; i < WARMUP; ++i) fluid.step();
    CHECK(cudaGetLastError());
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
