// Energy transfer in a pigment complex with static disorder: an ensemble of complexes is drawn, the
// excitation hops between the pigments, and the decay trace and the absorption spectrum are averaged.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        cudaError_t err_ = (call);                                                         \
        if (err_ != cudaSuccess) {                                                         \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_));   \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

constexpr int MAX_SITES = 12;
constexpr int MEMBERS = 512 * 1024;
constexpr int BINS = 32;
constexpr int TAPS = 16;
constexpr int WAVES = 128;
constexpr int WAVE_GROUP = 32;
constexpr int SLICES = 8;
constexpr int WARMUP = 20;
constexpr int BLOCKS = 10;
constexpr int STEPS_PER_BLOCK = 10;

__constant__ float rate[MAX_SITES * MAX_SITES];
__constant__ float bright[MAX_SITES];
__constant__ float site_energy[MAX_SITES];
__constant__ float response[TAPS];

__device__ __forceinline__ uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

__global__ void __launch_bounds__(256) draw_disorder(float* __restrict__ energy, int members, int sites, uint32_t seed) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= members) return;
    for (int s = 0; s < sites; ++s) {
        uint32_t h = mix(seed + mix(i * 16u + s));
        float u = (static_cast<float>(h >> 8) + 0.5f) * (1.0f / 16777216.0f);
        float v = static_cast<float>(mix(h) >> 8) * (1.0f / 16777216.0f);
        float g = sqrtf(-2.0f * __logf(u)) * __cosf(6.2831853f * v);
        energy[static_cast<size_t>(s) * members + i] = site_energy[s] + 0.08f * g;
    }
}

__global__ void __launch_bounds__(128) hop(const float* __restrict__ energy, float* __restrict__ emission, int members,
                                           int sites, float laser, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= members) return;

    float pop[MAX_SITES];
    float mid[MAX_SITES];
    float total = 1e-6f;
    float offset = 0.0f;
    for (int s = 0; s < sites; ++s) {
        float d = energy[static_cast<size_t>(s) * members + i] - laser;
        offset += d * d;
        pop[s] = bright[s] * __expf(-d * d * 20.0f);
        total += pop[s];
    }
    float scale = 1.0f / total;
    for (int s = 0; s < sites; ++s) pop[s] *= scale;
    float h = dt * (0.7f + 0.3f * __expf(-offset));

    for (int b = 0; b < BINS; ++b) {
        for (int r = 0; r < sites; ++r) {
            float flow = 0.0f;
            for (int c = 0; c < sites; ++c) flow += rate[r * MAX_SITES + c] * pop[c];
            mid[r] = pop[r] + 0.5f * h * flow;
        }
        float light = 0.0f;
        for (int r = 0; r < sites; ++r) {
            float flow = 0.0f;
            for (int c = 0; c < sites; ++c) flow += rate[r * MAX_SITES + c] * mid[c];
            float next = pop[r] + h * flow;
            pop[r] = next;
            light += bright[r] * next;
        }
        emission[static_cast<size_t>(b) * members + i] = light;
    }
}

__global__ void __launch_bounds__(256) detect(const float* __restrict__ emission, float* __restrict__ trace, int members) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= members) return;
    float e[BINS];
#pragma unroll
    for (int b = 0; b < BINS; ++b) e[b] = emission[static_cast<size_t>(b) * members + i];
#pragma unroll
    for (int b = 0; b < BINS; ++b) {
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < TAPS; ++k)
            if (b >= k) sum += response[k] * e[b - k];
        trace[static_cast<size_t>(b) * members + i] = sum;
    }
}

__global__ void __launch_bounds__(256) lineshape(const float* __restrict__ energy, float* __restrict__ spectrum,
                                                 int members, int sites, float first, float spacing) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= members) return;
    const int w0 = blockIdx.y * WAVE_GROUP;
    float acc[WAVE_GROUP];
#pragma unroll
    for (int w = 0; w < WAVE_GROUP; ++w) acc[w] = 0.0f;
    for (int s = 0; s < sites; ++s) {
        float d0 = first + spacing * w0 - energy[static_cast<size_t>(s) * members + i];
        float weight = bright[s];
#pragma unroll
        for (int w = 0; w < WAVE_GROUP; ++w) {
            float d = d0 + spacing * w;
            acc[w] += weight * __expf(-60.0f * d * d);
        }
    }
#pragma unroll
    for (int w = 0; w < WAVE_GROUP; ++w) spectrum[static_cast<size_t>(w0 + w) * members + i] = acc[w];
}

__global__ void __launch_bounds__(256) row_sums(const float4* __restrict__ rows, float* __restrict__ partial, int quads) {
    __shared__ float warp_sum[8];
    const float4* row = rows + static_cast<size_t>(blockIdx.x) * quads;
    const int part = quads / SLICES;
    float sum = 0.0f;
#pragma unroll 4
    for (int q = threadIdx.x; q < part; q += 256) {
        float4 v = row[blockIdx.y * part + q];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    for (int o = 16; o > 0; o >>= 1) sum += __shfl_down_sync(0xffffffffu, sum, o);
    if ((threadIdx.x & 31) == 0) warp_sum[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int w = 0; w < 8; ++w) all += warp_sum[w];
        partial[blockIdx.x * SLICES + blockIdx.y] = all;
    }
}

__global__ void accumulate(const float* __restrict__ partial, double* __restrict__ mean, int rows, double inv) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    double sum = 0.0;
    for (int s = 0; s < SLICES; ++s) sum += partial[r * SLICES + s];
    mean[r] += sum * inv;
}

int main() {
    const int sites = 12;
    float k[MAX_SITES * MAX_SITES], b[MAX_SITES], e[MAX_SITES], irf[TAPS];
    for (int s = 0; s < MAX_SITES; ++s) {
        b[s] = 0.6f + 0.4f * std::cos(1.3f * s);
        e[s] = 1.6f + 0.06f * std::sin(2.1f * s);
    }
    for (int c = 0; c < MAX_SITES; ++c) {
        float out = 0.02f;
        for (int r = 0; r < MAX_SITES; ++r) {
            if (r == c) continue;
            float gap = e[r] - e[c];
            float v = 0.4f / (1.0f + std::fabs(static_cast<float>(r - c))) * (gap > 0.0f ? std::exp(-gap / 0.026f) : 1.0f);
            k[r * MAX_SITES + c] = v;
            out += v;
        }
        k[c * MAX_SITES + c] = -out;
    }
    float area = 0.0f;
    for (int t = 0; t < TAPS; ++t) area += irf[t] = std::exp(-0.08f * (t - 5) * (t - 5));
    for (int t = 0; t < TAPS; ++t) irf[t] /= area;
    CHECK(cudaMemcpyToSymbol(rate, k, sizeof(k)));
    CHECK(cudaMemcpyToSymbol(bright, b, sizeof(b)));
    CHECK(cudaMemcpyToSymbol(site_energy, e, sizeof(e)));
    CHECK(cudaMemcpyToSymbol(response, irf, sizeof(irf)));

    const int rows = BINS + WAVES;
    float *energy, *emission, *curves, *partial;
    double* mean;
    CHECK(cudaMalloc(&energy, sizeof(float) * sites * MEMBERS));
    CHECK(cudaMalloc(&emission, sizeof(float) * BINS * MEMBERS));
    CHECK(cudaMalloc(&curves, sizeof(float) * static_cast<size_t>(rows) * MEMBERS));
    CHECK(cudaMalloc(&partial, sizeof(float) * rows * SLICES));
    CHECK(cudaMalloc(&mean, sizeof(double) * rows));
    CHECK(cudaMemset(mean, 0, sizeof(double) * rows));
    float* spectrum = curves + static_cast<size_t>(BINS) * MEMBERS;

    int steps = 0;
    auto step = [&]() {
        draw_disorder<<<MEMBERS / 256, 256>>>(energy, MEMBERS, sites, 7919u * (steps + 1));
        hop<<<MEMBERS / 128, 128>>>(energy, emission, MEMBERS, sites, 1.62f, 0.25f);
        detect<<<MEMBERS / 256, 256>>>(emission, curves, MEMBERS);
        lineshape<<<dim3(MEMBERS / 256, WAVES / WAVE_GROUP), 256>>>(energy, spectrum, MEMBERS, sites, 1.2f, 0.00625f);
        row_sums<<<dim3(rows, SLICES), 256>>>(reinterpret_cast<const float4*>(curves), partial, MEMBERS / 4);
        accumulate<<<1, 256>>>(partial, mean, rows, 1.0 / MEMBERS);
        ++steps;
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> us;
    for (int n = 0; n < BLOCKS; ++n) {
        auto start = std::chrono::steady_clock::now();
        for (int s = 0; s < STEPS_PER_BLOCK; ++s) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> span = std::chrono::steady_clock::now() - start;
        us.push_back(span.count() / STEPS_PER_BLOCK);
    }
    CHECK(cudaGetLastError());
    std::sort(us.begin(), us.end());
    double median = 0.5 * (us[(us.size() - 1) / 2] + us[us.size() / 2]);

    std::vector<double> out(rows);
    CHECK(cudaMemcpy(out.data(), mean, sizeof(double) * rows, cudaMemcpyDeviceToHost));
    double peak = 0.0, area_sum = 0.0;
    for (int w = 0; w < WAVES; ++w) {
        peak = std::max(peak, out[BINS + w] / steps);
        area_sum += out[BINS + w] / steps;
    }
    printf("{\"program\": \"cuda_light_harvesting\", \"steps\": %d, \"us\": %.3f, \"result\": [%.8f, %.8f, %.8f, %.8f]}\n",
           steps, median, out[8] / steps, out[BINS - 1] / steps, peak, area_sum);
    return 0;
}
