// Denoise a long recording that does not fit on the GPU: chunks go over, are filtered, come back.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int CHUNK = 1 << 22;
constexpr int CHUNKS = 8;
constexpr int STREAMS = 4;
constexpr int RADIUS = 12;
constexpr int PASSES = 5;
constexpr int WARMUP = 3;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 5;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

// Bilateral filter in one dimension: near samples of like value count more.
__global__ void denoise(const float* in, float* out, int n, float sharp) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = in[i], value = x;
    for (int pass = 0; pass < PASSES; ++pass) {
        float sum = 0.0f, weight = 0.0f;
        for (int d = -RADIUS; d <= RADIUS; ++d) {
            int j = min(max(i + d, 0), n - 1);
            float y = in[j], diff = y - value;
            float w = __expf(-0.01f * d * d - sharp * diff * diff);
            sum += w * y;
            weight += w;
        }
        value = sum / weight;
    }
    out[i] = value;
}

int main() {
    size_t total = size_t(CHUNK) * CHUNKS;
    float *in, *out;
    CHECK(cudaMallocHost(&in, total * sizeof(float)));
    CHECK(cudaMallocHost(&out, total * sizeof(float)));
    unsigned state = 1;
    for (size_t i = 0; i < total; ++i) {
        state = state * 1664525u + 1013904223u;
        in[i] = sinf(float(i % 100000) * 1e-3f) + float(state >> 8) / (1 << 24) - 0.5f;
    }
    float *a[STREAMS], *b[STREAMS];
    cudaStream_t stream[STREAMS];
    for (int s = 0; s < STREAMS; ++s) {
        CHECK(cudaMalloc(&a[s], CHUNK * sizeof(float)));
        CHECK(cudaMalloc(&b[s], CHUNK * sizeof(float)));
        CHECK(cudaStreamCreateWithFlags(&stream[s], cudaStreamNonBlocking));
    }

    auto step = [&]() {
        for (int c = 0; c < CHUNKS; ++c) {
            size_t at = size_t(c) * CHUNK, bytes = CHUNK * sizeof(float);
            int s = c % STREAMS;
            CHECK(cudaMemcpyAsync(a[s], in + at, bytes, cudaMemcpyHostToDevice, stream[s]));
            denoise<<<(CHUNK + 255) / 256, 256, 0, stream[s]>>>(a[s], b[s], CHUNK, 2.0f);
            CHECK(cudaMemcpyAsync(out + at, b[s], bytes, cudaMemcpyDeviceToHost, stream[s]));
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
    double us = times[times.size() / 2], mean = 0, square = 0;
    for (size_t i = 0; i < total; ++i) {
        mean += out[i];
        square += double(out[i]) * out[i];
    }
    printf("%.1f M samples/s\n", total / us);
    printf("{\"program\": \"cuda_chunked_denoise\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, us, mean / total, square / total);
    return 0;
}
