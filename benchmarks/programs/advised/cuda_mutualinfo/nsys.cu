// Rigid registration of two brain slices by mutual information.
// One step scores a batch of candidate transforms around a moving centre.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

static void check(cudaError_t err)
{
    if (err == cudaSuccess) return;
    fprintf(stderr, "CUDA: %s\n", cudaGetErrorString(err));
    exit(1);
}

constexpr int SIDE = 1536, BINS = 64, CELLS = BINS * BINS, CANDIDATES = 12;

__device__ float tissue(float x, float y)
{
    float r = sqrtf(x * x + 1.4f * y * y);
    if (r > 0.85f) return 0.0f;
    if (r > 0.78f) return 0.95f;
    float folds = sinf(21.0f * x + 5.0f * sinf(9.0f * y)) * cosf(17.0f * y - 3.0f * x);
    return 0.45f + 0.18f * folds;
}

__global__ void make_slice(float *img, float shift, int modality, unsigned seed)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= SIDE * SIDE) return;
    float x = (i % SIDE + shift) * (2.0f / SIDE) - 1.0f;
    float y = (i / SIDE - shift) * (2.0f / SIDE) - 1.0f;
    unsigned k = (i + seed) * 2654435761u;
    k = (k ^ (k >> 15)) * 2246822519u;
    float noise = (k >> 16) / 65536.0f - 0.5f, t = tissue(x, y);
    if (modality == 1 && t > 0.0f) t = 1.0f - 0.8f * t * t;
    img[i] = t > 0.0f ? fminf(fmaxf(t + 0.04f * noise, 0.0f), 1.0f) : 0.0f;
}

// The bins of the fixed slice are the same in every step.
__global__ void make_bins(const float *__restrict__ fixed, unsigned char *__restrict__ bins)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < SIDE * SIDE) bins[i] = min((int)(fixed[i] * BINS), BINS - 1);
}

constexpr int ANGLES = 4, SHIFTS = CANDIDATES / ANGLES, THREADS = 768, PARTS = 66;
constexpr int TILE_W = 64, TILE_H = THREADS / TILE_W, TILES_X = SIDE / TILE_W, TILES = TILES_X * (SIDE / TILE_H);
static_assert(SIDE % TILE_W == 0 && SIDE % TILE_H == 0, "tiles");

struct Rotations { float c[ANGLES], s[ANGLES]; };

// blockIdx.y: one angle with its three shifts; blockIdx.x: a part of the tiles. Histograms live in
// shared memory; the last block of an angle computes its scores and clears the global histograms.
__global__ void __launch_bounds__(THREADS, 2)
score_angle(const unsigned char *__restrict__ bins, const float *__restrict__ moving, Rotations rot,
            unsigned *hist, unsigned *done, double *score)
{
    extern __shared__ unsigned local[];  // SHIFTS * CELLS
    __shared__ unsigned rows[SHIFTS][BINS], cols[SHIFTS][BINS], total[SHIFTS];
    __shared__ double sum[SHIFTS];
    __shared__ bool last;
    const int t = threadIdx.x, angle = blockIdx.y;
    for (int i = t; i < SHIFTS * CELLS; i += THREADS) local[i] = 0;
    __syncthreads();

    const float half = 0.5f * SIDE, magic = 12582912.0f;
    const float c = rot.c[angle], s = rot.s[angle];
    unsigned background[SHIFTS] = {};
    for (int tile = blockIdx.x; tile < TILES; tile += PARTS) {
        int px = tile % TILES_X * TILE_W + t % TILE_W;
        int py = tile / TILES_X * TILE_H + t / TILE_W;
        int a = bins[py * SIDE + px];
        float x = px - half, y = py - half;
        float ru = c * x - s * y, rv = s * x + c * y;
        float m00[SHIFTS], m01[SHIFTS], m10[SHIFTS], m11[SHIFTS], fu[SHIFTS], fv[SHIFTS];
        bool inside[SHIFTS];
#pragma unroll
        for (int k = 0; k < SHIFTS; ++k) {
            float u = ru + (4.0f * k - 9.0f) + half;
            float v = rv + (6.0f - 2.0f * k) + half;
            float bu = __fadd_rd(u, magic), bv = __fadd_rd(v, magic);  // floor, in the low bits
            int iu = __float_as_int(bu) - 0x4B400000, iv = __float_as_int(bv) - 0x4B400000;
            fu[k] = u - (bu - magic);
            fv[k] = v - (bv - magic);
            inside[k] = (unsigned)iu < SIDE - 1 && (unsigned)iv < SIDE - 1;
            const float *m = moving + (inside[k] ? iv * SIDE + iu : 0);
            m00[k] = __ldg(m);
            m01[k] = __ldg(m + 1);
            m10[k] = __ldg(m + SIDE);
            m11[k] = __ldg(m + SIDE + 1);
        }
#pragma unroll
        for (int k = 0; k < SHIFTS; ++k) {
            float top = m00[k] + fu[k] * (m01[k] - m00[k]);
            float bottom = m10[k] + fu[k] * (m11[k] - m10[k]);
            float value = top + fv[k] * (bottom - top);
            int b = __float_as_int(__fmaf_rd(value, (float)BINS, magic)) - 0x4B400000;
            int cell = a * BINS + min(max(b, 0), BINS - 1);
            background[k] += inside[k] && cell == 0;
            if (inside[k] && cell != 0) atomicAdd(&local[k * CELLS + cell], 1u);
        }
    }
#pragma unroll
    for (int k = 0; k < SHIFTS; ++k) {
        unsigned n = __reduce_add_sync(0xffffffffu, background[k]);
        if (t % 32 == 0 && n) atomicAdd(&local[k * CELLS], n);
    }
    __syncthreads();
    unsigned *mine = hist + angle * SHIFTS * CELLS;
    for (int i = t; i < SHIFTS * CELLS; i += THREADS)
        if (unsigned n = local[i]) atomicAdd(&mine[i], n);
    __threadfence();
    __syncthreads();
    if (t == 0) {
        last = atomicAdd(&done[angle], 1u) == PARTS - 1;
        if (last) done[angle] = 0;
    }
    if (t < SHIFTS) { total[t] = 0; sum[t] = 0.0; }
    __syncthreads();
    if (!last) return;
    __threadfence();

    for (int i = t; i < SHIFTS * CELLS; i += THREADS) {
        local[i] = __ldcg(&mine[i]);
        mine[i] = 0;
    }
    __syncthreads();
    if (t < SHIFTS * BINS) {
        int k = t / BINS, r = t % BINS;
        unsigned n = 0;
        for (int j = 0; j < BINS; ++j) n += local[k * CELLS + r * BINS + (j + r) % BINS];
        rows[k][r] = n;
        n = __reduce_add_sync(0xffffffffu, n);
        if (t % 32 == 0) atomicAdd(&total[k], n);
    } else if (t < 2 * SHIFTS * BINS) {
        int k = t / BINS - SHIFTS, r = t % BINS;
        unsigned n = 0;
        for (int j = 0; j < BINS; ++j) n += local[k * CELLS + j * BINS + r];
        cols[k][r] = n;
    }
    __syncthreads();
    constexpr int GROUP = THREADS / SHIFTS;
    int k = t / GROUP;
    float all = total[k], acc = 0.0f;
    for (int i = t % GROUP; i < CELLS; i += GROUP) {
        float p = local[k * CELLS + i];
        if (p > 0.0f) acc += p / all * logf(p * all / ((float)rows[k][i / BINS] * (float)cols[k][i % BINS]));
    }
    for (int d = 16; d; d >>= 1) acc += __shfl_xor_sync(0xffffffffu, acc, d);
    if (t % 32 == 0) atomicAdd(&sum[k], (double)acc);
    __syncthreads();
    if (t < SHIFTS) score[t * ANGLES + angle] += sum[t];
}

int main()
{
    const int pixels = SIDE * SIDE, blocks = 10, steps = 10;
    float *fixed, *moving;
    unsigned *hist, *done;
    unsigned char *bins;
    double *score, sum = 0.0, host[CANDIDATES];
    check(cudaMalloc(&fixed, pixels * sizeof(float)));
    check(cudaMalloc(&moving, pixels * sizeof(float)));
    check(cudaMalloc(&hist, CANDIDATES * CELLS * sizeof(unsigned)));
    check(cudaMalloc(&done, ANGLES * sizeof(unsigned)));
    check(cudaMalloc(&bins, pixels));
    check(cudaMalloc(&score, CANDIDATES * sizeof(double)));
    check(cudaMemset(score, 0, CANDIDATES * sizeof(double)));
    make_slice<<<pixels / 256, 256>>>(fixed, 0.0f, 0, 11u);
    make_slice<<<pixels / 256, 256>>>(moving, 6.5f, 1, 97u);

    make_bins<<<pixels / 256, 256>>>(fixed, bins);
    check(cudaMemset(hist, 0, CANDIDATES * CELLS * sizeof(unsigned)));
    check(cudaMemset(done, 0, ANGLES * sizeof(unsigned)));
    const int shared = SHIFTS * CELLS * sizeof(unsigned);
    check(cudaFuncSetAttribute(score_angle, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));

    int iteration = 0;
    auto step = [&]() {
        Rotations rot;
        for (int a = 0; a < ANGLES; ++a) {
            float angle = 0.002f * (a - 1.5f) + 0.001f * sinf(0.3f * iteration);
            rot.c[a] = cosf(angle);
            rot.s[a] = sinf(angle);
        }
        score_angle<<<dim3(PARTS, ANGLES), THREADS, shared>>>(bins, moving, rot, hist, done, score);
        ++iteration;
    };

    for (int s = 0; s < 8; ++s) step();
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());

    std::vector<double> times;
    for (int b = 0; b < blocks; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int s = 0; s < steps; ++s) step();
        check(cudaGetLastError());
        check(cudaDeviceSynchronize());
        std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - t0;
        times.push_back(ms.count() / steps);
    }
    std::sort(times.begin(), times.end());

    check(cudaMemcpy(host, score, sizeof(host), cudaMemcpyDeviceToHost));
    for (double s : host) sum += s;
    printf("{\"program\": \"cuda_mutualinfo\", \"steps\": %d, \"us\": %.9g, \"result\": [%.9g]}\n",
           iteration, 1e3 * times[blocks / 2], sum / iteration);
    return 0;
}
