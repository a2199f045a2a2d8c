// Anomaly watch over a wall of thermal cameras (wildfire towers).  Every pixel
// keeps an exponentially weighted mean and variance of its raw 14-bit signal;
// a new frame of all cameras updates them and counts, for each camera, the
// pixels far above their own background.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) {                                            \
            std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int kCameras = 1600;
constexpr int kPixels = 640 * 512;
constexpr int kThreads = 256;
constexpr int kPerThread = 8;
constexpr int kTile = kThreads * kPerThread;      // divides the pixels of a camera
constexpr int kTilesPerCamera = kPixels / kTile;
constexpr int kRing = 4;                          // frames in the receive ring
constexpr size_t kTotal = size_t(kCameras) * kPixels;
static_assert(kPixels % kTile == 0, "tile must not straddle cameras");

__device__ inline uint32_t mix(uint32_t x)
{
    x ^= x >> 16; x *= 0x7feb352du;
    x ^= x >> 15; x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

// Scene: vertical gradient, fixed pattern, temporal noise, rare hot spots.
__global__ void receive(uint16_t *frame, uint32_t slot)
{
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < kTotal; i += stride) {
        const uint32_t row = uint32_t(i % kPixels) / 640;
        const uint32_t fixed = mix(uint32_t(i)) & 127u;
        const uint32_t noise = mix(uint32_t(i) * 5u + slot * 7919u);
        uint32_t v = 6000u + 2u * row + fixed + (noise & 31u);
        if ((noise >> 12) % 50021u == 0u) v += 900u;
        frame[i] = uint16_t(v);
    }
}

__global__ void reset(float *mean, float *var)
{
    const size_t stride = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < kTotal; i += stride) {
        mean[i] = 6000.0f + 2.0f * float((i % kPixels) / 640) + 79.0f;
        var[i] = 1600.0f;
    }
}

__device__ inline int update(float obs, float &mean, float &var, float rate, float threshold)
{
    const float diff = obs - mean;
    const int hot = diff > 0.0f && diff * diff > threshold * var;
    const float gain = hot ? 0.1f * rate : rate;      // hot pixels adapt slowly
    const float inc = gain * diff;
    mean += inc;
    var = (1.0f - gain) * (var + diff * inc);
    return hot;
}

__device__ inline int update4(ushort4 raw, float4 &m, float4 &v, float rate, float threshold)
{
    return update(float(raw.x), m.x, v.x, rate, threshold) + update(float(raw.y), m.y, v.y, rate, threshold)
         + update(float(raw.z), m.z, v.z, rate, threshold) + update(float(raw.w), m.w, v.w, rate, threshold);
}

__global__ void __launch_bounds__(kThreads)
watch(const ushort4 *__restrict__ frame, float4 *__restrict__ mean, float4 *__restrict__ var,
      unsigned *__restrict__ hot_count, float rate, float threshold)
{
    const size_t p = size_t(blockIdx.x) * (kTile / 4) + threadIdx.x;
    const size_t q = p + kThreads;
    const ushort4 r0 = __ldcs(frame + p), r1 = __ldcs(frame + q);
    float4 m0 = __ldcs(mean + p), m1 = __ldcs(mean + q);
    float4 v0 = __ldcs(var + p), v1 = __ldcs(var + q);
    int hot = update4(r0, m0, v0, rate, threshold) + update4(r1, m1, v1, rate, threshold);
    __stcs(mean + p, m0);
    __stcs(mean + q, m1);
    __stcs(var + p, v0);
    __stcs(var + q, v1);
    hot = __reduce_add_sync(0xffffffffu, hot);
    if ((threadIdx.x & 31) == 0 && hot) atomicAdd(hot_count + blockIdx.x / kTilesPerCamera, unsigned(hot));
}

int main()
{
    uint16_t *ring;
    float *mean, *var;
    unsigned *hot;
    CHECK(cudaMalloc(&ring, kRing * kTotal * sizeof(uint16_t)));
    CHECK(cudaMalloc(&mean, kTotal * sizeof(float)));
    CHECK(cudaMalloc(&var, kTotal * sizeof(float)));
    CHECK(cudaMalloc(&hot, kCameras * sizeof(unsigned)));
    for (int slot = 0; slot < kRing; ++slot) receive<<<2640, 256>>>(ring + slot * kTotal, slot);
    reset<<<2640, 256>>>(mean, var);
    CHECK(cudaMemset(hot, 0, kCameras * sizeof(unsigned)));

    const int warm = 6, timed = 40, block = 5;
    int steps = 0;
    auto frame = [&] {
        const auto *obs = reinterpret_cast<const ushort4 *>(ring + size_t(steps % kRing) * kTotal);
        watch<<<unsigned(kTotal / kTile), kThreads>>>(obs, reinterpret_cast<float4 *>(mean),
                                                      reinterpret_cast<float4 *>(var), hot, 0.05f, 25.0f);
        ++steps;
    };
    for (int i = 0; i < warm; ++i) frame();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<double> us;
    for (int b = 0; b < timed / block; ++b) {
        const auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < block; ++i) frame();
        CHECK(cudaDeviceSynchronize());
        const std::chrono::duration<double, std::micro> span = std::chrono::steady_clock::now() - t0;
        us.push_back(span.count() / block);
    }
    std::vector<unsigned> counts(kCameras);
    std::vector<float> sample(kPixels), spread(kPixels);
    CHECK(cudaMemcpy(counts.data(), hot, kCameras * sizeof(unsigned), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(sample.data(), mean + 7 * size_t(kPixels), kPixels * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(spread.data(), var + 7 * size_t(kPixels), kPixels * sizeof(float), cudaMemcpyDeviceToHost));
    double alarms = 0, level = 0, noise = 0;
    for (unsigned c : counts) alarms += c;
    for (int i = 0; i < kPixels; ++i) { level += sample[i]; noise += spread[i]; }
    std::sort(us.begin(), us.end());
    std::printf("{\"program\": \"cuda_thermal_watch\", \"steps\": %d, \"us\": %.2f, \"result\": [%.9g, %.9g, %.9g]}\n",
                steps, us[us.size() / 2], alarms, level / kPixels, noise / kPixels);
    return 0;
}
