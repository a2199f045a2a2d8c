// Filtered back projection of parallel-beam CT: detector counts to slices.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_pipeline.h>

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

constexpr int FFT = 4096;           // at least 2 * DETECTORS - 1, and 16^3
constexpr float STORE_SCALE = 256;  // keeps filtered values well inside the range of half
static_assert(FFT >= 2 * DETECTORS - 1 && DETECTORS % 256 == 0 && SLICES == 8, "layout");

__device__ __forceinline__ float2 cmul(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// SIGN -1: forward, +1: inverse.
template <int SIGN>
__device__ __forceinline__ void dft4(float2& a, float2& b, float2& c, float2& d) {
    float2 s = make_float2(a.x + c.x, a.y + c.y), t = make_float2(a.x - c.x, a.y - c.y);
    float2 u = make_float2(b.x + d.x, b.y + d.y), v = make_float2(b.x - d.x, b.y - d.y);
    float2 iv = make_float2(-SIGN * v.y, SIGN * v.x);  // SIGN * i * v
    a = make_float2(s.x + u.x, s.y + u.y);
    b = make_float2(t.x + iv.x, t.y + iv.y);
    c = make_float2(s.x - u.x, s.y - u.y);
    d = make_float2(t.x - iv.x, t.y - iv.y);
}

template <int SIGN>
__device__ __forceinline__ void dft16(float2 (&v)[16]) {
    constexpr float C[10] = {1.0f, 0.92387953251f, 0.70710678119f, 0.38268343237f, 0.0f,
                             -0.38268343237f, -0.70710678119f, -0.92387953251f, -1.0f, -0.92387953251f};
    constexpr float S[10] = {0.0f, 0.38268343237f, 0.70710678119f, 0.92387953251f, 1.0f,
                             0.92387953251f, 0.70710678119f, 0.38268343237f, 0.0f, -0.38268343237f};
#pragma unroll
    for (int b = 0; b < 4; ++b) dft4<SIGN>(v[b], v[4 + b], v[8 + b], v[12 + b]);
#pragma unroll
    for (int c = 1; c < 4; ++c)
#pragma unroll
        for (int b = 1; b < 4; ++b) v[4 * c + b] = cmul(v[4 * c + b], make_float2(C[b * c], SIGN * S[b * c]));
#pragma unroll
    for (int c = 0; c < 4; ++c) dft4<SIGN>(v[4 * c], v[4 * c + 1], v[4 * c + 2], v[4 * c + 3]);
    float2 o[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) o[k] = v[4 * (k & 3) + (k >> 2)];
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = o[k];
}

// v[k] *= w^k
__device__ __forceinline__ void twiddle(float2 (&v)[16], float2 w) {
    float2 p[16];
    p[1] = w;
#pragma unroll
    for (int k = 2; k < 16; ++k) p[k] = (k & 1) ? cmul(p[k - 1], w) : cmul(p[k / 2], p[k / 2]);
#pragma unroll
    for (int k = 1; k < 16; ++k) v[k] = cmul(v[k], p[k]);
}

// Line integrals and ramp filter: two slices of one angle as real and imaginary part of one FFT.
// response holds the (real) spectrum of the taps, in the order in which the forward FFT leaves it.
__global__ void __launch_bounds__(256) filter_rows(const float* counts, const float* response, __half2* filtered) {
    __shared__ float2 buffer[FFT + FFT / 16];
    int pair = blockIdx.x % (SLICES / 2), angle = blockIdx.x / (SLICES / 2), t = threadIdx.x;
    const float* even = counts + (size_t(2 * pair) * ANGLES + angle) * DETECTORS;
    const float* odd = even + size_t(ANGLES) * DETECTORS;
    float2 v[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
        v[r] = make_float2(0.0f, 0.0f);
        if (r < DETECTORS / 256)
            v[r] = make_float2(-logf(fmaxf(even[t + 256 * r], 1.0f) / FLUX), -logf(fmaxf(odd[t + 256 * r], 1.0f) / FLUX));
    }
    float2 w1, w2;
    sincospif(-t / 2048.0f, &w1.y, &w1.x);
    sincospif(-(t & 15) / 128.0f, &w2.y, &w2.x);
    float2* first = buffer + t + t / 16;                       // + 272 r
    float2* second = buffer + (t >> 4) * 272 + (t & 15);       // + 17 r
    float2* third = buffer + t * 17;                           // + r
    dft16<-1>(v);
    twiddle(v, w1);
#pragma unroll
    for (int r = 0; r < 16; ++r) first[272 * r] = v[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 16; ++r) v[r] = second[17 * r];
    dft16<-1>(v);
    twiddle(v, w2);
#pragma unroll
    for (int r = 0; r < 16; ++r) second[17 * r] = v[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 16; ++r) v[r] = third[r];
    dft16<-1>(v);
#pragma unroll
    for (int r = 0; r < 16; ++r) {
        float h = response[256 * r + t];
        v[r].x *= h;
        v[r].y *= h;
    }
    dft16<1>(v);
#pragma unroll
    for (int r = 0; r < 16; ++r) third[r] = v[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 16; ++r) v[r] = second[17 * r];
    w2.y = -w2.y;
    twiddle(v, w2);
    dft16<1>(v);
#pragma unroll
    for (int r = 0; r < 16; ++r) second[17 * r] = v[r];
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 16; ++r) v[r] = first[272 * r];
    w1.y = -w1.y;
    twiddle(v, w1);
    dft16<1>(v);
    __half2* out = filtered + size_t(angle) * DETECTORS * (SLICES / 2) + pair;
#pragma unroll
    for (int r = 0; r < DETECTORS / 256; ++r) out[(t + 256 * r) * (SLICES / 2)] = __floats2half2_rn(v[r].x, v[r].y);
}

constexpr int TILE_X = 32, TILE_Y = 16;
constexpr int CHUNK = 24;  // angles staged in shared memory at a time
constexpr int GROUP = 4;   // angles summed in half before they are added in float
constexpr int SPAN = 40;   // cells a tile can touch at one angle: hypot(31, 15) + 4
static_assert(ANGLES % CHUNK == 0 && CHUNK % GROUP == 0 && PIXEL <= SPACING, "tiling");

// Each thread: two pixels of all eight slices. The image's corners stay inside the detector
// (1024 / sqrt(2) < 1536 / 2), so no cell needs a bounds check.
__global__ void __launch_bounds__(256, 4) backproject(const uint4* filtered, float* volume) {
    __shared__ uint4 cells[2][CHUNK * SPAN];
    __shared__ float4 geometry[ANGLES];  // local t at the tile's origin, steps in x and y, first cell
    int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
    int x0 = blockIdx.x * TILE_X, y0 = blockIdx.y * TILE_Y;
    constexpr float RATIO = float(PIXEL / SPACING);
    for (int a = threadIdx.x; a < ANGLES; a += 256) {
        float2 d = direction[a];
        float c = d.x * RATIO, s = d.y * RATIO;
        float t = (x0 - 0.5f * (SIZE - 1)) * c + (y0 - 0.5f * (SIZE - 1)) * s + 0.5f * (DETECTORS - 1);
        float start = floorf(t + fminf(0.0f, (TILE_X - 1) * c) + fminf(0.0f, (TILE_Y - 1) * s)) - 1.0f;
        geometry[a] = make_float4(t - start, c, s, start);
    }
    __syncthreads();
    auto stage = [&](int chunk) {
        for (int i = threadIdx.x; i < CHUNK * SPAN; i += 256) {
            int a = chunk * CHUNK + i / SPAN;
            int cell = int(geometry[a].w) + i % SPAN;
            __pipeline_memcpy_async(&cells[chunk & 1][i], filtered + size_t(a) * DETECTORS + cell, 16);
        }
        __pipeline_commit();
    };
    float fx = tx, fy = ty;
    float sum[2][SLICES] = {};
    stage(0);
    for (int chunk = 0; chunk < ANGLES / CHUNK; ++chunk) {
        __pipeline_wait_prior(0);
        __syncthreads();
        if (chunk + 1 < ANGLES / CHUNK) stage(chunk + 1);
        const uint4* rows = cells[chunk & 1];
#pragma unroll 1
        for (int g = 0; g < CHUNK; g += GROUP) {
            __half2 part[2][SLICES / 2];
#pragma unroll
            for (int p = 0; p < 2; ++p)
#pragma unroll
                for (int k = 0; k < SLICES / 2; ++k) part[p][k] = __float2half2_rn(0.0f);
#pragma unroll
            for (int q = 0; q < GROUP; ++q) {
                float4 at = geometry[chunk * CHUNK + g + q];
                float t0 = at.x - 0.5f + fx * at.y + fy * at.z;
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    float t = t0 + p * 8.0f * at.z;  // half a cell low: rounding gives the floor
                    float r = t + 8388608.0f;
                    int cell = __float_as_int(r) & 0x7fffff;
                    float w = t - (r - 8388608.0f) + 0.5f;
                    __half2 right = __float2half2_rn(w), left = __float2half2_rn(1.0f - w);
                    const uint4* from = rows + (g + q) * SPAN + cell;
                    uint4 a = from[0], b = from[1];
                    const __half2* ha = reinterpret_cast<const __half2*>(&a);
                    const __half2* hb = reinterpret_cast<const __half2*>(&b);
#pragma unroll
                    for (int k = 0; k < SLICES / 2; ++k)
                        part[p][k] = __hfma2(right, hb[k], __hfma2(left, ha[k], part[p][k]));
                }
            }
#pragma unroll
            for (int p = 0; p < 2; ++p)
#pragma unroll
                for (int k = 0; k < SLICES / 2; ++k) {
                    float2 f = __half22float2(part[p][k]);
                    sum[p][2 * k] += f.x;
                    sum[p][2 * k + 1] += f.y;
                }
        }
    }
    constexpr float SCALE = float(M_PI / ANGLES / STORE_SCALE);
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
        for (int k = 0; k < SLICES; ++k)
            volume[(size_t(k) * SIZE + y0 + ty + 8 * p) * SIZE + x0 + tx] = sum[p][k] * SCALE;
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

    // Spectrum of the taps (real, as they are symmetric), in the order of the registers in filter_rows.
    std::vector<double> cosine(FFT);
    for (int i = 0; i < FFT; ++i) cosine[i] = cos(2 * M_PI * i / FFT);
    std::vector<float> response(FFT);
    for (int t = 0; t < 256; ++t)
        for (int r = 0; r < 16; ++r) {
            int f = (t >> 4) + 16 * (t & 15) + 256 * r;
            double h = taps[0];
            for (int k = 1; k < DETECTORS; k += 2) h += 2.0 * taps[k] * cosine[(f * k) % FFT];
            response[256 * r + t] = float(h * STORE_SCALE / FFT);
        }

    float *d_counts, *d_response, *volume;
    __half2* filtered;
    CHECK(cudaMalloc(&d_counts, n * sizeof(float)));
    CHECK(cudaMalloc(&filtered, n * sizeof(__half)));
    CHECK(cudaMalloc(&d_response, FFT * sizeof(float)));
    CHECK(cudaMalloc(&volume, size_t(SLICES) * SIZE * SIZE * sizeof(float)));
    CHECK(cudaMemcpy(d_counts, counts.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_response, response.data(), FFT * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(direction, rays.data(), ANGLES * sizeof(float2)));

    auto step = [&]() {
        filter_rows<<<ANGLES * SLICES / 2, 256>>>(d_counts, d_response, filtered);
        backproject<<<dim3(SIZE / TILE_X, SIZE / TILE_Y), 256>>>(reinterpret_cast<const uint4*>(filtered), volume);
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
