// A filter of 9 taps over 128 million samples, a block an SM, tiles copied asynchronously.
// tolerance: 1e-4
#include "field.cuh"
#include <cuda_pipeline.h>

// AHEAD tiles are copied while one is filtered.
const int TILE = 4096, THREADS = 512, AHEAD = VARIANT == 0 ? 0 : 3, STAGES = AHEAD + 1, PITCH = TILE + 8;

__constant__ float tap[9];

__device__ void copy_tile(float* to, const float* from) {
    for (int q = threadIdx.x; q < PITCH / 4; q += THREADS)
        __pipeline_memcpy_async(to + 4 * q, from + 4 * q, 16);
}

// Sample i is at in[i + 8].
__global__ void fir_stream(const float* __restrict__ in, float* __restrict__ out, int tiles) {
    extern __shared__ __align__(16) float stage[];
    for (int a = 0; a < AHEAD; ++a) {
        int tile = blockIdx.x + a * gridDim.x;
        if (tile < tiles) copy_tile(stage + a * PITCH, in + size_t(tile) * TILE);
        __pipeline_commit();
    }
    int at = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int later = tile + AHEAD * gridDim.x, slot = (at + AHEAD) % STAGES;
        if (later < tiles) copy_tile(stage + slot * PITCH, in + size_t(later) * TILE);
        __pipeline_commit();
        __pipeline_wait_prior(AHEAD);
        __syncthreads();
        const float* x = stage + at * PITCH;
        for (int i = threadIdx.x; i < TILE; i += THREADS) {
            float sum = 0.0f;
#pragma unroll
            for (int k = 0; k < 9; ++k) sum += tap[k] * x[i + 8 - k];
            out[size_t(tile) * TILE + i] = sum;
        }
        __syncthreads();
        at = (at + 1) % STAGES;
    }
}

int main() {
    const int n = 1 << 27, bytes = STAGES * PITCH * int(sizeof(float));
    float t[9];
    for (int k = 0; k < 9; ++k) t[k] = field::unit(k, 1);
    CHECK(cudaMemcpyToSymbol(tap, t, sizeof t));
    float* in = field::filled<float>(n + 8, [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(n);
    CHECK(cudaFuncSetAttribute(fir_stream, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    field::run([&] { fir_stream<<<field::sm_count(), THREADS, bytes>>>(in, out, n / TILE); });
    return field::report(out, n);
}
