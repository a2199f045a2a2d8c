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
constexpr int ROWS = 16;  // of a column, for each thread
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

__global__ void blur_rows(const float* in, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    float sum = 0;
    for (int d = -RADIUS; d <= RADIUS; ++d)
        sum += weights[d + RADIUS] * in[y * WIDTH + min(max(x + d, 0), WIDTH - 1)];
    out[y * WIDTH + x] = sum;
}

// Neighbouring lanes take neighbouring columns; each thread walks ROWS rows down its column, with
// the rows around them in registers, and writes the contrast at once.
__global__ void __launch_bounds__(256)
blur_columns_contrast(const float* __restrict__ in, const float* __restrict__ image,
                      float* __restrict__ out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * ROWS;
    float column[ROWS + 2 * RADIUS];
#pragma unroll
    for (int k = 0; k < ROWS + 2 * RADIUS; ++k)
        column[k] = in[min(max(y + k - RADIUS, 0), HEIGHT - 1) * WIDTH + x];
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
        float sum = 0;
#pragma unroll
        for (int d = 0; d <= 2 * RADIUS; ++d) sum += weights[d] * column[row + d];
        int i = (y + row) * WIDTH + x;
        out[i] = 0.5f + 0.8f * (image[i] - sum);
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
    float *image, *a, *out;
    for (float** p : {&image, &a, &out}) CHECK(cudaMalloc(p, n * sizeof(float)));
    CHECK(cudaMemcpy(image, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));

    auto step = [&]() {
        blur_rows<<<dim3(WIDTH / 256, HEIGHT), 256>>>(image, a);
        blur_columns_contrast<<<dim3(WIDTH / 256, HEIGHT / ROWS), 256>>>(a, image, out);
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
