// Heat in a cube, seven-point stencil, float32, one thread for a column of four cells.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int N = 512;
constexpr int SUBSTEPS = 6;
constexpr int WARMUP = 4;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 8;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

__global__ void __launch_bounds__(256) heat(const float* __restrict__ in, float* __restrict__ out) {
    int x = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z;
    size_t i = (size_t(z) * N + y) * N + x;
    if (y == 0 || y == N - 1 || z == 0 || z == N - 1) return;
    auto four = [&](size_t at) { return *reinterpret_cast<const float4*>(in + at); };
    float4 c = four(i), n = four(i - N), s = four(i + N);
    float4 u = four(i - N * N), d = four(i + N * N);
    float l = x > 0 ? in[i - 1] : c.x, r = x + 4 < N ? in[i + 4] : c.w;
    const float k = 0.15f;
    float4 o;
    o.x = c.x + k * (l + c.y + n.x + s.x + u.x + d.x - 6 * c.x);
    o.y = c.y + k * (c.x + c.z + n.y + s.y + u.y + d.y - 6 * c.y);
    o.z = c.z + k * (c.y + c.w + n.z + s.z + u.z + d.z - 6 * c.z);
    o.w = c.w + k * (c.z + r + n.w + s.w + u.w + d.w - 6 * c.w);
    *reinterpret_cast<float4*>(out + i) = o;
}

int main() {
    size_t n = size_t(N) * N * N;
    std::vector<float> host(n);
    for (size_t i = 0; i < n; ++i) host[i] = float((i * 2654435761u >> 16) & 255) / 255;
    float *a, *b;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    CHECK(cudaMalloc(&b, n * sizeof(float)));
    CHECK(cudaMemcpy(a, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, a, n * sizeof(float), cudaMemcpyDeviceToDevice));

    auto step = [&]() {
        for (int s = 0; s < SUBSTEPS; ++s) {
            heat<<<dim3(N / 128, N / 8, N), dim3(32, 8)>>>(a, b);
            std::swap(a, b);
        }
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
    CHECK(cudaMemcpy(host.data(), a, n * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0, square = 0;
    for (float v : host) {
        sum += v;
        square += double(v) * v;
    }
    printf("%.0f GB/s\n", 8.0 * n * SUBSTEPS / times[times.size() / 2] / 1e3);
    printf("{\"program\": \"cuda_stencil_seven\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], sum / n, square / n);
    return 0;
}
