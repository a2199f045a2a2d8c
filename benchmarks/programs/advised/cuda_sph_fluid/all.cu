// Smoothed particles in a box: sort into cells, density, forces; scratch memory on demand.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>

constexpr int SIDE = 96;                      // particles along an edge
constexpr int CELLS = 64;                     // cells along an edge
constexpr int PER_CELL = 32;
constexpr int ALL_CELLS = CELLS * CELLS * CELLS;
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

__global__ void fill_cells(const float4* pos, int* count, int* list, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int c = cell_of(pos[i]);
    int at = atomicAdd(&count[c], 1);
    if (at < PER_CELL) list[at * ALL_CELLS + c] = i;
}

// The k-th particles of neighbouring cells lie side by side, as neighbouring lanes read them.
template <typename F>
__device__ void neighbours(float4 p, const int* count, const int* list, F f) {
    int c = cell_of(p);
    int cx = c % CELLS, cy = c / CELLS % CELLS, cz = c / (CELLS * CELLS);
    for (int z = max(cz - 1, 0); z <= min(cz + 1, CELLS - 1); ++z)
        for (int y = max(cy - 1, 0); y <= min(cy + 1, CELLS - 1); ++y)
            for (int x = max(cx - 1, 0); x <= min(cx + 1, CELLS - 1); ++x) {
                int d = (z * CELLS + y) * CELLS + x;
                int many = min(count[d], PER_CELL);
                for (int k = 0; k < many; ++k) f(list[k * ALL_CELLS + d]);
            }
}

__global__ void densities(const float4* pos, const int* count, const int* list, float* rho, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = pos[i];
    float sum = 0;
    neighbours(p, count, list, [&](int j) {
        float4 q = pos[j];
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
        if (r2 < 1) sum += (1 - r2) * (1 - r2) * (1 - r2);
    });
    rho[i] = sum;
}

__global__ void forces(const float4* pos, const int* count, const int* list, const float* rho,
                       float4* force, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 p = pos[i];
    float mine = rho[i];
    float4 f = make_float4(0, 0, -1.0f, 0);
    neighbours(p, count, list, [&](int j) {
        float4 q = pos[j];
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z;
        float r2 = (dx * dx + dy * dy + dz * dz) / (H * H);
        if (r2 < 1 && j != i) {
            float w = 20.0f * (1 - r2) * (mine + rho[j] - 3.0f);
            f.x += w * dx;
            f.y += w * dy;
            f.z += w * dz;
        }
    });
    force[i] = f;
}

__global__ void integrate(float4* pos, float4* vel, const float4* force, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = vel[i], p = pos[i], f = force[i];
    v.x += DT * f.x;
    v.y += DT * f.y;
    v.z += DT * f.z;
    p.x = fminf(fmaxf(p.x + DT * v.x, 0.0f), 0.999f);
    p.y = fminf(fmaxf(p.y + DT * v.y, 0.0f), 0.999f);
    p.z = fminf(fmaxf(p.z + DT * v.z, 0.0f), 0.999f);
    pos[i] = p;
    vel[i] = v;
}

struct Fluid {
    int n;
    float4 *pos, *vel;
    int *count = nullptr, *list = nullptr;
    float* rho = nullptr;
    float4* force = nullptr;
    static constexpr int cells = CELLS * CELLS * CELLS;

    void reserve() {
        CHECK(cudaMalloc(&count, cells * sizeof(int)));
        CHECK(cudaMalloc(&list, size_t(cells) * PER_CELL * sizeof(int)));
        CHECK(cudaMalloc(&rho, n * sizeof(float)));
        CHECK(cudaMalloc(&force, n * sizeof(float4)));
    }

    void step() {
        CHECK(cudaMemsetAsync(count, 0, cells * sizeof(int)));
        int grid = (n + 127) / 128;
        fill_cells<<<grid, 128>>>(pos, count, list, n);
        densities<<<grid, 128>>>(pos, count, list, rho, n);
        forces<<<grid, 128>>>(pos, count, list, rho, force, n);
        integrate<<<grid, 128>>>(pos, vel, force, n);

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
    Fluid fluid{n, nullptr, nullptr};
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
