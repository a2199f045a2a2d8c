// A matrix of 65,536 x 8192 weights of one byte times a vector of bytes, as in a quantised model.
// tolerance: 0
#include "field.cuh"

typedef signed char int8;
const int ROWS = 1 << 16, C = 8192;

// A warp a row.
__global__ void int8_matvec(const int8* __restrict__ weight, const int8* __restrict__ x,
                            int* __restrict__ y) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    const int8* w = weight + size_t(row) * C;
    int sum = 0;
#if VARIANT == 0
    for (int c = lane; c < C; c += 32) sum += w[c] * x[c];
#else
#pragma unroll 4
    for (int c = lane; c < C / 16; c += 32) {
        int4 a = reinterpret_cast<const int4*>(w)[c], b = reinterpret_cast<const int4*>(x)[c];
        sum = __dp4a(a.x, b.x, sum);
        sum = __dp4a(a.y, b.y, sum);
        sum = __dp4a(a.z, b.z, sum);
        sum = __dp4a(a.w, b.w, sum);
    }
#endif
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (lane == 0) y[row] = sum;
}

int main() {
    auto value = [] __device__(size_t i) { return int8(int(field::hash(uint32_t(i)) % 255) - 127); };
    auto* weight = field::filled<int8>(size_t(ROWS) * C, value);
    auto* x = field::filled<int8>(C, [] __device__(size_t i) { return int8(field::hash(uint32_t(i) + 5u)); });
    int* y = field::zeros<int>(ROWS);
    field::run([&] { int8_matvec<<<ROWS / 8, 256>>>(weight, x, y); });
    return field::report(y, ROWS);
}
