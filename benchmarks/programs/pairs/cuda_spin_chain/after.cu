// Time evolution of a small quantum spin chain: many gates, each a kernel on a small state.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int SPINS = 14;
constexpr int LAYERS = 40;
constexpr int WARMUP = 5;
constexpr int BLOCKS = 8;
constexpr int STEPS_PER_BLOCK = 20;
constexpr int SIZE = 1 << SPINS;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

// Turn one spin by an angle about the x axis.
__global__ void rotate(float2* psi, int spin, float c, float s) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int low = t & ((1 << spin) - 1);
    int i = ((t >> spin) << (spin + 1)) | low, j = i | (1 << spin);
    float2 a = psi[i], b = psi[j];
    psi[i] = make_float2(c * a.x + s * b.y, c * a.y - s * b.x);
    psi[j] = make_float2(c * b.x + s * a.y, c * b.y - s * a.x);
}

// Phase between neighbouring spins.
__global__ void couple(float2* psi, int spin, float c, float s) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sign = (((i >> spin) ^ (i >> (spin + 1))) & 1) ? -s : s;
    float2 a = psi[i];
    psi[i] = make_float2(c * a.x + sign * a.y, c * a.y - sign * a.x);
}

void evolve(float2* psi, cudaStream_t stream) {
    for (int layer = 0; layer < LAYERS; ++layer) {
        for (int k = 0; k < SPINS; ++k)
            rotate<<<SIZE / 2 / 256, 256, 0, stream>>>(psi, k, cosf(0.05f), sinf(0.05f));
        for (int k = 0; k + 1 < SPINS; ++k)
            couple<<<SIZE / 256, 256, 0, stream>>>(psi, k, cosf(0.03f), sinf(0.03f));
    }
}

int main() {
    std::vector<float2> host(SIZE, make_float2(0, 0));
    host[1] = make_float2(1, 0);
    float2* psi;
    CHECK(cudaMalloc(&psi, SIZE * sizeof(float2)));
    CHECK(cudaMemcpy(psi, host.data(), SIZE * sizeof(float2), cudaMemcpyHostToDevice));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    evolve(psi, stream);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));

    auto step = [&]() { CHECK(cudaGraphLaunch(exec, stream)); };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaStreamSynchronize(stream));
    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) step();
        CHECK(cudaStreamSynchronize(stream));
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaMemcpy(host.data(), psi, SIZE * sizeof(float2), cudaMemcpyDeviceToHost));
    double norm = 0, up = 0;
    for (int i = 0; i < SIZE; ++i) {
        double w = double(host[i].x) * host[i].x + double(host[i].y) * host[i].y;
        norm += w;
        if (i & 1) up += w;
    }
    printf("norm %.6f, first spin up %.6f\n", norm, up);
    printf("{\"program\": \"cuda_spin_chain\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], norm, up);
    return 0;
}
