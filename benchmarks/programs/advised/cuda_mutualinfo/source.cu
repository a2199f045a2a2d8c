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

struct Rigid { float c, s, tx, ty; };

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

// Candidates scored by one block: their histograms lie side by side in shared memory.
constexpr int GROUP = 6, TILE = 32, TILES = SIDE / TILE, TILE_THREADS = TILE * TILE;
constexpr int SHARED_BYTES = GROUP * CELLS * sizeof(unsigned);
static_assert(SIDE % TILE == 0 && CANDIDATES % GROUP == 0, "tiling");

struct Batch { Rigid r[CANDIDATES]; };

__global__ void __launch_bounds__(TILE_THREADS, 2)
joint_histogram(const float *__restrict__ fixed, const float *__restrict__ moving,
                const __grid_constant__ Batch batch, unsigned *__restrict__ hist)
{
    extern __shared__ uint4 storage[];
    unsigned *local = reinterpret_cast<unsigned *>(storage);
    const int tid = threadIdx.x, base = blockIdx.y * GROUP;
    for (int k = tid; k < GROUP * CELLS / 4; k += TILE_THREADS) storage[k] = make_uint4(0, 0, 0, 0);
    __syncthreads();

    const float half = 0.5f * SIDE;
    const float magic = 12582912.0f, whole = 8388608.0f;  // 1.5 * 2^23 and 2^23
    unsigned background[GROUP] = {};  // cell (0, 0) holds about half of all pixels
    for (int tile = blockIdx.x; tile < TILES * TILES; tile += gridDim.x) {
        const int px = tile % TILES * TILE + tid % TILE;
        const int py = tile / TILES * TILE + tid / TILE;
        const float x = px - half, y = py - half;
        const int a = min((int)(fixed[py * SIDE + px] * BINS), BINS - 1) * BINS;
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {
            const Rigid &r = batch.r[base + g];
            float u = r.c * x - r.s * y + r.tx + half;
            float v = r.s * x + r.c * y + r.ty + half;
            // floor by rounding down at the magic number's unit, without conversions
            float mu = __fadd_rd(u, magic), mv = __fadd_rd(v, magic);
            int iu = __float_as_int(mu) - 0x4B400000, iv = __float_as_int(mv) - 0x4B400000;
            if ((unsigned)iu >= SIDE - 1 || (unsigned)iv >= SIDE - 1) continue;
            float fu = u - __fsub_rn(mu, magic), fv = v - __fsub_rn(mv, magic);
            const float *m = moving + iv * SIDE + iu;
            float top = m[0] + fu * (m[1] - m[0]);
            float bottom = m[SIDE] + fu * (m[SIDE + 1] - m[SIDE]);
            float value = top + fv * (bottom - top);
            int b = __float_as_int(__fmaf_rd(value, (float)BINS, whole)) - 0x4B000000;
            int cell = a + max(min(b, BINS - 1), 0);
            if (cell == 0) ++background[g];
            else atomicAdd(&local[g * CELLS + cell], 1u);
        }
    }
#pragma unroll
    for (int g = 0; g < GROUP; ++g) {
        unsigned n = __reduce_add_sync(0xffffffffu, background[g]);
        if (tid % 32 == 0 && n) atomicAdd(&local[g * CELLS], n);
    }
    __syncthreads();
    unsigned *target = hist + base * CELLS;
    for (int k = tid; k < GROUP * CELLS; k += TILE_THREADS)
        if (unsigned n = local[k]) atomicAdd(&target[k], n);
}

// Also clears the histograms for the next step. One block of CELLS / 4 threads per candidate.
__global__ void __launch_bounds__(CELLS / 4)
mutual_information(unsigned *__restrict__ hist, double *__restrict__ score)
{
    __shared__ unsigned rows[BINS], cols[BINS], all;
    __shared__ double sum;
    const int t = threadIdx.x, lane = t % 32, i = t / 16, j = t % 16 * 4;
    uint4 *cells = reinterpret_cast<uint4 *>(hist + blockIdx.x * CELLS) + t;
    const uint4 h = *cells;
    *cells = make_uint4(0, 0, 0, 0);
    if (t < BINS) cols[t] = 0;
    if (t == 0) { sum = 0.0; all = 0; }
    __syncthreads();
    unsigned n[4] = {h.x, h.y, h.z, h.w};
    unsigned row = n[0] + n[1] + n[2] + n[3];
    for (int d = 8; d; d /= 2) row += __shfl_xor_sync(0xffffffffu, row, d);
    if (t % 16 == 0) {
        rows[i] = row;
        atomicAdd(&all, row);
    }
    for (int k = 0; k < 4; ++k) {
        unsigned pair = n[k] + __shfl_xor_sync(0xffffffffu, n[k], 16);
        if (lane < 16 && pair) atomicAdd(&cols[j + k], pair);
    }
    __syncthreads();
    const float total = all, r = rows[i];
    float acc = 0.0f;
    for (int k = 0; k < 4; ++k) {
        float p = n[k];
        if (p > 0.0f) acc += p / total * logf(p * total / (r * (float)cols[j + k]));
    }
    for (int d = 16; d; d /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, d);
    if (lane == 0) atomicAdd(&sum, (double)acc);
    __syncthreads();
    if (t == 0) score[blockIdx.x] += sum;
}

int main()
{
    const int pixels = SIDE * SIDE, blocks = 10, steps = 10;
    float *fixed, *moving;
    unsigned *hist;
    double *score, sum = 0.0, host[CANDIDATES];
    check(cudaMalloc(&fixed, pixels * sizeof(float)));
    check(cudaMalloc(&moving, pixels * sizeof(float)));
    check(cudaMalloc(&hist, CANDIDATES * CELLS * sizeof(unsigned)));
    check(cudaMalloc(&score, CANDIDATES * sizeof(double)));
    check(cudaMemset(hist, 0, CANDIDATES * CELLS * sizeof(unsigned)));
    check(cudaFuncSetAttribute(joint_histogram, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               SHARED_BYTES));
    check(cudaMemset(score, 0, CANDIDATES * sizeof(double)));
    make_slice<<<pixels / 256, 256>>>(fixed, 0.0f, 0, 11u);
    make_slice<<<pixels / 256, 256>>>(moving, 6.5f, 1, 97u);

    int iteration = 0;
    auto step = [&]() {
        Batch batch;
        for (int c = 0; c < CANDIDATES; ++c) {
            float angle = 0.002f * (c % 4 - 1.5f) + 0.001f * sinf(0.3f * iteration);
            batch.r[c] = Rigid{cosf(angle), sinf(angle), 4.0f * (c / 4) - 9.0f, 6.0f - 2.0f * (c / 4)};
        }
        joint_histogram<<<dim3(132, CANDIDATES / GROUP), TILE_THREADS, SHARED_BYTES>>>(
            fixed, moving, batch, hist);
        mutual_information<<<CANDIDATES, CELLS / 4>>>(hist, score);
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
