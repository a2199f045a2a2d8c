// Beamforms recorded hydrophone blocks on the GPU: int16 samples in, beam power out.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t status_ = (call);                                                 \
        if (status_ != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)

constexpr int HYDROPHONES = 64;
constexpr int BEAMS = 96;
constexpr int SAMPLES = 192 * 1024;      // of one recorded block
constexpr int MARGIN = 128;              // longest steering delay
constexpr int ROW = SAMPLES + MARGIN;
constexpr int WINDOW = 8;                // samples of one power value
constexpr int RECORDED = 8;              // blocks of one step
constexpr int LANES = 4;                 // blocks in flight, each with its own stream and buffers
constexpr int WARMUP = 5, BLOCK = 4, BLOCKS = 8;

constexpr size_t INPUT = (size_t)HYDROPHONES * ROW;
constexpr size_t OUTPUT = (size_t)BEAMS * SAMPLES / WINDOW;

__constant__ short delays[BEAMS * HYDROPHONES];

// One thread a sample; neighbouring lanes share a window of the power.
__global__ void __launch_bounds__(256) beamPower(const int16_t* __restrict__ input, float* __restrict__ power) {
    int sample = blockIdx.x * blockDim.x + threadIdx.x;
    int beam = blockIdx.y;
    const short* steer = delays + beam * HYDROPHONES;
    float sum = 0.0f;
#pragma unroll 16
    for (int h = 0; h < HYDROPHONES; ++h)
        sum += (float)input[h * ROW + sample + steer[h]];
    float value = sum * sum;
    for (int offset = WINDOW / 2; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset, WINDOW);
    if (sample % WINDOW == 0)
        power[(size_t)beam * (SAMPLES / WINDOW) + sample / WINDOW] = value * (1.0f / WINDOW);
}

static void uploadDelays() {
    std::vector<short> table(BEAMS * HYDROPHONES);
    for (int b = 0; b < BEAMS; ++b) {
        double sine = -0.95 + 1.9 * b / (BEAMS - 1);
        for (int h = 0; h < HYDROPHONES; ++h)
            table[b * HYDROPHONES + h] = (short)std::lround(0.5 * (MARGIN - 1) * (1.0 + sine * (2.0 * h / (HYDROPHONES - 1) - 1.0)));
    }
    CHECK(cudaMemcpyToSymbol(delays, table.data(), table.size() * sizeof(short)));
}

// Noise plus a target that reaches the hydrophones with a delay.
static void record(int16_t* block, uint32_t seed) {
    uint32_t state = seed * 2654435761u + 12345u;
    std::vector<int16_t> tone(ROW + MARGIN);
    for (size_t i = 0; i < tone.size(); ++i) tone[i] = (int16_t)(300.0 * std::sin(0.21 * i + seed));
    for (int h = 0; h < HYDROPHONES; ++h)
        for (int i = 0; i < ROW; ++i) {
            state = state * 1664525u + 1013904223u;
            block[(size_t)h * ROW + i] = (int16_t)((state >> 22) & 1023) - 512 + tone[i + MARGIN - 2 * h];
        }
}

struct Processor {
    cudaStream_t stream;
    int16_t* input;
    float* power;

    Processor() {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMalloc(&input, INPUT * sizeof(int16_t)));
        CHECK(cudaMalloc(&power, OUTPUT * sizeof(float)));
    }

    void process(const int16_t* recorded, float* result) {
        CHECK(cudaMemcpyAsync(input, recorded, INPUT * sizeof(int16_t), cudaMemcpyHostToDevice, stream));
        beamPower<<<dim3(SAMPLES / 256, BEAMS), 256, 0, stream>>>(input, power);
        CHECK(cudaGetLastError());
        CHECK(cudaMemcpyAsync(result, power, OUTPUT * sizeof(float), cudaMemcpyDeviceToHost, stream));
    }
};

int main() {
    uploadDelays();
    std::vector<int16_t*> recorded(RECORDED);
    std::vector<float*> results(RECORDED);
    for (int r = 0; r < RECORDED; ++r) {
        CHECK(cudaMallocHost(&recorded[r], INPUT * sizeof(int16_t)));
        CHECK(cudaMallocHost(&results[r], OUTPUT * sizeof(float)));
        record(recorded[r], r + 1);
    }
    std::vector<Processor> processors(LANES);

    auto step = [&]() {
        for (int r = 0; r < RECORDED; ++r) processors[r % LANES].process(recorded[r], results[r]);
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / BLOCK);
    }
    std::sort(times.begin(), times.end());

    double mean = 0.0, peak = 0.0;
    for (int r = 0; r < RECORDED; ++r)
        for (size_t i = 0; i < OUTPUT; i += 7) {
            mean += results[r][i];
            peak = std::max(peak, (double)results[r][i]);
        }
    mean /= (double)RECORDED * ((OUTPUT + 6) / 7);
    std::printf("{\"program\": \"cuda_sonar\", \"steps\": %d, \"us\": %.3f, \"result\": [%.8g, %.8g]}\n",
                WARMUP + BLOCK * BLOCKS, times[times.size() / 2], mean, peak);
    return 0;
}
