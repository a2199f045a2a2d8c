// Rigid alignment of two brain volumes by mutual information.
//
// Coordinate search over integer shifts: each step scores the six neighbours of
// the current shift and moves to the best one (or stays).  The score is the
// mutual information of the joint histogram, 64 x 64 bins.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define OK(expr)                                                              \
    do {                                                                      \
        cudaError_t e = (expr);                                               \
        if (e != cudaSuccess) {                                               \
            fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorString(e)); \
            exit(1);                                                          \
        }                                                                     \
    } while (0)

constexpr int N = 256;     // voxels along each axis
constexpr int BINS = 64;
constexpr int CELLS = BINS * BINS;

typedef unsigned char voxel;
struct Shift { int x, y, z; };

__device__ unsigned mix(unsigned h) {
    h ^= h >> 16; h *= 0x7feb352du;
    h ^= h >> 15; h *= 0x846ca68bu;
    return h ^ (h >> 16);
}

// An ellipsoidal head with folded tissue in air; `modality` flips the contrast.
__global__ void phantom(voxel* vol, Shift off, int modality) {
    int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
    float u = (x - off.x - N / 2) / (0.44f * N), v = (y - off.y - N / 2) / (0.40f * N),
          w = (z - off.z - N / 2) / (0.42f * N);
    float rho = u * u + v * v + w * w;
    unsigned r = mix((z * N + y) * N + x + 77777u * modality);
    float value = float(r & 3u);               // air: sensor floor only
    if (rho < 1.0f) {
        float fold = __sinf(14 * u + 3 * v) * __sinf(11 * v - 4 * w) * __sinf(9 * w + 2 * u);
        float tissue = 0.5f + 0.35f * fold;
        if (rho > 0.85f) tissue = 0.95f;       // skull
        if (modality) tissue = 1.0f - 0.8f * tissue;
        value = 20.0f + 210.0f * tissue + float(r % 13u);
    }
    vol[(size_t(z) * N + y) * N + x] = voxel(fminf(fmaxf(value, 0.0f), 255.0f));
}

// One block walks over image rows; a thread per voxel of the row.
__global__ void joint_histogram(const voxel* __restrict__ fixed,
                                const voxel* __restrict__ moving, Shift s,
                                unsigned* __restrict__ hist) {
    int x = threadIdx.x, mx = x + s.x;
    for (int row = blockIdx.x; row < N * N; row += gridDim.x) {
        int y = row % N, z = row / N;
        int my = y + s.y, mz = z + s.z;
        if (mx < 0 || mx >= N || my < 0 || my >= N || mz < 0 || mz >= N) continue;
        unsigned a = fixed[size_t(row) * N + x] >> 2;
        unsigned b = moving[(size_t(mz) * N + my) * N + mx] >> 2;
        atomicAdd(&hist[a * BINS + b], 1u);
    }
}

// Single block: marginals, then the sum over cells.
__global__ void mutual_information(const unsigned* hist, float* score) {
    __shared__ float pa[BINS], pb[BINS], part[256];
    __shared__ float total;
    int t = threadIdx.x;
    if (t < BINS) {
        float rowsum = 0, colsum = 0;
        for (int k = 0; k < BINS; ++k) {
            rowsum += hist[t * BINS + k];
            colsum += hist[k * BINS + t];
        }
        pa[t] = rowsum;
        pb[t] = colsum;
    }
    __syncthreads();
    if (t == 0) {
        total = 0;
        for (int k = 0; k < BINS; ++k) total += pa[k];
    }
    __syncthreads();
    float mi = 0;
    for (int c = t; c < CELLS; c += blockDim.x) {
        float p = hist[c] / total;
        if (p > 0) mi += p * logf(p * total * total / (pa[c / BINS] * pb[c % BINS]));
    }
    part[t] = mi;
    for (int half = 128; half > 0; half >>= 1) {
        __syncthreads();
        if (t < half) part[t] += part[t + half];
    }
    if (t == 0) *score = part[0];
}

int main() {
    size_t bytes = size_t(N) * N * N;
    voxel *fixed, *moving;
    unsigned* hist;
    float* d_scores;
    OK(cudaMalloc(&fixed, bytes));
    OK(cudaMalloc(&moving, bytes));
    OK(cudaMalloc(&hist, 6 * CELLS * sizeof(unsigned)));
    OK(cudaMalloc(&d_scores, 6 * sizeof(float)));
    phantom<<<dim3(N, N), N>>>(fixed, Shift{0, 0, 0}, 0);
    phantom<<<dim3(N, N), N>>>(moving, Shift{6, -4, 5}, 1);
    OK(cudaDeviceSynchronize());

    Shift at{0, 0, 0};
    float best = -1.0f;
    int steps = 0;
    auto search_step = [&] {
        Shift cand[6];
        for (int k = 0; k < 6; ++k) {
            int d = (k & 1) ? 1 : -1;
            cand[k] = at;
            (k < 2 ? cand[k].x : k < 4 ? cand[k].y : cand[k].z) += d;
        }
        OK(cudaMemsetAsync(hist, 0, 6 * CELLS * sizeof(unsigned)));
        for (int k = 0; k < 6; ++k) {
            joint_histogram<<<132 * 6, N>>>(fixed, moving, cand[k], hist + k * CELLS);
            mutual_information<<<1, 256>>>(hist + k * CELLS, d_scores + k);
        }
        float scores[6];
        OK(cudaMemcpy(scores, d_scores, sizeof scores, cudaMemcpyDeviceToHost));
        int k = int(std::max_element(scores, scores + 6) - scores);
        if (scores[k] > best) {
            best = scores[k];
            at = cand[k];
        }
        ++steps;
    };

    for (int i = 0; i < 6; ++i) search_step();
    std::vector<double> us;
    for (int b = 0; b < 6; ++b) {
        auto t0 = std::chrono::steady_clock::now();
        for (int i = 0; i < 5; ++i) search_step();
        auto t1 = std::chrono::steady_clock::now();
        us.push_back(std::chrono::duration<double, std::micro>(t1 - t0).count() / 5);
    }
    std::sort(us.begin(), us.end());
    printf("shift found: %d %d %d\n", at.x, at.y, at.z);
    printf("{\"program\": \"cuda_registration\", \"steps\": %d, \"us\": %.2f, "
           "\"result\": [%.6f, %d, %d, %d]}\n",
           steps, us[us.size() / 2], best, at.x, at.y, at.z);
    return 0;
}
