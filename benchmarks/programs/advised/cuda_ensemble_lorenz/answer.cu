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

constexpr int THREADS = 512;
constexpr int PARTS = CELLS / THREADS;  // blocks of a member
constexpr float DT = 1e-4f;

struct Member {
    float *x, *force;
};

struct Ensemble {
    Member member[MEMBERS];
};

// Cells at the edges of a block, for its neighbours: first, last but one, last.
// Each word holds the number of its substep (high half) beside the value, so no fence is needed.
__device__ unsigned long long edge[2][MEMBERS][PARTS][3];

__device__ float fetch(const unsigned long long* slot, unsigned epoch) {
    unsigned long long word;
    do {
        word = *(const volatile unsigned long long*)slot;
    } while (unsigned(word >> 32) != epoch);
    return __uint_as_float(unsigned(word));
}

// All substeps of all members. The Lorenz-96 tendency, with fast small-scale variables inside each
// cell. Neighbours are needed only after the fast variables, so their exchange costs no waiting.
__global__ void __launch_bounds__(THREADS) forecast(Ensemble all, unsigned epoch) {
    __shared__ float cells[2][THREADS];
    int t = threadIdx.x, part = blockIdx.x, e = blockIdx.y;
    int left = (part + PARTS - 1) % PARTS, right = (part + 1) % PARTS;
    Member m = all.member[e];
    int i = part * THREADS + t;
    float x = m.x[i], force = m.force[0];
    for (int s = 0; s < SUBSTEPS; ++s, ++epoch) {
        int side = epoch & 1;
        cells[side][t] = x;
        __syncthreads();
        int which = t == 0 ? 0 : t - (THREADS - 3);
        if (t == 0 || which > 0)
            *(volatile unsigned long long*)&edge[side][e][part][which] =
                (static_cast<unsigned long long>(epoch) << 32) | __float_as_uint(x);

        // fast += 0.002 * (sin(3 * fast + k) - fast), with little between one sine and the next
        float fast = 0.1f * x, angle = 3.0f * fast, next = 1.0f;
#pragma unroll 20
        for (int k = 0; k < INNER; ++k) {
            float sine = __sinf(angle);
            float kept = fmaf(-0.002f, fast, fast);
            angle = fmaf(0.006f, sine, fmaf(3.0f, kept, next));
            fast = fmaf(0.002f, sine, kept);
            next += 1.0f;
        }

        float after = t < THREADS - 1 ? cells[side][t + 1] : fetch(&edge[side][e][right][0], epoch);
        float before = t > 0 ? cells[side][t - 1] : fetch(&edge[side][e][left][2], epoch);
        float second = t > 1 ? cells[side][t - 2] : fetch(&edge[side][e][left][1 + t], epoch);
        float near = after - second;
        x += DT * (near * before - x + force - fast);
    }
    m.x[i] = x;
}

int main() {
    Ensemble all;
    auto& members = all.member;
    std::vector<float> host(CELLS);
    for (int e = 0; e < MEMBERS; ++e) {
        Member& m = members[e];
        for (int i = 0; i < CELLS; ++i) host[i] = 8.0f + sinf(0.1f * i + e);
        float force = 8.0f + 0.1f * e;
        CHECK(cudaMalloc(&m.x, CELLS * sizeof(float)));
        CHECK(cudaMalloc(&m.force, sizeof(float)));
        CHECK(cudaMemcpy(m.x, host.data(), CELLS * sizeof(float), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(m.force, &force, sizeof(float), cudaMemcpyHostToDevice));
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    unsigned epoch = 1;  // of the next substep
    auto step = [&]() {
        void* arguments[] = {&all, &epoch};
        CHECK(cudaLaunchCooperativeKernel((const void*)forecast, dim3(PARTS, MEMBERS), dim3(THREADS),
                                          arguments, 0, stream));
        epoch += SUBSTEPS;
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
