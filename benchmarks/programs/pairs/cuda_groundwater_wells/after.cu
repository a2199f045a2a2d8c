// Transient groundwater head around pumping wells: implicit Euler, each step by two multigrid V-cycles.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int FINE = 1024;     // intervals along an edge
constexpr int COARSEST = 32;
constexpr int COARSE_SWEEPS = 64;
constexpr int SWEEPS = 2;
constexpr int CYCLES = 2;
constexpr int WELLS = 24;
constexpr float STORAGE = 40.0f;  // S / (T dt), for a domain of edge 1
constexpr int WARMUP = 20;
constexpr int BLOCKS = 10;
constexpr int STEPS_PER_BLOCK = 150;

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t e = (call);                                                       \
        if (e != cudaSuccess) {                                                       \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

struct Well {
    float x, y, rate, period;
};

__constant__ Well wells[WELLS];

struct Level {
    int n;      // intervals; (n + 1) x (n + 1) nodes, the border is held at zero
    float h2;
    float *head, *right, *rest;
};

// Right-hand side: storage of the last head, less what the wells take out.
__global__ void recharge(const float* head, float* right, int n, float time) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1, y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (x >= n || y >= n) return;
    float px = float(x) / n, py = float(y) / n, pumped = 0;
    for (int w = 0; w < WELLS; ++w) {
        float dx = px - wells[w].x, dy = py - wells[w].y;
        float rate = wells[w].rate * (1.0f + 0.5f * __sinf(time / wells[w].period));
        pumped += rate * __expf(-(dx * dx + dy * dy) * 4000.0f);
    }
    size_t i = size_t(y) * (n + 1) + x;
    right[i] = STORAGE * head[i] - pumped;
}

__global__ void relax(float* head, const float* right, int n, float h2, int colour) {
    int y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    int x = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + 1 + ((y + colour) & 1);
    if (x >= n || y >= n) return;
    size_t pitch = n + 1, i = y * pitch + x;
    head[i] = (head[i - 1] + head[i + 1] + head[i - pitch] + head[i + pitch] + h2 * right[i]) /
              (4.0f + STORAGE * h2);
}

// The coarsest grid fits into one block: all its sweeps in one kernel.
__global__ void relax_coarsest(float* head, const float* right, int n, float h2, int sweeps) {
    __shared__ float u[COARSEST + 1][COARSEST + 1], f[COARSEST + 1][COARSEST + 1];
    int x = threadIdx.x + 1, y = threadIdx.y + 1;
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < (n + 1) * (n + 1); i += blockDim.x * blockDim.y) {
        u[i / (n + 1)][i % (n + 1)] = head[i];
        f[i / (n + 1)][i % (n + 1)] = right[i];
    }
    __syncthreads();
    bool inside = x < n && y < n;
    for (int s = 0; s < sweeps; ++s)
        for (int colour = 0; colour < 2; ++colour) {
            if (inside && (x & 1) == ((1 + y + colour) & 1))
                u[y][x] = (u[y][x - 1] + u[y][x + 1] + u[y - 1][x] + u[y + 1][x] + h2 * f[y][x]) /
                          (4.0f + STORAGE * h2);
            __syncthreads();
        }
    if (inside) head[y * (n + 1) + x] = u[y][x];
}

__global__ void residual(const float* head, const float* right, float* rest, int n, float h2) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1, y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (x >= n || y >= n) return;
    size_t pitch = n + 1, i = y * pitch + x;
    rest[i] = right[i] - STORAGE * head[i] -
              (4.0f * head[i] - head[i - 1] - head[i + 1] - head[i - pitch] - head[i + pitch]) / h2;
}

__global__ void restrict_down(const float* rest, float* right, float* head, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1, y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (x >= n || y >= n) return;
    size_t pitch = 2 * n + 1, i = 2 * y * pitch + 2 * x;
    float edges = rest[i - 1] + rest[i + 1] + rest[i - pitch] + rest[i + pitch];
    float corners = rest[i - pitch - 1] + rest[i - pitch + 1] + rest[i + pitch - 1] + rest[i + pitch + 1];
    size_t c = size_t(y) * (n + 1) + x;
    right[c] = 0.25f * rest[i] + 0.125f * edges + 0.0625f * corners;
    head[c] = 0;
}

__global__ void prolong(const float* coarse, float* head, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x + 1, y = blockIdx.y * blockDim.y + threadIdx.y + 1;
    if (x >= n || y >= n) return;
    size_t pitch = n / 2 + 1;
    const float* c = coarse + (y / 2) * pitch + x / 2;
    int dx = x & 1, dy = (y & 1) * int(pitch);
    head[size_t(y) * (n + 1) + x] += 0.25f * (c[0] + c[dx] + c[dy] + c[dx + dy]);
}

static dim3 grid_for(int n) { return dim3((n + 31) / 32, (n + 7) / 8); }
static dim3 half_grid_for(int n) { return dim3((n / 2 + 31) / 32, (n + 7) / 8); }
static const dim3 THREADS(32, 8);

static void smooth(const Level& level, int sweeps) {
    for (int s = 0; s < sweeps; ++s)
        for (int colour = 0; colour < 2; ++colour)
            relax<<<half_grid_for(level.n), THREADS>>>(level.head, level.right, level.n, level.h2, colour);
}

static void solve_coarsest(const Level& level) {
    relax_coarsest<<<1, dim3(32, 32)>>>(level.head, level.right, level.n, level.h2, COARSE_SWEEPS);
}

static void v_cycle(const std::vector<Level>& levels, size_t depth) {
    const Level& level = levels[depth];
    if (depth + 1 == levels.size()) {
        solve_coarsest(level);
        return;
    }
    const Level& below = levels[depth + 1];
    smooth(level, SWEEPS);
    residual<<<grid_for(level.n), THREADS>>>(level.head, level.right, level.rest, level.n, level.h2);
    restrict_down<<<grid_for(below.n), THREADS>>>(level.rest, below.right, below.head, below.n);
    v_cycle(levels, depth + 1);
    prolong<<<grid_for(level.n), THREADS>>>(below.head, level.head, level.n);
    smooth(level, SWEEPS);
}

int main() {
    std::vector<Well> host(WELLS);
    unsigned seed = 12345;
    auto uniform = [&]() {
        seed = seed * 1664525u + 1013904223u;
        return (seed >> 8) / 16777216.0f;
    };
    for (Well& w : host) {
        w.x = 0.1f + 0.8f * uniform();
        w.y = 0.1f + 0.8f * uniform();
        w.rate = 50.0f + 100.0f * uniform();
        w.period = 5.0f + 20.0f * uniform();
    }
    CHECK(cudaMemcpyToSymbol(wells, host.data(), WELLS * sizeof(Well)));
    std::vector<Level> levels;
    for (int n = FINE; n >= COARSEST; n /= 2) {
        Level level{n, 1.0f / (float(n) * n), nullptr, nullptr, nullptr};
        size_t bytes = size_t(n + 1) * (n + 1) * sizeof(float);
        for (float** p : {&level.head, &level.right, &level.rest}) {
            CHECK(cudaMalloc(p, bytes));
            CHECK(cudaMemset(*p, 0, bytes));
        }
        levels.push_back(level);
    }

    int done = 0;
    auto step = [&]() {
        const Level& top = levels[0];
        recharge<<<grid_for(top.n), THREADS>>>(top.head, top.right, top.n, float(done));
        for (int c = 0; c < CYCLES; ++c) v_cycle(levels, 0);
        ++done;
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
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double us = times[times.size() / 2];
    std::vector<float> head(size_t(FINE + 1) * (FINE + 1));
    CHECK(cudaMemcpy(head.data(), levels[0].head, head.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0, lowest = 0;
    for (float v : head) {
        sum += v;
        lowest = std::min(lowest, double(v));
    }
    printf("%.1f time steps/s, deepest drawdown %.4f\n", 1e6 / us, -lowest);
    printf("{\"program\": \"cuda_groundwater_wells\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, us, sum / head.size(), lowest);
    return 0;
}
