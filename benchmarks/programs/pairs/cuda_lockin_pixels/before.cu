// Lock-in thermography: amplitude and phase of every pixel of a camera.
//
// The sample is heated periodically; the camera takes 32 frames a period.  The
// frames of a measurement (40 periods, 16 bit) lie in GPU memory, and each
// pixel is correlated with the sine and cosine of the heating.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t status_ = (call);                                        \
        if (status_ != cudaSuccess) {                                        \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,           \
                         cudaGetErrorString(status_));                       \
            std::exit(1);                                                    \
        }                                                                    \
    } while (0)

static const char *NAME = "cuda_lockin_pixels";
constexpr int SIDE = 2048;
constexpr int PIXELS = SIDE * SIDE;
constexpr int PERIOD = 32;
constexpr int PERIODS = 40;
constexpr int FRAMES = PERIOD * PERIODS;
constexpr int QUADS = PIXELS / 4;
constexpr int THREADS = 128;
constexpr int WARMUP = 6;
constexpr int BLOCKS = 8;
constexpr int PER_BLOCK = 4;

__constant__ float2 reference[PERIOD];

__device__ inline unsigned hash(unsigned x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    return x;
}

// A warm spot that follows the heating with a delay, on noisy pixels.
__global__ void simulate(ushort4 *frames)
{
    int quad = blockIdx.x * blockDim.x + threadIdx.x;
    int frame = blockIdx.y;
    int row = quad * 4 / SIDE, column = quad * 4 % SIDE;
    float dx = (column - SIDE / 2) * (1.0f / SIDE), dy = (row - SIDE / 2) * (1.0f / SIDE);
    float distance = sqrtf(dx * dx + dy * dy);
    float signal = 900.0f * expf(-4.0f * distance) *
                   sinf(6.2831853f * (frame % PERIOD) / PERIOD - 5.0f * distance);
    unsigned noise = hash(quad * 1280u + frame);
    float base = 16000.0f + signal;
    ushort4 value;
    value.x = (unsigned short)(base + (noise & 63));
    value.y = (unsigned short)(base + ((noise >> 6) & 63));
    value.z = (unsigned short)(base + ((noise >> 12) & 63));
    value.w = (unsigned short)(base + ((noise >> 18) & 63));
    frames[(size_t)frame * QUADS + quad] = value;
}

// 16 bit counts as floats: the count in the mantissa of 2^23, less 2^23.
__device__ inline float low_count(unsigned pair)
{
    return __uint_as_float(__byte_perm(pair, 0x4b000000u, 0x7610)) - 8388608.0f;
}

__device__ inline float high_count(unsigned pair)
{
    return __uint_as_float(__byte_perm(pair, 0x4b000000u, 0x7632)) - 8388608.0f;
}

// Four neighbouring pixels a thread, all frames in one pass.
__global__ void __launch_bounds__(THREADS)
correlate(const uint2 *__restrict__ frames, float4 *__restrict__ in_phase,
          float4 *__restrict__ quadrature)
{
    int quad = blockIdx.x * THREADS + threadIdx.x;
    const uint2 *pixel = frames + quad;
    float4 s = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 c = s;
    for (int period = 0; period < PERIODS; ++period) {
#pragma unroll 8
        for (int f = 0; f < PERIOD; ++f) {
            uint2 v = __ldcs(pixel + (size_t)f * QUADS);
            float2 r = reference[f];
            float a = low_count(v.x), b = high_count(v.x);
            float d = low_count(v.y), e = high_count(v.y);
            s.x = fmaf(a, r.x, s.x);
            c.x = fmaf(a, r.y, c.x);
            s.y = fmaf(b, r.x, s.y);
            c.y = fmaf(b, r.y, c.y);
            s.z = fmaf(d, r.x, s.z);
            c.z = fmaf(d, r.y, c.z);
            s.w = fmaf(e, r.x, s.w);
            c.w = fmaf(e, r.y, c.w);
        }
        pixel += (size_t)PERIOD * QUADS;
    }
    in_phase[quad] = s;
    quadrature[quad] = c;
}

int main()
{
    std::vector<float2> table(PERIOD);
    for (int f = 0; f < PERIOD; ++f) {
        double angle = 2.0 * 3.14159265358979 * f / PERIOD;
        table[f] = make_float2((float)(2.0 * std::sin(angle) / FRAMES),
                               (float)(2.0 * std::cos(angle) / FRAMES));
    }
    CHECK(cudaMemcpyToSymbol(reference, table.data(), PERIOD * sizeof(float2)));

    uint2 *frames;
    float4 *in_phase, *quadrature;
    CHECK(cudaMalloc(&frames, (size_t)FRAMES * QUADS * sizeof(uint2)));
    CHECK(cudaMalloc(&in_phase, QUADS * sizeof(float4)));
    CHECK(cudaMalloc(&quadrature, QUADS * sizeof(float4)));
    simulate<<<dim3(QUADS / 256, FRAMES), 256>>>(reinterpret_cast<ushort4 *>(frames));
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    int steps = 0;
    for (int i = 0; i < WARMUP; ++i, ++steps)
        correlate<<<QUADS / THREADS, THREADS>>>(frames, in_phase, quadrature);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i, ++steps)
            correlate<<<QUADS / THREADS, THREADS>>>(frames, in_phase, quadrature);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        times.push_back(took.count() / PER_BLOCK);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    std::vector<float> s(PIXELS), c(PIXELS);
    CHECK(cudaMemcpy(s.data(), in_phase, PIXELS * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(c.data(), quadrature, PIXELS * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0.0;
    float largest = 0.0f;
    for (int p = 0; p < PIXELS; ++p) {
        float amplitude = std::sqrt(s[p] * s[p] + c[p] * c[p]);
        mean += amplitude;
        largest = std::max(largest, amplitude);
    }
    std::printf("{\"program\": \"%s\", \"steps\": %d, \"us\": %.3f, \"result\": [%.9g, %.9g]}\n",
                NAME, steps, median, mean / PIXELS, largest);
    CHECK(cudaFree(frames));
    CHECK(cudaFree(in_phase));
    CHECK(cudaFree(quadrature));
    return 0;
}
