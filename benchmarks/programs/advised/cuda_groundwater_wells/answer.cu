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
    int n;  // intervals; (n + 1) x (n + 1) nodes, the border is held at zero
    float *head, *right, *spare;  // spare: the head between the way down and the way up
};

constexpr int TILE_THREADS = 256;
constexpr int SOLVE_THREADS = 512;
constexpr float CULL = 40.0f;  // a well adds less than exp(-40) of its rate beyond this exponent
static_assert(SWEEPS == 2, "the halos of the tiles are those of two sweeps");

// One colour of a sweep over the nodes lo .. hi (in both directions) of a tile in shared memory.
// first_x and first_y: the node of the tile's element (0, 0).
template <int O, int LO, int HI, int COLOUR>
__device__ __forceinline__ void relax_tile(float* head, const float* right, int first_x, int first_y, int n,
                                           float h2, float inverse) {
    constexpr int ROWS = HI - LO + 1, HALF = (ROWS + 1) / 2;
    for (int i = threadIdx.x; i < ROWS * HALF; i += TILE_THREADS) {
        int r = LO + i / HALF, c = LO + 2 * (i % HALF);
        int y = first_y + r;
        c += (first_x + c + y + COLOUR + 1) & 1;
        int x = first_x + c;
        if (c <= HI && x > 0 && x < n && y > 0 && y < n) {
            int j = r * O + c;
            head[j] = (head[j - 1] + head[j + 1] + head[j - O] + head[j + O] + h2 * right[j]) * inverse;
        }
    }
    __syncthreads();
}

// The way down on one level: two sweeps, the residual and its restriction, tile by tile.
// RECHARGE: the right-hand side is made here (storage of the last head, less what the wells take out).
// ZERO: the head starts at zero.
template <int T, bool RECHARGE, bool ZERO>
__global__ void __launch_bounds__(TILE_THREADS) descend(const float* __restrict__ head, float* __restrict__ out,
                                                        float* right, float* __restrict__ below, int n, float h2,
                                                        const int* time) {
    constexpr int O = T + 12;
    __shared__ float s_head[O * O], s_right[O * O];
    __shared__ float near_x[WELLS], near_y[WELLS], near_rate[WELLS];
    __shared__ int near;
    const int tile_x = blockIdx.x * T, tile_y = blockIdx.y * T;
    const int first_x = tile_x - 6, first_y = tile_y - 6;
    const int pitch = n + 1;
    const float inverse = 1.0f / (4.0f + STORAGE * h2), inverse_h2 = float(n) * float(n);
    if (RECHARGE) {
        if (threadIdx.x == 0) near = 0;
        __syncthreads();
        if (threadIdx.x < WELLS) {
            Well w = wells[threadIdx.x];
            float left = float(first_x) / n, top = float(first_y) / n, edge = float(O) / n;
            float dx = fmaxf(fmaxf(left - w.x, w.x - left - edge), 0.0f);
            float dy = fmaxf(fmaxf(top - w.y, w.y - top - edge), 0.0f);
            if ((dx * dx + dy * dy) * 4000.0f < CULL) {
                int k = atomicAdd(&near, 1);
                near_x[k] = w.x;
                near_y[k] = w.y;
                near_rate[k] = w.rate * (1.0f + 0.5f * __sinf(float(*time) / w.period));
            }
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < O * O; i += TILE_THREADS) {
        int r = i / O, c = i % O, x = first_x + c, y = first_y + r;
        float h = 0, f = 0;
        if (x > 0 && x < n && y > 0 && y < n) {
            int g = y * pitch + x;
            if (!ZERO) h = head[g];
            if (RECHARGE) {
                float px = float(x) / n, py = float(y) / n, pumped = 0;
                for (int w = 0; w < near; ++w) {
                    float dx = px - near_x[w], dy = py - near_y[w];
                    pumped += near_rate[w] * __expf(-(dx * dx + dy * dy) * 4000.0f);
                }
                f = STORAGE * h - pumped;
                if (r >= 6 && r < T + 6 && c >= 6 && c < T + 6) right[g] = f;
            } else {
                f = right[g];
            }
        }
        s_head[i] = h;
        s_right[i] = f;
    }
    __syncthreads();
    relax_tile<O, 1, T + 9, 0>(s_head, s_right, first_x, first_y, n, h2, inverse);
    relax_tile<O, 2, T + 8, 1>(s_head, s_right, first_x, first_y, n, h2, inverse);
    relax_tile<O, 3, T + 7, 0>(s_head, s_right, first_x, first_y, n, h2, inverse);
    relax_tile<O, 4, T + 6, 1>(s_head, s_right, first_x, first_y, n, h2, inverse);
    for (int i = threadIdx.x; i < T * T; i += TILE_THREADS) {
        int r = i / T, c = i % T, x = tile_x + c, y = tile_y + r;
        if (x > 0 && y > 0) out[y * pitch + x] = s_head[(r + 6) * O + c + 6];
    }
    // The nodes of the colour that was relaxed last (x + y even) have no residual: of the nine
    // nodes around a coarse node only the four at its edges count.
    auto rest = [&](int j) {
        return s_right[j] - STORAGE * s_head[j] -
               (4.0f * s_head[j] - s_head[j - 1] - s_head[j + 1] - s_head[j - O] - s_head[j + O]) * inverse_h2;
    };
    constexpr int C = T / 2;
    for (int i = threadIdx.x; i < C * C; i += TILE_THREADS) {
        int r = i / C, c = i % C, x = tile_x / 2 + c, y = tile_y / 2 + r;
        if (x > 0 && y > 0) {
            int j = (2 * r + 6) * O + 2 * c + 6;
            below[y * (n / 2 + 1) + x] = 0.125f * (rest(j - 1) + rest(j + 1) + rest(j - O) + rest(j + O));
        }
    }
}

// The way up on one level: the correction from below, and two sweeps.
template <int T>
__global__ void __launch_bounds__(TILE_THREADS) ascend(const float* __restrict__ head, float* __restrict__ out,
                                                       const float* __restrict__ right,
                                                       const float* __restrict__ coarse, int n, float h2) {
    constexpr int O = T + 8;
    __shared__ float s_head[O * O], s_right[O * O];
    const int tile_x = blockIdx.x * T, tile_y = blockIdx.y * T;
    const int first_x = tile_x - 4, first_y = tile_y - 4;
    const int pitch = n + 1, coarse_pitch = n / 2 + 1;
    const float inverse = 1.0f / (4.0f + STORAGE * h2);
    for (int i = threadIdx.x; i < O * O; i += TILE_THREADS) {
        int r = i / O, c = i % O, x = first_x + c, y = first_y + r;
        float h = 0, f = 0;
        if (x > 0 && x < n && y > 0 && y < n) {
            int g = y * pitch + x;
            const float* p = coarse + (y / 2) * coarse_pitch + x / 2;
            int dx = x & 1, dy = (y & 1) * coarse_pitch;
            h = head[g] + 0.25f * (p[0] + p[dx] + p[dy] + p[dx + dy]);
            f = right[g];
        }
        s_head[i] = h;
        s_right[i] = f;
    }
    __syncthreads();
    relax_tile<O, 1, T + 6, 0>(s_head, s_right, first_x, first_y, n, h2, inverse);
    relax_tile<O, 2, T + 5, 1>(s_head, s_right, first_x, first_y, n, h2, inverse);
    relax_tile<O, 3, T + 4, 0>(s_head, s_right, first_x, first_y, n, h2, inverse);
    relax_tile<O, 4, T + 3, 1>(s_head, s_right, first_x, first_y, n, h2, inverse);
    for (int i = threadIdx.x; i < T * T; i += TILE_THREADS) {
        int r = i / T, c = i % T, x = tile_x + c, y = tile_y + r;
        if (x > 0 && y > 0) out[y * pitch + x] = s_head[(r + 4) * O + c + 4];
    }
}

// The two coarsest levels, in one block: down, the coarsest solve, and up.
constexpr int MIDDLE = 2 * COARSEST;
constexpr int MP = MIDDLE + 1, CP = COARSEST + 2;  // pitches

template <int COLOUR>
__device__ __forceinline__ void relax_middle(float* head, const float* right, float h2, float inverse) {
    for (int i = threadIdx.x; i < (MIDDLE - 1) * (MIDDLE / 2); i += SOLVE_THREADS) {
        int y = 1 + i / (MIDDLE / 2), x = 1 + 2 * (i % (MIDDLE / 2)) + ((y + COLOUR) & 1);
        if (x < MIDDLE) {
            int j = y * MP + x;
            head[j] = (head[j - 1] + head[j + 1] + head[j - MP] + head[j + MP] + h2 * right[j]) * inverse;
        }
    }
    __syncthreads();
}

__global__ void __launch_bounds__(SOLVE_THREADS) solve_coarsest(float* __restrict__ head,
                                                                const float* __restrict__ right, int* time,
                                                                int tick) {
    __shared__ float s_head[MP * MP], s_right[MP * MP], c_head[CP * CP], c_right[CP * CP];
    constexpr float h2 = 1.0f / (float(MIDDLE) * MIDDLE), inverse_h2 = float(MIDDLE) * MIDDLE;
    constexpr float inverse = 1.0f / (4.0f + STORAGE * h2);
    constexpr float c_h2 = 1.0f / (float(COARSEST) * COARSEST);
    constexpr float c_inverse = 1.0f / (4.0f + STORAGE * c_h2);
    static_assert((COARSEST - 1) * (COARSEST / 2) <= SOLVE_THREADS, "one node of each colour a thread");
    const int t = threadIdx.x;
    if (t == 0) *time += tick;
    for (int i = t; i < MP * MP; i += SOLVE_THREADS) {
        s_head[i] = 0;
        s_right[i] = right[i];
    }
    for (int i = t; i < CP * CP; i += SOLVE_THREADS) c_head[i] = 0;
    __syncthreads();
    for (int s = 0; s < SWEEPS; ++s) {
        relax_middle<0>(s_head, s_right, h2, inverse);
        relax_middle<1>(s_head, s_right, h2, inverse);
    }
    auto rest = [&](int j) {
        return s_right[j] - STORAGE * s_head[j] -
               (4.0f * s_head[j] - s_head[j - 1] - s_head[j + 1] - s_head[j - MP] - s_head[j + MP]) * inverse_h2;
    };
    for (int i = t; i < (COARSEST - 1) * (COARSEST - 1); i += SOLVE_THREADS) {
        int y = 1 + i / (COARSEST - 1), x = 1 + i % (COARSEST - 1), j = 2 * y * MP + 2 * x;
        c_right[y * CP + x] = 0.125f * (rest(j - 1) + rest(j + 1) + rest(j - MP) + rest(j + MP));
    }
    __syncthreads();
    {
        int y = 1 + t / (COARSEST / 2), x = 1 + 2 * (t % (COARSEST / 2));
        int x0 = x + (y & 1), x1 = x + ((y + 1) & 1);
        bool do0 = y < COARSEST && x0 < COARSEST, do1 = y < COARSEST && x1 < COARSEST;
        float* p0 = c_head + (do0 ? y * CP + x0 : CP + 1);
        float* p1 = c_head + (do1 ? y * CP + x1 : CP + 1);
        float q0 = do0 ? c_h2 * c_right[y * CP + x0] : 0, q1 = do1 ? c_h2 * c_right[y * CP + x1] : 0;
        for (int s = 0; s < COARSE_SWEEPS; ++s) {
            if (do0) *p0 = ((p0[-1] + p0[1]) + (p0[-CP] + p0[CP]) + q0) * c_inverse;
            __syncthreads();
            if (do1) *p1 = ((p1[-1] + p1[1]) + (p1[-CP] + p1[CP]) + q1) * c_inverse;
            __syncthreads();
        }
    }
    for (int i = t; i < (MIDDLE - 1) * (MIDDLE - 1); i += SOLVE_THREADS) {
        int y = 1 + i / (MIDDLE - 1), x = 1 + i % (MIDDLE - 1);
        const float* c = c_head + (y / 2) * CP + x / 2;
        int dx = x & 1, dy = (y & 1) * CP;
        s_head[y * MP + x] += 0.25f * (c[0] + c[dx] + c[dy] + c[dx + dy]);
    }
    __syncthreads();
    for (int s = 0; s < SWEEPS; ++s) {
        relax_middle<0>(s_head, s_right, h2, inverse);
        relax_middle<1>(s_head, s_right, h2, inverse);
    }
    for (int i = t; i < MP * MP; i += SOLVE_THREADS) head[i] = s_head[i];
}

constexpr int BIG = 512;  // from this size on tiles of 32 x 32 nodes, else 16 x 16

static void v_cycle(const std::vector<Level>& levels, size_t depth, bool first, int* time, cudaStream_t stream) {
    const Level& level = levels[depth];
    int n = level.n;
    if (n == MIDDLE) {
        solve_coarsest<<<1, SOLVE_THREADS, 0, stream>>>(level.head, level.right, time, first ? 1 : 0);
        return;
    }
    const Level& below = levels[depth + 1];
    float h2 = 1.0f / (float(n) * n);
    int tile = n >= BIG ? 32 : 16;
    dim3 grid(n / tile, n / tile);
    if (depth == 0 && first)
        descend<32, true, false><<<grid, TILE_THREADS, 0, stream>>>(level.head, level.spare, level.right,
                                                                    below.right, n, h2, time);
    else if (depth == 0)
        descend<32, false, false><<<grid, TILE_THREADS, 0, stream>>>(level.head, level.spare, level.right,
                                                                     below.right, n, h2, time);
    else if (tile == 32)
        descend<32, false, true><<<grid, TILE_THREADS, 0, stream>>>(level.head, level.spare, level.right,
                                                                    below.right, n, h2, time);
    else
        descend<16, false, true><<<grid, TILE_THREADS, 0, stream>>>(level.head, level.spare, level.right,
                                                                    below.right, n, h2, time);
    v_cycle(levels, depth + 1, first, time, stream);
    if (tile == 32)
        ascend<32><<<grid, TILE_THREADS, 0, stream>>>(level.spare, level.head, level.right, below.head, n, h2);
    else
        ascend<16><<<grid, TILE_THREADS, 0, stream>>>(level.spare, level.head, level.right, below.head, n, h2);
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
    for (int n = FINE; n >= MIDDLE; n /= 2) {  // the coarsest lives in shared memory
        Level level{n, nullptr, nullptr, nullptr};
        size_t bytes = size_t(n + 1) * (n + 1) * sizeof(float);
        for (float** p : {&level.head, &level.right, &level.spare}) {
            CHECK(cudaMalloc(p, bytes));
            CHECK(cudaMemset(*p, 0, bytes));
        }
        levels.push_back(level);
    }

    int* time;  // steps done, on the GPU
    CHECK(cudaMalloc(&time, sizeof(int)));
    CHECK(cudaMemset(time, 0, sizeof(int)));
    CHECK(cudaDeviceSynchronize());

    // One step as a CUDA graph.
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaGraph_t graph;
    cudaGraphExec_t run;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int c = 0; c < CYCLES; ++c) v_cycle(levels, 0, c == 0, time, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&run, graph, 0));

    auto step = [&]() { CHECK(cudaGraphLaunch(run, stream)); };

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
