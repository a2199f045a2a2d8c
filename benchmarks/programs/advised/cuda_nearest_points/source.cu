// The eight nearest neighbours of every point of a cloud, and the cloud's local density.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int POINTS = 16384;
constexpr int K = 8;
constexpr int WARMUP = 4;
constexpr int BLOCKS = 6;
constexpr int STEPS_PER_BLOCK = 6;

// Cells of a uniform grid. Points outside its box fall into the border cells
// (the search stays exact for them, only slower).
constexpr int NX = 40, NY = 40, NZ = 8;
constexpr int CELLS = NX * NY * NZ;
constexpr float LOW_X = -0.5f, LOW_Y = -0.5f, LOW_Z = -0.1f;
constexpr float PER_CELL = 40.0f;       // cells per unit of length
constexpr float FIRST_RADIUS = 0.045f;  // first guess of a sphere with K neighbours

constexpr int BUILD_THREADS = 1024;
constexpr int CELLS_PER_THREAD = (CELLS + BUILD_THREADS - 1) / BUILD_THREADS;
constexpr int PADDED_CELLS = CELLS_PER_THREAD * BUILD_THREADS;
constexpr int POINTS_PER_THREAD = POINTS / BUILD_THREADS;
static_assert(PADDED_CELLS > CELLS, "the end of the last cell needs a place");
static_assert(PADDED_CELLS <= (1 << 17) && POINTS <= (1 << 15), "cell and rank share a word");

constexpr int LANES = 8;  // threads that search for one point
constexpr int QUERY_THREADS = 128;

#define CHECK(call)                                                              \
    do {                                                                         \
        cudaError_t e = (call);                                                  \
        if (e != cudaSuccess) {                                                  \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

// Monotone in v, so that all points of an interval lie in the cells between its ends.
__device__ __forceinline__ int coordinate(float v, float low, int n) {
    return min(max(__float2int_rd((v - low) * PER_CELL), 0), n - 1);
}

__device__ __forceinline__ int cell_of(float4 p) {
    return (coordinate(p.x, LOW_X, NX) * NY + coordinate(p.y, LOW_Y, NY)) * NZ +
           coordinate(p.z, LOW_Z, NZ);
}

// Counting sort of the points by cell, in one block.
__global__ void __launch_bounds__(BUILD_THREADS) build(const float4* __restrict__ points,
                                                       float4* __restrict__ sorted,
                                                       int* __restrict__ first) {
    extern __shared__ int count[];
    __shared__ int warp_sum[32];
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    for (int c = t; c < PADDED_CELLS; c += BUILD_THREADS) count[c] = 0;
    __syncthreads();
    unsigned place[POINTS_PER_THREAD];
#pragma unroll
    for (int k = 0; k < POINTS_PER_THREAD; ++k) {
        int c = cell_of(points[k * BUILD_THREADS + t]);
        place[k] = (unsigned(c) << 15) | unsigned(atomicAdd(&count[c], 1));
    }
    __syncthreads();
    int own = 0;
#pragma unroll
    for (int k = 0; k < CELLS_PER_THREAD; ++k) own += count[t * CELLS_PER_THREAD + k];
    int running = own;
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
        int v = __shfl_up_sync(0xffffffffu, running, o);
        if (lane >= o) running += v;
    }
    if (lane == 31) warp_sum[warp] = running;
    __syncthreads();
    if (warp == 0) {
        int s = warp_sum[lane];
        int total = s;
#pragma unroll
        for (int o = 1; o < 32; o *= 2) {
            int v = __shfl_up_sync(0xffffffffu, total, o);
            if (lane >= o) total += v;
        }
        warp_sum[lane] = total - s;
    }
    __syncthreads();
    int start = warp_sum[warp] + running - own;
#pragma unroll
    for (int k = 0; k < CELLS_PER_THREAD; ++k) {
        int c = count[t * CELLS_PER_THREAD + k];
        count[t * CELLS_PER_THREAD + k] = start;
        start += c;
    }
    __syncthreads();
    for (int c = t; c <= CELLS; c += BUILD_THREADS) first[c] = count[c];
#pragma unroll
    for (int k = 0; k < POINTS_PER_THREAD; ++k) {
        int i = k * BUILD_THREADS + t;
        float4 p = points[i];
        p.w = __int_as_float(i);
        sorted[count[place[k] >> 15] + int(place[k] & 0x7fffu)] = p;
    }
}

// The kept distances stay sorted, the farthest last.
__device__ __forceinline__ void keep(float (&best)[K], float d) {
    if (d < best[K - 1]) {
        best[K - 1] = d;
#pragma unroll
        for (int k = K - 1; k > 0; --k) {
            float a = best[k - 1], b = best[k];
            best[k - 1] = fminf(a, b);
            best[k] = fmaxf(a, b);
        }
    }
}

// LANES threads a point; also moves the point, since the search reads only the sorted copy.
__global__ void __launch_bounds__(QUERY_THREADS) nearest_and_drift(const float4* __restrict__ sorted,
                                                                   const int* __restrict__ first,
                                                                   float4* __restrict__ points,
                                                                   float* __restrict__ distance) {
    int thread = blockIdx.x * QUERY_THREADS + threadIdx.x;
    int s = thread / LANES;
    int lane = thread % LANES;
    unsigned group = ((1u << LANES) - 1u) << (threadIdx.x & 31 & ~(LANES - 1));
    float4 p = sorted[s];
    float best[K];
    float radius = FIRST_RADIUS;
    while (true) {
#pragma unroll
        for (int k = 0; k < K; ++k) best[k] = 1e30f;
        int x0 = coordinate(p.x - radius, LOW_X, NX), x1 = coordinate(p.x + radius, LOW_X, NX);
        int y0 = coordinate(p.y - radius, LOW_Y, NY), y1 = coordinate(p.y + radius, LOW_Y, NY);
        int z0 = coordinate(p.z - radius, LOW_Z, NZ), z1 = coordinate(p.z + radius, LOW_Z, NZ);
        int rows = y1 - y0 + 1;
        int columns = (x1 - x0 + 1) * rows;
        for (int c = lane; c < columns; c += LANES) {
            int dx_cell = c / rows;
            int column = ((x0 + dx_cell) * NY + y0 + (c - dx_cell * rows)) * NZ;
            int end = first[column + z1 + 1];
            for (int j = first[column + z0]; j < end; ++j) {
                float4 q = sorted[j];
                float dx = q.x - p.x, dy = q.y - p.y, dz = q.z - p.z;
                float d = dx * dx + dy * dy + dz * dz;
                if (j != s) keep(best, d);
            }
        }
        // merge the sorted lists of the group's threads
#pragma unroll
        for (int o = 1; o < LANES; o *= 2) {
            float other[K];
#pragma unroll
            for (int k = 0; k < K; ++k) other[k] = __shfl_xor_sync(group, best[k], o);
#pragma unroll
            for (int k = 0; k < K; ++k) best[k] = fminf(best[k], other[K - 1 - k]);
#pragma unroll
            for (int h = K / 2; h > 0; h /= 2)
#pragma unroll
                for (int k = 0; k < K; ++k)
                    if ((k & h) == 0) {
                        float a = best[k], b = best[k + h];
                        best[k] = fminf(a, b);
                        best[k + h] = fmaxf(a, b);
                    }
        }
        // every point within the radius was seen; with K of them inside, they are the nearest
        if (best[K - 1] <= radius * radius * 0.9999f) break;
        if (x0 == 0 && y0 == 0 && z0 == 0 && x1 == NX - 1 && y1 == NY - 1 && z1 == NZ - 1) break;
        radius *= 1.5f;
    }
    if (lane == 0) {
        float sum = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) sum += sqrtf(best[k]);
        float mean = sum / K;
        int i = __float_as_int(p.w);
        distance[i] = mean;
        float scale = 1.0f + 0.001f * (0.05f - mean);
        points[i] = make_float4(p.x * scale, p.y * scale, p.z * scale, 0);
    }
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
    float4* sorted;
    int* first;
    float* distance;
    CHECK(cudaMalloc(&points, POINTS * sizeof(float4)));
    CHECK(cudaMalloc(&sorted, POINTS * sizeof(float4)));
    CHECK(cudaMalloc(&first, (CELLS + 1) * sizeof(int)));
    CHECK(cudaMalloc(&distance, POINTS * sizeof(float)));
    CHECK(cudaMemcpy(points, host.data(), POINTS * sizeof(float4), cudaMemcpyHostToDevice));
    CHECK(cudaFuncSetAttribute(build, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               int(PADDED_CELLS * sizeof(int))));

    auto step = [&]() {
        build<<<1, BUILD_THREADS, PADDED_CELLS * sizeof(int)>>>(points, sorted, first);
        nearest_and_drift<<<POINTS * LANES / QUERY_THREADS, QUERY_THREADS>>>(sorted, first, points,
                                                                            distance);
    };

    for (int i = 0; i < WARMUP; ++i) step();
    CHECK(cudaGetLastError());
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
