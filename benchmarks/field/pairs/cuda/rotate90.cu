// Turn a picture of 16384 x 8192 pixels of 4 bytes by 90 degrees.
// tolerance: 0
#include "field.cuh"

__global__ void rotate90(const unsigned* __restrict__ in, unsigned* __restrict__ out, int w, int h) {
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
#if VARIANT == 0
    for (int k = 0; k < 32; k += 8) out[size_t(x) * h + (h - 1 - y - k)] = in[size_t(y + k) * w + x];
#else
    __shared__ unsigned tile[32][33];
    for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[size_t(y + k) * w + x];
    __syncthreads();
    int column = h - 1 - (blockIdx.y * 32 + threadIdx.x);
    int row = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        out[size_t(row + k) * h + column] = tile[threadIdx.x][threadIdx.y + k];
#endif
}

int main() {
    const int w = 16384, h = 8192;
    auto* in = field::filled<unsigned>(size_t(w) * h, [] __device__(size_t i) {
        return field::hash(uint32_t(i));
    });
    auto* out = field::zeros<unsigned>(size_t(w) * h);
    field::run([&] { rotate90<<<dim3(w / 32, h / 32), dim3(32, 8)>>>(in, out, w, h); });
    return field::report(out, size_t(w) * h);
}
