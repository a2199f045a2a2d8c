// A sparse matrix in CSR form times a vector, 64 entries a row.
// tolerance: 1e-4
#include "field.cuh"

__global__ void spmv_csr(const int* __restrict__ start, const int* __restrict__ column,
                         const float* __restrict__ value, const float* __restrict__ x,
                         float* __restrict__ y, int rows) {
#if VARIANT == 0
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int e = start[row]; e < start[row + 1]; ++e) sum += value[e] * x[column[e]];
    y[row] = sum;
#else
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int e = start[row] + lane; e < start[row + 1]; e += 32) sum += value[e] * x[column[e]];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) y[row] = sum;
#endif
}

int main() {
    const int rows = 1 << 20, per_row = 64;
    const size_t entries = size_t(rows) * per_row;
    int* start = field::filled<int>(rows + 1, [] __device__(size_t i) { return int(i) * 64; });
    int* column = field::filled<int>(entries, [] __device__(size_t i) {
        return int((i / 64 + field::hash(uint32_t(i)) % 4096) % (1u << 20));
    });
    float* value = field::filled<float>(entries, [] __device__(size_t i) { return field::unit(i, 1); });
    float* x = field::filled<float>(rows, [] __device__(size_t i) { return field::unit(i, 2); });
    float* y = field::zeros<float>(rows);
    const int threads = 256, per_block = VARIANT == 0 ? threads : threads / 32;
    field::run([&] {
        spmv_csr<<<(rows + per_block - 1) / per_block, threads>>>(start, column, value, x, y, rows);
    });
    return field::report(y, rows);
}
