// Swap the middle axes of an array of 32 x 1023 x 33 x 62 floats, sizes known at run time.
// tolerance: 0
#include "field.cuh"

struct Shape {
    size_t d1, d2, d3;                // of the output, outermost axis left out
    unsigned m1, m2, m3, s1, s2, s3;  // multiplier and shift of the division by each
};

// n / d for n < 2^31.
__device__ unsigned divided(unsigned n, unsigned multiplier, unsigned shift) {
    return __umulhi(n, multiplier) >> shift;
}

__global__ void permute4d(const float* __restrict__ in, float* __restrict__ out, size_t n, Shape shape) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i >= n) return;
#if VARIANT == 0
    size_t c = i % shape.d3, rest = i / shape.d3;
    size_t b = rest % shape.d2;
    rest /= shape.d2;
    size_t a = rest % shape.d1, o = rest / shape.d1;
    out[i] = in[((o * shape.d2 + b) * shape.d1 + a) * shape.d3 + c];
#else
    unsigned d1 = unsigned(shape.d1), d2 = unsigned(shape.d2), d3 = unsigned(shape.d3), k = unsigned(i);
    unsigned rest = divided(k, shape.m3, shape.s3), c = k - rest * d3;
    unsigned outer = divided(rest, shape.m2, shape.s2), b = rest - outer * d2;
    unsigned o = divided(outer, shape.m1, shape.s1), a = outer - o * d1;
    out[i] = in[((o * d2 + b) * d1 + a) * d3 + c];
#endif
}

// ceil(2^(32 + shift) / d), exact for n < 2^31 where 2^(shift + 1) >= d.
static void reciprocal(size_t d, unsigned& multiplier, unsigned& shift) {
    for (shift = 0; (size_t(2) << shift) < d;) ++shift;
    multiplier = unsigned(((size_t(1) << (32 + shift)) + d - 1) / d);
}

int main() {
    Shape shape = {33, 1023, 62, 0, 0, 0, 0, 0, 0};
    reciprocal(shape.d1, shape.m1, shape.s1);
    reciprocal(shape.d2, shape.m2, shape.s2);
    reciprocal(shape.d3, shape.m3, shape.s3);
    const size_t n = 32 * shape.d1 * shape.d2 * shape.d3;
    float* in = field::filled<float>(n, [] __device__(size_t i) { return field::unit(i); });
    float* out = field::zeros<float>(n);
    field::run([&] { permute4d<<<unsigned((n + 255) / 256), 256>>>(in, out, n, shape); });
    return field::report(out, n);
}
