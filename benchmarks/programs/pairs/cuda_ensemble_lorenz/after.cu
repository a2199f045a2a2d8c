// Data assimilation: independent members of an ensemble, each a chain of small kernels.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int MEMBERS = 8;
constexpr int CELLS = 8192;
constexpr int SUBSTEPS = 40;
constexpr int INNER = 600;
constexpr int WARMUP = 3;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 6;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

// Lorenz-96 tendency, and fast small-scale variables inside each cell.
__global__ void tendency(const float* x, const float* force, float* dx) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float near = x[(i + 1) % CELLS] - x[(i + CELLS - 2) % CELLS];
    float fast = 0.1f * x[i];
    for (int k = 0; k < INNER; ++k) fast += 0.002f * (__sinf(3.0f * fast + k) - fast);
    dx[i] = near * x[(i + CELLS - 1) % CELLS] - x[i] + force[0] - fast;
}

__global__ void add(float* x, const float* dx, float dt) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] += dt * dx[i];
}

struct Member {
    float *x, *dx, *force;
};

void forecast(Member& m, cudaStream_t stream) {
    for (int s = 0; s < SUBSTEPS; ++s) {
        tendency<<<CELLS / 256, 256, 0, stream>>>(m.x, m.force, m.dx);
        add<<<CELLS / 256, 256, 0, stream>>>(m.x, m.dx, 1e-4f);
    }
}

int main() {
    std::vector<Member> members(MEMBERS);
    std::vector<float> host(CELLS);
    for (int e = 0; e < MEMBERS; ++e) {
        Member& m = members[e];
        for (int i = 0; i < CELLS; ++i) host[i] = 8.0f + sinf(0.1f * i + e);
        float force = 8.0f + 0.1f * e;
        CHECK(cudaMalloc(&m.x, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&m.dx, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&m.force, sizeof(float)));
        CHECK(cudaMemcpy(m.x, host.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(m.force, &force, sizeof(float), cudaMemcpyHostToDevice));
    }
    std::vector<cudaStream_t> streams(MEMBERS);
    for (auto& s : streams) CHECK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));

    auto step = [&]() {
        for (int e = 0; e < MEMBERS; ++e) forecast(members[e], streams[e]);
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaDeviceSynchronize());
    std::vector<double> times;
    for (int block = 0; block < BLOCKS; ++block) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < STEPS_PER_BLOCK; ++i) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        times.push_back(took.count() / STEPS_PER_BLOCK);
    }
    std::sort(times.begin(), times.end());
    double mean = 0, square = 0;
    for (auto& m : members) {
        CHECK(cudaMemcpy(host.data(), m.x, CELLS * sizeof(float), cudaMemcpyDeviceToHost));
        for (float v : host) {
            mean += v;
            square += double(v) * v;
        }
    }
    double n = double(MEMBERS) * CELLS;
    printf("ensemble mean %.5f\n", mean / n);
    printf("{\"program\": \"cuda_ensemble_lorenz\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], mean / n, square / n);
    return 0;
}
