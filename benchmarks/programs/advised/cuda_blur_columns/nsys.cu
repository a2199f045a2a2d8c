// Gaussian blur and local contrast of large grey images, rows, columns and contrast in one pass.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int WIDTH = 8192;
constexpr int HEIGHT = 4096;
constexpr int RADIUS = 8;
constexpr int WARMUP = 5;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 10;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

__constant__ float weights[2 * RADIUS + 1];

constexpr int QUADS = WIDTH / 4;  // a thread makes four neighbouring columns
constexpr int THREADS = 128;
constexpr int CHUNK = 128;        // rows that a thread walks down
constexpr int AHEAD = 4;          // rows asked of L2 early
static_assert(RADIUS == 8 && QUADS % THREADS == 0 && HEIGHT % CHUNK == 0, "sizes");

template <bool EDGE>
__device__ __forceinline__ void load_window(const float4* row, int quad, float (&f)[20]) {
#pragma unroll
    for (int k = 0; k < 5; ++k) {
        int q = quad + k - 2;
        float4 v;
        if (EDGE) {
            v = __ldg(row + min(max(q, 0), QUADS - 1));
            if (q < 0) v = make_float4(v.x, v.x, v.x, v.x);
            if (q >= QUADS) v = make_float4(v.w, v.w, v.w, v.w);
        } else {
            v = __ldg(row + q);
        }
        f[4 * k] = v.x, f[4 * k + 1] = v.y, f[4 * k + 2] = v.z, f[4 * k + 3] = v.w;
    }
}

// Row blur, column blur and contrast at once: the thread walks down its columns and keeps
// the sixteen unfinished column sums in registers.
template <bool EDGE>
__device__ __forceinline__ void walk(const float4* __restrict__ image, float4* __restrict__ out) {
    int quad = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * CHUNK;
    float sums[16][4], f[20];
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[j][c] = 0;
    load_window<EDGE>(image + max(first - RADIUS, 0) * QUADS, quad, f);
#pragma unroll 1
    for (int r = first - RADIUS; r < first + CHUNK + RADIUS; ++r) {
        float v[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            v[c] = 0;
#pragma unroll
            for (int d = 0; d <= 2 * RADIUS; ++d) v[c] += weights[d] * f[c + d];
        }
        int y = r - RADIUS;
        float4 centre = make_float4(0, 0, 0, 0);
        if (y >= first) centre = __ldg(image + y * QUADS + quad);
        load_window<EDGE>(image + min(max(r + 1, 0), HEIGHT - 1) * QUADS, quad, f);
        asm volatile("prefetch.global.L2 [%0];" ::"l"(image + min(max(r + 1 + AHEAD, 0), HEIGHT - 1) * QUADS + quad));
        float soft[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            soft[c] = sums[0][c] + weights[16] * v[c];
#pragma unroll
            for (int j = 0; j < 15; ++j) sums[j][c] = sums[j + 1][c] + weights[15 - j] * v[c];
            sums[15][c] = weights[0] * v[c];
        }
        if (y >= first)
            __stcs(out + y * QUADS + quad,
                   make_float4(0.5f + 0.8f * (centre.x - soft[0]), 0.5f + 0.8f * (centre.y - soft[1]),
                               0.5f + 0.8f * (centre.z - soft[2]), 0.5f + 0.8f * (centre.w - soft[3])));
    }
}

__global__ void __launch_bounds__(THREADS, 4) blur_contrast(const float4* __restrict__ image, float4* __restrict__ out) {
    if (blockIdx.x == 0 || blockIdx.x == gridDim.x - 1)
        walk<true>(image, out);
    else
        walk<false>(image, out);
}

int main() {
    size_t n = size_t(WIDTH) * HEIGHT;
    std::vector<float> host(n);
    for (size_t i = 0; i < n; ++i)
        host[i] = 0.5f + 0.5f * sinf(0.01f * (i % WIDTH)) * cosf(0.02f * (i / WIDTH)) + (i % 17) * 0.01f;
    float w[2 * RADIUS + 1], total = 0;
    for (int d = -RADIUS; d <= RADIUS; ++d) total += w[d + RADIUS] = expf(-d * d / 18.0f);
    for (float& v : w) v /= total;
    CHECK(cudaMemcpyToSymbol(weights, w, sizeof(w)));
    float *image, *out;
    for (float** p : {&image, &out}) CHECK(cudaMalloc(p, n * sizeof(float)));
    CHECK(cudaMemcpy(image, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));

    auto step = [&]() {
        blur_contrast<<<dim3(QUADS / THREADS, HEIGHT / CHUNK), THREADS>>>(
            reinterpret_cast<const float4*>(image), reinterpret_cast<float4*>(out));
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
    std::sort(times.begin(), times.end());
    CHECK(cudaMemcpy(host.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0, square = 0;
    for (float v : host) {
        mean += v;
        square += double(v) * v;
    }
    printf("%.0f M pixels/s\n", n / times[times.size() / 2]);
    printf("{\"program\": \"cuda_blur_columns\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], mean / n, square / n);
    return 0;
}
