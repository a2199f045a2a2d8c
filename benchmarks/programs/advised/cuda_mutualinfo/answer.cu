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

struct Batch { Rigid r[CANDIDATES]; };

constexpr int THREADS = 1024, SPLIT = 22;          // 22 x 12 blocks: two on each of 132 SMs
constexpr int STRIP = 4 * SIDE;                    // pixels a block takes at a time
static_assert(SIDE * SIDE % STRIP == 0 && STRIP % THREADS == 0, "strips");

// Counts in shared memory, in two copies (even and odd lanes); the background, bin (0, 0),
// which is half of all pixels, in a register.
__global__ void __launch_bounds__(THREADS, 2)
joint_histogram(const float *__restrict__ fixed, const float *__restrict__ moving,
                Batch batch, unsigned *__restrict__ hist)
{
    __shared__ unsigned local[2 * CELLS];
    for (int k = threadIdx.x; k < 2 * CELLS; k += THREADS) local[k] = 0u;
    __syncthreads();

    const Rigid r = batch.r[blockIdx.y];
    const float half = 0.5f * SIDE;
    unsigned *mine = local + (threadIdx.x & 1);
    unsigned background = 0u;
    for (int s = blockIdx.x; s < SIDE * SIDE / STRIP; s += SPLIT) {
#pragma unroll 2
        for (int k = threadIdx.x; k < STRIP; k += THREADS) {
            int i = s * STRIP + k;
            float x = i % SIDE - half, y = i / SIDE - half;
            float u = r.c * x - r.s * y + r.tx + half;
            float v = r.s * x + r.c * y + r.ty + half;
            int iu = floorf(u), iv = floorf(v);
            if (iu < 0 || iv < 0 || iu >= SIDE - 1 || iv >= SIDE - 1) continue;
            float fu = u - iu, fv = v - iv;
            const float *m = moving + iv * SIDE + iu;
            float top = m[0] + fu * (m[1] - m[0]);
            float bottom = m[SIDE] + fu * (m[SIDE + 1] - m[SIDE]);
            float value = top + fv * (bottom - top);
            int a = min((int)(fixed[i] * BINS), BINS - 1);
            int b = min((int)(value * BINS), BINS - 1);
            int cell = a * BINS + b;
            if (cell == 0) ++background;
            else atomicAdd(&mine[2 * cell], 1u);
        }
    }
    background = __reduce_add_sync(0xffffffffu, background);
    if (threadIdx.x % 32 == 0 && background) atomicAdd(&local[0], background);
    __syncthreads();

    unsigned *out = hist + blockIdx.y * CELLS;
    for (int k = threadIdx.x; k < CELLS; k += THREADS) {
        unsigned n = local[2 * k] + local[2 * k + 1];
        if (n) atomicAdd(&out[k], n);
    }
}

__global__ void mutual_information(const unsigned *__restrict__ hist, double *__restrict__ score)
{
    __shared__ float h[BINS][BINS + 1], rows[BINS], cols[BINS];
    __shared__ double sum;
    const int t = threadIdx.x;
    for (int k = t; k < CELLS; k += THREADS) h[k / BINS][k % BINS] = hist[blockIdx.x * CELLS + k];
    if (t == 0) sum = 0.0;
    __syncthreads();
    if (t < BINS) {
        float row = 0.0f;
        for (int k = 0; k < BINS; ++k) row += h[t][k];
        rows[t] = row;
    } else if (t < 2 * BINS) {
        float col = 0.0f;
        for (int k = 0; k < BINS; ++k) col += h[k][t - BINS];
        cols[t - BINS] = col;
    }
    __syncthreads();
    float total = rows[t % 32] + rows[t % 32 + 32];
    for (int d = 16; d; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
    float acc = 0.0f;
    for (int k = t; k < CELLS; k += THREADS) {
        float p = h[k / BINS][k % BINS];
        if (p > 0.0f) acc += p / total * logf(p * total / (rows[k / BINS] * cols[k % BINS]));
    }
    for (int d = 16; d; d /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, d);
    if (t % 32 == 0) atomicAdd(&sum, (double)acc);
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
    check(cudaMemset(score, 0, CANDIDATES * sizeof(double)));
    make_slice<<<pixels / 256, 256>>>(fixed, 0.0f, 0, 11u);
    make_slice<<<pixels / 256, 256>>>(moving, 6.5f, 1, 97u);

    int iteration = 0;
    auto step = [&]() {
        check(cudaMemsetAsync(hist, 0, CANDIDATES * CELLS * sizeof(unsigned)));
        Batch batch;
        for (int c = 0; c < CANDIDATES; ++c) {
            float angle = 0.002f * (c % 4 - 1.5f) + 0.001f * sinf(0.3f * iteration);
            batch.r[c] = Rigid{cosf(angle), sinf(angle), 4.0f * (c / 4) - 9.0f, 6.0f - 2.0f * (c / 4)};
        }
        joint_histogram<<<dim3(SPLIT, CANDIDATES), THREADS>>>(fixed, moving, batch, hist);
        mutual_information<<<CANDIDATES, THREADS>>>(hist, score);
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
