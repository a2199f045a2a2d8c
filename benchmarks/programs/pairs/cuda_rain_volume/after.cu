// Attenuation correction of a weather radar volume.  Sweeps arrive in host
// memory, are corrected gate by gate on the GPU and go back for archiving.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <vector>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t err_ = (call);                                           \
        if (err_ != cudaSuccess) {                                           \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                \
                    cudaGetErrorString(err_));                               \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

constexpr int SWEEPS = 10;
constexpr int RAYS = 2048;
constexpr int GATES = 2048;
constexpr int ITERATIONS = 80;
constexpr int WARMUP = 5;
constexpr int BLOCKS = 8;
constexpr int BLOCK_STEPS = 4;
constexpr size_t GATES_PER_SWEEP = size_t(RAYS) * GATES;
constexpr size_t SWEEP_BYTES = GATES_PER_SWEEP * sizeof(float);

// Solves z = measured * 2^(path * a * z^b) for the true reflectivity of a gate
// by damped fixed-point iteration, in base-two logarithms.
__global__ void correct(const float *__restrict__ measured, float *__restrict__ rain,
                        float elevation)
{
    size_t at = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int gate = at % GATES;
    float path = gate * (0.125f / GATES) * (1.0f + 0.02f * elevation);
    float log_measured = log2f(fmaxf(measured[at], 1e-3f));
    float log_z = log_measured;
    for (int i = 0; i < ITERATIONS; ++i) {
        float specific = 0.05f * exp2f(0.65f * log_z);
        float target = log_measured + path * specific / (1.0f + 0.01f * specific);
        log_z += 0.7f * (target - log_z);
    }
    // Marshall-Palmer: R = (Z / 200)^(1 / 1.6)
    rain[at] = exp2f((log_z - 7.643856f) * 0.625f);
}

constexpr int LANES = 4;

struct Processor {
    float *measured[LANES];
    float *rain[LANES];
    cudaStream_t stream[LANES];

    Processor()
    {
        for (int k = 0; k < LANES; ++k) {
            CHECK(cudaMalloc(&measured[k], SWEEP_BYTES));
            CHECK(cudaMalloc(&rain[k], SWEEP_BYTES));
            CHECK(cudaStreamCreate(&stream[k]));
        }
    }

    void volume(const float *in, float *out)
    {
        for (int s = 0; s < SWEEPS; ++s) {
            int k = s % LANES;
            size_t offset = s * GATES_PER_SWEEP;
            CHECK(cudaMemcpyAsync(measured[k], in + offset, SWEEP_BYTES,
                                  cudaMemcpyHostToDevice, stream[k]));
            correct<<<GATES_PER_SWEEP / 256, 256, 0, stream[k]>>>(measured[k], rain[k],
                                                                 0.5f + 1.5f * s);
            CHECK(cudaMemcpyAsync(out + offset, rain[k], SWEEP_BYTES,
                                  cudaMemcpyDeviceToHost, stream[k]));
        }
        CHECK(cudaGetLastError());
        for (int k = 0; k < LANES; ++k)
            CHECK(cudaStreamSynchronize(stream[k]));
    }
};

static void observe(float *volume)
{
    // Rain cells on rings, fading with elevation, and speckle.
    unsigned state = 12345;
    std::vector<float> ring(GATES), spoke(RAYS);
    for (int g = 0; g < GATES; ++g)
        ring[g] = 0.5f + 0.5f * std::sin(g * 0.013f);
    for (int r = 0; r < RAYS; ++r)
        spoke[r] = 0.5f + 0.5f * std::cos(r * 0.021f);
    for (int s = 0; s < SWEEPS; ++s)
        for (int r = 0; r < RAYS; ++r)
            for (int g = 0; g < GATES; ++g) {
                state = state * 1664525u + 1013904223u;
                float speckle = 0.5f + (state >> 8) * (1.0f / 16777216.0f);
                *volume++ = 900.0f * ring[g] * spoke[r] * speckle / (1.0f + 0.3f * s);
            }
}

int main()
{
    const size_t total = SWEEPS * GATES_PER_SWEEP;
    float *in, *out;
    CHECK(cudaMallocHost(&in, total * sizeof(float)));
    CHECK(cudaMallocHost(&out, total * sizeof(float)));
    observe(in);
    Processor radar;

    int step = 0;
    for (; step < WARMUP; ++step)
        radar.volume(in, out);
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < BLOCK_STEPS; ++i, ++step)
            radar.volume(in, out);
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / BLOCK_STEPS);
    }
    std::sort(times.begin(), times.end());

    double mean = 0.0, last = 0.0;
    for (size_t i = 0; i < total; ++i)
        mean += out[i];
    for (size_t i = total - GATES_PER_SWEEP; i < total; ++i)
        last += out[i];
    printf("{\"program\": \"cuda_rain_volume\", \"steps\": %d, \"us\": %.2f, "
           "\"result\": [%.8g, %.8g]}\n",
           step, (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]) / 2, mean / total,
           last / GATES_PER_SWEEP);
    return 0;
}
