// A matrix of 524,288 rows and 256 columns times a vector.
// tolerance: 1e-4
#include "field.cuh"

__global__ void matvec_short(const float* __restrict__ a, const float* __restrict__ x,
                             float* __restrict__ y) {
#if VARIANT == 0
    __shared__ float part[256];
    int t = threadIdx.x;
    part[t] = a[size_t(blockIdx.x) * 256 + t] * x[t];
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (t < d) part[t] += part[t + d];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = part[0];
#else
    int lane = threadIdx.x % 32;
    size_t row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const float4* from = reinterpret_cast<const float4*>(a + row * 256);
    const float4* with = reinterpret_cast<const float4*>(x);
    float4 p = from[lane], q = from[lane + 32], u = with[lane], v = with[lane + 32];
    float sum = p.x * u.x + p.y * u.y + p.z * u.z + p.w * u.w;
    sum += q.x * v.x + q.y * v.y + q.z * v.z + q.w * v.w;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) y[row] = sum;
#endif
}

int main() {
    const int rows = 1 << 19;
    float* a = field::filled<float>(size_t(rows) * 256, [] __device__(size_t i) { return field::unit(i); });
    float* x = field::filled<float>(256, [] __device__(size_t i) { return field::unit(i, 1); });
    float* y = field::zeros<float>(rows);
    field::run([&] { matvec_short<<<VARIANT == 0 ? rows : rows / 8, 256>>>(a, x, y); });
    return field::report(y, rows);
}
