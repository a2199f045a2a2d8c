// The place of the largest of 4 million numbers in each of 16 rows.
// tolerance: 0
#include "field.cuh"

typedef unsigned long long u64;

// Larger values win, then smaller places.
__global__ void argmax_rows(const float* __restrict__ in, size_t columns, u64* __restrict__ best) {
    const float* row = in + blockIdx.y * columns;
    u64 mine = 0;
    for (size_t c = blockIdx.x * size_t(blockDim.x) + threadIdx.x; c < columns;
         c += size_t(gridDim.x) * blockDim.x) {
        u64 packed = u64(__float_as_uint(row[c])) << 32 | ~unsigned(c);
        mine = mine > packed ? mine : packed;
    }
    for (int d = 16; d > 0; d /= 2) {
        u64 other = __shfl_down_sync(0xffffffffu, mine, d);
        mine = mine > other ? mine : other;
    }
    __shared__ u64 part[32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; ++w) mine = mine > part[w] ? mine : part[w];
        atomicMax(&best[blockIdx.y], mine);
    }
}

int main() {
    const int rows = 16;
    const size_t columns = size_t(1) << 22;
    float* in = field::filled<float>(rows * columns, [] __device__(size_t i) { return field::unit(i); });
    u64* best = field::zeros<u64>(rows);
    const dim3 grid = VARIANT == 0 ? dim3(1, rows) : dim3(64, rows);
    field::run([&] { CHECK(cudaMemset(best, 0, rows * sizeof(u64))); },
               [&] { argmax_rows<<<grid, VARIANT == 0 ? 1024 : 256>>>(in, columns, best); });
    auto* place = field::filled<unsigned>(rows, [=] __device__(size_t i) { return ~unsigned(best[i]); });
    return field::report(place, rows);
}
