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
    float *head, *smoothed, *right;
};

static const dim3 THREADS(32, 8);

// Right-hand side: storage of the last head, less what the wells take out.
// A well's bell is a product of one of x and one of y.
__global__ void recharge(const float* head, float* right, int n, const int* done) {
    __shared__ float along_x[WELLS][32], along_y[WELLS][8];
    int x = blockIdx.x * 32 + threadIdx.x + 1, y = blockIdx.y * 8 + threadIdx.y + 1;
    float time = float(*done);
    for (int w = threadIdx.y; w < WELLS; w += 8) {
        float rate = wells[w].rate * (1.0f + 0.5f * __sinf(time / wells[w].period));
        float dx = float(x) / n - wells[w].x;
        along_x[w][threadIdx.x] = rate * __expf(-(dx * dx) * 4000.0f);
        if (threadIdx.x < 8) {
            float dy = float(blockIdx.y * 8 + threadIdx.x + 1) / n - wells[w].y;
            along_y[w][threadIdx.x] = __expf(-(dy * dy) * 4000.0f);
        }
    }
    __syncthreads();
    if (x >= n || y >= n) return;
    float pumped = 0;
#pragma unroll
    for (int w = 0; w < WELLS; ++w) pumped += along_x[w][threadIdx.x] * along_y[w][threadIdx.y];
    size_t i = size_t(y) * (n + 1) + x;
    right[i] = STORAGE * head[i] - pumped;
}

// All sweeps of a level in one launch: a block takes its tile with a margin that shrinks by one
// node with each half sweep. Reads `head`, writes `out`, as other blocks need the old values.
constexpr int TILE = 32;
constexpr int MARGIN = 2 * SWEEPS;
constexpr int SPAN = TILE + 2 * MARGIN;
enum Start { PLAIN, ZERO, PROLONG };

template <Start START>
__global__ void smooth_tile(const float* __restrict__ head, float* __restrict__ out,
                            const float* __restrict__ right, const float* __restrict__ coarse, int n,
                            float h2) {
    __shared__ float u[SPAN][SPAN], f[SPAN][SPAN];
    int x0 = blockIdx.x * TILE + 1 - MARGIN, y0 = blockIdx.y * TILE + 1 - MARGIN;
    int thread = threadIdx.y * 32 + threadIdx.x;
    for (int p = thread; p < SPAN * SPAN; p += 256) {
        int row = p / SPAN, col = p % SPAN, x = x0 + col, y = y0 + row;
        float value = 0, source = 0;
        if (x > 0 && x < n && y > 0 && y < n) {
            size_t i = size_t(y) * (n + 1) + x;
            source = right[i];
            if (START != ZERO) value = head[i];
            if (START == PROLONG) {
                int pitch = n / 2 + 1;
                const float* c = coarse + (y / 2) * pitch + x / 2;
                int dx = x & 1, dy = (y & 1) * pitch;
                value += 0.25f * (c[0] + c[dx] + c[dy] + c[dx + dy]);
            }
        }
        u[row][col] = value;
        f[row][col] = source;
    }
    __syncthreads();
#pragma unroll
    for (int k = 1; k <= MARGIN; ++k) {
        int odd = k & 1;  // colour 0, the first, has odd x + y
        for (int p = thread; p < SPAN * (SPAN / 2); p += 256) {
            int row = p / (SPAN / 2), y = y0 + row;
            int col = 2 * (p % (SPAN / 2)) + ((x0 + y + odd) & 1), x = x0 + col;
            if (row < k || row >= SPAN - k || col < k || col >= SPAN - k) continue;
            if (x < 1 || x >= n || y < 1 || y >= n) continue;
            u[row][col] = (u[row][col - 1] + u[row][col + 1] + u[row - 1][col] + u[row + 1][col] +
                           h2 * f[row][col]) /
                          (4.0f + STORAGE * h2);
        }
        __syncthreads();
    }
    for (int p = thread; p < TILE * TILE; p += 256) {
        int row = MARGIN + p / TILE, col = MARGIN + p % TILE, x = x0 + col, y = y0 + row;
        if (x < n && y < n) out[size_t(y) * (n + 1) + x] = u[row][col];
    }
}

__device__ __forceinline__ float residual_at(const float* head, const float* right, int i, int pitch, float h2) {
    return right[i] - STORAGE * head[i] -
           (4.0f * head[i] - head[i - 1] - head[i + 1] - head[i - pitch] - head[i + pitch]) / h2;
}

__device__ __forceinline__ float full_weighting(const float* rest, int i, int pitch) {
    float edges = rest[i - 1] + rest[i + 1] + rest[i - pitch] + rest[i + pitch];
    float corners = rest[i - pitch - 1] + rest[i - pitch + 1] + rest[i + pitch - 1] + rest[i + pitch + 1];
    return 0.25f * rest[i] + 0.125f * edges + 0.0625f * corners;
}

// Residual of a level, restricted to the right-hand side of the one below, of n intervals.
__global__ void restrict_down(const float* __restrict__ head, const float* __restrict__ right,
                              float* __restrict__ below, int n, float h2) {
    constexpr int WIDTH = 65, HEIGHT = 17;
    __shared__ float rest[HEIGHT * WIDTH];
    int fine = 2 * n, x0 = 2 * (blockIdx.x * 32 + 1) - 1, y0 = 2 * (blockIdx.y * 8 + 1) - 1;
    for (int p = threadIdx.y * 32 + threadIdx.x; p < HEIGHT * WIDTH; p += 256) {
        int x = x0 + p % WIDTH, y = y0 + p / WIDTH;
        rest[p] = x < fine && y < fine ? residual_at(head, right, y * (fine + 1) + x, fine + 1, h2) : 0.0f;
    }
    __syncthreads();
    int x = blockIdx.x * 32 + threadIdx.x + 1, y = blockIdx.y * 8 + threadIdx.y + 1;
    if (x >= n || y >= n) return;
    below[y * (n + 1) + x] = full_weighting(rest, (2 * threadIdx.y + 1) * WIDTH + 2 * threadIdx.x + 1, WIDTH);
}

// The three coarsest levels, by one block in shared memory.
constexpr int BLOCK_LEVEL = 4 * COARSEST;
constexpr int BLOCK_THREADS = 1024;
__host__ __device__ constexpr int nodes(int n) { return (n + 1) * (n + 1); }
constexpr int BLOCK_FLOATS = 2 * nodes(4 * COARSEST) + 3 * nodes(2 * COARSEST) + 2 * nodes(COARSEST);

template <int N>
__device__ void block_smooth(float* head, const float* right) {
    constexpr float h2 = 1.0f / (float(N) * N);
    constexpr int pitch = N + 1;
    for (int half = 0; half < 2 * SWEEPS; ++half) {
        for (int p = threadIdx.x; p < (N - 1) * (N / 2); p += BLOCK_THREADS) {
            int y = p / (N / 2) + 1, x = 2 * (p % (N / 2)) + 1 + ((y + half) & 1), i = y * pitch + x;
            if (x < N)
                head[i] = (head[i - 1] + head[i + 1] + head[i - pitch] + head[i + pitch] + h2 * right[i]) /
                          (4.0f + STORAGE * h2);
        }
        __syncthreads();
    }
}

// From a level of N intervals to that of N / 2.
template <int N>
__device__ void block_restrict(const float* head, const float* right, float* rest, float* below) {
    constexpr float h2 = 1.0f / (float(N) * N);
    for (int p = threadIdx.x; p < (N - 1) * N; p += BLOCK_THREADS) {
        int x = p % N + 1, y = p / N + 1, i = y * (N + 1) + x;
        if (x < N) rest[i] = residual_at(head, right, i, N + 1, h2);
    }
    __syncthreads();
    constexpr int C = N / 2;
    for (int p = threadIdx.x; p < (C - 1) * C; p += BLOCK_THREADS) {
        int x = p % C + 1, y = p / C + 1;
        if (x < C) below[y * (C + 1) + x] = full_weighting(rest, 2 * y * (N + 1) + 2 * x, N + 1);
    }
    __syncthreads();
}

template <int N>
__device__ void block_prolong(const float* coarse, float* head) {
    constexpr int pitch = N / 2 + 1;
    for (int p = threadIdx.x; p < (N - 1) * N; p += BLOCK_THREADS) {
        int x = p % N + 1, y = p / N + 1;
        if (x >= N) continue;
        const float* c = coarse + (y / 2) * pitch + x / 2;
        int dx = x & 1, dy = (y & 1) * pitch;
        head[y * (N + 1) + x] += 0.25f * (c[0] + c[dx] + c[dy] + c[dx + dy]);
    }
    __syncthreads();
}

// The sweeps of the coarsest level: a thread has two nodes of a row, one of each colour.
__device__ void block_solve(float* head, const float* right) {
    constexpr int N = COARSEST, pitch = N + 1, ROWS = N, USED = ROWS * (N / 2);
    constexpr float h2 = 1.0f / (float(N) * N);
    static_assert(USED <= BLOCK_THREADS && USED % 32 == 0, "whole warps");
    if (threadIdx.x < USED) {
        int y = threadIdx.x / (N / 2) + 1, first = 2 * (threadIdx.x % (N / 2)) + 1;
        int at[2];
        float source[2];
        bool inside[2];
        for (int colour = 0; colour < 2; ++colour) {
            int x = first + ((y + colour) & 1);
            inside[colour] = x < N && y < N;
            at[colour] = inside[colour] ? y * pitch + x : pitch + 1;
            source[colour] = h2 * right[at[colour]];  // exact: h2 is a power of two
        }
        for (int s = 0; s < COARSE_SWEEPS; ++s) {
#pragma unroll
            for (int colour = 0; colour < 2; ++colour) {
                int i = at[colour];
                if (inside[colour])
                    head[i] = (head[i - 1] + head[i + 1] + head[i - pitch] + head[i + pitch] + source[colour]) /
                              (4.0f + STORAGE * h2);
                asm volatile("bar.sync 1, %0;" ::"n"(USED) : "memory");
            }
        }
    }
    __syncthreads();
}

__global__ __launch_bounds__(BLOCK_THREADS) void coarse_cycle(float* head, const float* right, float* rest,
                                                              int* done) {
    extern __shared__ float pool[];
    constexpr int A = 4 * COARSEST, B = 2 * COARSEST, C = COARSEST;
    float *head_a = pool, *right_a = head_a + nodes(A);
    float *head_b = right_a + nodes(A), *right_b = head_b + nodes(B), *rest_b = right_b + nodes(B);
    float *head_c = rest_b + nodes(B), *right_c = head_c + nodes(C);
    for (int i = threadIdx.x; i < BLOCK_FLOATS; i += BLOCK_THREADS)
        pool[i] = i >= nodes(A) && i < 2 * nodes(A) ? right[i - nodes(A)] : 0.0f;
    __syncthreads();
    block_smooth<A>(head_a, right_a);
    block_restrict<A>(head_a, right_a, rest, right_b);
    block_smooth<B>(head_b, right_b);
    block_restrict<B>(head_b, right_b, rest_b, right_c);
    block_solve(head_c, right_c);
    block_prolong<B>(head_c, head_b);
    block_smooth<B>(head_b, right_b);
    block_prolong<A>(head_b, head_a);
    block_smooth<A>(head_a, right_a);
    for (int i = threadIdx.x; i < nodes(A); i += BLOCK_THREADS) head[i] = head_a[i];
    if (done && threadIdx.x == 0) ++*done;
}

static dim3 grid_for(int n) { return dim3((n + 31) / 32, (n + 7) / 8); }
static dim3 tiles_for(int n) { return dim3((n + TILE - 1) / TILE, (n + TILE - 1) / TILE); }

// levels: those above the block's, and the block's finest. `done`, if given, is counted up.
static void v_cycle(const std::vector<Level>& levels, float* rest, int* done, cudaStream_t stream) {
    size_t last = levels.size() - 1;
    for (size_t d = 0; d < last; ++d) {
        const Level &level = levels[d], &below = levels[d + 1];
        if (d == 0)
            smooth_tile<PLAIN><<<tiles_for(level.n), THREADS, 0, stream>>>(level.head, level.smoothed, level.right,
                                                                           nullptr, level.n, level.h2);
        else
            smooth_tile<ZERO><<<tiles_for(level.n), THREADS, 0, stream>>>(nullptr, level.smoothed, level.right,
                                                                          nullptr, level.n, level.h2);
        restrict_down<<<grid_for(below.n), THREADS, 0, stream>>>(level.smoothed, level.right, below.right, below.n,
                                                                 level.h2);
    }
    coarse_cycle<<<1, BLOCK_THREADS, BLOCK_FLOATS * sizeof(float), stream>>>(levels[last].head, levels[last].right,
                                                                             rest, done);
    for (size_t d = last; d-- > 0;) {
        const Level& level = levels[d];
        smooth_tile<PROLONG><<<tiles_for(level.n), THREADS, 0, stream>>>(
            level.smoothed, level.head, level.right, levels[d + 1].head, level.n, level.h2);
    }
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
    for (int n = FINE; n >= BLOCK_LEVEL; n /= 2) {
        Level level{n, 1.0f / (float(n) * n), nullptr, nullptr, nullptr};
        size_t bytes = size_t(n + 1) * (n + 1) * sizeof(float);
        for (float** p : {&level.head, &level.smoothed, &level.right}) {
            CHECK(cudaMalloc(p, bytes));
            CHECK(cudaMemset(*p, 0, bytes));
        }
        levels.push_back(level);
    }
    float* rest;
    int* done;
    CHECK(cudaMalloc(&rest, nodes(BLOCK_LEVEL) * sizeof(float)));
    CHECK(cudaMemset(rest, 0, nodes(BLOCK_LEVEL) * sizeof(float)));
    CHECK(cudaMalloc(&done, sizeof(int)));
    CHECK(cudaMemset(done, 0, sizeof(int)));
    CHECK(cudaFuncSetAttribute(coarse_cycle, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(BLOCK_FLOATS * sizeof(float))));
    CHECK(cudaDeviceSynchronize());

    // A step as a graph. The first V-cycle counts the steps up, after `recharge` has read the count.
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t launchable;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    const Level& top = levels[0];
    recharge<<<grid_for(top.n), THREADS, 0, stream>>>(top.head, top.right, top.n, done);
    for (int c = 0; c < CYCLES; ++c) v_cycle(levels, rest, c == 0 ? done : nullptr, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&launchable, graph, 0));
    auto step = [&]() { CHECK(cudaGraphLaunch(launchable, stream)); };

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
