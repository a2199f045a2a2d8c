// Denoising of multispectral papyrus scans: 32 x 32 block DCT, soft threshold, inverse DCT.
//
// The ink of carbonised rolls is faint; a soft threshold in the DCT domain keeps the strokes
// and removes the grain of the fibres.  One step cleans one spectral plane.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                  \
    do {                                                                             \
        cudaError_t err_ = (call);                                                   \
        if (err_ != cudaSuccess) {                                                   \
            std::fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(err_)); \
            std::exit(1);                                                            \
        }                                                                            \
    } while (0)

constexpr int kSide = 8192;
constexpr int kBlock = 32;      // side of a DCT block
constexpr int kRows = 8;        // rows of threads; each thread owns kBlock / kRows pixels
constexpr int kWarmup = 6, kBlocks = 8, kPerBlock = 5;
constexpr float kThreshold = 0.35f;

__constant__ float c_cosines[kBlock * kBlock];

__global__ void makePlane(float* plane) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    unsigned v = (y * 73856093U) ^ (x * 19349663U);
    v ^= v >> 16; v *= 0x7feb352dU; v ^= v >> 15; v *= 0x846ca68bU; v ^= v >> 16;
    float grain = v * (1.0f / 4294967296.0f) - 0.5f;
    float fibre = 0.1f * __sinf(0.9f * x) + 0.08f * __sinf(0.013f * x * (y & 1023) * 0.01f);
    bool stroke = ((x / 37 + y / 53) % 11 == 0) && ((x ^ y) & 64);
    plane[size_t(y) * kSide + x] = 0.6f + fibre + 0.25f * grain - (stroke ? 0.35f : 0.0f);
}

__global__ void __launch_bounds__(kBlock* kRows)
cleanBlocks(const float* __restrict__ plane, float* __restrict__ cleaned) {
    __shared__ float basis[kBlock][kBlock];    // basis[u][k]
    __shared__ float tile[kBlock][kBlock];
    __shared__ float work[kBlock][kBlock];

    const int lane = threadIdx.x, row0 = threadIdx.y;
    const size_t origin = size_t(blockIdx.y) * kBlock * kSide + size_t(blockIdx.x) * kBlock;
    for (int r = row0; r < kBlock; r += kRows) {
        basis[r][lane] = c_cosines[r * kBlock + lane];
        tile[r][lane] = plane[origin + size_t(r) * kSide + lane];
    }
    __syncthreads();

    // along the rows: work[y][u] = sum_k tile[y][k] basis[u][k]
    for (int r = row0; r < kBlock; r += kRows) {
        float sum = 0.0f;
        for (int k = 0; k < kBlock; ++k) sum = fmaf(tile[r][k], basis[lane][k], sum);
        work[r][lane] = sum;
    }
    __syncthreads();

    // along the columns, with the threshold (the mean of the block stays)
    for (int v = row0; v < kBlock; v += kRows) {
        float sum = 0.0f;
        for (int k = 0; k < kBlock; ++k) sum = fmaf(basis[v][k], work[k][lane], sum);
        float kept = copysignf(fmaxf(fabsf(sum) - kThreshold, 0.0f), sum);
        tile[v][lane] = (v + lane == 0) ? sum : kept;
    }
    __syncthreads();

    // back: columns, then rows
    for (int r = row0; r < kBlock; r += kRows) {
        float sum = 0.0f;
        for (int v = 0; v < kBlock; ++v) sum = fmaf(basis[v][r], tile[v][lane], sum);
        work[r][lane] = sum;
    }
    __syncthreads();
    for (int r = row0; r < kBlock; r += kRows) {
        float sum = 0.0f;
        for (int u = 0; u < kBlock; ++u) sum = fmaf(work[r][u], basis[u][lane], sum);
        cleaned[origin + size_t(r) * kSide + lane] = sum;
    }
}

int main() {
    float *plane, *cleaned;
    size_t pixels = size_t(kSide) * kSide;
    CHECK(cudaMalloc(&plane, pixels * sizeof(float)));
    CHECK(cudaMalloc(&cleaned, pixels * sizeof(float)));

    std::vector<float> cosines(kBlock * kBlock);
    for (int u = 0; u < kBlock; ++u)
        for (int k = 0; k < kBlock; ++k)
            cosines[u * kBlock + k] =
                float(std::sqrt((u ? 2.0 : 1.0) / kBlock) * std::cos(M_PI * (k + 0.5) * u / kBlock));
    CHECK(cudaMemcpyToSymbol(c_cosines, cosines.data(), cosines.size() * sizeof(float)));
    makePlane<<<dim3(kSide / 256, kSide), 256>>>(plane);
    CHECK(cudaGetLastError());

    dim3 grid(kSide / kBlock, kSide / kBlock), threads(kBlock, kRows);
    auto step = [&] {
        cleanBlocks<<<grid, threads>>>(plane, cleaned);
        CHECK(cudaGetLastError());
    };

    int done = 0;
    for (int i = 0; i < kWarmup; ++i, ++done) step();
    CHECK(cudaDeviceSynchronize());

    std::vector<double> perStep;
    for (int b = 0; b < kBlocks; ++b) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kPerBlock; ++i, ++done) step();
        CHECK(cudaDeviceSynchronize());
        std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
        perStep.push_back(took.count() / kPerBlock);
    }
    std::sort(perStep.begin(), perStep.end());
    double us = 0.5 * (perStep[kBlocks / 2 - 1] + perStep[kBlocks / 2]);

    std::vector<float> out(pixels);
    CHECK(cudaMemcpy(out.data(), cleaned, pixels * sizeof(float), cudaMemcpyDeviceToHost));
    double mean = 0.0, rough = 0.0;
    for (size_t i = 0; i < pixels; ++i) mean += out[i];
    for (size_t i = 1; i < pixels; ++i) rough += std::fabs(double(out[i]) - out[i - 1]);
    std::printf("plane of %d x %d pixels\n", kSide, kSide);
    std::printf("{\"program\": \"cuda_papyrus\", \"steps\": %d, \"us\": %.3f, \"result\": [%.8g, %.8g]}\n",
                done, us, mean / pixels, rough / pixels);
    CHECK(cudaFree(plane));
    CHECK(cudaFree(cleaned));
    return 0;
}
