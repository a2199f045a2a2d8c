// GELU of 67 million bfloat16 numbers, with llm.c's kernels 1 and 2.
// tolerance: 1e-2
// from: llm.c
// before kernel: gelu_forward_kernel1
// after kernel: gelu_forward_kernel2
#include "public.cuh"
#include "dev/cuda/gelu_forward.cu"
#undef main

int main() {
    const int n = 1 << 26;
    floatX *in = field::numbers<floatX>(n, 1, -3, 3), *out = field::zeros<floatX>(n);
    field::run([&] {
#if VARIANT == 0
        gelu_forward_kernel1<<<n / 256, 256>>>(out, in, n);
#else
        gelu_forward_kernel2<<<n / (256 * x128::size), 256>>>(out, in, n);
#endif
    });
    return field::report(field::floats(out, n), n);
}
