// Wood pyrolysis gases above a smouldering bed: transport on a periodic grid and gas-phase kinetics
// of twelve lumped species, advanced by symmetric operator splitting.
#include <cuda_runtime.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                     \
    do {                                                                                \
        cudaError_t status_ = (call);                                                   \
        if (status_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status_)); \
            std::exit(1);                                                               \
        }                                                                               \
    } while (0)

constexpr int kEdgeBits = 7;
constexpr int kEdge = 1 << kEdgeBits;
constexpr int kCells = kEdge * kEdge * kEdge;
constexpr int kSpecies = 12;
constexpr int kReactions = 18;
constexpr int kSubsteps = 3;

struct Mechanism {
    int first[kReactions];
    int second[kReactions];
    int product[kReactions];
    int byproduct[kReactions];
    float rate[kReactions];
};

// 0 levoglucosan 1 furfural 2 phenol 3 cresol 4 CO 5 CO2 6 H2O 7 CH4 8 H2 9 tar 10 soot 11 O2
static const Mechanism kMechanism = {
    {0, 0, 1, 1, 2, 2, 3, 3, 4, 7, 7, 8, 9, 9, 10, 10, 0, 5},
    {11, 6, 11, 8, 11, 8, 11, 2, 11, 11, 6, 11, 11, 6, 11, 5, 9, 8},
    {1, 2, 4, 3, 4, 3, 5, 9, 5, 4, 4, 6, 4, 7, 5, 4, 10, 4},
    {6, 4, 6, 7, 6, 6, 6, 8, 4, 6, 8, 6, 10, 4, 4, 4, 6, 6},
    {0.31f, 0.12f, 0.27f, 0.09f, 0.22f, 0.07f, 0.19f, 0.05f, 0.41f, 0.33f, 0.04f, 0.52f, 0.15f, 0.06f, 0.11f, 0.02f, 0.08f, 0.03f}};

__constant__ Mechanism c_mechanism;

__global__ void __launch_bounds__(256) transport(const float* __restrict__ in, float* __restrict__ out,
                                                 float cx, float cy, float cz, float diffusion) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    int cell = index & (kCells - 1);
    int base = index - cell;
    int x = cell & (kEdge - 1);
    int y = (cell >> kEdgeBits) & (kEdge - 1);
    int z = cell >> (2 * kEdgeBits);
    const int mask = kEdge - 1;
    int row = cell - x;
    int plane = cell & ~(kEdge * kEdge - 1);
    float c = in[index];
    float xm = in[base + row + ((x - 1) & mask)];
    float xp = in[base + row + ((x + 1) & mask)];
    float ym = in[base + plane + (((y - 1) & mask) << kEdgeBits) + x];
    float yp = in[base + plane + (((y + 1) & mask) << kEdgeBits) + x];
    float zm = in[base + (((z - 1) & mask) << (2 * kEdgeBits)) + (cell - plane)];
    float zp = in[base + (((z + 1) & mask) << (2 * kEdgeBits)) + (cell - plane)];
    float advected = c - cx * (c - xm) - cy * (c - ym) - cz * (c - zm);
    out[index] = advected + diffusion * (xm + xp + ym + yp + zm + zp - 6.0f * c);
}

__global__ void __launch_bounds__(256) react(float* __restrict__ field, float dt) {
    int cell = blockIdx.x * blockDim.x + threadIdx.x;
    float conc[kSpecies];
    float change[kSpecies];
    for (int s = 0; s < kSpecies; ++s) conc[s] = field[s * kCells + cell];
    for (int n = 0; n < kSubsteps; ++n) {
        for (int s = 0; s < kSpecies; ++s) change[s] = 0.0f;
        for (int r = 0; r < kReactions; ++r) {
            int a = c_mechanism.first[r];
            int b = c_mechanism.second[r];
            float turnover = c_mechanism.rate[r] * conc[a] * conc[b];
            change[a] -= turnover;
            change[b] -= turnover;
            change[c_mechanism.product[r]] += turnover;
            change[c_mechanism.byproduct[r]] += turnover;
        }
        for (int s = 0; s < kSpecies; ++s) conc[s] = fmaxf(conc[s] + dt * change[s], 0.0f);
    }
    for (int s = 0; s < kSpecies; ++s) field[s * kCells + cell] = conc[s];
}

static std::vector<float> initial_plume() {
    std::vector<float> field(size_t(kSpecies) * kCells);
    uint32_t state = 77u;
    for (int s = 0; s < kSpecies; ++s) {
        float level = s == 11 ? 0.9f : (s == 5 || s == 6 ? 0.2f : 0.05f + 0.03f * s);
        for (int cell = 0; cell < kCells; ++cell) {
            state = state * 1664525u + 1013904223u;
            float jitter = (state >> 8) * (1.0f / 16777216.0f);
            float height = float(cell >> (2 * kEdgeBits)) / kEdge;
            field[size_t(s) * kCells + cell] = level * (0.5f + jitter) * (1.2f - height);
        }
    }
    return field;
}

int main() {
    std::vector<float> start_field = initial_plume();
    const size_t bytes = start_field.size() * sizeof(float);
    float *field, *scratch;
    CHECK(cudaMalloc(&field, bytes));
    CHECK(cudaMalloc(&scratch, bytes));
    CHECK(cudaMemcpy(field, start_field.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToSymbol(c_mechanism, &kMechanism, sizeof(Mechanism)));

    const int threads = 256;
    const int field_blocks = kSpecies * kCells / threads;
    const int cell_blocks = kCells / threads;
    auto advance = [&]() {
        transport<<<field_blocks, threads>>>(field, scratch, 0.08f, 0.03f, 0.11f, 0.02f);
        react<<<cell_blocks, threads>>>(scratch, 0.0002f);
        transport<<<field_blocks, threads>>>(scratch, field, 0.08f, 0.03f, 0.11f, 0.02f);
    };

    const int warmup = 8000, blocks = 10, per_block = 10;
    for (int i = 0; i < warmup; ++i) advance();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < per_block; ++i) advance();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - begin;
        times.push_back(elapsed.count() / per_block);
    }
    std::sort(times.begin(), times.end());
    double median = 0.5 * (times[blocks / 2 - 1] + times[blocks / 2]);

    std::vector<float> end_field(start_field.size());
    CHECK(cudaMemcpy(end_field.data(), field, bytes, cudaMemcpyDeviceToHost));
    const int watched[4] = {4, 5, 10, 11};
    double mean[4];
    for (int w = 0; w < 4; ++w) {
        double sum = 0.0;
        for (int cell = 0; cell < kCells; ++cell) sum += end_field[size_t(watched[w]) * kCells + cell];
        mean[w] = sum / kCells;
    }
    std::printf("{\"program\": \"cuda_pyrolysis_plume\", \"steps\": %d, \"us\": %.3f, \"result\": [%.6f, %.6f, %.6f, %.6f]}\n",
                warmup + blocks * per_block, median, mean[0], mean[1], mean[2], mean[3]);
    CHECK(cudaFree(field));
    CHECK(cudaFree(scratch));
    return 0;
}
