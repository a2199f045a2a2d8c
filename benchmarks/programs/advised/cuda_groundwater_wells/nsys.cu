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
    float *head, *right, *smoothed;  // smoothed: the head between the way down and the way up
};

constexpr int SOLO = 2 * COARSEST;  // from this level down, one block does all in shared memory
constexpr int HALF_SWEEPS = 2 * SWEEPS;
constexpr float REACH2 = 0.0125f;   // beyond this squared distance a well takes out less than e^-50
static_assert(HALF_SWEEPS % 2 == 0 && COARSEST == 32, "the tiles and the solo block rely on it");

__device__ int steps_done;

// Right-hand side: storage of the last head, less what the wells take out.
__global__ void recharge(const float* head, float* right, int n) {
    __shared__ float near_x[WELLS], near_y[WELLS], near_rate[WELLS];
    __shared__ int near;
    int left = blockIdx.x * blockDim.x + 1, top = blockIdx.y * blockDim.y + 1;
    int lane = threadIdx.y * blockDim.x + threadIdx.x;
    if (lane < 32) {
        bool take = false;
        float rate = 0;
        if (lane < WELLS) {
            Well w = wells[lane];
            float x0 = float(left) / n, x1 = float(left + int(blockDim.x) - 1) / n;
            float y0 = float(top) / n, y1 = float(top + int(blockDim.y) - 1) / n;
            float dx = fmaxf(0.0f, fmaxf(x0 - w.x, w.x - x1)), dy = fmaxf(0.0f, fmaxf(y0 - w.y, w.y - y1));
            take = dx * dx + dy * dy < REACH2;
            rate = w.rate * (1.0f + 0.5f * __sinf(float(steps_done) / w.period));
        }
        unsigned all = __ballot_sync(0xffffffffu, take);
        if (take) {
            int place = __popc(all & ((1u << lane) - 1));
            near_x[place] = wells[lane].x;
            near_y[place] = wells[lane].y;
            near_rate[place] = rate;
        }
        if (lane == 0) near = __popc(all);
    }
    __syncthreads();
    int x = left + threadIdx.x, y = top + threadIdx.y;
    if (x >= n || y >= n) return;
    float px = float(x) / n, py = float(y) / n, pumped = 0;
    for (int w = 0; w < near; ++w) {
        float dx = px - near_x[w], dy = py - near_y[w];
        pumped += near_rate[w] * __expf(-(dx * dx + dy * dy) * 4000.0f);
    }
    size_t i = size_t(y) * (n + 1) + x;
    right[i] = STORAGE * head[i] - pumped;
}

// All half sweeps on a tile of EDGE x EDGE nodes in shared memory. What lacks a neighbour at the rim
// is wrong by one node more after each of them. The origin (ox, oy) is even.
template <int EDGE, int PITCH, int THREADS>
__device__ void smooth_tile(float* h, const float* r, int ox, int oy, int n, float h2) {
    constexpr int HALF = (EDGE - 1) / 2;
    float scale = 1.0f / (4.0f + STORAGE * h2);
    for (int s = 0; s < HALF_SWEEPS; ++s) {
        int colour = s & 1;
#pragma unroll 4
        for (int i = threadIdx.x; i < (EDGE - 2) * HALF; i += THREADS) {
            int y = 1 + i / HALF, x = 2 * (i % HALF) + 1 + ((y + colour) & 1);
            int gx = x + ox, gy = y + oy;
            if (x <= EDGE - 2 && gx > 0 && gx < n && gy > 0 && gy < n) {
                int k = y * PITCH + x;
                h[k] = (h[k - 1] + h[k + 1] + h[k - PITCH] + h[k + PITCH] + h2 * r[k]) * scale;
            }
        }
        __syncthreads();
    }
}

// Smooths, and restricts the residual to the level below.
template <int TILE, int THREADS>
__global__ void __launch_bounds__(THREADS) down(const float* head, const float* right, float* smoothed,
                                                float* right_below, int n, float h2, bool from_zero) {
    constexpr int LEFT = HALF_SWEEPS + 2, EDGE = LEFT + TILE + HALF_SWEEPS + 1, PITCH = (EDGE + 1) / 2 * 2;
    __shared__ float h[EDGE * PITCH], r[EDGE * PITCH];
    int ox = blockIdx.x * TILE - LEFT, oy = blockIdx.y * TILE - LEFT;
    int pitch = n + 1;
#pragma unroll 4
    for (int i = threadIdx.x; i < EDGE * EDGE; i += THREADS) {
        int y = i / EDGE, x = i % EDGE, gx = x + ox, gy = y + oy;
        bool inside = gx >= 0 && gx <= n && gy >= 0 && gy <= n;
        int g = gy * pitch + gx;
        h[y * PITCH + x] = inside && !from_zero ? head[g] : 0.0f;
        r[y * PITCH + x] = inside ? right[g] : 0.0f;
    }
    __syncthreads();
    smooth_tile<EDGE, PITCH, THREADS>(h, r, ox, oy, n, h2);
    float n2 = float(n) * n;
    constexpr int RESTS = TILE + 1;
    for (int i = threadIdx.x; i < RESTS * RESTS; i += THREADS) {
        int y = LEFT - 1 + i / RESTS, x = LEFT - 1 + i % RESTS, k = y * PITCH + x;
        int gx = x + ox, gy = y + oy;
        float mid = h[k];
        r[k] = r[k] - STORAGE * mid - (4.0f * mid - h[k - 1] - h[k + 1] - h[k - PITCH] - h[k + PITCH]) * n2;
        if (x >= LEFT && y >= LEFT && gx > 0 && gx < n && gy > 0 && gy < n) smoothed[gy * pitch + gx] = mid;
    }
    __syncthreads();
    constexpr int COARSE = TILE / 2;
    for (int i = threadIdx.x; i < COARSE * COARSE; i += THREADS) {
        int cy = i / COARSE, cx = i % COARSE;
        int gx = blockIdx.x * COARSE + cx, gy = blockIdx.y * COARSE + cy;
        if (gx < 1 || gy < 1) continue;
        int k = (LEFT + 2 * cy) * PITCH + LEFT + 2 * cx;
        float edges = r[k - 1] + r[k + 1] + r[k - PITCH] + r[k + PITCH];
        float corners = r[k - PITCH - 1] + r[k - PITCH + 1] + r[k + PITCH - 1] + r[k + PITCH + 1];
        right_below[gy * (n / 2 + 1) + gx] = 0.25f * r[k] + 0.125f * edges + 0.0625f * corners;
    }
}

// Adds the correction from the level below, and smooths.
template <int TILE, int THREADS>
__global__ void __launch_bounds__(THREADS) up(const float* smoothed, const float* right, const float* below,
                                              float* head, int n, float h2) {
    constexpr int LEFT = HALF_SWEEPS, EDGE = TILE + 2 * HALF_SWEEPS, PITCH = EDGE;
    __shared__ float h[EDGE * PITCH], r[EDGE * PITCH];
    int ox = blockIdx.x * TILE - LEFT, oy = blockIdx.y * TILE - LEFT;
    int pitch = n + 1, coarse_pitch = n / 2 + 1;
#pragma unroll 4
    for (int i = threadIdx.x; i < EDGE * EDGE; i += THREADS) {
        int y = i / EDGE, x = i % EDGE, gx = x + ox, gy = y + oy;
        float value = 0, source = 0;
        if (gx > 0 && gx < n && gy > 0 && gy < n) {
            int g = gy * pitch + gx;
            const float* c = below + (gy / 2) * coarse_pitch + gx / 2;
            int dx = gx & 1, dy = (gy & 1) * coarse_pitch;
            value = smoothed[g] + 0.25f * (c[0] + c[dx] + c[dy] + c[dx + dy]);
            source = right[g];
        }
        h[y * PITCH + x] = value;
        r[y * PITCH + x] = source;
    }
    __syncthreads();
    smooth_tile<EDGE, PITCH, THREADS>(h, r, ox, oy, n, h2);
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        int y = LEFT + i / TILE, x = LEFT + i % TILE, gx = x + ox, gy = y + oy;
        if (gx > 0 && gx < n && gy > 0 && gy < n) head[gy * pitch + gx] = h[y * PITCH + x];
    }
}

// The two coarsest levels of a V-cycle: one block, the heads in shared memory, what drives them in registers.
__global__ void __launch_bounds__(1024) bottom(const float* right, float* head, bool last) {
    constexpr int N = SOLO, PITCH = N + 2, M = COARSEST, SMALL = M + 2;  // pitches of 2 mod 32: no conflicts
    constexpr float H2 = 1.0f / (float(N) * N), SCALE = 1.0f / (4.0f + STORAGE * H2);
    constexpr float BELOW_H2 = 1.0f / (float(M) * M), BELOW_SCALE = 1.0f / (4.0f + STORAGE * BELOW_H2);
    __shared__ float h[(N + 1) * PITCH], rest[(N + 1) * PITCH], low[(M + 1) * SMALL];
    int tid = threadIdx.x, lane = tid & 31;
    for (int i = tid; i < (N + 1) * PITCH; i += 1024) h[i] = 0;
    for (int i = tid; i < (M + 1) * SMALL; i += 1024) low[i] = 0;
    // A thread's nodes: [colour][k]; a warp has 16 nodes of a colour in each of two rows.
    int at[2][2], global_at[2][2];
    float source[2][2];
    for (int colour = 0; colour < 2; ++colour)
        for (int k = 0; k < 2; ++k) {
            int w = tid / 32 + 32 * k, y = 1 + 2 * (w >> 1) + (lane >> 4);
            int x = 2 * ((w & 1) * 16 + (lane & 15)) + 1 + ((y + colour) & 1);
            bool inside = x < N && y < N;
            at[colour][k] = inside ? y * PITCH + x : -1;
            global_at[colour][k] = y * (N + 1) + x;
            source[colour][k] = inside ? right[y * (N + 1) + x] : 0.0f;
        }
    __syncthreads();
    auto smooth = [&]() {
        for (int s = 0; s < SWEEPS; ++s)
#pragma unroll
            for (int colour = 0; colour < 2; ++colour) {
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    int i = at[colour][k];
                    if (i >= 0)
                        h[i] = (h[i - 1] + h[i + 1] + h[i - PITCH] + h[i + PITCH] + H2 * source[colour][k]) * SCALE;
                }
                __syncthreads();
            }
    };
    smooth();
#pragma unroll
    for (int colour = 0; colour < 2; ++colour)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            int i = at[colour][k];
            if (i >= 0)
                rest[i] = source[colour][k] - STORAGE * h[i] -
                          (4.0f * h[i] - h[i - 1] - h[i + 1] - h[i - PITCH] - h[i + PITCH]) * (float(N) * N);
        }
    __syncthreads();
    if (tid < 512) {
        int y = 1 + (tid >> 4), c[2];
        float drive[2];
        bool inside[2];
#pragma unroll
        for (int colour = 0; colour < 2; ++colour) {
            int x = 2 * (tid & 15) + 1 + ((y + colour) & 1);
            inside[colour] = x < M && y < M;
            c[colour] = y * SMALL + x;
            drive[colour] = 0;
            if (inside[colour]) {
                const float* r = rest + 2 * y * PITCH + 2 * x;
                float edges = r[-1] + r[1] + r[-PITCH] + r[PITCH];
                float corners = r[-PITCH - 1] + r[-PITCH + 1] + r[PITCH - 1] + r[PITCH + 1];
                drive[colour] = BELOW_H2 * BELOW_SCALE * (0.25f * r[0] + 0.125f * edges + 0.0625f * corners);
            }
        }
#pragma unroll 4
        for (int s = 0; s < COARSE_SWEEPS; ++s)
#pragma unroll
            for (int colour = 0; colour < 2; ++colour) {
                int i = c[colour];
                if (inside[colour])
                    low[i] = ((low[i - 1] + low[i + 1]) + (low[i - SMALL] + low[i + SMALL])) * BELOW_SCALE +
                             drive[colour];
                asm volatile("bar.sync 1, 512;" ::: "memory");
            }
    }
    __syncthreads();
#pragma unroll
    for (int colour = 0; colour < 2; ++colour)
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            int i = at[colour][k];
            if (i >= 0) {
                int y = i / PITCH, x = i % PITCH;
                const float* c = low + (y / 2) * SMALL + x / 2;
                int dx = x & 1, dy = (y & 1) * SMALL;
                h[i] += 0.25f * (c[0] + c[dx] + c[dy] + c[dx + dy]);
            }
        }
    __syncthreads();
    smooth();
#pragma unroll
    for (int colour = 0; colour < 2; ++colour)
#pragma unroll
        for (int k = 0; k < 2; ++k)
            if (at[colour][k] >= 0) head[global_at[colour][k]] = h[at[colour][k]];
    if (last && tid == 0) ++steps_done;
}

static dim3 grid_for(int n) { return dim3((n + 31) / 32, (n + 7) / 8); }
static const dim3 THREADS(32, 8);

template <int TILE, int COUNT>
static void launch_down(const Level& level, const Level& below, bool from_zero, cudaStream_t stream) {
    down<TILE, COUNT><<<dim3(level.n / TILE, level.n / TILE), COUNT, 0, stream>>>(
        level.head, level.right, level.smoothed, below.right, level.n, level.h2, from_zero);
}

template <int TILE, int COUNT>
static void launch_up(const Level& level, const Level& below, cudaStream_t stream) {
    up<TILE, COUNT><<<dim3(level.n / TILE, level.n / TILE), COUNT, 0, stream>>>(
        level.smoothed, level.right, below.head, level.head, level.n, level.h2);
}

static void v_cycle(const std::vector<Level>& levels, size_t depth, bool last, cudaStream_t stream) {
    const Level& level = levels[depth];
    if (level.n == SOLO) {
        bottom<<<1, 1024, 0, stream>>>(level.right, level.head, last);
        return;
    }
    const Level& below = levels[depth + 1];
    bool from_zero = depth > 0;
    if (level.n >= 1024)
        launch_down<64, 512>(level, below, from_zero, stream);
    else if (level.n >= 512)
        launch_down<32, 256>(level, below, from_zero, stream);
    else
        launch_down<16, 128>(level, below, from_zero, stream);
    v_cycle(levels, depth + 1, last, stream);
    if (level.n >= 1024)
        launch_up<64, 512>(level, below, stream);
    else if (level.n >= 512)
        launch_up<32, 256>(level, below, stream);
    else
        launch_up<16, 128>(level, below, stream);
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
        for (float** p : {&level.head, &level.right, &level.smoothed}) {
            CHECK(cudaMalloc(p, bytes));
            CHECK(cudaMemset(*p, 0, bytes));
        }
        levels.push_back(level);
    }

    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaDeviceSynchronize());
    auto enqueue = [&]() {
        const Level& top = levels[0];
        recharge<<<grid_for(top.n), THREADS, 0, stream>>>(top.head, top.right, top.n);
        for (int c = 0; c < CYCLES; ++c) v_cycle(levels, 0, c + 1 == CYCLES, stream);
    };

    enqueue();  // the first step, which loads the kernels; the others are replays of a graph
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    enqueue();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&replay, graph, 0));
    auto step = [&]() { CHECK(cudaGraphLaunch(replay, stream)); };

    for (int i = 1; i < WARMUP; ++i) step();
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
