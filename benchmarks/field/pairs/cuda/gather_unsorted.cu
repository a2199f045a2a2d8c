// Fetch 64 million values from a table of 512 MB by index.
// tolerance: 0
#include "field.cuh"

const unsigned N = 1u << 26;

// A bijection of [0, N).
__device__ unsigned shuffled(unsigned i) {
    i = (i * 0x9e3779b1u) % N;
    i ^= i >> 13;
    i = (i * 0x85ebca6bu) % N;
    return i ^ (i >> 13);
}

__global__ void gather_unsorted(const unsigned* __restrict__ index, const float* __restrict__ table,
                                float* __restrict__ out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = table[index[i]];
}

int main() {
    auto* index = field::filled<unsigned>(N, [] __device__(size_t i) {
        unsigned k = VARIANT == 0 ? shuffled(unsigned(i)) : unsigned(i);
        return 2 * k + (field::hash(k) & 1);
    });
    float* table = field::filled<float>(2 * size_t(N), [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(N);
    field::run([&] { gather_unsorted<<<N / 256, 256>>>(index, table, out); });
    float* sorted = field::zeros<float>(N);
    field::filled<char>(N, [=] __device__(size_t i) {
        sorted[index[i] / 2] = out[i];
        return char(0);
    });
    return field::report(sorted, N);
}
