// The eight nearest neighbours of every point of a cloud, and the cloud's local density.
#include <cstdio>
#include <cstdlib>
#include <chrono>
#include <vector>
#include <algorithm>
#include <cmath>

constexpr int POINTS = 16384;
constexpr int K = 8;
constexpr int THREADS = 128;
// A grid of cells over the cloud; what lies outside belongs to the cell at the border.
constexpr int GX = 22, GY = 22, GZ = 4;
constexpr int CELLS = GX * GY * GZ;
constexpr int CAP = 32;                     // points kept in a cell; the rest goes to a list
constexpr int SLOTS = CELLS * CAP + POINTS; // the list follows the cells
constexpr int COUNTS = CELLS + 1;           // the last one is the list's
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

__device__ __forceinline__ int along(float v, float low, float scale, int cells) {
    return min(max(int(floorf((v - low) * scale)), 0), cells - 1);
}
__device__ __forceinline__ int cell_x(float v) { return along(v, -0.5f, float(GX), GX); }
__device__ __forceinline__ int cell_y(float v) { return along(v, -0.5f, float(GY), GY); }
__device__ __forceinline__ int cell_z(float v) { return along(v, -0.1f, GZ * 5.0f, GZ); }

// p.w holds the point's number
__device__ __forceinline__ void insert_point(float4 p, int* count, float4* slot) {
    int c = (cell_z(p.z) * GY + cell_y(p.y)) * GX + cell_x(p.x);
    int k = atomicAdd(&count[c], 1);
    if (k < CAP) {
        slot[c * CAP + k] = p;
    } else {
        int o = atomicAdd(&count[CELLS], 1);
        slot[CELLS * CAP + o] = p;
    }
}

__global__ void bin(const float4* points, int* count, float4* slot) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 p = points[i];
    p.w = __int_as_float(i);
    insert_point(p, count, slot);
}

__device__ __forceinline__ void consider(float4 q, float4 p, float (&best)[K]) {
    float dx = q.x - p.x, dy = q.y - p.y, dz = q.z - p.z;
    float d = dx * dx + dy * dy + dz * dz;
    if (d < best[K - 1] && __float_as_int(q.w) != __float_as_int(p.w)) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            float low = fminf(best[k], d);
            d = fmaxf(best[k], d);
            best[k] = low;
        }
    }
}

// Takes the K smallest of the lanes' sorted lists; lane k keeps the k-th; returns the K-th.
__device__ __forceinline__ float take(float (&best)[K], int lane, float& mine) {
    unsigned m = 0;
    mine = 1e30f;
#pragma unroll
    for (int r = 0; r < K; ++r) {
        m = __reduce_min_sync(0xffffffffu, __float_as_uint(best[0]));
        unsigned who = __ballot_sync(0xffffffffu, __float_as_uint(best[0]) == m);
        if (lane == __ffs(who) - 1) {
#pragma unroll
            for (int k = 0; k + 1 < K; ++k) best[k] = best[k + 1];
            best[K - 1] = 1e30f;
        }
        if (lane == r) mine = __uint_as_float(m);
    }
    return __uint_as_float(m);
}

// One warp completes the search for p. The cells [x0,x1] x [y0,y1] x [z0,z1] were looked at.
__device__ __forceinline__ void finish(float4 p, float (&best)[K], int lane, int x0, int x1, int y0,
                                       int y1, int z0, int z1, const int* __restrict__ count,
                                       const float4* __restrict__ slot, int* next_count,
                                       float4* next_slot, float4* points, float* distance) {
    float mine;
    float far = take(best, lane, mine);
    float r = sqrtf(far) * 1.0001f + 1e-6f;
    int lx = cell_x(p.x - r), hx = cell_x(p.x + r);
    int ly = cell_y(p.y - r), hy = cell_y(p.y + r);
    int lz = cell_z(p.z - r), hz = cell_z(p.z + r);
    if (lx < x0 || hx > x1 || ly < y0 || hy > y1 || lz < z0 || hz > z1) {
        best[0] = mine;
#pragma unroll
        for (int k = 1; k < K; ++k) best[k] = 1e30f;
        int nx = hx - lx + 1, ny = hy - ly + 1, total = nx * ny * (hz - lz + 1);
        for (int base = 0; base < total; base += 32) {
            int idx = base + lane, cell = 0;
            bool need = false;
            if (idx < total) {
                int x = lx + idx % nx, y = ly + idx / nx % ny, z = lz + idx / (nx * ny);
                need = x < x0 || x > x1 || y < y0 || y > y1 || z < z0 || z > z1;
                cell = (z * GY + y) * GX + x;
            }
            unsigned mask = __ballot_sync(0xffffffffu, need);
            while (mask) {
                float4 q[4];
                int n[4];
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    int c = __shfl_sync(0xffffffffu, cell, mask ? __ffs(mask) - 1 : 0);
                    n[u] = mask ? min(__ldg(&count[c]), CAP) : 0;
                    q[u] = __ldg(&slot[c * CAP + lane]);
                    mask &= mask - 1;
                }
#pragma unroll
                for (int u = 0; u < 4; ++u)
                    if (lane < n[u]) consider(q[u], p, best);
                __syncwarp();
            }
        }
        take(best, lane, mine);
    }
    float sum = lane < K ? sqrtf(mine) : 0.0f;
    sum += __shfl_xor_sync(0xffffffffu, sum, 4);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (lane == 0) {
        int i = __float_as_int(p.w);
        float mean = sum / K;
        distance[i] = mean;
        // drift, and into the next step's grid
        float s = 1.0f + 0.001f * (0.05f - mean);
        float4 moved = make_float4(p.x * s, p.y * s, p.z * s, 0);
        points[i] = moved;
        moved.w = p.w;
        insert_point(moved, next_count, next_slot);
    }
    __syncwarp();
}

// A block per cell, and a last one for the points of the list (usually none).
__global__ void __launch_bounds__(THREADS) nearest(const int* __restrict__ count,
                                                   const float4* __restrict__ slot,
                                                   int* next_count, float4* next_slot,
                                                   int* clear_count, float4* points,
                                                   float* distance) {
    __shared__ float4 near[27 * CAP];
    __shared__ int first[28];
    __shared__ int cells[27];
    int cell = blockIdx.x;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) clear_count[cell] = 0;
    int listed = __ldg(&count[CELLS]);
    const float4* list = slot + CELLS * CAP;

    if (cell == CELLS) {
        for (int k = warp; k < listed; k += THREADS / 32) {
            float4 p = __ldg(&list[k]);
            float best[K];
#pragma unroll
            for (int j = 0; j < K; ++j) best[j] = 1e30f;
            for (int j = lane; j < listed; j += 32) consider(__ldg(&list[j]), p, best);
            __syncwarp();
            finish(p, best, lane, GX, -1, GY, -1, GZ, -1, count, slot, next_count, next_slot,
                   points, distance);
        }
        return;
    }

    int cx = cell % GX, cy = cell / GX % GY, cz = cell / (GX * GY);
    if (warp == 0) {
        int n = 0, c = 0;
        if (lane < 27) {
            int x = cx + lane % 3 - 1, y = cy + lane / 3 % 3 - 1, z = cz + lane / 9 - 1;
            if (x >= 0 && x < GX && y >= 0 && y < GY && z >= 0 && z < GZ) {
                c = (z * GY + y) * GX + x;
                n = min(__ldg(&count[c]), CAP);
            }
        }
        int upto = n;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(0xffffffffu, upto, d);
            if (lane >= d) upto += other;
        }
        if (lane < 27) {
            cells[lane] = c;
            first[lane] = upto - n;
        }
        if (lane == 26) first[27] = upto;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 7; ++j) {
        int c = warp + 4 * j;
        if (c < 27) {
            int at = first[c];
            if (lane < first[c + 1] - at) near[at + lane] = __ldg(&slot[cells[c] * CAP + lane]);
        }
    }
    __syncthreads();
    int total = first[27];
    for (int k = first[13] + warp; k < first[14]; k += THREADS / 32) {
        float4 p = near[k];
        float best[K];
#pragma unroll
        for (int j = 0; j < K; ++j) best[j] = 1e30f;
        for (int j = lane; j < total; j += 32) consider(near[j], p, best);
        for (int j = lane; j < listed; j += 32) consider(__ldg(&list[j]), p, best);
        __syncwarp();
        finish(p, best, lane, max(cx - 1, 0), min(cx + 1, GX - 1), max(cy - 1, 0),
               min(cy + 1, GY - 1), max(cz - 1, 0), min(cz + 1, GZ - 1), count, slot, next_count,
               next_slot, points, distance);
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
    float* distance;
    CHECK(cudaMalloc(&points, POINTS * sizeof(float4)));
    CHECK(cudaMalloc(&distance, POINTS * sizeof(float)));
    CHECK(cudaMemcpy(points, host.data(), POINTS * sizeof(float4), cudaMemcpyHostToDevice));

    // three grids in turn: one read, one filled with the moved points, one whose counts are cleared
    int* counts;
    float4* slots;
    CHECK(cudaMalloc(&counts, 3 * COUNTS * sizeof(int)));
    CHECK(cudaMalloc(&slots, 3 * size_t(SLOTS) * sizeof(float4)));
    CHECK(cudaMemset(counts, 0, 3 * COUNTS * sizeof(int)));
    CHECK(cudaMemset(slots, 0, 3 * size_t(SLOTS) * sizeof(float4)));
    bin<<<POINTS / 256, 256>>>(points, counts, slots);
    CHECK(cudaGetLastError());

    int done = 0;
    auto step = [&]() {
        int now = done % 3, next = (done + 1) % 3, clear = (done + 2) % 3;
        nearest<<<CELLS + 1, THREADS>>>(counts + now * COUNTS, slots + size_t(now) * SLOTS,
                                        counts + next * COUNTS, slots + size_t(next) * SLOTS,
                                        counts + clear * COUNTS, points, distance);
        ++done;
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
