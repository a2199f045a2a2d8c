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

constexpr int TILE_X = 128;  // 32 threads of 4 pixels
constexpr int TILE_Y = 64;
constexpr int THREADS_Y = 8;
constexpr int ROWS = TILE_Y / THREADS_Y;
static_assert(RADIUS == 8 && WIDTH % TILE_X == 0 && HEIGHT % TILE_Y == 0, "tile shapes");

// Both blurs and the contrast of one tile; the rows' blur stays in shared memory.
__global__ void __launch_bounds__(32 * THREADS_Y) blur_contrast(const float* __restrict__ in,
                                                                float* __restrict__ out) {
    __shared__ float4 soft[TILE_Y + 2 * RADIUS][TILE_X / 4];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int x = blockIdx.x * TILE_X + tx * 4, top = blockIdx.y * TILE_Y;

#pragma unroll 2
    for (int r = ty; r < TILE_Y + 2 * RADIUS; r += THREADS_Y) {
        const float* row = in + size_t(min(max(top + r - RADIUS, 0), HEIGHT - 1)) * WIDTH;
        float v[20];
#pragma unroll
        for (int q = 0; q < 5; ++q) {
            int at = x + 4 * q - RADIUS;  // a group of four lies wholly inside or wholly outside
            float4 f;
            if (at >= 0 && at < WIDTH) {
                f = __ldg(reinterpret_cast<const float4*>(row + at));
            } else {
                float edge = __ldg(row + (at < 0 ? 0 : WIDTH - 1));
                f = make_float4(edge, edge, edge, edge);
            }
            v[4 * q] = f.x, v[4 * q + 1] = f.y, v[4 * q + 2] = f.z, v[4 * q + 3] = f.w;
        }
        float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int d = 0; d <= 2 * RADIUS; ++d) {
            sum.x += weights[d] * v[d];
            sum.y += weights[d] * v[d + 1];
            sum.z += weights[d] * v[d + 2];
            sum.w += weights[d] * v[d + 3];
        }
        soft[r][tx] = sum;
    }
    __syncthreads();

    float4 acc[ROWS];
#pragma unroll
    for (int o = 0; o < ROWS; ++o) acc[o] = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int r = 0; r < ROWS + 2 * RADIUS; ++r) {
        float4 v = soft[ty * ROWS + r][tx];
#pragma unroll
        for (int o = 0; o < ROWS; ++o) {
            if (r - o >= 0 && r - o <= 2 * RADIUS) {
                float w = weights[r - o];
                acc[o].x += w * v.x;
                acc[o].y += w * v.y;
                acc[o].z += w * v.z;
                acc[o].w += w * v.w;
            }
        }
    }
#pragma unroll
    for (int o = 0; o < ROWS; ++o) {
        size_t at = size_t(top + ty * ROWS + o) * WIDTH + x;
        float4 p = __ldg(reinterpret_cast<const float4*>(in + at)), c;
        c.x = 0.5f + 0.8f * (p.x - acc[o].x);
        c.y = 0.5f + 0.8f * (p.y - acc[o].y);
        c.z = 0.5f + 0.8f * (p.z - acc[o].z);
        c.w = 0.5f + 0.8f * (p.w - acc[o].w);
        __stcs(reinterpret_cast<float4*>(out + at), c);
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
        blur_contrast<<<dim3(WIDTH / TILE_X, HEIGHT / TILE_Y), dim3(32, THREADS_Y)>>>(image, out);
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
