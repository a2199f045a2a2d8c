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

__global__ void joint_histogram(const float *__restrict__ fixed, const float *__restrict__ moving,
                                Rigid r, unsigned *__restrict__ hist)
{
    const float half = 0.5f * SIDE;
    const int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = first; i < SIDE * SIDE; i += gridDim.x * blockDim.x) {
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
        atomicAdd(&hist[a * BINS + b], 1u);
    }
}

__global__ void mutual_information(const unsigned *__restrict__ hist, double *__restrict__ score)
{
    __shared__ float rows[BINS];
    __shared__ double sum;
    const unsigned *h = hist + blockIdx.x * CELLS;
    int t = threadIdx.x;
    float row = 0.0f, col = 0.0f, total = 0.0f;
    for (int k = 0; k < BINS; ++k) {
        row += h[t * BINS + k];
        col += h[k * BINS + t];
    }
    rows[t] = row;
    if (t == 0) sum = 0.0;
    __syncthreads();
    for (int k = 0; k < BINS; ++k) total += rows[k];
    float acc = 0.0f;
    for (int k = 0; k < BINS; ++k) {
        float p = h[k * BINS + t];
        if (p > 0.0f) acc += p / total * logf(p * total / (rows[k] * col));
    }
    atomicAdd(&sum, (double)acc);
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
        for (int c = 0; c < CANDIDATES; ++c) {
            float angle = 0.002f * (c % 4 - 1.5f) + 0.001f * sinf(0.3f * iteration);
            Rigid r{cosf(angle), sinf(angle), 4.0f * (c / 4) - 9.0f, 6.0f - 2.0f * (c / 4)};
            joint_histogram<<<132 * 4, 512>>>(fixed, moving, r, hist + c * CELLS);
        }
        mutual_information<<<CANDIDATES, BINS>>>(hist, score);
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
