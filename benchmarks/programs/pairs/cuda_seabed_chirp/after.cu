// Pulse compression of sub-bottom profiler lines.
//
// The survey vessel's recorder leaves pings in host memory; each ping is
// correlated with the transmitted chirp on the GPU, and the compressed pings go
// back to host memory for the interpretation software.  A step is one survey
// line of 4096 pings, which is worked through in groups of pings because
// lines of a real survey are much longer than this one.
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

static const char *NAME = "cuda_seabed_chirp";
constexpr int PINGS = 4096;
constexpr int SAMPLES = 4096;
constexpr int GROUP = 512;
constexpr int GROUPS = PINGS / GROUP;
constexpr int TAPS = 256;
constexpr int THREADS = 256;
constexpr int LANES = 3;
constexpr int EACH = SAMPLES / THREADS;
constexpr int WARMUP = 6;
constexpr int BLOCKS = 8;
constexpr int PER_BLOCK = 5;

__constant__ float chirp[TAPS];

// One block compresses one ping, sixteen samples a thread.
__global__ void __launch_bounds__(THREADS)
compress(const float *__restrict__ pings, float *__restrict__ out)
{
    __shared__ float trace[SAMPLES + TAPS];
    const float *ping = pings + (size_t)blockIdx.x * SAMPLES;
    for (int i = threadIdx.x; i < SAMPLES; i += THREADS) trace[i] = ping[i];
    trace[SAMPLES + threadIdx.x] = 0.0f;
    __syncthreads();

    float sum[EACH];
#pragma unroll
    for (int j = 0; j < EACH; ++j) sum[j] = 0.0f;
    for (int k = 0; k < TAPS; ++k) {
        float tap = chirp[k];
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            sum[j] += tap * trace[threadIdx.x + THREADS * j + k];
    }
    float *row = out + (size_t)blockIdx.x * SAMPLES;
#pragma unroll
    for (int j = 0; j < EACH; ++j) row[threadIdx.x + THREADS * j] = sum[j];
}

static void make_line(float *pings, const std::vector<float> &pulse)
{
    unsigned state = 1912;
    for (size_t i = 0; i < (size_t)PINGS * SAMPLES; ++i) {
        state = state * 1664525u + 1013904223u;
        pings[i] = ((state >> 8) * (1.0f / 8388608.0f) - 1.0f) * 0.2f;
    }
    for (int p = 0; p < PINGS; ++p) {
        int bottom = 900 + (int)(200.0 * std::sin(p * 0.004));
        for (int k = 0; k < TAPS; ++k) {
            pings[(size_t)p * SAMPLES + bottom + k] += pulse[k];
            pings[(size_t)p * SAMPLES + 2 * bottom + k] += 0.3f * pulse[k];
        }
    }
}

struct Line {
    float *pings;        // pinned host memory
    float *compressed;   // pinned host memory
};

class Compressor {
public:
    Compressor()
    {
        for (int lane = 0; lane < LANES; ++lane) {
            CHECK(cudaStreamCreateWithFlags(&stream_[lane], cudaStreamNonBlocking));
            CHECK(cudaMalloc(&in_[lane], bytes));
            CHECK(cudaMalloc(&out_[lane], bytes));
        }
    }
    ~Compressor()
    {
        for (int lane = 0; lane < LANES; ++lane) {
            cudaFree(in_[lane]);
            cudaFree(out_[lane]);
            cudaStreamDestroy(stream_[lane]);
        }
    }
    void process(const Line &line)
    {
        for (int g = 0; g < GROUPS; ++g) {
            size_t first = (size_t)g * GROUP * SAMPLES;
            int lane = next_;
            next_ = (next_ + 1) % LANES;
            cudaStream_t stream = stream_[lane];
            CHECK(cudaMemcpyAsync(in_[lane], line.pings + first, bytes, cudaMemcpyHostToDevice, stream));
            compress<<<GROUP, THREADS, 0, stream>>>(in_[lane], out_[lane]);
            CHECK(cudaGetLastError());
            CHECK(cudaMemcpyAsync(line.compressed + first, out_[lane], bytes, cudaMemcpyDeviceToHost, stream));
        }
    }
    static constexpr size_t bytes = (size_t)GROUP * SAMPLES * sizeof(float);

private:
    cudaStream_t stream_[LANES];
    float *in_[LANES];
    float *out_[LANES];
    int next_ = 0;
};

int main()
{
    std::vector<float> pulse(TAPS);
    for (int k = 0; k < TAPS; ++k) {
        double t = (double)k / TAPS;
        pulse[k] = (float)(std::sin(3.14159265 * t) * std::sin(2 * 3.14159265 * (20 * t + 30 * t * t)));
    }
    CHECK(cudaMemcpyToSymbol(chirp, pulse.data(), TAPS * sizeof(float)));
    Line line;
    CHECK(cudaMallocHost(&line.pings, (size_t)PINGS * SAMPLES * sizeof(float)));
    CHECK(cudaMallocHost(&line.compressed, (size_t)PINGS * SAMPLES * sizeof(float)));
    make_line(line.pings, pulse);

    Compressor compressor;
    int steps = 0;
    for (int i = 0; i < WARMUP; ++i, ++steps) compressor.process(line);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i, ++steps) compressor.process(line);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
        times.push_back(took.count() / PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    double power = 0.0;
    float peak = 0.0f;
    for (size_t i = 0; i < (size_t)PINGS * SAMPLES; i += 3) {
        power += (double)line.compressed[i] * line.compressed[i];
        peak = std::max(peak, line.compressed[i]);
    }
    std::printf("{\"program\": \"%s\", \"steps\": %d, \"us\": %.3f, \"result\": [%.9g, %.9g]}\n",
                NAME, steps, median, power / PINGS, peak);
    CHECK(cudaFreeHost(line.pings));
    CHECK(cudaFreeHost(line.compressed));
    return 0;
}
