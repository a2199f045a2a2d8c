// Full-waveform lidar: chunks of digitised echoes of a flight line are sent to
// the GPU, one Gaussian per echo is fitted, the parameters come back to the host.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include <cuda_runtime.h>

static void check(cudaError_t err, const char *what)
{
    if (err == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(err));
    exit(1);
}

constexpr int SAMPLES = 128;
constexpr int PULSES = 1 << 16;
constexpr int CHUNKS = 16;
constexpr int ITERATIONS = 10;

__device__ __forceinline__ float warp_sum(float x)
{
    for (int d = 16; d > 0; d >>= 1) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__global__ void fit_echo(const ushort4 *__restrict__ waves, float4 *__restrict__ echoes)
{
    const int pulse = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (pulse >= PULSES) return;
    ushort4 raw = waves[pulse * 32 + lane];
    float y[4] = {(float)raw.x, (float)raw.y, (float)raw.z, (float)raw.w};

    float base = warp_sum(lane < 4 ? y[0] + y[1] + y[2] + y[3] : 0.0f) / 16.0f;
    float peak = -1.0f, centre = 0.0f;
    for (int k = 0; k < 4; ++k) {
        y[k] -= base;
        if (y[k] > peak) { peak = y[k]; centre = 4 * lane + k; }
    }
    for (int d = 16; d > 0; d >>= 1) {
        float p = __shfl_xor_sync(0xffffffffu, peak, d);
        float c = __shfl_xor_sync(0xffffffffu, centre, d);
        if (p > peak || (p == peak && c < centre)) { peak = p; centre = c; }
    }

    float amp = peak, width = 3.5f, misfit = 0.0f;
    const float first = centre;
    for (int it = 0; it < ITERATIONS; ++it) {
        float aa = 0, ac = 0, aw = 0, cc = 0, cw = 0, ww = 0, ga = 0, gc = 0, gw = 0, rr = 0;
        for (int k = 0; k < 4; ++k) {
            float z = (4 * lane + k - centre) / width;
            float ja = __expf(-0.5f * z * z);
            float jc = amp * ja * z / width, jw = jc * z, r = y[k] - amp * ja;
            aa += ja * ja; ac += ja * jc; aw += ja * jw;
            cc += jc * jc; cw += jc * jw; ww += jw * jw;
            ga += ja * r; gc += jc * r; gw += jw * r; rr += r * r;
        }
        aa = warp_sum(aa) * 1.02f; cc = warp_sum(cc) * 1.02f; ww = warp_sum(ww) * 1.02f;
        ac = warp_sum(ac); aw = warp_sum(aw); cw = warp_sum(cw);
        ga = warp_sum(ga); gc = warp_sum(gc); gw = warp_sum(gw); misfit = warp_sum(rr);
        float m0 = cc * ww - cw * cw, m1 = aw * cw - ac * ww, m2 = ac * cw - aw * cc;
        float det = aa * m0 + ac * m1 + aw * m2 + 1e-6f;
        float da = (m0 * ga + m1 * gc + m2 * gw) / det;
        float dc = (m1 * ga + (aa * ww - aw * aw) * gc + (aw * ac - aa * cw) * gw) / det;
        float dw = (m2 * ga + (aw * ac - aa * cw) * gc + (aa * cc - ac * ac) * gw) / det;
        amp = fminf(fmaxf(amp + da, 1.0f), 5000.0f);
        centre = fminf(fmaxf(centre + dc, first - 5.0f), first + 5.0f);
        width = fminf(fmaxf(width + dw, 1.0f), 12.0f);
    }
    if (lane == 0) echoes[pulse] = make_float4(amp, centre, width, sqrtf(misfit / SAMPLES));
}

int main()
{
    const int blocks = 10, steps = 15;
    const size_t wave_bytes = sizeof(uint16_t) * SAMPLES * PULSES, echo_bytes = sizeof(float4) * PULSES;
    uint16_t *waves;
    float4 *echoes;
    check(cudaMallocHost(&waves, wave_bytes * CHUNKS), "pinned input");
    check(cudaMallocHost(&echoes, echo_bytes * CHUNKS), "pinned output");

    std::mt19937 rng(5);
    std::uniform_real_distribution<float> uni(0.0f, 1.0f);
    for (int p = 0; p < PULSES * CHUNKS; ++p) {
        uint16_t *w = waves + (size_t)p * SAMPLES;
        float amp = 400 + 1200 * uni(rng), centre = 34 + 60 * uni(rng), width = 2.5f + 3 * uni(rng);
        for (int k = 0; k < SAMPLES; ++k) w[k] = 200 + (rng() & 15);
        for (int k = (int)centre - 18; k <= (int)centre + 18; ++k) {
            float z = (k - centre) / width;
            w[k] += (uint16_t)(amp * std::exp(-0.5f * z * z));
        }
    }

    cudaStream_t stream;
    uint16_t *wave_dev;
    float4 *echo_dev;
    check(cudaStreamCreate(&stream), "stream");
    check(cudaMalloc(&wave_dev, wave_bytes), "device input");
    check(cudaMalloc(&echo_dev, echo_bytes), "device output");

    auto flight_line = [&]() {
        for (int c = 0; c < CHUNKS; ++c) {
            check(cudaMemcpyAsync(wave_dev, waves + (size_t)c * SAMPLES * PULSES, wave_bytes,
                                  cudaMemcpyHostToDevice, stream), "upload");
            fit_echo<<<PULSES / 8, 256, 0, stream>>>((const ushort4 *)wave_dev, echo_dev);
            check(cudaMemcpyAsync(echoes + (size_t)c * PULSES, echo_dev, echo_bytes,
                                  cudaMemcpyDeviceToHost, stream), "download");
        }
    };

    for (int s = 0; s < 5; ++s) flight_line();
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "warm-up");

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int s = 0; s < steps; ++s) flight_line();
        check(cudaDeviceSynchronize(), "flight line");
        std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - t0;
        times.push_back(ms.count() / steps);
    }
    std::sort(times.begin(), times.end());

    double sum = 0.0;
    for (int p = 0; p < PULSES * CHUNKS; ++p) sum += echoes[p].x + echoes[p].y + echoes[p].z;
    printf("{\"program\": \"cuda_lidar\", \"steps\": %d, \"us\": %.9g, \"result\": [%.9g]}\n",
           5 + blocks * steps, 1e3 * times[blocks / 2], sum / (PULSES * CHUNKS));
    return 0;
}
