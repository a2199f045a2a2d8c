// Gradient of the GELU of 67 million bfloat16 numbers, with llm.c's kernels 1 and 2.
// tolerance: 1e-2
// from: llm.c
// before kernel: gelu_backward1
// after kernel: gelu_backward2
#include "public.cuh"
#include "dev/cuda/gelu_backward.cu"
#undef main

int main() {
    const int n = 1 << 26;
    floatX *in = field::numbers<floatX>(n, 1, -3, 3), *given = field::numbers<floatX>(n, 2, -1, 1);
    floatX* out = field::zeros<floatX>(n);
    field::run([&] {
#if VARIANT == 0
        gelu_backward1<<<n / 256, 256>>>(out, in, given, n);
#else
        gelu_backward2<<<n / (256 * x128::size), 256>>>(out, in, given, n);
#endif
    });
    return field::report(field::floats(out, n), n);
}
