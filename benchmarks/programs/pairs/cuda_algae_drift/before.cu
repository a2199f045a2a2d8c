// Surface algae on a lake: wind drift, nutrients, and growth in the light of the water column.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cuda_runtime.h>

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t status_ = (call);                                            \
        if (status_ != cudaSuccess) {                                            \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,               \
                         cudaGetErrorString(status_));                           \
            std::exit(1);                                                        \
        }                                                                        \
    } while (0)

constexpr int NX = 4096;
constexpr int NY = 4096;
constexpr int THREADS = 256;
constexpr int BANDS = 5;
constexpr int LAYERS = 96;
constexpr float LAYER_DEPTH = 0.08f;
constexpr float DT = 0.2f;

struct Water {
    float absorption[BANDS];
    float shading[BANDS];
    float surface[BANDS];
};

__constant__ Water water;

__global__ void set_lake(float* algae, float* nutrient, float* u, float* v)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y;
    float x = 6.2831853f * i / NX;
    float y = 6.2831853f * j / NY;
    int cell = j * NX + i;
    algae[cell] = 0.6f + 0.3f * sinf(3.0f * x) * cosf(2.0f * y) + 0.1f * sinf(17.0f * x + 5.0f * y);
    nutrient[cell] = 1.0f + 0.4f * cosf(x + 2.0f * y);
    u[cell] = 0.7f * sinf(x) * cosf(y) + 0.1f;
    v[cell] = -0.7f * cosf(x) * sinf(y) - 0.05f;
}

__device__ __forceinline__ float donor_flux(float behind, float ahead, float speed)
{
    return speed > 0.0f ? speed * behind : speed * ahead;
}

__global__ void drift_x(const float* __restrict__ algae, const float* __restrict__ u,
                        float* __restrict__ moved, float wind)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y;
    int west = j * NX + (i + NX - 1) % NX;
    int cell = j * NX + i;
    int east = j * NX + (i + 1) % NX;
    float here = algae[cell];
    float in = donor_flux(algae[west], here, u[cell] + wind);
    float out = donor_flux(here, algae[east], u[east] + wind);
    moved[cell] = here + DT * (in - out);
}

__global__ void drift_y(const float* __restrict__ algae, const float* __restrict__ v,
                        float* __restrict__ moved, float wind)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    int i = blockIdx.y;
    int south = ((j + NY - 1) % NY) * NX + i;
    int cell = j * NX + i;
    int north = ((j + 1) % NY) * NX + i;
    float here = algae[cell];
    float in = donor_flux(algae[south], here, v[cell] + wind);
    float out = donor_flux(here, algae[north], v[north] + wind);
    moved[cell] = here + DT * (in - out);
}

__global__ void mix_nutrient(const float* __restrict__ nutrient, float* __restrict__ mixed)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int j = blockIdx.y;
    int cell = j * NX + i;
    float here = nutrient[cell];
    float around = nutrient[j * NX + (i + 1) % NX] + nutrient[j * NX + (i + NX - 1) % NX]
                 + nutrient[((j + 1) % NY) * NX + i] + nutrient[((j + NY - 1) % NY) * NX + i];
    mixed[cell] = here + 0.1f * (around - 4.0f * here);
}

__global__ void grow(float* __restrict__ algae, float* __restrict__ nutrient, float sun)
{
    int cell = blockIdx.y * NX + blockIdx.x * blockDim.x + threadIdx.x;
    float density = algae[cell];
    float food = nutrient[cell];
    float light[BANDS];
    float passed[BANDS];
#pragma unroll
    for (int b = 0; b < BANDS; ++b) {
        light[b] = sun * water.surface[b];
        passed[b] = __expf(-LAYER_DEPTH * (water.absorption[b] + water.shading[b] * density));
    }
    float rate = 0.0f;
#pragma unroll 8
    for (int layer = 0; layer < LAYERS; ++layer) {
        float total = 0.0f;
#pragma unroll
        for (int b = 0; b < BANDS; ++b) {
            light[b] *= passed[b];
            total += light[b];
        }
        rate += (1.0f - __expf(-1.8f * total)) * __expf(-0.25f * total);
    }
    rate *= 1.0f / LAYERS;
    float uptake = 0.02f * rate * density * food / (food + 0.5f);
    float loss = 0.004f * density;
    algae[cell] = density + uptake - loss;
    nutrient[cell] = food - uptake + 0.8f * loss;
}

struct Lake {
    float *algae, *algae_next, *nutrient, *nutrient_next, *u, *v;
};

static void advance(Lake& lake, int step)
{
    float angle = 0.05f * step;
    float sun = 1.0f + 0.6f * std::sin(0.11f * step);
    dim3 rows(NX / THREADS, NY);
    dim3 columns(NY / THREADS, NX);
    drift_x<<<rows, THREADS>>>(lake.algae, lake.u, lake.algae_next, 0.3f * std::cos(angle));
    drift_y<<<columns, THREADS>>>(lake.algae_next, lake.v, lake.algae, 0.3f * std::sin(angle));
    mix_nutrient<<<rows, THREADS>>>(lake.nutrient, lake.nutrient_next);
    std::swap(lake.nutrient, lake.nutrient_next);
    grow<<<rows, THREADS>>>(lake.algae, lake.nutrient, sun);
}

int main()
{
    const int warmup = 20, blocks = 10, per_block = 10;
    const size_t cells = size_t(NX) * NY;
    const size_t bytes = cells * sizeof(float);
    Water clear = {{0.35f, 0.12f, 0.08f, 0.20f, 0.60f},
                   {0.30f, 0.22f, 0.10f, 0.12f, 0.25f},
                   {0.25f, 0.30f, 0.28f, 0.20f, 0.12f}};
    CHECK(cudaMemcpyToSymbol(water, &clear, sizeof(clear)));
    Lake lake;
    for (float** field : {&lake.algae, &lake.algae_next, &lake.nutrient, &lake.nutrient_next, &lake.u, &lake.v})
        CHECK(cudaMalloc(field, bytes));
    set_lake<<<dim3(NX / THREADS, NY), THREADS>>>(lake.algae, lake.nutrient, lake.u, lake.v);
    CHECK(cudaGetLastError());

    int step = 0;
    for (; step < warmup; ++step) advance(lake, step);
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int block = 0; block < blocks; ++block) {
        auto begin = std::chrono::steady_clock::now();
        for (int k = 0; k < per_block; ++k) advance(lake, step++);
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
        times.push_back(spent.count() / per_block);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    std::vector<float> algae(cells), nutrient(cells);
    CHECK(cudaMemcpy(algae.data(), lake.algae, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(nutrient.data(), lake.nutrient, bytes, cudaMemcpyDeviceToHost));
    double total = 0.0, square = 0.0, food = 0.0;
    for (size_t c = 0; c < cells; ++c) {
        total += algae[c];
        square += double(algae[c]) * algae[c];
        food += nutrient[c];
    }
    std::printf("{\"program\": \"cuda_algae_drift\", \"steps\": %d, \"us\": %.3f, \"result\": [%.8g, %.8g, %.8g]}\n",
                step, median, total / cells, std::sqrt(square / cells), food / cells);
    return 0;
}
