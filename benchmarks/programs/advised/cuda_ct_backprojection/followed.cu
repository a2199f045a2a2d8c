// Filtered back projection of parallel-beam CT: detector counts to slices.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

constexpr int SIZE = 1024;
constexpr int ANGLES = 720;
constexpr int DETECTORS = 1536;
constexpr int SLICES = 8;
constexpr double PIXEL = 0.35;    // mm
constexpr double SPACING = 0.35;  // mm between detector cells
constexpr float FLUX = 1.0e5f;
constexpr int WARMUP = 4;
constexpr int BLOCKS = 8;
constexpr int STEPS_PER_BLOCK = 12;

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t e = (call);                                                       \
        if (e != cudaSuccess) {                                                       \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

__constant__ float2 direction[ANGLES];

constexpr int HALF = DETECTORS / 2;
constexpr int FILTER_THREADS = 256;
constexpr int OUTPUTS = HALF / FILTER_THREADS;  // of a thread, for each slice
static_assert(SLICES == 8 && DETECTORS % 8 == 0 && HALF % FILTER_THREADS == 0, "two float4 hold the slices");

__device__ __forceinline__ float line_integral(float count) { return -logf(fmaxf(count, 1.0f) / FLUX); }

// Ramp filter in space: only the centre tap and the odd taps differ from zero, so cells of one parity
// take from those of the other. A block makes one parity of one angle, for all slices.
// filtered: angle, detector, slice.
__global__ __launch_bounds__(FILTER_THREADS) void ramp_filter(const float* __restrict__ counts,
                                                              const float* __restrict__ taps,
                                                              float* __restrict__ filtered) {
    __shared__ __align__(16) float source[SLICES][HALF];
    __shared__ float tap[2 * HALF];
    int angle = blockIdx.x, parity = blockIdx.y;
    for (int i = threadIdx.x; i < SLICES * HALF; i += FILTER_THREADS) {
        int s = i / HALF, j = i % HALF;
        source[s][j] = line_integral(counts[(size_t(s) * ANGLES + angle) * DETECTORS + 2 * j + 1 - parity]);
    }
    for (int i = threadIdx.x; i < 2 * HALF - 1; i += FILTER_THREADS) {
        int d = i - (HALF - 1);
        tap[i] = taps[abs(2 * d - 1 + 2 * parity)];
    }
    __syncthreads();
    float sum[OUTPUTS][SLICES] = {};
    for (int j = 0; j < HALF; j += 4) {
        float4 in[SLICES];
#pragma unroll
        for (int s = 0; s < SLICES; ++s) in[s] = *reinterpret_cast<const float4*>(&source[s][j]);
#pragma unroll
        for (int q = 0; q < OUTPUTS; ++q) {
            const float* g = tap + threadIdx.x + q * FILTER_THREADS + HALF - 1 - j;
            float g0 = g[0], g1 = g[-1], g2 = g[-2], g3 = g[-3];
#pragma unroll
            for (int s = 0; s < SLICES; ++s) {
                sum[q][s] += g0 * in[s].x;
                sum[q][s] += g1 * in[s].y;
                sum[q][s] += g2 * in[s].z;
                sum[q][s] += g3 * in[s].w;
            }
        }
    }
    float centre = taps[0];
#pragma unroll
    for (int q = 0; q < OUTPUTS; ++q) {
        int i = 2 * (threadIdx.x + q * FILTER_THREADS) + parity;
#pragma unroll
        for (int s = 0; s < SLICES; ++s)
            sum[q][s] += centre * line_integral(counts[(size_t(s) * ANGLES + angle) * DETECTORS + i]);
        float4* out = reinterpret_cast<float4*>(filtered + (size_t(angle) * DETECTORS + i) * SLICES);
        out[0] = make_float4(sum[q][0], sum[q][1], sum[q][2], sum[q][3]);
        out[1] = make_float4(sum[q][4], sum[q][5], sum[q][6], sum[q][7]);
    }
}

// A thread makes one pixel of all slices: where the ray meets the detector is the same for them.
// A warp is 8 x 4 pixels, whose rays meet few cells.
__global__ __launch_bounds__(256) void backproject(const float4* __restrict__ filtered,
                                                   float* __restrict__ volume) {
    constexpr float SCALE = float(PIXEL / SPACING), MIDDLE = 0.5f * (DETECTORS - 1);
    // All pixels are seen by the detector at all angles: no test of the cell is needed.
    static_assert(0.7072 * (SIZE - 1) * PIXEL / SPACING + 1 < 0.5 * (DETECTORS - 1), "detector too short");
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int x = blockIdx.x * 16 + (warp & 1) * 8 + (lane & 7);
    int y = blockIdx.y * 16 + (warp >> 1) * 4 + (lane >> 3);
    float px = (x - 0.5f * (SIZE - 1)) * SCALE;
    float py = (y - 0.5f * (SIZE - 1)) * SCALE;
    float4 low = make_float4(0, 0, 0, 0), high = low;
    const float4* row = filtered;
#pragma unroll 4
    for (int a = 0; a < ANGLES; ++a) {
        float2 d = direction[a];
        float t = px * d.x + py * d.y + MIDDLE;
        int cell = int(t);  // t > 0
        float w = t - float(cell), v = 1.0f - w;
        const float4* at = row + 2 * cell;
        float4 l0 = __ldg(at), h0 = __ldg(at + 1), l1 = __ldg(at + 2), h1 = __ldg(at + 3);
        low.x += v * l0.x + w * l1.x;
        low.y += v * l0.y + w * l1.y;
        low.z += v * l0.z + w * l1.z;
        low.w += v * l0.w + w * l1.w;
        high.x += v * h0.x + w * h1.x;
        high.y += v * h0.y + w * h1.y;
        high.z += v * h0.z + w * h1.z;
        high.w += v * h0.w + w * h1.w;
        row += 2 * DETECTORS;
    }
    constexpr float STEP = float(M_PI / ANGLES);
    constexpr size_t SLICE = size_t(SIZE) * SIZE;
    float* out = volume + size_t(y) * SIZE + x;
    out[0 * SLICE] = low.x * STEP;
    out[1 * SLICE] = low.y * STEP;
    out[2 * SLICE] = low.z * STEP;
    out[3 * SLICE] = low.w * STEP;
    out[4 * SLICE] = high.x * STEP;
    out[5 * SLICE] = high.y * STEP;
    out[6 * SLICE] = high.z * STEP;
    out[7 * SLICE] = high.w * STEP;
}

struct Ellipse {
    float x, y, a, b, angle, density;
};

int main() {
    std::mt19937 random(17);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float2> rays(ANGLES);
    for (int a = 0; a < ANGLES; ++a) {
        double angle = M_PI * a / ANGLES;
        rays[a] = make_float2(float(cos(angle)), float(sin(angle)));
    }
    std::vector<float> taps(DETECTORS, 0.0f);
    taps[0] = float(1.0 / (4 * SPACING));
    for (int k = 1; k < DETECTORS; k += 2) taps[k] = float(-1.0 / (M_PI * M_PI * k * k * SPACING));

    size_t rows = size_t(SLICES) * ANGLES, n = rows * DETECTORS;
    std::vector<float> counts(n);
    for (int s = 0; s < SLICES; ++s) {
        std::vector<Ellipse> body = {{0, 0, 150, 120, 0, 0.008f}};
        for (int i = 0; i < 5; ++i)
            body.push_back({80 * uniform(random), 70 * uniform(random), 15 + 10 * uniform(random),
                            15 + 10 * uniform(random), 3 * uniform(random), 0.004f * uniform(random)});
        for (int a = 0; a < ANGLES; ++a) {
            float angle = float(M_PI * a / ANGLES);
            float* row = &counts[(size_t(s) * ANGLES + a) * DETECTORS];
            std::vector<float> path(DETECTORS, 0.0f);
            for (const Ellipse& e : body) {
                float c = cosf(angle - e.angle), q = sinf(angle - e.angle);
                float width = e.a * e.a * c * c + e.b * e.b * q * q;
                float centre = e.x * cosf(angle) + e.y * sinf(angle);
                for (int i = 0; i < DETECTORS; ++i) {
                    float t = float((i - 0.5 * (DETECTORS - 1)) * SPACING) - centre;
                    if (t * t < width) path[i] += 2 * e.density * e.a * e.b * sqrtf(width - t * t) / width;
                }
            }
            for (int i = 0; i < DETECTORS; ++i) row[i] = FLUX * expf(-path[i]);
        }
    }

    float *d_counts, *filtered, *d_taps, *volume;
    CHECK(cudaMalloc(&d_counts, n * sizeof(float)));
    CHECK(cudaMalloc(&filtered, n * sizeof(float)));
    CHECK(cudaMalloc(&d_taps, DETECTORS * sizeof(float)));
    CHECK(cudaMalloc(&volume, size_t(SLICES) * SIZE * SIZE * sizeof(float)));
    CHECK(cudaMemcpy(d_counts, counts.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_taps, taps.data(), DETECTORS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(direction, rays.data(), ANGLES * sizeof(float2)));

    auto step = [&]() {
        ramp_filter<<<dim3(ANGLES, 2), FILTER_THREADS>>>(d_counts, d_taps, filtered);
        backproject<<<dim3(SIZE / 16, SIZE / 16), 256>>>(reinterpret_cast<const float4*>(filtered), volume);
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
    std::vector<float> slices(size_t(SLICES) * SIZE * SIZE);
    CHECK(cudaMemcpy(slices.data(), volume, slices.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0, square = 0;
    for (float v : slices) {
        sum += v;
        square += double(v) * v;
    }
    printf("%.1f slices/s\n", SLICES * 1e6 / us);
    printf("{\"program\": \"cuda_ct_backprojection\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, us, sum / slices.size(), square / slices.size());
    return 0;
}
