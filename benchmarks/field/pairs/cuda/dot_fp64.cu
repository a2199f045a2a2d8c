// The dot product of two vectors of 32 million doubles.
// tolerance: 1e-10
#include "field.cuh"

__global__ void dot_fp64(const double* __restrict__ a, const double* __restrict__ b, int n,
                         double* result) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#if VARIANT == 0
    double sum = i < n ? a[i] * b[i] : 0.0;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(result, sum);
#else
    __shared__ double part[8];
    const double2* a2 = reinterpret_cast<const double2*>(a);
    const double2* b2 = reinterpret_cast<const double2*>(b);
    double sum = 0.0;
#pragma unroll 4
    for (; i < n / 2; i += gridDim.x * blockDim.x) {
        double2 u = a2[i], v = b2[i];
        sum += u.x * v.x + u.y * v.y;
    }
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) sum += part[w];
        atomicAdd(result, sum);
    }
#endif
}

int main() {
    const int n = 1 << 25;
    auto* a = field::filled<double>(n, [] __device__(size_t i) { return double(field::unit(i, 1)); });
    auto* b = field::filled<double>(n, [] __device__(size_t i) { return double(field::unit(i, 2)); });
    auto* result = field::zeros<double>(1);
    const int blocks = VARIANT == 0 ? n / 256 : field::sm_count() * 8;
    field::run([&] { CHECK(cudaMemset(result, 0, sizeof(double))); },
               [&] { dot_fp64<<<blocks, 256>>>(a, b, n, result); });
    return field::report(result, 1);
}
