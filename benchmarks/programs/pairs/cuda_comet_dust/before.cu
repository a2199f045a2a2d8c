// Dust released by a comet, followed in the rotating frame of the Sun and Jupiter with radiation
// pressure and Poynting-Robertson drag.
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

constexpr int GRAINS = 1 << 23;
constexpr int SUBSTEPS = 600;
constexpr int THREADS = 256;
constexpr int SUMMARY_BLOCKS = 1056;
constexpr float MASS_RATIO = 9.537e-4f;
constexpr float DT = 2.0e-3f;

struct Dust {
    float *x, *y, *z, *vx, *vy, *vz, *beta;
};

__device__ __forceinline__ float inverseRoot(float value)
{
    float root;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(value));
    return root;
}

__global__ void __launch_bounds__(THREADS) advance(Dust d, float cosTurn, float sinTurn)
{
    int i = blockIdx.x * THREADS + threadIdx.x;
    float x = d.x[i], y = d.y[i], z = d.z[i];
    float vx = d.vx[i], vy = d.vy[i], vz = d.vz[i];
    float beta = d.beta[i];
    const float sunPull = -DT * (1.0f - MASS_RATIO) * (1.0f - beta);
    const float planetPull = -DT * MASS_RATIO;
    const float drag = -DT * 2.0e-3f * beta;
#pragma unroll 4
    for (int s = 0; s < SUBSTEPS; ++s) {
        float sx = x + MASS_RATIO;
        float px = x - (1.0f - MASS_RATIO);
        float side = fmaf(y, y, fmaf(z, z, 1.0e-5f));
        float inverseSun = inverseRoot(fmaf(sx, sx, side));
        float inversePlanet = inverseRoot(fmaf(px, px, side));
        float sunSquare = inverseSun * inverseSun;
        float sun = sunPull * inverseSun * sunSquare;
        float planet = planetPull * inversePlanet * (inversePlanet * inversePlanet);
        float both = sun + planet;
        float slow = fmaf(drag, sunSquare, 1.0f);
        float kx = fmaf(slow, vx, fmaf(sun, sx, fmaf(planet, px, DT * x)));
        float ky = fmaf(slow, vy, fmaf(both, y, DT * y));
        vz = fmaf(slow, vz, both * z);
        vx = fmaf(cosTurn, kx, sinTurn * ky);
        vy = fmaf(cosTurn, ky, -sinTurn * kx);
        x = fmaf(DT, vx, x);
        y = fmaf(DT, vy, y);
        z = fmaf(DT, vz, z);
    }
    d.x[i] = x;
    d.y[i] = y;
    d.z[i] = z;
    d.vx[i] = vx;
    d.vy[i] = vy;
    d.vz[i] = vz;
}

__global__ void __launch_bounds__(THREADS) summarise(Dust d, float *partial)
{
    float distance = 0.0f, height = 0.0f, inside = 0.0f;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < GRAINS; i += gridDim.x * THREADS) {
        float x = d.x[i], y = d.y[i], z = d.z[i];
        float r = sqrtf(fmaf(x, x, fmaf(y, y, z * z)));
        distance += fminf(r, 4.0f);
        height += fminf(fabsf(z), 1.0f);
        inside += r < 1.0f ? 1.0f : 0.0f;
    }
    __shared__ float part[3][THREADS / 32];
    for (int offset = 16; offset > 0; offset >>= 1) {
        distance += __shfl_down_sync(0xffffffffu, distance, offset);
        height += __shfl_down_sync(0xffffffffu, height, offset);
        inside += __shfl_down_sync(0xffffffffu, inside, offset);
    }
    if ((threadIdx.x & 31) == 0) {
        part[0][threadIdx.x >> 5] = distance;
        part[1][threadIdx.x >> 5] = height;
        part[2][threadIdx.x >> 5] = inside;
    }
    __syncthreads();
    if (threadIdx.x < 3) {
        float total = 0.0f;
        for (int k = 0; k < THREADS / 32; ++k) total += part[threadIdx.x][k];
        partial[threadIdx.x * SUMMARY_BLOCKS + blockIdx.x] += total;
    }
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
    unsigned state = 1811u;
    std::vector<float> x(GRAINS), y(GRAINS), z(GRAINS), vx(GRAINS), vy(GRAINS), vz(GRAINS), beta(GRAINS);
    for (int i = 0; i < GRAINS; ++i) {
        float angle = 6.2831853f * uniform(state);
        float radius = 0.45f + 0.35f * uniform(state);
        float speed = (std::sqrt(1.0f / radius) - radius) * (0.95f + 0.1f * uniform(state));
        float c = std::cos(angle), s = std::sin(angle);
        x[i] = radius * c;
        y[i] = radius * s;
        z[i] = 0.05f * (uniform(state) - 0.5f);
        vx[i] = -speed * s;
        vy[i] = speed * c;
        vz[i] = 0.1f * (uniform(state) - 0.5f);
        beta[i] = 0.2f * uniform(state);
    }
    Dust dust{upload(x), upload(y), upload(z), upload(vx), upload(vy), upload(vz), upload(beta)};
    float *partial = upload(std::vector<float>(3 * SUMMARY_BLOCKS, 0.0f));
    const float cosTurn = std::cos(2.0f * DT), sinTurn = std::sin(2.0f * DT);

    int done = 0;
    auto epoch = [&]() {
        advance<<<GRAINS / THREADS, THREADS>>>(dust, cosTurn, sinTurn);
        summarise<<<SUMMARY_BLOCKS, THREADS>>>(dust, partial);
        ++done;
    };

    for (int i = 0; i < 12; ++i) epoch();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    constexpr int BLOCKS = 10, STEPS = 10;
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int s = 0; s < STEPS; ++s) epoch();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        times.push_back(spent.count() / STEPS);
    }
    std::sort(times.begin(), times.end());

    std::vector<float> sums(3 * SUMMARY_BLOCKS);
    CHECK(cudaMemcpy(sums.data(), partial, sums.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double totals[3] = {0.0, 0.0, 0.0};
    for (int k = 0; k < 3; ++k)
        for (int b = 0; b < SUMMARY_BLOCKS; ++b) totals[k] += sums[k * SUMMARY_BLOCKS + b];
    double scale = 1.0 / (double(GRAINS) * done);
    std::printf("{\"program\": \"cuda_comet_dust\", \"steps\": %d, \"us\": %.1f, \"result\": [%.6f, %.6f, %.6f]}\n",
                done, times[times.size() / 2], totals[0] * scale, totals[1] * scale, totals[2] * scale);
    return 0;
}
