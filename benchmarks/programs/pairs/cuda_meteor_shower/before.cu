// Meteor shower model: entry of meteoroids of three materials through the upper
// atmosphere for one time bin after another, with the spread of the dust they leave.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) { puts(cudaGetErrorString(status_)); exit(1); } \
    } while (0)

constexpr int kBodies = 1 << 22, kSubsteps = 60;
constexpr int kNx = 512, kNy = 512, kNz = 256;
constexpr int kDustSteps = 6, kBlock = 256;
constexpr int kWarmup = 200, kBlocks = 10, kStepsPerBlock = 10;
constexpr float kDt = 0.05f;

enum Material { kIron = 0, kChondrite = 1, kComet = 2 };

struct Track { float speed, mass, height, heat, light; };

__device__ __forceinline__ float airDensity(float height) {
    return __expf(13.0f - 0.145f * height);
}

__device__ void enterIron(Track &t) {
    for (int k = 0; k < kSubsteps; ++k) {
        float rho = airDensity(t.height);
        float area = __powf(t.mass, -0.333333f);
        float drag = 0.0009f * rho * area * t.speed * t.speed;
        float gain = 0.004f * rho * t.speed * t.speed * t.speed;
        t.heat = fminf(t.heat + kDt * (gain - 0.35f * (t.heat - 0.3f)), 3.1f);
        float melt = fmaxf(t.heat - 1.8f, 0.0f);
        float loss = 0.02f * melt * melt * area * t.mass;
        t.light += kDt * loss * t.speed * t.speed;
        t.mass = fmaxf(t.mass - kDt * loss, 1e-3f);
        t.speed = fmaxf(t.speed - kDt * drag, 0.5f);
        t.height -= kDt * 0.7f * t.speed;
    }
}

__device__ void enterChondrite(Track &t) {
    for (int k = 0; k < kSubsteps; ++k) {
        float rho = airDensity(t.height);
        float width = __powf(t.mass, -0.29f);
        float pressure = __expf(4.0f - __fdividef(6.5f, t.heat + 0.2f));
        float evaporate = 0.006f * pressure * rsqrtf(t.heat + 0.2f) * width;
        float gain = 0.003f * rho * t.speed * t.speed * t.speed;
        t.heat = fminf(fmaxf(t.heat + kDt * (gain - 0.6f * evaporate - 0.2f * t.heat), 0.2f), 4.0f);
        float loss = evaporate * t.mass;
        t.light += kDt * 0.8f * loss * t.speed;
        t.mass = fmaxf(t.mass - kDt * loss, 1e-3f);
        t.speed = fmaxf(t.speed - kDt * 0.0012f * rho * width * t.speed * t.speed, 0.5f);
        t.height -= kDt * 0.66f * t.speed;
    }
}

__device__ void enterComet(Track &t) {
    float grains = 0.0f;
    for (int k = 0; k < kSubsteps; ++k) {
        float rho = airDensity(t.height);
        float ram = rho * t.speed * t.speed;
        float broken = __fdividef(1.0f, 1.0f + __expf(2.0f - 0.02f * ram));
        float erosion = 0.4f * broken * t.mass;
        grains += kDt * (erosion - 0.9f * grains);
        float body = __powf(t.mass + grains, -0.4f);
        t.light += kDt * (0.5f * grains + 0.1f * erosion) * t.speed * t.speed;
        t.mass = fmaxf(t.mass - kDt * erosion, 1e-3f);
        t.speed = fmaxf(t.speed - kDt * 0.0015f * ram * body, 0.5f);
        t.heat = fminf(t.heat + kDt * 0.002f * ram, 2.0f);
        t.height -= kDt * 0.71f * t.speed;
    }
}

__global__ void __launch_bounds__(kBlock)
ablateBodies(const float4 *entry, float2 *remains, float *curve, float activity) {
    __shared__ float partial[kBlock / 32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 e = entry[i];
    Track t = {e.x * activity, e.y, e.z, 0.3f, 0.0f};
    switch ((int)e.w) {
        case kIron: enterIron(t); break;
        case kChondrite: enterChondrite(t); break;
        default: enterComet(t); break;
    }
    remains[i] = make_float2(t.mass, t.speed);
    float light = t.light;
    for (int offset = 16; offset > 0; offset >>= 1)
        light += __shfl_down_sync(0xffffffffu, light, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = light;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int w = 0; w < kBlock / 32; ++w) sum += partial[w];
        atomicAdd(curve, sum);
    }
}

__global__ void __launch_bounds__(256)
spreadDust(const float *__restrict__ dust, float *__restrict__ next, const float *curve) {
    int x = blockIdx.x * 64 + threadIdx.x;
    int y = blockIdx.y * 4 + threadIdx.y;
    int z = blockIdx.z;
    int plane = kNx * kNy;
    int c = z * plane + y * kNx + x;
    float here = dust[c];
    float west = x > 0 ? dust[c - 1] : here;
    float east = x < kNx - 1 ? dust[c + 1] : here;
    float south = y > 0 ? dust[c - kNx] : here;
    float north = y < kNy - 1 ? dust[c + kNx] : here;
    float below = z > 0 ? dust[c - plane] : here;
    float above = z < kNz - 1 ? dust[c + plane] : 0.0f;
    float mixed = here + 0.11f * (west + east + south + north - 4.0f * here) +
                  0.08f * (below + above - 2.0f * here);
    float settled = 0.03f * (above - here) + 0.02f * (west - here);
    float source = z > 180 && z < 220 ? 1e-11f * *curve : 0.0f;
    next[c] = mixed + settled + source;
}

int main() {
    unsigned long long state = 88172645463325252ull;
    auto uniform = [&state]() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (float)((state >> 40) * (1.0 / 16777216.0));
    };
    std::vector<float4> entry(kBodies);
    for (int i = 0; i < kBodies; ++i) {
        float material = floorf(3.0f * uniform());
        float speed = 12.0f + 50.0f * uniform(), mass = 0.1f + 2.0f * uniform();
        entry[i] = make_float4(speed, mass, 95.0f + 30.0f * uniform(), material);
    }

    float4 *dEntry;
    float2 *remains;
    float *curve, *dust, *next;
    const size_t cells = (size_t)kNx * kNy * kNz;
    CHECK(cudaMalloc(&dEntry, sizeof(float4) * kBodies));
    CHECK(cudaMalloc(&remains, sizeof(float2) * kBodies));
    CHECK(cudaMalloc(&curve, sizeof(float)));
    CHECK(cudaMalloc(&dust, sizeof(float) * cells));
    CHECK(cudaMalloc(&next, sizeof(float) * cells));
    CHECK(cudaMemcpy(dEntry, entry.data(), sizeof(float4) * kBodies, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(dust, 0, sizeof(float) * cells));

    int done = 0;
    const dim3 dustBlock(64, 4), dustGrid(kNx / 64, kNy / 4, kNz);
    auto step = [&]() {
        float activity = 1.0f + 0.05f * sinf(0.03f * done);
        CHECK(cudaMemsetAsync(curve, 0, sizeof(float)));
        ablateBodies<<<kBodies / kBlock, kBlock>>>(dEntry, remains, curve, activity);
        for (int k = 0; k < kDustSteps; ++k) {
            spreadDust<<<dustGrid, dustBlock>>>(dust, next, curve);
            std::swap(dust, next);
        }
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

    std::vector<float2> left(kBodies);
    std::vector<float> layer((size_t)kNx * kNy);
    float light;
    CHECK(cudaMemcpy(left.data(), remains, sizeof(float2) * kBodies, cudaMemcpyDeviceToHost));
    const float *plane = dust + (size_t)190 * kNx * kNy;
    CHECK(cudaMemcpy(layer.data(), plane, sizeof(float) * layer.size(), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&light, curve, sizeof(float), cudaMemcpyDeviceToHost));
    double mass = 0.0, speed = 0.0;
    for (const float2 &body : left) {
        mass += body.x;
        speed += body.y;
    }
    double dustSum = std::accumulate(layer.begin(), layer.end(), 0.0);
    printf("{\"program\": \"cuda_meteor_shower\", \"steps\": %d, \"us\": %.3f, \"result\": [%.8g, %.8g, %.8g, %.8g]}\n",
           done, median, (double)light, mass / kBodies, speed / kBodies, dustSum / layer.size());
    return 0;
}
