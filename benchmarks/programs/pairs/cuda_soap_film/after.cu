// Thickness maps of a draining soap film from multi-band high-speed recordings.
// Every recording is cut into tiles of pixels; for each pixel a two-parameter interference
// model is fitted to the intensities of eight colour bands.
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

constexpr int kBands = 8;
constexpr int kTilePixels = 1 << 19;
constexpr int kTiles = 16;
constexpr int kRecordings = 4;
constexpr int kCandidates = 16;
constexpr int kIterations = 16;
constexpr int kLanes = 3;
constexpr int kOutputs = 3;  // thickness, brightness, residual
constexpr float kThinnest = 0.16f;   // micrometres
constexpr float kThickest = 0.44f;

__constant__ float c_wave[kBands];  // 4 pi n / lambda, 1 / micrometre

__global__ void __launch_bounds__(256) fit_film(const float* __restrict__ bands, float* __restrict__ maps, int pixels) {
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pixels) return;
    float value[kBands];
#pragma unroll
    for (int k = 0; k < kBands; ++k) value[k] = bands[k * pixels + p];

    float best = 1e30f, thickness = kThinnest, brightness = 1.0f;
    for (int c = 0; c < kCandidates; ++c) {
        float d = kThinnest + (kThickest - kThinnest) * (c + 0.5f) / kCandidates;
        float mm = 0.0f, mv = 0.0f, vv = 0.0f;
#pragma unroll
        for (int k = 0; k < kBands; ++k) {
            float m = 1.0f - cosf(c_wave[k] * d);
            mm = fmaf(m, m, mm);
            mv = fmaf(m, value[k], mv);
            vv = fmaf(value[k], value[k], vv);
        }
        float misfit = vv - mv * mv / mm;
        if (misfit < best) {
            best = misfit;
            thickness = d;
            brightness = mv / mm;
        }
    }

    float residual = 0.0f;
    for (int it = 0; it < kIterations; ++it) {
        float aa = 1e-6f, ab = 0.0f, bb = 1e-6f, ga = 0.0f, gb = 0.0f;
        residual = 0.0f;
#pragma unroll
        for (int k = 0; k < kBands; ++k) {
            float s, c;
            sincosf(c_wave[k] * thickness, &s, &c);
            float ja = 1.0f - c;
            float jb = brightness * c_wave[k] * s;
            float r = value[k] - brightness * ja;
            aa = fmaf(ja, ja, aa);
            ab = fmaf(ja, jb, ab);
            bb = fmaf(jb, jb, bb);
            ga = fmaf(ja, r, ga);
            gb = fmaf(jb, r, gb);
            residual = fmaf(r, r, residual);
        }
        float det = fmaf(aa, bb, -ab * ab) + 1e-9f;
        brightness += (bb * ga - ab * gb) / det;
        float move = (aa * gb - ab * ga) / det;
        thickness += fminf(fmaxf(move, -0.01f), 0.01f);
    }
    maps[p] = thickness;
    maps[pixels + p] = brightness;
    maps[2 * pixels + p] = residual;
}

static float next_uniform(uint32_t& state) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) * (1.0f / 16777216.0f);
}

static void record_film(float* bands, const float* wave, int recording) {
    uint32_t state = 20240611u + 977u * recording;
    for (int t = 0; t < kTiles; ++t) {
        float* tile = bands + size_t(t) * kBands * kTilePixels;
        for (int p = 0; p < kTilePixels; ++p) {
            float height = float(p) / kTilePixels;
            float d = 0.20f + 0.18f * height + 0.01f * next_uniform(state) + 0.0005f * t + 0.001f * recording;
            float light = 0.8f + 0.4f * next_uniform(state);
            float noise = 0.01f * (next_uniform(state) - 0.5f);
            for (int k = 0; k < kBands; ++k)
                tile[size_t(k) * kTilePixels + p] = light * (1.0f - cosf(wave[k] * d)) + noise * ((k & 1) ? 1.0f : -1.0f);
        }
    }
}

class FilmAnalyser {
public:
    FilmAnalyser() {
        for (int l = 0; l < kLanes; ++l) {
            CHECK(cudaStreamCreate(&stream_[l]));
            CHECK(cudaMalloc(&bands_[l], sizeof(float) * kBands * kTilePixels));
            CHECK(cudaMalloc(&maps_[l], sizeof(float) * kOutputs * kTilePixels));
        }
    }
    ~FilmAnalyser() {
        for (int l = 0; l < kLanes; ++l) {
            cudaFree(bands_[l]);
            cudaFree(maps_[l]);
            cudaStreamDestroy(stream_[l]);
        }
    }
    void analyse(const float* recording, float* maps) {
        for (int t = 0; t < kTiles; ++t) {
            const float* source = recording + size_t(t) * kBands * kTilePixels;
            float* target = maps + size_t(t) * kOutputs * kTilePixels;
            int l = t % kLanes;
            CHECK(cudaMemcpyAsync(bands_[l], source, sizeof(float) * kBands * kTilePixels, cudaMemcpyHostToDevice, stream_[l]));
            fit_film<<<kTilePixels / 256, 256, 0, stream_[l]>>>(bands_[l], maps_[l], kTilePixels);
            CHECK(cudaMemcpyAsync(target, maps_[l], sizeof(float) * kOutputs * kTilePixels, cudaMemcpyDeviceToHost, stream_[l]));
        }
        CHECK(cudaGetLastError());
    }

private:
    cudaStream_t stream_[kLanes];
    float* bands_[kLanes];
    float* maps_[kLanes];
};

int main() {
    const float lambda[kBands] = {0.42f, 0.46f, 0.50f, 0.54f, 0.58f, 0.62f, 0.66f, 0.70f};
    float wave[kBands];
    for (int k = 0; k < kBands; ++k) wave[k] = 4.0f * 3.14159265f * 1.33f / lambda[k];
    CHECK(cudaMemcpyToSymbol(c_wave, wave, sizeof(wave)));

    float *recordings[kRecordings], *maps;
    for (int r = 0; r < kRecordings; ++r) {
        CHECK(cudaMallocHost(&recordings[r], sizeof(float) * kBands * kTilePixels * kTiles));
        record_film(recordings[r], wave, r);
    }
    CHECK(cudaMallocHost(&maps, sizeof(float) * kOutputs * kTilePixels * kTiles));

    FilmAnalyser analyser;
    const int warmup = 80, blocks = 10, per_block = 10;
    int steps = 0;
    for (int i = 0; i < warmup; ++i) analyser.analyse(recordings[steps++ % kRecordings], maps);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) analyser.analyse(recordings[steps++ % kRecordings], maps);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    double thickness = 0.0, brightness = 0.0;
    for (int t = 0; t < kTiles; ++t) {
        const float* tile = maps + size_t(t) * kOutputs * kTilePixels;
        for (int p = 0; p < kTilePixels; ++p) {
            thickness += tile[p];
            brightness += tile[kTilePixels + p];
        }
    }
    double count = double(kTiles) * kTilePixels;
    std::printf("{\"program\": \"cuda_soap_film\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f]}\n",
                steps, median, thickness / count, brightness / count);
    for (float* recording : recordings) CHECK(cudaFreeHost(recording));
    CHECK(cudaFreeHost(maps));
    return 0;
}
