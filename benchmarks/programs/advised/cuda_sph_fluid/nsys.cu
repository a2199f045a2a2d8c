// Smoothed particles in a box: sort into cells, density, forces; scratch memory kept between steps.
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

constexpr int TOTAL_CELLS = CELLS * CELLS * CELLS;
constexpr int SCAN_THREADS = 256;             // four cells a thread: sixteen whole rows a block
static_assert(TOTAL_CELLS % (4 * SCAN_THREADS) == 0 && (4 * SCAN_THREADS) % CELLS == 0, "rows");

// Count the particles of each cell and note each particle's place in its cell.
__global__ void count_cells(const float4* __restrict__ pos, int* count, int* __restrict__ rank, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int c = cell_of(pos[i]);
    unsigned active = __activemask();
    unsigned peers = __match_any_sync(active, c);
    int lane = threadIdx.x & 31;
    int leader = __ffs(peers) - 1;
    int base = 0;
    if (lane == leader) base = atomicAdd(&count[c], __popc(peers));
    base = __shfl_sync(active, base, leader);
    rank[i] = base + __popc(peers & ((1u << lane) - 1));
}

// Where each cell's particles go: contiguous within a row of cells (rows in any order). Clears the counts.
__global__ void place_cells(int4* count, int4* start, int4* finish, int* used) {
    __shared__ int warp_sum[SCAN_THREADS / 32];
    __shared__ int block_base;
    int at = blockIdx.x * SCAN_THREADS + threadIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int4 c = count[at];
    count[at] = make_int4(0, 0, 0, 0);
    int mine = c.x + c.y + c.z + c.w;
    int sum = mine;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) warp_sum[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        int all = 0;
        for (int w = 0; w < SCAN_THREADS / 32; ++w) {
            int t = warp_sum[w];
            warp_sum[w] = all;
            all += t;
        }
        block_base = atomicAdd(used, all);
    }
    __syncthreads();
    int first = block_base + warp_sum[warp] + sum - mine;
    int4 s = make_int4(first, first + c.x, first + c.x + c.y, first + c.x + c.y + c.z);
    start[at] = s;
    finish[at] = make_int4(s.y, s.z, s.w, s.w + c.w);
}

__global__ void reorder(const float4* __restrict__ pos, const float4* __restrict__ vel,
                        const int* __restrict__ start, const int* __restrict__ rank,
                        float4* __restrict__ sorted_pos, float4* __restrict__ sorted_vel, int* used, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) *used = 0;
    if (i >= n) return;
    float4 p = pos[i];
    int to = start[cell_of(p)] + rank[i];
    sorted_pos[to] = p;
    sorted_vel[to] = vel[i];
}

// The 27 cells around a particle are nine contiguous ranges of the sorted particles.
template <typename F>
__device__ __forceinline__ void ranges(float4 p, const int* __restrict__ start,
                                       const int* __restrict__ finish, F f) {
    int c = cell_of(p);
    int cx = c % CELLS, cy = c / CELLS % CELLS, cz = c / (CELLS * CELLS);
    int x0 = max(cx - 1, 0), x1 = min(cx + 1, CELLS - 1);
#pragma unroll
    for (int k = 0; k < 9; ++k) {
        int z = cz + k / 3 - 1, y = cy + k % 3 - 1;
        int begin = 0, end = 0;
        if (z >= 0 && z < CELLS && y >= 0 && y < CELLS) {
            int row = (z * CELLS + y) * CELLS;
            begin = start[row + x0];
            end = finish[row + x1];
        }
        f(k, begin, end);
    }
}

// Density, and for the forces one bit for each of a range's first 32 particles: within reach or not.
__global__ void densities(const float4* __restrict__ pos, const int* __restrict__ start,
                          const int* __restrict__ finish, float4* __restrict__ pos_rho,
                          unsigned* __restrict__ near, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = pos[i];
    float sum = 0;
    ranges(p, start, finish, [&](int k, int begin, int end) {
        unsigned mask = 0, bit = 1;
#pragma unroll 4
        for (int j = begin; j < end; ++j) {
            float4 q = pos[j];
            float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
            float r2 = (dx * dx + dy * dy + dz * dz) * (1.0f / (H * H));
            float w = fmaxf(1 - r2, 0.0f);
            sum += w * w * w;
            if (r2 < 1) mask |= bit;
            bit <<= 1;
        }
        near[size_t(k) * n + i] = mask;
    });
    pos_rho[i] = make_float4(p.x, p.y, p.z, sum);
}

__global__ void forces_integrate(const float4* __restrict__ pos_rho, const float4* __restrict__ sorted_vel,
                                 const int* __restrict__ start, const int* __restrict__ finish,
                                 const unsigned* __restrict__ near, float4* __restrict__ pos,
                                 float4* __restrict__ vel, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = pos_rho[i];
    float mine = p.w - 3.0f;
    float3 f = make_float3(0, 0, -1.0f);
    auto pair = [&](int j) {                   // a particle adds nothing to itself: its distance is zero
        float4 q = pos_rho[j];
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) * (1.0f / (H * H));
        float w = 20.0f * fmaxf(1 - r2, 0.0f) * (mine + q.w);
        f.x += w * dx;
        f.y += w * dy;
        f.z += w * dz;
    };
    ranges(p, start, finish, [&](int k, int begin, int end) {
        unsigned mask = near[size_t(k) * n + i];
        while (mask) {
            pair(begin + __ffs(mask) - 1);
            mask &= mask - 1;
        }
        for (int j = begin + 32; j < end; ++j) pair(j);
    });
    float4 v = sorted_vel[i];
    v.x += DT * f.x;
    v.y += DT * f.y;
    v.z += DT * f.z;
    p.x = fminf(fmaxf(p.x + DT * v.x, 0.0f), 0.999f);
    p.y = fminf(fmaxf(p.y + DT * v.y, 0.0f), 0.999f);
    p.z = fminf(fmaxf(p.z + DT * v.z, 0.0f), 0.999f);
    pos[i] = make_float4(p.x, p.y, p.z, 0);
    vel[i] = v;
}

struct Fluid {
    int n;
    float4 *pos, *vel;
    int *count, *start, *finish, *used, *rank;
    unsigned* near;
    float4 *sorted_pos, *sorted_vel, *pos_rho;

    void allocate() {
        CHECK(cudaMalloc(&pos, n * sizeof(float4)));
        CHECK(cudaMalloc(&vel, n * sizeof(float4)));
        CHECK(cudaMalloc(&count, TOTAL_CELLS * sizeof(int)));
        CHECK(cudaMalloc(&start, TOTAL_CELLS * sizeof(int)));
        CHECK(cudaMalloc(&finish, TOTAL_CELLS * sizeof(int)));
        CHECK(cudaMalloc(&used, sizeof(int)));
        CHECK(cudaMalloc(&rank, n * sizeof(int)));
        CHECK(cudaMalloc(&near, size_t(9) * n * sizeof(unsigned)));
        CHECK(cudaMalloc(&sorted_pos, n * sizeof(float4)));
        CHECK(cudaMalloc(&sorted_vel, n * sizeof(float4)));
        CHECK(cudaMalloc(&pos_rho, n * sizeof(float4)));
        CHECK(cudaMemset(count, 0, TOTAL_CELLS * sizeof(int)));
        CHECK(cudaMemset(used, 0, sizeof(int)));
    }

    void step() {
        int grid = (n + 127) / 128;
        count_cells<<<grid, 128>>>(pos, count, rank, n);
        place_cells<<<TOTAL_CELLS / (4 * SCAN_THREADS), SCAN_THREADS>>>(
            (int4*)count, (int4*)start, (int4*)finish, used);
        reorder<<<grid, 128>>>(pos, vel, start, rank, sorted_pos, sorted_vel, used, n);
        densities<<<grid, 128>>>(sorted_pos, start, finish, pos_rho, near, n);
        forces_integrate<<<grid, 128>>>(pos_rho, sorted_vel, start, finish, near, pos, vel, n);
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
