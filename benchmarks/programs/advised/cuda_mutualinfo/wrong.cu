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

struct Candidates { Rigid r[CANDIDATES]; };

// Blocks (x, candidate). A block counts some of the image's rows in shared memory, then adds up.
constexpr int THREADS = 512, STRIPS = 44;

__global__ void __launch_bounds__(THREADS, 4)
joint_histogram(const float *__restrict__ fixed, const float *__restrict__ moving,
                Candidates candidates, unsigned *__restrict__ hist)
{
    __shared__ unsigned local[CELLS];
    for (int k = threadIdx.x; k < CELLS; k += THREADS) local[k] = 0;
    __syncthreads();
    const Rigid r = candidates.r[blockIdx.y];
    const float half = 0.5f * SIDE;
    unsigned background = 0;
    for (int row = blockIdx.x; row < SIDE; row += STRIPS) {
        const float y = row - half;
#pragma unroll
        for (int part = 0; part < SIDE / THREADS; ++part) {
            int column = part * THREADS + threadIdx.x;
            float x = column - half;
            float u = r.c * x - r.s * y + r.tx + half;
            float v = r.s * x + r.c * y + r.ty + half;
            int iu = floorf(u), iv = floorf(v);
            if (iu < 0 || iv < 0 || iu >= SIDE - 1 || iv >= SIDE - 1) continue;
            float fu = u - iu, fv = v - iv;
            const float *m = moving + iv * SIDE + iu;
            float top = m[0] + fu * (m[1] - m[0]);
            float bottom = m[SIDE] + fu * (m[SIDE + 1] - m[SIDE]);
            float value = top + fv * (bottom - top);
            int a = min((int)(fixed[row * SIDE + column] * BINS), BINS - 1);
            int b = min((int)(value * BINS), BINS - 1);
            int cell = a * BINS + b;
            if (cell == 0) ++background;
            else atomicAdd(&local[cell], 1u);
        }
    }
    background = __reduce_add_sync(0xffffffffu, background);
    if (threadIdx.x % 32 == 0 && background) atomicAdd(&local[0], background);
    __syncthreads();
    unsigned *h = hist + blockIdx.y * CELLS;
    for (int k = threadIdx.x; k < CELLS; k += THREADS)
        if (local[k]) atomicAdd(&h[k], local[k]);
}

// Leaves the histogram empty for the next step.
__global__ void __launch_bounds__(1024)
mutual_information(unsigned *__restrict__ hist, double *__restrict__ score)
{
    __shared__ unsigned cells[BINS][BINS + 1];
    __shared__ float rows[BINS], cols[BINS], whole;
    __shared__ double part[32];
    unsigned *h = hist + blockIdx.x * CELLS;
    const int t = threadIdx.x;
#pragma unroll
    for (int k = t; k < CELLS; k += 1024) {
        cells[k / BINS][k % BINS] = h[k];
        h[k] = 0;
    }
    __syncthreads();
    if (t < BINS) {
        unsigned sum = 0;
#pragma unroll 16
        for (int k = 0; k < BINS; ++k) sum += cells[t][k];
        rows[t] = sum;
    } else if (t < 2 * BINS) {
        unsigned sum = 0;
#pragma unroll 16
        for (int k = 0; k < BINS; ++k) sum += cells[k][t - BINS];
        cols[t - BINS] = sum;
    }
    __syncthreads();
    if (t < 32) {
        float sum = rows[t] + rows[t + 32];
        for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
        if (t == 0) whole = sum;
    }
    __syncthreads();
    const float total = whole;
    double acc = 0.0;
#pragma unroll
    for (int k = t; k < CELLS; k += 1024) {
        float p = cells[k / BINS][k % BINS];
        if (p > 0.0f) acc += p / total * logf(p * total / (rows[k / BINS] * cols[k % BINS]));
    }
    for (int d = 16; d; d /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, d);
    if (t % 32 == 0) part[t / 32] = acc;
    __syncthreads();
    if (t < 32) {
        acc = part[t];
        for (int d = 16; d; d /= 2) acc += __shfl_xor_sync(0xffffffffu, acc, d);
        if (t == 0) score[blockIdx.x] += acc;
    }
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
    check(cudaMemset(hist, 0, CANDIDATES * CELLS * sizeof(unsigned)));
    make_slice<<<pixels / 256, 256>>>(fixed, 0.0f, 0, 11u);
    make_slice<<<pixels / 256, 256>>>(moving, 6.5f, 1, 97u);

    int iteration = 0;
    auto step = [&]() {
        Candidates candidates;
        for (int c = 0; c < CANDIDATES; ++c) {
            float angle = 0.002f * (c % 4 - 1.5f) + 0.001f * sinf(0.3f * iteration);
            candidates.r[c] = {cosf(angle), sinf(angle), 4.0f * (c / 4) - 9.0f, 6.0f - 2.0f * (c / 4)};
        }
        joint_histogram<<<dim3(STRIPS, CANDIDATES), THREADS>>>(fixed, moving, candidates, hist);
        mutual_information<<<CANDIDATES, 1024>>>(hist, score);
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
