// Filtered back projection of parallel-beam CT: detector counts to slices.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

constexpr int SIZE = 1024;
constexpr int ANGLES = 720;
constexpr int DETECTORS = 1536;
constexpr int SLICES = 8;
constexpr float PIXEL = 0.35f;    // mm
constexpr float SPACING = 0.35f;  // mm between detector cells
constexpr float FLUX = 1.0e5f;
constexpr int WARMUP = 4;
constexpr int BLOCKS = 8;
constexpr int STEPS_PER_BLOCK = 12;

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t e = (call);                                                       \
        if (e != cudaSuccess) {                                                       \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

__constant__ float2 direction[ANGLES];

__global__ void line_integrals(const float* counts, float* attenuation, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) attenuation[i] = -logf(fmaxf(counts[i], 1.0f) / FLUX);
}

// Ramp filter in space: only the centre tap and the odd taps differ from zero.
__global__ void ramp_filter(const float* attenuation, const float* taps, float* filtered) {
    __shared__ float row[DETECTORS];
    __shared__ float tap[DETECTORS];
    size_t base = size_t(blockIdx.x) * DETECTORS;
    for (int i = threadIdx.x; i < DETECTORS; i += blockDim.x) {
        row[i] = attenuation[base + i];
        tap[i] = taps[i];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < DETECTORS; i += blockDim.x) {
        float sum = tap[0] * row[i];
        for (int k = 1; k < DETECTORS; k += 2) {
            float left = i - k >= 0 ? row[i - k] : 0.0f;
            float right = i + k < DETECTORS ? row[i + k] : 0.0f;
            sum += tap[k] * (left + right);
        }
        filtered[base + i] = sum;
    }
}

__global__ void backproject(const float* filtered, float* volume) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int slice = blockIdx.z;
    float px = (x - 0.5f * (SIZE - 1)) * PIXEL;
    float py = (y - 0.5f * (SIZE - 1)) * PIXEL;
    const float* row = filtered + size_t(slice) * ANGLES * DETECTORS;
    float sum = 0;
    for (int a = 0; a < ANGLES; ++a) {
        float2 d = direction[a];
        float t = (px * d.x + py * d.y) * (1.0f / SPACING) + 0.5f * (DETECTORS - 1);
        int cell = int(floorf(t));
        float w = t - cell;
        if (cell >= 0 && cell < DETECTORS - 1)
            sum += (1.0f - w) * row[cell] + w * row[cell + 1];
        row += DETECTORS;
    }
    volume[(size_t(slice) * SIZE + y) * SIZE + x] = sum * float(M_PI) / ANGLES;
}

struct Ellipse {
    float x, y, a, b, angle, density;
};

int main() {
    std::mt19937 random(17);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::vector<float2> rays(ANGLES);
    for (int a = 0; a < ANGLES; ++a) {
        double angle = M_PI * a / ANGLES;
        rays[a] = make_float2(float(cos(angle)), float(sin(angle)));
    }
    std::vector<float> taps(DETECTORS, 0.0f);
    taps[0] = float(1.0 / (4 * SPACING));
    for (int k = 1; k < DETECTORS; k += 2) taps[k] = float(-1.0 / (M_PI * M_PI * k * k * SPACING));

    size_t rows = size_t(SLICES) * ANGLES, n = rows * DETECTORS;
    std::vector<float> counts(n);
    for (int s = 0; s < SLICES; ++s) {
        std::vector<Ellipse> body = {{0, 0, 150, 120, 0, 0.008f}};
        for (int i = 0; i < 5; ++i)
            body.push_back({80 * uniform(random), 70 * uniform(random), 15 + 10 * uniform(random),
                            15 + 10 * uniform(random), 3 * uniform(random), 0.004f * uniform(random)});
        for (int a = 0; a < ANGLES; ++a) {
            float angle = float(M_PI * a / ANGLES);
            float* row = &counts[(size_t(s) * ANGLES + a) * DETECTORS];
            std::vector<float> path(DETECTORS, 0.0f);
            for (const Ellipse& e : body) {
                float c = cosf(angle - e.angle), q = sinf(angle - e.angle);
                float width = e.a * e.a * c * c + e.b * e.b * q * q;
                float centre = e.x * cosf(angle) + e.y * sinf(angle);
                for (int i = 0; i < DETECTORS; ++i) {
                    float t = float((i - 0.5 * (DETECTORS - 1)) * SPACING) - centre;
                    if (t * t < width) path[i] += 2 * e.density * e.a * e.b * sqrtf(width - t * t) / width;
                }
            }
            for (int i = 0; i < DETECTORS; ++i) row[i] = FLUX * expf(-path[i]);
        }
    }

    float *d_counts, *attenuation, *filtered, *d_taps, *volume;
    CHECK(cudaMalloc(&d_counts, n * sizeof(float)));
    CHECK(cudaMalloc(&attenuation, n * sizeof(float)));
    CHECK(cudaMalloc(&filtered, n * sizeof(float)));
    CHECK(cudaMalloc(&d_taps, DETECTORS * sizeof(float)));
    CHECK(cudaMalloc(&volume, size_t(SLICES) * SIZE * SIZE * sizeof(float)));
    CHECK(cudaMemcpy(d_counts, counts.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_taps, taps.data(), DETECTORS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(direction, rays.data(), ANGLES * sizeof(float2)));

    auto step = [&]() {
        line_integrals<<<unsigned((n + 255) / 256), 256>>>(d_counts, attenuation, int(n));
        ramp_filter<<<unsigned(rows), 256>>>(attenuation, d_taps, filtered);
        backproject<<<dim3(SIZE / 32, SIZE / 8, SLICES), dim3(32, 8)>>>(filtered, volume);
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
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double us = times[times.size() / 2];
    std::vector<float> slices(size_t(SLICES) * SIZE * SIZE);
    CHECK(cudaMemcpy(slices.data(), volume, slices.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0, square = 0;
    for (float v : slices) {
        sum += v;
        square += double(v) * v;
    }
    printf("%.1f slices/s\n", SLICES * 1e6 / us);
    printf("{\"program\": \"cuda_ct_backprojection\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, us, sum / slices.size(), square / slices.size());
    return 0;
}
