// Keep the values of 64 million that are above the middle, in any order.
// tolerance: 0
#include "field.cuh"

__device__ bool kept(unsigned v) { return v > 0x80000000u; }

__global__ void compaction(const unsigned* __restrict__ in, unsigned* __restrict__ out, int n,
                           unsigned* count) {
#if VARIANT == 0
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && kept(in[i])) out[atomicAdd(count, 1u)] = in[i];
#else
    __shared__ unsigned totals[8], base;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned* from = in + size_t(blockIdx.x) * 4096 + warp * 512;
    unsigned v[16], mask[16], total = 0;
#pragma unroll
    for (int k = 0; k < 16; ++k) v[k] = from[k * 32 + lane];
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        mask[k] = __ballot_sync(0xffffffffu, kept(v[k]));
        total += __popc(mask[k]);
    }
    if (lane == 0) totals[warp] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        for (int w = 0; w < 8; ++w) {
            unsigned t = totals[w];
            totals[w] = sum;
            sum += t;
        }
        base = atomicAdd(count, sum);
    }
    __syncthreads();
    unsigned at = base + totals[warp];
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        if (kept(v[k])) out[at + __popc(mask[k] & ((1u << lane) - 1))] = v[k];
        at += __popc(mask[k]);
    }
#endif
}

int main() {
    const int n = 1 << 26;
    auto* in = field::filled<unsigned>(n, [] __device__(size_t i) { return field::hash(uint32_t(i)); });
    auto* out = field::zeros<unsigned>(n);
    auto* count = field::zeros<unsigned>(1);
    field::run([&] { CHECK(cudaMemset(count, 0, sizeof(unsigned))); },
               [&] { compaction<<<VARIANT == 0 ? n / 256 : n / 4096, 256>>>(in, out, n, count); });
    return field::report(out, n, false);
}
