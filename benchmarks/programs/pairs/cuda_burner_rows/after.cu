// Combustor with burner rows: transport of three scalars on the full grid, then
// finite-rate chemistry in the flame zone of each burner (own mechanism constants
// and cell count), by operator splitting.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t err_ = (call);                                                   \
        if (err_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__,                   \
                         cudaGetErrorString(err_));                                  \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int NX = 384, NY = 320, NZ = 256;
constexpr size_t CELLS = size_t(NX) * NY * NZ;
constexpr int SCALARS = 3;  // fuel, oxidiser, temperature
constexpr int SUBSTEPS = 3;
constexpr int BURNERS = 14;
constexpr int CHEM_STEPS = 480;
constexpr int WARMUP = 600;
constexpr int BLOCKS = 8;
constexpr int BLOCK_STEPS = 10;

struct Mechanism {
    float rate, activation, order_heat, stoichiometry;
};

struct Zone {
    int count;
    int* cells;
    Mechanism mechanism;
    cudaStream_t stream;
    cudaEvent_t burnt;
};

__global__ void transport(const float* __restrict__ in, float* __restrict__ out, float courant,
                          float diffusion) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z;
    size_t plane = size_t(NX) * NY;
    size_t k = z * plane + size_t(y) * NX + x;
    float c = in[k];
    float w = x > 0 ? in[k - 1] : c;
    float e = x < NX - 1 ? in[k + 1] : c;
    float s = y > 0 ? in[k - NX] : c;
    float n = y < NY - 1 ? in[k + NX] : c;
    float b = z > 0 ? in[k - plane] : c;
    float t = z < NZ - 1 ? in[k + plane] : c;
    out[k] = c - courant * (c - b) + diffusion * (w + e + s + n + b + t - 6.0f * c);
}

__device__ float reaction(float fuel, float oxidiser, float temperature, const Mechanism& m) {
    return m.rate * fuel * oxidiser * __expf(__fdividef(-m.activation, temperature));
}

__global__ void flame_chemistry(float* __restrict__ fuel, float* __restrict__ oxidiser,
                                float* __restrict__ temperature, const int* __restrict__ cells,
                                int count, Mechanism m, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int cell = cells[i];
    float f = fuel[cell];
    float o = oxidiser[cell];
    float t = temperature[cell];
    for (int s = 0; s < CHEM_STEPS; ++s) {
        float half = 0.5f * dt * reaction(f, o, t, m);
        float fh = fmaxf(f - half, 0.0f);
        float oh = fmaxf(o - m.stoichiometry * half, 0.0f);
        float th = t + m.order_heat * half;
        float full = dt * reaction(fh, oh, th, m);
        f = fmaxf(f - full, 0.0f);
        o = fmaxf(o - m.stoichiometry * full, 0.0f);
        t = t + m.order_heat * full;
    }
    fuel[cell] = f;
    oxidiser[cell] = o;
    temperature[cell] = t;
}

__global__ void fill(float* field, float base, float slope) {
    size_t k = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    int z = int(k / (size_t(NX) * NY));
    int x = int(k % NX);
    field[k] = base + slope * (float(z) / NZ + 0.2f * float(x) / NX);
}

int main() {
    float* field[SCALARS];
    float* next[SCALARS];
    const float base[SCALARS] = {0.6f, 0.9f, 1.1f};
    const float slope[SCALARS] = {-0.3f, 0.1f, 0.4f};
    for (int c = 0; c < SCALARS; ++c) {
        CHECK(cudaMalloc(&field[c], CELLS * sizeof(float)));
        CHECK(cudaMalloc(&next[c], CELLS * sizeof(float)));
        fill<<<CELLS / 256, 256>>>(field[c], base[c], slope[c]);
    }

    std::mt19937 rng(77);
    std::vector<Zone> zones(BURNERS);
    for (int b = 0; b < BURNERS; ++b) {
        int count = 1024 + 96 * b;
        int cx = 30 + (b % 7) * 50;
        int cy = 80 + (b / 7) * 150;
        std::vector<int> cells(count);
        for (int i = 0; i < count; ++i) {
            int x = cx + i % 16, y = cy + (i / 16) % 16, z = 40 + i / 256;
            cells[i] = int((size_t(z) * NY + y) * NX + x);
        }
        std::shuffle(cells.begin(), cells.end(), rng);
        zones[b].count = count;
        zones[b].mechanism = {6.0f + 0.4f * b, 3.5f + 0.1f * b, 1.5f, 1.0f + 0.05f * b};
        CHECK(cudaMalloc(&zones[b].cells, count * sizeof(int)));
        CHECK(cudaMemcpy(zones[b].cells, cells.data(), count * sizeof(int),
                         cudaMemcpyHostToDevice));
        CHECK(cudaStreamCreateWithFlags(&zones[b].stream, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&zones[b].burnt, cudaEventDisableTiming));
    }

    cudaStream_t flow;
    cudaEvent_t moved;
    CHECK(cudaEventCreateWithFlags(&moved, cudaEventDisableTiming));
    CHECK(cudaStreamCreateWithFlags(&flow, cudaStreamNonBlocking));
    CHECK(cudaDeviceSynchronize());

    dim3 block(64, 4, 1);
    dim3 grid(NX / 64, NY / 4, NZ);
    auto advance = [&]() {
        for (int s = 0; s < SUBSTEPS; ++s) {
            for (int c = 0; c < SCALARS; ++c) {
                transport<<<grid, block, 0, flow>>>(field[c], next[c], 0.2f, 0.05f);
                std::swap(field[c], next[c]);
            }
        }
        CHECK(cudaEventRecord(moved, flow));
        for (int b = 0; b < BURNERS; ++b) {
            const Zone& zone = zones[b];
            CHECK(cudaStreamWaitEvent(zone.stream, moved, 0));
            flame_chemistry<<<(zone.count + 127) / 128, 128, 0, zone.stream>>>(
                field[0], field[1], field[2], zone.cells, zone.count, zone.mechanism, 2.0e-4f);
            CHECK(cudaEventRecord(zone.burnt, zone.stream));
        }
        for (const Zone& zone : zones) CHECK(cudaStreamWaitEvent(flow, zone.burnt, 0));
    };

    for (int i = 0; i < WARMUP; ++i) advance();
    CHECK(cudaStreamSynchronize(flow));
    std::vector<double> times;
    for (int b = 0; b < BLOCKS; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < BLOCK_STEPS; ++i) advance();
        CHECK(cudaStreamSynchronize(flow));
        std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - start;
        times.push_back(spent.count() / BLOCK_STEPS);
    }
    CHECK(cudaGetLastError());
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[BLOCKS / 2 - 1] + times[BLOCKS / 2]);

    double sums[SCALARS];
    std::vector<float> host(CELLS / 2);
    for (int c = 0; c < SCALARS; ++c) {
        CHECK(cudaMemcpy(host.data(), field[c], host.size() * sizeof(float),
                         cudaMemcpyDeviceToHost));
        sums[c] = 0.0;
        for (size_t k = size_t(NX) * NY * 40; k < size_t(NX) * NY * 52; ++k) sums[c] += host[k];
    }
    std::printf("{\"program\": \"cuda_burner_rows\", \"steps\": %d, \"us\": %.3f, "
                "\"result\": [%.8g, %.8g, %.8g]}\n",
                BLOCKS * BLOCK_STEPS, median, sums[0], sums[1], sums[2]);
    return 0;
}
