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
constexpr int OUT = 8;                      // outputs of a thread, all even or all odd cells
constexpr int FILTER_THREADS = 2 * HALF / OUT;
constexpr int PADDED = DETECTORS / 8 * 9;   // one word more after every eight
constexpr int GROUPS = SLICES / 4;

static_assert(SLICES == 8, "a pixel's thread has two groups of four slices");
// Every ray through a pixel meets the detector, so the back projection needs no bounds.
static_assert(2 * (SIZE - 1) * PIXEL * (SIZE - 1) * PIXEL <
                  (DETECTORS - 5) * SPACING * (DETECTORS - 5) * SPACING, "detector too small");

__device__ void axpy(float4& sum, float w, const float4& v) {
    sum.x = fmaf(w, v.x, sum.x);
    sum.y = fmaf(w, v.y, sum.y);
    sum.z = fmaf(w, v.z, sum.z);
    sum.w = fmaf(w, v.w, sum.w);
}

// Line integrals, then the ramp filter in space: only the centre tap and the odd taps differ from
// zero, so even outputs need odd inputs and odd outputs even ones. Four slices at one angle; a
// thread slides a window of taps past its eight outputs.
__global__ void __launch_bounds__(FILTER_THREADS) ramp_filter(const float* counts, const float* taps,
                                                              float4* filtered) {
    __shared__ float4 row[DETECTORS];
    __shared__ float tap[2][PADDED];
    int a = blockIdx.x, group = blockIdx.y;
    const float* from = counts + (size_t(group) * 4 * ANGLES + a) * DETECTORS;
    constexpr size_t SLICE = size_t(ANGLES) * DETECTORS;
    auto integral = [](float c) { return -logf(fmaxf(c, 1.0f) / FLUX); };
    for (int i = threadIdx.x; i < DETECTORS; i += FILTER_THREADS) {
        row[i] = make_float4(integral(from[i]), integral(from[i + SLICE]), integral(from[i + 2 * SLICE]),
                             integral(from[i + 3 * SLICE]));
        for (int p = 0; p < 2; ++p) {
            int distance = abs(2 * (i - HALF) + 2 * p - 1);
            tap[p][i + i / 8] = distance < DETECTORS ? taps[distance] : 0.0f;
        }
    }
    float centre = taps[0];
    __syncthreads();
    int odd = threadIdx.x / (HALF / OUT), l = threadIdx.x % (HALF / OUT);
    float4 sum[OUT];
#pragma unroll
    for (int q = 0; q < OUT; ++q) {
        sum[q] = make_float4(0, 0, 0, 0);
        axpy(sum[q], centre, row[2 * (l * OUT + q) + odd]);
    }
    const float* h = tap[odd] + 9 * (l + HALF / 8);
    const float4* in = row + 1 - odd;
    float window[15];  // taps for differences -7 to 7 of output and input, in these eights
#pragma unroll
    for (int c = 0; c < 7; ++c) window[c] = h[c + 1];
    for (int j = 0; j < HALF; j += 8) {
#pragma unroll
        for (int c = 6; c >= 0; --c) window[c + 8] = window[c];
        window[7] = h[0];
#pragma unroll
        for (int c = 0; c < 7; ++c) window[c] = h[c - 8];
#pragma unroll
        for (int r = 0; r < 8; ++r) {
            float4 v = in[2 * r];
#pragma unroll
            for (int q = 0; q < OUT; ++q) axpy(sum[q], window[q - r + 7], v);
        }
        h -= 9;
        in += 16;
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < OUT; ++q) row[2 * (l * OUT + q) + odd] = sum[q];
    __syncthreads();
    float4* to = filtered + (size_t(group) * ANGLES + a) * DETECTORS;
    for (int i = threadIdx.x; i < DETECTORS; i += FILTER_THREADS) to[i] = row[i];
}

// A thread has two pixels, 16 rows apart, in all slices: where a ray meets the detector is the same
// in each. A warp has 8 by 4 pixels, so that its lanes read few cells.
__global__ void __launch_bounds__(512, 2) backproject(const float4* filtered, float* volume) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int x = blockIdx.x * 32 + warp % 4 * 8 + lane % 8;
    int y = blockIdx.y * 32 + warp / 4 * 4 + lane / 8;
    constexpr float SCALE = float(PIXEL / SPACING);
    constexpr float MIDDLE = 0.5f * (DETECTORS - 1) - 0.5f;
    constexpr float ROUND = 8388608.0f;  // 2^23: adding it rounds to a whole number
    float px = (x - 0.5f * (SIZE - 1)) * SCALE;
    float py = (y - 0.5f * (SIZE - 1)) * SCALE;
    float4 sum[2][GROUPS] = {};
    const float4* row = filtered;
    for (int a = 0; a < ANGLES; ++a) {
        float2 d = direction[a];
        float t = fmaf(px, d.x, fmaf(py, d.y, MIDDLE));
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            float u = t + ROUND;
            int cell = __float_as_int(u) - 0x4b000000;
            float w = (t - (u - ROUND)) + 0.5f;
            float rest = 1.0f - w;
#pragma unroll
            for (int g = 0; g < GROUPS; ++g) {
                const float4* at = row + cell + size_t(g) * ANGLES * DETECTORS;
                axpy(sum[p][g], rest, __ldg(at));
                axpy(sum[p][g], w, __ldg(at + 1));
            }
            t = fmaf(16.0f * SCALE, d.y, t);
        }
        row += DETECTORS;
    }
    constexpr float WEIGHT = float(M_PI / ANGLES);
    constexpr size_t PLANE = size_t(SIZE) * SIZE;
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            float* to = volume + g * 4 * PLANE + size_t(y + 16 * p) * SIZE + x;
            to[0] = sum[p][g].x * WEIGHT;
            to[PLANE] = sum[p][g].y * WEIGHT;
            to[2 * PLANE] = sum[p][g].z * WEIGHT;
            to[3 * PLANE] = sum[p][g].w * WEIGHT;
        }
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

    float *d_counts, *d_taps, *volume;
    float4* filtered;  // group of four slices, angle, detector cell
    CHECK(cudaMalloc(&d_counts, n * sizeof(float)));
    CHECK(cudaMalloc(&filtered, n * sizeof(float)));
    CHECK(cudaMalloc(&d_taps, DETECTORS * sizeof(float)));
    CHECK(cudaMalloc(&volume, size_t(SLICES) * SIZE * SIZE * sizeof(float)));
    CHECK(cudaMemcpy(d_counts, counts.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_taps, taps.data(), DETECTORS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(direction, rays.data(), ANGLES * sizeof(float2)));

    auto step = [&]() {
        ramp_filter<<<dim3(ANGLES, GROUPS), FILTER_THREADS>>>(d_counts, d_taps, filtered);
        backproject<<<dim3(SIZE / 32, SIZE / 32), 512>>>(filtered, volume);
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
