// Sum of two vectors of 100 million bfloat16 numbers, with llm.c's kernels 1 and 2.
// tolerance: 1e-2
// from: llm.c
// before kernel: residual_forward_kernel1
// after kernel: residual_forward_kernel2
#include "public.cuh"
#include "dev/cuda/residual_forward.cu"
#undef main

int main() {
    const int n = 48 << 21;
    floatX *one = field::numbers<floatX>(n, 1), *other = field::numbers<floatX>(n, 2);
    floatX* out = field::zeros<floatX>(n);
    field::run([&] {
#if VARIANT == 0
        residual_forward_kernel1<<<n / 256, 256>>>(out, one, other, n);
#else
        residual_forward_kernel2<<<n / (256 * x128::size), 256>>>(out, one, other, n);
#endif
    });
    return field::report(field::floats(out, n), n);
}
