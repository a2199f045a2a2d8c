// Proton bunches in a compact cyclotron: relativistic Boris tracking through the
// dee gap, with beam moments and an energy spectrum after every tracking interval.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) {                                            \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                    \
                    cudaGetErrorString(status_));                                \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

constexpr int kParticles = 1 << 23;
constexpr int kSubsteps = 48;
constexpr int kBins = 512;
constexpr int kBlock = 256;
constexpr int kSpectrumBlock = 512;
constexpr int kSpectrumGrid = 132 * 4;
constexpr int kWarmup = 200;
constexpr int kBlocks = 10;
constexpr int kStepsPerBlock = 10;

constexpr float kDt = 0.01f;
constexpr float kField = 1.0f;
constexpr float kFieldIndex = 0.12f;
constexpr float kGapField = 0.0004f;
constexpr float kGapWidth = 40.0f;
constexpr float kEnergyMax = 0.08f;

__device__ float uniform(unsigned int &state) {
    state = state * 747796405u + 2891336453u;
    unsigned int word = ((state >> ((state >> 28) + 4u)) ^ state) * 277803737u;
    word = (word >> 22) ^ word;
    return (word >> 8) * (1.0f / 16777216.0f);
}

__global__ void injectBunch(float4 *position, float4 *momentum, unsigned int seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kParticles) return;
    unsigned int state = seed + 9781u * (unsigned int)i;
    uniform(state);
    float kinetic = 0.002f + 0.068f * uniform(state);
    float total = sqrtf(kinetic * (kinetic + 2.0f));
    float angle = 6.2831853f * uniform(state);
    float pitch = 0.04f * (uniform(state) - 0.5f);
    float x = -total * sinf(angle) + 0.02f * (uniform(state) - 0.5f);
    float y = total * cosf(angle) + 0.02f * (uniform(state) - 0.5f);
    float z = 0.02f * (uniform(state) - 0.5f);
    position[i] = make_float4(x, y, z, 1.0f);
    momentum[i] = make_float4(total * cosf(angle), total * sinf(angle), total * pitch, 0.0f);
}

__global__ void __launch_bounds__(kBlock)
trackParticles(float4 *position, float4 *momentum, float phaseCos, float phaseSin,
               float turnCos, float turnSin) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= kParticles) return;
    float4 p = position[i];
    float4 u = momentum[i];
    float c = phaseCos, s = phaseSin;
    for (int k = 0; k < kSubsteps; ++k) {
        float r2 = p.x * p.x + p.y * p.y;
        float bz = kField * (1.0f - 0.5f * kFieldIndex * r2);
        float bx = -kField * kFieldIndex * p.z * p.x;
        float by = -kField * kFieldIndex * p.z * p.y;
        float kick = 0.5f * kDt * kGapField * c * __expf(-kGapWidth * p.x * p.x);
        u.x += kick;
        float inverse = rsqrtf(1.0f + u.x * u.x + u.y * u.y + u.z * u.z);
        float scale = 0.5f * kDt * inverse;
        float tx = bx * scale, ty = by * scale, tz = bz * scale;
        float ax = u.x + u.y * tz - u.z * ty;
        float ay = u.y + u.z * tx - u.x * tz;
        float az = u.z + u.x * ty - u.y * tx;
        float factor = __fdividef(2.0f, 1.0f + tx * tx + ty * ty + tz * tz);
        u.x += factor * (ay * tz - az * ty) + kick;
        u.y += factor * (az * tx - ax * tz);
        u.z += factor * (ax * ty - ay * tx);
        float move = kDt * inverse;
        p.x += move * u.x;
        p.y += move * u.y;
        p.z += move * u.z;
        float next = c * turnCos - s * turnSin;
        s = s * turnCos + c * turnSin;
        c = next;
    }
    position[i] = p;
    momentum[i] = u;
}

__global__ void beamMoments(const float4 *position, double *moments) {
    __shared__ float partial[3][kBlock / 32];
    float sx = 0.0f, sy = 0.0f, sz = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kParticles; i += gridDim.x * blockDim.x) {
        float4 p = position[i];
        sx += p.x * p.x;
        sy += p.y * p.y;
        sz += p.z * p.z;
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        sx += __shfl_down_sync(0xffffffffu, sx, offset);
        sy += __shfl_down_sync(0xffffffffu, sy, offset);
        sz += __shfl_down_sync(0xffffffffu, sz, offset);
    }
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) {
        partial[0][warp] = sx;
        partial[1][warp] = sy;
        partial[2][warp] = sz;
    }
    __syncthreads();
    if (threadIdx.x < 3) {
        double sum = 0.0;
        for (int w = 0; w < kBlock / 32; ++w) sum += partial[threadIdx.x][w];
        atomicAdd(&moments[threadIdx.x], sum);
    }
}

__global__ void __launch_bounds__(kSpectrumBlock)
energySpectrum(const float4 *momentum, unsigned int *spectrum) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kParticles; i += gridDim.x * blockDim.x) {
        float4 u = momentum[i];
        float square = u.x * u.x + u.y * u.y + u.z * u.z;
        float kinetic = square / (1.0f + sqrtf(1.0f + square));
        int bin = min((int)(kinetic * (kBins / kEnergyMax)), kBins - 1);
        atomicAdd(&spectrum[bin], 1u);
    }
}

int main() {
    float4 *position, *momentum;
    double *moments;
    unsigned int *spectrum;
    CHECK(cudaMalloc(&position, sizeof(float4) * kParticles));
    CHECK(cudaMalloc(&momentum, sizeof(float4) * kParticles));
    CHECK(cudaMalloc(&moments, sizeof(double) * 3));
    CHECK(cudaMalloc(&spectrum, sizeof(unsigned int) * kBins));

    const int grid = (kParticles + kBlock - 1) / kBlock;
    injectBunch<<<grid, kBlock>>>(position, momentum, 20117u);
    CHECK(cudaGetLastError());

    int done = 0;
    const float turn = 0.98f * kDt;
    auto step = [&]() {
        float phase = turn * kSubsteps * (done % 4096);
        trackParticles<<<grid, kBlock>>>(position, momentum, cosf(phase), sinf(phase),
                                         cosf(turn), sinf(turn));
        CHECK(cudaMemsetAsync(moments, 0, sizeof(double) * 3));
        beamMoments<<<132 * 8, kBlock>>>(position, moments);
        CHECK(cudaMemsetAsync(spectrum, 0, sizeof(unsigned int) * kBins));
        energySpectrum<<<kSpectrumGrid, kSpectrumBlock>>>(momentum, spectrum);
        ++done;
    };

    for (int k = 0; k < kWarmup; ++k) step();
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < kBlocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int k = 0; k < kStepsPerBlock; ++k) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        times.push_back(spent.count() / kStepsPerBlock);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[kBlocks / 2 - 1] + times[kBlocks / 2]);

    std::vector<unsigned int> counts(kBins);
    double beam[3];
    CHECK(cudaMemcpy(counts.data(), spectrum, sizeof(unsigned int) * kBins, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(beam, moments, sizeof(beam), cudaMemcpyDeviceToHost));
    double total = 0.0, mean = 0.0, spread = 0.0;
    for (int b = 0; b < kBins; ++b) {
        total += counts[b];
        mean += counts[b] * (b + 0.5);
    }
    mean /= total;
    for (int b = 0; b < kBins; ++b) spread += counts[b] * (b + 0.5 - mean) * (b + 0.5 - mean);
    printf("{\"program\": \"cuda_cyclotron_bunch\", \"steps\": %d, \"us\": %.3f, \"result\": [%.1f, %.8g, %.8g, %.8g]}\n",
           done, median, total, mean, sqrt(spread / total), sqrt(beam[0] / kParticles));
    return 0;
}
