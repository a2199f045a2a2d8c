// Fragility of tall masonry chimneys under gusty wind: an ensemble of chimneys with tuned mass
// dampers is driven through blocks of wind, and the probability of reaching each of a row of
// limit states is accumulated over the blocks.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                                   \
    do {                                                                              \
        cudaError_t status_ = (call);                                                 \
        if (status_ != cudaSuccess) {                                                 \
            std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status_));     \
            std::exit(1);                                                             \
        }                                                                             \
    } while (0)

constexpr int CHIMNEYS = 1 << 22;
constexpr int SUBSTEPS = 1500;
constexpr int LIMITS = 16;
constexpr int MOMENTS = 3;
constexpr float DT = 0.01f;

struct Ensemble {
    float *x, *v, *y, *w, *gust, *stiffness, *peak;
    unsigned *seed;
};

__global__ void blow(Ensemble e, float meanWind)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= CHIMNEYS) return;
    float x = e.x[i], v = e.v[i], y = e.y[i], w = e.w[i];
    float gust = e.gust[i], stiffness = e.stiffness[i], peak = 0.0f;
    unsigned seed = e.seed[i];
    for (int s = 0; s < SUBSTEPS; ++s) {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        float noise = __uint_as_float((seed >> 9) | 0x3f800000u) - 1.5f;
        gust = fmaf(0.995f, gust, 1.4f * noise);
        float speed = meanWind + gust - v;
        float pressure = 0.0011f * speed * fabsf(speed);
        float spring = x * fmaf(0.6f * x, x, stiffness);
        float damper = fmaf(0.35f, y - x, 0.04f * (w - v));
        v = fmaf(DT, pressure - spring - 0.05f * v + damper, v);
        w = fmaf(-DT * 20.0f, damper, w);
        x = fmaf(DT, v, x);
        y = fmaf(DT, w, y);
        peak = fmaxf(peak, fabsf(x));
    }
    e.x[i] = x;
    e.v[i] = v;
    e.y[i] = y;
    e.w[i] = w;
    e.gust[i] = gust;
    e.seed[i] = seed;
    e.peak[i] = peak;
}

__device__ void blockSum(float (&value)[MOMENTS])
{
    __shared__ float part[32][MOMENTS];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = blockDim.x >> 5;
    for (int m = 0; m < MOMENTS; ++m)
        for (int offset = 16; offset > 0; offset >>= 1)
            value[m] += __shfl_down_sync(0xffffffffu, value[m], offset);
    if (lane == 0)
        for (int m = 0; m < MOMENTS; ++m) part[warp][m] = value[m];
    __syncthreads();
    if (warp == 0)
        for (int m = 0; m < MOMENTS; ++m) {
            value[m] = lane < warps ? part[lane][m] : 0.0f;
            for (int offset = 16; offset > 0; offset >>= 1)
                value[m] += __shfl_down_sync(0xffffffffu, value[m], offset);
        }
}

__device__ void addMember(float peak, float median, float invSpread, float (&sum)[MOMENTS])
{
    float z = logf(fmaxf(peak, 1e-6f) / median) * invSpread;
    float p = normcdff(z);
    sum[0] += p;
    sum[1] = fmaf(p, p, sum[1]);
    sum[2] = fmaf(p, peak, sum[2]);
}

constexpr int SLICES = 64;

__global__ void fragility(const float *__restrict__ peak, const float *__restrict__ median,
                          const float *__restrict__ invSpread, float *slices)
{
    int limit = blockIdx.x;
    float m = median[limit], s = invSpread[limit];
    float sum[MOMENTS] = {0.0f, 0.0f, 0.0f};
    int stride = SLICES * blockDim.x;
    for (int i = blockIdx.y * blockDim.x + threadIdx.x; i < CHIMNEYS; i += stride) addMember(peak[i], m, s, sum);
    blockSum(sum);
    if (threadIdx.x == 0)
        for (int k = 0; k < MOMENTS; ++k) slices[(limit * SLICES + blockIdx.y) * MOMENTS + k] = sum[k];
}

__global__ void gather(const float *__restrict__ slices, float *curve)
{
    int limit = blockIdx.x;
    float sum[MOMENTS];
    for (int k = 0; k < MOMENTS; ++k) sum[k] = slices[(limit * SLICES + threadIdx.x) * MOMENTS + k];
    blockSum(sum);
    if (threadIdx.x == 0)
        for (int k = 0; k < MOMENTS; ++k) curve[limit * MOMENTS + k] += sum[k] / CHIMNEYS;
}

static float uniform(unsigned &state)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) * (1.0f / 16777216.0f);
}

static float *upload(const std::vector<float> &host)
{
    float *device = nullptr;
    CHECK(cudaMalloc(&device, host.size() * sizeof(float)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
    return device;
}

int main()
{
    unsigned state = 77u;
    std::vector<float> zero(CHIMNEYS, 0.0f), stiffness(CHIMNEYS);
    std::vector<unsigned> seeds(CHIMNEYS);
    for (int i = 0; i < CHIMNEYS; ++i) {
        stiffness[i] = 1.2f + 0.8f * uniform(state);
        seeds[i] = (state ^ (i * 2654435761u)) | 1u;
    }
    std::vector<float> medians(LIMITS), spreads(LIMITS);
    for (int k = 0; k < LIMITS; ++k) {
        medians[k] = 0.15f + 0.08f * k;
        spreads[k] = 1.0f / (0.25f + 0.01f * k);
    }

    Ensemble e;
    e.x = upload(zero);
    e.v = upload(zero);
    e.y = upload(zero);
    e.w = upload(zero);
    e.gust = upload(zero);
    e.peak = upload(zero);
    e.stiffness = upload(stiffness);
    CHECK(cudaMalloc(&e.seed, CHIMNEYS * sizeof(unsigned)));
    CHECK(cudaMemcpy(e.seed, seeds.data(), CHIMNEYS * sizeof(unsigned), cudaMemcpyHostToDevice));
    float *median = upload(medians), *invSpread = upload(spreads);
    float *curve = upload(std::vector<float>(LIMITS * MOMENTS, 0.0f));
    float *slices = upload(std::vector<float>(LIMITS * SLICES * MOMENTS, 0.0f));

    int done = 0;
    auto windBlock = [&]() {
        float meanWind = 18.0f + 6.0f * std::sin(0.1f * done);
        blow<<<CHIMNEYS / 256, 256>>>(e, meanWind);
        fragility<<<dim3(LIMITS, SLICES), 256>>>(e.peak, median, invSpread, slices);
        gather<<<LIMITS, SLICES>>>(slices, curve);
        ++done;
    };

    for (int i = 0; i < 12; ++i) windBlock();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    constexpr int BLOCKS = 10, STEPS = 10;
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int s = 0; s < STEPS; ++s) windBlock();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        times.push_back(spent.count() / STEPS);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> result(LIMITS * MOMENTS);
    CHECK(cudaMemcpy(result.data(), curve, result.size() * sizeof(float), cudaMemcpyDeviceToHost));
    std::printf("{\"program\": \"cuda_chimney_fragility\", \"steps\": %d, \"us\": %.1f, "
                "\"result\": [%.6f, %.6f, %.6f, %.6f]}\n",
                done, times[times.size() / 2], result[0] / done, result[4 * MOMENTS] / done,
                result[4 * MOMENTS + 1] / done, result[4 * MOMENTS + 2] / done);
    return 0;
}
