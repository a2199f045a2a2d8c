// Pictures of 64 channels and 512 x 512 pixels, 16 of them, from channels first to channels last.
// tolerance: 0
#include "field.cuh"

const int PICTURES = 16, C = 64, P = 512 * 512;

__global__ void channels_last(const float* __restrict__ in, float* __restrict__ out) {
    __shared__ float tile[32][VARIANT == 0 ? 32 : 33];
    int p = blockIdx.x * 32, c = blockIdx.y * 32;
    size_t picture = size_t(blockIdx.z) * C * P;
#pragma unroll
    for (int k = threadIdx.y; k < 32; k += 8)
        tile[k][threadIdx.x] = in[picture + size_t(c + k) * P + p + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int k = threadIdx.y; k < 32; k += 8)
        out[picture + size_t(p + k) * C + c + threadIdx.x] = tile[threadIdx.x][k];
}

int main() {
    const size_t n = size_t(PICTURES) * C * P;
    float* in = field::filled<float>(n, [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(n);
    field::run([&] { channels_last<<<dim3(P / 32, C / 32, PICTURES), dim3(32, 8)>>>(in, out); });
    return field::report(out, n);
}
