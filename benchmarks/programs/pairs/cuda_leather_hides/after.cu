// Inspection of tanned hides: a line-scan image of each hide is compared with itself at several
// scales (difference of Gaussians), and the responses are joined into one map of blemishes.
#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t status_ = (call);                                                   \
        if (status_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

constexpr int kWidth = 4096;
constexpr int kHeight = 2048;
constexpr int kPixels = kWidth * kHeight;
constexpr int kScales = 4;
constexpr int kRadius = 12;
constexpr int kHides = 4;

__constant__ float c_taps[kScales][2 * kRadius + 1];

class Plane {
public:
    Plane() { CHECK(cudaMalloc(&data_, sizeof(float) * kPixels)); }
    ~Plane() { cudaFree(data_); }
    Plane(const Plane&) = delete;
    Plane& operator=(const Plane&) = delete;
    float* data() { return data_; }

private:
    float* data_ = nullptr;
};

__global__ void blur_rows(const float* __restrict__ in, float* __restrict__ out, int scale) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    const float* row = in + size_t(y) * kWidth;
    float sum = 0.0f;
#pragma unroll
    for (int k = -kRadius; k <= kRadius; ++k)
        sum = fmaf(c_taps[scale][k + kRadius], row[min(max(x + k, 0), kWidth - 1)], sum);
    out[size_t(y) * kWidth + x] = sum;
}

__global__ void blur_columns(const float* __restrict__ in, float* __restrict__ out, int scale) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    float sum = 0.0f;
#pragma unroll
    for (int k = -kRadius; k <= kRadius; ++k)
        sum = fmaf(c_taps[scale][k + kRadius], in[size_t(min(max(y + k, 0), kHeight - 1)) * kWidth + x], sum);
    out[size_t(y) * kWidth + x] = sum;
}

__global__ void respond(const float* __restrict__ fine, const float* __restrict__ coarse, float* __restrict__ energy,
                        float* __restrict__ blemish, float gain) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    size_t i = size_t(blockIdx.y) * kWidth + x;
    float difference = gain * (fine[i] - coarse[i]);
    float e = difference * difference;
    energy[i] = e;
    blemish[i] = fmaxf(blemish[i], e / (1.0f + e));
}

// Mean response of the hide at one scale, a partial sum for each row.
__global__ void row_sums(const float* __restrict__ energy, float* __restrict__ sums) {
    __shared__ float part[8];
    float sum = 0.0f;
    for (int x = threadIdx.x; x < kWidth; x += blockDim.x) sum += energy[size_t(blockIdx.x) * kWidth + x];
    for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) sum += part[w];
        sums[blockIdx.x] = sum / kWidth;
    }
}

class Inspector {
public:
    Inspector() {
        CHECK(cudaMalloc(&sums_, sizeof(float) * kScales * kHeight));
        float taps[kScales][2 * kRadius + 1];
        for (int s = 0; s < kScales; ++s) {
            float sigma = 0.9f * std::pow(1.6f, float(s)), total = 0.0f;
            for (int k = -kRadius; k <= kRadius; ++k) total += taps[s][k + kRadius] = std::exp(-0.5f * k * k / (sigma * sigma));
            for (float& tap : taps[s]) tap /= total;
        }
        CHECK(cudaMemcpyToSymbol(c_taps, taps, sizeof(taps)));
    }
    ~Inspector() { cudaFree(sums_); }

    void scale_response(const float* image, float* blemish, int scale) {
        blur_rows<<<grid_, 256>>>(image, rows_.data(), scale);
        blur_columns<<<grid_, 256>>>(rows_.data(), blurred_.data(), scale);
        respond<<<grid_, 256>>>(image, blurred_.data(), energy_.data(), blemish, 6.0f + 2.0f * scale);
        row_sums<<<kHeight, 256>>>(energy_.data(), sums_ + scale * kHeight);
    }

    void inspect(const float* image, float* blemish) {
        CHECK(cudaMemsetAsync(blemish, 0, sizeof(float) * kPixels));
        for (int s = 0; s < kScales; ++s) scale_response(image, blemish, s);
        CHECK(cudaGetLastError());
    }
    const float* sums() const { return sums_; }

private:
    dim3 grid_{kWidth / 256, kHeight};
    float* sums_;
    Plane rows_, blurred_, energy_;
};

static void scan_hide(std::vector<float>& image, int hide) {
    uint32_t state = 777u + 31u * hide;
    for (int y = 0; y < kHeight; ++y)
        for (int x = 0; x < kWidth; ++x) {
            state = state * 1664525u + 1013904223u;
            float grain = (state >> 8) * (1.0f / 16777216.0f);
            float vein = ((x + 2 * y + 113 * hide) & 1023) < 6 ? 0.35f : 0.0f;
            image[size_t(y) * kWidth + x] = 0.5f + 0.2f * grain - vein;
        }
}

int main() {
    float* hides[kHides];
    std::vector<float> image(kPixels);
    for (int h = 0; h < kHides; ++h) {
        scan_hide(image, h);
        CHECK(cudaMalloc(&hides[h], sizeof(float) * kPixels));
        CHECK(cudaMemcpy(hides[h], image.data(), sizeof(float) * kPixels, cudaMemcpyHostToDevice));
    }
    float* blemish;
    CHECK(cudaMalloc(&blemish, sizeof(float) * kPixels));

    Inspector inspector;
    const int warmup = 40, blocks = 12, per_block = 40;
    int steps = 0;
    for (int i = 0; i < warmup; ++i) inspector.inspect(hides[steps++ % kHides], blemish);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) inspector.inspect(hides[steps++ % kHides], blemish);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    CHECK(cudaMemcpy(image.data(), blemish, sizeof(float) * kPixels, cudaMemcpyDeviceToHost));
    std::vector<float> sums(kScales * kHeight);
    CHECK(cudaMemcpy(sums.data(), inspector.sums(), sizeof(float) * sums.size(), cudaMemcpyDeviceToHost));
    double mean = 0.0, response = 0.0;
    for (float v : image) mean += v;
    for (float v : sums) response += v;
    std::printf("{\"program\": \"cuda_leather_hides\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f]}\n",
                steps, median, mean / kPixels, response / sums.size());
    for (float* hide : hides) CHECK(cudaFree(hide));
    CHECK(cudaFree(blemish));
    return 0;
}
