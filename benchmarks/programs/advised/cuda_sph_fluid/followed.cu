// Smoothed particles in a box: sort into cells, density, forces; scratch memory allocated once.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>

constexpr int SIDE = 96;                      // particles along an edge
constexpr int CELLS = 64;                     // cells along an edge
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

constexpr int ROWS = CELLS * CELLS;            // rows of cells along x
constexpr int ROW_STARTS = CELLS + 1;         // begin of each cell of a row, and the row's end
static_assert(CELLS == 64, "row_starts: a warp takes a row, two cells a lane");

__global__ void count_cells(const float4* __restrict__ pos, int* count, int* __restrict__ rank,
                            int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    rank[i] = atomicAdd(&count[cell_of(pos[i])], 1);
}

// A warp for each row: its cells lie one after another, the rows in any order.
__global__ void row_starts(const int* __restrict__ count, int* total, int* __restrict__ start) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= ROWS) return;
    int2 c = reinterpret_cast<const int2*>(count)[row * 32 + lane];
    int sum = c.x + c.y;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    int base = 0;
    if (lane == 31) base = atomicAdd(total, sum);
    base = __shfl_sync(0xffffffffu, base, 31);
    int* to = start + row * ROW_STARTS + 2 * lane;
    to[0] = base + sum - c.x - c.y;
    to[1] = base + sum - c.y;
    if (lane == 31) to[2] = base + sum;
}

__global__ void sort_particles(const float4* __restrict__ pos, const int* __restrict__ rank,
                               const int* __restrict__ start, float4* __restrict__ sorted,
                               int* __restrict__ from, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = pos[i];
    int c = cell_of(p);
    int at = start[c / CELLS * ROW_STARTS + c % CELLS] + rank[i];
    sorted[at] = p;
    from[at] = i;
}

// Three neighbouring cells of a row are one range of the sorted particles.
template <typename F>
__device__ void neighbours(float4 p, const float4* __restrict__ sorted,
                           const int* __restrict__ start, F f) {
    int c = cell_of(p);
    int cx = c % CELLS, cy = c / CELLS % CELLS, cz = c / (CELLS * CELLS);
    int x0 = max(cx - 1, 0), x1 = min(cx + 1, CELLS - 1) + 1;
    for (int z = max(cz - 1, 0); z <= min(cz + 1, CELLS - 1); ++z)
        for (int y = max(cy - 1, 0); y <= min(cy + 1, CELLS - 1); ++y) {
            const int* row = start + (z * CELLS + y) * ROW_STARTS;
            int end = row[x1];
            for (int k = row[x0]; k < end; ++k) f(sorted[k]);
        }
}

__global__ void densities(const float4* __restrict__ sorted, const int* __restrict__ start,
                          float4* __restrict__ dense, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = sorted[i];
    float sum = 0;
    neighbours(p, sorted, start, [&](float4 q) {
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
        if (r2 < 1) sum += (1 - r2) * (1 - r2) * (1 - r2);
    });
    p.w = sum;
    dense[i] = p;
}

// Forces and the step in time. A particle adds nothing to itself: its distance is 0.
__global__ void forces(const float4* __restrict__ dense, const int* __restrict__ start,
                       const int* __restrict__ from, float4* __restrict__ pos,
                       float4* __restrict__ vel, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int to = from[i];
    float4 p = dense[i];
    float4 v = vel[to];
    float3 f = make_float3(0, 0, -1.0f);
    neighbours(p, dense, start, [&](float4 q) {
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
        if (r2 < 1) {
            float w = 20.0f * (1 - r2) * (p.w + q.w - 3.0f);
            f.x += w * dx;
            f.y += w * dy;
            f.z += w * dz;
        }
    });
    v.x += DT * f.x;
    v.y += DT * f.y;
    v.z += DT * f.z;
    p.x = fminf(fmaxf(p.x + DT * v.x, 0.0f), 0.999f);
    p.y = fminf(fmaxf(p.y + DT * v.y, 0.0f), 0.999f);
    p.z = fminf(fmaxf(p.z + DT * v.z, 0.0f), 0.999f);
    p.w = 0;
    pos[to] = p;
    vel[to] = v;
}

struct Fluid {
    int n;
    float4 *pos, *vel;
    int *count, *start, *rank, *from;         // scratch, allocated once
    float4 *sorted, *dense;

    void allocate() {
        size_t cells = size_t(ROWS) * CELLS;
        CHECK(cudaMalloc(&pos, n * sizeof(float4)));
        CHECK(cudaMalloc(&vel, n * sizeof(float4)));
        CHECK(cudaMalloc(&count, (cells + 1) * sizeof(int)));  // the last: particles placed so far
        CHECK(cudaMalloc(&start, size_t(ROWS) * ROW_STARTS * sizeof(int)));
        CHECK(cudaMalloc(&rank, n * sizeof(int)));
        CHECK(cudaMalloc(&from, n * sizeof(int)));
        CHECK(cudaMalloc(&sorted, n * sizeof(float4)));
        CHECK(cudaMalloc(&dense, n * sizeof(float4)));
    }

    void step() {
        int cells = ROWS * CELLS;
        CHECK(cudaMemsetAsync(count, 0, (cells + 1) * sizeof(int)));
        int grid = (n + 127) / 128;
        count_cells<<<grid, 128>>>(pos, count, rank, n);
        row_starts<<<ROWS * 32 / 128, 128>>>(count, count + cells, start);
        sort_particles<<<grid, 128>>>(pos, rank, start, sorted, from, n);
        densities<<<grid, 128>>>(sorted, start, dense, n);
        forces<<<grid, 128>>>(dense, start, from, pos, vel, n);
        CHECK(cudaGetLastError());
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
    fluid.allocate();
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
