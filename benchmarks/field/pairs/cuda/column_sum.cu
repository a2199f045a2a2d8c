// The sums of 2048 columns over 65,536 rows.
// tolerance: 1e-4
#include "field.cuh"

const int ROWS = 65536, C = 2048;

__global__ void column_sum(const float* __restrict__ in, float* __restrict__ out) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int rows = ROWS / gridDim.y, first = blockIdx.y * rows;
    float sum = 0.0f;
#pragma unroll 8
    for (int r = first; r < first + rows; ++r) sum += in[size_t(r) * C + c];
    atomicAdd(&out[c], sum);
}

int main() {
    float* in = field::filled<float>(size_t(ROWS) * C, [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(C);
    field::run([&] { CHECK(cudaMemset(out, 0, C * sizeof(float))); },
               [&] { column_sum<<<dim3(C / 256, VARIANT == 0 ? 1 : 128), 256>>>(in, out); });
    return field::report(out, C);
}
