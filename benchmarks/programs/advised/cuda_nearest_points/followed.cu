// The eight nearest neighbours of every point of a cloud, and the cloud's local density.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int POINTS = 16384;
constexpr int K = 8;
constexpr int QUERIES = 32;
constexpr int SLICES = 8;
constexpr int THREADS = QUERIES * SLICES;
static_assert(SLICES >= K, "the bound needs K slices");
constexpr int WARMUP = 4;
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

// A block serves QUERIES points; each of its SLICES warps scans its own share of the cloud for
// them (lane = point) and keeps the K nearest of that share, sorted. At the end they are merged.
__device__ __forceinline__ void keep(float (&best)[K], float d) {
#pragma unroll
    for (int k = K - 1; k > 0; --k) best[k] = fmaxf(best[k - 1], fminf(d, best[k]));
    best[0] = fminf(best[0], d);
}

__global__ void __launch_bounds__(THREADS, 4) nearest(const float4* __restrict__ points,
                                                      float* __restrict__ distance) {
    __shared__ __align__(16) float tx[2][THREADS], ty[2][THREADS], tz[2][THREADS];
    __shared__ float closest[2][SLICES][QUERIES];
    __shared__ float lists[SLICES][K][QUERIES];
    const int lane = threadIdx.x % QUERIES, slice = threadIdx.x / QUERIES;
    const int i = blockIdx.x * QUERIES + lane;
    const float4 p = points[i];
    float best[K];
#pragma unroll
    for (int k = 0; k < K; ++k) best[k] = 1e30f;
    float4 next = points[threadIdx.x];
    int buffer = 0;
    for (int base = 0; base < POINTS; base += THREADS) {
        tx[buffer][threadIdx.x] = next.x;
        ty[buffer][threadIdx.x] = next.y;
        tz[buffer][threadIdx.x] = next.z;
        closest[buffer][slice][lane] = best[0];
        __syncthreads();
        if (base + THREADS < POINTS) next = points[base + THREADS + threadIdx.x];
        // The K closest of the K slices are K different points: the farthest of them bounds
        // the distance of the K-th neighbour.
        float bound = closest[buffer][0][lane];
#pragma unroll
        for (int s = 1; s < SLICES; ++s) bound = fmaxf(bound, closest[buffer][s][lane]);
        float limit = fminf(bound, best[K - 1]);
        const int first = slice * QUERIES;
        const int self = i - base - first;
#pragma unroll 2
        for (int j = 0; j < QUERIES; j += 4) {
            const float4 x = *reinterpret_cast<const float4*>(&tx[buffer][first + j]);
            const float4 y = *reinterpret_cast<const float4*>(&ty[buffer][first + j]);
            const float4 z = *reinterpret_cast<const float4*>(&tz[buffer][first + j]);
            const float xs[4] = {x.x, x.y, x.z, x.w};
            const float ys[4] = {y.x, y.y, y.z, y.w};
            const float zs[4] = {z.x, z.y, z.z, z.w};
            float d[4];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                float dx = xs[u] - p.x, dy = ys[u] - p.y, dz = zs[u] - p.z;
                d[u] = dx * dx + dy * dy + dz * dz;
            }
#pragma unroll
            for (int u = 0; u < 4; ++u)
                if (d[u] < limit) {
                    keep(best, j + u == self ? 1e30f : d[u]);
                    limit = fminf(limit, best[K - 1]);
                }
        }
        buffer ^= 1;
    }
#pragma unroll
    for (int k = 0; k < K; ++k) lists[slice][k][lane] = best[k];
    __syncthreads();
    if (slice == 0) {
        for (int s = 1; s < SLICES; ++s)
            for (int k = 0; k < K; ++k) {
                float d = lists[s][k][lane];
                if (d >= best[K - 1]) break;
                keep(best, d);
            }
        float sum = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) sum += sqrtf(best[k]);
        distance[i] = sum / K;
    }
}

__global__ void drift(float4* points, const float* distance) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 p = points[i];
    float s = 1.0f + 0.001f * (0.05f - distance[i]);
    points[i] = make_float4(p.x * s, p.y * s, p.z * s, 0);
}

int main() {
    std::vector<float4> host(POINTS);
    unsigned state = 5;
    auto uniform = [&]() {
        state = state * 1664525u + 1013904223u;
        return float(state >> 8) / (1 << 24) - 0.5f;
    };
    for (auto& p : host) p = make_float4(uniform(), uniform(), uniform() * 0.2f, 0);
    float4* points;
    float* distance;
    CHECK(cudaMalloc(&points, POINTS * sizeof(float4)));
    CHECK(cudaMalloc(&distance, POINTS * sizeof(float)));
    CHECK(cudaMemcpy(points, host.data(), POINTS * sizeof(float4), cudaMemcpyHostToDevice));

    auto step = [&]() {
        nearest<<<POINTS / QUERIES, THREADS>>>(points, distance);
        drift<<<POINTS / 256, 256>>>(points, distance);
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
    std::vector<float> end(POINTS);
    CHECK(cudaMemcpy(end.data(), distance, POINTS * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0, top = 0;
    for (float v : end) {
        mean += v;
        top = fmax(top, v);
    }
    printf("mean distance %.6f, largest %.6f\n", mean / POINTS, top);
    printf("{\"program\": \"cuda_nearest_points\", \"steps\": %d, \"us\": %.1f, \"result\": [%.9g, %.9g]}\n",
           WARMUP + BLOCKS * STEPS_PER_BLOCK, times[times.size() / 2], mean / POINTS, top);
    return 0;
}
