// Constant-velocity Kalman update for a large fleet of tracked tags. One range gate
// of measurements comes in per step; a tag that was not seen has a NaN measurement.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>
#include <algorithm>
#include <chrono>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t err_ = (call);                                               \
        if (err_ != cudaSuccess) {                                               \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

constexpr size_t TAGS = size_t(1) << 28;
constexpr int THREADS = 256;
constexpr int WARMUP = 6, BLOCKS = 8, PER_BLOCK = 5;

struct Tracks {
    float4 *pos, *vel, *ppp, *ppv, *pvv;
};

struct Model {
    float dt, q_pos, q_vel, r;
};

__device__ __forceinline__ float hash_unit(unsigned h) {
    h ^= h >> 16;
    h *= 2246822519u;
    h ^= h >> 13;
    h *= 3266489917u;
    h ^= h >> 16;
    return (float)h * (1.0f / 4294967296.0f);
}

__global__ void init_tracks(Tracks t, size_t n4) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n4) return;
    t.pos[i] = make_float4(0, 0, 0, 0);
    t.vel[i] = make_float4(0, 0, 0, 0);
    t.ppp[i] = make_float4(4, 4, 4, 4);
    t.ppv[i] = make_float4(0, 0, 0, 0);
    t.pvv[i] = make_float4(1, 1, 1, 1);
}

__global__ void make_gate(float *z, size_t n, unsigned seed) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float u = hash_unit((unsigned)i * 2654435761u + seed);
    float seen = hash_unit((unsigned)i * 2246822519u + seed * 31u + 7u);
    z[i] = seen < 0.85f ? 3.0f * u - 1.0f : nanf("");
}

__device__ __forceinline__ void track(float &p, float &v, float &a, float &b, float &c, float z, const Model m) {
    p = fmaf(m.dt, v, p);
    a = fmaf(m.dt, fmaf(m.dt, c, 2.0f * b), a) + m.q_pos;
    b = fmaf(m.dt, c, b);
    c += m.q_vel;
    const bool seen = (z == z);
    const float inv = seen ? __fdividef(1.0f, a + m.r) : 0.0f;
    const float innovation = seen ? z - p : 0.0f;
    const float kp = a * inv, kv = b * inv;
    p = fmaf(kp, innovation, p);
    v = fmaf(kv, innovation, v);
    c = fmaf(-kv, b, c);
    b = fmaf(-kp, b, b);
    a = fmaf(-kp, a, a);
}

// Four tags a thread; the state is updated in place.
__global__ void __launch_bounds__(THREADS) kalman_step(Tracks t, const float4 *__restrict__ gate, Model m, size_t n4) {
    const size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x;
    if (i >= n4) return;
    const float4 z = __ldcs(gate + i);
    float4 p = __ldcs(t.pos + i);
    float4 v = __ldcs(t.vel + i);
    float4 a = __ldcs(t.ppp + i);
    float4 b = __ldcs(t.ppv + i);
    float4 c = __ldcs(t.pvv + i);
    track(p.x, v.x, a.x, b.x, c.x, z.x, m);
    track(p.y, v.y, a.y, b.y, c.y, z.y, m);
    track(p.z, v.z, a.z, b.z, c.z, z.z, m);
    track(p.w, v.w, a.w, b.w, c.w, z.w, m);
    __stcs(t.pos + i, p);
    __stcs(t.vel + i, v);
    __stcs(t.ppp + i, a);
    __stcs(t.ppv + i, b);
    __stcs(t.pvv + i, c);
}

int main() {
    const size_t n4 = TAGS / 4;
    Tracks t;
    for (float4 **field : {&t.pos, &t.vel, &t.ppp, &t.ppv, &t.pvv}) CHECK(cudaMalloc(field, TAGS * sizeof(float)));
    float4 *gates[2];
    const unsigned grid4 = (unsigned)((n4 + THREADS - 1) / THREADS);
    const unsigned grid = (unsigned)((TAGS + THREADS - 1) / THREADS);
    for (int g = 0; g < 2; ++g) {
        CHECK(cudaMalloc(&gates[g], TAGS * sizeof(float)));
        make_gate<<<grid, THREADS>>>((float *)gates[g], TAGS, 91u + g);
    }
    init_tracks<<<grid4, THREADS>>>(t, n4);
    CHECK(cudaGetLastError());

    const Model model = {0.1f, 1e-4f, 1e-3f, 0.25f};
    int steps = 0;
    auto step = [&]() {
        kalman_step<<<grid4, THREADS>>>(t, gates[steps & 1], model, n4);
        ++steps;
    };
    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> us;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> d = std::chrono::steady_clock::now() - start;
        us.push_back(d.count() / PER_BLOCK);
    }
    std::sort(us.begin(), us.end());

    const size_t sample = 1 << 16;
    std::vector<float> pos(sample), var(sample);
    CHECK(cudaMemcpy(pos.data(), t.pos, sample * sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(var.data(), t.ppp, sample * sizeof(float), cudaMemcpyDeviceToHost));
    double mean_pos = 0, mean_var = 0;
    for (size_t i = 0; i < sample; ++i) {
        mean_pos += pos[i] / sample;
        mean_var += var[i] / sample;
    }
    printf("{\"program\": \"cuda_fleet_kalman\", \"steps\": %d, \"us\": %.2f, \"result\": [%.8g, %.8g]}\n", steps,
           us[us.size() / 2], mean_pos, mean_var);
    for (float4 *p : {t.pos, t.vel, t.ppp, t.ppv, t.pvv, gates[0], gates[1]}) CHECK(cudaFree(p));
    return 0;
}
