// How often a pattern of 8 letters occurs in each megabyte of a text of 512 MB over four letters.
// tolerance: 0
#include "field.cuh"

const size_t N = size_t(1) << 29;
const int M = 8;
__constant__ __align__(8) char pattern[M];

__global__ void string_search(const char* __restrict__ text, int* __restrict__ counts) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
#if VARIANT == 0
    if (i + M > N) return;
    int j = 0;
    while (j < M && text[i + j] == pattern[j]) ++j;
    if (j == M) atomicAdd(&counts[i >> 20], 1);
#else
    size_t at = i * 16;
    if (at >= N) return;
    uint4 a = *reinterpret_cast<const uint4*>(text + at);
    uint2 b = make_uint2(0, 0);
    if (at + 16 < N) b = *reinterpret_cast<const uint2*>(text + at + 16);
    const unsigned words[6] = {a.x, a.y, a.z, a.w, b.x, b.y};
    const unsigned low = reinterpret_cast<const unsigned*>(pattern)[0];
    const unsigned high = reinterpret_cast<const unsigned*>(pattern)[1];
    int found = 0;
#pragma unroll
    for (int p = 0; p < 16; ++p) {
        int w = p / 4, shift = 8 * (p % 4);
        unsigned l = __funnelshift_r(words[w], words[w + 1], shift);
        unsigned h = __funnelshift_r(words[w + 1], words[w + 2], shift);
        found += l == low && h == high;
    }
    if (found) atomicAdd(&counts[at >> 20], found);
#endif
}

int main() {
    char* text = field::filled<char>(N, [] __device__(size_t i) {
        return "ACGT"[field::hash(uint32_t(i)) % 4];
    });
    int* counts = field::zeros<int>(N >> 20);
    CHECK(cudaMemcpyToSymbol(pattern, "GATTACAT", M));
    const size_t threads = VARIANT == 0 ? N : N / 16;
    field::run([&] { CHECK(cudaMemset(counts, 0, (N >> 20) * sizeof(int))); },
               [&] { string_search<<<unsigned(threads / 256), 256>>>(text, counts); });
    return field::report(counts, N >> 20);
}
