// Laser-cooled ion cloud in a linear Paul trap: direct Coulomb sums, velocity Verlet.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <chrono>
#include <random>
#include <vector>
#include <algorithm>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t err_ = (call);                                               \
        if (err_ != cudaSuccess) {                                               \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                    \
                    cudaGetErrorString(err_));                                   \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

constexpr int THREADS = 256;
constexpr int PER_THREAD = 2;
constexpr int TARGETS = THREADS * PER_THREAD;
constexpr int GROUPS = 528;
constexpr int IONS = GROUPS * TARGETS;
constexpr float SOFTENING2 = 0.01f;
constexpr float OMEGA_R2 = 1.0f;
constexpr float OMEGA_Z2 = 0.8f;
constexpr float COOLING = 0.15f;
constexpr float DT = 0.01f;

__device__ __forceinline__ float fast_rsqrt(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ void repel(const float4& target, const float4& source, float3& acc) {
    float dx = target.x - source.x;
    float dy = target.y - source.y;
    float dz = target.z - source.z;
    float r2 = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, SOFTENING2)));
    float inv = fast_rsqrt(r2);
    float w = inv * inv * inv;
    acc.x = fmaf(w, dx, acc.x);
    acc.y = fmaf(w, dy, acc.y);
    acc.z = fmaf(w, dz, acc.z);
}

__global__ void __launch_bounds__(THREADS)
advance(const float4* __restrict__ pos, float4* __restrict__ pos_next,
        float4* __restrict__ vel, float4* __restrict__ force) {
    __shared__ float4 tile[THREADS];
    int first = blockIdx.x * TARGETS + threadIdx.x;
    float4 target[PER_THREAD];
    float3 acc[PER_THREAD];
#pragma unroll
    for (int t = 0; t < PER_THREAD; ++t) {
        target[t] = pos[first + t * THREADS];
        acc[t] = make_float3(0.0f, 0.0f, 0.0f);
    }
    for (int base = 0; base < IONS; base += THREADS) {
        tile[threadIdx.x] = pos[base + threadIdx.x];
        __syncthreads();
#pragma unroll 16
        for (int j = 0; j < THREADS; ++j) {
            float4 source = tile[j];
#pragma unroll
            for (int t = 0; t < PER_THREAD; ++t) repel(target[t], source, acc[t]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int t = 0; t < PER_THREAD; ++t) {
        int i = first + t * THREADS;
        float4 v = vel[i];
        float4 f0 = force[i];
        float4 f;
        f.x = acc[t].x - OMEGA_R2 * target[t].x - COOLING * v.x;
        f.y = acc[t].y - OMEGA_R2 * target[t].y - COOLING * v.y;
        f.z = acc[t].z - OMEGA_Z2 * target[t].z - COOLING * v.z;
        f.w = 0.0f;
        v.x += 0.5f * DT * (f0.x + f.x);
        v.y += 0.5f * DT * (f0.y + f.y);
        v.z += 0.5f * DT * (f0.z + f.z);
        float4 p = target[t];
        p.x += DT * v.x + 0.5f * DT * DT * f.x;
        p.y += DT * v.y + 0.5f * DT * DT * f.y;
        p.z += DT * v.z + 0.5f * DT * DT * f.z;
        vel[i] = v;
        force[i] = f;
        pos_next[i] = p;
    }
}

int main() {
    std::mt19937 rng(4177);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    std::vector<float4> pos(IONS), vel(IONS);
    const float radius = std::cbrt((float)IONS / OMEGA_R2);
    for (int i = 0; i < IONS; ++i) {
        float x, y, z;
        do {
            x = uniform(rng);
            y = uniform(rng);
            z = uniform(rng);
        } while (x * x + y * y + z * z > 1.0f);
        pos[i] = make_float4(radius * x, radius * y, radius * z, 1.0f);
        vel[i].x = normal(rng);
        vel[i].y = normal(rng);
        vel[i].z = normal(rng);
        vel[i].w = 0.0f;
    }

    const size_t bytes = (size_t)IONS * sizeof(float4);
    float4 *d_pos, *d_next, *d_vel, *d_force;
    CHECK(cudaMalloc(&d_pos, bytes));
    CHECK(cudaMalloc(&d_next, bytes));
    CHECK(cudaMalloc(&d_vel, bytes));
    CHECK(cudaMalloc(&d_force, bytes));
    CHECK(cudaMemcpy(d_pos, pos.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_vel, vel.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(d_force, 0, bytes));

    int steps = 0;
    auto tick = [&]() {
        advance<<<GROUPS, THREADS>>>(d_pos, d_next, d_vel, d_force);
        std::swap(d_pos, d_next);
        ++steps;
    };

    for (int i = 0; i < 20; ++i) tick();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    const int blocks = 10, per_block = 10;
    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) tick();
        CHECK(cudaDeviceSynchronize());
        auto t1 = std::chrono::steady_clock::now();
        times.push_back(std::chrono::duration<double, std::micro>(t1 - t0).count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double us = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    CHECK(cudaMemcpy(pos.data(), d_pos, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(vel.data(), d_vel, bytes, cudaMemcpyDeviceToHost));
    double kinetic = 0.0, size = 0.0;
    for (int i = 0; i < IONS; ++i) {
        kinetic += 0.5 * ((double)vel[i].x * vel[i].x + (double)vel[i].y * vel[i].y +
                          (double)vel[i].z * vel[i].z) / IONS;
        size += std::sqrt((double)pos[i].x * pos[i].x + (double)pos[i].y * pos[i].y +
                          (double)pos[i].z * pos[i].z) / IONS;
    }
    cudaFree(d_pos); cudaFree(d_next); cudaFree(d_vel); cudaFree(d_force);
    printf("{\"program\": \"cuda_ion_crystal\", \"steps\": %d, \"us\": %.1f, \"result\": [%.6f, %.6f]}\n",
           steps, us, kinetic, size);
    return 0;
}
