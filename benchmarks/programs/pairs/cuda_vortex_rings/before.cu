// Two vortex rings that leapfrog: vortex particles with a smoothed Biot-Savart kernel by direct
// summation, advanced with the midpoint rule.
#include <algorithm>
#include <chrono>
#include <cmath>
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

constexpr int THREADS = 256;
constexpr int TARGETS = 2;
constexpr int GROUPS = 132;
constexpr int SLICES = 4;
constexpr int N = GROUPS * THREADS * TARGETS;
constexpr int SLICE = N / SLICES;
constexpr float CORE2 = 0.0025f;
constexpr float DT = 0.002f;
constexpr int WARMUP = 10;
constexpr int BLOCKS = 10;
constexpr int STEPS_PER_BLOCK = 10;

__global__ void __launch_bounds__(THREADS) induce(const float4* __restrict__ pos, const float4* __restrict__ gam,
                                                  float4* __restrict__ part) {
    __shared__ float4 sp[THREADS];
    __shared__ float4 sg[THREADS];
    __shared__ float sm[THREADS];
    const int t = threadIdx.x;
    const int base = blockIdx.x * THREADS * TARGETS + t;

    float px[TARGETS], py[TARGETS], pz[TARGETS];
    float ax[TARGETS], ay[TARGETS], az[TARGETS], bx[TARGETS], by[TARGETS], bz[TARGETS];
#pragma unroll
    for (int k = 0; k < TARGETS; ++k) {
        float4 p = pos[base + k * THREADS];
        px[k] = p.x;
        py[k] = p.y;
        pz[k] = p.z;
        ax[k] = ay[k] = az[k] = bx[k] = by[k] = bz[k] = 0.0f;
    }

    const int first = blockIdx.y * SLICE;
    for (int tile = 0; tile < SLICE; tile += THREADS) {
        float4 src = pos[first + tile + t];
        float4 str = gam[first + tile + t];
        src.w = str.y * src.z - str.z * src.y;
        str.w = str.z * src.x - str.x * src.z;
        sp[t] = src;
        sg[t] = str;
        sm[t] = str.x * src.y - str.y * src.x;
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < THREADS; ++j) {
            const float4 q = sp[j];
            const float4 g = sg[j];
            const float m = sm[j];
#pragma unroll
            for (int k = 0; k < TARGETS; ++k) {
                float dx = px[k] - q.x;
                float dy = py[k] - q.y;
                float dz = pz[k] - q.z;
                float r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, CORE2)));
                float inv;
                asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inv) : "f"(r2));
                float w = inv * inv * inv;
                ax[k] = fmaf(w, g.x, ax[k]);
                ay[k] = fmaf(w, g.y, ay[k]);
                az[k] = fmaf(w, g.z, az[k]);
                bx[k] = fmaf(w, q.w, bx[k]);
                by[k] = fmaf(w, g.w, by[k]);
                bz[k] = fmaf(w, m, bz[k]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < TARGETS; ++k) {
        float ux = ay[k] * pz[k] - az[k] * py[k] - bx[k];
        float uy = az[k] * px[k] - ax[k] * pz[k] - by[k];
        float uz = ax[k] * py[k] - ay[k] * px[k] - bz[k];
        part[blockIdx.y * N + base + k * THREADS] = make_float4(ux, uy, uz, 0.0f);
    }
}

__global__ void __launch_bounds__(THREADS) advance(const float4* start, const float4* __restrict__ part,
                                                   float4* out, float dt) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= N) return;
    float4 p = start[i];
    float x = 0.0f, y = 0.0f, z = 0.0f;
#pragma unroll
    for (int s = 0; s < SLICES; ++s) {
        float4 u = part[s * N + i];
        x += u.x;
        y += u.y;
        z += u.z;
    }
    p.x += dt * x;
    p.y += dt * y;
    p.z += dt * z;
    out[i] = p;
}

static void make_rings(std::vector<float4>& pos, std::vector<float4>& gam) {
    unsigned state = 2024u;
    auto uniform = [&]() {
        state = state * 1664525u + 1013904223u;
        return static_cast<float>(state >> 8) * (1.0f / 16777216.0f);
    };
    const float pi = 3.14159265f;
    for (int i = 0; i < N; ++i) {
        const bool second = i >= N / 2;
        const float radius = second ? 0.8f : 1.0f;
        const float phi = 2.0f * pi * uniform();
        const float a = 2.0f * pi * uniform();
        const float rho = 0.12f * std::sqrt(uniform());
        const float r = radius + rho * std::cos(a);
        pos[i] = make_float4(r * std::cos(phi), r * std::sin(phi), (second ? -0.5f : 0.0f) + rho * std::sin(a), 0.0f);
        const float strength = 2.0f * pi * radius / (N / 2) / (4.0f * pi);
        gam[i] = make_float4(-strength * std::sin(phi), strength * std::cos(phi), 0.0f, 0.0f);
    }
}

int main() {
    std::vector<float4> host_pos(N), host_gam(N);
    make_rings(host_pos, host_gam);

    float4 *pos, *mid, *gam, *part;
    CHECK(cudaMalloc(&pos, sizeof(float4) * N));
    CHECK(cudaMalloc(&mid, sizeof(float4) * N));
    CHECK(cudaMalloc(&gam, sizeof(float4) * N));
    CHECK(cudaMalloc(&part, sizeof(float4) * N * SLICES));
    CHECK(cudaMemcpy(pos, host_pos.data(), sizeof(float4) * N, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(gam, host_gam.data(), sizeof(float4) * N, cudaMemcpyHostToDevice));

    const dim3 pairs(GROUPS, SLICES);
    const int flat = N / THREADS;
    int steps = 0;
    auto step = [&]() {
        induce<<<pairs, THREADS>>>(pos, gam, part);
        advance<<<flat, THREADS>>>(pos, part, mid, 0.5f * DT);
        induce<<<pairs, THREADS>>>(mid, gam, part);
        advance<<<flat, THREADS>>>(pos, part, pos, DT);
        ++steps;
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> us;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int s = 0; s < STEPS_PER_BLOCK; ++s) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> span = std::chrono::steady_clock::now() - start;
        us.push_back(span.count() / STEPS_PER_BLOCK);
    }
    CHECK(cudaGetLastError());
    std::sort(us.begin(), us.end());
    double median = 0.5 * (us[(us.size() - 1) / 2] + us[us.size() / 2]);

    CHECK(cudaMemcpy(host_pos.data(), pos, sizeof(float4) * N, cudaMemcpyDeviceToHost));
    double height = 0.0, radius = 0.0;
    for (const float4& p : host_pos) {
        height += p.z;
        radius += std::sqrt(static_cast<double>(p.x) * p.x + static_cast<double>(p.y) * p.y);
    }
    printf("{\"program\": \"cuda_vortex_rings\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f]}\n", steps, median,
           height / N, radius / N);
    return 0;
}
