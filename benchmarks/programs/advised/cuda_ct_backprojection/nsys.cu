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

constexpr int FFT = 4096;  // 16 * 16 * 16, at least 2 * DETECTORS
constexpr int THREADS = FFT / 16;
constexpr int KEPT = DETECTORS / THREADS;
static_assert(FFT >= 2 * DETECTORS && DETECTORS % THREADS == 0, "rows must fit the transform");
static_assert(SLICES == 8, "a thread of backproject has the 8 slices of a pixel");

__host__ __device__ inline float2 times(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// SIGN -1: forward, +1: inverse.
template <int SIGN>
__host__ __device__ inline void fft4(float2& a, float2& b, float2& c, float2& d) {
    float2 s = make_float2(a.x + c.x, a.y + c.y), m = make_float2(a.x - c.x, a.y - c.y);
    float2 p = make_float2(b.x + d.x, b.y + d.y), q = make_float2(b.x - d.x, b.y - d.y);
    float2 r = make_float2(-SIGN * q.y, SIGN * q.x);
    a = make_float2(s.x + p.x, s.y + p.y);
    b = make_float2(m.x + r.x, m.y + r.y);
    c = make_float2(s.x - p.x, s.y - p.y);
    d = make_float2(m.x - r.x, m.y - r.y);
}

// Where fft16 leaves element k of the result.
__host__ __device__ constexpr int at(int k) { return 4 * (k % 4) + k / 4; }

template <int SIGN>
__host__ __device__ inline void fft16(float2* a) {
    constexpr float C1 = 0.92387953251128674f, S1 = 0.38268343236508977f, H = 0.70710678118654752f;
#pragma unroll
    for (int i = 0; i < 4; ++i) fft4<SIGN>(a[i], a[i + 4], a[i + 8], a[i + 12]);
    a[5] = times(a[5], make_float2(C1, SIGN * S1));
    a[6] = times(a[6], make_float2(H, SIGN * H));
    a[7] = times(a[7], make_float2(S1, SIGN * C1));
    a[9] = times(a[9], make_float2(H, SIGN * H));
    a[10] = make_float2(-SIGN * a[10].y, SIGN * a[10].x);
    a[11] = times(a[11], make_float2(-H, SIGN * H));
    a[13] = times(a[13], make_float2(S1, SIGN * C1));
    a[14] = times(a[14], make_float2(-H, SIGN * H));
    a[15] = times(a[15], make_float2(-C1, -SIGN * S1));
#pragma unroll
    for (int i = 0; i < 4; ++i) fft4<SIGN>(a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]);
}

// w to the powers 0..15.
__host__ __device__ inline void powers(float2 w, float2* p) {
    p[0] = make_float2(1.0f, 0.0f);
    p[1] = w;
#pragma unroll
    for (int k = 2; k < 16; ++k) p[k] = times(p[k / 2], p[k - k / 2]);
}

__host__ __device__ constexpr int padded(int i) { return i + i / 16; }

// The phases of the filter of one thread t; `s` is shared by the block, a barrier lies between phases.
__host__ __device__ inline void phase1(int t, float2* a, float2 w, float2* s) {
    float2 p[16];
    fft16<-1>(a);
    powers(w, p);
#pragma unroll
    for (int k = 0; k < 16; ++k) s[padded(k * 256 + t)] = times(a[at(k)], p[k]);
}
__host__ __device__ inline void phase2(int t, float2 w, float2* s) {
    float2 a[16], p[16];
    int base = t / 16 * 256 + t % 16;
#pragma unroll
    for (int j = 0; j < 16; ++j) a[j] = s[padded(base + 16 * j)];
    fft16<-1>(a);
    powers(w, p);
#pragma unroll
    for (int k = 0; k < 16; ++k) s[padded(base + 16 * k)] = times(a[at(k)], p[k]);
}
__host__ __device__ inline void phase3(int t, const float* response, float2* s) {
    float2 a[16], b[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) a[j] = s[padded(t * 16 + j)];
    fft16<-1>(a);
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        float h = response[k * THREADS + t];
        b[k] = make_float2(a[at(k)].x * h, a[at(k)].y * h);
    }
    fft16<1>(b);
#pragma unroll
    for (int j = 0; j < 16; ++j) s[padded(t * 16 + j)] = b[at(j)];
}
__host__ __device__ inline void phase4(int t, float2 w, float2* s) {
    float2 a[16], p[16];
    int base = t / 16 * 256 + t % 16;
    powers(make_float2(w.x, -w.y), p);
#pragma unroll
    for (int k = 0; k < 16; ++k) a[k] = times(s[padded(base + 16 * k)], p[k]);
    fft16<1>(a);
#pragma unroll
    for (int j = 0; j < 16; ++j) s[padded(base + 16 * j)] = a[at(j)];
}
__host__ __device__ inline void phase5(int t, float2* a, float2 w, const float2* s) {
    float2 p[16];
    powers(make_float2(w.x, -w.y), p);
#pragma unroll
    for (int k = 0; k < 16; ++k) a[k] = times(s[padded(k * 256 + t)], p[k]);
    fft16<1>(a);
}

// Line integrals and ramp filter of the rows of two slices (as real and imaginary part) of an angle.
// filtered: angle, half of the slices, cell, four slices.
__global__ void __launch_bounds__(THREADS) ramp_filter(const float* counts, const float* response, float* filtered) {
    __shared__ float2 s[FFT + FFT / 16];
    int t = threadIdx.x, angle = blockIdx.x, pair = blockIdx.y;
    const float* first = counts + (size_t(2 * pair) * ANGLES + angle) * DETECTORS;
    const float* second = first + size_t(ANGLES) * DETECTORS;
    float2 w1, w2;
    sincospif(-t / 2048.0f, &w1.y, &w1.x);
    sincospif(-(t % 16) / 128.0f, &w2.y, &w2.x);
    float2 a[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        if (j < KEPT)
            a[j] = make_float2(-logf(fmaxf(first[t + j * THREADS], 1.0f) / FLUX),
                               -logf(fmaxf(second[t + j * THREADS], 1.0f) / FLUX));
        else
            a[j] = make_float2(0.0f, 0.0f);
    }
    phase1(t, a, w1, s);
    __syncthreads();
    phase2(t, w2, s);
    __syncthreads();
    phase3(t, response, s);
    __syncthreads();
    phase4(t, w2, s);
    __syncthreads();
    phase5(t, a, w1, s);
    float2* out = reinterpret_cast<float2*>(filtered) + size_t(angle * 2 + pair / 2) * DETECTORS * 2 + pair % 2;
#pragma unroll
    for (int j = 0; j < KEPT; ++j) out[(t + j * THREADS) * 2] = a[at(j)];
}

__device__ inline void gather(float4& sum, float4 left, float4 right, float u, float w) {
    sum.x += u * left.x + w * right.x;
    sum.y += u * left.y + w * right.y;
    sum.z += u * left.z + w * right.z;
    sum.w += u * left.w + w * right.w;
}

// One thread: the 8 slices of a pixel. A warp has 8 x 4 pixels, a block 16 x 16.
__global__ void __launch_bounds__(256) backproject(const float4* __restrict__ filtered, float* __restrict__ volume) {
    // The corners of the image lie within the detector, so that no ray misses it.
    static_assert(0.7072 * SIZE * PIXEL / SPACING + 2 < 0.5 * DETECTORS, "detector too short");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int x = blockIdx.x * 16 + warp % 2 * 8 + lane % 8;
    int y = blockIdx.y * 16 + warp / 2 * 4 + lane / 8;
    constexpr float SCALE = float(PIXEL / SPACING), MIDDLE = float(0.5 * (DETECTORS - 1));
    constexpr float MAGIC = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    float px = (x - 0.5f * (SIZE - 1)) * SCALE;
    float py = (y - 0.5f * (SIZE - 1)) * SCALE;
    float4 low = make_float4(0, 0, 0, 0), high = low;
    const float4* row = filtered;
#pragma unroll 4
    for (int a = 0; a < ANGLES; ++a) {
        float2 d = direction[a];
        float t = fmaf(px, d.x, fmaf(py, d.y, MIDDLE));
        float shifted = (t - 0.5f) + MAGIC;
        int cell = __float_as_int(shifted) - 0x4B400000;
        float w = t - (shifted - MAGIC);
        float u = 1.0f - w;
        const float4* p = row + cell;
        float4 l0 = __ldg(p), l1 = __ldg(p + 1);
        float4 h0 = __ldg(p + DETECTORS), h1 = __ldg(p + DETECTORS + 1);
        gather(low, l0, l1, u, w);
        gather(high, h0, h1, u, w);
        row += 2 * DETECTORS;
    }
    constexpr float FACTOR = float(M_PI / ANGLES);
    constexpr size_t SLICE = size_t(SIZE) * SIZE;
    float* out = volume + size_t(y) * SIZE + x;
    out[0] = low.x * FACTOR;
    out[SLICE] = low.y * FACTOR;
    out[2 * SLICE] = low.z * FACTOR;
    out[3 * SLICE] = low.w * FACTOR;
    out[4 * SLICE] = high.x * FACTOR;
    out[5 * SLICE] = high.y * FACTOR;
    out[6 * SLICE] = high.z * FACTOR;
    out[7 * SLICE] = high.w * FACTOR;
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

    // Frequency response of the taps (real, as they are symmetric), in the order of ramp_filter's threads.
    std::vector<double> wave(FFT);
    for (int i = 0; i < FFT; ++i) wave[i] = cos(2 * M_PI * i / FFT);
    std::vector<float> response(FFT);
    for (int i = 0; i < FFT; ++i) {
        int t = i % THREADS, f = t / 16 + 16 * (t % 16) + 256 * (i / THREADS);
        double h = taps[0];
        for (int k = 1; k < DETECTORS; k += 2) h += 2.0 * taps[k] * wave[size_t(f) * k % FFT];
        response[i] = float(h / FFT);
    }

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

    float *d_counts, *filtered, *d_response, *volume;
    CHECK(cudaMalloc(&d_counts, n * sizeof(float)));
    CHECK(cudaMalloc(&filtered, n * sizeof(float)));
    CHECK(cudaMalloc(&d_response, FFT * sizeof(float)));
    CHECK(cudaMalloc(&volume, size_t(SLICES) * SIZE * SIZE * sizeof(float)));
    CHECK(cudaMemcpy(d_counts, counts.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_response, response.data(), FFT * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(direction, rays.data(), ANGLES * sizeof(float2)));

    auto step = [&]() {
        ramp_filter<<<dim3(ANGLES, SLICES / 2), THREADS>>>(d_counts, d_response, filtered);
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
