// Photochemical box models for an air-quality grid: one thread integrates the
// stiff kinetics of one grid cell with the two-stage Rosenbrock scheme ROS2.
// Species (ppb): O3, O, NO, NO2, OH, HO2, CO, H2O2.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e_ = (call); if (e_ != cudaSuccess) { \
    std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); std::exit(1); } } while (0)

constexpr int MAXS = 12;            // room for the extended mechanism
constexpr int CELLS = 1 << 20;
constexpr int SUBSTEPS = 4;
constexpr int PARTS = 8;            // chemistry calls in one model step
enum { O3, O, NO, NO2, OH, HO2, CO, H2O2, NSPEC };

struct Setup { int species; float dt; float sun; };
struct Rates { float j1, j2, k2, k3, j4, k5, k6, k7, k8, j9, k10, eno, eco; };

__device__ inline Rates rates(float sun, float shade, float warmth)
{
    const float light = sun * shade;
    return { 0.05f * light, 0.9f * light, 40.0f, 0.030f * warmth, 2e-4f * light, 0.012f,
             0.5f / warmth, 0.6f, 0.08f, 0.01f * light, 1e-4f * warmth, 0.05f, 0.4f };
}

__device__ inline void tendency(const float *y, const Rates &r, float *f)
{
    const float a = r.k3 * y[O3] * y[NO], b = r.k6 * y[HO2] * y[NO], c = r.k5 * y[OH] * y[CO];
    const float d = r.k7 * y[OH] * y[NO2], e = r.k8 * y[HO2] * y[HO2], g = r.k10 * y[HO2] * y[O3];
    f[O3] = -(r.j1 + r.j4) * y[O3] + r.k2 * y[O] - a - g;
    f[O] = r.j1 * y[O3] + r.j2 * y[NO2] - r.k2 * y[O];
    f[NO] = r.j2 * y[NO2] - a - b + r.eno;
    f[NO2] = -r.j2 * y[NO2] + a + b - d;
    f[OH] = 2.0f * r.j4 * y[O3] - c + b - d + 2.0f * r.j9 * y[H2O2] + g;
    f[HO2] = c - b - 2.0f * e - g;
    f[CO] = -c + r.eco;
    f[H2O2] = e - r.j9 * y[H2O2];
}

// a = 1 - h * d(tendency)/dy
__device__ inline void system_matrix(const float *y, const Rates &r, float h, float a[][MAXS])
{
#pragma unroll
    for (int i = 0; i < NSPEC; ++i)
#pragma unroll
        for (int j = 0; j < NSPEC; ++j) a[i][j] = i == j ? 1.0f : 0.0f;
    const float no = h * r.k3 * y[O3], o3 = h * r.k3 * y[NO];
    const float ho = h * r.k6 * y[NO], n6 = h * r.k6 * y[HO2];
    const float oc = h * r.k5 * y[CO], co = h * r.k5 * y[OH];
    const float o7 = h * r.k7 * y[NO2], n7 = h * r.k7 * y[OH];
    const float h8 = h * r.k8 * y[HO2], h10 = h * r.k10 * y[O3], z10 = h * r.k10 * y[HO2];
    a[O3][O3] += h * (r.j1 + r.j4) + o3 + z10; a[O3][O] -= h * r.k2; a[O3][NO] += no; a[O3][HO2] += h10;
    a[O][O3] -= h * r.j1; a[O][NO2] -= h * r.j2; a[O][O] += h * r.k2;
    a[NO][NO2] -= h * r.j2; a[NO][O3] += o3; a[NO][NO] += no + n6; a[NO][HO2] += ho;
    a[NO2][NO2] += h * r.j2 + n7; a[NO2][O3] -= o3; a[NO2][NO] -= no + n6;
    a[NO2][HO2] -= ho; a[NO2][OH] += o7;
    a[OH][O3] -= 2.0f * h * r.j4 + z10; a[OH][OH] += oc + o7; a[OH][CO] += co;
    a[OH][HO2] -= ho + h10; a[OH][NO] -= n6; a[OH][NO2] += n7; a[OH][H2O2] -= 2.0f * h * r.j9;
    a[HO2][OH] -= oc; a[HO2][CO] -= co; a[HO2][HO2] += ho + 4.0f * h8 + h10;
    a[HO2][NO] += n6; a[HO2][O3] += z10;
    a[CO][OH] += oc; a[CO][CO] += co;
    a[H2O2][HO2] -= 2.0f * h8; a[H2O2][H2O2] += h * r.j9;
}

__device__ inline void factorize(float a[][MAXS], int n)
{
    for (int k = 0; k < n; ++k) {
        a[k][k] = 1.0f / a[k][k];
        for (int i = k + 1; i < n; ++i) {
            const float m = a[i][k] *= a[k][k];
            for (int j = k + 1; j < n; ++j) a[i][j] -= m * a[k][j];
        }
    }
}

__device__ inline void solve(const float a[][MAXS], float *b, int n)
{
    for (int i = 1; i < n; ++i)
        for (int j = 0; j < i; ++j) b[i] -= a[i][j] * b[j];
    for (int i = n - 1; i >= 0; --i) {
        for (int j = i + 1; j < n; ++j) b[i] -= a[i][j] * b[j];
        b[i] *= a[i][i];
    }
}

__global__ void __launch_bounds__(128) chemistry(float *conc, const float *shade, const float *warmth, Setup s)
{
    const int cell = blockIdx.x * blockDim.x + threadIdx.x;
    if (cell >= CELLS) return;
    float y[MAXS], u[MAXS], k1[MAXS], k2[MAXS], a[MAXS][MAXS];
#pragma unroll
    for (int i = 0; i < NSPEC; ++i) y[i] = conc[i * CELLS + cell];
    const Rates r = rates(s.sun, shade[cell], warmth[cell]);
    const float gamma = 1.7071068f;
    for (int sub = 0; sub < SUBSTEPS; ++sub) {
        system_matrix(y, r, gamma * s.dt, a);
        factorize(a, s.species);
        tendency(y, r, k1);
        solve(a, k1, s.species);
#pragma unroll
        for (int i = 0; i < NSPEC; ++i) u[i] = y[i] + s.dt * k1[i];
        tendency(u, r, k2);
#pragma unroll
        for (int i = 0; i < NSPEC; ++i) k2[i] -= 2.0f * k1[i];
        solve(a, k2, s.species);
#pragma unroll
        for (int i = 0; i < NSPEC; ++i)
            y[i] = fmaxf(y[i] + s.dt * (1.5f * k1[i] + 0.5f * k2[i]), 0.0f);
    }
#pragma unroll
    for (int i = 0; i < NSPEC; ++i) conc[i * CELLS + cell] = y[i];
}

int main()
{
    const float start[NSPEC] = {35.0f, 1e-3f, 4.0f, 9.0f, 2e-3f, 1e-2f, 150.0f, 0.8f};
    std::vector<float> host(size_t(NSPEC) * CELLS), shade(CELLS), warmth(CELLS);
    unsigned seed = 1952u;
    auto uniform = [&] { seed = seed * 1664525u + 1013904223u; return (seed >> 8) / 16777216.0f; };
    for (int c = 0; c < CELLS; ++c) {
        shade[c] = 0.4f + 0.6f * uniform();
        warmth[c] = 0.9f + 0.3f * uniform();
        for (int i = 0; i < NSPEC; ++i) host[size_t(i) * CELLS + c] = start[i] * (0.7f + 0.6f * uniform());
    }
    float *conc, *d_shade, *d_warmth;
    CHECK(cudaMalloc(&conc, host.size() * sizeof(float)));
    CHECK(cudaMalloc(&d_shade, CELLS * sizeof(float)));
    CHECK(cudaMalloc(&d_warmth, CELLS * sizeof(float)));
    CHECK(cudaMemcpy(conc, host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_shade, shade.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(d_warmth, warmth.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));

    const int warm = 5, timed = 30, block = 5;
    int steps = 0;
    auto step = [&] {
        for (int p = 0; p < PARTS; ++p) {
            const float hour = 8.0f + (steps * PARTS + p) * 0.02f;
            const Setup s{NSPEC, 0.5f, std::max(0.05f, std::sin(float(M_PI) * (hour - 6.0f) / 12.0f))};
            chemistry<<<(CELLS + 127) / 128, 128>>>(conc, d_shade, d_warmth, s);
        }
        ++steps;
    };
    for (int i = 0; i < warm; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> us;
    for (int b = 0; b < timed / block; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < block; ++i) step();
        CHECK(cudaDeviceSynchronize());
        us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - t0).count() / block);
    }
    CHECK(cudaMemcpy(host.data(), conc, host.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double mean[NSPEC] = {};
    for (int i = 0; i < NSPEC; ++i)
        for (int c = 0; c < CELLS; ++c) mean[i] += host[size_t(i) * CELLS + c] / CELLS;
    std::sort(us.begin(), us.end());
    std::printf("{\"program\": \"cuda_ozone_box\", \"steps\": %d, \"us\": %.2f, \"result\": [%.7g, %.7g, %.7g, %.7g]}\n",
                steps, us[us.size() / 2], mean[O3], mean[NO2], mean[CO], mean[H2O2]);
    return 0;
}
