// Two-component fuel spray: water and ethanol droplets in a hot air jet.
// Droplets are tracked with drag, heating and evaporation; per step the vapour
// released by each component and the kinetic energy of the spray are reduced.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>
#include <cuda_runtime.h>

static void check(cudaError_t status)
{
    if (status == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
    std::exit(1);
}

constexpr int kDroplets = 4 * 1024 * 1024;
constexpr int kSubsteps = 8, kThreads = 256;
constexpr int kSpinUp = 1500, kBlocks = 10, kStepsPerBlock = 10;
constexpr float kDt = 4.0e-7f;
constexpr int kWater = 0, kEthanol = 1;

struct Spray {
    float *x, *r, *u, *v, *diameter, *temperature;
    int *component;
};

__device__ __forceinline__ float jet_speed(float x, float r)
{
    float w = 0.004f + 0.11f * x;
    return 60.0f * 0.004f / w * __expf(-r * r / (w * w));
}

__device__ __forceinline__ float2 drag(float x, float r, float u, float v, float d, float rho)
{
    float du = jet_speed(x, r) - u, dv = -v;
    float slip = sqrtf(du * du + dv * dv) + 1.0e-4f;
    float re = slip * d * 3.1e4f;
    float factor = 1.0f + 0.15f * powf(re, 0.687f);
    float rate = 18.0f * 3.2e-5f * factor / (rho * d * d);
    return make_float2(rate * du, rate * dv);
}

__device__ __forceinline__ float wet_bulb_water(float t_gas, float t_drop, float sh)
{
    float t = fminf(t_drop, 370.0f);
    for (int k = 0; k < 4; ++k) {
        float p = expf(23.196f - 3816.44f / (t - 46.13f));
        float y = p / 101325.0f;
        float b = 0.622f * y / (1.0f - 0.9f * fminf(y, 0.95f));
        float t_new = t_gas - 2.26e6f * b * sh / (1900.0f * (sh + 0.2f));
        t += 0.2f * (fminf(fmaxf(t_new, 290.0f), 368.0f) - t);
    }
    return t;
}

__device__ __forceinline__ float wet_bulb_ethanol(float t_gas, float t_drop, float sh)
{
    float t = fminf(t_drop, 348.0f);
    for (int k = 0; k < 4; ++k) {
        float tr = 1.0f - t / 513.9f;
        float p = 6.148e6f * expf((-8.69f * tr + 1.18f * tr * sqrtf(tr)) * 513.9f / t);
        float y = p * 9.87e-6f;
        float b = 1.59f * y / (1.0f - 0.6f * fminf(y, 0.95f));
        float t_new = t_gas - 8.4e5f * b * sh / (2100.0f * (sh + 0.3f));
        t += 0.25f * (fminf(fmaxf(t_new, 280.0f), 346.0f) - t);
    }
    return t;
}

__global__ void advance_droplets(Spray s, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = s.x[i], r = s.r[i], u = s.u[i], v = s.v[i];
    float d = s.diameter[i], t = s.temperature[i];
    int component = s.component[i];
    float rho = component == kWater ? 998.0f : 789.0f;
    for (int k = 0; k < kSubsteps; ++k) {
        float2 a1 = drag(x, r, u, v, d, rho);
        float2 a2 = drag(x + 0.5f * kDt * u, r + 0.5f * kDt * v,
                         u + 0.5f * kDt * a1.x, v + 0.5f * kDt * a1.y, d, rho);
        float2 a3 = drag(x + 0.5f * kDt * (u + 0.5f * kDt * a1.x),
                         r + 0.5f * kDt * (v + 0.5f * kDt * a1.y),
                         u + 0.5f * kDt * a2.x, v + 0.5f * kDt * a2.y, d, rho);
        float2 a4 = drag(x + kDt * (u + 0.5f * kDt * a2.x), r + kDt * (v + 0.5f * kDt * a2.y),
                         u + kDt * a3.x, v + kDt * a3.y, d, rho);
        x += kDt * (u + kDt * (a1.x + a2.x + a3.x) / 6.0f);
        r += kDt * (v + kDt * (a1.y + a2.y + a3.y) / 6.0f);
        u += kDt * (a1.x + 2.0f * a2.x + 2.0f * a3.x + a4.x) / 6.0f;
        v += kDt * (a1.y + 2.0f * a2.y + 2.0f * a3.y + a4.y) / 6.0f;
        float slip = fabsf(jet_speed(x, r) - u) + fabsf(v);
        float sh = 2.0f + 0.55f * sqrtf(slip * d * 3.1e4f);
        float t_gas = 480.0f + 120.0f * __expf(-r * r * 2.0e3f);
        float target = component == kWater ? wet_bulb_water(t_gas, t, sh)
                                           : wet_bulb_ethanol(t_gas, t, sh);
        float relax = 6.0f * sh * 0.045f / (rho * 3200.0f * d * d);
        t += (target - t) * fminf(kDt * relax, 0.5f);
        float burn = sh * 1.2e-7f * (t_gas - t) / (component == kWater ? 900.0f : 380.0f);
        d = fmaxf(d - kDt * burn / d, 2.0e-5f);
    }
    s.x[i] = x, s.r[i] = r, s.u[i] = u, s.v[i] = v;
    s.diameter[i] = d, s.temperature[i] = t;
}

__global__ void spray_totals(Spray s, int n, double* totals)
{
    float sums[3] = {0.0f, 0.0f, 0.0f};
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float d = s.diameter[i] * 1.0e6f;
        float volume = d * d * d * 1.0e-6f;
        bool water = s.component[i] == kWater;
        sums[0] += water ? volume : 0.0f;
        sums[1] += water ? 0.0f : volume;
        sums[2] += volume * (s.u[i] * s.u[i] + s.v[i] * s.v[i]);
    }
    __shared__ float partial[3][kThreads / 32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int q = 0; q < 3; ++q) {
        float value = sums[q];
        for (int o = 16; o > 0; o >>= 1) value += __shfl_down_sync(0xffffffffu, value, o);
        if (lane == 0) partial[q][warp] = value;
    }
    __syncthreads();
    if (threadIdx.x < 3) {
        double sum = 0.0;
        for (int w = 0; w < kThreads / 32; ++w) sum += partial[threadIdx.x][w];
        atomicAdd(&totals[threadIdx.x], sum);
    }
}

struct Droplet {
    float x, r, u, v, diameter, temperature;
    int component;
};

static std::vector<Droplet> inject(int n)
{
    std::vector<Droplet> drops(n);
    std::mt19937 rng(20240611u);
    auto uniform = [&rng] { return (rng() >> 8) * (1.0f / 16777216.0f); };
    for (auto& p : drops) {
        p.component = uniform() < 0.5f ? kEthanol : kWater;
        p.x = 0.002f + 0.05f * uniform();
        p.r = 0.012f * uniform();
        p.u = 20.0f + 25.0f * uniform();
        p.v = 6.0f * (uniform() - 0.3f);
        p.diameter = 5.0e-5f + 9.0e-5f * uniform();
        p.temperature = 295.0f + 20.0f * uniform();
    }
    return drops;
}

template <typename T>
static T* upload(const std::vector<Droplet>& drops, T Droplet::*field)
{
    std::vector<T> host(drops.size());
    for (size_t i = 0; i < drops.size(); ++i) host[i] = drops[i].*field;
    T* device = nullptr;
    check(cudaMalloc(&device, host.size() * sizeof(T)));
    check(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

int main()
{
    std::vector<Droplet> drops = inject(kDroplets);
    Spray s;
    s.x = upload(drops, &Droplet::x);
    s.r = upload(drops, &Droplet::r);
    s.u = upload(drops, &Droplet::u);
    s.v = upload(drops, &Droplet::v);
    s.diameter = upload(drops, &Droplet::diameter);
    s.temperature = upload(drops, &Droplet::temperature);
    s.component = upload(drops, &Droplet::component);
    const int steps = kSpinUp + kBlocks * kStepsPerBlock;
    double* totals = nullptr;
    check(cudaMalloc(&totals, steps * 3 * sizeof(double)));
    check(cudaMemset(totals, 0, steps * 3 * sizeof(double)));
    const int grid = (kDroplets + kThreads - 1) / kThreads;
    int step = 0;
    auto run = [&](int count) {
        for (int k = 0; k < count; ++k, ++step) {
            advance_droplets<<<grid, kThreads>>>(s, kDroplets);
            spray_totals<<<132 * 8, kThreads>>>(s, kDroplets, totals + 3 * step);
        }
        check(cudaGetLastError());
    };
    run(kSpinUp);
    check(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int b = 0; b < kBlocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        run(kStepsPerBlock);
        check(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> span = std::chrono::steady_clock::now() - start;
        times.push_back(span.count() / kStepsPerBlock);
    }
    std::sort(times.begin(), times.end());
    std::vector<double> last(3);
    check(cudaMemcpy(last.data(), totals + 3 * (steps - 1), 3 * sizeof(double),
                     cudaMemcpyDeviceToHost));
    std::printf("{\"program\": \"cuda_spray_droplets\", \"steps\": %d, \"us\": %.3f, "
                "\"result\": [%.8g, %.8g, %.8g]}\n",
                step, 0.5 * (times[kBlocks / 2 - 1] + times[kBlocks / 2]),
                last[0], last[1], last[2]);
    return 0;
}
