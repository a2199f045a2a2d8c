// Gaussian blur and local contrast of large grey images, rows first and columns then.
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

// One block makes a tile of the result: rows are blurred into shared memory (with RADIUS more rows above and
// below), then columns from there, then the contrast, so that only the image is read and only the result written.
constexpr int TILE_W = 128;
constexpr int TILE_H = 64;
constexpr int ROWS = TILE_H + 2 * RADIUS;
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int PER = TILE_H / WARPS;  // rows of the result for each thread
static_assert(RADIUS % 4 == 0 && WIDTH % TILE_W == 0 && HEIGHT % TILE_H == 0 && ROWS % WARPS == 0, "tiling");

__global__ void __launch_bounds__(THREADS, 4)
blur_contrast(const float* __restrict__ image, float* __restrict__ out) {
    __shared__ float4 soft[ROWS][TILE_W / 4];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int x = blockIdx.x * TILE_W + lane * 4, top = blockIdx.y * TILE_H;

    bool inside = x >= RADIUS && x + 4 + RADIUS <= WIDTH;
#pragma unroll 2
    for (int r = warp; r < ROWS; r += WARPS) {
        const float* row = image + size_t(min(max(top + r - RADIUS, 0), HEIGHT - 1)) * WIDTH;
        float v[4 + 2 * RADIUS];
        if (inside) {
#pragma unroll
            for (int k = 0; k < 1 + RADIUS / 2; ++k) {
                float4 f = *reinterpret_cast<const float4*>(row + x - RADIUS + 4 * k);
                v[4 * k] = f.x, v[4 * k + 1] = f.y, v[4 * k + 2] = f.z, v[4 * k + 3] = f.w;
            }
        } else {
#pragma unroll
            for (int k = 0; k < 4 + 2 * RADIUS; ++k) v[k] = row[min(max(x - RADIUS + k, 0), WIDTH - 1)];
        }
        float sum[4] = {0, 0, 0, 0};
#pragma unroll
        for (int d = 0; d <= 2 * RADIUS; ++d)
#pragma unroll
            for (int c = 0; c < 4; ++c) sum[c] += weights[d] * v[c + d];
        soft[r][lane] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    }
    __syncthreads();

    float4 sum[PER];
#pragma unroll
    for (int o = 0; o < PER; ++o) sum[o] = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int r = 0; r < PER + 2 * RADIUS; ++r) {
        float4 v = soft[warp * PER + r][lane];
#pragma unroll
        for (int o = 0; o < PER; ++o) {
            int d = r - o;
            if (d >= 0 && d <= 2 * RADIUS) {
                sum[o].x += weights[d] * v.x;
                sum[o].y += weights[d] * v.y;
                sum[o].z += weights[d] * v.z;
                sum[o].w += weights[d] * v.w;
            }
        }
    }
#pragma unroll
    for (int o = 0; o < PER; ++o) {
        size_t at = size_t(top + warp * PER + o) * WIDTH + x;
        float4 p = *reinterpret_cast<const float4*>(image + at);
        __stcs(reinterpret_cast<float4*>(out + at),
               make_float4(0.5f + 0.8f * (p.x - sum[o].x), 0.5f + 0.8f * (p.y - sum[o].y),
                           0.5f + 0.8f * (p.z - sum[o].z), 0.5f + 0.8f * (p.w - sum[o].w)));
    }
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
        blur_contrast<<<dim3(WIDTH / TILE_W, HEIGHT / TILE_H), THREADS>>>(image, out);
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
