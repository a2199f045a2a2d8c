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

// Layout of all levels: rows of n + 32 floats; border and padding stay zero.
// `right` holds h2 * right-hand side. Two heads: descend reads one and writes the other, ascend goes back.
struct Level {
    int n;      // intervals; (n + 1) x (n + 1) nodes, the border is held at zero
    float *head, *smoothed, *right;
};

__host__ __device__ constexpr int pitch_of(int n) { return n + 32; }

constexpr int BOTTOM = 64;  // this level and the coarsest are done by one block
static_assert(COARSEST == 32 && BOTTOM == 2 * COARSEST && SWEEPS == 2, "");
constexpr int TILE_WARPS = 16;
constexpr int DOWN_HALO = 6, UP_HALO = 4;

__device__ float sines[COARSEST * COARSEST];
__device__ float gains[COARSEST * COARSEST];
__device__ int clock_now;

// A warp owns R rows (R even, first row even) of 64 nodes; a lane owns an even node e and the odd node o
// beside it. Sum of the four neighbours of this colour's node in each row; one barrier.
template <int COLOUR, int R, int W>
__device__ __forceinline__ void neighbours(const float (&e)[R], const float (&o)[R], float (&sum)[R],
                                           float (&edge)[2][2][W][32], int warp, int lane) {
    edge[COLOUR][0][warp][lane] = COLOUR == 0 ? o[R - 1] : e[R - 1];
    edge[COLOUR][1][warp][lane] = COLOUR == 0 ? e[0] : o[0];
    __syncthreads();
    float above = warp > 0 ? edge[COLOUR][0][warp - 1][lane] : 0.0f;
    float below = warp < W - 1 ? edge[COLOUR][1][warp + 1][lane] : 0.0f;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if ((r + COLOUR) % 2 == 0) {
            float side = __shfl_down_sync(~0u, e[r], 1);
            if (lane == 31) side = 0.0f;
            sum[r] = e[r] + side + (r > 0 ? o[r > 0 ? r - 1 : 0] : above) +
                     (r < R - 1 ? o[r < R - 1 ? r + 1 : 0] : below);
        } else {
            float side = __shfl_up_sync(~0u, o[r], 1);
            if (lane == 0) side = 0.0f;
            sum[r] = o[r] + side + (r > 0 ? e[r > 0 ? r - 1 : 0] : above) +
                     (r < R - 1 ? e[r < R - 1 ? r + 1 : 0] : below);
        }
    }
}

template <int COLOUR, int R, int W>
__device__ __forceinline__ void relax(float (&e)[R], float (&o)[R], const float (&he)[R], const float (&ho)[R],
                                      float (&edge)[2][2][W][32], int warp, int lane, int x, int y, int n,
                                      float inverse) {
    float sum[R];
    neighbours<COLOUR, R, W>(e, o, sum, edge, warp, lane);
    float fe = unsigned(x - 1) < unsigned(n - 1) ? inverse : 0.0f;
    float fo = unsigned(x) < unsigned(n - 1) ? inverse : 0.0f;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        bool inside = unsigned(y + r - 1) < unsigned(n - 1);
        if ((r + COLOUR) % 2 == 0)
            o[r] = (sum[r] + ho[r]) * (inside ? fo : 0.0f);
        else
            e[r] = (sum[r] + he[r]) * (inside ? fe : 0.0f);
    }
}

template <int R, int W>
__device__ __forceinline__ void smooth(float (&e)[R], float (&o)[R], const float (&he)[R], const float (&ho)[R],
                                       float (&edge)[2][2][W][32], int warp, int lane, int x, int y, int n,
                                       float inverse) {
#pragma unroll
    for (int s = 0; s < SWEEPS; ++s) {
        relax<0, R, W>(e, o, he, ho, edge, warp, lane, x, y, n, inverse);
        relax<1, R, W>(e, o, he, ho, edge, warp, lane, x, y, n, inverse);
    }
}

// h2 * right-hand side of the coarse level at the lane's even node, for each even row. Nodes of colour 1,
// relaxed last, have no residual, so of the full weighting only the four edges (colour 0) remain.
template <int R, int W>
__device__ __forceinline__ void restrict_down(const float (&e)[R], const float (&o)[R], const float (&he)[R],
                                              const float (&ho)[R], float (&coarse)[R / 2],
                                              float (&edge)[2][2][W][32], int warp, int lane, int x, int y,
                                              int n, float diagonal) {
    float rest[R];
    neighbours<0, R, W>(e, o, rest, edge, warp, lane);
    bool oke = unsigned(x - 1) < unsigned(n - 1), oko = unsigned(x) < unsigned(n - 1);
#pragma unroll
    for (int r = 0; r < R; ++r) {
        bool inside = unsigned(y + r - 1) < unsigned(n - 1);
        if (r % 2 == 0)
            rest[r] = inside && oko ? ho[r] + rest[r] - diagonal * o[r] : 0.0f;
        else
            rest[r] = inside && oke ? he[r] + rest[r] - diagonal * e[r] : 0.0f;
    }
    edge[1][0][warp][lane] = rest[R - 1];
    __syncthreads();
    float above = warp > 0 ? edge[1][0][warp - 1][lane] : 0.0f;
#pragma unroll
    for (int r = 0; r < R; r += 2) {
        float side = __shfl_up_sync(~0u, rest[r], 1);
        if (lane == 0) side = 0.0f;
        // 4 (coarse h2 over fine h2) * 0.125
        coarse[r / 2] = 0.5f * (rest[r] + side + rest[r + 1] + (r > 0 ? rest[r > 0 ? r - 1 : 0] : above));
    }
}

template <int R>
__device__ __forceinline__ void load(float (&e)[R], float (&o)[R], const float* from, int x, int y, int n) {
    bool inside = x >= 0 && x <= n;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        float2 v = make_float2(0.0f, 0.0f);
        if (inside && y + r >= 0 && y + r <= n)
            v = *reinterpret_cast<const float2*>(from + (y + r) * pitch_of(n) + x);
        e[r] = v.x;
        o[r] = v.y;
    }
}

template <int R, int HALO>
__device__ __forceinline__ void store(const float (&e)[R], const float (&o)[R], float* to, int warp, int lane,
                                      int x, int y, int n) {
    if (lane < HALO / 2 || lane >= 32 - HALO / 2 || x > n) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        int row = warp * R + r;
        if (row >= HALO && row < R * TILE_WARPS - HALO && y + r <= n)
            *reinterpret_cast<float2*>(to + (y + r) * pitch_of(n) + x) = make_float2(e[r], o[r]);
    }
}

// Smooth a tile and restrict its residual. START 0: the head is zero; 1: it is read; 2: it is read, and the
// right-hand side is made first: storage of the last head, less what the wells take out.
template <int R, int START>
__global__ void __launch_bounds__(32 * TILE_WARPS, 2)
    descend(const float* head, float* smoothed, float* right,
            float* coarse_right, int n, float h2) {
    __shared__ float edge[2][2][TILE_WARPS][32];
    __shared__ float4 near_wells[32];
    __shared__ int near_count;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int left = int(blockIdx.x) * (64 - 2 * DOWN_HALO) - DOWN_HALO;
    int top = int(blockIdx.y) * (R * TILE_WARPS - 2 * DOWN_HALO) - DOWN_HALO;
    int x = left + 2 * lane, y = top + warp * R;
    float diagonal = 4.0f + STORAGE * h2, inverse = 1.0f / diagonal;
    float e[R], o[R], he[R], ho[R];
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    if (START > 0) {
        load(e, o, head, x, y, n);
    } else {
#pragma unroll
        for (int r = 0; r < R; ++r) e[r] = o[r] = 0.0f;
    }
    if (START == 2) {
        if (warp == 0) {
            // Wells so far from the tile that exp(-40) is the most they give are left out.
            bool near = false;
            float4 well = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (lane < WELLS) {
                float time = float(clock_now);
                well.x = wells[lane].x;
                well.y = wells[lane].y;
                well.z = wells[lane].rate * (1.0f + 0.5f * __sinf(time / wells[lane].period));
                float dx = fmaxf(fmaxf(float(left) / n - well.x, well.x - float(left + 63) / n), 0.0f);
                float dy =
                    fmaxf(fmaxf(float(top) / n - well.y, well.y - float(top + R * TILE_WARPS - 1) / n), 0.0f);
                near = (dx * dx + dy * dy) * 4000.0f < 40.0f;
            }
            unsigned set = __ballot_sync(~0u, near);
            if (near) near_wells[__popc(set & ((1u << lane) - 1))] = well;
            if (lane == 0) near_count = __popc(set);
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < R; ++r) he[r] = ho[r] = 0.0f;
        for (int w = 0, count = near_count; w < count; ++w) {
            float4 well = near_wells[w];
            float de = float(x) / n - well.x, od = float(x + 1) / n - well.x;
            float ge = well.z * __expf(-de * de * 4000.0f), go = well.z * __expf(-od * od * 4000.0f);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                float dy = float(y + r) / n - well.y;
                float g = __expf(-dy * dy * 4000.0f);
                he[r] += ge * g;
                ho[r] += go * g;
            }
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
            he[r] = h2 * (STORAGE * e[r] - he[r]);
            ho[r] = h2 * (STORAGE * o[r] - ho[r]);
        }
        store<R, DOWN_HALO>(he, ho, right, warp, lane, x, y, n);
    } else {
        load(he, ho, right, x, y, n);
    }
    smooth<R, TILE_WARPS>(e, o, he, ho, edge, warp, lane, x, y, n, inverse);
    store<R, DOWN_HALO>(e, o, smoothed, warp, lane, x, y, n);
    float coarse[R / 2];
    restrict_down<R, TILE_WARPS>(e, o, he, ho, coarse, edge, warp, lane, x, y, n, diagonal);
    int half = n / 2;
    if (lane < DOWN_HALO / 2 || lane >= 32 - DOWN_HALO / 2 || x < 2 || x >= n) return;
#pragma unroll
    for (int r = 0; r < R; r += 2) {
        int row = warp * R + r;
        if (row >= DOWN_HALO && row < R * TILE_WARPS - DOWN_HALO && y + r >= 2 && y + r < n)
            coarse_right[(y + r) / 2 * pitch_of(half) + x / 2] = coarse[r / 2];
    }
}

// Add the coarse correction to a tile and smooth it.
template <int R>
__global__ void __launch_bounds__(32 * TILE_WARPS, 2)
    ascend(const float* coarse, const float* smoothed, float* head,
           const float* right, int n, float h2) {
    __shared__ float edge[2][2][TILE_WARPS][32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int x = int(blockIdx.x) * (64 - 2 * UP_HALO) - UP_HALO + 2 * lane;
    int y = int(blockIdx.y) * (R * TILE_WARPS - 2 * UP_HALO) - UP_HALO + warp * R;
    float inverse = 1.0f / (4.0f + STORAGE * h2);
    float e[R], o[R], he[R], ho[R];
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    load(e, o, smoothed, x, y, n);
    load(he, ho, right, x, y, n);
    int half = n / 2, cx = x / 2, cy = y / 2;  // x and y are even
    float c0[R / 2 + 1], c1[R / 2 + 1];
#pragma unroll
    for (int r = 0; r <= R / 2; ++r) {
        bool inside = cy + r >= 0 && cy + r <= half;
        const float* row = coarse + (cy + r) * pitch_of(half) + cx;
        c0[r] = inside && cx >= 0 && cx <= half ? row[0] : 0.0f;
        c1[r] = inside && cx + 1 >= 0 && cx + 1 <= half ? row[1] : 0.0f;
    }
#pragma unroll
    for (int r = 0; r < R; r += 2) {
        int c = r / 2;
        e[r] += c0[c];
        o[r] += 0.5f * (c0[c] + c1[c]);
        e[r + 1] += 0.5f * (c0[c] + c0[c + 1]);
        o[r + 1] += 0.25f * (c0[c] + c1[c] + c0[c + 1] + c1[c + 1]);
    }
    smooth<R, TILE_WARPS>(e, o, he, ho, edge, warp, lane, x, y, n, inverse);
    store<R, UP_HALO>(e, o, head, warp, lane, x, y, n);
}

// out = sines * transpose(in); also returns the thread's element, out[lane][warp].
__device__ __forceinline__ float transform(const float (&in)[33][36], float (&out)[33][36],
                                           const float (&sine)[32], int warp, int lane, float gain) {
    const float4* row = reinterpret_cast<const float4*>(in[warp]);
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        float4 v = row[k];
        sum += v.x * sine[4 * k] + v.y * sine[4 * k + 1] + v.z * sine[4 * k + 2] + v.w * sine[4 * k + 3];
    }
    sum *= gain;
    out[lane][warp] = sum;
    __syncthreads();
    return sum;
}

// The two coarsest levels. The COARSE_SWEEPS red-black sweeps from zero are a fixed linear map, diagonal in
// the sine basis: with J the Jacobi operator, f = right / diagonal and g = f + J f on colour 1,
//   colour 1 = sum over k < COARSE_SWEEPS of J^2k g,
//   colour 0 = f + J * (sum over k < COARSE_SWEEPS - 1 of J^2k g).
__global__ void __launch_bounds__(1024, 1) bottom(const float* right, float* head, int tick) {
    constexpr int R = 2, W = 32, n = BOTTOM;
    __shared__ float edge[2][2][W][32];
    __shared__ __align__(16) float f[33][36], a[33][36], b[33][36];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float sine[32];
#pragma unroll
    for (int k = 0; k < 32; ++k) sine[k] = sines[k * 32 + lane];
    float gain = gains[warp * 32 + lane];
    for (int i = threadIdx.x; i < 33 * 36; i += 1024) f[i / 36][i % 36] = a[i / 36][i % 36] = b[i / 36][i % 36] = 0;
    int x = 2 * lane, y = warp * R;
    float h2 = 1.0f / (float(n) * n), diagonal = 4.0f + STORAGE * h2, inverse = 1.0f / diagonal;
    float coarse_inverse = 1.0f / (4.0f + STORAGE * 4.0f * h2);
    float e[R] = {0.0f, 0.0f}, o[R] = {0.0f, 0.0f}, he[R], ho[R], coarse[1];
    cudaTriggerProgrammaticLaunchCompletion();
    cudaGridDependencySynchronize();
    if (tick && threadIdx.x == 0) ++clock_now;
    load(he, ho, right, x, y, n);
    smooth<R, W>(e, o, he, ho, edge, warp, lane, x, y, n, inverse);
    restrict_down<R, W>(e, o, he, ho, coarse, edge, warp, lane, x, y, n, diagonal);

    bool inside = lane > 0 && warp > 0;
    float own = inside ? coarse[0] * coarse_inverse : 0.0f;
    f[warp][lane] = own;
    __syncthreads();
    if (inside)
        a[warp][lane] = (lane + warp) & 1 ? 0.0f
                                          : own + coarse_inverse * (f[warp][lane - 1] + f[warp][lane + 1] +
                                                                    f[warp - 1][lane] + f[warp + 1][lane]);
    __syncthreads();
    transform(a, b, sine, warp, lane, 1.0f);
    transform(b, a, sine, warp, lane, gain);
    transform(a, b, sine, warp, lane, 1.0f);
    float solved = transform(b, a, sine, warp, lane, 1.0f);
    if ((lane + warp) & 1) solved += f[lane][warp];
    b[lane][warp] = solved;  // b[0][...], b[...][0] are zero as the sines are; row and column 32 stay zero
    __syncthreads();
    float c00 = b[warp][lane], c01 = b[warp][lane + 1], c10 = b[warp + 1][lane], c11 = b[warp + 1][lane + 1];
    e[0] += c00;
    o[0] += 0.5f * (c00 + c01);
    e[1] += 0.5f * (c00 + c10);
    o[1] += 0.25f * (c00 + c01 + c10 + c11);
    smooth<R, W>(e, o, he, ho, edge, warp, lane, x, y, n, inverse);
#pragma unroll
    for (int r = 0; r < R; ++r)
        *reinterpret_cast<float2*>(head + (y + r) * pitch_of(n) + x) = make_float2(e[r], o[r]);
}

template <typename... Formal, typename... Actual>
static void launch(bool chained, cudaStream_t stream, dim3 grid, int threads, void (*kernel)(Formal...),
                   Actual... actual) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.stream = stream;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = chained ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, kernel, Formal(actual)...));
}

static dim3 tiles(int n, int rows, int halo) {
    int w = 64 - 2 * halo, h = rows * TILE_WARPS - 2 * halo;
    return dim3((n + w - 1) / w, (n + h - 1) / h);
}

// R: the rows of a warp, so that the tiles of each level are about one wave.
template <int R>
static void down(bool chained, cudaStream_t stream, const Level& level, const Level& below, int start) {
    float h2 = 1.0f / (float(level.n) * level.n);
    auto kernel = start == 0 ? descend<R, 0> : start == 1 ? descend<R, 1> : descend<R, 2>;
    launch(chained, stream, tiles(level.n, R, DOWN_HALO), 32 * TILE_WARPS, kernel, level.head, level.smoothed,
           level.right, below.right, level.n, h2);
}

template <int R>
static void up(bool chained, cudaStream_t stream, const Level& level, const Level& below) {
    float h2 = 1.0f / (float(level.n) * level.n);
    launch(chained, stream, tiles(level.n, R, UP_HALO), 32 * TILE_WARPS, ascend<R>, below.head, level.smoothed,
           level.head, level.right, level.n, h2);
}

static void time_step(const std::vector<Level>& levels, bool programmatic, cudaStream_t stream) {
    size_t last = levels.size() - 1;
    for (int c = 0; c < CYCLES; ++c) {
        for (size_t d = 0; d < last; ++d) {
            bool chained = programmatic && (c > 0 || d > 0);
            int start = d > 0 ? 0 : c > 0 ? 1 : 2;
            if (levels[d].n >= 1024) down<6>(chained, stream, levels[d], levels[d + 1], start);
            else if (levels[d].n >= 512) down<4>(chained, stream, levels[d], levels[d + 1], start);
            else down<2>(chained, stream, levels[d], levels[d + 1], start);
        }
        launch(programmatic, stream, dim3(1), 1024, bottom, levels[last].right, levels[last].head, int(c == 0));
        for (size_t d = last; d-- > 0;) {
            if (levels[d].n >= 1024) up<6>(programmatic, stream, levels[d], levels[d + 1]);
            else if (levels[d].n >= 512) up<4>(programmatic, stream, levels[d], levels[d + 1]);
            else up<2>(programmatic, stream, levels[d], levels[d + 1]);
        }
    }
}

static cudaGraphExec_t record(const std::vector<Level>& levels, cudaStream_t stream) {
    for (bool programmatic : {true, false}) {
        cudaGraph_t graph = nullptr;
        cudaGraphExec_t exec = nullptr;
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        time_step(levels, programmatic, stream);
        CHECK(cudaStreamEndCapture(stream, &graph));
        cudaError_t e = cudaGraphInstantiate(&exec, graph, 0);
        CHECK(cudaGraphDestroy(graph));
        if (e == cudaSuccess) return exec;
        cudaGetLastError();
    }
    fprintf(stderr, "no graph\n");
    exit(1);
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
    for (int n = FINE; n >= BOTTOM; n /= 2) {
        Level level{n, nullptr, nullptr, nullptr};
        size_t bytes = size_t(n + 1) * pitch_of(n) * sizeof(float);
        for (float** p : {&level.head, &level.smoothed, &level.right}) {
            CHECK(cudaMalloc(p, bytes));
            CHECK(cudaMemset(*p, 0, bytes));
        }
        levels.push_back(level);
    }

    std::vector<float> sine(COARSEST * COARSEST), gain(COARSEST * COARSEST);
    const double pi = std::acos(-1.0), coarse_diagonal = 4.0 + double(STORAGE) / (COARSEST * COARSEST);
    for (int i = 0; i < COARSEST; ++i)
        for (int j = 0; j < COARSEST; ++j) {
            sine[i * COARSEST + j] = float(i && j ? std::sin(pi * i * j / COARSEST) : 0.0);
            double mu = 2.0 * (std::cos(pi * i / COARSEST) + std::cos(pi * j / COARSEST)) / coarse_diagonal;
            double square = mu * mu;
            double sum = (1.0 - std::pow(square, COARSE_SWEEPS)) / (1.0 - square) +
                         mu * (1.0 - std::pow(square, COARSE_SWEEPS - 1)) / (1.0 - square);
            gain[i * COARSEST + j] = float(sum * 4.0 / (COARSEST * COARSEST));
        }
    CHECK(cudaMemcpyToSymbol(sines, sine.data(), sine.size() * sizeof(float)));
    CHECK(cudaMemcpyToSymbol(gains, gain.data(), gain.size() * sizeof(float)));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaDeviceSynchronize());
    cudaGraphExec_t graph = record(levels, stream);
    auto step = [&]() { CHECK(cudaGraphLaunch(graph, stream)); };

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
    CHECK(cudaMemcpy2D(head.data(), (FINE + 1) * sizeof(float), levels[0].head, pitch_of(FINE) * sizeof(float),
                       (FINE + 1) * sizeof(float), FINE + 1, cudaMemcpyDeviceToHost));
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
