// Turns high-speed video into the events that an event camera would report:
// each pixel follows a leaky reference and fires when log intensity departs from it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t err_ = (call);                                                   \
        if (err_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                   \
                         cudaGetErrorString(err_));                                  \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int kWidth = 512;
constexpr int kHeight = 512;
constexpr int kPixels = kWidth * kHeight;
constexpr int kFrames = 1024;
constexpr size_t kSamples = size_t(kPixels) * kFrames;

__host__ __device__ inline size_t sample_index(int pixel, int frame) {
    return size_t(pixel) * kFrames + frame;
}

__device__ inline unsigned mix(unsigned v) {
    v ^= v >> 16; v *= 0x7feb352du;
    v ^= v >> 15; v *= 0x846ca68bu;
    return v ^ (v >> 16);
}

// Synthetic scene: a grating that drifts over the sensor, with shot noise.
__global__ void render_scene(float* __restrict__ video) {
    size_t total = kSamples;
    size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total; i += stride) {
        int pixel = int(i % kPixels);
        int frame = int(i / kPixels);
        float x = float(pixel % kWidth), y = float(pixel / kWidth);
        float noise = float(mix(unsigned(i)) >> 8) * (1.0f / 16777216.0f) - 0.5f;
        float light = 1.5f + __sinf(0.05f * x + 0.02f * y - 0.03f * frame) + 0.1f * noise;
        video[sample_index(pixel, frame)] = __logf(light);
    }
}

struct PixelModel {
    float leak;        // how fast the reference follows without events
    float threshold;   // contrast threshold in log units
    float smooth;      // photoreceptor low pass
};

// One thread follows one pixel through the whole clip.
__global__ void __launch_bounds__(256)
follow_pixels(const float* __restrict__ video, float* __restrict__ contrast,
              float* __restrict__ receptor, float* __restrict__ reference,
              int* __restrict__ events, PixelModel m) {
    int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= kPixels) return;
    float rec = receptor[pixel];
    float ref = reference[pixel];
    int fired = 0;
#pragma unroll 4
    for (int frame = 0; frame < kFrames; ++frame) {
        size_t at = sample_index(pixel, frame);
        rec += m.smooth * (video[at] - rec);
        float diff = rec - ref;
        bool fire = fabsf(diff) > m.threshold;
        fired += fire;
        ref = fire ? rec : ref + m.leak * diff;
        contrast[at] = diff;
    }
    receptor[pixel] = rec;
    reference[pixel] = ref;
    events[pixel] += fired;
}

int main() {
    float *video, *contrast, *receptor, *reference;
    int* events;
    CHECK(cudaMalloc(&video, kSamples * sizeof(float)));
    CHECK(cudaMalloc(&contrast, kSamples * sizeof(float)));
    CHECK(cudaMalloc(&receptor, kPixels * sizeof(float)));
    CHECK(cudaMalloc(&reference, kPixels * sizeof(float)));
    CHECK(cudaMalloc(&events, kPixels * sizeof(int)));
    CHECK(cudaMemset(receptor, 0, kPixels * sizeof(float)));
    CHECK(cudaMemset(reference, 0, kPixels * sizeof(float)));
    CHECK(cudaMemset(events, 0, kPixels * sizeof(int)));
    render_scene<<<132 * 16, 256>>>(video);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    const PixelModel model{0.002f, 0.12f, 0.4f};
    int steps = 0;
    auto run = [&](int n) {
        CHECK(cudaDeviceSynchronize());
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < n; ++i, ++steps)
            follow_pixels<<<(kPixels + 255) / 256, 256>>>(video, contrast, receptor, reference,
                                                          events, model);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> span = std::chrono::steady_clock::now() - begin;
        return span.count() / n;
    };

    run(6);
    std::vector<double> us;
    for (int block = 0; block < 7; ++block) us.push_back(run(5));
    std::nth_element(us.begin(), us.begin() + us.size() / 2, us.end());

    std::vector<float> ref(kPixels), rec(kPixels);
    std::vector<int> fired(kPixels);
    CHECK(cudaMemcpy(ref.data(), reference, kPixels * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(rec.data(), receptor, kPixels * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(fired.data(), events, kPixels * sizeof(int), cudaMemcpyDeviceToHost));
    double mean_ref = 0, mean_rec = 0, mean_fired = 0, probe = 0;
    for (int p = 0; p < kPixels; ++p) {
        mean_ref += std::fabs(ref[p]) / kPixels;
        mean_rec += std::fabs(rec[p]) / kPixels;
        mean_fired += double(fired[p]) / kPixels;
    }
    for (int f = 0; f < kFrames; f += 128) {
        float value;
        CHECK(cudaMemcpy(&value, contrast + sample_index(1234 + f, f + 77), sizeof(float),
                         cudaMemcpyDeviceToHost));
        probe += std::fabs(value);
    }
    std::printf("{\"program\": \"cuda_eventcamera\", \"steps\": %d, \"us\": %.2f, "
                "\"result\": [%.7g, %.7g, %.7g, %.7g]}\n",
                steps, us[us.size() / 2], mean_ref, mean_rec, mean_fired, probe);
    return 0;
}
