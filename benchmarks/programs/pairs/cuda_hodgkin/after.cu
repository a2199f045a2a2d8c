// Hodgkin-Huxley membrane model for a large population of uncoupled neurons.
// Classic squid-axon parameters, voltages relative to rest, explicit Euler.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                          \
    do {                                                                     \
        cudaError_t err_ = (call);                                           \
        if (err_ != cudaSuccess) {                                           \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                \
                    cudaGetErrorString(err_));                               \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

struct Population {
    float *v, *m, *h, *n, *current;
    int *spikes;
};

__device__ __forceinline__ float ratio(float x)
{
    if (fabsf(x) < 1e-4f) return 1.0f - 0.5f * x;
    return x / (expf(x) - 1.0f);
}

__device__ __forceinline__ float alpha_m(float v) { return ratio((25.0f - v) / 10.0f); }
__device__ __forceinline__ float beta_m(float v) { return 4.0f * expf(-v / 18.0f); }
__device__ __forceinline__ float alpha_h(float v) { return 0.07f * expf(-v / 20.0f); }
__device__ __forceinline__ float beta_h(float v) { return 1.0f / (expf((30.0f - v) / 10.0f) + 1.0f); }
__device__ __forceinline__ float alpha_n(float v) { return 0.1f * ratio((10.0f - v) / 10.0f); }
__device__ __forceinline__ float beta_n(float v) { return 0.125f * expf(-v / 80.0f); }

__global__ void advance(Population p, int count, int substeps, float dt)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;

    float v = p.v[i], m = p.m[i], h = p.h[i], n = p.n[i];
    float current = p.current[i];
    int spikes = p.spikes[i];

    for (int s = 0; s < substeps; ++s) {
        float i_na = 120.0f * m * m * m * h * (v - 115.0f);
        float i_k = 36.0f * n * n * n * n * (v + 12.0f);
        float i_leak = 0.3f * (v - 10.6f);

        float dm = alpha_m(v) * (1.0f - m) - beta_m(v) * m;
        float dh = alpha_h(v) * (1.0f - h) - beta_h(v) * h;
        float dn = alpha_n(v) * (1.0f - n) - beta_n(v) * n;

        float v_new = v + dt * (current - i_na - i_k - i_leak);
        if (v < 50.0f && v_new >= 50.0f) ++spikes;
        m += dt * dm;
        h += dt * dh;
        n += dt * dn;
        v = v_new;
    }

    p.v[i] = v;
    p.m[i] = m;
    p.h[i] = h;
    p.n[i] = n;
    p.spikes[i] = spikes;
}

template <typename T>
T *upload(const std::vector<T> &src)
{
    T *dst = nullptr;
    CHECK(cudaMalloc(&dst, src.size() * sizeof(T)));
    CHECK(cudaMemcpy(dst, src.data(), src.size() * sizeof(T), cudaMemcpyHostToDevice));
    return dst;
}

int main()
{
    const int count = 1 << 20;
    const int launches = 8, substeps = 25;
    const float dt = 0.01f;
    const int blocks = 10, steps = 16;

    std::mt19937 rng(2024);
    std::uniform_real_distribution<float> drive(12.0f, 30.0f);
    std::uniform_real_distribution<float> start(-5.0f, 10.0f);
    std::vector<float> v(count), current(count);
    for (int i = 0; i < count; ++i) {
        v[i] = start(rng);
        current[i] = drive(rng);
    }
    Population p;
    p.v = upload(v);
    p.m = upload(std::vector<float>(count, 0.053f));
    p.h = upload(std::vector<float>(count, 0.596f));
    p.n = upload(std::vector<float>(count, 0.318f));
    p.current = upload(current);
    p.spikes = upload(std::vector<int>(count, 0));

    auto step = [&]() {
        for (int k = 0; k < launches; ++k)
            advance<<<(count + 255) / 256, 256>>>(p, count, substeps, dt);
    };

    for (int s = 0; s < 10; ++s) step();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int s = 0; s < steps; ++s) step();
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - t0;
        times.push_back(ms.count() / steps);
    }
    std::sort(times.begin(), times.end());

    std::vector<int> spikes(count);
    std::vector<float> n(count);
    CHECK(cudaMemcpy(spikes.data(), p.spikes, count * sizeof(int), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(n.data(), p.n, count * sizeof(float), cudaMemcpyDeviceToHost));
    double sum = 0.0;
    for (int i = 0; i < count; ++i) sum += spikes[i] + n[i];
    printf("{\"program\": \"cuda_hodgkin\", \"steps\": %d, \"us\": %.9g, \"result\": [%.9g]}\n",
           10 + blocks * steps, 1e3 * times[blocks / 2], sum / count);
    return 0;
}
