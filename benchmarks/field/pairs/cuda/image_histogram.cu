// The histogram of a picture of 32 million bytes, half of them dark.
// tolerance: 0
#include "field.cuh"

__global__ void image_histogram(const unsigned char* __restrict__ pixel, int n,
                                unsigned int* __restrict__ counts) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#if VARIANT == 0
    if (i < n) atomicAdd(&counts[pixel[i]], 1u);
#else
    __shared__ unsigned int own[8][256];  // one copy a warp
    for (int b = threadIdx.x; b < 8 * 256; b += blockDim.x) own[b / 256][b % 256] = 0;
    __syncthreads();
    unsigned int* mine = own[threadIdx.x / 32];
    const uint4* quads = reinterpret_cast<const uint4*>(pixel);
    for (; i < n / 16; i += gridDim.x * blockDim.x) {
        uint4 v = quads[i];
        const unsigned int words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int w = 0; w < 4; ++w)
#pragma unroll
            for (int b = 0; b < 4; ++b) atomicAdd(&mine[(words[w] >> (8 * b)) & 255], 1u);
    }
    __syncthreads();
    unsigned int sum = 0;
    for (int w = 0; w < 8; ++w) sum += own[w][threadIdx.x];
    atomicAdd(&counts[threadIdx.x], sum);
#endif
}

int main() {
    const int n = 1 << 25;
    auto* pixel = field::filled<unsigned char>(n, [] __device__(size_t i) {
        uint32_t h = field::hash(uint32_t(i));
        return (unsigned char)((h & 256) ? h % 4 : h % 256);
    });
    auto* counts = field::zeros<unsigned int>(256);
    const int blocks = VARIANT == 0 ? n / 256 : field::sm_count() * 8;
    field::run([&] { CHECK(cudaMemset(counts, 0, 256 * sizeof(unsigned int))); },
               [&] { image_histogram<<<blocks, 256>>>(pixel, n, counts); });
    return field::report(counts, 256);
}
